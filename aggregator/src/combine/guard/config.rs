//! The rules of `[guard]`.

use std::collections::BTreeSet;

use common::DeviceId;
use serde::{Deserialize, Serialize};

use super::Robust;

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Off,
    /// To what can be believed.
    #[default]
    Clip,
    /// The whole update of this round.
    Refuse,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuardConfig {
    pub mode: Mode,
    /// Deviations above the middle of the peers that can be believed.
    pub spread: f64,
    /// What can be believed however little the peers differ.
    pub factor: f64,
    /// By how much a sample count may differ from that of the enrolment.
    pub samples: f64,
    /// How many times the middle of its peers a sample count may be where they are unequal; a sixth of it where they are alike.
    pub peer_samples: f64,
    /// Devices that do have more, by the operator's word.
    pub large_shards: BTreeSet<DeviceId>,
    pub robust: Robust,
    /// The middle of all cosines from which on a round can tell who points away from the others; 0 = nobody looks.
    pub screen: f64,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            spread: 8.0,
            factor: 4.0,
            samples: 2.0,
            peer_samples: 30.0,
            large_shards: BTreeSet::new(),
            robust: Robust::default(),
            screen: 0.15,
        }
    }
}

impl GuardConfig {
    /// The first value that is not possible: key, value, and what would be.
    pub fn check(&self) -> Result<(), (&'static str, String, &'static str)> {
        let above_1 = |x: f64| x > 1.0 && x.is_finite();
        let rules = [
            ("guard.spread", self.spread, above_1(self.spread), "must be above 1"),
            ("guard.factor", self.factor, above_1(self.factor), "must be above 1"),
            ("guard.samples", self.samples, above_1(self.samples), "must be above 1"),
            ("guard.peer_samples", self.peer_samples, above_1(self.peer_samples), "must be above 1"),
            ("guard.screen", self.screen, (0.0..1.0).contains(&self.screen), "must lie in [0, 1)"),
        ];
        match rules.into_iter().find(|(.., holds, _)| !holds) {
            Some((key, value, _, why)) => Err((key, value.to_string(), why)),
            None => Ok(()),
        }
    }
}
