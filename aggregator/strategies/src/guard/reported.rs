//! Limits the losses that a report shows. They affect no weight, but one absurd number would hide all other devices.
//!
//! A loss is shown up to 100 medians. The limit is that wide because a report on fairness must show a device with a truly high
//! loss. The guard's findings state what counts for the model.

use common::{DeviceId, Tier, message::Scalars};

use super::{Guard, GuardFinding, loss::lower_median};
use crate::cohort::Cohort;

/// Medians up to which a loss is shown.
const MOST: f64 = 100.0;

/// What a device has delivered.
pub type Delivered = (DeviceId, Tier, Scalars);

/// A loss among the figures of a device.
type LossOf = fn(&mut Scalars) -> Option<&mut f64>;

const LOSSES: [(&str, LossOf); 4] = [
    ("shown_loss", |scalars| Some(&mut scalars.loss_before)),
    ("shown_loss_after", |scalars| scalars.loss_after.as_mut()),
    ("shown_test_loss", |scalars| scalars.test.as_mut().map(|score| &mut score.loss)),
    ("shown_personal_loss", |scalars| scalars.personal.as_mut().map(|score| &mut score.loss)),
];

impl Guard {
    /// Limits losses that would hide all others.
    pub fn limit_reported_losses(&self, delivered: &mut [Delivered], findings: &mut Vec<GuardFinding>) {
        if !self.is_on() {
            return;
        }
        for (what, loss) in LOSSES {
            let said = delivered.iter_mut().filter_map(|(.., scalars)| loss(scalars).copied());
            let Some(median) = lower_median(said) else { continue };
            let limit = MOST * median;
            for (device, tier, scalars) in delivered.iter_mut() {
                let Some(shown) = loss(scalars).filter(|loss| **loss > limit) else { continue };
                findings.push(GuardFinding {
                    device: device.to_string(),
                    tier: tier.index(),
                    what,
                    said: *shown,
                    counted: limit,
                    why: format!("more than {MOST} medians: the report shows the limit"),
                });
                *shown = limit;
            }
        }
    }
}

/// Replaces the reported figures of groups by those that counted. Devices are in order.
pub fn report_counted_groups(delivered: &mut [Delivered], cohort: &Cohort) {
    for participant in cohort.participants().iter().filter(|one| !one.group_counts().is_empty()) {
        let found = delivered.binary_search_by(|(device, ..)| device.cmp(&participant.device));
        if let Some((.., scalars)) = found.ok().and_then(|at| delivered.get_mut(at)) {
            scalars.group_losses = participant.group_losses().iter().copied().collect();
            scalars.group_counts = participant.group_counts().iter().copied().collect();
        }
    }
}
