//! Loss gaps: how much worse the common model is for a device than a model trained on its own data alone.
//!
//! ```text
//! r_k = L_k(theta) - Lstar_k           negative where the fleet helps
//! agent awareness = max r - min r      low is better
//! ```
//! Levelling down shows as a rising `max` while `variance` falls.

use super::sample_variance;

/// Gaps of the devices that report one.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct Gaps {
    /// Number of devices with a gap, K.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Gap of the device that is worst off.
    pub max: f64,
    /// Gap of the device that is best off.
    pub min: f64,
    /// Divisor K - 1.
    pub variance: f64,
    /// Fairness via agent awareness: `max - min`.
    pub awareness: f64,
}

impl Gaps {
    /// No gaps give all zeros.
    pub fn of(gaps: &[f64]) -> Self {
        let Some(&first) = gaps.first() else { return Self::default() };
        let (max, min) = gaps.iter().fold((first, first), |(max, min), &gap| (max.max(gap), min.min(gap)));
        let (mean, _) = super::mean_variance(gaps);
        Self { count: gaps.len(), mean, max, min, variance: sample_variance(gaps), awareness: max - min }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_three_devices() {
        let gaps = Gaps::of(&[0.3, 0.1, -0.1]);
        assert_eq!((gaps.count, gaps.max, gaps.min), (3, 0.3, -0.1));
        assert!((gaps.variance - 0.04).abs() < 1e-15 && (gaps.mean - 0.1).abs() < 1e-15);
        assert!((gaps.awareness - 0.4).abs() < 1e-15);
        // The form over pairs: sum_{k<k'} (r_k - r_k')^2 / (K (K - 1)).
        let pairs = (0.2f64 * 0.2 + 0.4 * 0.4 + 0.2 * 0.2) / 6.0;
        assert!((gaps.variance - pairs).abs() < 1e-15);
        assert_eq!(Gaps::of(&[]), Gaps::default());
        assert_eq!(Gaps::of(&[0.7]).variance, 0.0);
    }
}
