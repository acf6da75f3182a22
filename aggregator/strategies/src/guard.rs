//! Bounds what one device can do to the model: **a loss counts up to six medians; an update up to three medians; a device up to
//! five average devices, a fifth of the devices up to three each; never below a third of its plain share.**
//!
//! | rule | where | source |
//! |---|---|---|
//! | 1 loss | `loss`, before the strategy sees anything | winsorising at a multiple of the median |
//! | 2 share | `share`, after the strategy, region by region | projection onto a box of shares |
//! | 3 length | `length`, before the strategy sees norms | norm clipping at a multiple of the median |
//!
//! A fair strategy gives weight to a device with a high loss, so a device gains weight by a false report. A device with rare
//! data and a liar can send the same numbers, so no rule over numbers tells them apart. The guard treats all devices alike,
//! refuses none, and keeps no list of suspects. It removes the part of a bonus with which one device could dominate.
//!
//! Two rules are opt-in, because they cost minorities: [`agreement`] (`bonus = "agreeing"`) and [`probe`]. Strategies that look
//! for a direction instead of averaging have rules 1 and 3 only. A strategy that weighs on the device ([`Strategy::bound`])
//! keeps its factor between `floor` and `fifth`.
//!
//! [`Strategy::bound`]: crate::strategy::Strategy::bound

use std::collections::{BTreeMap, BTreeSet};

use common::DeviceId;
use findings::Findings;
use length::LongestMedian;
use serde::{Deserialize, Serialize};

use crate::{
    cohort::{Bounds, Cohort},
    device::DeviceRecord,
    kernel::Scalar,
    strategy::Kind,
};

pub mod agreement;
mod config;
mod findings;
mod length;
mod loss;
pub mod probe;
mod reported;
mod scaled_updates;
pub(crate) mod share;
#[cfg(test)]
mod tests;

pub use config::{Bonus, GuardConfig, Mode};
pub use findings::GuardFinding;
pub use reported::{Delivered, report_counted_groups};
pub use scaled_updates::ScaledUpdates;
pub use share::{CappedShare, fit_shares};

/// The rules and their state.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Guard {
    config: GuardConfig,
    state: GuardState,
}

/// The state that is committed with the model.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct GuardState {
    longest: LongestMedian,
    /// With a probe: the smoothed cosine of each device with it.
    probe: BTreeMap<DeviceId, f64>,
}

/// The result of an inspection.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Inspection {
    /// What was limited.
    pub findings: Vec<GuardFinding>,
    /// Factors of updates that are too long.
    pub scales: BTreeMap<DeviceId, f64>,
    /// Devices that the probe leaves out.
    pub left_out: Vec<(DeviceId, common::Tier)>,
    longest: LongestMedian,
}

/// Prefix of a saved state. The guard of store format 4 fails to decode it as a map and starts without state.
const TAG: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0x0f, b'G', b'2'];

impl Guard {
    /// A guard without a history.
    pub fn new(config: GuardConfig) -> Self {
        Self { config, state: GuardState::default() }
    }

    /// The `[guard]` that it was made from.
    pub fn config(&self) -> &GuardConfig {
        &self.config
    }

    /// True if it bounds anything.
    pub fn is_on(&self) -> bool {
        self.config.mode == Mode::Bound
    }

    /// Applies rules 1 and 3 and sets the bounds of rule 2, which [`combine`](crate::combine::combine()) applies. The same
    /// cohort gives the same inspection until [`Guard::learn`].
    pub fn inspect(&self, cohort: &mut Cohort, kind: Kind) -> Inspection {
        if !self.is_on() {
            return Inspection::default();
        }
        let bounds = self.bounds();
        let mut findings = Findings { config: &self.config, found: vec![] };
        let left_out = self.leave_out(cohort, &mut findings);
        loss::limit(&self.config, &bounds, cohort, &mut findings);
        let (scales, longest) = self.state.longest.shorten(&self.config, cohort, kind, &mut findings);
        cohort.bounds = Some(bounds);
        Inspection { findings: findings.found, scales, left_out, longest }
    }

    /// The round is committed: remembers the median lengths of its exchanges.
    pub fn learn<'v>(&mut self, inspections: impl IntoIterator<Item = &'v Inspection>) {
        for inspection in inspections {
            self.state.longest = self.state.longest.or(inspection.longest);
        }
    }

    /// The state for a restart; empty if there is none.
    pub fn save(&self) -> Vec<u8> {
        if self.state.longest.is_unset() && self.state.probe.is_empty() {
            return Vec::new();
        }
        [TAG, &postcard::to_allocvec(&self.state).expect("numbers and names always encode")].concat()
    }

    /// Restores the result of [`Guard::save`]. The state of an older guard is dropped: the next round sets `R`.
    pub fn restore(&mut self, bytes: &[u8]) {
        let state = bytes.strip_prefix(TAG).and_then(|bytes| postcard::from_bytes(bytes).ok());
        self.state = state.unwrap_or_default();
    }

    /// The fleet with bounded sample counts, for strategies that start from the counts of all devices.
    pub fn enrolled(&self, fleet: &BTreeMap<DeviceId, DeviceRecord>) -> Vec<DeviceRecord> {
        let mut records: Vec<_> = fleet.values().cloned().collect();
        if !self.is_on() {
            return records;
        }
        let devices: Vec<&DeviceId> = fleet.keys().collect();
        let said: Vec<f64> = records.iter().map(|record| record.data.train_samples.into()).collect();
        let counted = self.bounds().counts(&devices, &said);
        for (DeviceRecord { data, .. }, counted) in records.iter_mut().zip(counted) {
            data.train_samples = counted as u32;
            let in_groups = data.groups.iter().map(|&n| f64::from(n)).sum::<f64>();
            if in_groups > counted {
                data.groups.iter_mut().for_each(|n| *n = (f64::from(*n) * counted / in_groups) as u32);
            }
        }
        records
    }

    fn bounds(&self) -> Bounds {
        let GuardConfig { share, fifth, counts, floor, trusted_counts, .. } = &self.config;
        let (trusted, no_bonus) = (trusted_counts.clone(), BTreeSet::new());
        Bounds { share: *share, fifth: *fifth, counts: *counts, floor: *floor, trusted, no_bonus }
    }
}

/// A number of a shortened update.
pub(super) fn scaled<T: Scalar>(value: T, scale: f64) -> T {
    T::narrow(value.wide() * scale)
}
