//! How evenly weight is spread over devices.
//!
//! ```text
//! entropy     -sum w ln w                 at most ln N
//! chi_square  sum (w - p)^2 / p           0 where weights follow the data
//! effective   1 / sum w^2                 devices that count, between 1 and N
//! ```

use libm::log;

/// Weights that sum to 1, against the shares of the data.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct WeightFigures {
    /// Entropy of the weights, with the natural logarithm.
    pub entropy: f64,
    /// Distance between the weights and the shares of the data.
    pub chi_square: f64,
    /// Effective number of devices.
    pub effective: f64,
}

impl WeightFigures {
    /// From `(w, p)` of each device. `None` if no device has weight.
    pub fn of(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Self> {
        let squares: f64 = pairs.clone().map(|(weight, _)| weight * weight).sum();
        let surprise = |(weight, _): (f64, f64)| if weight > 0.0 { -weight * log(weight) } else { 0.0 };
        let distance = |(weight, share): (f64, f64)| {
            let off = weight - share;
            if share > 0.0 { off * off / share } else { 0.0 }
        };
        if squares == 0.0 {
            return None;
        }
        // Not -0 where one device has all the weight.
        let entropy = pairs.clone().map(surprise).sum::<f64>() + 0.0;
        Some(Self { entropy, chi_square: pairs.map(distance).sum(), effective: 1.0 / squares })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_weights_and_a_single_weight() {
        let even = WeightFigures::of([(0.25, 0.25); 4].into_iter()).unwrap();
        assert!((even.entropy - 4.0f64.ln()).abs() < 1e-15);
        assert_eq!((even.chi_square, even.effective), (0.0, 4.0));
        let one = WeightFigures::of([(1.0, 0.5), (0.0, 0.25), (0.0, 0.25)].into_iter()).unwrap();
        assert_eq!((one.entropy, one.chi_square, one.effective), (0.0, 1.0, 1.0));
        assert!(one.entropy.is_sign_positive());
        assert_eq!(WeightFigures::of([(0.0, 1.0)].into_iter()), None);
    }
}
