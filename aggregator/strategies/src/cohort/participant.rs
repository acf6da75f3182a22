//! The devices of a cohort: participants, absent devices and refused devices.

use common::{
    Code, DeviceId, Tier,
    message::{Scalars, Validation},
};

/// A device whose update counts.
#[derive(Clone, PartialEq, Debug)]
pub struct Participant {
    /// Its name.
    pub device: DeviceId,
    /// The tier whose slice it trained.
    pub tier: Tier,
    samples: u32,
    pub(super) loss: f64,
    pub(super) loss_after: Option<f64>,
    pub(super) validation: Option<Validation>,
    /// All scalars of a device that reports more than these. A box keeps participants small: most fleets report no more.
    pub(super) extra: Option<Box<Scalars>>,
}

impl Participant {
    /// F_i
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// FK_i; F_i if the device has not reported it.
    pub fn loss_after(&self) -> f64 {
        self.loss_after.unwrap_or(self.loss)
    }

    /// FK_i, if the device has reported it.
    pub fn reported_loss_after(&self) -> Option<f64> {
        self.loss_after
    }

    /// The received model on samples that the device does not train on, if it has any.
    pub fn validation(&self) -> Option<Validation> {
        self.validation
    }

    /// r_k
    pub fn gap(&self) -> Option<f64> {
        self.extra.as_ref().and_then(|extra| extra.gap)
    }

    /// V_i
    pub fn mass(&self) -> Option<f64> {
        self.extra.as_ref().and_then(|extra| extra.mass)
    }

    /// Loss sums by label x attributes + attribute; empty if the device was not asked.
    pub fn group_losses(&self) -> &[f64] {
        self.extra.as_ref().map_or(&[], |extra| &extra.group_losses)
    }

    /// Samples behind the loss sums.
    pub fn group_counts(&self) -> &[u32] {
        self.extra.as_ref().map_or(&[], |extra| &extra.group_counts)
    }

    /// Losses at the steps of a line search.
    pub fn trials(&self) -> &[f64] {
        self.extra.as_ref().map_or(&[], |extra| &extra.trials)
    }

    pub(super) fn new(device: DeviceId, tier: Tier, scalars: Scalars) -> Self {
        let Scalars { samples, loss_before: loss, loss_after, validation, .. } = scalars;
        let usual = Scalars {
            samples,
            loss_before: loss,
            loss_after,
            test: scalars.test,
            steps: scalars.steps,
            validation,
            ..Scalars::default()
        };
        let extra = (usual != scalars).then(|| Box::new(scalars));
        Self { device, tier, samples, loss, loss_after, validation, extra }
    }

    /// Whether it reports more than samples and losses, of which the validation loss is one.
    pub(crate) fn has_extra(&self) -> bool {
        self.extra.is_some()
    }

    /// n_i
    pub fn samples(&self) -> f64 {
        f64::from(self.samples)
    }
}

/// A device that took part before but not now. Its last update may still be used.
#[derive(Clone, PartialEq, Debug)]
pub struct Absent {
    /// Its name.
    pub device: DeviceId,
    /// The tier whose slice it trained.
    pub tier: Tier,
    /// The round in which it took part last.
    pub round: u32,
    /// Learning rate of that round.
    pub lr: f64,
    /// Squared norm of that update.
    pub norm: f64,
}

/// A device whose update does not count, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its name.
    pub device: DeviceId,
    /// The reason.
    pub code: Code,
}
