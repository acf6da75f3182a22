//! A file whose changes stay in memory (copy on write).
//!
//! A database can be opened on it, repaired and read, even if the disk is full or read-only. The file on disk does not change.
//! Only blocks that are written take memory.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use redb::StorageBackend;

const BLOCK: u64 = 4096;

#[derive(Debug)]
pub(super) struct CowFile {
    file: File,
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    len: u64,
    /// Bytes of the file that are still valid; zeroes follow.
    below: u64,
    /// Blocks that were written, by number.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl CowFile {
    pub fn over(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, changes: Mutex::new(Changes { len, below: len, blocks: BTreeMap::new() }) })
    }

    pub fn is_empty(&self) -> bool {
        self.changes().len == 0
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the bytes of the file without the changes.
    fn read_below(&self, below: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = below.saturating_sub(offset).min(out.len() as u64) as usize;
        let (from_file, zeroes) = out.split_at_mut(there);
        zeroes.fill(0);
        self.file.read_exact_at(from_file, offset)
    }
}

impl Drop for CowFile {
    fn drop(&mut self) {
        // A child process that is being started may still have a copy of the handle, and with it the lock.
        let _ = self.file.unlock();
    }
}

impl StorageBackend for CowFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changes = self.changes();
        expect_inside(changes.len, offset, out.len())?;
        for (block, start, part) in parts(offset, out) {
            match changes.blocks.get(&block) {
                Some(bytes) => part.copy_from_slice(&bytes[start..start + part.len()]),
                None => self.read_below(changes.below, block * BLOCK + start as u64, part)?,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = self.changes();
        if len < changes.len {
            changes.below = changes.below.min(len);
            changes.blocks.retain(|&block, _| block * BLOCK < len);
            if let Some(last) = changes.blocks.get_mut(&(len / BLOCK)) {
                last[(len % BLOCK) as usize..].fill(0);
            }
        }
        changes.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes();
        expect_inside(changes.len, offset, data.len())?;
        let below = changes.below;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (block, start) = (at / BLOCK, (at % BLOCK) as usize);
            let count = (BLOCK as usize - start).min(data.len() - done);
            let bytes = match changes.blocks.entry(block) {
                Entry::Occupied(written) => written.into_mut(),
                Entry::Vacant(new) => {
                    let mut bytes = vec![0; BLOCK as usize].into_boxed_slice();
                    self.read_below(below, block * BLOCK, &mut bytes)?;
                    new.insert(bytes)
                }
            };
            bytes[start..start + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
        Ok(())
    }
}

fn expect_inside(len: u64, offset: u64, count: usize) -> io::Result<()> {
    match offset.checked_add(count as u64) {
        Some(end) if end <= len => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Splits a range of bytes into blocks: the number of the block, the start of the part in it, and the part.
fn parts(offset: u64, mut out: &mut [u8]) -> impl Iterator<Item = (u64, usize, &mut [u8])> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let (block, start) = (at / BLOCK, (at % BLOCK) as usize);
        let count = (BLOCK as usize - start).min(out.len());
        let (part, rest) = std::mem::take(&mut out).split_at_mut(count);
        (out, at) = (rest, at + count as u64);
        (count > 0).then_some((block, start, part))
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use common::rng::Rng;

    use super::*;

    /// After any operations it reads like bytes in memory, and the file is unchanged.
    #[test]
    fn changes_are_read_back_and_the_file_is_unchanged() {
        let original: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&original).unwrap();
        let cow = CowFile::over(File::open(file.path()).unwrap()).unwrap();
        let mut model = original.clone();
        let mut rng = Rng::new(3);
        for step in 0..3000u32 {
            match rng.below(10) {
                0 => {
                    let len = rng.below(80_000) as usize;
                    model.resize(len, 0);
                    cow.set_len(len as u64).unwrap();
                }
                1..6 => {
                    let offset = rng.below(model.len() as u64 + 1) as usize;
                    let count = (rng.below(10_000) as usize).min(model.len() - offset);
                    model[offset..offset + count].fill(step as u8);
                    cow.write(offset as u64, &vec![step as u8; count]).unwrap();
                }
                _ => {
                    let offset = rng.below(model.len() as u64 + 1) as usize;
                    let count = (rng.below(20_000) as usize).min(model.len() - offset);
                    let mut found = vec![9; count];
                    cow.read(offset as u64, &mut found).unwrap();
                    assert!(found == model[offset..offset + count], "step {step}");
                }
            }
            assert_eq!(cow.len().unwrap(), model.len() as u64);
        }
        assert!(cow.read(model.len() as u64, &mut [0]).is_err());
        assert!(cow.write(u64::MAX, &[0]).is_err());
        assert!(fs::read(file.path()).unwrap() == original);
    }

    #[test]
    fn the_lock_is_released_even_if_a_copy_of_the_handle_exists() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let locked = File::open(file.path()).unwrap();
        let _copy = locked.try_clone().unwrap();
        locked.try_lock_shared().unwrap();
        let cow = CowFile::over(locked).unwrap();
        let other = File::open(file.path()).unwrap();
        other.try_lock().unwrap_err();
        drop(cow);
        other.try_lock().unwrap();
    }
}
