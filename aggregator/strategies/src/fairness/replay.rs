//! A target over recorded sums: which values the knob would have had.
//!
//! ```text
//! JSON   { "size": [4, 4], "rounds": [{ "n": [3, 4], "s1": [..], "s2": [..], "sv": [..] }, ..] }
//! CSV    round,tier,size,n,s1,s2,sv                         one row per round and tier; absent tiers may be left out
//! ```

use std::collections::BTreeMap;

use common::{Tier, tier::MAX_TIERS};
use serde::{Deserialize, Serialize};

use super::{
    drive::Drive,
    line::FairnessLine,
    settings::FairnessSettings,
    sums::{RoundSignal, SignalSums},
};
use crate::{
    error::{FairnessError, StrategyError},
    strategy::Knob,
};

/// The sums of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// N by tier.
    pub size: Vec<u64>,
    /// In order.
    pub rounds: Vec<RecordedSums>,
}

/// The sums of a round, by tier.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RecordedSums {
    /// Devices with a signal, by tier.
    pub n: Vec<u64>,
    /// Sums of x, by tier.
    pub s1: Vec<f64>,
    /// Sums of x^2, by tier.
    pub s2: Vec<f64>,
    /// Sums of squared standard errors, by tier.
    pub sv: Vec<f64>,
    /// N where it differs from that of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Vec<u64>>,
}

/// One row of a CSV file.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordedRow {
    /// From 1.
    pub round: u32,
    /// From 0, the widest.
    pub tier: usize,
    /// N: devices enrolled in the tier.
    pub size: u64,
    /// n: devices with a signal in this round.
    pub n: u64,
    /// Sum of x.
    pub s1: f64,
    /// Sum of x^2.
    pub s2: f64,
    /// Sum of squared standard errors.
    pub sv: f64,
}

/// What can be wrong with a recording.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum RecordingError {
    #[error("round {round}: `{key}` has {got} numbers, not one for each of {tiers} tiers")]
    Length { round: usize, key: &'static str, got: usize, tiers: usize },
    #[error("round {round}: tier {tier} stands there twice")]
    Twice { round: u32, tier: usize },
    #[error("round {round}: there is no tier {tier}; tiers are 0 to {}", MAX_TIERS - 1)]
    Tier { round: u32, tier: usize },
    #[error("round {round}: the sums of tier {tier} are not finite, or `sv` is negative")]
    Sums { round: usize, tier: usize },
    #[error(transparent)]
    Strategy(#[from] StrategyError),
}

impl From<FairnessError> for RecordingError {
    fn from(error: FairnessError) -> Self {
        Self::Strategy(error.into())
    }
}

impl Recording {
    /// From the rows of a CSV file, in any order.
    pub fn from_rows(rows: impl IntoIterator<Item = RecordedRow>) -> Result<Self, RecordingError> {
        let mut rounds: BTreeMap<u32, BTreeMap<usize, RecordedRow>> = BTreeMap::new();
        let mut tiers = 0;
        for row in rows {
            let RecordedRow { round, tier, .. } = row;
            if tier >= MAX_TIERS {
                return Err(RecordingError::Tier { round, tier });
            }
            tiers = tiers.max(tier + 1);
            if rounds.entry(round).or_default().insert(tier, row).is_some() {
                return Err(RecordingError::Twice { round, tier });
            }
        }
        let mut size = vec![0; tiers];
        let mut recorded = Vec::with_capacity(rounds.len());
        for (round, rows) in rounds {
            let row = |tier: usize| {
                let absent = RecordedRow { round, tier, size: 0, n: 0, s1: 0.0, s2: 0.0, sv: 0.0 };
                rows.get(&tier).copied().unwrap_or(absent)
            };
            // A tier that is absent has the size it had before.
            rows.values().for_each(|row| size[row.tier] = row.size);
            recorded.push(RecordedSums {
                n: (0..tiers).map(|tier| row(tier).n).collect(),
                s1: (0..tiers).map(|tier| row(tier).s1).collect(),
                s2: (0..tiers).map(|tier| row(tier).s2).collect(),
                sv: (0..tiers).map(|tier| row(tier).sv).collect(),
                size: Some(size.clone()),
            });
        }
        Ok(Self { size, rounds: recorded })
    }

    /// The rounds as the controller takes them.
    pub fn signals(&self) -> Result<Vec<RoundSignal>, RecordingError> {
        self.rounds.iter().enumerate().map(|(at, round)| round.signal(at + 1, &self.size)).collect()
    }
}

impl RecordedSums {
    fn signal(&self, round: usize, size: &[u64]) -> Result<RoundSignal, RecordingError> {
        let tiers = size.len();
        let size = self.size.as_deref().unwrap_or(size);
        let lens = [
            ("n", self.n.len()),
            ("s1", self.s1.len()),
            ("s2", self.s2.len()),
            ("sv", self.sv.len()),
            ("size", size.len()),
        ];
        if let Some(&(key, got)) = lens.iter().find(|(_, got)| *got != tiers) {
            return Err(RecordingError::Length { round, key, got, tiers });
        }
        let of = |tier: usize| {
            let (n, size) = (self.n[tier], size[tier]);
            let (s1, s2, sv) = (self.s1[tier], self.s2[tier], self.sv[tier]);
            let sound = s1.is_finite() && s2.is_finite() && sv.is_finite() && sv >= 0.0;
            if sound {
                Ok(SignalSums { n, size, s1, s2, sv })
            } else {
                Err(RecordingError::Sums { round, tier })
            }
        };
        let sums = (0..tiers).map(of).collect::<Result<_, _>>()?;
        Ok(RoundSignal { tiers: sums, unmeasured: vec![0; tiers] })
    }
}

/// One line per round of a knob. `tier`: of a knob per tier. The target is `settings.target`, inside a tier `settings.inside`.
pub fn replay(
    recording: &Recording,
    settings: &FairnessSettings,
    strategy: &str,
    knob: &Knob,
    tier: Option<Tier>,
) -> Result<Vec<FairnessLine>, RecordingError> {
    settings.check()?;
    let rounds = recording.signals()?;
    let tier = tier.filter(|_| knob.per_tier);
    let key = if tier.is_some() { "inside" } else { "target" };
    let target = match tier {
        Some(tier) => settings.inside.of(tier),
        None => Some(settings.target),
    };
    let target = target.filter(|&target| target > 0.0).ok_or_else(|| FairnessError::Value {
        key,
        must: "above 0",
        value: target.map_or_else(|| "absent".into(), |target| target.to_string()),
    })?;
    let knob = knob.clone().with_most(settings.most)?;
    let mut drive = Drive::new(knob, tier, target, settings, recording.size.len());
    let step = |round: &RoundSignal| {
        let value = drive.value();
        drive.observe(round);
        drive.line(strategy, value, round.unmeasured(tier))
    };
    Ok(rounds.iter().map(step).collect())
}
