//! The results of the demo as numbers. Tables, pages and JSON all read them from here.

use client::data::{DataSplit, digits};
use common::metrics::{Summary, TierSplit};
use coordinator::report::{DeviceLine, RoundReport};
use serde::Serialize;
use serde_json::{Map, Value};

use strategies::fairness::FairnessLine;

use super::{
    DemoError, DemoOptions, DisparityPoint, Fleet, SeedResult, Training,
    fleet::{MINORITY, RARE},
    options::ComparedStrategy,
};

/// The result of the demo.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DemoResult {
    /// What was run.
    pub setup: Setup,
    /// Runs by strategy, the baseline first.
    pub runs: Vec<StrategyRun>,
    /// Changes of every other run against the baseline.
    pub changes: Vec<BaselineChange>,
    /// One row for every seed that was run, this one among them.
    pub seeds: Vec<SeedResult>,
}

/// The configuration of the demo.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Setup {
    /// Seed of the demo.
    pub seed: u64,
    /// Rounds per strategy.
    pub rounds: u32,
    /// Name of the model.
    pub model: String,
    /// How devices trained in a round.
    pub training: Training,
    /// The tiers, widest first.
    pub tiers: Vec<TierSetup>,
    /// Number of devices.
    pub devices: usize,
    /// Number of classes.
    pub classes: u32,
    /// Training samples of all devices.
    pub train_samples: u64,
    /// Samples of all devices that only measure the disparity; they are among the training samples.
    pub held_out: u64,
    /// Test samples of all devices.
    pub test_samples: u64,
    /// The device with classes of its own, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minority: Option<&'static str>,
    /// The classes that only the minority has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rare: Vec<u32>,
}

/// One tier and its devices.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierSetup {
    /// Number of devices.
    pub devices: usize,
    /// Units of each hidden axis.
    pub widths: Vec<u32>,
    /// Number of parameters.
    pub parameters: u32,
    /// Bytes that training needs.
    pub needs: u64,
    /// Bytes of RAM of the tier's devices.
    pub ram: u64,
}

/// One run of a strategy. Scores are those of the final model on samples that devices have not trained on.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StrategyRun {
    /// Name of the strategy in the configuration.
    pub strategy: &'static str,
    /// Name of the strategy as it is printed.
    pub title: &'static str,
    /// Parameters of the strategy.
    pub params: Map<String, Value>,
    /// Wall time in seconds.
    pub seconds: f64,
    /// Test losses over all devices.
    pub loss: Summary,
    /// Test losses by tier.
    pub loss_by_tier: Vec<Summary>,
    /// Variance of losses within and between tiers.
    pub loss_split: TierSplit,
    /// Test accuracies over all devices.
    pub accuracy: Summary,
    /// Test accuracies by tier.
    pub accuracy_by_tier: Vec<Summary>,
    /// Scores of every device.
    pub devices: Vec<DeviceLine>,
    /// Scores by round.
    pub curve: Vec<CurvePoint>,
    /// Disparity and knob by round; empty without a target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disparity: Vec<DisparityPoint>,
    /// The target after the last round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<FairnessLine>,
}

/// Scores of the model after this many rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CurvePoint {
    /// Number of finished rounds.
    pub rounds: u32,
    /// Mean test loss.
    pub loss: f64,
    /// Variance of test losses over devices.
    pub variance: f64,
    /// Mean test loss of the worst 10 % of devices.
    pub worst10: f64,
    /// Mean test accuracy.
    pub accuracy: f64,
    /// Mean test loss by tier.
    pub loss_by_tier: Vec<f64>,
    /// Smallest factor by which the strategy shortens the step, over regions. `None` for strategies that do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rho: Option<f64>,
}

/// Relative changes against the baseline: -0.3 is 30 % less.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BaselineChange {
    /// Name of the strategy.
    pub strategy: &'static str,
    /// Mean loss.
    pub mean: f64,
    /// Loss of the worst 10 % of devices.
    pub worst10: f64,
    /// Loss of the best 10 % of devices.
    pub best10: f64,
    /// Variance of losses over devices.
    pub variance: f64,
    /// Variance within tiers.
    pub within: f64,
    /// Variance of the tier means.
    pub inter: f64,
    /// Mean accuracy.
    pub accuracy: f64,
    /// Mean loss by tier.
    pub mean_by_tier: Vec<f64>,
}

/// `new / old - 1`; 0 where both are 0.
pub fn change(old: f64, new: f64) -> f64 {
    if old == new { 0.0 } else { new / old - 1.0 }
}

impl DemoResult {
    /// Builds the result from the reports and seconds of finished runs, in the order of the strategies. Runs whose reports
    /// have no target count as runs without one, whatever the options say.
    pub fn of(
        options: &DemoOptions,
        fleet: &Fleet,
        runs: &[(Vec<RoundReport>, f64)],
    ) -> Result<Self, DemoError> {
        let aimed = runs.iter().any(|(reports, _)| reports.iter().any(|report| !report.fairness.is_empty()));
        let options = &DemoOptions { target: if aimed { options.target } else { 0.0 }, ..options.clone() };
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
        // A fleet that is run without a target holds out nothing.
        let measured = runs.iter().any(|run| run.target.is_some());
        let setup = Setup::new(options, fleet, measured);
        let seeds = SeedResult::of(&setup, &runs).into_iter().collect();
        Self { setup, runs, changes, seeds }
    }
}

impl Setup {
    fn new(options: &DemoOptions, fleet: &Fleet, measured: bool) -> Self {
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
            held_out: if measured { fleet.held_out() } else { 0 },
            test_samples: fleet.samples(DataSplit::Test),
            minority: options.minority.then_some(MINORITY),
            rare: if options.minority { RARE.to_vec() } else { vec![] },
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
            disparity: reports.iter().filter_map(DisparityPoint::new).collect(),
            target: reports.iter().rev().find_map(|report| report.fairness.first().cloned()),
        })
    }
}

impl CurvePoint {
    /// A round reports scores of the model at its start.
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
    pub(super) fn of(base: &StrategyRun, run: &StrategyRun) -> Self {
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
