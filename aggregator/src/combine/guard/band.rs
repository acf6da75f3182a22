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
    let of = |tier: Option<Tier>| {
        let own = cohort.participants().iter().zip(values);
        let own = own.filter(|(participant, _)| tier.is_none_or(|tier| tier == participant.tier));
        band(&own.filter_map(|(_, &value)| value).collect::<Vec<_>>(), config)
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
