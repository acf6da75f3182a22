//! What came out, in numbers; everything that tables, pages and JSON show is read from here.

use client::data::{DataSplit, digits};
use common::metrics::{Summary, TierSplit};
use coordinator::report::{DeviceLine, RoundReport};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{DemoError, DemoOptions, Fleet, Training, options::ComparedStrategy};

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DemoResult {
    pub setup: Setup,
    /// The baseline first.
    pub runs: Vec<StrategyRun>,
    /// Of every later run against the baseline.
    pub changes: Vec<BaselineChange>,
}

/// What was run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Setup {
    pub seed: u64,
    pub rounds: u32,
    pub model: String,
    pub training: Training,
    pub tiers: Vec<TierSetup>,
    pub devices: usize,
    pub classes: u32,
    pub train_samples: u64,
    pub test_samples: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierSetup {
    pub devices: usize,
    /// Units of each hidden axis.
    pub widths: Vec<u32>,
    pub parameters: u32,
    /// Bytes that training takes.
    pub needs: u64,
    /// Bytes that the tier's devices have.
    pub ram: u64,
}

/// One strategy from the first round to the scores of its final model, which devices take on samples
/// they have not trained on.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StrategyRun {
    pub strategy: &'static str,
    pub title: &'static str,
    pub params: Map<String, Value>,
    pub seconds: f64,
    pub loss: Summary,
    pub loss_by_tier: Vec<Summary>,
    pub loss_split: TierSplit,
    pub accuracy: Summary,
    pub accuracy_by_tier: Vec<Summary>,
    pub devices: Vec<DeviceLine>,
    pub curve: Vec<CurvePoint>,
}

/// The model after so many rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CurvePoint {
    pub rounds: u32,
    pub loss: f64,
    pub variance: f64,
    pub worst10: f64,
    pub accuracy: f64,
    pub loss_by_tier: Vec<f64>,
    /// Least of the shortenings of the step over regions; absent where the strategy has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rho: Option<f64>,
}

/// Relative change of a figure against the baseline: -0.3 is 30 % less.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BaselineChange {
    pub strategy: &'static str,
    pub mean: f64,
    pub worst10: f64,
    pub best10: f64,
    pub variance: f64,
    pub within: f64,
    pub inter: f64,
    pub accuracy: f64,
    pub mean_by_tier: Vec<f64>,
}

/// `new / old - 1`; 0 where both are 0.
pub fn change(old: f64, new: f64) -> f64 {
    if old == new { 0.0 } else { new / old - 1.0 }
}

impl DemoResult {
    /// From runs that somebody else has made, in the order of the strategies: reports of all rounds, and seconds.
    pub fn of(
        options: &DemoOptions,
        fleet: &Fleet,
        runs: &[(Vec<RoundReport>, f64)],
    ) -> Result<Self, DemoError> {
        let strategies = options.strategies();
        let runs = strategies.iter().zip(runs);
        let runs = runs.map(|(strategy, (reports, seconds))| StrategyRun::new(strategy, reports, *seconds));
        Ok(Self::new(options, fleet, runs.collect::<Result<_, _>>()?))
    }

    pub(super) fn new(options: &DemoOptions, fleet: &Fleet, runs: Vec<StrategyRun>) -> Self {
        let changes = match runs.split_first() {
            Some((base, others)) => others.iter().map(|run| BaselineChange::of(base, run)).collect(),
            None => vec![],
        };
        Self { setup: Setup::new(options, fleet), runs, changes }
    }
}

impl Setup {
    fn new(options: &DemoOptions, fleet: &Fleet) -> Self {
        let devices = |tier| fleet.devices.iter().filter(|device| device.tier == tier).count();
        let tiers = fleet.hardware.iter().enumerate().map(|(tier, hardware)| TierSetup {
            devices: devices(tier),
            widths: hardware.widths.clone(),
            parameters: hardware.parameters,
            needs: hardware.needs,
            ram: hardware.budget.ram,
        });
        Self {
            seed: options.seed,
            rounds: options.rounds,
            model: aggregator::config::ModelConfig::default().source,
            training: options.training,
            tiers: tiers.collect(),
            devices: fleet.devices.len(),
            classes: digits::CLASSES,
            train_samples: fleet.samples(DataSplit::Train),
            test_samples: fleet.samples(DataSplit::Test),
        }
    }
}

impl StrategyRun {
    pub(super) fn new(
        strategy: &ComparedStrategy,
        reports: &[RoundReport],
        seconds: f64,
    ) -> Result<Self, DemoError> {
        let last = reports.last().filter(|report| report.purpose == "evaluate");
        let last = last.ok_or(DemoError::NoScores { strategy: strategy.title })?.clone();
        Ok(Self {
            strategy: strategy.name,
            title: strategy.title,
            params: strategy.params.clone(),
            seconds,
            loss: last.loss,
            loss_by_tier: last.loss_by_tier,
            loss_split: last.loss_split,
            accuracy: last.accuracy,
            accuracy_by_tier: last.accuracy_by_tier,
            devices: last.devices,
            curve: reports.iter().map(CurvePoint::new).collect(),
        })
    }
}

impl CurvePoint {
    /// A round reports on the model it began with.
    fn new(report: &RoundReport) -> Self {
        Self {
            rounds: report.round.saturating_sub(1),
            loss: report.loss.mean,
            variance: report.loss.variance,
            worst10: report.loss.worst10,
            accuracy: report.accuracy.mean,
            loss_by_tier: report.loss_by_tier.iter().map(|tier| tier.mean).collect(),
            rho: report.regions.iter().filter_map(|region| region.rho).reduce(f64::min),
        }
    }
}

impl BaselineChange {
    fn of(base: &StrategyRun, run: &StrategyRun) -> Self {
        let tiers = base.loss_by_tier.iter().zip(&run.loss_by_tier);
        Self {
            strategy: run.strategy,
            mean: change(base.loss.mean, run.loss.mean),
            worst10: change(base.loss.worst10, run.loss.worst10),
            best10: change(base.loss.best10, run.loss.best10),
            variance: change(base.loss.variance, run.loss.variance),
            within: change(base.loss_split.within, run.loss_split.within),
            inter: change(base.loss_split.inter, run.loss_split.inter),
            accuracy: change(base.accuracy.mean, run.accuracy.mean),
            mean_by_tier: tiers.map(|(old, new)| change(old.mean, new.mean)).collect(),
        }
    }
}
