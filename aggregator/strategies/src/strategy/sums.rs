//! What a strategy is told of the folded sums: per tier and region the weight and the squared norm.

use common::{Tier, region::RegionMap};

use crate::strategy::Weight;

#[derive(Clone, PartialEq, Debug)]
pub struct TierSums {
    regions: usize,
    /// `tiers x regions`
    weights: Vec<f64>,
    /// `tiers x regions`
    norms: Vec<f64>,
}

impl TierSums {
    pub(crate) fn new(tiers: usize, regions: usize) -> Self {
        Self { regions, weights: vec![0.0; tiers * regions], norms: vec![0.0; tiers * regions] }
    }

    /// Sum of the weights that went into a tier's sum, in a region.
    pub fn weight(&self, tier: Tier, region: usize) -> f64 {
        self.at(tier, region).and_then(|at| self.weights.get(at)).copied().unwrap_or(0.0)
    }

    /// Sum of the weights of all tiers of a region.
    pub fn weight_in(&self, region: usize, regions: &RegionMap) -> f64 {
        let tiers = regions.sets().get(region).copied().unwrap_or_default();
        tiers.iter().map(|tier| self.weight(tier, region)).sum()
    }

    /// Squared norm of a tier's sum inside a region.
    pub fn norm_in(&self, tier: Tier, region: usize) -> f64 {
        self.at(tier, region).and_then(|at| self.norms.get(at)).copied().unwrap_or(0.0)
    }

    /// Squared norm of a tier's whole sum.
    pub fn norm(&self, tier: Tier) -> f64 {
        (0..self.regions).map(|region| self.norm_in(tier, region)).sum()
    }

    /// Tiers and regions.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.weights.len() / self.regions.max(1), self.regions)
    }

    pub(crate) fn count(&mut self, tier: Tier, weight: Weight<'_>) {
        for region in 0..self.regions {
            self.add_weight(tier, region, weight.in_region(region));
        }
    }

    pub(crate) fn add_weight(&mut self, tier: Tier, region: usize, weight: f64) {
        if let Some(sum) = self.at(tier, region).and_then(|at| self.weights.get_mut(at)) {
            *sum += weight;
        }
    }

    pub(crate) fn add_norm(&mut self, tier: Tier, region: usize, norm: f64) {
        if let Some(sum) = self.at(tier, region).and_then(|at| self.norms.get_mut(at)) {
            *sum += norm;
        }
    }

    fn at(&self, tier: Tier, region: usize) -> Option<usize> {
        (region < self.regions).then_some(tier.index() * self.regions + region)
    }
}
