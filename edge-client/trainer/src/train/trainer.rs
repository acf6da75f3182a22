//! One Assignment's work, in slices of one pass over the Plan.
//!
//! ```text
//! Statistics -> Before (loss of the received model) -> Test -> Train -> Statistics -> After -> Done
//!                                                          \-> Gradient -> Done (Product::Gradient)
//!                                                           \-> Done (Task::Evaluate(None))
//! ```
//! Statistics are collected where the model has batch normalisation; After is made if it is asked for.
//! Call order: put the model into the weights (and a guide into its segment), [`Work::begin`],
//! [`Work::step`] until it says [`Progress::Done`], then, after training, [`finish_update`]; the update lies
//! in the anchor segment. Between steps the caller does what it likes, except touch the arena. The same task,
//! model and shard give the same weights, however steps are spread over time.
//!
//! An optimiser step takes `brief.batch` samples; if the Plan has room for fewer, gradients are summed over
//! several passes. Self-regularisation runs each sample with a noisy copy in the same pass, so a pass then
//! takes half as many samples as the Plan has room for, and losses before and after training are robust
//! losses, too.

use common::{
    brief::{Brief, Product},
    message::{Scalars, Score, Task},
    plan::Plan,
    rng::{Permutation, derive},
};

use super::{Backend, Descent, Mode, Tally, Target, TrainError, apply, backward, executor::scale_gradient};
use crate::data::{Part, Shard};

pub(super) mod augment;
mod batch;
mod check;

use batch::{Batch, Order};

/// The state between two steps.
#[derive(Clone, Debug)]
pub struct Work {
    brief: Option<Brief>,
    phase: Phase,
    /// Samples of the current pass over the shard that are done.
    done: u32,
    tally: Tally,
    /// Of the optimiser step that is being made.
    summed: Tally,
    before: Tally,
    test: Option<Tally>,
    after: Option<Tally>,
    /// Optimiser steps made.
    trained: u32,
    step: u32,
    steps: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Statistics { trained: bool },
    Before,
    Test,
    Train { epoch: u16 },
    Gradient,
    After,
    Done,
}

/// What a step led to.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Progress {
    /// `step` of `steps` passes are done.
    Busy {
        step: u32,
        steps: u32,
    },
    Done(Scalars),
}

impl Work {
    /// Checks that task, plan, arena and shard fit each other, and keeps the received model as anchor.
    pub fn begin(
        task: &Task,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
    ) -> Result<Self, TrainError> {
        check::sizes(plan, arena.len(), shard)?;
        let info = plan.info();
        let brief = match task {
            Task::Train(brief) => {
                check::brief(plan, brief)?;
                let (anchor, params) = (check::anchor(plan)?, info.params as usize);
                arena.copy_within(..params, anchor);
                for moment in [info.segments.moment1, info.segments.moment2].into_iter().flatten() {
                    let moment = moment as usize..moment as usize + params;
                    arena.get_mut(moment).unwrap_or_default().fill(0.0);
                }
                Some(brief.clone())
            }
            Task::Evaluate(None) => None,
        };
        let mut work = Self {
            phase: if info.stats > 0 { Phase::Statistics { trained: false } } else { Phase::Before },
            brief,
            done: 0,
            tally: Tally::default(),
            summed: Tally::default(),
            before: Tally::default(),
            test: None,
            after: None,
            trained: 0,
            step: 0,
            steps: 0,
        };
        work.clear_statistics(plan, arena);
        work.steps = work.count_steps(plan, shard);
        Ok(work)
    }

    /// Works on one batch. Once done, gives the same scalars again.
    pub fn step(
        &mut self,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
        backend: &mut (impl Backend<f32> + ?Sized),
    ) -> Result<Progress, TrainError> {
        let (whole, train_len) = (u32::from(plan.info().batch), shard.train_len());
        match self.phase {
            Phase::Statistics { .. } => {
                let batch = self.batch(plan, Part::Train, shard, whole);
                let share = batch.rows as f32 / train_len as f32;
                let tally = batch.statistics(arena, share, backend)?;
                self.count(tally, train_len)?;
            }
            Phase::Train { epoch } => {
                let size = self.brief.as_ref().map_or(1, |brief| u32::from(brief.batch));
                let seed = self.brief.as_ref().map_or(0, |brief| brief.seed);
                let order = Order::Shuffled(Permutation::new(train_len, derive(seed, epoch.into())));
                let tally = self.train(plan, arena, shard, size, order, backend)?;
                self.count(tally, train_len)?;
            }
            Phase::Gradient => {
                let tally = self.train(plan, arena, shard, train_len, Order::Natural, backend)?;
                self.count(tally, train_len)?;
            }
            Phase::Test => {
                let tally = self.batch(plan, Part::Test, shard, whole).evaluate(arena, None, backend)?;
                self.count(tally, shard.test_len())?;
            }
            Phase::Before | Phase::After => {
                let batch = self.batch(plan, Part::Train, shard, self.room(plan));
                let tally = batch.evaluate(arena, self.brief.as_ref(), backend)?;
                self.count(tally, train_len)?;
            }
            Phase::Done => {}
        }
        if self.settle(plan, shard.test_len()) {
            self.clear_statistics(plan, arena);
        }
        Ok(match self.phase {
            Phase::Done => Progress::Done(self.scalars()),
            _ => Progress::Busy { step: self.step, steps: self.steps },
        })
    }

    /// One pass of an optimiser step of `size` samples, and the step itself after the last of them.
    fn train<S: Shard + ?Sized>(
        &mut self,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &S,
        size: u32,
        order: Order,
        backend: &mut (impl Backend<f32> + ?Sized),
    ) -> Result<Tally, TrainError> {
        let Some(brief) = &self.brief else { return Ok(Tally::default()) };
        let first = self.done - self.done % size.max(1);
        let whole = size.min(shard.train_len().saturating_sub(first));
        let end = first + whole;
        let mut batch = self.batch(plan, Part::Train, shard, self.room(plan).min(end - self.done));
        batch.order = order;
        let (fresh, last) = (self.done == first, self.done + batch.rows == end);
        let mode = Mode::Train { seed: brief.seed, step: self.step };
        let targets = whole.saturating_mul(plan.info().targets());
        let tally = batch.gradient(arena, brief, mode, targets, backend)?;
        self.summed.merge(tally);
        let factor = factor(brief, self.summed.loss / f64::from(targets.max(1)));
        let rows = batch.passed(Some(brief));
        // A step of one pass can have its factor at once, as it must where gradients are not kept.
        let late = if fresh && last {
            if factor != 1.0 {
                scale_gradient(plan, arena, rows, factor)?;
            }
            1.0
        } else {
            factor
        };
        let kept = plan.info().segments.grads.is_some();
        let target = match Descent::of(brief) {
            Some(descent) if !kept => Target::Weights(descent),
            _ if fresh => Target::Grads,
            _ => Target::MoreGrads,
        };
        backward(plan, arena, rows, mode, target, backend)?;
        if last {
            if brief.product == Product::Gradient {
                let grads = plan.info().segments.grads.unwrap_or(0) as usize;
                let grads = arena.get_mut(grads..grads + plan.info().params as usize).unwrap_or_default();
                grads.iter_mut().for_each(|grad| *grad *= late);
            } else {
                if kept {
                    apply(plan, arena, brief, self.trained + 1, late)?;
                }
                self.trained += 1;
            }
            self.summed = Tally::default();
        }
        Ok(tally)
    }

    fn batch<'a, S: Shard + ?Sized>(
        &self,
        plan: Plan<'a>,
        part: Part,
        shard: &'a S,
        size: u32,
    ) -> Batch<'a, S> {
        let rows = size.min(shard.len(part).saturating_sub(self.done));
        Batch { plan, shard, part, first: self.done, rows, order: Order::Natural, number: self.step }
    }

    /// Samples of the training part that a pass has room for.
    fn room(&self, plan: Plan<'_>) -> u32 {
        let robust = self.brief.as_ref().is_some_and(|brief| brief.objective.robust.is_some());
        u32::from(plan.info().batch) / if robust { 2 } else { 1 }
    }

    /// Adds a batch to the current pass, and goes on to the next phase after the last one.
    fn count(&mut self, tally: Tally, len: u32) -> Result<(), TrainError> {
        self.step += 1;
        self.tally.merge(tally);
        if !self.tally.loss.is_finite() {
            return Err(TrainError::Diverged { step: self.step });
        }
        self.done += tally.samples;
        let first_step_done =
            self.trained > 0 && self.brief.as_ref().is_some_and(|brief| brief.product == Product::FirstStep);
        if self.done < len && !(first_step_done && matches!(self.phase, Phase::Train { .. })) {
            return Ok(());
        }
        let tally = core::mem::take(&mut self.tally);
        self.done = 0;
        self.phase = match self.phase {
            Phase::Statistics { trained: false } => Phase::Before,
            Phase::Statistics { trained: true } => Phase::After,
            Phase::Before => {
                self.before = tally;
                Phase::Test
            }
            Phase::Test => {
                self.test = Some(tally);
                Phase::Train { epoch: 0 }
            }
            Phase::Train { .. } if first_step_done => Phase::Train { epoch: u16::MAX },
            Phase::Train { epoch } => Phase::Train { epoch: epoch.saturating_add(1) },
            Phase::Gradient => Phase::Done,
            Phase::After => {
                self.after = Some(tally);
                Phase::Done
            }
            Phase::Done => Phase::Done,
        };
        Ok(())
    }

    /// Leaves phases in which there is nothing to do, so that the last batch is also the last step. True if
    /// statistics are to be collected anew.
    fn settle(&mut self, plan: Plan<'_>, test_len: u32) -> bool {
        if self.phase == Phase::Test && test_len == 0 {
            self.phase = Phase::Train { epoch: 0 };
        }
        let Phase::Train { epoch } = self.phase else { return false };
        let Some(brief) = &self.brief else {
            self.phase = Phase::Done;
            return false;
        };
        self.phase = match brief.product {
            Product::Gradient => Phase::Gradient,
            Product::FirstStep if epoch == 0 && brief.epochs > 0 => return false,
            Product::Update if epoch < brief.epochs => return false,
            _ if !brief.loss_after => Phase::Done,
            _ if plan.info().stats > 0 => Phase::Statistics { trained: true },
            _ => Phase::After,
        };
        matches!(self.phase, Phase::Statistics { .. })
    }

    fn clear_statistics(&self, plan: Plan<'_>, arena: &mut [f32]) {
        if let (Some(at), true) = (plan.info().segments.stats, self.done == 0) {
            let segment = at as usize..at as usize + plan.info().stats as usize;
            arena.get_mut(segment).unwrap_or_default().fill(0.0);
        }
    }

    fn count_steps(&self, plan: Plan<'_>, shard: &(impl Shard + ?Sized)) -> u32 {
        let (whole, room, len) = (u32::from(plan.info().batch), self.room(plan).max(1), shard.train_len());
        let collect = if plan.info().stats > 0 { len.div_ceil(whole) } else { 0 };
        let evaluate = collect.saturating_add(len.div_ceil(room));
        let before = evaluate.saturating_add(shard.test_len().div_ceil(whole));
        let Some(brief) = &self.brief else { return before };
        let size = u32::from(brief.batch);
        let step = |samples: u32| samples.div_ceil(room);
        let epoch = (len / size).saturating_mul(step(size)).saturating_add(step(len % size));
        let training = match brief.product {
            Product::Gradient => return before.saturating_add(step(len)),
            Product::FirstStep if brief.epochs > 0 => step(size.min(len)),
            Product::FirstStep | Product::Update => epoch.saturating_mul(brief.epochs.into()),
        };
        let after = if brief.loss_after { evaluate } else { 0 };
        before.saturating_add(training).saturating_add(after)
    }

    fn scalars(&self) -> Scalars {
        let score =
            |tally: Tally| Score { samples: tally.targets, correct: tally.correct, loss: tally.mean_loss() };
        // A gradient leaves the model as it was.
        let same = self.brief.as_ref().filter(|brief| brief.product == Product::Gradient && brief.loss_after);
        let after = self.after.or(same.map(|_| self.before));
        Scalars {
            samples: self.before.samples,
            loss_before: self.before.mean_loss(),
            loss_after: after.map(|tally| tally.mean_loss()),
            test: self.test.map(score),
            steps: self.trained,
        }
    }
}

/// What the gradient of the batch loss is multiplied by: the objective's weight and PropFair's slope.
fn factor(brief: &Brief, loss: f64) -> f32 {
    let slope = brief.objective.transform.map_or(1.0, |transform| {
        let room = f64::from(transform.m) - loss;
        1.0 / if room > f64::from(transform.eps) { room } else { transform.eps.into() }
    });
    (f64::from(brief.objective.weight) * slope) as f32
}

/// Puts what is to be sent into the anchor segment: `weights - anchor`, or the gradient; plus what a lossy
/// codec still owes.
pub fn finish_update(plan: Plan<'_>, arena: &mut [f32], product: Product) -> Result<(), TrainError> {
    let info = plan.info();
    let (need, have) = (info.arena as usize, arena.len());
    let segment = |at: u32| at as usize..(at as usize).saturating_add(info.params as usize);
    let anchor = segment(info.segments.anchor.ok_or(TrainError::InferenceOnly)?);
    let residual = info.segments.residual.map_or(0..0, segment);
    let missing = TrainError::Segment { what: "a gradient", segment: "gradient" };
    let result = match product {
        Product::Gradient => segment(info.segments.grads.ok_or(missing)?),
        Product::Update | Product::FirstStep => segment(0),
    };
    let [result, anchor, residual] =
        arena.get_disjoint_mut([result, anchor, residual]).map_err(|_| TrainError::Arena { need, have })?;
    for (anchor, &result) in anchor.iter_mut().zip(&*result) {
        *anchor = if product == Product::Gradient { result } else { result - *anchor };
    }
    for (anchor, &owed) in anchor.iter_mut().zip(&*residual) {
        *anchor += owed;
    }
    if anchor.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(TrainError::NonFiniteUpdate) }
}

#[cfg(test)]
#[cfg(feature = "host")]
mod tests;
