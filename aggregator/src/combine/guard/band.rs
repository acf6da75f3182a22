//! Where the values of a device's peers lie, on a logarithmic scale.

use common::Tier;

use super::{super::cohort::Cohort, GuardConfig};

/// Participants without which a tier has no middle of its own.
pub(super) const PEERS: usize = 4;
/// By how much less than `peer_samples` a sample count may be above the middle where all are alike.
const ALIKE: f64 = 6.0;
/// Deviation from which on they are not.
const UNEQUAL: f64 = 0.4;
/// Standard deviations per median absolute deviation, of normal numbers.
const DEVIATION: f64 = 1.4826;

#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Band {
    /// Logarithm of the median.
    pub middle: f64,
    /// Largest value that can be believed.
    pub limit: f64,
}

impl Band {
    /// What counts instead of a value that is not believed: nobody gains by saying more than can be believed.
    pub fn usual(&self) -> f64 {
        self.middle.exp()
    }
}

/// By tier; a tier with few participants takes the band of all together, and nobody has one if they are few, too.
pub(super) fn bands(cohort: &Cohort<'_>, values: &[Option<f64>], config: &GuardConfig) -> Vec<Option<Band>> {
    let known = cohort.participants().iter().zip(values);
    let known: Vec<_> = known.filter_map(|(participant, &value)| Some((participant.tier, value?))).collect();
    bands_of(&known, cohort.regions().tiers(), config)
}

/// The same of any values.
pub(super) fn bands_of(values: &[(Tier, f64)], tiers: usize, config: &GuardConfig) -> Vec<Option<Band>> {
    by_tier(values, tiers, |values| band(values, config))
}

/// Of sample counts, which have a band of their own; see `samples`.
pub(super) fn count_bands(values: &[(Tier, f64)], tiers: usize, config: &GuardConfig) -> Vec<Option<Band>> {
    by_tier(values, tiers, |values| count_band(values, config))
}

/// A device chooses its tier by the memory it claims, so those who agree on a lie could have one to themselves: a tier whose
/// middle all others together would not believe is held against everybody.
fn by_tier(values: &[(Tier, f64)], tiers: usize, band: impl Fn(&[f64]) -> Option<Band>) -> Vec<Option<Band>> {
    let of = |wanted: &dyn Fn(Tier) -> bool| {
        let own = values.iter().filter(|(tier, _)| wanted(*tier));
        band(&own.map(|&(_, value)| value).collect::<Vec<_>>())
    };
    let all = of(&|_| true);
    let of_tier = |tier: Tier| {
        let others = of(&|other| other != tier);
        let own = of(&|other| other == tier);
        own.filter(|own| others.is_none_or(|others| own.usual() <= others.limit)).or(all)
    };
    (0..tiers).map_while(Tier::new).map(of_tier).collect()
}

fn band(values: &[f64], config: &GuardConfig) -> Option<Band> {
    if values.len() < PEERS {
        return None;
    }
    let mut logs: Vec<f64> = values.iter().map(|value| value.max(f64::MIN_POSITIVE).ln()).collect();
    let middle = median(&mut logs);
    let mut apart: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    let reach = (DEVIATION * median(&mut apart) * config.spread).max(config.factor.ln());
    Some(Band { middle, limit: (middle + reach).exp() })
}

fn count_band(counts: &[f64], config: &GuardConfig) -> Option<Band> {
    if counts.len() < PEERS {
        return None;
    }
    let mut logs: Vec<f64> = counts.iter().map(|count| count.max(1.0).ln()).collect();
    let middle = median(&mut logs);
    let mut apart: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    // In order, for `median` has sorted them; of two in the middle the lower one, which is no liar's among four.
    let above: Vec<f64> = logs.iter().map(|log| log - middle).filter(|&above| above >= 0.0).collect();
    let upper = above.get(above.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    let deviation = DEVIATION * upper.min(2.0 * median(&mut apart));
    // However alike they are, and however unequal.
    let (alike, unequal) = ((config.peer_samples / ALIKE).max(1.0).ln(), config.peer_samples.ln());
    let least = alike + (unequal - alike) * (deviation / UNEQUAL).min(1.0);
    let reach = (config.spread / 2.0 * deviation).max(least);
    Some(Band { middle, limit: (middle + reach).exp() })
}

pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = values.get(half).copied().unwrap_or(0.0);
    if values.len().is_multiple_of(2) {
        (upper + values.get(half.wrapping_sub(1)).copied().unwrap_or(upper)) / 2.0
    } else {
        upper
    }
}
