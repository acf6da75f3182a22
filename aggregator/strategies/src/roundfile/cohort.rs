//! The devices of a round file as a [`Cohort`].

use common::{
    Code, Tier,
    brief::Product,
    message::{Scalars, Validation},
};

use super::{RecordedDevice, RoundFile, RoundFileError, file_updates::SentVector};
use crate::{
    check::check_update,
    cohort::{Absent, Cohort},
    method::Method,
};

type Result<T> = std::result::Result<T, RoundFileError>;

impl RoundFile {
    /// `ready`: devices have sent what the round is combined from.
    pub(super) fn cohort(&self, method: &Method, lr: f64, sent: SentVector, ready: bool) -> Result<Cohort> {
        let mut cohort = Cohort::new(self.regions.clone(), lr);
        cohort.round = self.round;
        cohort.set_clients(self.clients.unwrap_or(self.devices.len()));
        cohort.set_layers(self.layers.as_slice());
        cohort.bounds.clone_from(&self.bounds);
        // Some devices may report no groups. If none does, the strategy would silently do nothing.
        let said = |device: &RecordedDevice| device.sample_mass.is_some() || !device.group_counts.is_empty();
        if ready && method.needs().groups && !self.devices.is_empty() && !self.devices.iter().any(said) {
            return Err(missing(0, "group_loss_sums", method));
        }
        for (at, device) in self.devices.iter().enumerate() {
            if device.loss_before.is_none() && method.uses_loss(ready) {
                return Err(missing(at, "loss_before", method));
            }
            if ready && device.loss_after.is_none() && method.needs().loss_after {
                return Err(missing(at, "loss_after", method));
            }
            let first = device.first_update.as_ref().filter(|_| method.needs().product == Product::Both);
            let norms = match sent.of(device) {
                Some(vector) => {
                    check_update(vector, self.regions.pieces(device.tier), self.regions.sets().len())
                }
                None if ready => return Err(missing(at, sent.key(), method)),
                None => Ok(vec![0.0; self.regions.sets().len()]),
            };
            let sound = |value: &f64| value.is_finite();
            let tried = device.trial_losses.iter().flatten().all(|(_, loss)| *loss >= 0.0 && sound(loss));
            let checked = match norms {
                Ok(_) if first.is_some_and(|first| !first.iter().all(sound)) => Err(Code::NonFiniteUpdate),
                Ok(_) if !tried => Err(Code::NonFiniteLoss),
                other => other,
            };
            match checked {
                Ok(norms) => {
                    if cohort.admit(device.id.clone(), device.tier, scalars(device), &norms).is_ok()
                        && let Some(weight) = device.weight
                    {
                        // The device is in the cohort, and the weight was checked when the file was read.
                        let _ = cohort.set_device_weight(&device.id, weight);
                    }
                }
                Err(code) => cohort.refuse(device.id.clone(), code),
            }
        }
        for (tier, weight) in (0..).map_while(Tier::new).zip(&self.tier_weights) {
            if let Some(weight) = *weight {
                let _ = cohort.set_tier_weight(tier, weight);
            }
        }
        if self.enrolled.iter().any(Option::is_some) {
            // A tier whose size the file does not state counts as its participants.
            cohort.set_enrolled(self.enrolled.iter().map(|enrolled| enrolled.unwrap_or_default()).collect());
        }
        for past in &self.history {
            let lr = past.lr.unwrap_or(lr);
            let norm = past.gradient.iter().map(|value| value * value).sum();
            cohort.add_absent(Absent {
                device: past.id.clone(),
                tier: past.tier,
                round: past.round,
                lr,
                norm,
            });
        }
        Ok(cohort)
    }

    /// Gives each device the losses at those steps that it tried. A step that it has not tried is never chosen.
    pub(super) fn set_trials(&self, cohort: &mut Cohort, steps: &[f64]) -> Result<()> {
        for (at, device) in self.devices.iter().enumerate() {
            let counts = cohort.refused().iter().all(|refused| refused.device != device.id);
            let Some(tried) = device.trial_losses.as_ref().filter(|_| counts) else { continue };
            let at_step = |&step: &f64| {
                let same = |(other, _): &&(f64, f64)| (other - step).abs() <= 1e-9 * step.abs();
                tried.iter().find(same).map_or(f64::INFINITY, |&(_, loss)| loss)
            };
            let losses: Vec<f64> = steps.iter().map(at_step).collect();
            if losses.iter().all(|loss| loss.is_infinite()) {
                let steps = steps.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
                let key = format!("devices[{at}].trial_losses");
                return Err(RoundFileError::key(key, format!("has none of the steps {steps}")));
            }
            cohort.set_trials(&device.id, &losses);
        }
        Ok(())
    }
}

fn scalars(device: &RecordedDevice) -> Scalars {
    Scalars {
        samples: device.samples,
        // A strategy that uses losses has failed before if there is none.
        loss_before: device.loss_before.unwrap_or(0.0),
        loss_after: device.loss_after,
        validation: device
            .validation_loss
            .map(|loss| Validation { loss, error: device.validation_error.unwrap_or(0.0) }),
        gap: device.gap,
        mass: device.sample_mass,
        group_losses: device.group_loss_sums.iter().copied().collect(),
        group_counts: device.group_counts.iter().copied().collect(),
        ..Scalars::default()
    }
}

/// The error for a key that the strategy needs.
pub(super) fn missing(at: usize, key: &str, method: &Method) -> RoundFileError {
    RoundFileError::key(format!("devices[{at}].{key}"), format!("is missing; {} needs it", method.name()))
}
