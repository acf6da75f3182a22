//! What is reported after the work, and what privacy withholds.

use common::{
    brief::GroupReport,
    message::{Scalars, Task},
};

use super::{HiddenDigest, Work, noise_for};
use crate::train::FULL;

impl Work {
    pub(super) fn report(&self) -> Scalars {
        let mut scalars = Scalars { steps: self.trained, ..self.scalars.clone() };
        if self.question.is_some() {
            (scalars.loss_after, scalars.gap, scalars.personal) = (None, None, None);
        }
        scalars
    }

    pub(super) fn group_report(&self) -> Option<GroupReport> {
        match &self.task {
            Task::Evaluate(report) if FULL => *report,
            Task::Train(brief) if FULL => brief.groups,
            _ => None,
        }
    }

    /// Adds noise to the sums of groups. The mean loss is computed from the sums with noise, because it would otherwise reveal
    /// them.
    pub(super) fn hide_losses(&mut self) {
        let (Some(laplace), Some(question)) = (noise_for(&self.task), self.question) else { return };
        let hidden = HiddenDigest::sums(&self.scalars.group_losses);
        let mut noise = question.noise_of_sums(hidden);
        for sum in &mut self.scalars.group_losses {
            *sum = noise.hide(*sum, laplace.sums);
        }
        self.sums = Some(hidden);
        let mean = self.scalars.group_losses.iter().sum::<f64>() / f64::from(self.scalars.samples.max(1));
        self.scalars.loss_before = mean.max(0.0);
    }
}
