//! Words for the state of a target, judged over the last window.

use serde::{Deserialize, Serialize};

use super::controller::{AT_END, Controller};

/// Rounds in which equal losses may only mean that the model has not learnt yet.
const EARLY_ROUNDS: u32 = 50;
/// Share of the first mean loss above which the model has not learnt yet.
const EARLY_MEAN: f64 = 0.75;
/// A window counts as met up to this multiple of the target.
const MET: f64 = 1.05;

/// How a target fares.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FairnessStatus {
    /// Fewer rounds than a window.
    Measuring,
    /// Losses are equal because the model has not learnt yet.
    Early,
    /// The window lies within 5 % of the target.
    Met,
    /// The budget holds the knob back.
    LimitedByPrice,
    /// The knob is at its end.
    NotReachable,
    /// None of the others.
    Approaching,
}

impl FairnessStatus {
    /// As reports and JSON show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measuring => "measuring",
            Self::Early => "early",
            Self::Met => "met",
            Self::LimitedByPrice => "limited_by_price",
            Self::NotReachable => "not_reachable",
            Self::Approaching => "approaching",
        }
    }
}

impl Controller {
    /// See the module.
    pub fn status(&self) -> FairnessStatus {
        let (count, window) = (self.ring.len(), self.window());
        let Some(rms) = self.window_rms().filter(|_| count >= window) else {
            return FairnessStatus::Measuring;
        };
        let untrained = self.mean.zip(self.first_mean).is_some_and(|(mean, first)| mean > EARLY_MEAN * first);
        if self.rounds <= EARLY_ROUNDS && untrained {
            FairnessStatus::Early
        } else if rms <= MET * self.target {
            FairnessStatus::Met
        } else if 2 * self.price_acted() >= count {
            FairnessStatus::LimitedByPrice
        } else if self.mean_integrator() >= AT_END {
            FairnessStatus::NotReachable
        } else {
            FairnessStatus::Approaching
        }
    }

    /// Only with [`FairnessStatus::NotReachable`]: whether the end of the knob is no worse than what was before it.
    pub fn raising_helps(&self) -> Option<bool> {
        if self.status() != FairnessStatus::NotReachable {
            return None;
        }
        let (reached, before) = self.reached.zip(self.before_end)?;
        Some(reached <= before)
    }
}
