//! The updates of a round, read back from a store one at a time for combining.

use super::{Entry, Store, StoreError};
use crate::combine::{Row, Updates};

/// Reads and decodes updates as [`crate::combine::combine`] asks for them.
#[derive(Debug)]
pub struct Spooled<'a, S: ?Sized> {
    store: &'a mut S,
    entries: &'a [Entry],
    payload: Vec<u8>,
}

impl<'a, S: Store + ?Sized> Spooled<'a, S> {
    /// `entries` in DeviceId order, as [`Store::updates`] gives them.
    pub fn new(store: &'a mut S, entries: &'a [Entry]) -> Self {
        Self { store, entries, payload: Vec::new() }
    }
}

impl<S: Store + ?Sized> Updates for Spooled<'_, S> {
    type Value = f32;
    type Error = StoreError;

    fn read<'b>(&'b mut self, row: Row<'_>, buffer: &'b mut Vec<f32>) -> Result<&'b [f32], StoreError> {
        buffer.clear();
        let device = match row {
            Row::Update(_, participant) | Row::First(_, participant) => &participant.device,
            Row::Absent(_, absent) => &absent.device,
        };
        // A participant without an entry reads as an empty update, which combining refuses by length.
        let found = self.entries.binary_search_by(|entry| entry.header.device.cmp(device));
        let Some(entry) = found.ok().and_then(|index| self.entries.get(index)) else { return Ok(buffer) };
        self.store.read(entry, &mut self.payload)?;
        let codec = entry.header.codec;
        if let Some(count) = codec.count_in(self.payload.len()) {
            buffer.resize(count, 0.0);
            if codec.decode(&self.payload, buffer).is_err() {
                buffer.clear();
            }
        }
        Ok(buffer)
    }
}
