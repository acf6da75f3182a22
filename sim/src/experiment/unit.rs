//! One setting with one seed: training, scores, and the result.

use std::{path::PathBuf, time::Instant};

use aggregator::run::open_method;
use common::metrics::Better;
use coordinator::report::RoundReport;
use strategies::{Registry, fairness::FairnessLine, tiered::TieredModel};
use trainer::data::Shard;

use super::{
    Arrangement, ExperimentError, Setting,
    arrange::PlacedDevice,
    baseline::{self, Baseline},
    choose::{self, Chosen},
    lines,
    score::{ShardScore, TierWeights, score_all, slices},
    spec::Base,
};
use crate::{
    data::DeviceShard,
    engine::Engine,
    results::{
        DeviceScore, FORMAT, FinalScores, GapFigures, GlobalScore, GroupFigures, MeanWeights,
        PersonalFigures, RoundScores, RunCost, TargetResult, UnitId, UnitResult,
    },
};

type Params = serde_json::Map<String, serde_json::Value>;

/// The result of training.
#[derive(Debug)]
pub struct TrainedFleet {
    pub model: TieredModel,
    /// The model of each device.
    pub weights: Vec<TierWeights>,
    /// Slices of the common model by tier; `None` if there is no common model.
    pub whole: Option<Vec<TierWeights>>,
    /// Predictions are those of a randomly picked device's model.
    pub mixture: bool,
    pub rounds: Vec<RoundScores>,
    /// Last known test loss and accuracy of personal models; those of numbers have no accuracy.
    pub personal: Vec<Option<(f64, Option<f64>)>>,
    /// Rounds in which each device delivered.
    pub heard: Vec<u32>,
    pub cost: RunCost,
    pub weight_line: Option<MeanWeights>,
    /// The knobs of a fairness target after the last round.
    pub targets: Vec<FairnessLine>,
}

impl TrainedFleet {
    pub fn of(model: TieredModel, weights: Vec<TierWeights>, whole: Option<Vec<TierWeights>>) -> Self {
        let (personal, heard) = (vec![None; weights.len()], vec![0; weights.len()]);
        Self {
            model,
            weights,
            whole,
            mixture: false,
            rounds: vec![],
            personal,
            heard,
            cost: RunCost::default(),
            weight_line: None,
            targets: vec![],
        }
    }
}

/// Losses of devices that trained alone.
#[derive(Clone, PartialEq, Debug)]
pub struct AloneLosses {
    pub test: Vec<f64>,
    /// Losses on held-out samples, if there are any.
    pub valid: Option<Vec<f64>>,
}

/// The environment of a unit besides its setting.
pub struct UnitContext<'a> {
    pub registry: &'a Registry,
    pub arranged: &'a Arrangement,
    pub alone: Option<&'a AloneLosses>,
    /// The fairness target, where it depends on other results.
    pub target: Option<f64>,
    /// Mean validation loss of the setting's reference, if already known.
    pub reference: Option<f64>,
    pub threads: usize,
    /// Where the reports of a strategy's run are written for pages.
    pub pages: Option<PathBuf>,
    /// Called after every round.
    pub tick: &'a mut dyn FnMut(),
}

impl std::fmt::Debug for UnitContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Around").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Runs a unit.
pub fn run(
    setting: &Setting,
    unit: UnitId,
    mut context: UnitContext<'_>,
) -> Result<UnitResult, ExperimentError> {
    let started = Instant::now();
    let fingerprint = setting.fingerprint(unit.seed);
    let mut setting = setting.clone();
    if let Some(target) = context.target {
        setting.base.fairness.target = target;
    }
    let setting = &setting;
    let Chosen { params, trained, tried, over_limit } = match &setting.strategy.choose {
        Some(choose) => choose::choose(setting, choose, &mut context)?,
        None => {
            let params = setting.strategy.params.clone();
            let trained = train(&setting.base, &setting.strategy.name, &params, &mut context)?;
            Chosen { params, trained, tried: vec![], over_limit: None }
        }
    };
    let last = score(&trained, &context)?;
    Ok(UnitResult {
        format: FORMAT,
        fingerprint,
        unit,
        label: setting.label.clone(),
        strategy: setting.strategy.name.clone(),
        params,
        choice: tried,
        over_limit,
        fairness: TargetResult::all(&trained.targets, &trained.rounds),
        rounds: trained.rounds,
        last,
        account: trained.cost,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Trains with any strategy or baseline.
pub fn train(
    base: &Base,
    name: &str,
    params: &Params,
    context: &mut UnitContext<'_>,
) -> Result<TrainedFleet, ExperimentError> {
    match Baseline::by_name(name) {
        Some(baseline) => baseline.train(base, params, context.arranged, context.threads, context.tick),
        None => fleet(base, name, params, context),
    }
}

/// Trains the fleet with an aggregator's strategy.
fn fleet(
    base: &Base,
    name: &str,
    params: &Params,
    context: &mut UnitContext<'_>,
) -> Result<TrainedFleet, ExperimentError> {
    let UnitContext { registry, arranged, threads, tick, pages, .. } = context;
    let config = arranged.config(base, name, params);
    let keep = open_method(registry, &config)?.needs().validation;
    let members = arranged.members(keep, !base.fairness.is_off())?;
    let mut engine = Engine::new(registry, &config, members, arranged.chances(base), *threads)?;
    let model = engine.worker().conductor.run.model.clone();
    let tiers: Vec<usize> = arranged.devices.iter().map(|placed| placed.tier.index()).collect();
    let every = base.evaluate_every;
    // Scores of the model at the start of the next round.
    let score_now = |parameters: &[f32]| {
        let slices = slices(&model, parameters);
        score_devices(&model, &place(&slices, &tiers), arranged, |placed| &placed.shard, *threads)
    };
    let mut next = if every > 0 { Some(score_now(engine.parameters())) } else { None };
    let (mut rounds, mut fault) = (Vec::new(), None);
    let reports = engine.run(|report, parameters| {
        let mut line = lines::round_scores(report);
        match next.take() {
            Some(Ok(scored)) => lines::rescore(&mut line, &tiers, &scored),
            Some(Err(error)) => fault = Some(error),
            None => {}
        }
        rounds.push(line);
        if every > 0 && report.purpose == "train" && report.round.is_multiple_of(every) {
            next = Some(score_now(parameters));
        }
        tick();
    })?;
    if let Some(fault) = fault {
        return Err(fault);
    }
    if let Some(dir) = pages {
        aggregator::computed::write(dir, &config, &reports)
            .map_err(|source| ExperimentError::Write { path: dir.clone(), source })?;
    }
    let whole = slices(&model, engine.parameters());
    let weights = place(&whole, &tiers);
    let mut trained = TrainedFleet::of(model.clone(), weights, Some(whole));
    (trained.rounds, trained.cost) = (rounds, lines::cost(&engine));
    trained.weight_line = lines::weights(&reports);
    trained.targets = reports
        .iter()
        .rev()
        .map(|report| report.fairness.clone())
        .find(|lines| !lines.is_empty())
        .unwrap_or_default();
    for (index, placed) in arranged.devices.iter().enumerate() {
        let name = placed.device.as_str();
        let own = |report: &RoundReport| report.devices.iter().find(|line| line.device == name).cloned();
        for (report, line) in reports.iter().filter_map(|report| Some((report, own(report)?))) {
            if let Some(loss) = line.personal_loss {
                trained.personal[index] = Some((loss, line.personal_accuracy));
            }
            trained.heard[index] += u32::from(report.purpose == "train");
        }
    }
    Ok(trained)
}

fn place(slices: &[TierWeights], tiers: &[usize]) -> Vec<TierWeights> {
    tiers.iter().filter_map(|&tier| slices.get(tier)).cloned().collect()
}

/// Predictions by group. A mixture scores every model on the samples of all devices.
fn groups(
    trained: &TrainedFleet,
    arranged: &Arrangement,
    shard: impl Fn(&PlacedDevice) -> &DeviceShard,
    scored: &[ShardScore],
    threads: usize,
) -> Result<Option<GroupFigures>, ExperimentError> {
    if !trained.mixture {
        return Ok(lines::groups(scored));
    }
    // All models on all samples: rates are means over models.
    let shards: Vec<&DeviceShard> = arranged.devices.iter().map(shard).collect();
    let jobs: Vec<_> = trained
        .weights
        .iter()
        .flat_map(|weights| shards.iter().map(move |shard| (weights, *shard)))
        .collect();
    Ok(lines::groups(&score_all(&trained.model.plans, &jobs, threads)?))
}

/// Scores every device's model on its own samples.
pub fn score_devices(
    model: &TieredModel,
    weights: &[TierWeights],
    arranged: &Arrangement,
    shard: impl Fn(&PlacedDevice) -> &DeviceShard,
    threads: usize,
) -> Result<Vec<ShardScore>, ExperimentError> {
    let jobs: Vec<_> =
        weights.iter().zip(&arranged.devices).map(|(own, placed)| (own, shard(placed))).collect();
    score_all(&model.plans, &jobs, threads)
}

/// Trains every device alone.
pub fn alone_losses(
    base: &Base,
    arranged: &Arrangement,
    threads: usize,
) -> Result<AloneLosses, ExperimentError> {
    let (model, weights) = baseline::alone(base, arranged)?;
    let losses = |scored: Vec<ShardScore>| scored.iter().map(ShardScore::mean_loss).collect();
    let test = losses(score_devices(&model, &weights, arranged, |placed| &placed.shard, threads)?);
    let valid = match arranged.has_validation() {
        true => Some(losses(score_devices(&model, &weights, arranged, |placed| &placed.valid, threads)?)),
        false => None,
    };
    Ok(AloneLosses { test, valid })
}

/// How much worse the common model is than the devices' own models.
fn gaps(scored: &[ShardScore], alone: &[f64]) -> GapFigures {
    let gaps: Vec<f64> = scored.iter().zip(alone).map(|(scored, alone)| scored.mean_loss() - alone).collect();
    let common::metrics::Gaps { max, min, mean, variance, awareness: faa, .. } =
        common::metrics::Gaps::of(&gaps);
    GapFigures { max, min, mean, variance, faa }
}

fn score(trained: &TrainedFleet, context: &UnitContext<'_>) -> Result<FinalScores, ExperimentError> {
    let &UnitContext { arranged, alone, threads, .. } = context;
    let scored = score_devices(&trained.model, &trained.weights, arranged, |placed| &placed.shard, threads)?;
    let tiers: Vec<usize> = arranged.devices.iter().map(|placed| placed.tier.index()).collect();
    let mut last = lines::distribution(&tiers, &scored, trained.model.plans.len());
    last.devices = devices(trained, arranged, &scored, alone.map(|alone| &*alone.test));
    if trained.personal.iter().any(Option::is_some) {
        let losses = trained.personal.iter().flatten().map(|both| both.0);
        let accuracies = || trained.personal.iter().flatten().filter_map(|both| both.1);
        last.personal = Some(PersonalFigures {
            loss: lines::figures(losses, Better::Low),
            accuracy: accuracies().next().map(|_| lines::figures(accuracies(), Better::High)),
        });
    }
    if let (Some(whole), Some(common)) = (&trained.whole, &arranged.common) {
        let jobs: Vec<_> = whole.iter().map(|weights| (weights, common)).collect();
        let global = |scored: &ShardScore| GlobalScore {
            samples: scored.samples.into(),
            loss: scored.mean_loss(),
            accuracy: scored.accuracy(),
            mae: scored.mae(),
            r2: scored.r2(),
        };
        last.global = score_all(&trained.model.plans, &jobs, threads)?.iter().map(global).collect();
    }
    last.gaps = alone.map(|alone| gaps(&scored, &alone.test));
    last.groups = groups(trained, arranged, |placed| &placed.shard, &scored, threads)?;
    last.weights = trained.weight_line;
    last.conflicts = lines::conflicts(&trained.rounds);
    if arranged.has_validation() {
        let valid = validate(trained, context)?;
        (last.validation_loss, last.gaps_valid) = (Some(valid.loss.mean), valid.gaps);
        last.validation_cv = valid.figure("tiers.cv");
    }
    Ok(last)
}

/// Figures on validation data.
pub fn validate(trained: &TrainedFleet, context: &UnitContext<'_>) -> Result<FinalScores, ExperimentError> {
    let &UnitContext { arranged, alone, threads, .. } = context;
    let scored = score_devices(&trained.model, &trained.weights, arranged, |placed| &placed.valid, threads)?;
    let tiers: Vec<usize> = arranged.devices.iter().map(|placed| placed.tier.index()).collect();
    let mut figures = lines::distribution(&tiers, &scored, trained.model.plans.len());
    figures.groups = groups(trained, arranged, |placed| &placed.valid, &scored, threads)?;
    figures.gaps = alone.and_then(|alone| Some(gaps(&scored, alone.valid.as_ref()?)));
    Ok(figures)
}

fn devices(
    trained: &TrainedFleet,
    arranged: &Arrangement,
    scored: &[ShardScore],
    alone: Option<&[f64]>,
) -> Vec<DeviceScore> {
    let score = |(index, (placed, scored)): (usize, (&PlacedDevice, &ShardScore))| {
        let personal = trained.personal[index];
        DeviceScore {
            device: placed.device.to_string(),
            tier: placed.tier.index(),
            train_samples: placed.shard.train_len(),
            test_samples: placed.shard.test_len(),
            loss: scored.mean_loss(),
            accuracy: scored.accuracy(),
            mae: scored.mae(),
            r2: scored.r2(),
            alone: alone.map(|alone| alone[index]),
            personal_loss: personal.map(|(loss, _)| loss),
            personal_accuracy: personal.and_then(|(_, accuracy)| accuracy),
            rounds: trained.heard[index],
        }
    };
    arranged.devices.iter().zip(scored).enumerate().map(score).collect()
}
