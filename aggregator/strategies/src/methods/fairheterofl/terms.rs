//! The scalar terms of every tier, in logs.
//!
//! ```text
//! lnS = logsumexp(ln p + (q_m+1) ln f)      a_i = ln p + q_m ln f      amax = max a
//! u_i = exp(a_i - amax)                     B   = ln g + e lnS + amax
//! ```

use common::Tier;

pub(super) use crate::methods::softmax::floored_loss as loss;
use crate::{
    cohort::{Cohort, Participant},
    kernel::sum,
    methods::{
        fairheterofl::{FairHeteroFlParams, GroupWeight},
        softmax::log_sum_exp,
    },
};

pub(super) struct Terms {
    pub tier: Tier,
    pub q_m: f64,
    /// lnS
    pub ln_s: f64,
    /// amax
    pub ln_top: f64,
    /// B: log scale of the tier's gradient and bound.
    pub ln_scale: f64,
    /// Participant and u_i.
    pub weights: Vec<(usize, f64)>,
    /// Sum of u_i.
    pub weight: f64,
}

/// Terms of every tier that has a participant and a weight above 0.
pub(super) fn of_tiers(params: &FairHeteroFlParams, cohort: &Cohort) -> Vec<Terms> {
    let groups = groups(params, cohort).into_iter();
    groups.filter_map(|(tier, group)| of_tier(params, cohort, tier, group)).collect()
}

/// Weight g of every tier.
fn groups(params: &FairHeteroFlParams, cohort: &Cohort) -> Vec<(Tier, f64)> {
    let tiers = || (0..cohort.regions().tiers()).map_while(Tier::new);
    let samples = |tier| sum(cohort.of_tier(tier).map(|(_, participant)| participant.samples()));
    let present = tiers().filter(|&tier| samples(tier) > 0.0).count() as f64;
    let all = sum(tiers().map(samples));
    let group = |tier| {
        cohort.tier_weight(tier).unwrap_or(match params.group_weight {
            GroupWeight::Data => samples(tier) / all,
            GroupWeight::Uniform => 1.0 / present,
        })
    };
    tiers().map(|tier| (tier, group(tier))).collect()
}

/// `g_m p_i` of every participant: how much it counts if all losses are equal.
pub(super) fn priors(params: &FairHeteroFlParams, cohort: &Cohort) -> Vec<f64> {
    let mut priors = vec![0.0; cohort.participants().len()];
    for (tier, group) in groups(params, cohort) {
        let shares = shares(cohort, tier);
        let all = sum(shares.iter().map(|&(_, share)| share));
        for (index, share) in shares.into_iter().filter(|_| all > 0.0) {
            priors[index] = group * share / all;
        }
    }
    priors
}

/// p_i inside a tier, before it is normalised: the operator's weight, or the share of the tier's samples.
fn shares(cohort: &Cohort, tier: Tier) -> Vec<(usize, f64)> {
    let samples = sum(cohort.of_tier(tier).map(|(_, participant)| participant.samples()));
    let share = |(index, participant): (usize, &Participant)| {
        (index, cohort.device_weight(index).unwrap_or(participant.samples() / samples))
    };
    cohort.of_tier(tier).map(share).collect()
}

fn of_tier(params: &FairHeteroFlParams, cohort: &Cohort, tier: Tier, group: f64) -> Option<Terms> {
    let q_m = params.q_m(tier)?;
    let shares = shares(cohort, tier);
    let total = sum(shares.iter().map(|&(_, share)| share));
    if !(group > 0.0 && total > 0.0) {
        return None;
    }
    // (index, ln p, ln f)
    let logs: Vec<(usize, f64, f64)> = shares
        .into_iter()
        .map(|(index, share)| (index, (share / total).ln(), loss(cohort, index).ln()))
        .collect();
    let ln_s = log_sum_exp(logs.iter().map(|&(_, ln_p, ln_f)| ln_p + (q_m + 1.0) * ln_f));
    let ln_top = logs.iter().map(|&(_, ln_p, ln_f)| ln_p + q_m * ln_f).fold(f64::NEG_INFINITY, f64::max);
    let weigh = |&(index, ln_p, ln_f): &(usize, f64, f64)| (index, (ln_p + q_m * ln_f - ln_top).exp());
    let weights: Vec<_> = logs.iter().map(weigh).collect();
    let power = (params.q - q_m) / (q_m + 1.0);
    Some(Terms {
        tier,
        q_m,
        ln_s,
        ln_top,
        ln_scale: group.ln() + power * ln_s + ln_top,
        weight: sum(weights.iter().map(|&(_, weight)| weight)),
        weights,
    })
}
