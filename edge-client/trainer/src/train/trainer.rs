//! One Assignment's work, in slices of one pass over the Plan; `phase` says in which order.
//!
//! Call order: put the model into the weights (and a guide into its segment), [`Work::begin`],
//! [`Work::step`] until it says [`Progress::Done`], then, after training, [`Work::finish`]; the update lies
//! in the anchor segment. Between steps the caller does what it likes, except touch the arena. The same task,
//! model and shard give the same weights, however steps are spread over time.
//!
//! | task | weights afterwards |
//! |---|---|
//! | `Train` | the trained model; with `Product::Gradient` the received one |
//! | `Evaluate`, `Alone`, `Try` | the received one |
//!
//! An optimiser step takes `brief.batch` samples; if the Plan has room for fewer, gradients are summed over
//! several passes. Self-regularisation runs each sample with a noisy copy in the same pass, so a pass then
//! takes half as many samples as the Plan has room for, and losses before and after training are robust
//! losses, too.
//!
//! A personal model is trained before the other one: in the weights, pulled towards the anchor, which is the
//! received model; then it goes back to its segment and the anchor to the weights. So no further segment is
//! needed, and the update is the same as without it.
//!
//! Where the brief asks for privacy, noise follows from the device's secret and from what it was asked (`question`).
//! What says more about training samples than numbers with noise do is kept back: the loss before training is the mean
//! of the sums with noise, other losses on training samples and scores of models trained on them are not reported.
//! Training that leads to no numbers gives an update of zeros with noise, because an error would tell of the samples.

use common::{
    RunId,
    brief::{Brief, Laplace, Product},
    message::{Scalars, Score, Task, Ticket},
    plan::Plan,
    privacy::Secret,
    rng::{Permutation, derive},
};

use super::{Backend, LOSS_CAP, Tally, TrainError, executor::FULL};
use crate::data::{Part, Shard};

pub(super) mod augment;
mod batch;
mod check;
mod finish;
mod flat;
mod groups;
mod noise;
mod pass;
mod phase;
mod question;
mod report;
mod segments;
mod subset;

use batch::{Batch, Order};
pub use finish::finish_update;
pub use flat::Flat;
use phase::{Model, Phase, Sizes};
pub use question::Charge;
use question::{Hidden, Question};
pub use subset::EVERY as HELD_EVERY;
use subset::Subset;

/// What a device brings to its work and never sends.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Own {
    /// Loss on validation data that an earlier [`Task::Alone`] has reached.
    pub baseline: Option<f64>,
    /// The personal segment holds the model of an earlier round; else the received one is where it starts.
    pub personal: bool,
    /// The residual segment holds what an update without noise still owes, which no update with noise may bring along.
    pub owes_plain: bool,
    /// What noise is drawn from.
    pub secret: Option<Secret>,
}

/// The state between two steps.
#[derive(Clone, Debug)]
pub struct Work {
    task: Task,
    own: Own,
    /// Where noise is asked for.
    question: Option<Question>,
    /// The sums of groups before their noise.
    sums: Option<Hidden>,
    sizes: Sizes,
    /// Training samples that are trained on.
    subset: Subset,
    /// What weights of samples are multiplied by, n/V; 0: nothing has a weight, so nothing is trained.
    share: f32,
    phase: Phase,
    /// Samples of the current pass over the shard that are done.
    done: u32,
    tally: Tally,
    /// Of the optimiser step that is being made.
    summed: Tally,
    /// What is known so far.
    scalars: Scalars,
    /// Optimiser steps made on the present model.
    trained: u32,
    flat: Flat,
    step: u32,
    steps: u32,
    /// Steps that concerned the personal model.
    aside: u32,
}

/// What a step led to.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is no heap to put the large one on")]
pub enum Progress {
    /// `step` of `steps` passes are done; there are fewer if training ends early.
    Busy {
        step: u32,
        steps: u32,
    },
    Done(Scalars),
}

impl Work {
    /// Whether a task is sound and the Plan has the segments for it, before anything is received.
    pub fn check(task: &Task, plan: Plan<'_>) -> Result<(), TrainError> {
        check::task(&plainly(task.clone()), plan)
    }

    /// [`Work::begin_as`] for a device that was never asked before.
    pub fn begin(
        task: &Task,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
    ) -> Result<Self, TrainError> {
        let ticket = Ticket { run: RunId(0), round: 0, exchange: 0, attempt: 0 };
        Self::begin_as(Own::default(), ticket, task, plan, arena, shard)
    }

    /// Checks that task, plan, arena and shard fit each other, and keeps the received model as anchor.
    pub fn begin_as(
        mut own: Own,
        ticket: Ticket,
        task: &Task,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
    ) -> Result<Self, TrainError> {
        let task = plainly(task.clone());
        check::sizes(plan, arena.len(), shard)?;
        check::task(&task, plan)?;
        check::samples(&task, &own, shard)?;
        let mut question = None;
        if noise_for(&task).is_some() {
            let secret = own.secret.ok_or(TrainError::NoSecret)?;
            question = Some(Question::new(&secret, ticket, &task, plan, arena, shard)?);
            if core::mem::take(&mut own.owes_plain) {
                segments::clear_residual(plan, arena);
            }
        }
        let mut work = Self {
            own,
            question,
            sums: None,
            sizes: Sizes {
                train: 0,
                held: Subset::Held.len(shard.train_len()),
                test: shard.test_len(),
                batch: plan.info().batch.into(),
                stats: plan.info().stats > 0,
            },
            subset: Subset::All,
            share: 1.0,
            phase: Phase::FIRST,
            done: 0,
            tally: Tally::default(),
            summed: Tally::default(),
            scalars: Scalars::default(),
            trained: 0,
            flat: if let Task::Alone(alone) = &task { Flat::new(alone) } else { Flat::NEVER },
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

    /// What depends on brief and samples.
    fn prepare(&mut self, shard: &(impl Shard + ?Sized)) -> Result<(), TrainError> {
        if !FULL {
            self.sizes.train = shard.train_len();
            return Ok(());
        }
        if self.brief().is_some_and(|brief| brief.gap) {
            self.subset = Subset::Kept;
        }
        self.sizes.train = self.subset.len(shard.train_len());
        if let Some(brief) = self.brief() {
            let mass = groups::mass(shard, self.subset, &brief.objective.groups)?;
            let samples = f64::from(self.sizes.train);
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

    /// What the device has learnt for later rounds, once this one is done.
    pub fn own(&self) -> Own {
        self.own
    }

    /// By which a question that asks for noise is known.
    pub fn question(&self) -> Option<u64> {
        // Said to the compiler, or the hash would be in the stack frame of boards that never draw noise.
        self.question.filter(|_| FULL).map(|question| question.id())
    }

    /// Works on one batch. Once done, gives the same scalars again.
    #[inline(never)]
    pub fn step(
        &mut self,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
        backend: &mut (impl Backend<f32> + ?Sized),
    ) -> Result<Progress, TrainError> {
        let tally = match self.phase {
            Phase::Done => return Ok(Progress::Done(self.report())),
            Phase::Epoch { epoch, .. } => {
                let (size, seed) = self.brief().map_or((1, 0), |brief| (brief.batch.into(), brief.seed));
                let order = Order::Shuffled(Permutation::new(self.sizes.train, derive(seed, epoch.into())));
                self.train(plan, arena, shard, size, order, backend)?
            }
            Phase::Test(_) => self.batch(plan, Part::Test, shard).evaluate(arena, None, backend)?,
            Phase::Before | Phase::After => {
                let batch = self.batch(plan, Part::Train, shard);
                let tally = batch.evaluate(arena, self.brief(), backend)?;
                if let (Phase::Before, Some(report)) = (self.phase, self.group_report()) {
                    batch.add_groups(arena, &report, &mut self.scalars)?;
                }
                tally
            }
            // No samples, so never entered; the compiler leaves out what follows.
            _ if !FULL => return Err(TrainError::LeftOut),
            Phase::Statistics(_) => {
                let batch = self.batch(plan, Part::Train, shard);
                batch.statistics(arena, batch.rows as f32 / self.sizes.train as f32, backend)?
            }
            Phase::Gradient => self.train(plan, arena, shard, self.sizes.train, Order::Natural, backend)?,
            Phase::Validate(_) => {
                let batch = Batch { subset: Subset::Held, ..self.batch(plan, Part::Train, shard) };
                batch.evaluate(arena, None, backend)?
            }
            Phase::Trial(_) => self.batch(plan, Part::Train, shard).evaluate(arena, None, backend)?,
        };
        if self.count(tally)? {
            self.conclude();
            self.phase = self.phase.completed();
            self.enter(plan, arena);
            self.settle(plan, arena);
        }
        Ok(match self.phase {
            Phase::Done => Progress::Done(self.report()),
            _ => Progress::Busy { step: self.step, steps: self.steps },
        })
    }

    /// Adds a batch to the current phase; true if that was its last.
    fn count(&mut self, tally: Tally) -> Result<bool, TrainError> {
        self.step += 1;
        self.aside += u32::from(self.phase.is_personal());
        self.tally.merge(tally);
        let tells = match self.phase {
            // A step that is only tried may lead nowhere.
            Phase::Trial(_) => false,
            Phase::Test(Model::Received) => true,
            // That training leads nowhere would tell of the samples.
            _ => self.question.is_none(),
        };
        if tells && !self.tally.loss.is_finite() {
            return Err(TrainError::Diverged { step: self.step });
        }
        self.done += tally.samples;
        let only_one = self.brief().is_some_and(|brief| brief.product == Product::FirstStep);
        let enough = only_one && self.trained > 0 && matches!(self.phase, Phase::Epoch { .. });
        Ok(enough || self.done >= self.samples(self.phase))
    }

    /// Keeps what a phase has found.
    fn conclude(&mut self) {
        let tally = core::mem::take(&mut self.tally);
        self.done = 0;
        let score = Score { samples: tally.targets, correct: tally.correct, loss: tally.mean_loss() };
        match self.phase {
            Phase::Before => {
                self.scalars.samples = tally.samples;
                self.scalars.loss_before = score.loss;
                self.hide_losses();
            }
            Phase::After => self.scalars.loss_after = Some(score.loss),
            Phase::Test(Model::Received) => self.scalars.test = Some(score),
            _ if !FULL => {}
            Phase::Validate(Model::Trained) => self.own.baseline = Some(score.loss),
            Phase::Validate(_) => self.scalars.gap = self.own.baseline.map(|own| score.loss - own),
            Phase::Test(Model::Personal) => self.scalars.personal = Some(score),
            Phase::Test(_) => self.scalars.test = Some(score),
            Phase::Trial(_) => {
                let loss = if score.loss.is_finite() { score.loss } else { LOSS_CAP };
                let _ = self.scalars.trials.push(loss);
            }
            Phase::Epoch { model: Model::Trained, epoch } => {
                self.flat.note(score.loss);
                if epoch == 0 && self.runs() {
                    (self.scalars.samples, self.scalars.loss_before) = (tally.samples, score.loss);
                }
            }
            Phase::Epoch { .. } | Phase::Statistics(_) | Phase::Gradient | Phase::Done => {}
        }
    }

    /// Leaves phases in which there is nothing to do, so that the last batch is also the last step.
    fn settle(&mut self, plan: Plan<'_>, arena: &mut [f32]) {
        while self.phase != Phase::Done && self.samples(self.phase) == 0 {
            self.phase = self.phase.skipped();
            self.enter(plan, arena);
        }
    }

    /// Puts the model into the weights that a phase begins with.
    fn enter(&mut self, plan: Plan<'_>, arena: &mut [f32]) {
        if !FULL {
            return;
        }
        let personal = self.brief().is_some_and(|brief| brief.personal.is_some());
        if matches!(self.phase, Phase::Statistics(_)) && self.samples(self.phase) > 0 {
            segments::clear_statistics(plan, arena);
        }
        match self.phase {
            Phase::Statistics(Model::Tried(number)) if matches!(self.task, Task::Try(_)) => {
                match self.trials().get(usize::from(number)) {
                    Some(&step) => segments::try_step(plan, arena, step),
                    None => segments::restore(plan, arena),
                }
            }
            Phase::Epoch { model: Model::Personal, epoch: 0 } if personal && self.own.personal => {
                segments::take_personal(plan, arena);
            }
            Phase::Epoch { model: Model::Trained, epoch: 0 } if personal => {
                segments::keep_personal(plan, arena);
                segments::restore(plan, arena);
                segments::clear_moments(plan, arena);
                self.own.personal = true;
                self.trained = 0;
            }
            // A gradient leaves the model as it was.
            Phase::Gradient => {
                let gradient = |brief: &&Brief| brief.product == Product::Gradient;
                if let Some(brief) = self.brief().filter(gradient) {
                    let before = brief.loss_after.then_some(self.scalars.loss_before);
                    self.scalars.loss_after = before;
                    segments::clear_gradient(plan, arena);
                }
            }
            Phase::Done if matches!(self.task, Task::Alone(_)) => segments::restore(plan, arena),
            _ => {}
        }
    }

    /// The next samples of the present phase.
    fn batch<'a, S: Shard + ?Sized>(&self, plan: Plan<'a>, part: Part, shard: &'a S) -> Batch<'a, S> {
        let left = self.samples(self.phase).saturating_sub(self.done);
        // The personal model must not change what is drawn for the other one.
        let aside = if self.phase.is_personal() { 0 } else { self.aside };
        Batch {
            plan,
            shard,
            part,
            subset: if part == Part::Train { self.subset } else { Subset::All },
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

/// Who trains alone sends nothing back and needs no more than losses before, after and on validation data.
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
