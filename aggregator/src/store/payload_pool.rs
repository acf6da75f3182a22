//! Payloads of a store in memory: up to a limit in memory, beyond it in a file.
//!
//! Payloads have few lengths, one per tier and codec. A freed place in the file is used for a payload of the same length, so
//! the file does not grow from round to round.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::PathBuf};

use super::StoreError;

#[derive(Debug, Default)]
pub(super) struct PayloadPool {
    overflow: Option<OverflowFile>,
    /// Bytes in memory.
    held: usize,
}

#[derive(Debug)]
struct OverflowFile {
    file: File,
    /// Bytes that may be in memory.
    limit: usize,
    end: u64,
    /// Free places, by length.
    free: BTreeMap<usize, Vec<u64>>,
}

/// Where a payload is.
#[derive(Debug)]
pub(super) enum PayloadSlot {
    Memory(Vec<u8>),
    File { offset: u64, len: usize },
}

impl PayloadPool {
    pub fn with_overflow(file: File, limit: usize) -> Self {
        Self { overflow: Some(OverflowFile { file, limit, end: 0, free: BTreeMap::new() }), held: 0 }
    }

    pub fn put(&mut self, payload: &[u8]) -> Result<PayloadSlot, StoreError> {
        let len = payload.len();
        let held = self.held.saturating_add(len);
        match &mut self.overflow {
            Some(overflow) if held > overflow.limit => overflow.put(payload),
            _ => {
                self.held = held;
                Ok(PayloadSlot::Memory(payload.to_vec()))
            }
        }
    }

    /// Reads the bytes of a payload from `start` on into `out`; all of them must exist.
    pub fn fill(&self, slot: &PayloadSlot, start: usize, out: &mut [u8]) -> Result<(), StoreError> {
        let end = start.saturating_add(out.len());
        match (slot, &self.overflow) {
            (PayloadSlot::Memory(payload), _) => {
                let part = payload.get(start..end).ok_or_else(too_short)?;
                out.copy_from_slice(part);
            }
            (PayloadSlot::File { len, .. }, Some(_)) if end > *len => return Err(too_short()),
            (PayloadSlot::File { offset, .. }, Some(overflow)) => {
                overflow.file.read_exact_at(out, offset + start as u64).map_err(failed)?;
            }
            (PayloadSlot::File { .. }, None) => return Err(failed(io::ErrorKind::NotFound.into())),
        }
        Ok(())
    }

    pub fn remove(&mut self, slot: PayloadSlot) {
        match (slot, &mut self.overflow) {
            (PayloadSlot::Memory(payload), _) => self.held = self.held.saturating_sub(payload.len()),
            (PayloadSlot::File { offset, len }, Some(overflow)) => {
                overflow.free.entry(len).or_default().push(offset);
            }
            (PayloadSlot::File { .. }, None) => {}
        }
    }
}

impl OverflowFile {
    fn put(&mut self, payload: &[u8]) -> Result<PayloadSlot, StoreError> {
        let len = payload.len();
        let reused = self.free.get_mut(&len).and_then(Vec::pop);
        let offset = reused.unwrap_or(self.end);
        self.file.write_all_at(payload, offset).map_err(failed)?;
        if reused.is_none() {
            self.end += len as u64;
        }
        Ok(PayloadSlot::File { offset, len })
    }
}

fn too_short() -> StoreError {
    failed(io::ErrorKind::UnexpectedEof.into())
}

fn failed(source: io::Error) -> StoreError {
    StoreError::Io { path: PathBuf::from("updates beyond memory"), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_beyond_the_limit_go_to_the_file_and_free_their_place() {
        let mut pool = PayloadPool::with_overflow(tempfile::tempfile().unwrap(), 10);
        let put = |pool: &mut PayloadPool, byte: u8, len: usize| pool.put(&vec![byte; len]).unwrap();
        let first = put(&mut pool, 1, 6);
        let second = put(&mut pool, 2, 6);
        let third = put(&mut pool, 3, 8);
        assert!(
            matches!(first, PayloadSlot::Memory(_))
                && matches!(second, PayloadSlot::File { offset: 0, len: 6 })
        );
        assert!(matches!(third, PayloadSlot::File { offset: 6, len: 8 }));
        let mut out = [9; 3];
        pool.fill(&second, 1, &mut out).unwrap();
        assert_eq!(out, [2; 3]);
        pool.fill(&third, 6, &mut out[..2]).unwrap();
        pool.fill(&first, 5, &mut out[2..]).unwrap();
        assert_eq!(out, [3, 3, 1]);
        assert!(pool.fill(&third, 6, &mut out).is_err() && pool.fill(&first, 4, &mut out).is_err());
        pool.remove(second);
        pool.remove(first);
        assert!(matches!(put(&mut pool, 4, 6), PayloadSlot::Memory(_)), "there is memory again");
        let again = put(&mut pool, 5, 6);
        assert!(matches!(again, PayloadSlot::File { offset: 0, len: 6 }), "{again:?}");
        pool.fill(&third, 0, &mut out).unwrap();
        assert_eq!(out, [3; 3]);
    }
}
