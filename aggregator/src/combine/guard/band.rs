//! Where the values of a device's peers lie, on a logarithmic scale.

use common::Tier;

use super::{super::cohort::Cohort, GuardConfig};

/// Participants without which a tier has no middle of its own.
const PEERS: usize = 4;
/// Standard deviations per median absolute deviation, of normal numbers.
const DEVIATION: f64 = 1.4826;

#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Band {
    /// Logarithm of the median.
    pub middle: f64,
    /// Largest value that can be believed, and the largest one at or below it that a peer has.
    pub limit: f64,
    pub largest: f64,
}

/// By tier; a tier with few participants takes the band of all together, and nobody has one if they are few, too.
pub(super) fn bands(cohort: &Cohort<'_>, values: &[f64], config: &GuardConfig) -> Vec<Option<Band>> {
    let of = |tier: Option<Tier>| {
        let own = cohort.participants().iter().zip(values);
        let own = own.filter(|(participant, _)| tier.is_none_or(|tier| tier == participant.tier));
        band(&own.map(|(_, &value)| value).collect::<Vec<_>>(), config)
    };
    let all = of(None);
    (0..cohort.regions().tiers()).map_while(Tier::new).map(|tier| of(Some(tier)).or(all)).collect()
}

fn band(values: &[f64], config: &GuardConfig) -> Option<Band> {
    if values.len() < PEERS {
        return None;
    }
    let mut logs: Vec<f64> = values.iter().map(|value| value.max(f64::MIN_POSITIVE).ln()).collect();
    let middle = median(&mut logs);
    let mut apart: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    let reach = (DEVIATION * median(&mut apart) * config.spread).max(config.factor.ln());
    let limit = (middle + reach).exp();
    let believed = values.iter().copied().filter(|&value| value <= limit);
    Some(Band { middle, limit, largest: believed.fold(0.0, f64::max) })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = values.get(half).copied().unwrap_or(0.0);
    if values.len().is_multiple_of(2) {
        (upper + values.get(half.wrapping_sub(1)).copied().unwrap_or(upper)) / 2.0
    } else {
        upper
    }
}
