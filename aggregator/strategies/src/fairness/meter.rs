//! The disparity of a round, d: an estimate of its square, which noise may make slightly negative.
//!
//! ```text
//! tiers:    w    = max( sum_m (s2 - s1^2/n) / sum_m (n - 1), 0 )              keeps its value if the divisor is 0
//!           first sight of tier m: mu = s1/n, P = w r, E = sv/(n N);  later:
//!           mu  += b (s1/n - mu);   P = (1-b)^2 P + b^2 w r;   E += b (sv/(n N) - E)
//!           B    = var mu - (1 - 1/K) mean(P + E)       over the K known tiers; K < 2: no measurement
//! devices,  A    = max((s2 - s1^2/n)/(n - 1), 0) - sv/n;  smoothed: A += b (..), mean += b (..)
//! inside:   n = 1: the last values;  n = 0: no measurement
//! d = B / max(mean, 1e-10)^2  (cv),  B  (spread)
//! ```
//! P is the variance of mu because only n of N devices were asked; E because a device has few samples. Both are taken off,
//! otherwise a fleet of which few devices take part looks unfair.

use serde::{Deserialize, Serialize};

use super::{
    gains::{sampling, smoothing},
    resolution::Noise,
    settings::Measure,
    sums::{RoundSignal, SignalSums},
};
use crate::strategy::FairnessScope;
use common::Tier;

/// Means below are taken as this in a cv.
const LEAST_MEAN: f64 = 1e-10;

/// What a meter keeps from round to round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Meter {
    /// Between tiers.
    Tiers(TierMeter),
    /// Between all devices.
    Devices(PooledMeter),
    /// Between the devices of one tier.
    Inside(PooledMeter),
}

/// Means of the tiers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierMeter {
    /// Smoothed mean of each tier; absent: not seen yet.
    pub mu: Vec<Option<f64>>,
    /// Variance of mu from sampling devices.
    #[serde(rename = "P")]
    pub p: Vec<f64>,
    /// Variance of mu from sampling within devices.
    #[serde(rename = "E")]
    pub e: Vec<f64>,
    /// Pooled variance between the devices of a tier.
    pub w: f64,
}

/// Devices of one tier, or of all.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PooledMeter {
    /// Smoothed variance and mean; absent: not seen yet.
    pub seen: Option<Pooled>,
}

/// Smoothed variance and mean of devices.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pooled {
    /// Variance.
    #[serde(rename = "A")]
    pub a: f64,
    /// Mean.
    pub mean: f64,
}

/// A measurement.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Reading {
    /// d
    pub squared: f64,
    /// Mean loss.
    pub mean: f64,
    /// r of this round.
    pub sampling: f64,
    /// What was taken off for sampling; absent if nothing was, or if a round is too small to know.
    pub noise: Option<Noise>,
}

impl Meter {
    /// A meter that has seen nothing.
    pub fn new(scope: FairnessScope, tiers: usize) -> Self {
        match scope {
            FairnessScope::Tiers => Self::Tiers(TierMeter {
                mu: vec![None; tiers],
                p: vec![0.0; tiers],
                e: vec![0.0; tiers],
                w: 0.0,
            }),
            FairnessScope::Devices => Self::Devices(PooledMeter::default()),
            FairnessScope::Inside => Self::Inside(PooledMeter::default()),
        }
    }

    /// Takes in a round. `None`: there is no measurement, and the controller rests. Sums or results that are not finite leave
    /// the meter as it was. `tier`: of a meter inside a tier. Without `correct` the reading is plain.
    pub fn observe(
        &mut self,
        round: &RoundSignal,
        tier: Option<Tier>,
        measure: Measure,
        correct: bool,
    ) -> Option<Reading> {
        if !round.is_finite() {
            return None;
        }
        let mut next = self.clone();
        let reading = match &mut next {
            Self::Tiers(meter) => meter.observe(&round.tiers, measure, correct),
            Self::Devices(meter) => {
                let all = round.tiers.iter().copied().reduce(SignalSums::plus)?;
                meter.observe(&all, measure, correct)
            }
            Self::Inside(meter) => meter.observe(round.tiers.get(tier?.index())?, measure, correct),
        };
        let sound = reading.is_none_or(|reading| reading.squared.is_finite() && reading.mean.is_finite());
        if !(sound && next.is_finite()) {
            return None;
        }
        *self = next;
        reading
    }

    /// Whether it can belong to a run of this many tiers.
    pub(super) fn fits(&self, scope: FairnessScope, tiers: usize) -> bool {
        let kind = match self {
            Self::Tiers(meter) => {
                let lists = [meter.mu.len(), meter.p.len(), meter.e.len()];
                scope == FairnessScope::Tiers && lists == [tiers; 3]
            }
            Self::Devices(_) => scope == FairnessScope::Devices,
            Self::Inside(_) => scope == FairnessScope::Inside,
        };
        kind && self.is_finite()
    }

    fn is_finite(&self) -> bool {
        match self {
            Self::Tiers(TierMeter { mu, p, e, w }) => {
                mu.iter().flatten().chain(p).chain(e).chain([w]).all(|number| number.is_finite())
            }
            Self::Devices(meter) | Self::Inside(meter) => {
                meter.seen.is_none_or(|Pooled { a, mean }| a.is_finite() && mean.is_finite())
            }
        }
    }
}

impl TierMeter {
    fn observe(&mut self, tiers: &[SignalSums], measure: Measure, correct: bool) -> Option<Reading> {
        let present = || tiers.iter().filter(|sums| sums.n > 0);
        let asked = present().count() as f64;
        if asked == 0.0 {
            return None;
        }
        let freedom: u64 = present().map(|sums| sums.n - 1).sum();
        if freedom > 0 {
            let squares: f64 = present().map(SignalSums::squares).sum();
            self.w = (squares / freedom as f64).max(0.0);
        }
        for (m, sums) in tiers.iter().enumerate().filter(|(_, sums)| sums.n > 0) {
            self.see(m, sums, correct);
        }
        let known = || {
            let estimates = self.mu.iter().zip(&self.p).zip(&self.e);
            estimates.filter_map(|((mu, p), e)| mu.map(|mu| (mu, *p, *e)))
        };
        let k = known().count() as f64;
        if k < 2.0 {
            return None;
        }
        let mean = known().map(|(mu, ..)| mu).sum::<f64>() / k;
        let variance = known().map(|(mu, ..)| (mu - mean) * (mu - mean)).sum::<f64>() / k;
        let noise = known().map(|(_, p, e)| p + e).sum::<f64>() / k;
        let between = if correct { variance - (1.0 - 1.0 / k) * noise } else { variance };
        let sampling = present().map(sampling).sum::<f64>() / asked;
        let part = |sum: f64| measure.squared((1.0 - 1.0 / k) * sum / k, mean);
        let noise = correct.then(|| Noise {
            devices: part(known().map(|(_, p, _)| p).sum()),
            samples: part(known().map(|(.., e)| e).sum()),
            freedom: k as u64 - 1,
        });
        Some(Reading { squared: measure.squared(between, mean), mean, sampling, noise })
    }

    /// The estimates of a tier; one beyond the tiers of the run is left out.
    fn see(&mut self, m: usize, sums: &SignalSums, correct: bool) {
        let (Some(mu), Some(p), Some(e)) = (self.mu.get_mut(m), self.p.get_mut(m), self.e.get_mut(m)) else {
            return;
        };
        let r = sampling(sums);
        let error = sums.sv / (sums.n as f64 * sums.enrolled());
        let b = smoothing(r);
        match mu {
            Some(mu) if correct => {
                *mu += b * (sums.mean() - *mu);
                *p = (1.0 - b) * (1.0 - b) * *p + b * b * self.w * r;
                *e += b * (error - *e);
            }
            _ => (*mu, *p, *e) = (Some(sums.mean()), self.w * r, error),
        }
    }
}

impl PooledMeter {
    fn observe(&mut self, sums: &SignalSums, measure: Measure, correct: bool) -> Option<Reading> {
        if sums.n == 0 {
            return None;
        }
        let r = sampling(sums);
        if sums.n >= 2 {
            let n = sums.n as f64;
            let variance = (sums.squares() / (n - 1.0)).max(0.0);
            let a = if correct { variance - sums.sv / n } else { variance };
            let mean = sums.mean();
            let b = smoothing(r);
            let seen = match self.seen {
                Some(seen) if correct => {
                    Pooled { a: seen.a + b * (a - seen.a), mean: seen.mean + b * (mean - seen.mean) }
                }
                _ => Pooled { a, mean },
            };
            self.seen = Some(seen);
        }
        let Pooled { a, mean } = self.seen?;
        let noise = (correct && sums.n >= 2).then(|| Noise {
            devices: 0.0,
            samples: measure.squared(sums.sv / sums.n as f64, mean),
            freedom: sums.n - 1,
        });
        Some(Reading { squared: measure.squared(a, mean), mean, sampling: r, noise })
    }
}

impl Measure {
    /// d of a variance and a mean.
    fn squared(self, variance: f64, mean: f64) -> f64 {
        match self {
            Self::Cv => {
                let mean = mean.max(LEAST_MEAN);
                variance / (mean * mean)
            }
            Self::Spread => variance,
        }
    }
}
