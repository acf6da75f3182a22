//! What must be added up so that the mean error is known exactly, and a bound can be certified.
//!
//! ```text
//! raw = d/c*^2 - 1,  e = min(max(raw, -1), 3),  v = I before clipping
//! up = sum max(v-1, 0)      down = sum max(-v, 0)      over = sum max(raw-e, 0)      under = sum max(e-raw, 0)
//! withheld = sum over rounds in which the price acted of (ki e + 0.05)
//! mean of raw = [ (I - I_0 + up - down + withheld)/ki + over - under ] / W                              exactly
//! up = withheld = over = 0   =>   rms of c over the W rounds <= c* sqrt(1 + (1 - I_0)/(ki W))
//! ```
//! A ledger begins with the run, and anew when the target or the gains change. Warm-up rounds are not in it.

use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// W
    pub rounds: u32,
    /// Sum of d.
    pub sum_d: f64,
    /// The integrator at the start.
    #[serde(rename = "I0")]
    pub start: f64,
    /// What the integrator was cut by at 1.
    pub up: f64,
    /// What it was cut by at 0.
    pub down: f64,
    /// What errors above 3 were cut by.
    pub over: f64,
    /// What errors below -1 were cut by.
    pub under: f64,
    /// What the price withheld from the integrator.
    pub withheld: f64,
}

/// One round as the ledger counts it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Entry {
    pub squared: f64,
    pub raw: f64,
    pub error: f64,
    /// v
    pub unclipped: f64,
    /// What the price held back.
    pub withheld: f64,
}

impl Ledger {
    /// An empty one.
    pub(super) fn starting_at(integrator: f64) -> Self {
        Self { start: integrator, ..Self::default() }
    }

    pub(super) fn add(&mut self, entry: Entry) {
        let Entry { squared, raw, error, unclipped, withheld } = entry;
        self.rounds = self.rounds.saturating_add(1);
        self.sum_d += squared;
        self.up += (unclipped - 1.0).max(0.0);
        self.down += (-unclipped).max(0.0);
        self.over += (raw - error).max(0.0);
        self.under += (error - raw).max(0.0);
        self.withheld += withheld;
    }

    /// The mean of raw, from the identity; absent without rounds.
    pub fn mean_error(&self, integrator: f64, ki: f64) -> Option<f64> {
        let moved = (integrator - self.start + self.up - self.down + self.withheld) / ki;
        (self.rounds > 0).then(|| (moved + self.over - self.under) / f64::from(self.rounds))
    }

    /// Whether no upper limit acted, so that the bound holds.
    pub fn is_certified(&self) -> bool {
        self.rounds > 0 && self.up == 0.0 && self.withheld == 0.0 && self.over == 0.0
    }

    /// What the root mean square of the disparity is below, if certified; absent without rounds.
    pub fn bound(&self, target: f64, ki: f64) -> Option<f64> {
        let slack = (1.0 - self.start) / (ki * f64::from(self.rounds));
        (self.rounds > 0).then(|| target * (1.0 + slack).sqrt())
    }

    pub(super) fn is_sound(&self) -> bool {
        let Self { rounds: _, sum_d, start, up, down, over, under, withheld } = *self;
        [sum_d, start, up, down, over, under, withheld].iter().all(|number| number.is_finite())
    }
}
