//! Rule 3: an update is as long as `length` median updates at most, or as two median updates of the round in which these were longest.
//!
//! ```text
//! u = median |D|        R = max(R, u / lr)        limit = max(length * u, 2 R * lr)
//! D_i <- D_i * min(1, limit / |D_i|)
//! ```
//! Lengths are over the device's whole slice; the median is the lower one over all devices of the round. `R` is the largest usual
//! length so far: a device that the model does not know is late what all devices were early, and more, because by then the model is sure of
//! other answers. It is the only state of the guard, and is committed with the model. Gradients, which some strategies ask for, have an `R` of their own.

use std::collections::BTreeMap;

use common::DeviceId;
use serde::{Deserialize, Serialize};

use super::{Findings, GuardConfig, loss::lower_median};
use crate::{cohort::Cohort, strategy::Kind};

/// How many of the longest usual updates an update may be long. With 1, a device that alone has some classes loses 10 points in a fleet
/// of 20 alike; with 2 it loses 4, and flipped updates gain nothing by it (`fairtier bench attack --tiers 1.0`).
const EARLY: f64 = 2.0;

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

    /// Whatever was the usual length in one of them.
    pub fn or(self, other: Self) -> Self {
        Self { updates: self.updates.max(other.updates), gradients: self.gradients.max(other.gradients) }
    }

    /// Shortens what is too long; gives the factors, and `R` after this exchange.
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
        // What absent devices sent last is read by some strategies; it is no longer than that of the others.
        for absent in cohort.absent() {
            let length = absent.norm.sqrt();
            if length > limit {
                scales.insert(absent.device.clone(), limit / length);
            }
        }
        (scales, after)
    }
}
