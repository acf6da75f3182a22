//! The updates of a round, read back from a store one at a time for combining.

use common::codec::BLOCK;

use super::{Entry, Store, StoreError};
use crate::combine::{Row, Updates};

/// Reads and decodes updates as [`crate::combine::combine`] asks for them.
#[derive(Debug)]
pub struct Spooled<'a, S: ?Sized> {
    store: &'a mut S,
    entries: &'a [Entry],
    /// By entry: its checksum has been seen to be right.
    checked: Vec<bool>,
    payload: Vec<u8>,
    numbers: Vec<f32>,
}

impl<'a, S: Store + ?Sized> Spooled<'a, S> {
    /// `entries` in DeviceId order, as [`Store::updates`] gives them.
    pub fn new(store: &'a mut S, entries: &'a [Entry]) -> Self {
        let checked = vec![false; entries.len()];
        Self { store, entries, checked, payload: Vec::new(), numbers: Vec::new() }
    }

    fn find(&self, row: Row<'_>) -> Option<(usize, &'a Entry)> {
        let device = match row {
            Row::Update(_, participant) | Row::First(_, participant) => &participant.device,
            Row::Absent(_, absent) => &absent.device,
        };
        let index = self.entries.binary_search_by(|entry| entry.header.device.cmp(device)).ok()?;
        Some((index, self.entries.get(index)?))
    }
}

impl<S: Store + ?Sized> Updates for Spooled<'_, S> {
    type Value = f32;
    type Error = StoreError;

    fn read<'b>(&'b mut self, row: Row<'_>, buffer: &'b mut Vec<f32>) -> Result<&'b [f32], StoreError> {
        buffer.clear();
        // A participant without an entry reads as an empty update, which combining refuses by length.
        let Some((_, entry)) = self.find(row) else { return Ok(buffer) };
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

    /// Reads no more than the blocks of the codec that the part lies in, after one look at the whole.
    fn part(&mut self, row: Row<'_>, start: usize, out: &mut [f64]) -> Result<usize, StoreError> {
        let Some((index, entry)) = self.find(row) else { return Ok(0) };
        let codec = entry.header.codec;
        let Some(count) = codec.count_in(entry.payload_len()) else { return Ok(0) };
        if !self.checked[index] {
            self.store.read(entry, &mut self.payload)?;
            self.checked[index] = true;
        }
        let end = count.min(start + out.len());
        let (first, last) = (start / BLOCK * BLOCK, end.next_multiple_of(BLOCK).min(count));
        let bytes = codec.encoded_len(first).zip(codec.encoded_len(last));
        let Some((from, to)) = bytes.filter(|_| start < end) else { return Ok(count) };
        self.store.read_part(entry, from as usize..to as usize, &mut self.payload)?;
        self.numbers.resize(last - first, 0.0);
        if codec.decode(&self.payload, &mut self.numbers).is_err() {
            return Ok(0);
        }
        let part = self.numbers.iter().skip(start - first);
        out.iter_mut().zip(part).for_each(|(out, &value)| *out = f64::from(value));
        Ok(count)
    }
}
