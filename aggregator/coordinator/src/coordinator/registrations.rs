//! When what devices say of themselves is written down.
//!
//! That costs a transaction, and a device may say something else as often as it likes. So the first change is written at
//! once, and of later ones only the last, when the next round opens: no round sees anything older.

use std::collections::{BTreeMap, BTreeSet};

use common::DeviceId;

use strategies::device::DeviceRecord;

#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Written since the last round was opened.
    written: BTreeSet<DeviceId>,
    /// Changed again since.
    waiting: BTreeMap<DeviceId, DeviceRecord>,
}

impl Registry {
    /// A record has changed; gives it back if it is to be written now.
    pub(super) fn note(&mut self, record: DeviceRecord) -> Option<DeviceRecord> {
        if self.written.insert(record.device.clone()) {
            return Some(record);
        }
        self.waiting.insert(record.device.clone(), record);
        None
    }

    /// A round opens: what is to be written before.
    pub(super) fn catch_up(&mut self) -> impl Iterator<Item = DeviceRecord> {
        let waiting = std::mem::take(&mut self.waiting);
        self.written = waiting.keys().cloned().collect();
        waiting.into_values()
    }
}
