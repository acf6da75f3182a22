//! What a measurement can tell: how far losses of equals lie apart by chance, because few devices or few samples are asked.
//!
//! ```text
//! noise^2 = devices + samples          what the meter takes off its reading: (1 - 1/K) mean P, and the same of E
//! limit   = noise sqrt(chi2 / k)       chi2: 95 % quantile with k degrees of freedom; equals exceed it in one fleet of twenty
//! more    = samples / (c*^2 k/chi2 - devices)      times as many samples, and the limit is c*
//! ```
//! Below the limit, a reading of 0 and one of `noise` mean the same.

use serde::{Deserialize, Serialize};

/// 95 % quantile of the normal distribution.
const Z95: f64 = 1.644_853_627;

/// What a meter takes off its reading, in the unit of d.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Because not all devices were asked.
    pub devices: f64,
    /// Because devices have few samples.
    pub samples: f64,
    /// Groups that are compared, less one.
    pub freedom: u64,
}

/// What the measurement of a target can tell.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resolution {
    /// Disparity that equals show by chance.
    pub noise: f64,
    /// Lowest disparity that is told apart from chance.
    pub limit: f64,
    /// Whether the disparity of the window is not told apart from chance.
    pub within_noise: bool,
    /// Times as many samples make the limit the target. Absent if they are enough, or if only more devices help.
    pub more_samples: Option<f64>,
}

impl Noise {
    /// `rms`: the disparity of the window. `None` where nothing is left to chance.
    pub fn resolution(&self, target: f64, rms: f64) -> Option<Resolution> {
        let squared = self.devices + self.samples;
        let quantile = quantile(self.freedom);
        let limit = squared * quantile;
        if !(limit.is_finite() && limit > 0.0) {
            return None;
        }
        let (aim, wanted) = (target * target, target * target / quantile);
        let helps = limit > aim && wanted > self.devices;
        Some(Resolution {
            noise: squared.sqrt(),
            limit: limit.sqrt(),
            within_noise: rms * rms + squared <= limit,
            more_samples: helps.then(|| self.samples / (wanted - self.devices)),
        })
    }

    /// Whether a saved one is possible.
    pub(super) fn is_sound(&self) -> bool {
        [self.devices, self.samples].iter().all(|part| part.is_finite() && *part >= 0.0)
    }
}

/// 95 % quantile of chi-square over its degrees of freedom, after Wilson and Hilferty; within 3 %.
fn quantile(freedom: u64) -> f64 {
    let share = 2.0 / (9.0 * freedom.max(1) as f64);
    (1.0 - share + Z95 * share.sqrt()).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (freedom, table) in [(1, 3.841), (2, 5.991), (4, 9.488), (9, 16.919), (30, 43.773)] {
            let ratio = quantile(freedom) * freedom as f64 / table;
            assert!((ratio - 1.0).abs() < 0.03, "{freedom}: {ratio}");
        }
    }

    /// As many samples as it asks for make the limit the target.
    #[test]
    fn more_samples_bring_the_limit_to_the_target() {
        let noise = Noise { devices: 0.001, samples: 0.02, freedom: 2 };
        let more = noise.resolution(0.1, 0.0).unwrap().more_samples.unwrap();
        assert!(more > 5.0, "{more}");
        let better = Noise { samples: noise.samples / more, ..noise }.resolution(0.1, 0.0).unwrap();
        assert!((better.limit - 0.1).abs() < 1e-12 && better.more_samples.is_none());
        // They are enough already; or so few devices are asked that samples alone do not help.
        assert_eq!(noise.resolution(0.5, 0.0).unwrap().more_samples, None);
        assert_eq!(Noise { devices: 0.01, ..noise }.resolution(0.1, 0.0).unwrap().more_samples, None);
        assert_eq!(Noise { devices: 0.0, samples: 0.0, freedom: 2 }.resolution(0.1, 0.0), None);
    }
}
