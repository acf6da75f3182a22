//! FairFed: a device counts more, the closer its own gap between two groups is to the gap of all devices.
//!
//! ```text
//! F_k  = rate(0) - rate(1) on device k,  Fg = the same over all samples
//!        gap = spd: P(yhat=1 | a);  eod: P(yhat=1 | y=1, a)
//! D_k  = |Fg - F_k|;  where a group is missing: |accuracy_k - accuracy|
//! version 1:  wbar_k = exp(-beta D_k) n_k/n
//! version 2:  wbar_k <- max(wbar_k - beta (D_k - mean D), 0),  start n_k/n
//! theta^(j) += sum_{C(j)} wbar_k D_k^(j) / sum_{C(j)} wbar_k
//! ```
//! The rates follow from wrong predictions of the received model, which devices sum up by label and attribute. As published, Fg
//! comes from secure sums and is sent to the devices, which then report D_k: two exchanges. Here the sums of single devices
//! arrive unchanged, so one exchange is enough. A device that reports no groups is assumed to be at the mean distance.

use std::collections::BTreeMap;

use common::{
    DeviceId,
    brief::{Brief, GroupReport, Signal},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cohort::{Cohort, Participant},
    error::StrategyError,
    kernel::sum,
    methods::{
        fedfb::Cells,
        softmax::{exp_shares, of_members},
    },
    parameter::not_negative,
    registry::Build,
    strategy::{Exchange, Needs, Strategy, Weights, decode_state},
};

/// The largest weight of version 2, so that sums stay finite.
const LARGEST: f64 = 1e100;

/// Parameters of `fairfed`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FairFedParams {
    /// How strongly the gap changes a weight.
    pub beta: f64,
    /// Which rates are compared.
    pub gap: GroupGap,
    /// 1: weights from this round alone; 2: weights that move from round to round.
    pub version: u8,
}

/// Which rates are compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupGap {
    /// Statistical parity difference: of positive predictions.
    #[default]
    Spd,
    /// Equal opportunity difference: of positive predictions among samples with label 1.
    Eod,
}

impl Default for FairFedParams {
    fn default() -> Self {
        Self { beta: 1.0, gap: GroupGap::default(), version: 1 }
    }
}

/// Weights by how far a device's group gap is from the fleet's.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FairFed {
    params: FairFedParams,
    state: FairFedState,
}

/// What is kept from round to round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FairFedState {
    wbar: BTreeMap<DeviceId, f64>,
}

impl Build for FairFed {
    const NAME: &'static str = "fairfed";
    const ABOUT: &'static str = "weights by how far a device's group gap is from the fleet's";

    type Params = FairFedParams;

    fn build(params: FairFedParams) -> Result<Self, String> {
        not_negative("beta", params.beta)?;
        match params.version {
            1 | 2 => Ok(Self { params, state: FairFedState::default() }),
            version => Err(format!("`version` must be 1 or 2, not {version}")),
        }
    }
}

impl Strategy for FairFed {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn needs(&self) -> Needs {
        Needs { groups: true, binary: true, ..Needs::default() }
    }

    fn brief(&self, _: &DeviceId, _: &[Exchange], brief: &mut Brief) {
        brief.groups = Some(GroupReport { signal: Signal::ZeroOne, cap: 1.0 });
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        if self.params.version == 2 {
            return Weights::per_device(self.wbar(cohort));
        }
        // A large beta may reduce a device's weight to 0; only differences inside a region are exponentiated.
        let logs = self.log_weights(cohort);
        Weights::by_region(cohort, |members| exp_shares(&of_members(&logs, members)))
    }

    fn learn(&mut self, cohort: &Cohort, _: &[Exchange]) {
        let devices = cohort.participants().iter().map(|participant| participant.device.clone());
        let wbar = self.wbar(cohort);
        self.state.wbar.extend(devices.zip(wbar));
    }

    fn save(&self) -> Value {
        if self.state.wbar.is_empty() { Value::Null } else { json!(self.state) }
    }

    fn restore(&mut self, saved: Value) -> Result<(), StrategyError> {
        let state: FairFedState = decode_state(self.name(), saved)?;
        let sound = |weight: &&f64| weight.is_finite() && **weight >= 0.0;
        if !state.wbar.values().all(|weight| sound(&weight)) {
            let why = "`wbar` must hold numbers from 0 on".into();
            return Err(StrategyError::State { strategy: self.name(), why });
        }
        self.state = state;
        Ok(())
    }
}

impl FairFed {
    fn wbar(&self, cohort: &Cohort) -> Vec<f64> {
        let shares = cohort.data_shares();
        if self.params.version == 1 {
            return self.log_weights(cohort).into_iter().map(f64::exp).collect();
        }
        let distances = self.distances(cohort);
        let mean = sum(distances.iter().copied()) / distances.len().max(1) as f64;
        let devices = cohort.participants().iter().zip(shares).zip(&distances);
        let moved = |((participant, share), distance): ((&Participant, f64), &f64)| {
            let last = self.state.wbar.get(&participant.device).copied().unwrap_or(share);
            (last - self.params.beta * (distance - mean)).clamp(0.0, LARGEST)
        };
        devices.map(moved).collect()
    }

    /// `ln wbar` of version 1.
    fn log_weights(&self, cohort: &Cohort) -> Vec<f64> {
        let weights = cohort.data_shares().into_iter().zip(self.distances(cohort));
        weights
            .map(|(share, distance)| share.ln() - (self.params.beta * distance).min(f64::MAX / 2.0))
            .collect()
    }

    /// D of each participant.
    fn distances(&self, cohort: &Cohort) -> Vec<f64> {
        let reports: Vec<Option<Errors>> = cohort.participants().iter().map(Errors::of).collect();
        let mut all = Errors { wrong: Cells::filled(2, 0.0), counts: Cells::filled(2, 0.0) };
        for report in reports.iter().flatten() {
            all.wrong.add(&report.wrong);
            all.counts.add(&report.counts);
        }
        let distance = |own: &Errors| match (own.gap(self.params.gap), all.gap(self.params.gap)) {
            (Some(own), Some(all)) => (all - own).abs(),
            _ => (own.accuracy() - all.accuracy()).abs(),
        };
        let known: Vec<Option<f64>> = reports.iter().map(|report| report.as_ref().map(distance)).collect();
        let count = known.iter().flatten().count().max(1) as f64;
        let mean = sum(known.iter().flatten().copied()) / count;
        known.into_iter().map(|distance| distance.unwrap_or(mean)).collect()
    }
}

/// Wrong predictions by label and attribute, and the samples behind them.
struct Errors {
    wrong: Cells,
    counts: Cells,
}

impl Errors {
    /// `None` unless the device reports two attributes and has samples.
    fn of(participant: &Participant) -> Option<Self> {
        let counts = Cells::counts(participant.group_counts())?;
        let wrong = Cells::new(participant.group_losses().to_vec())?;
        let sound = counts.attributes() == 2 && wrong.attributes() == 2 && counts.total() > 0.0;
        sound.then(|| Self { wrong: wrong.zip(&counts, |wrong, n| wrong.clamp(0.0, n)), counts })
    }

    fn gap(&self, gap: GroupGap) -> Option<f64> {
        let rate = |a: usize| {
            let hits = self.counts.at(1, a) - self.wrong.at(1, a);
            let (positive, of) = match gap {
                GroupGap::Spd => (self.wrong.at(0, a) + hits, self.counts.group(a)),
                GroupGap::Eod => (hits, self.counts.at(1, a)),
            };
            (of > 0.0).then(|| positive / of)
        };
        Some(rate(0)? - rate(1)?)
    }

    fn accuracy(&self) -> f64 {
        1.0 - self.wrong.total() / self.counts.total()
    }
}

#[cfg(test)]
mod tests;
