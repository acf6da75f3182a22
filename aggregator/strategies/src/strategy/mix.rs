//! How the tiers' sums form the step of each region.

use common::{RegionId, Tier, region::RegionMap};

use crate::{strategy::TierSums, table::Table};

/// Coefficients `c[j][m]` of the sum of tier m in region j, and by how much the step of each region is shortened.
#[derive(Clone, PartialEq, Debug)]
pub struct Mix {
    /// `regions x tiers`; 0: the tier's sum does not count.
    coefficients: Table,
    /// By region.
    rho: Vec<Option<f64>>,
}

impl Mix {
    /// No region moves.
    pub fn none(regions: &RegionMap) -> Self {
        let (count, tiers) = (regions.sets().len(), regions.tiers());
        Self { coefficients: Table::zeros(count, tiers), rho: vec![None; count] }
    }

    /// The weighted mean: `c[j][m] = 1 / sum_{C(j)} w_i`. A region keeps its value if that is not > 0.
    pub fn mean(regions: &RegionMap, sums: &TierSums) -> Self {
        let mut mix = Self::none(regions);
        for (region, tiers) in regions.regions() {
            let all = sums.weight_in(region, tiers);
            if all > 0.0 {
                tiers.iter().for_each(|tier| mix.set(region, tier, 1.0 / all));
            }
        }
        mix
    }

    /// The weighted mean, of a strategy that otherwise shortens its steps and does not do so here.
    pub(crate) fn plain_mean(regions: &RegionMap, sums: &TierSums) -> Self {
        let mut mix = Self::mean(regions, sums);
        let held = regions.regions().filter(|&(region, tiers)| sums.weight_in(region, tiers) > 0.0);
        held.for_each(|(region, _)| mix.set_rho(region, 1.0));
        mix
    }

    /// The step of a region is the sum over its tiers: coefficient 1 for each.
    pub(crate) fn sum(regions: &RegionMap) -> Self {
        let mut mix = Self::none(regions);
        for (region, tiers) in regions.regions() {
            tiers.iter().for_each(|tier| mix.set(region, tier, 1.0));
        }
        mix
    }

    /// Whether it was made for these regions.
    pub(crate) fn fits(&self, regions: &RegionMap) -> bool {
        self.coefficients.shape() == (regions.sets().len(), regions.tiers())
    }

    /// Sets `c[region][tier]`.
    pub fn set(&mut self, region: RegionId, tier: Tier, coefficient: f64) {
        *self.coefficients.at_mut(region.index(), tier.index()) = coefficient;
    }

    /// `c[region][tier]`
    pub fn coefficient(&self, region: RegionId, tier: Tier) -> f64 {
        self.coefficients.at(region.index(), tier.index())
    }

    /// States by how much the step of a region is shortened, for reports.
    pub fn set_rho(&mut self, region: RegionId, rho: f64) {
        self.rho[region.index()] = Some(rho);
    }

    /// By how much the step of a region is shortened, if the strategy states it.
    pub fn rho(&self, region: RegionId) -> Option<f64> {
        self.rho[region.index()]
    }

    /// Multiplies every step.
    pub fn scale(&mut self, factor: f64) {
        self.coefficients.values_mut().iter_mut().for_each(|coefficient| *coefficient *= factor);
    }
}
