//! Rule 3: an update is at most `length` medians of the round long, or three medians of the round in which they were longest.
//!
//! ```text
//! u = median |D|        R = max(R, u / lr)        limit = max(length * u, 3 R * lr)
//! D_i <- D_i * min(1, limit / |D_i|)
//! ```
//! Lengths are over the device's whole slice; the median is the lower one over all devices of the round. `R` is the largest
//! median length so far. It allows a device with data that is new to the model late in a run to send updates as long as early
//! ones, and longer. `R` is the only state of these rules and is committed with the model. Gradients, which some strategies ask
//! for, have an `R` of their own.

use std::collections::BTreeMap;

use common::DeviceId;
use serde::{Deserialize, Serialize};

use super::{Findings, GuardConfig, loss::lower_median};
use crate::{cohort::Cohort, strategy::Kind};

/// Limit in units of the longest median so far. With 2, a device that alone has some classes loses 25 points under FedAvg if it is
/// in a tier of width 0.5 and the other devices are alike; with 3 it loses 3. With 4, tenfold flipped updates end a model.
const EARLY: f64 = 3.0;

/// `R`, of updates and of gradients; 0 before the first round.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct LongestMedian {
    updates: f64,
    gradients: f64,
}

impl LongestMedian {
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    /// The larger value of both.
    pub fn or(self, other: Self) -> Self {
        Self { updates: self.updates.max(other.updates), gradients: self.gradients.max(other.gradients) }
    }

    /// Shortens updates that are too long; returns the factors, and `R` after this exchange.
    pub fn shorten(
        self,
        config: &GuardConfig,
        cohort: &mut Cohort,
        kind: Kind,
        findings: &mut Findings<'_>,
    ) -> (BTreeMap<DeviceId, f64>, Self) {
        let (mut after, mut scales) = (self, BTreeMap::new());
        let (longest, lr) = match kind {
            Kind::Train => (&mut after.updates, cohort.lr),
            Kind::Gradients => (&mut after.gradients, 1.0),
            _ => return (scales, self),
        };
        let lengths: Vec<f64> =
            (0..cohort.participants().len()).map(|index| cohort.norm(index).sqrt()).collect();
        let Some(usual) = lower_median(lengths.iter().copied()) else { return (scales, self) };
        *longest = longest.max(usual / lr);
        let limit = (config.length * usual).max(EARLY * *longest * lr);
        for (index, length) in lengths.into_iter().enumerate() {
            if length <= limit {
                continue;
            }
            let device = cohort.participants()[index].device.clone();
            findings.length(cohort, index, length, limit);
            cohort.scale_norms(index, limit / length);
            scales.insert(device, limit / length);
        }
        // Some strategies read the last updates of absent devices; the same limit applies to them.
        for absent in cohort.absent() {
            let length = absent.norm.sqrt();
            if length > limit {
                scales.insert(absent.device.clone(), limit / length);
            }
        }
        (scales, after)
    }
}
