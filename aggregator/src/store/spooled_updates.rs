//! Reads the updates of a round from a store for combining: whole, or in parts.

use std::sync::Arc;

use common::{Codec, codec::BLOCK};
use zerocopy::IntoBytes;

use super::{Entry, Store, StoreError};
use strategies::{
    kernel,
    updates::{UpdateRef, Updates, VectorBuffer},
};

/// Reads and decodes updates as [`strategies::combine::combine`] asks for them.
#[derive(Debug)]
pub struct SpooledUpdates<'a, S: ?Sized> {
    store: &'a mut S,
    now: CheckedEntries,
    past: CheckedEntries,
    payload: Vec<u8>,
    numbers: Vec<f32>,
}

/// Entries in DeviceId order, and whether their checksum is verified.
#[derive(Debug)]
struct CheckedEntries {
    entries: Arc<[Entry]>,
    checked: Vec<bool>,
}

impl CheckedEntries {
    fn new(entries: Vec<Entry>) -> Self {
        Self { checked: vec![false; entries.len()], entries: entries.into() }
    }
}

/// The place of a row's numbers in the payload of its entry.
struct RowLocation {
    entries: Arc<[Entry]>,
    index: usize,
    past: bool,
    /// The first of them, and how many there are.
    first: usize,
    count: usize,
    /// Numbers in the whole payload.
    all: usize,
}

impl RowLocation {
    fn entry(&self) -> &Entry {
        &self.entries[self.index]
    }
}

impl<'a, S: Store + ?Sized> SpooledUpdates<'a, S> {
    /// `entries` in DeviceId order, as [`Store::updates`] gives them.
    pub fn new(store: &'a mut S, entries: Vec<Entry>) -> Self {
        let (now, past) = (CheckedEntries::new(entries), CheckedEntries::new(vec![]));
        Self { store, now, past, payload: Vec::new(), numbers: Vec::new() }
    }

    /// Also reads the last updates of absent devices, as [`Store::past`] gives them.
    pub fn with_past(self, past: Vec<Entry>) -> Self {
        Self { past: CheckedEntries::new(past), ..self }
    }

    /// Leaves out checksums, for reading parts before the same updates are read as a whole.
    pub fn unchecked(mut self) -> Self {
        self.now.checked.fill(true);
        self
    }

    /// `None` if the row does not exist: it then reads as empty, which combining refuses by length.
    fn find(&self, row: UpdateRef<'_>) -> Option<RowLocation> {
        let (source, device, number, past) = match row {
            UpdateRef::Update(_, participant) => (&self.now, &participant.device, 0, false),
            UpdateRef::FirstStep(_, participant) => (&self.now, &participant.device, 1, false),
            UpdateRef::Absent(_, absent) => (&self.past, &absent.device, 0, true),
        };
        let entries = source.entries.clone();
        let index = entries.binary_search_by(|entry| entry.header.device.cmp(device)).ok()?;
        let entry = entries.get(index)?;
        let vectors = usize::from(entry.header.vectors.max(1));
        let all = entry.header.codec.count_in(entry.payload_len())?;
        let count = all / vectors;
        let first = number * count;
        (number < vectors).then_some(RowLocation { entries, index, past, first, count, all })
    }

    /// Decodes a part of an entry's payload into `numbers`; false if it does not decode.
    fn decode(&mut self, entry: &Entry, count: usize) -> bool {
        self.numbers.resize(count, 0.0);
        kernel::int8::decode(entry.header.codec, &self.payload, &mut self.numbers).is_ok()
    }
}

/// Whether an entry holds nothing but one vector of `count` numbers.
fn is_whole(entry: &Entry, count: usize) -> bool {
    entry.header.codec.count_in(entry.payload_len()) == Some(count)
}

impl<S: Store + ?Sized> Updates for SpooledUpdates<'_, S> {
    type Value = f32;
    type Error = StoreError;
    const READ_AHEAD: bool = true;

    fn read<'b>(&'b mut self, row: UpdateRef<'_>, buffer: &'b mut Vec<f32>) -> Result<&'b [f32], StoreError> {
        buffer.clear();
        let Some(location) = self.find(row) else { return Ok(buffer) };
        let (entry, first, count) = (location.entry(), location.first, location.count);
        if entry.header.codec == Codec::F32 && is_whole(entry, count) && cfg!(target_endian = "little") {
            // The usual case: the bytes are the numbers.
            buffer.resize(count, 0.0);
            self.store.read_into(entry, buffer.as_mut_bytes())?;
            return Ok(buffer);
        }
        self.store.read(entry, &mut self.payload)?;
        if self.decode(entry, location.all) {
            buffer.extend_from_slice(&self.numbers[first..first + count]);
        }
        Ok(buffer)
    }

    fn load(&mut self, row: UpdateRef<'_>, packed: &mut VectorBuffer<f32>) -> Result<(), StoreError> {
        match self.find(row) {
            Some(location)
                if location.entry().header.codec == Codec::Int8
                    && is_whole(location.entry(), location.count) =>
            {
                self.store.read(location.entry(), packed.int8())
            }
            _ => self.read(row, packed.numbers()).map(drop),
        }
    }

    /// Reads only the blocks of the codec that contain the part, after the whole was checked once.
    fn read_part(&mut self, row: UpdateRef<'_>, start: usize, out: &mut [f64]) -> Result<usize, StoreError> {
        let Some(location) = self.find(row) else { return Ok(0) };
        let (entry, first, count) = (location.entry(), location.first, location.count);
        let codec = entry.header.codec;
        let source = if location.past { &mut self.past } else { &mut self.now };
        if !std::mem::replace(&mut source.checked[location.index], true) {
            self.store.read(entry, &mut self.payload)?;
        }
        let (from, to) = (first + start, first + count.min(start + out.len()));
        let (from_block, to_block) = (from / BLOCK * BLOCK, to.next_multiple_of(BLOCK).min(location.all));
        let bytes = codec.encoded_len(from_block).zip(codec.encoded_len(to_block));
        let Some((head, tail)) = bytes.filter(|_| from < to) else { return Ok(count) };
        self.store.read_part(entry, head as usize..tail as usize, &mut self.payload)?;
        if !self.decode(entry, to_block - from_block) {
            return Ok(0);
        }
        let part = self.numbers.iter().skip(from - from_block);
        out.iter_mut().take(to - from).zip(part).for_each(|(out, &value)| *out = f64::from(value));
        Ok(count)
    }
}
