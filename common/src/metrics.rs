//! Fairness figures, without a heap.
//!
//! | figure | of what | |
//! |---|---|---|
//! | [`Summary`] | one number per device, a loss or an accuracy | mean, variance, worst and best, angle, .. |
//! | [`TierSplit`] | the same, tier by tier | variance inside and between tiers |
//! | [`Gaps`] | how far each device is from what it reaches alone | largest, variance, agent awareness |
//! | [`ErrorSums`] | predicted numbers of several devices | mean absolute error, R2 |
//! | [`GroupFairness`] | predictions by label and attribute | demographic parity, equal opportunity, .. |
//! | [`WeightFigures`] | how much each device counts | entropy, distance to data weights, effective number |
//! | [`Spread`] | one number per run | mean and deviation over seeds |
//!
//! Variances have divisor N, as in the published tables, unless called "sample variance". "Worst" is the
//! highest loss or the lowest accuracy; [`Better`] says which.

use libm::{acos, ceil, log, sqrt};

mod errors;
mod gaps;
mod groups;
mod spread;
mod weights;

pub use errors::ErrorSums;
pub use gaps::Gaps;
pub use groups::{Disparity, GroupFairness};
pub use spread::Spread;
pub use weights::WeightFigures;

/// Which end of a distribution is good.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Better {
    /// Low values, such as losses.
    Low,
    /// High values, such as accuracies.
    High,
}

/// One distribution over devices.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct Summary {
    /// Number of devices.
    pub count: usize,
    /// Arithmetic mean over devices.
    pub mean: f64,
    /// Divisor N.
    pub variance: f64,
    /// Square root of `variance`.
    pub std: f64,
    /// Divisor N - 1; 0 for one device.
    pub sample_variance: f64,
    /// Mean of the worst 10 % of devices, at least one.
    pub worst10: f64,
    /// Mean of the best 10 % of devices, at least one.
    pub best10: f64,
    /// Mean of the worst 5 % of devices, at least one.
    pub worst5: f64,
    /// Mean of the best 5 % of devices, at least one.
    pub best5: f64,
    /// std / mean.
    pub cv: f64,
    /// Between the vector and the all-ones vector, in radians.
    pub angle: f64,
    /// Cosine of `angle`.
    pub cosine: f64,
    /// Jain's index, `cosine^2`: between 1/N and 1, where 1 is even.
    pub jain: f64,
    /// Entropy of the values as shares of their sum, with the natural logarithm; at most ln N.
    pub entropy: f64,
    /// ln N - entropy.
    pub kl_uniform: f64,
    /// Largest difference between two devices, known as the disparity of client parity.
    pub max_min: f64,
}

impl Summary {
    /// Sorts `values`, best first. No values give all zeros.
    pub fn of(values: &mut [f64], better: Better) -> Self {
        match better {
            Better::Low => values.sort_unstable_by(f64::total_cmp),
            Better::High => values.sort_unstable_by(|a, b| b.total_cmp(a)),
        }
        let values = &*values;
        let (Some(&best), Some(&worst)) = (values.first(), values.last()) else { return Self::default() };
        let (mean, variance) = mean_variance(values);
        let square = values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64;
        let cosine = if square > 0.0 { (mean / sqrt(square)).clamp(-1.0, 1.0) } else { 1.0 };
        let entropy = entropy(values);
        Self {
            count: values.len(),
            mean,
            variance,
            std: sqrt(variance),
            sample_variance: sample_variance(values),
            worst10: mean_of(&values[values.len() - share(values.len(), 10.0)..]),
            best10: mean_of(&values[..share(values.len(), 10.0)]),
            worst5: mean_of(&values[values.len() - share(values.len(), 5.0)..]),
            best5: mean_of(&values[..share(values.len(), 5.0)]),
            cv: if mean == 0.0 { 0.0 } else { sqrt(variance) / mean },
            angle: acos(cosine),
            cosine,
            jain: cosine * cosine,
            entropy,
            kl_uniform: log(values.len() as f64) - entropy,
            max_min: (best - worst).abs(),
        }
    }
}

/// How variance divides between and within tiers: `variance = within + inter_weighted`.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct TierSplit {
    /// Mean of the variances inside tiers, weighted by devices.
    pub within: f64,
    /// Variance of the tier means, each tier counting once.
    pub inter: f64,
    /// Variance of the tier means, each tier weighted by its devices.
    pub inter_weighted: f64,
}

impl TierSplit {
    /// From the count, mean and variance of every tier; tiers without devices are left out.
    pub fn of(tiers: impl Iterator<Item = (usize, f64, f64)> + Clone) -> Self {
        let tiers = tiers.filter(|&(count, ..)| count > 0);
        let devices: f64 = tiers.clone().map(|(count, ..)| count as f64).sum();
        let number = tiers.clone().count() as f64;
        if number == 0.0 {
            return Self::default();
        }
        let mean = tiers.clone().map(|(count, mean, _)| count as f64 * mean).sum::<f64>() / devices;
        let middle = tiers.clone().map(|(_, mean, _)| mean).sum::<f64>() / number;
        let square = |x: f64| x * x;
        Self {
            within: tiers.clone().map(|(count, _, variance)| count as f64 * variance).sum::<f64>() / devices,
            inter: tiers.clone().map(|(_, mean, _)| square(mean - middle)).sum::<f64>() / number,
            inter_weighted: tiers.map(|(count, tier, _)| count as f64 * square(tier - mean)).sum::<f64>()
                / devices,
        }
    }
}

/// Mean and variance with divisor N; zeros for no values.
pub fn mean_variance(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = mean_of(values);
    let deviation = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
    (mean, deviation / values.len() as f64)
}

/// Variance with divisor N - 1; 0 for fewer than two values.
pub fn sample_variance(values: &[f64]) -> f64 {
    let (_, variance) = mean_variance(values);
    if values.len() < 2 { 0.0 } else { variance * values.len() as f64 / (values.len() - 1) as f64 }
}

/// `max(1, ceil(percent * N / 100))` devices.
fn share(count: usize, percent: f64) -> usize {
    (ceil(percent * count as f64 / 100.0) as usize).clamp(1, count.max(1))
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn entropy(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let term = |x: &f64| if *x > 0.0 && sum > 0.0 { -(x / sum) * log(x / sum) } else { 0.0 };
    values.iter().map(term).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 5e-11, "{a} {b}");
    }

    #[test]
    fn worked_example_of_the_specification() {
        let summary = Summary::of(&mut [0.9, 0.4, 0.8, 0.7], Better::High);
        near(summary.mean, 0.7);
        near(summary.variance, 0.035);
        near(summary.std, 0.187_082_869_3);
        near(summary.cv, 0.267_261_241_9);
        near(summary.angle, 0.261_157_410_9);
        assert!((summary.angle.to_degrees() - 14.9632).abs() < 5e-5);
        near(summary.cosine, summary.angle.cos());
        near(summary.cosine * summary.cosine, summary.jain);
        near(summary.sample_variance, 0.035 * 4.0 / 3.0);
        near(summary.max_min, 0.5);
        near(summary.jain, 0.933_333_333_3);
        near(summary.entropy, 1.347_308_009_6);
        near(summary.kl_uniform, 0.038_986_351_6);
        near(summary.worst10, 0.4);
        near(summary.best10, 0.9);
    }

    #[test]
    fn worked_split_of_the_specification() {
        let tiers = [&[0.9, 0.8][..], &[0.7, 0.4]].map(|tier| {
            let (mean, variance) = mean_variance(tier);
            (tier.len(), mean, variance)
        });
        near(tiers[0].2, 0.0025);
        near(tiers[1].2, 0.0225);
        let split = TierSplit::of(tiers.into_iter());
        near(split.within, 0.0125);
        near(split.inter, 0.0225);
        near(split.inter_weighted, 0.0225);
    }

    #[test]
    fn one_class_under_ten_patterns() {
        let mut accuracies = [0.0; 100];
        accuracies[..10].fill(1.0);
        near(Summary::of(&mut accuracies, Better::High).angle, 0.1f64.sqrt().acos());
    }

    proptest! {
        #[test]
        fn variance_is_within_plus_between(
            tiers in prop::collection::vec(prop::collection::vec(0.0f64..10.0, 1..6), 1..5)
        ) {
            let mut all: Vec<f64> = tiers.concat();
            let summary = Summary::of(&mut all, Better::Low);
            let split = TierSplit::of(tiers.iter().map(|tier| {
                let (mean, variance) = mean_variance(tier);
                (tier.len(), mean, variance)
            }));
            prop_assert!((summary.variance - split.within - split.inter_weighted).abs() < 1e-9);
            prop_assert!((summary.angle.tan() - summary.cv).abs() < 1e-6);
            prop_assert!(summary.best10 <= summary.mean + 1e-12 && summary.mean <= summary.worst10 + 1e-12);
        }
    }
}
