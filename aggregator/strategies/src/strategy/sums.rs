//! The weight and the squared norm of the folded sums, per tier and region.

use common::{RegionId, Tier, TierSet};

use crate::{strategy::Weight, table::Table};

/// Weights and squared norms of the sums of updates, by tier and region.
#[derive(Clone, PartialEq, Debug)]
pub struct TierSums {
    /// `tiers x regions`
    weights: Table,
    /// `tiers x regions`
    norms: Table,
}

impl TierSums {
    pub(crate) fn new(tiers: usize, regions: usize) -> Self {
        Self { weights: Table::zeros(tiers, regions), norms: Table::zeros(tiers, regions) }
    }

    /// Sum of the weights that went into a tier's sum, in a region.
    pub fn weight(&self, tier: Tier, region: RegionId) -> f64 {
        self.weights.at(tier.index(), region.index())
    }

    /// Sum of the weights of some tiers in a region.
    pub fn weight_in(&self, region: RegionId, tiers: TierSet) -> f64 {
        tiers.iter().map(|tier| self.weight(tier, region)).sum()
    }

    /// Squared norm of a tier's sum inside a region.
    pub fn norm_in(&self, tier: Tier, region: RegionId) -> f64 {
        self.norms.at(tier.index(), region.index())
    }

    /// Squared norm of a tier's whole sum.
    pub fn norm(&self, tier: Tier) -> f64 {
        self.norms.row(tier.index()).iter().sum()
    }

    /// Adds a participant's weight to its tier, in every region.
    pub(crate) fn count(&mut self, tier: Tier, weight: Weight<'_>) {
        for (number, sum) in (0..).zip(self.weights.row_mut(tier.index())) {
            *sum += weight.in_region(RegionId(number));
        }
    }

    pub(crate) fn add_weight(&mut self, tier: Tier, region: RegionId, weight: f64) {
        *self.weights.at_mut(tier.index(), region.index()) += weight;
    }

    pub(crate) fn add_norm(&mut self, tier: Tier, region: RegionId, norm: f64) {
        *self.norms.at_mut(tier.index(), region.index()) += norm;
    }
}
