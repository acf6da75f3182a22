//! The updates of a round, read back from a store one at a time for combining.

use super::{Entry, Store, StoreError};
use crate::combine::{Row, Updates};

/// Reads and decodes updates as [`crate::combine::combine`] asks for them.
#[derive(Debug)]
pub struct Spooled<'a, S: ?Sized> {
    store: &'a mut S,
    entries: &'a [Entry],
    past: &'a [Entry],
    payload: Vec<u8>,
    /// Both vectors of an update that came with its first step.
    both: Vec<f32>,
}

impl<'a, S: Store + ?Sized> Spooled<'a, S> {
    /// `entries` in DeviceId order, as [`Store::updates`] gives them.
    pub fn new(store: &'a mut S, entries: &'a [Entry]) -> Self {
        Self { store, entries, past: &[], payload: Vec::new(), both: Vec::new() }
    }

    /// Also reads the last updates of absent devices, as [`Store::past`] gives them.
    pub fn with_past(self, past: &'a [Entry]) -> Self {
        Self { past, ..self }
    }
}

impl<S: Store + ?Sized> Updates for Spooled<'_, S> {
    type Value = f32;
    type Error = StoreError;

    fn read<'b>(&'b mut self, row: Row<'_>, buffer: &'b mut Vec<f32>) -> Result<&'b [f32], StoreError> {
        buffer.clear();
        let (entries, device) = match row {
            Row::Update(_, participant) | Row::First(_, participant) => (self.entries, &participant.device),
            Row::Absent(_, absent) => (self.past, &absent.device),
        };
        // A device without an entry reads as an empty update, which combining refuses by length.
        let found = entries.binary_search_by(|entry| entry.header.device.cmp(device));
        let Some(entry) = found.ok().and_then(|index| entries.get(index)) else { return Ok(buffer) };
        self.store.read(entry, &mut self.payload)?;
        let (codec, vectors) = (entry.header.codec, usize::from(entry.header.vectors.max(1)));
        let first = matches!(row, Row::First(..));
        if let Some(count) = codec.count_in(self.payload.len()).filter(|_| !first || vectors > 1) {
            let whole = if vectors > 1 { &mut self.both } else { &mut *buffer };
            whole.resize(count, 0.0);
            if codec.decode(&self.payload, whole).is_err() {
                whole.clear();
            }
            if vectors > 1 {
                let half = self.both.len() / vectors;
                let range = if first { half..2 * half } else { 0..half };
                buffer.extend_from_slice(self.both.get(range).unwrap_or(&[]));
            }
        }
        Ok(buffer)
    }
}
