//! How much each participant counts.

use crate::kernel::sum;

/// Weights of a cohort's participants, in DeviceId order.
#[derive(Clone, PartialEq, Debug)]
pub struct Weights {
    fold: Vec<f64>,
    /// 0: one weight per participant.
    regions: usize,
    shares: Vec<f64>,
}

/// Weight of one participant.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Weight<'a> {
    Whole(f64),
    /// By region.
    PerRegion(&'a [f64]),
    /// By block; coefficients of a direction, of any sign.
    PerBlock(&'a [f64]),
}

impl Weights {
    /// One weight per participant; only ratios matter.
    pub fn per_device(weights: Vec<f64>) -> Self {
        let shares = normalised(&weights);
        Self { fold: weights, regions: 0, shares }
    }

    /// One weight per participant, scaled tier by tier (the strategy's `mix` undoes it), and the
    /// participants' weights on one scale.
    pub fn scaled_by_tier(weights: Vec<f64>, shares: &[f64]) -> Self {
        Self { fold: weights, regions: 0, shares: normalised(shares) }
    }

    /// `participants x regions` weights, and the participants' weights over all participants.
    pub fn per_region(weights: Vec<f64>, regions: usize, shares: &[f64]) -> Self {
        Self { fold: weights, regions: regions.max(1), shares: normalised(shares) }
    }

    pub fn of(&self, index: usize) -> Weight<'_> {
        if self.regions == 0 {
            return Weight::Whole(self.fold.get(index).copied().unwrap_or(0.0));
        }
        let range = index * self.regions..(index + 1) * self.regions;
        Weight::PerRegion(self.fold.get(range).unwrap_or(&[]))
    }

    /// Everybody counts the same; what weights sum to, in every region, stays.
    pub(crate) fn level(&mut self) {
        let count = self.shares.len();
        let columns = self.regions.max(1);
        for column in 0..columns {
            let mean = sum(self.fold.iter().skip(column).step_by(columns).copied()) / count as f64;
            self.fold.iter_mut().skip(column).step_by(columns).for_each(|weight| *weight = mean);
        }
        self.shares = normalised(&vec![1.0; count]);
    }

    /// Over all participants; they sum to 1, or are all 0.
    pub(crate) fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// The same, of weights that are used up.
    pub fn into_shares(self) -> Vec<f64> {
        self.shares
    }
}

impl Weight<'_> {
    pub fn in_region(self, region: usize) -> f64 {
        match self {
            Self::Whole(weight) => weight,
            Self::PerRegion(weights) => weights.get(region).copied().unwrap_or(0.0),
            Self::PerBlock(_) => 0.0,
        }
    }

    /// Nothing of the update would be counted.
    pub fn is_zero(self) -> bool {
        match self {
            Self::Whole(weight) => weight == 0.0,
            Self::PerRegion(weights) | Self::PerBlock(weights) => weights.iter().all(|&weight| weight == 0.0),
        }
    }
}

fn normalised(weights: &[f64]) -> Vec<f64> {
    let all = sum(weights.iter().copied());
    let share = |&weight: &f64| if all > 0.0 { weight / all } else { 0.0 };
    weights.iter().map(share).collect()
}
