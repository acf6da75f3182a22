//! Who was asked in a round and did not deliver.

use std::collections::BTreeSet;

use common::{Code, DeviceId, Tier};

use strategies::guard::Delivered;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Dropouts {
    /// When the first exchange was opened.
    pub(super) opened: Option<common::Instant>,
    pub(super) refused: Vec<(DeviceId, Tier, Code)>,
    pub(super) silent: Vec<(DeviceId, Tier)>,
    pub(super) gone: Vec<(DeviceId, Tier)>,
    /// Of the exchange of training.
    pub(super) late: Vec<(DeviceId, Tier)>,
}

impl Dropouts {
    /// Nobody was lost, so after a crash no more could arrive than is in the store.
    pub(super) fn is_empty(&self) -> bool {
        let Self { refused, silent, gone, late, .. } = self;
        refused.is_empty() && silent.is_empty() && gone.is_empty() && late.is_empty()
    }

    /// Whoever has delivered an update is not lost for the round, whatever it was asked for besides, and nobody is lost twice.
    pub(super) fn without(&mut self, delivered: &[Delivered]) {
        let mut seen: BTreeSet<DeviceId> = delivered.iter().map(|(device, ..)| device.clone()).collect();
        let counted = seen.clone();
        self.refused.retain(|(device, ..)| seen.insert(device.clone()));
        self.silent.retain(|(device, _)| seen.insert(device.clone()));
        let silent: BTreeSet<_> = self.silent.iter().map(|(device, _)| device.clone()).collect();
        self.gone.retain(|(device, _)| !counted.contains(device) && silent.contains(device));
    }
}
