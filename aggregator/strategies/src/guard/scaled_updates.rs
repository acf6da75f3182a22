//! Updates of which some are shortened, as they are read: memory stays that of one update.

use std::collections::BTreeMap;

use common::DeviceId;

use super::scaled;
use crate::updates::{Packed, Row, Updates};

#[derive(Debug)]
pub struct Scaled<'a, U> {
    updates: U,
    scales: &'a BTreeMap<DeviceId, f64>,
}

impl<'a, U: Updates> Scaled<'a, U> {
    pub fn new(updates: U, scales: &'a BTreeMap<DeviceId, f64>) -> Self {
        Self { updates, scales }
    }

    fn scale(&self, row: Row<'_>) -> Option<f64> {
        let device = match row {
            Row::Update(_, participant) | Row::First(_, participant) => &participant.device,
            Row::Absent(_, absent) => &absent.device,
        };
        self.scales.get(device).copied()
    }
}

impl<U: Updates> Updates for Scaled<'_, U> {
    type Value = U::Value;
    type Error = U::Error;
    const AHEAD: bool = U::AHEAD;

    fn read<'a>(
        &'a mut self,
        row: Row<'_>,
        buffer: &'a mut Vec<U::Value>,
    ) -> Result<&'a [U::Value], U::Error> {
        let Some(scale) = self.scale(row) else { return self.updates.read(row, buffer) };
        let mut raw = Vec::new();
        let update = self.updates.read(row, &mut raw)?;
        buffer.clear();
        buffer.extend(update.iter().map(|&value| scaled(value, scale)));
        Ok(buffer)
    }

    fn load(&mut self, row: Row<'_>, packed: &mut Packed<U::Value>) -> Result<(), U::Error> {
        if self.scale(row).is_none() {
            return self.updates.load(row, packed);
        }
        self.read(row, packed.numbers()).map(drop)
    }

    fn part(&mut self, row: Row<'_>, start: usize, out: &mut [f64]) -> Result<usize, U::Error> {
        let len = self.updates.part(row, start, out)?;
        if let Some(scale) = self.scale(row) {
            let there = len.saturating_sub(start).min(out.len());
            out.iter_mut().take(there).for_each(|value| *value *= scale);
        }
        Ok(len)
    }
}
