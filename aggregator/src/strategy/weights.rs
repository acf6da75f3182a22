//! How much each participant counts.

use crate::combine::{Cohort, Participant, sum};

/// By how much weights grow at most because others of their tier count less.
const MOST_MADE_UP: f64 = 2.0;

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

    /// Weights of participants that count for a part only. What one loses goes to the others of its tier, as long as there
    /// are enough of them: nobody's hardware weighs less because of who else has it.
    pub fn credited(mut self, cohort: &Cohort<'_>) -> Self {
        let participants = cohort.participants();
        if (0..participants.len()).all(|index| cohort.credit(index) == 1.0) {
            return self;
        }
        let columns = self.regions.max(1);
        let nothing = vec![0.0; columns * cohort.regions().tiers()];
        let (mut before, mut after) = (nothing.clone(), nothing);
        let sums = |participant: &Participant| participant.tier.index() * columns..;
        for (index, (participant, weights)) in
            participants.iter().zip(self.fold.chunks_mut(columns)).enumerate()
        {
            let credit = cohort.credit(index);
            let (before, after) = (&mut before[sums(participant)], &mut after[sums(participant)]);
            for ((weight, before), after) in weights.iter_mut().zip(before).zip(after) {
                *before += *weight;
                *weight *= credit;
                *after += *weight;
            }
            self.shares.iter_mut().skip(index).take(1).for_each(|share| *share *= credit);
        }
        for (participant, weights) in participants.iter().zip(self.fold.chunks_mut(columns)) {
            let (before, after) = (&before[sums(participant)], &after[sums(participant)]);
            for ((weight, before), after) in weights.iter_mut().zip(before).zip(after) {
                *weight *= if *after > 0.0 { (before / after).min(MOST_MADE_UP) } else { 1.0 };
            }
        }
        self.shares = normalised(&self.shares);
        self
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
