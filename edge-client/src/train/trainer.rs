//! One Assignment's work, in slices of one batch.
//!
//! ```text
//! Before (loss of the received model) -> Test -> Train -> After (if asked for) -> Done
//!                                            \-> Done (Task::Evaluate)
//! ```
//! Call order: put the model into the weights, [`Work::begin`], [`Work::step`] until it says
//! [`Progress::Done`], then, after training, [`finish_update`]; the update lies in the anchor segment.
//! Between steps the caller does what it likes, except touch the arena. The same task, model and shard
//! give the same weights, however steps are spread over time.

use common::{
    message::{Brief, Scalars, Score, Task},
    plan::{Node, Plan},
    rng::{Permutation, derive},
};

use super::{
    Backend, Tally, Target, TrainError, backward, descend,
    executor::{forward, has_parameters, loss_and_gradient, score, shares_parameters},
};
use crate::data::{Part, Shard};

/// The state between two steps.
#[derive(Clone, Debug)]
pub struct Work {
    brief: Option<Brief>,
    phase: Phase,
    /// Samples of the current pass that are done.
    done: u32,
    tally: Tally,
    before: Tally,
    test: Option<Tally>,
    after: Option<Tally>,
    trained: u32,
    step: u32,
    steps: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Before,
    Test,
    Train { epoch: u16 },
    After,
    Done,
}

/// What a step led to.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Progress {
    /// `step` of `steps` batches are done.
    Busy {
        step: u32,
        steps: u32,
    },
    Done(Scalars),
}

impl Work {
    /// Checks that task, plan, arena and shard fit each other, and keeps the received model as anchor.
    pub fn begin(
        task: Task,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
    ) -> Result<Self, TrainError> {
        check_sizes(plan, arena.len(), shard)?;
        let brief = match task {
            Task::Train(brief) => {
                check_brief(plan, &brief)?;
                let anchor = plan.info.anchor.ok_or(TrainError::InferenceOnly)? as usize;
                let params = plan.info.params as usize;
                if anchor.saturating_add(params) > arena.len() {
                    return Err(TrainError::Arena { need: anchor.saturating_add(params), have: arena.len() });
                }
                arena.copy_within(..params, anchor);
                Some(brief)
            }
            Task::Evaluate => None,
        };
        let whole = u32::from(plan.info.batch);
        let pass = shard.train_len().div_ceil(whole);
        let training = brief.map_or(0, |brief| {
            let epoch = shard.train_len().div_ceil(u32::from(brief.batch));
            let after = if brief.loss_after { pass } else { 0 };
            epoch.saturating_mul(u32::from(brief.epochs)).saturating_add(after)
        });
        Ok(Self {
            brief,
            phase: Phase::Before,
            done: 0,
            tally: Tally::default(),
            before: Tally::default(),
            test: None,
            after: None,
            trained: 0,
            step: 0,
            steps: pass.saturating_add(shard.test_len().div_ceil(whole)).saturating_add(training),
        })
    }

    /// Works on one batch. Once done, gives the same scalars again.
    pub fn step(
        &mut self,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
        backend: &(impl Backend<f32> + ?Sized),
    ) -> Result<Progress, TrainError> {
        let whole = u32::from(plan.info.batch);
        match (self.phase, self.brief) {
            (Phase::Train { epoch }, Some(brief)) => {
                let order = Permutation::new(shard.train_len(), derive(brief.seed, epoch.into()));
                let batch = self.batch(plan, Part::Train, shard, u32::from(brief.batch));
                train(&batch, arena, brief.lr, |place| order.at(place), backend)
                    .and_then(|tally| self.count(tally, shard.train_len()))?;
            }
            (Phase::Test, _) => {
                let tally = evaluate(&self.batch(plan, Part::Test, shard, whole), arena, backend)?;
                self.count(tally, shard.test_len())?;
            }
            (Phase::Before | Phase::After, _) => {
                let tally = evaluate(&self.batch(plan, Part::Train, shard, whole), arena, backend)?;
                self.count(tally, shard.train_len())?;
            }
            (Phase::Train { .. } | Phase::Done, _) => {}
        }
        self.skip_empty(shard.test_len());
        Ok(match self.phase {
            Phase::Done => Progress::Done(self.scalars()),
            _ => Progress::Busy { step: self.step, steps: self.steps },
        })
    }

    fn batch<'a, S: Shard + ?Sized>(
        &self,
        plan: Plan<'a>,
        part: Part,
        shard: &'a S,
        size: u32,
    ) -> Batch<'a, S> {
        let rows = size.min(shard.len(part).saturating_sub(self.done));
        Batch { plan, shard, part, first: self.done, rows }
    }

    /// Adds a batch to the current pass, and goes on to the next phase after the last one.
    fn count(&mut self, tally: Tally, len: u32) -> Result<(), TrainError> {
        self.step += 1;
        self.tally.merge(tally);
        if !self.tally.loss.is_finite() {
            return Err(TrainError::Diverged { step: self.step });
        }
        self.done += tally.samples;
        self.trained += u32::from(matches!(self.phase, Phase::Train { .. }));
        if self.done < len {
            return Ok(());
        }
        let tally = core::mem::take(&mut self.tally);
        self.done = 0;
        self.phase = match self.phase {
            Phase::Before => {
                self.before = tally;
                Phase::Test
            }
            Phase::Test => {
                self.test = Some(tally);
                Phase::Train { epoch: 0 }
            }
            Phase::Train { epoch } => Phase::Train { epoch: epoch + 1 },
            Phase::After => {
                self.after = Some(tally);
                Phase::Done
            }
            Phase::Done => Phase::Done,
        };
        Ok(())
    }

    /// Leaves phases in which there is nothing to do, so that the last batch is also the last step.
    fn skip_empty(&mut self, test_len: u32) {
        if self.phase == Phase::Test && test_len == 0 {
            self.phase = Phase::Train { epoch: 0 };
        }
        if let Phase::Train { epoch } = self.phase {
            self.phase = match self.brief {
                Some(brief) if epoch < brief.epochs => return,
                Some(brief) if brief.loss_after => Phase::After,
                _ => Phase::Done,
            };
        }
    }

    fn scalars(&self) -> Scalars {
        let score =
            |tally: Tally| Score { samples: tally.samples, correct: tally.correct, loss: tally.mean_loss() };
        Scalars {
            samples: self.before.samples,
            loss_before: self.before.mean_loss(),
            loss_after: self.after.map(|tally| tally.mean_loss()),
            test: self.test.map(score),
            steps: self.trained,
        }
    }
}

/// Turns the anchor into the update: `weights - anchor`, plus what a lossy codec still owes.
pub fn finish_update(plan: Plan<'_>, arena: &mut [f32]) -> Result<(), TrainError> {
    let (need, have) = (plan.info.arena as usize, arena.len());
    let segment = |at: u32| at as usize..(at as usize).saturating_add(plan.info.params as usize);
    let anchor = segment(plan.info.anchor.ok_or(TrainError::InferenceOnly)?);
    let residual = plan.info.residual.map_or(0..0, segment);
    let [weights, anchor, residual] = arena
        .get_disjoint_mut([segment(0), anchor, residual])
        .map_err(|_| TrainError::Arena { need, have })?;
    for (anchor, &weight) in anchor.iter_mut().zip(&*weights) {
        *anchor = weight - *anchor;
    }
    for (anchor, &owed) in anchor.iter_mut().zip(&*residual) {
        *anchor += owed;
    }
    if anchor.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(TrainError::NonFiniteUpdate) }
}

/// Consecutive places of one pass over a part of the shard.
struct Batch<'a, S: ?Sized> {
    plan: Plan<'a>,
    shard: &'a S,
    part: Part,
    first: u32,
    rows: u32,
}

impl<S: Shard + ?Sized> Batch<'_, S> {
    fn read(&self, arena: &mut [f32], order: impl Fn(u32) -> u32) -> Result<(), TrainError> {
        let (need, have) = (self.plan.info.arena as usize, arena.len());
        let (at, width) = (self.plan.info.input as usize, self.plan.info.inputs as usize);
        let rows = arena.get_mut(at..at.saturating_add(width.saturating_mul(self.rows as usize)));
        let rows = rows.ok_or(TrainError::Arena { need, have })?;
        for (place, row) in (self.first..).zip(rows.chunks_exact_mut(width.max(1))) {
            self.shard.sample(self.part, order(place), row)?;
        }
        Ok(())
    }
}

fn evaluate<S: Shard + ?Sized>(
    batch: &Batch<'_, S>,
    arena: &mut [f32],
    backend: &(impl Backend<f32> + ?Sized),
) -> Result<Tally, TrainError> {
    let rows = batch.rows as usize;
    batch.read(arena, |place| place)?;
    forward(batch.plan, arena, rows, backend)?;
    score(batch.plan, arena, rows, |row| batch.shard.label(batch.part, batch.first + row as u32))
}

fn train<S: Shard + ?Sized>(
    batch: &Batch<'_, S>,
    arena: &mut [f32],
    lr: f32,
    order: impl Fn(u32) -> u32,
    backend: &(impl Backend<f32> + ?Sized),
) -> Result<Tally, TrainError> {
    let (plan, rows) = (batch.plan, batch.rows as usize);
    batch.read(arena, &order)?;
    forward(plan, arena, rows, backend)?;
    let label = |row| batch.shard.label(batch.part, order(batch.first + row as u32));
    let tally = loss_and_gradient(plan, arena, rows, label)?;
    match plan.info.grads {
        None => backward(plan, arena, rows, Target::Weights { lr }, backend)?,
        Some(grads) => {
            backward(plan, arena, rows, Target::Grads, backend)?;
            let (weights, rest) = arena.split_at_mut((grads as usize).min(arena.len()));
            descend(lr, rest, weights.get_mut(..plan.info.params as usize).unwrap_or_default());
        }
    }
    Ok(tally)
}

fn check_sizes(plan: Plan<'_>, have: usize, shard: &(impl Shard + ?Sized)) -> Result<(), TrainError> {
    let need = plan.info.arena as usize;
    if have < need {
        return Err(TrainError::Arena { need, have });
    }
    if plan.info.batch == 0 {
        return Err(TrainError::Batch { rows: 1, batch: 0 });
    }
    if shard.train_len() == 0 {
        return Err(TrainError::EmptyShard);
    }
    if shard.inputs() != plan.info.inputs {
        return Err(TrainError::Inputs { plan: plan.info.inputs, shard: shard.inputs() });
    }
    if shard.classes() > plan.info.outputs {
        return Err(TrainError::Classes { plan: plan.info.outputs, classes: shard.classes() });
    }
    Ok(())
}

fn check_brief(plan: Plan<'_>, brief: &Brief) -> Result<(), TrainError> {
    if brief.batch == 0 || !(brief.lr.is_finite() && brief.lr > 0.0) {
        return Err(TrainError::Brief { batch: brief.batch, lr: brief.lr });
    }
    if brief.batch > plan.info.batch {
        return Err(TrainError::Batch { rows: brief.batch.into(), batch: plan.info.batch.into() });
    }
    if plan.info.grads.is_none() && shares_parameters(plan) {
        return Err(TrainError::SharedParameters);
    }
    let trains = |node: &Node| node.output_grad.is_some() || !has_parameters(node);
    let has_loss = plan.nodes.last().is_some_and(|node| node.output_grad.is_some());
    if !has_loss || !plan.nodes.iter().all(trains) {
        return Err(TrainError::InferenceOnly);
    }
    Ok(())
}

#[cfg(test)]
#[cfg(feature = "host")]
mod tests;
