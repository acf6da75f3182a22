//! Scores of models on test samples: losses, hits or errors of predicted numbers, and positive predictions by group.
//!
//! One thread scores a whole job, and results are in the order of jobs. So they do not depend on the number of
//! threads.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use common::{
    Tier,
    metrics::ErrorSums,
    plan::{Loss, Plan},
};
use strategies::tiered::{TierPlan, TieredModel};
use trainer::{
    data::{DataSplit, Shard},
    train::{Fast, PassMode, TargetLabels, TargetValues, TrainError, forward, score},
};

use super::ExperimentError;
use crate::data::DeviceShard;

/// A slice of a model, and the tier whose Plan executes it.
#[derive(Clone, Debug)]
pub struct TierWeights {
    pub tier: Tier,
    pub values: Arc<[f32]>,
}

/// The scores of a model on some samples.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ShardScore {
    pub samples: u32,
    pub targets: u64,
    pub correct: u64,
    /// Sum of losses over targets.
    pub loss: f64,
    /// Samples of each group (label x A + attribute), and how many of them were predicted positive. Empty if there
    /// are no groups.
    pub counts: Vec<f64>,
    pub positive: Vec<f64>,
    /// Errors of predicted numbers, in place of hits.
    pub errors: Option<ErrorSums>,
}

impl ShardScore {
    pub fn mean_loss(&self) -> f64 {
        if self.targets == 0 { 0.0 } else { self.loss / self.targets as f64 }
    }

    /// `None` for predicted numbers.
    pub fn accuracy(&self) -> Option<f64> {
        let share = if self.targets == 0 { 0.0 } else { self.correct as f64 / self.targets as f64 };
        self.errors.is_none().then_some(share)
    }

    /// Mean absolute error in the unit of the targets; `None` for classes.
    pub fn mae(&self) -> Option<f64> {
        self.errors?.mae()
    }

    /// `None` for classes, and where all targets are equal.
    pub fn r2(&self) -> Option<f64> {
        self.errors?.r2()
    }

    /// R2 over the samples of several devices together.
    pub fn pooled_r2<'a>(scored: impl Iterator<Item = &'a Self>) -> Option<f64> {
        let mut sums = ErrorSums::default();
        scored.filter_map(|scored| scored.errors).for_each(|errors| sums.join(&errors));
        sums.r2()
    }
}

/// Each tier's slice of a whole model.
pub fn slices(model: &TieredModel, parameters: &[f32]) -> Vec<TierWeights> {
    let slice = |tier: Tier| {
        let mut values = Vec::new();
        model.gather(tier, parameters, &mut values);
        TierWeights { tier, values: values.into() }
    };
    (0..model.plans.len()).filter_map(Tier::new).map(slice).collect()
}

/// Scores each model on the test part of its shard.
pub fn score_all(
    plans: &[TierPlan],
    jobs: &[(&TierWeights, &DeviceShard)],
    threads: usize,
) -> Result<Vec<ShardScore>, ExperimentError> {
    if plans.iter().any(|plan| plan.info.stats > 0) {
        return Err(ExperimentError::Statistics);
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![None; jobs.len()]);
    let work = || {
        let (mut arena, mut backend) = (Vec::new(), Fast::new());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((weights, shard)) = jobs.get(at) else { return };
            let plan = &plans[weights.tier.index()];
            let scored = score_one(plan, &weights.values, shard, &mut arena, &mut backend);
            done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(scored);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1).min(jobs.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().map(|scored| Ok(scored.expect("every job is taken by a thread")?)).collect()
}

fn score_one(
    tier: &TierPlan,
    weights: &[f32],
    shard: &DeviceShard,
    arena: &mut Vec<f32>,
    backend: &mut Fast,
) -> Result<ShardScore, TrainError> {
    let info = &tier.info;
    let Ok(plan) = Plan::check(info, &tier.nodes, &tier.schedule) else {
        return Err(TrainError::Arena { need: info.arena as usize, have: 0 });
    };
    let missing = TrainError::Arena { need: info.arena as usize, have: weights.len() };
    arena.clear();
    arena.resize(info.arena as usize, 0.0);
    arena.get_mut(..weights.len()).ok_or(missing)?.copy_from_slice(weights);
    let groups = if shard.targets() == 1 { shard.groups() as usize } else { 0 };
    let numbers = info.loss == Loss::Squared;
    let mut scored = ShardScore {
        counts: vec![0.0; groups],
        positive: vec![0.0; groups],
        errors: numbers.then(ErrorSums::default),
        ..ShardScore::default()
    };
    let (batch, inputs, targets) = (u32::from(info.batch.max(1)), info.inputs as usize, shard.targets());
    let (mut labels, mut values) = (Vec::new(), Vec::new());
    for first in (0..shard.test_len()).step_by(batch as usize) {
        let rows = batch.min(shard.test_len() - first);
        labels.clear();
        values.clear();
        let at = info.input as usize;
        let room = &mut arena[at..at + inputs * rows as usize];
        for (index, row) in (first..).zip(room.chunks_exact_mut(inputs.max(1))) {
            shard.sample(DataSplit::Test, index, row)?;
            for position in 0..targets {
                if numbers {
                    values.push(shard.value_at(DataSplit::Test, index, position)?);
                } else {
                    labels.push(shard.label_at(DataSplit::Test, index, position)?);
                }
            }
        }
        forward(plan, arena, rows as usize, PassMode::Evaluate, backend)?;
        let per_row = targets as usize;
        let tally = match numbers {
            true => score(plan, arena, rows as usize, &TargetValues { values: &values, per_row })?,
            false => score(plan, arena, rows as usize, &TargetLabels { labels: &labels, per_row })?,
        };
        scored.samples += rows;
        scored.targets += u64::from(tally.targets);
        scored.correct += u64::from(tally.correct);
        scored.loss += tally.loss;
        if let Some(errors) = &mut scored.errors {
            // A model of numbers has one output for every number.
            let predicted = &arena[info.logits as usize..];
            for (at, (&value, &predicted)) in values.iter().zip(predicted).enumerate() {
                let (value, unit) = (f64::from(value), f64::from(shard.unit((at % per_row.max(1)) as u32)));
                let error = f64::from(predicted) - value;
                errors.add(1.0, error.abs() * unit, error * error, (value, 0.0));
            }
        }
        if groups > 0 {
            let outputs = info.outputs as usize;
            let logits = &arena[info.logits as usize..];
            for (index, logits) in (first..first + rows).zip(logits.chunks_exact(outputs.max(1))) {
                let cell = shard.group(DataSplit::Test, index) as usize;
                scored.counts[cell] += 1.0;
                scored.positive[cell] += f64::from(is_positive(info.loss, logits));
            }
        }
    }
    Ok(scored)
}

fn is_positive(loss: Loss, logits: &[f32]) -> u8 {
    u8::from(match (loss, logits) {
        (Loss::Softmax { .. }, [no, yes, ..]) => yes > no,
        (_, [logit, ..]) => *logit > 0.0,
        _ => false,
    })
}
