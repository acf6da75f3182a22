//! What the controller knows of a round: five numbers per tier. Devices are summed in DeviceId order, and nothing else of
//! them is used, so secure aggregation can give the same numbers.

use common::Tier;
use serde::{Deserialize, Serialize};

use super::settings::Signal;
use crate::cohort::{Cohort, Participant};

/// Signals of the devices of one tier.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalSums {
    /// n: devices with a signal in this round.
    pub n: u64,
    /// N: devices enrolled in the tier.
    pub size: u64,
    /// Sum of x.
    pub s1: f64,
    /// Sum of x^2.
    pub s2: f64,
    /// Sum of v, the squared standard errors of x.
    pub sv: f64,
}

/// All tiers in one round.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RoundSignal {
    /// By tier.
    pub tiers: Vec<SignalSums>,
    /// Devices that took part without a signal, by tier.
    pub unmeasured: Vec<u64>,
}

/// What is compared: a loss, or a gap where the strategy works on gaps.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignalKind {
    /// Loss on samples that devices do not train on.
    Validation,
    /// Loss on training samples.
    Training,
    /// Gap to the loss that a device reaches alone.
    Gap,
}

impl SignalSums {
    /// Counts a device. False: its numbers are not possible, and nothing has changed.
    pub fn add(&mut self, signal: f64, error: f64) -> bool {
        let sound = signal.is_finite() && error.is_finite() && error >= 0.0;
        if sound {
            self.n += 1;
            self.s1 += signal;
            self.s2 += signal * signal;
            self.sv += error;
        }
        sound
    }

    /// Both together.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            n: self.n + other.n,
            size: self.size.max(self.n) + other.size.max(other.n),
            s1: self.s1 + other.s1,
            s2: self.s2 + other.s2,
            sv: self.sv + other.sv,
        }
    }

    /// Sum of squared deviations from the mean; 0 without devices.
    pub(super) fn squares(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.s2 - self.s1 * self.s1 / self.n as f64 }
    }

    /// Mean of x; only where n > 0.
    pub(super) fn mean(&self) -> f64 {
        self.s1 / self.n as f64
    }

    /// N, at least n.
    pub(super) fn enrolled(&self) -> f64 {
        self.size.max(self.n) as f64
    }
}

impl RoundSignal {
    /// The signals of the participants of a round.
    pub fn of(cohort: &Cohort, kind: SignalKind) -> Self {
        let tiers = cohort.regions().tiers();
        let mut found = Self { tiers: vec![SignalSums::default(); tiers], unmeasured: vec![0; tiers] };
        for (tier, (sums, unmeasured)) in
            (0..).map_while(Tier::new).zip(found.tiers.iter_mut().zip(&mut found.unmeasured))
        {
            sums.size = cohort.enrolled(tier) as u64;
            for (_, participant) in cohort.of_tier(tier) {
                let counted = kind.of(participant).is_some_and(|(signal, error)| sums.add(signal, error));
                *unmeasured += u64::from(!counted);
            }
        }
        found
    }

    /// Whether every sum is a number.
    pub(super) fn is_finite(&self) -> bool {
        let finite = |sums: &SignalSums| sums.s1.is_finite() && sums.s2.is_finite() && sums.sv.is_finite();
        self.tiers.iter().all(finite)
    }

    /// Devices without a signal in a tier, or in all.
    pub(super) fn unmeasured(&self, tier: Option<Tier>) -> u64 {
        match tier {
            // A tier that the round does not have has no devices.
            Some(tier) => self.unmeasured.get(tier.index()).map_or(0, |&count| count),
            None => self.unmeasured.iter().sum(),
        }
    }
}

impl SignalKind {
    /// x and v of a device, if it has sent them.
    fn of(self, participant: &Participant) -> Option<(f64, f64)> {
        match self {
            Self::Validation => {
                participant.validation().map(|validation| (validation.loss, validation.error))
            }
            Self::Training => Some((participant.loss(), 0.0)),
            Self::Gap => participant.gap().map(|gap| (gap, 0.0)),
        }
    }
}

impl From<Signal> for SignalKind {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Validation => Self::Validation,
            Signal::Training => Self::Training,
        }
    }
}
