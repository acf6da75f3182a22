//! The exchanges of a round: what a strategy asks, and the answers.
//!
//! Most strategies need one, `Train`. Others ask for losses or gradients before it, or for trials of a step after it. Some
//! first let devices train alone.

use common::{DeviceId, Tier, message::Alone};
use serde::{Deserialize, Serialize};

use crate::{cohort::Cohort, strategy::Weights};

/// What the devices of a round are asked for next.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Ask {
    /// These devices train alone and keep the result. The brief in it comes from the strategy; batch, seed and optimiser are
    /// those of the run.
    Alone { task: Alone, devices: Vec<DeviceId> },
    /// Losses of the present model.
    Losses,
    /// Full gradients at the present model.
    Gradients,
    /// Updates. With a guide: the weighted mean, region by region, of the gradients asked for before is sent
    /// along.
    Train { guide: Option<Weights> },
    /// Losses at `theta - step * d`, with d the direction that [`crate::strategy::Strategy::direct`] finds from the
    /// updates.
    Try { steps: Vec<f64> },
}

impl Ask {
    /// Updates, and nothing else.
    pub fn train() -> Self {
        Self::Train { guide: None }
    }

    /// The kind of exchange that follows.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Alone { .. } => Kind::Alone,
            Self::Losses => Kind::Losses,
            Self::Gradients => Kind::Gradients,
            Self::Train { .. } => Kind::Train,
            Self::Try { .. } => Kind::Try,
        }
    }
}

/// What an exchange was for.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Devices train alone.
    Alone,
    /// Losses of the present model.
    Losses,
    /// Full gradients.
    Gradients,
    /// Updates.
    Train,
    /// Losses at steps along a direction.
    Try,
}

impl Kind {
    /// Whether devices send a vector back.
    pub fn uploads(self) -> bool {
        matches!(self, Self::Gradients | Self::Train)
    }
}

/// An exchange that has been made.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What devices were asked.
    pub kind: Kind,
    /// The devices that answered, with their numbers.
    pub cohort: Cohort,
}

/// A device of the fleet, whether or not it takes part.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct FleetDevice<'a> {
    /// Its name.
    pub device: &'a DeviceId,
    /// Its tier.
    pub tier: Tier,
    /// n_i
    pub samples: f64,
    /// Samples by label x attributes + attribute; empty without attributes.
    pub groups: &'a [u32],
}
