//! Rule 2: how much one device counts.
//!
//! In every region, over its `n` holders:
//!
//! ```text
//! w      what the strategy gives              q    the same without fairness (Strategy::plain); both sum to 1
//! p      = fit_shares(q, 0, counts / n)            the plain share: sample counts are bounded here; w is scaled by p / q
//! cap_i  = min(1, share / n), lower if many claim more: see [`fifth`]; where the sample count is trusted, at least q_i
//! v      = fit_shares(max(w, 1e-12 p), floor * p, cap)            losses are bounded here
//! step   = sum_i v_i D_i, times the step length that the strategy chose
//! ```
//! `m` liars among `n` holders get at most `share * m / n` of a region, and at most `fifth * max(m, n / 5) / n`, whatever they
//! report, in every round.

use common::{DeviceId, Tier, region::RegionMap};

use crate::{
    cohort::{Bounds, Cohort},
    kernel::sum,
    strategy::{Mix, TierSums, Weights},
    table::Table,
};

mod fifth;

use fifth::Fleet;

/// Smallest fraction of the plain share, so that a share of zero can still be scaled up.
const LEAST: f64 = 1e-12;

/// Relative differences below this are rounding errors.
const EXACT: f64 = 1e-9;

/// A device that counts less than the strategy wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct CappedShare {
    /// Its name.
    pub device: DeviceId,
    /// Its tier.
    pub tier: Tier,
    /// Shares over all participants.
    pub wanted: f64,
    /// The share that counted.
    pub counted: f64,
    /// How many average devices it could count at most.
    pub most: f64,
    /// It states more samples than it counts with.
    pub by_samples: bool,
    /// The direction of its update takes away its bonus.
    pub no_bonus: bool,
}

/// The shares of some devices, in their order.
struct Shares {
    counted: Vec<f64>,
    cap: Vec<f64>,
    /// Devices whose sample counts are bounded.
    by_samples: Vec<bool>,
}

impl Bounds {
    fn shares(&self, devices: &[&DeviceId], wanted: &[f64], plain: &[f64]) -> Shares {
        let cap = self.caps(self.most_by_samples(), devices, plain);
        let (stated, (plain, _)) = (plain, fit_shares(plain, &vec![0.0; plain.len()], &cap));
        let mut cap = self.caps(self.share, devices, &plain);
        for ((cap, device), plain) in cap.iter_mut().zip(devices).zip(&plain) {
            if self.no_bonus.contains(*device) {
                *cap = cap.min(*plain);
            }
        }
        let least: Vec<f64> = plain.iter().map(|plain| self.floor * plain).collect();
        let by_samples =
            stated.iter().zip(&plain).map(|(stated, plain)| *stated > plain * (1.0 + EXACT)).collect();
        let wanted = without_counts(wanted, stated, &plain);
        let wanted: Vec<f64> =
            wanted.iter().zip(&plain).map(|(wanted, plain)| wanted.max(LEAST * plain)).collect();
        let trusted: Vec<bool> = devices.iter().map(|device| self.trusted.contains(*device)).collect();
        let mean = self.fifth / devices.len().max(1) as f64;
        let fleet = Fleet { wanted: &wanted, least: &least, cap: &cap, trusted: &trusted, mean };
        let (counted, cap) = fleet.fit();
        Shares { counted, cap, by_samples }
    }

    /// Average devices that a device may count by its samples: no more than it may count in any case.
    fn most_by_samples(&self) -> f64 {
        self.counts.min(self.fifth).min(self.share)
    }

    fn caps(&self, share: f64, devices: &[&DeviceId], plain: &[f64]) -> Vec<f64> {
        let average = share / devices.len().max(1) as f64;
        let cap = |(device, plain): (&&DeviceId, &f64)| match self.trusted.contains(*device) {
            true => average.max(*plain).min(1.0),
            false => average.min(1.0),
        };
        devices.iter().zip(plain).map(cap).collect()
    }

    /// Bounded sample counts: the largest ones are cut to the cap, all others are unchanged.
    pub fn counts(&self, devices: &[&DeviceId], counts: &[f64]) -> Vec<f64> {
        let all = sum(counts.iter().copied());
        if all <= 0.0 {
            return counts.to_vec();
        }
        let plain: Vec<f64> = counts.iter().map(|count| count / all).collect();
        let cap = self.caps(self.most_by_samples(), devices, &plain);
        let (_, scale) = fit_shares(&plain, &vec![0.0; plain.len()], &cap);
        counts.iter().zip(&cap).map(|(&count, cap)| count.min(cap * all / scale)).collect()
    }
}

/// Weights as the strategy gives them to devices with bounded sample counts; they are the same if no count is bounded.
fn without_counts(wanted: &[f64], stated: &[f64], plain: &[f64]) -> Vec<f64> {
    if stated == plain {
        return wanted.to_vec();
    }
    let scaled = |((wanted, stated), plain): ((&f64, &f64), &f64)| {
        if (wanted - stated).abs() <= EXACT * stated {
            // Exact, so that a strategy at its neutral end is the plain one bit by bit.
            *plain
        } else if *stated > 0.0 {
            wanted * (plain / stated)
        } else {
            *wanted
        }
    };
    let scaled: Vec<f64> = wanted.iter().zip(stated).zip(plain).map(scaled).collect();
    normalised(&scaled).unwrap_or(scaled)
}

/// Weights within the bounds; in every region that moves they sum to 1.
pub(crate) struct BoundedWeights {
    pub weights: Weights,
    /// The strategy's own weights, by tier and region.
    own: TierSums,
}

/// The weights of participants, by tier and region.
pub(crate) fn tier_sums(cohort: &Cohort, weights: &Weights) -> TierSums {
    let mut sums = TierSums::new(cohort.regions().tiers(), cohort.regions().sets().len());
    for (index, participant) in cohort.participants().iter().enumerate() {
        sums.count(participant.tier, weights.of(index));
    }
    sums
}

impl BoundedWeights {
    /// `None` if all shares are within the bounds: then the result is identical bit by bit.
    ///
    /// `own` are the [`tier_sums`] of the weights, and `mix` is the strategy's mix of them. Between the tiers of a region it
    /// must not depend on the norms of the sums.
    pub fn new(
        bounds: &Bounds,
        cohort: &Cohort,
        base: &[f64],
        weights: &Weights,
        own: TierSums,
        mix: &Mix,
    ) -> Option<Self> {
        let participants = cohort.participants();
        let mut inside = true;
        let mut table = Table::zeros(participants.len(), cohort.regions().sets().len());
        for (region, tiers) in cohort.regions().regions() {
            let members = cohort.holders(tiers);
            let devices: Vec<&DeviceId> = members.iter().map(|&index| &participants[index].device).collect();
            let wanted: Vec<f64> = members
                .iter()
                .map(|&index| {
                    weights.of(index).in_region(region) * mix.coefficient(region, participants[index].tier)
                })
                .collect();
            let Some(wanted) = normalised(&wanted) else { continue };
            let base: Vec<f64> = members.iter().map(|&index| base[index]).collect();
            let Some(base) = normalised(&base) else { continue };
            let Shares { counted, .. } = bounds.shares(&devices, &wanted, &base);
            inside &= counted == wanted;
            for (&index, share) in members.iter().zip(counted) {
                *table.at_mut(index, region.index()) = share;
            }
        }
        if inside {
            return None;
        }
        let shares = bounded_shares(bounds, cohort, base, weights)
            .map_or_else(|| weights.shares().to_vec(), |Shares { counted, .. }| counted);
        Some(Self { weights: Weights::per_region(table, &shares), own })
    }

    /// The folded sums with the tiers' own weights, so that a strategy chooses its usual step length.
    pub fn restated(&self, regions: &RegionMap, sums: &TierSums) -> TierSums {
        let mut restated = self.own.clone();
        for tier in (0..regions.tiers()).map_while(Tier::new) {
            for (region, _) in regions.regions() {
                let counted = sums.weight(tier, region);
                if counted > 0.0 {
                    let scale = self.own.weight(tier, region) / counted;
                    restated.add_norm(tier, region, scale * scale * sums.norm_in(tier, region));
                }
            }
        }
        restated
    }

    /// The mix of the bounded sums, with the step length of the strategy's own mix.
    pub fn mix(&self, cohort: &Cohort, own: &Mix) -> Mix {
        let mut mix = Mix::none(cohort.regions());
        for (region, tiers) in cohort.regions().regions() {
            let length =
                sum(tiers.iter().map(|tier| own.coefficient(region, tier) * self.own.weight(tier, region)));
            tiers.iter().for_each(|tier| mix.set(region, tier, length));
            if let Some(rho) = own.rho(region) {
                mix.set_rho(region, rho);
            }
        }
        mix
    }
}

/// Devices whose share over all participants is above their cap, and how many the floor raises.
pub(crate) fn capped(
    bounds: &Bounds,
    cohort: &Cohort,
    base: &[f64],
    weights: &Weights,
) -> (Vec<CappedShare>, usize) {
    let Some(Shares { counted, cap, by_samples }) = bounded_shares(bounds, cohort, base, weights) else {
        return (vec![], 0);
    };
    let wanted = weights.shares();
    let mut capped = vec![];
    for (index, participant) in cohort.participants().iter().enumerate() {
        // Rounding errors are not reported.
        let above = |limit: f64| wanted[index] > limit * (1.0 + EXACT);
        if above(cap[index]) || by_samples[index] && above(counted[index]) {
            capped.push(CappedShare {
                device: participant.device.clone(),
                tier: participant.tier,
                wanted: wanted[index],
                counted: counted[index],
                most: cap[index] * wanted.len() as f64,
                by_samples: by_samples[index],
                no_bonus: bounds.no_bonus.contains(&participant.device),
            });
        }
    }
    let raised = counted.iter().zip(wanted).filter(|(counted, wanted)| *counted > *wanted).count();
    (capped, raised)
}

/// Over all participants, as in a region that every tier holds.
fn bounded_shares(bounds: &Bounds, cohort: &Cohort, base: &[f64], weights: &Weights) -> Option<Shares> {
    let devices: Vec<&DeviceId> =
        cohort.participants().iter().map(|participant| &participant.device).collect();
    let base = normalised(base)?;
    Some(bounds.shares(&devices, &normalised(weights.shares())?, &base))
}

/// `None` if the sum of the weights cannot be divided by.
fn normalised(weights: &[f64]) -> Option<Vec<f64>> {
    let all = sum(weights.iter().copied());
    (all.is_normal() && all.is_finite()).then(|| weights.iter().map(|weight| weight / all).collect())
}

/// `v_i = min(max(s w_i, lo_i), hi_i)` with the one `s` for which they sum to 1; also returns `s`. Weights that are within the
/// bounds and sum to 1 are returned unchanged.
///
/// Needs `sum lo <= 1 <= sum hi`.
pub fn fit_shares(weights: &[f64], lo: &[f64], hi: &[f64]) -> (Vec<f64>, f64) {
    let inside = |((&w, &lo), &hi): ((&f64, &f64), &f64)| (lo..=hi).contains(&w);
    if weights.iter().zip(lo).zip(hi).all(inside) {
        return (weights.to_vec(), 1.0);
    }
    // The values of `s` at which a weight leaves its lower bound or reaches the upper one.
    let rows = || weights.iter().zip(lo).zip(hi).filter(|((w, _), _)| **w > 0.0);
    let mut turns: Vec<f64> = rows().flat_map(|((w, lo), hi)| [lo / w, hi / w]).collect();
    turns.sort_unstable_by(f64::total_cmp);
    let at = |s: f64| -> f64 {
        sum(weights.iter().zip(lo).zip(hi).map(|((&w, &lo), &hi)| (s * w).max(lo).min(hi)))
    };
    // The sum grows with s, so bisection finds the value at which it reaches 1.
    let reached = turns.partition_point(|&turn| at(turn) < 1.0);
    let below = if reached == 0 { 0.0 } else { turns[reached - 1] };
    let above = turns.get(reached).copied().unwrap_or(below);
    let middle = below + (above - below) / 2.0;
    let (mut fixed, mut free) = (0.0, 0.0);
    for ((&w, &lo), &hi) in weights.iter().zip(lo).zip(hi) {
        match middle * w {
            s if s <= lo => fixed += lo,
            s if s >= hi => fixed += hi,
            _ => free += w,
        }
    }
    let s = if free > 0.0 { ((1.0 - fixed) / free).clamp(below, above) } else { above };
    let v = weights.iter().zip(lo).zip(hi).map(|((&w, &lo), &hi)| (s * w).max(lo).min(hi));
    (v.collect(), s)
}

#[cfg(test)]
mod tests;
