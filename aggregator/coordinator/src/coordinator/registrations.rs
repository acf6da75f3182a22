//! When the records of devices are written.
//!
//! Writing one costs a transaction, and a device may change its record at any rate. So the first change is written at once.
//! Of later ones only the last is written, when the next round opens: no round sees an older one.

use std::collections::{BTreeMap, BTreeSet};

use common::DeviceId;

use strategies::device::DeviceRecord;

#[derive(Debug, Default)]
pub(super) struct Registrations {
    /// Written since the last round was opened.
    written: BTreeSet<DeviceId>,
    /// Changed again since.
    waiting: BTreeMap<DeviceId, DeviceRecord>,
}

impl Registrations {
    /// Notes a changed record; returns it if it is to be written now.
    pub(super) fn note(&mut self, record: DeviceRecord) -> Option<DeviceRecord> {
        if self.written.insert(record.device.clone()) {
            return Some(record);
        }
        self.waiting.insert(record.device.clone(), record);
        None
    }

    /// The records to write before a round opens.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = DeviceRecord> {
        let waiting = std::mem::take(&mut self.waiting);
        self.written = waiting.keys().cloned().collect();
        waiting.into_values()
    }
}
