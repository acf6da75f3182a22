//! How a run is conducted, as its configuration says.

use common::{Codec, Tier, brief::Brief, transfer::LinkLimits};
use strategies::strategy::{Needs, PerTier};

use crate::{
    best::{BestSettings, Measured},
    pacing::Deadlines,
    per_tier::value_of,
};

/// How a run is conducted. Lists in [`PerTier`] values have one entry for every tier of the model.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Rounds of the run.
    pub rounds: u32,
    /// The first round waits for this many devices.
    pub min_devices: usize,
    /// Share of the connected devices asked in a round.
    pub participation: f64,
    /// How long an exchange waits for its devices.
    pub deadlines: Deadlines,
    /// How many more devices are asked than are wanted; the round closes with the wanted number of each tier.
    pub over_selection: f64,
    /// Devices without work that may come back in one second.
    pub arrivals_per_s: f64,
    /// What devices are told, except for the learning rate and the seed.
    pub brief: Brief,
    /// Learning rate of the first round.
    pub lr: f64,
    /// Learning rate of round t is `lr * lr_decay^(t-1)`.
    pub lr_decay: f64,
    /// Of the selection of devices and of their batches.
    pub seed: u64,
    /// Encoding of models and guides.
    pub down: PerTier<Codec>,
    /// Encoding of updates; replaces the one in `brief`.
    pub up: PerTier<Codec>,
    /// Updates held in memory at once, until they are written; the others wait. The received parts of as many interrupted
    /// updates are kept, too.
    pub max_uploads: usize,
    /// Limits of a link, before those of a device.
    pub limits: LinkLimits,
    /// What the strategy requires of devices.
    pub needs: Needs,
    /// Devices report the loss of the received model on samples that they do not train on. It is asked for once in a round,
    /// together with the training.
    pub validate: bool,
    /// How the best model is chosen, and when training ends early.
    pub best: BestSettings,
    /// A training loss of more than this many times the first one ends the run; 0: never.
    pub divergence: f64,
}

/// The settings that may change while a run goes on. They apply from the next decision on; what devices have been told in an
/// open exchange stays.
#[derive(Clone, PartialEq, Debug)]
pub struct Conduct {
    /// See [`Settings::rounds`].
    pub rounds: u32,
    /// See [`Settings::min_devices`].
    pub min_devices: usize,
    /// See [`Settings::participation`].
    pub participation: f64,
    /// See [`Settings::deadlines`].
    pub deadlines: Deadlines,
    /// See [`Settings::over_selection`].
    pub over_selection: f64,
    /// See [`Settings::arrivals_per_s`].
    pub arrivals_per_s: f64,
    /// See [`Settings::max_uploads`].
    pub max_uploads: usize,
}

impl Settings {
    /// What may change while a run goes on.
    pub fn conduct(&self) -> Conduct {
        Conduct {
            rounds: self.rounds,
            min_devices: self.min_devices,
            participation: self.participation,
            deadlines: self.deadlines.clone(),
            over_selection: self.over_selection,
            arrivals_per_s: self.arrivals_per_s,
            max_uploads: self.max_uploads,
        }
    }

    /// Replaces what may change.
    pub fn adopt(&mut self, conduct: Conduct) {
        let Conduct { rounds, min_devices, participation, deadlines, .. } = conduct;
        let Conduct { over_selection, arrivals_per_s, max_uploads, .. } = conduct;
        (self.rounds, self.min_devices, self.participation) = (rounds, min_devices, participation);
        (self.over_selection, self.arrivals_per_s) = (over_selection, arrivals_per_s);
        (self.deadlines, self.max_uploads) = (deadlines, max_uploads);
    }

    /// Encoding of the models and guides of a tier.
    pub fn down_codec(&self, tier: Tier) -> Codec {
        value_of(&self.down, tier)
    }

    /// Encoding of the updates of a tier.
    pub fn up_codec(&self, tier: Tier) -> Codec {
        value_of(&self.up, tier)
    }

    /// The losses by which models are compared.
    pub fn measured(&self) -> Measured {
        if self.validate { Measured::Validation } else { Measured::Loss }
    }

    /// Learning rate of a round, counted from 1.
    pub fn lr_of(&self, round: u32) -> f32 {
        (self.lr * self.lr_decay.powf(f64::from(round.saturating_sub(1)))) as f32
    }
}
