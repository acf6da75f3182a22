//! The work of one Assignment, in steps of one pass over the Plan; `phase` defines their order.
//!
//! Call order: put the model into the weights (and a guide into its segment), [`Work::begin`], [`Work::step`] until it returns
//! [`WorkProgress::Done`], then, after training, [`Work::finish`], which puts the update into the anchor segment. Between
//! steps the caller must not change the arena. The same task, model and shard give the same weights, however steps are
//! spread over time.
//!
//! | task | weights afterwards |
//! |---|---|
//! | `Train` | the trained model; with `Product::Gradient` the received one |
//! | `Evaluate`, `Alone`, `Try` | the received one |
//!
//! An optimiser step takes `brief.batch` samples; if the Plan has room for fewer, gradients are summed over several passes.
//! Self-regularisation runs each sample together with a noisy copy, so a pass takes half as many samples as the Plan has room
//! for. Losses before and after training are then robust losses, too.
//!
//! A personal model is trained first: in the weights, pulled towards the received model in the anchor segment. Then it is
//! copied to its own segment, and the anchor to the weights. So no further segment is needed, and the update is the same as
//! without it.
//!
//! Where the brief asks for validation, the loss of the received model on the validation samples is reported beside its
//! standard error. These samples are the device's own, or every fifth training sample. The latter are then not trained on,
//! and `samples`, `loss_before` and `loss_after` are those of the others, as with `gap`.
//!
//! Where the brief asks for privacy, noise is derived from the device's secret and from the question (`question`). Numbers
//! that would reveal more about training samples are withheld. The loss before training is the mean of the sums with noise.
//! Other losses on training samples, and scores of models trained on them, are not reported. Training that diverges gives an
//! update of zeros with noise, because an error would reveal something about the samples.
//! Nothing is validated under noise.

use common::{
    RunId,
    brief::{Brief, Laplace, Product},
    message::{Scalars, Task, Ticket},
    plan::Plan,
    privacy::Secret,
    rng::{Permutation, derive},
};

use super::{Backend, LossTally, TrainError, executor::FULL};
use crate::data::{DataSplit, Shard};

mod advance;
pub(super) mod augment;
mod batch;
mod check;
mod errors;
mod finish;
mod groups;
mod noise;
mod pass;
mod phase;
mod plateau;
mod question;
mod report;
mod segments;
mod spread;
mod subset;

use batch::{Batch, Order};
use errors::ErrorTally;
pub use finish::finish_update;
use phase::{SampleCounts, WeightsModel, WorkPhase};
pub use plateau::Plateau;
pub use question::Charge;
use question::{HiddenDigest, QuestionKey};
use spread::LossSpread;
pub use subset::EVERY as VALIDATION_EVERY;
use subset::{Subset, ValidationSamples};

/// State that a device keeps between rounds and never sends.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct PrivateState {
    /// Loss on validation data that an earlier [`Task::Alone`] has reached.
    pub baseline: Option<f64>,
    /// The personal segment holds the model of an earlier round; else the personal model starts from the received one.
    pub personal: bool,
    /// The residual segment holds the rest of an update without noise, which must not be added to an update with noise.
    pub owes_plain: bool,
    /// The secret that noise is derived from.
    pub secret: Option<Secret>,
}

/// The state between two steps.
#[derive(Clone, Debug)]
pub struct Work {
    task: Task,
    private: PrivateState,
    /// Present where the brief asks for noise.
    question: Option<QuestionKey>,
    /// Digest of the sums of groups without noise.
    sums: Option<HiddenDigest>,
    counts: SampleCounts,
    /// The training samples that are used.
    subset: Subset,
    /// Factor of the weights of samples, n/V; 0 if all weights are 0, so that nothing is trained.
    share: f32,
    phase: WorkPhase,
    /// Samples of the current pass over the shard that are done.
    done: u32,
    tally: LossTally,
    /// Losses of the current optimiser step.
    summed: LossTally,
    /// Of the validation samples, under the received model.
    spread: LossSpread,
    /// Of the test samples, under the received model.
    errors: ErrorTally,
    /// Results so far.
    scalars: Scalars,
    /// Optimiser steps of the model in the weights.
    trained: u32,
    plateau: Plateau,
    step: u32,
    steps: u32,
    /// Passes for the personal model.
    aside: u32,
}

/// Progress after a step.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is no heap to put the large one on")]
pub enum WorkProgress {
    /// `step` of `steps` passes are done; there are fewer if training ends early.
    Busy {
        /// Passes that are done.
        step: u32,
        /// Passes in all.
        steps: u32,
    },
    /// The work is finished, with these results.
    Done(Scalars),
}

impl Work {
    /// Checks that a task is valid and that the Plan has the segments for it, before anything is fetched.
    pub fn check(task: &Task, plan: Plan<'_>) -> Result<(), TrainError> {
        check::task(&plainly(task.clone()), plan)
    }

    /// [`Work::begin_as`] for a device without private state.
    pub fn begin(
        task: &Task,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
    ) -> Result<Self, TrainError> {
        let ticket = Ticket { run: RunId(0), round: 0, exchange: 0, attempt: 0 };
        Self::begin_as(PrivateState::default(), ticket, task, plan, arena, shard)
    }

    /// Checks that task, plan, arena and shard fit each other, and keeps the received model as anchor.
    pub fn begin_as(
        mut private: PrivateState,
        ticket: Ticket,
        task: &Task,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
    ) -> Result<Self, TrainError> {
        let task = plainly(task.clone());
        check::sizes(plan, arena.len(), shard)?;
        check::task(&task, plan)?;
        check::samples(&task, &private, shard)?;
        let mut question = None;
        if noise_for(&task).is_some() {
            let secret = private.secret.ok_or(TrainError::NoSecret)?;
            question = Some(QuestionKey::new(&secret, ticket, &task, plan, arena, shard)?);
            if core::mem::take(&mut private.owes_plain) {
                segments::clear_residual(plan, arena);
            }
        }
        let mut work = Self {
            private,
            question,
            sums: None,
            counts: SampleCounts {
                train: 0,
                held: ValidationSamples::of(shard).len,
                test: shard.test_len(),
                batch: plan.info().batch.into(),
                stats: plan.info().stats > 0,
            },
            subset: Subset::All,
            share: 1.0,
            phase: WorkPhase::FIRST,
            done: 0,
            tally: LossTally::default(),
            summed: LossTally::default(),
            spread: LossSpread::default(),
            errors: ErrorTally::default(),
            scalars: Scalars::default(),
            trained: 0,
            plateau: if let Task::Alone(alone) = &task { Plateau::new(alone) } else { Plateau::NEVER },
            step: 0,
            steps: 0,
            aside: 0,
            task,
        };
        work.prepare(shard)?;
        segments::prepare(&work.task, plan, arena);
        work.steps = work.count_steps();
        work.enter(plan, arena);
        work.settle(plan, arena);
        Ok(work)
    }

    /// Sets what depends on both brief and samples.
    fn prepare(&mut self, shard: &(impl Shard + ?Sized)) -> Result<(), TrainError> {
        if !FULL {
            self.counts.train = shard.train_len();
            return Ok(());
        }
        if self.brief().is_some_and(|brief| brief.gap) || self.validates() {
            self.subset = ValidationSamples::of(shard).others();
        }
        self.counts.train = self.subset.len(shard.train_len());
        if let Some(brief) = self.brief() {
            let mass = groups::mass(shard, self.subset, &brief.objective.groups)?;
            let samples = f64::from(self.counts.train);
            self.share = mass.map_or(1.0, |mass| if mass > 0.0 { (samples / mass) as f32 } else { 0.0 });
            self.scalars.mass = mass;
        }
        if self.group_report().is_some() {
            // The number of groups was checked before.
            let _ = self.scalars.group_losses.resize(shard.groups() as usize, 0.0);
            let _ = self.scalars.group_counts.resize(shard.groups() as usize, 0);
        }
        Ok(())
    }

    /// The state for later rounds, once the work is done.
    pub fn private_state(&self) -> PrivateState {
        self.private
    }

    /// Identifies a question that asks for noise.
    pub fn question(&self) -> Option<u64> {
        // Without this condition, the hash would be in the stack frame of boards without noise.
        self.question.filter(|_| FULL).map(|question| question.id())
    }

    /// Computes one batch. Once done, it returns the same scalars again.
    #[inline(never)]
    pub fn step(
        &mut self,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
        backend: &mut (impl Backend<f32> + ?Sized),
    ) -> Result<WorkProgress, TrainError> {
        let tally = match self.phase {
            WorkPhase::Done => return Ok(WorkProgress::Done(self.report())),
            WorkPhase::Epoch { epoch, .. } => {
                let (size, seed) = self.brief().map_or((1, 0), |brief| (brief.batch.into(), brief.seed));
                let order = Order::Shuffled(Permutation::new(self.counts.train, derive(seed, epoch.into())));
                self.train(plan, arena, shard, size, order, backend)?
            }
            WorkPhase::Test(model) => {
                let batch = self.batch(plan, DataSplit::Test, shard);
                let tally = batch.evaluate(arena, None, backend)?;
                if model == WeightsModel::Received {
                    batch.add_errors(arena, &mut self.errors)?;
                }
                tally
            }
            WorkPhase::Before | WorkPhase::After => {
                let batch = self.batch(plan, DataSplit::Train, shard);
                let tally = batch.evaluate(arena, self.brief(), backend)?;
                if let (WorkPhase::Before, Some(report)) = (self.phase, self.group_report()) {
                    batch.add_groups(arena, &report, &mut self.scalars)?;
                }
                tally
            }
            // These phases have no samples in small builds. The compiler removes what follows.
            _ if !FULL => return Err(TrainError::LeftOut),
            WorkPhase::Statistics(_) => {
                let batch = self.batch(plan, DataSplit::Train, shard);
                batch.statistics(arena, batch.rows as f32 / self.counts.train as f32, backend)?
            }
            WorkPhase::Gradient => {
                self.train(plan, arena, shard, self.counts.train, Order::Natural, backend)?
            }
            WorkPhase::Validate(_) => {
                let ValidationSamples { part, subset, .. } = ValidationSamples::of(shard);
                let batch = Batch { subset, ..self.batch(plan, part, shard) };
                let tally = batch.evaluate(arena, None, backend)?;
                if self.validates() {
                    batch.add_losses(arena, &mut self.spread)?;
                }
                tally
            }
            WorkPhase::Trial(_) => {
                self.batch(plan, DataSplit::Train, shard).evaluate(arena, None, backend)?
            }
        };
        if self.count(tally)? {
            self.conclude();
            self.phase = self.phase.completed();
            self.enter(plan, arena);
            self.settle(plan, arena);
        }
        Ok(match self.phase {
            WorkPhase::Done => WorkProgress::Done(self.report()),
            _ => WorkProgress::Busy { step: self.step, steps: self.steps },
        })
    }

    /// The next samples of the current phase.
    fn batch<'a, S: Shard + ?Sized>(&self, plan: Plan<'a>, part: DataSplit, shard: &'a S) -> Batch<'a, S> {
        let left = self.samples(self.phase).saturating_sub(self.done);
        // The personal model must not change the random numbers of the other one.
        let aside = if self.phase.is_personal() { 0 } else { self.aside };
        Batch {
            plan,
            shard,
            part,
            subset: if part == DataSplit::Train { self.subset } else { Subset::All },
            first: self.done,
            rows: self.room(self.phase).min(left),
            order: Order::Natural,
            share: self.share,
            number: self.step - aside,
        }
    }
}

/// The noise that a task asks for.
fn noise_for(task: &Task) -> Option<Laplace> {
    match task {
        Task::Train(brief) if FULL => brief.privacy,
        _ => None,
    }
}

/// Removes from [`Task::Alone`] what it does not need: it sends nothing back and needs only losses before and after training and
/// on validation data.
fn plainly(task: Task) -> Task {
    if !FULL {
        return task;
    }
    let Task::Alone(mut alone) = task else { return task };
    let Brief { product, loss_after, gap, groups, personal, privacy, .. } = &mut alone.brief;
    (*product, *loss_after, *gap) = (Product::Update, true, true);
    (*groups, *personal, *privacy) = (None, None, None);
    Task::Alone(alone)
}

#[cfg(test)]
#[cfg(feature = "host")]
mod tests;
