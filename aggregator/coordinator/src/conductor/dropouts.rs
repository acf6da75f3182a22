//! Devices that were asked in a round and did not deliver.

use std::collections::BTreeSet;

use common::{DeviceId, Instant};

use crate::record::{DeviceInTier, RefusedDevice};
use strategies::guard::Delivered;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Dropouts {
    /// When the first exchange was opened.
    pub(super) opened: Option<Instant>,
    pub(super) refused: Vec<RefusedDevice>,
    pub(super) silent: Vec<DeviceInTier>,
    pub(super) gone: Vec<DeviceInTier>,
    /// In the exchange that trains.
    pub(super) late: Vec<DeviceInTier>,
}

impl Dropouts {
    /// Without dropouts, no more answers can arrive after a crash than are in the store.
    pub(super) fn is_empty(&self) -> bool {
        let Self { refused, silent, gone, late, .. } = self;
        refused.is_empty() && silent.is_empty() && gone.is_empty() && late.is_empty()
    }

    /// Removes devices that have delivered an update, whatever else they were asked for, and duplicates.
    pub(super) fn remove(&mut self, delivered: &[Delivered]) {
        let mut seen: BTreeSet<DeviceId> = delivered.iter().map(|(device, ..)| device.clone()).collect();
        let counted = seen.clone();
        self.refused.retain(|refused| seen.insert(refused.device.clone()));
        self.silent.retain(|silent| seen.insert(silent.device.clone()));
        let silent: BTreeSet<_> = self.silent.iter().map(|silent| &silent.device).collect();
        self.gone.retain(|gone| !counted.contains(&gone.device) && silent.contains(&gone.device));
    }
}
