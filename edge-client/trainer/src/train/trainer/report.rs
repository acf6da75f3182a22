//! What is reported of the work, and what privacy keeps back.

use common::{
    brief::{GroupReport, Laplace},
    message::{Scalars, Task},
};

use super::{
    Work,
    noise::{Noise, Use},
};
use crate::train::FULL;

impl Work {
    pub(super) fn report(&self) -> Scalars {
        let mut scalars = Scalars { steps: self.trained, ..self.scalars.clone() };
        if self.privacy().is_some() {
            (scalars.loss_after, scalars.gap) = (None, None);
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

    /// Adds noise to the sums of groups. The mean loss would say what they hide, so it is made of them.
    pub(super) fn hide_losses(&mut self) {
        let Some((laplace, seed)) = self.privacy() else { return };
        let mut noise = Noise::new(self.own.secret, seed, Use::Sums);
        for sum in &mut self.scalars.group_losses {
            *sum += noise.draw(laplace.sums);
        }
        let mean = self.scalars.group_losses.iter().sum::<f64>() / f64::from(self.scalars.samples.max(1));
        self.scalars.loss_before = mean.max(0.0);
    }

    /// The noise that is asked for, and the seed of the round.
    fn privacy(&self) -> Option<(Laplace, u64)> {
        let Task::Train(brief) = &self.task else { return None };
        brief.privacy.filter(|_| FULL).map(|laplace| (laplace, brief.seed))
    }
}
