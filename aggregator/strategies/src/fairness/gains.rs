//! How fast the controller moves, from how many devices are asked.
//!
//! ```text
//! r = max(1/n - 1/N, 0)      b = 1/(5 + 20 r)      ki = b/4      kp = 5b      window = round(4/b)
//! ```
//! b is also the share of a new measurement in the smoothed one. A strategy answers within about 20 rounds; kp/ki = 20
//! cancels that lag.
//!
//! The expected r is the running mean of what rounds show. Gains in force stay until b differs by more than 20 %.

use serde::{Deserialize, Serialize};

use super::{settings::GainSetting, sums::SignalSums};

/// Share of the present round in the running mean of r.
const SHARE: f64 = 0.1;
/// Relative change of b that changes the gains.
const TOLERANCE: f64 = 0.2;

/// The gains in force.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gains {
    /// Share of a new measurement.
    pub b: f64,
    /// Of the integrator.
    pub ki: f64,
    /// Of the proportional part.
    pub kp: f64,
}

/// What rounds show of participation.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Participation {
    /// Running mean of r; absent before the first round.
    pub r: Option<f64>,
}

/// r: by how much the variance of a mean of n devices exceeds that over all N.
pub fn sampling(sums: &SignalSums) -> f64 {
    (1.0 / sums.n as f64 - 1.0 / sums.enrolled()).max(0.0)
}

/// b
pub fn smoothing(r: f64) -> f64 {
    1.0 / (5.0 + 20.0 * r)
}

impl Gains {
    /// The gains of a participation.
    pub fn of(r: f64) -> Self {
        let b = smoothing(r);
        Self { b, ki: b / 4.0, kp: 5.0 * b }
    }

    /// The same as a configuration wants them.
    pub(super) fn wanted(r: f64, setting: GainSetting) -> Self {
        let gains = Self::of(r);
        match setting {
            GainSetting::Auto => gains,
            GainSetting::Given([ki, kp]) => Self { ki, kp, ..gains },
        }
    }

    /// Rounds over which a status is judged.
    pub fn window(&self) -> usize {
        (4.0 / self.b).round().max(1.0) as usize
    }

    /// Whether these must be replaced by the wanted ones.
    pub(super) fn differ(&self, wanted: &Self, setting: GainSetting) -> bool {
        let drifted = (wanted.b / self.b - 1.0).abs() > TOLERANCE;
        match setting {
            GainSetting::Auto => drifted || self.ki != self.b / 4.0 || self.kp != 5.0 * self.b,
            GainSetting::Given(given) => drifted || given != [self.ki, self.kp],
        }
    }

    /// Whether all are possible.
    pub(super) fn is_sound(&self) -> bool {
        let positive = |gain: f64| gain.is_finite() && gain > 0.0;
        (0.01..=1.0).contains(&self.b) && positive(self.ki) && self.kp.is_finite() && self.kp >= 0.0
    }
}

impl Participation {
    /// Takes in the r of a round and gives the running mean.
    pub fn see(&mut self, r: f64) -> f64 {
        let mean = self.r.map_or(r, |mean| mean + SHARE * (r - mean));
        self.r = Some(mean);
        mean
    }
}
