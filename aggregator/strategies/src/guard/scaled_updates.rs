//! Shortens updates as they are read: memory stays that of one update.

use std::collections::BTreeMap;

use common::DeviceId;

use super::scaled;
use crate::updates::{UpdateRef, Updates, VectorBuffer};

/// Updates, of which some are shortened.
#[derive(Debug)]
pub struct ScaledUpdates<'a, U> {
    updates: U,
    scales: &'a BTreeMap<DeviceId, f64>,
}

impl<'a, U: Updates> ScaledUpdates<'a, U> {
    /// Multiplies the updates of the devices in `scales`.
    pub fn new(updates: U, scales: &'a BTreeMap<DeviceId, f64>) -> Self {
        Self { updates, scales }
    }

    fn scale(&self, which: UpdateRef<'_>) -> Option<f64> {
        self.scales.get(which.device()).copied()
    }
}

impl<U: Updates> Updates for ScaledUpdates<'_, U> {
    type Value = U::Value;
    type Error = U::Error;
    const READ_AHEAD: bool = U::READ_AHEAD;

    fn read<'a>(
        &'a mut self,
        which: UpdateRef<'_>,
        buffer: &'a mut Vec<U::Value>,
    ) -> Result<&'a [U::Value], U::Error> {
        let Some(scale) = self.scale(which) else { return self.updates.read(which, buffer) };
        let mut raw = Vec::new();
        let update = self.updates.read(which, &mut raw)?;
        buffer.clear();
        buffer.extend(update.iter().map(|&value| scaled(value, scale)));
        Ok(buffer)
    }

    fn load(&mut self, which: UpdateRef<'_>, packed: &mut VectorBuffer<U::Value>) -> Result<(), U::Error> {
        if self.scale(which).is_none() {
            return self.updates.load(which, packed);
        }
        self.read(which, packed.numbers()).map(drop)
    }

    fn read_part(&mut self, which: UpdateRef<'_>, start: usize, out: &mut [f64]) -> Result<usize, U::Error> {
        let len = self.updates.read_part(which, start, out)?;
        if let Some(scale) = self.scale(which) {
            let there = len.saturating_sub(start).min(out.len());
            out.iter_mut().take(there).for_each(|value| *value *= scale);
        }
        Ok(len)
    }
}
