//! How the tiers' sums form the step of each region.

use common::{Tier, region::RegionMap};

use crate::strategy::TierSums;

/// Coefficients `c[j][m]`, and what is worth reporting of each region.
#[derive(Clone, PartialEq, Debug)]
pub struct Mix {
    tiers: usize,
    /// `regions x tiers`; 0 = the tier's sum does not count.
    coefficients: Vec<f64>,
    /// By region.
    rho: Vec<Option<f64>>,
}

impl Mix {
    /// No region moves.
    pub fn none(regions: &RegionMap) -> Self {
        let (count, tiers) = (regions.sets().len(), regions.tiers());
        Self { tiers, coefficients: vec![0.0; count * tiers], rho: vec![None; count] }
    }

    /// The weighted mean: `c[j][m] = 1 / sum_{C(j)} w_i`. A region keeps its value if that is not > 0.
    pub fn mean(regions: &RegionMap, sums: &TierSums) -> Self {
        let mut mix = Self::none(regions);
        for (region, tiers) in regions.sets().iter().enumerate() {
            let all = sums.weight_in(region, regions);
            if all > 0.0 {
                tiers.iter().for_each(|tier| mix.set(region, tier, 1.0 / all));
            }
        }
        mix
    }

    /// Sums count as they are: the step of a direction.
    pub fn whole(regions: &RegionMap) -> Self {
        let mut mix = Self::none(regions);
        for (region, tiers) in regions.sets().iter().enumerate() {
            tiers.iter().for_each(|tier| mix.set(region, tier, 1.0));
        }
        mix
    }

    pub fn set(&mut self, region: usize, tier: Tier, coefficient: f64) {
        if let Some(slot) = self.at(region, tier).and_then(|at| self.coefficients.get_mut(at)) {
            *slot = coefficient;
        }
    }

    pub fn coefficient(&self, region: usize, tier: Tier) -> f64 {
        self.at(region, tier).and_then(|at| self.coefficients.get(at)).copied().unwrap_or(0.0)
    }

    /// By how much the step of a region was shortened.
    pub fn set_rho(&mut self, region: usize, rho: f64) {
        if let Some(slot) = self.rho.get_mut(region) {
            *slot = Some(rho);
        }
    }

    pub fn rho(&self, region: usize) -> Option<f64> {
        self.rho.get(region).copied().flatten()
    }

    /// Multiplies every step.
    pub fn scale(&mut self, factor: f64) {
        self.coefficients.iter_mut().for_each(|coefficient| *coefficient *= factor);
    }

    fn at(&self, region: usize, tier: Tier) -> Option<usize> {
        (tier.index() < self.tiers).then_some(region * self.tiers + tier.index())
    }
}
