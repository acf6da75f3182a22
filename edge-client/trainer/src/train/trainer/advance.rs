//! Moves from one phase of the work to the next: stores the result, and loads the model of the next phase.

use common::{
    brief::{Brief, Product},
    message::{Score, Task, Validation},
    plan::Plan,
};

use super::{
    Work,
    phase::{WeightsModel, WorkPhase},
    segments,
};
use crate::train::{FULL, LOSS_CAP, LossTally, TrainError};

impl Work {
    /// Adds a batch to the current phase; true if that was its last.
    pub(super) fn count(&mut self, tally: LossTally) -> Result<bool, TrainError> {
        self.step += 1;
        self.aside += u32::from(self.phase.is_personal());
        self.tally.merge(tally);
        let tells = match self.phase {
            // A tried step may diverge.
            WorkPhase::Trial(_) => false,
            WorkPhase::Test(WeightsModel::Received) => true,
            // Reporting divergence would reveal something about the samples.
            _ => self.question.is_none(),
        };
        if tells && !self.tally.loss.is_finite() {
            return Err(TrainError::Diverged { step: self.step });
        }
        self.done += tally.samples;
        let only_one = self.brief().is_some_and(|brief| brief.product == Product::FirstStep);
        let enough = only_one && self.trained > 0 && matches!(self.phase, WorkPhase::Epoch { .. });
        Ok(enough || self.done >= self.samples(self.phase))
    }

    /// Stores the result of a phase.
    pub(super) fn conclude(&mut self) {
        let tally = core::mem::take(&mut self.tally);
        self.done = 0;
        let score = Score { samples: tally.targets, correct: tally.correct, loss: tally.mean_loss() };
        match self.phase {
            WorkPhase::Before => {
                self.scalars.samples = tally.samples;
                self.scalars.loss_before = score.loss;
                self.hide_losses();
            }
            WorkPhase::After => self.scalars.loss_after = Some(score.loss),
            WorkPhase::Test(WeightsModel::Received) => {
                self.scalars.test = Some(score);
                self.scalars.errors = self.errors.errors();
            }
            _ if !FULL => {}
            WorkPhase::Validate(WeightsModel::Trained) => self.private.baseline = Some(score.loss),
            WorkPhase::Validate(_) => {
                let baseline = self.private.baseline.filter(|_| self.brief().is_some_and(|brief| brief.gap));
                self.scalars.gap = baseline.map(|baseline| score.loss - baseline);
                let validation = Validation::new(score.loss, self.spread.squared_error());
                self.scalars.validation = self.validates().then_some(validation);
            }
            WorkPhase::Test(WeightsModel::Personal) => self.scalars.personal = Some(score),
            WorkPhase::Test(_) => self.scalars.test = Some(score),
            WorkPhase::Trial(_) => {
                let loss = if score.loss.is_finite() { score.loss } else { LOSS_CAP };
                let _ = self.scalars.trials.push(loss);
            }
            WorkPhase::Epoch { model: WeightsModel::Trained, epoch } => {
                self.plateau.note(score.loss);
                if epoch == 0 && self.runs() {
                    (self.scalars.samples, self.scalars.loss_before) = (tally.samples, score.loss);
                }
            }
            WorkPhase::Epoch { .. } | WorkPhase::Statistics(_) | WorkPhase::Gradient | WorkPhase::Done => {}
        }
    }

    /// Skips phases without samples, so that the last batch is also the last step.
    pub(super) fn settle(&mut self, plan: Plan<'_>, arena: &mut [f32]) {
        while self.phase != WorkPhase::Done && self.samples(self.phase) == 0 {
            self.phase = self.phase.skipped();
            self.enter(plan, arena);
        }
    }

    /// Loads the model of a phase into the weights.
    pub(super) fn enter(&mut self, plan: Plan<'_>, arena: &mut [f32]) {
        if !FULL {
            return;
        }
        let personal = self.brief().is_some_and(|brief| brief.personal.is_some());
        if matches!(self.phase, WorkPhase::Statistics(_)) && self.samples(self.phase) > 0 {
            segments::clear_statistics(plan, arena);
        }
        match self.phase {
            WorkPhase::Statistics(WeightsModel::Tried(number)) if matches!(self.task, Task::Try(_)) => {
                match self.trials().get(usize::from(number)) {
                    Some(&step) => segments::try_step(plan, arena, step),
                    None => segments::restore(plan, arena),
                }
            }
            WorkPhase::Epoch { model: WeightsModel::Personal, epoch: 0 }
                if personal && self.private.personal =>
            {
                segments::take_personal(plan, arena);
            }
            WorkPhase::Epoch { model: WeightsModel::Trained, epoch: 0 } if personal => {
                segments::keep_personal(plan, arena);
                segments::restore(plan, arena);
                segments::clear_moments(plan, arena);
                self.private.personal = true;
                self.trained = 0;
            }
            // A gradient does not change the model.
            WorkPhase::Gradient => {
                let gradient = |brief: &&Brief| brief.product == Product::Gradient;
                if let Some(brief) = self.brief().filter(gradient) {
                    let before = brief.loss_after.then_some(self.scalars.loss_before);
                    self.scalars.loss_after = before;
                    segments::clear_gradient(plan, arena);
                }
            }
            WorkPhase::Done if matches!(self.task, Task::Alone(_)) => segments::restore(plan, arena),
            _ => {}
        }
    }
}
