//! Figures of predicted numbers.
//!
//! ```text
//! MAE   mean of |prediction - target|
//! R2    1 - sum of (prediction - target)^2 / sum of (target - mean of all targets)^2
//! ```
//! R2 is 1 for perfect predictions, 0 for a model that always predicts the mean, and negative for a worse one. It does not
//! depend on the scale of the targets, so it is computed from scaled ones.

/// Errors and targets of any number of devices, joined without their samples (Chan's formula).
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct ErrorSums {
    count: f64,
    absolute: f64,
    squared: f64,
    mean: f64,
    /// Squared distances of the targets from their mean.
    spread: f64,
}

impl ErrorSums {
    /// Adds `count` targets: the means of absolute and squared errors, mean and variance of the targets.
    pub fn add(&mut self, count: f64, absolute: f64, squared: f64, (mean, variance): (f64, f64)) {
        if count <= 0.0 {
            return;
        }
        let all = self.count + count;
        let distance = mean - self.mean;
        self.spread += count * variance + distance * distance * self.count * count / all;
        self.mean += distance * count / all;
        self.absolute += count * absolute;
        self.squared += count * squared;
        self.count = all;
    }

    /// Adds the targets of other sums.
    pub fn join(&mut self, other: &Self) {
        let mean = |sum: f64| sum / other.count.max(1.0);
        self.add(other.count, mean(other.absolute), mean(other.squared), (other.mean, mean(other.spread)));
    }

    /// Mean absolute error; `None` without targets.
    pub fn mae(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.absolute / self.count)
    }

    /// Coefficient of determination; `None` if all targets are equal.
    pub fn r2(&self) -> Option<f64> {
        (self.spread > 0.0).then(|| 1.0 - self.squared / self.spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Targets and predictions as one device, whose figures are means.
    fn of(pairs: &[(f64, f64)]) -> ErrorSums {
        let mut sums = ErrorSums::default();
        add(&mut sums, pairs);
        sums
    }

    fn add(sums: &mut ErrorSums, pairs: &[(f64, f64)]) {
        let n = pairs.len() as f64;
        let mean_of = |value: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(value).sum::<f64>() / n;
        let mean = mean_of(&|pair| pair.0);
        sums.add(
            n,
            mean_of(&|pair| (pair.1 - pair.0).abs()),
            mean_of(&|pair| (pair.1 - pair.0).powi(2)),
            (mean, mean_of(&|pair| (pair.0 - mean).powi(2))),
        );
    }

    /// By hand: errors 0.5, -0.5, 0, 1; targets 3, -0.5, 2, 7 with mean 2.875 and squared distances 29.1875.
    #[test]
    fn figures_are_those_of_a_hand_calculation() {
        let sums = of(&[(3.0, 2.5), (-0.5, 0.0), (2.0, 2.0), (7.0, 8.0)]);
        assert_eq!(sums.mae(), Some(0.5));
        assert!((sums.r2().unwrap() - (1.0 - 1.5 / 29.1875)).abs() < 1e-12);
    }

    #[test]
    fn devices_are_joined_as_if_one_device_had_all_samples() {
        let pairs = [(3.0, 2.5), (-0.5, 0.0), (2.0, 2.0), (7.0, 8.0), (100.0, 90.0)];
        let mut joined = ErrorSums::default();
        let parts = [&pairs[..1], &pairs[1..3], &pairs[3..]];
        parts.iter().for_each(|part| add(&mut joined, part));
        let mut summed = ErrorSums::default();
        parts.iter().for_each(|part| summed.join(&of(part)));
        summed.join(&ErrorSums::default());
        let whole = of(&pairs);
        for sums in [joined, summed] {
            assert!((sums.r2().unwrap() - whole.r2().unwrap()).abs() < 1e-12);
            assert!((sums.mae().unwrap() - whole.mae().unwrap()).abs() < 1e-12);
        }
    }

    #[test]
    fn the_mean_has_an_r2_of_0_and_equal_targets_have_none() {
        assert_eq!(of(&[(1.0, 2.0), (3.0, 2.0)]).r2(), Some(0.0));
        assert_eq!((of(&[(1.0, 2.0), (1.0, 3.0)]).r2(), of(&[(1.0, 2.0)]).mae()), (None, Some(1.0)));
        assert_eq!((ErrorSums::default().r2(), ErrorSums::default().mae()), (None, None));
    }
}
