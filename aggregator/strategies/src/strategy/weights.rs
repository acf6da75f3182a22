//! How much each participant counts.

use common::RegionId;

use crate::{cohort::Cohort, kernel::sum, table::Table};

/// Weights of a cohort's participants, in DeviceId order. Only ratios inside a region matter.
#[derive(Clone, PartialEq, Debug)]
pub struct Weights {
    values: Values,
    shares: Vec<f64>,
}

#[derive(Clone, PartialEq, Debug)]
enum Values {
    PerDevice(Vec<f64>),
    /// `participants x regions`
    PerRegion(Table),
}

/// Weight of one participant.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Weight<'a> {
    /// The same everywhere.
    Whole(f64),
    /// By region.
    PerRegion(&'a [f64]),
    /// By block; coefficients of a direction, of any sign.
    PerBlock(&'a [f64]),
}

impl Weights {
    /// One weight per participant.
    pub fn per_device(weights: Vec<f64>) -> Self {
        let shares = normalised(&weights);
        Self { values: Values::PerDevice(weights), shares }
    }

    /// One weight per participant, on a scale of its tier that [`Strategy::mix`](crate::Strategy::mix) undoes. `shares` are the
    /// same weights on a common scale.
    pub fn scaled_by_tier(weights: Vec<f64>, shares: &[f64]) -> Self {
        Self { values: Values::PerDevice(weights), shares: normalised(shares) }
    }

    /// Weights that `weigh` finds for each region from its holders alone. `weigh` gets their indices, ascending, and returns one
    /// weight for each.
    pub fn by_region(cohort: &Cohort, weigh: impl Fn(&[usize]) -> Vec<f64>) -> Self {
        let all: Vec<usize> = (0..cohort.participants().len()).collect();
        let shares = weigh(&all);
        let mut weights = Table::zeros(all.len(), cohort.regions().sets().len());
        for (region, tiers) in cohort.regions().regions() {
            let members = cohort.holders(tiers);
            let found = weigh(&members);
            assert_eq!(found.len(), members.len(), "one weight for each holder of a region");
            for (member, weight) in members.into_iter().zip(found) {
                *weights.at_mut(member, region.index()) = weight;
            }
        }
        Self::per_region(weights, &shares)
    }

    /// `participants x regions` weights, and the participants' weights over all participants.
    pub(crate) fn per_region(weights: Table, shares: &[f64]) -> Self {
        Self { values: Values::PerRegion(weights), shares: normalised(shares) }
    }

    /// Whether there is a weight for each participant, and for each region if weights are given by region.
    pub(crate) fn fits(&self, cohort: &Cohort) -> bool {
        let (participants, regions) = (cohort.participants().len(), cohort.regions().sets().len());
        let complete = match &self.values {
            Values::PerDevice(weights) => weights.len() == participants,
            Values::PerRegion(weights) => weights.shape() == (participants, regions),
        };
        complete && self.shares.len() == participants
    }

    /// The weight of a participant.
    pub fn of(&self, index: usize) -> Weight<'_> {
        match &self.values {
            Values::PerDevice(weights) => Weight::Whole(weights[index]),
            Values::PerRegion(weights) => Weight::PerRegion(weights.row(index)),
        }
    }

    /// Gives all participants the same weight. The sum of the weights of each region stays.
    pub(crate) fn equalise(&mut self) {
        let count = self.shares.len();
        let (columns, values) = match &mut self.values {
            Values::PerDevice(weights) => (1, weights.as_mut_slice()),
            Values::PerRegion(weights) => (weights.shape().1, weights.values_mut()),
        };
        for column in 0..columns {
            let mean = sum(values.iter().skip(column).step_by(columns).copied()) / count as f64;
            values.iter_mut().skip(column).step_by(columns).for_each(|weight| *weight = mean);
        }
        self.shares = normalised(&vec![1.0; count]);
    }

    /// Over all participants; they sum to 1, or are all 0.
    pub(crate) fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// The shares of all participants; they sum to 1, or are all 0.
    pub fn into_shares(self) -> Vec<f64> {
        self.shares
    }
}

impl Weight<'_> {
    /// The weight in a region. A direction has none: its coefficients belong to blocks.
    pub fn in_region(self, region: RegionId) -> f64 {
        match self {
            Self::Whole(weight) => weight,
            Self::PerRegion(weights) => weights[region.index()],
            Self::PerBlock(_) => 0.0,
        }
    }

    /// True if nothing of the update counts.
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
