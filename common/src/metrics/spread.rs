//! One number per run, over runs with different seeds.

use libm::sqrt;

use super::{mean_variance, sample_variance};

/// Mean and standard deviation with divisor runs - 1.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct Spread {
    /// Number of runs.
    pub runs: usize,
    /// Arithmetic mean over runs.
    pub mean: f64,
    /// 0 for fewer than two runs, where it is undefined.
    pub std: f64,
}

impl Spread {
    /// From one value per run.
    pub fn of(values: &[f64]) -> Self {
        Self { runs: values.len(), mean: mean_variance(values).0, std: sqrt(sample_variance(values)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divisor_is_one_less() {
        let spread = Spread::of(&[1.0, 2.0, 3.0]);
        assert_eq!(spread, Spread { runs: 3, mean: 2.0, std: 1.0 });
        assert_eq!(Spread::of(&[5.0]), Spread { runs: 1, mean: 5.0, std: 0.0 });
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
