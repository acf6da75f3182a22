//! The order of one Assignment's work. Every task has the same phases and skips those that it does not need.
//!
//! ```text
//! Statistics -> Before -> Validate -> Test                     the received model
//!   (Statistics -> Trial) for each step                        Task::Try
//!   Epochs -> Statistics -> Test                               the personal model
//!   Epochs or Gradient -> Statistics -> After -> Validate      the trained model
//! Done
//! ```
//! Statistics are collected where the model has batch normalisation. A phase without samples is skipped.

use common::{
    brief::{Brief, Product},
    message::Task,
};

use super::Work;
use crate::train::FULL;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum WorkPhase {
    Statistics(WeightsModel),
    Before,
    Validate(WeightsModel),
    Test(WeightsModel),
    Trial(u16),
    Epoch { model: WeightsModel, epoch: u16 },
    Gradient,
    After,
    Done,
}

/// Which model is in the weights.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum WeightsModel {
    Received,
    Tried(u16),
    Personal,
    Trained,
}

impl WorkPhase {
    pub const FIRST: Self = Self::Statistics(WeightsModel::Received);

    /// The phase after a completed one.
    pub fn completed(self) -> Self {
        match self {
            Self::Epoch { model, epoch } => Self::Epoch { model, epoch: epoch.saturating_add(1) },
            Self::Trial(number) => Self::Statistics(WeightsModel::Tried(number.saturating_add(1))),
            phase => phase.skipped(),
        }
    }

    /// The phase after one that has nothing (more) to do.
    pub fn skipped(self) -> Self {
        match self {
            Self::Statistics(WeightsModel::Received) => Self::Before,
            Self::Before => Self::Validate(WeightsModel::Received),
            Self::Validate(WeightsModel::Received) => Self::Test(WeightsModel::Received),
            Self::Test(WeightsModel::Received) => Self::Statistics(WeightsModel::Tried(0)),
            Self::Statistics(WeightsModel::Tried(number)) => Self::Trial(number),
            Self::Trial(_) => Self::Epoch { model: WeightsModel::Personal, epoch: 0 },
            Self::Epoch { model: WeightsModel::Personal, .. } => Self::Statistics(WeightsModel::Personal),
            Self::Statistics(WeightsModel::Personal) => Self::Test(WeightsModel::Personal),
            Self::Test(_) => Self::Epoch { model: WeightsModel::Trained, epoch: 0 },
            Self::Epoch { .. } => Self::Gradient,
            Self::Gradient => Self::Statistics(WeightsModel::Trained),
            Self::Statistics(WeightsModel::Trained) => Self::After,
            Self::After => Self::Validate(WeightsModel::Trained),
            Self::Validate(_) | Self::Done => Self::Done,
        }
    }

    /// True for phases of the personal model, which must not change the random numbers of the other one.
    pub fn is_personal(self) -> bool {
        if !FULL {
            return false;
        }
        let personal = WeightsModel::Personal;
        self == Self::Statistics(personal)
            || self == Self::Test(personal)
            || matches!(self, Self::Epoch { model: WeightsModel::Personal, .. })
    }
}

/// The brief of a task that trains.
pub(super) fn brief(task: &Task) -> Option<&Brief> {
    match task {
        Task::Train(brief) => Some(brief),
        Task::Alone(alone) if FULL => Some(&alone.brief),
        Task::Evaluate(_) | Task::Alone(_) | Task::Try(_) => None,
    }
}

/// Numbers of samples of each kind.
#[derive(Copy, Clone, Debug)]
pub(super) struct SampleCounts {
    /// Samples for training.
    pub train: u32,
    pub held: u32,
    pub test: u32,
    /// Samples in one pass.
    pub batch: u32,
    /// The model has statistics to collect.
    pub stats: bool,
}

impl Work {
    pub(super) fn brief(&self) -> Option<&Brief> {
        brief(&self.task)
    }

    pub(super) fn trials(&self) -> &[f32] {
        match &self.task {
            Task::Try(steps) if FULL => steps,
            _ => &[],
        }
    }

    /// The validation loss is reported: asked for, not held back by noise, and there are samples for it.
    pub(super) fn validates(&self) -> bool {
        FULL && self.task.validates() && self.question.is_none() && self.counts.held > 0
    }

    /// True if the loss before training is that of the first epoch.
    pub(super) fn runs(&self) -> bool {
        let Task::Train(brief) = &self.task else { return false };
        let whole = matches!(brief.product, Product::Update | Product::Both) && brief.epochs > 0;
        let alike = brief.groups.is_none() && brief.privacy.is_none() && brief.objective.groups.is_empty();
        FULL && brief.running && whole && alike
    }

    /// Samples of a phase; 0 if it is skipped.
    pub(super) fn samples(&self, phase: WorkPhase) -> u32 {
        let SampleCounts { train, held, test, stats, .. } = self.counts;
        let brief = self.brief();
        let alone = matches!(self.task, Task::Alone(_));
        let personal = brief.is_some_and(|brief| brief.personal.is_some());
        let product = brief.map(|brief| brief.product);
        let after = brief.is_some_and(|brief| brief.loss_after && brief.product != Product::Gradient);
        let more = |epoch: u16| self.share > 0.0 && brief.is_some_and(|brief| epoch < brief.epochs);
        let tried = |number: u16| self.trials().len() > usize::from(number);
        let (wanted, samples) = match phase {
            WorkPhase::Before => (!self.runs(), train),
            WorkPhase::After => (after, train),
            WorkPhase::Test(WeightsModel::Received) => {
                (matches!(self.task, Task::Train(_) | Task::Evaluate(_)), test)
            }
            WorkPhase::Epoch { model: WeightsModel::Trained, epoch } => {
                let over = match product {
                    Some(Product::FirstStep) => epoch > 0 || self.trained > 0,
                    Some(Product::Gradient) => true,
                    _ => self.plateau.is_reached(),
                };
                (more(epoch) && !over, train)
            }
            _ if !FULL => (false, 0),
            WorkPhase::Statistics(WeightsModel::Received) => (stats, train),
            WorkPhase::Statistics(WeightsModel::Tried(number)) => (stats && tried(number), train),
            WorkPhase::Statistics(WeightsModel::Personal) => (stats && personal && test > 0, train),
            WorkPhase::Statistics(WeightsModel::Trained) => (stats && (after || alone), train),
            WorkPhase::Validate(WeightsModel::Trained) => (alone, held),
            WorkPhase::Validate(_) => {
                (!alone && brief.is_some_and(|brief| brief.gap) || self.validates(), held)
            }
            WorkPhase::Test(_) => (personal, test),
            WorkPhase::Trial(number) => (tried(number), train),
            WorkPhase::Epoch { epoch, .. } => (personal && more(epoch), train),
            WorkPhase::Gradient => (product == Some(Product::Gradient) && self.share > 0.0, train),
            WorkPhase::Done => (false, 0),
        };
        if wanted { samples } else { 0 }
    }

    /// Samples that a pass has room for: half as many where each has a copy.
    pub(super) fn room(&self, phase: WorkPhase) -> u32 {
        let robust = FULL && self.brief().is_some_and(|brief| brief.objective.robust.is_some());
        let copied = matches!(
            phase,
            WorkPhase::Before | WorkPhase::After | WorkPhase::Epoch { .. } | WorkPhase::Gradient
        );
        (self.counts.batch / if robust && copied { 2 } else { 1 }).max(1)
    }

    /// Passes of the whole work, if it does not end early.
    pub(super) fn count_steps(&self) -> u32 {
        let (mut phase, mut steps) = (WorkPhase::FIRST, 0u32);
        while phase != WorkPhase::Done {
            let samples = self.samples(phase);
            if samples > 0 {
                steps = steps.saturating_add(self.passes(phase, samples));
                phase = phase.completed();
            } else {
                phase = phase.skipped();
            }
        }
        steps
    }

    fn passes(&self, phase: WorkPhase, samples: u32) -> u32 {
        let passes = |samples: u32| samples.div_ceil(self.room(phase));
        match (phase, self.brief()) {
            (WorkPhase::Epoch { .. }, Some(brief)) => {
                let size = u32::from(brief.batch).max(1);
                if brief.product == Product::FirstStep {
                    return passes(size.min(samples));
                }
                (samples / size).saturating_mul(passes(size)).saturating_add(passes(samples % size))
            }
            _ => passes(samples),
        }
    }
}
