//! The bytes of a round's updates: one append-only file per round.
//!
//! ```text
//! record  | "FTU2" | header bytes u32 | payload bytes u32 | header, postcard | payload | CRC-32 |
//! ```
//! The header may have a tail ([`super::entry`]). Integers are little-endian; the checksum covers everything before it. The
//! ledger's index states which records count; bytes after its last entry are left over from a crash or an earlier round. With
//! the headers, a spool can be read without the ledger.
//!
//! A file that is no longer needed is kept for the next round, which then writes to blocks that are already allocated.
//! Allocating blocks is half the cost of making an update durable.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use common::{files, wire::Crc32};

use super::{
    Entry, StoreError, UpdateHeader, UpdateRecord,
    entry::{encode_header, header_len},
};

const MAGIC: [u8; 4] = *b"FTU2";
const PREFIX: u64 = 12;
const CHECKSUM: u64 = 4;
const SUFFIX: &str = "spool";
/// The file that is kept for the next round.
const SPARE: &str = "spare.spool";

/// The file of a closed round, until the next round takes it or the store is closed.
#[derive(Debug)]
pub(super) struct SpareFile(PathBuf);

impl SpareFile {
    pub fn set_aside(dir: &Path, round: u32) -> Option<Self> {
        let path = dir.join(SPARE);
        // If this fails, the next round begins with an empty file.
        fs::rename(path_of(dir, round), &path).ok().map(|()| Self(path))
    }

    fn serve_as(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.0, path)
    }

    /// Removes what a killed process has left.
    pub fn sweep(dir: &Path) {
        drop(Self(dir.join(SPARE)));
    }
}

impl Drop for SpareFile {
    fn drop(&mut self) {
        // It does not exist if a round has taken it.
        let _ = fs::remove_file(&self.0);
    }
}

/// The spool of one round.
#[derive(Debug)]
pub(super) struct Spool {
    pub round: u32,
    path: PathBuf,
    file: File,
    end: u64,
    /// The file's name may not be durable yet. It must be once an update counts, but not when devices are told to work.
    new: bool,
}

impl Spool {
    /// Opens or creates the spool of a round, of which `entries` count. A new one uses the file of `spare`.
    pub fn open(
        dir: &Path,
        round: u32,
        entries: &[Entry],
        spare: Option<SpareFile>,
    ) -> Result<Self, StoreError> {
        let (existing, end) = check(dir, round, entries)?;
        let path = path_of(dir, round);
        let wrap = |source| StoreError::Io { path: path.clone(), source };
        if let (Some(spare), None) = (spare, existing) {
            spare.serve_as(&path).map_err(wrap)?;
        }
        let mut options = files::private();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(wrap)?;
        if existing.is_some_and(|len| len > end) {
            file.set_len(end).and_then(|()| file.sync_all()).map_err(wrap)?;
        }
        Ok(Self { round, path, file, end, new: existing.is_none() })
    }

    /// Opens the spool of a round for reading only.
    pub fn look(dir: &Path, round: u32, entries: &[Entry]) -> Result<Self, StoreError> {
        let (_, end) = check(dir, round, entries)?;
        let path = path_of(dir, round);
        let file = File::open(&path).map_err(|source| StoreError::Io { path: path.clone(), source })?;
        Ok(Self { round, path, file, end, new: false })
    }

    /// A file in the format of a spool, for reading only.
    #[cfg(feature = "cluster")]
    pub fn of_file(path: PathBuf, round: u32) -> io::Result<Self> {
        let file = File::open(&path)?;
        let end = file.metadata()?.len();
        Ok(Self { round, path, file, end, new: false })
    }

    /// Writes a record; it is durable after [`Spool::sync`].
    pub fn write(&mut self, update: &UpdateRecord<'_>) -> Result<Entry, StoreError> {
        let RecordHead { head, len, crc } = record_head(update)?;
        let offset = self.end;
        let payload = offset + head.len() as u64;
        let written = self
            .file
            .write_all_at(&head, offset)
            .and_then(|()| self.file.write_all_at(update.payload, payload))
            .and_then(|()| self.file.write_all_at(&crc.to_le_bytes(), payload + u64::from(len)));
        written.map_err(|source| self.undo(source))?;
        self.end = payload + u64::from(len) + CHECKSUM;
        Ok(Entry { header: update.header.clone(), offset, len, crc })
    }

    /// Waits until the disk has everything that was written.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|source| self.undo(source))?;
        if self.new {
            self.path.parent().map_or(Ok(()), sync_dir)?;
            self.new = false;
        }
        Ok(())
    }

    /// Discards what was written after these entries; the next records overwrite it.
    pub fn rewind(&mut self, entries: &[Entry]) {
        if let Some(first) = entries.first() {
            self.end = self.end.min(first.offset);
        }
    }

    /// Reads a payload into a buffer of its length.
    pub fn read(&mut self, entry: &Entry, payload: &mut [u8]) -> Result<(), StoreError> {
        let damaged = |what: &str| StoreError::Damaged {
            path: self.path.clone(),
            what: format!("the update of {} {what}", entry.header.device),
        };
        let expected = head(&entry.header, entry.payload_len()).ok_or(StoreError::TooLong)?;
        let mut found = vec![0; expected.len()];
        let mut sum = [0; CHECKSUM as usize];
        let read = self
            .file
            .seek(SeekFrom::Start(entry.offset))
            .and_then(|_| self.file.read_exact(&mut found))
            .and_then(|()| self.file.read_exact(payload))
            .and_then(|()| self.file.read_exact(&mut sum));
        match read {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(damaged("is cut off")),
            Err(source) => return Err(StoreError::Io { path: self.path.clone(), source }),
            Ok(()) => {}
        }
        let mut crc = Crc32::default();
        crc.update(&found);
        crc.update(payload);
        if crc.finish() != entry.crc || u32::from_le_bytes(sum) != entry.crc {
            return Err(damaged("has a wrong checksum"));
        }
        if found != expected {
            return Err(damaged("has another header than the index"));
        }
        Ok(())
    }

    /// Reads some bytes of a payload, unchecked.
    pub fn read_part(
        &mut self,
        entry: &Entry,
        bytes: Range<usize>,
        payload: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let payload_start = end_of(entry)? - CHECKSUM - u64::from(entry.len);
        payload.resize(bytes.end.min(entry.payload_len()).saturating_sub(bytes.start), 0);
        let read = self.file.read_exact_at(payload, payload_start + bytes.start as u64);
        read.map_err(|source| StoreError::Io { path: self.path.clone(), source })
    }

    /// After a failed write: cuts off the tail, now or on the next start.
    fn undo(&self, source: io::Error) -> StoreError {
        let _ = self.file.set_len(self.end);
        StoreError::Io { path: self.path.clone(), source }
    }
}

/// The length of a round's file, if it exists, and of the records that count, which must be complete. Changes nothing.
pub(super) fn check(dir: &Path, round: u32, entries: &[Entry]) -> Result<(Option<u64>, u64), StoreError> {
    let path = path_of(dir, round);
    let mut end = 0;
    for entry in entries {
        end = end.max(end_of(entry)?);
    }
    match fs::metadata(&path) {
        Ok(file) if file.len() < end => {
            let what = format!("it has {} bytes, but {end} are accounted for", file.len());
            Err(StoreError::Damaged { path, what })
        }
        Ok(file) => Ok((Some(file.len()), end)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::Io { path, source: error }),
        Err(_) if end > 0 => Err(StoreError::Damaged { path, what: "the file is missing".to_owned() }),
        Err(_) => Ok((None, end)),
    }
}

/// Removes the spools of all rounds that are not needed.
pub(super) fn sweep(dir: &Path, needed: impl Fn(u32) -> bool) -> Result<(), StoreError> {
    sweep_files(dir, SUFFIX, needed)
}

/// Removes the files of all rounds but the needed ones.
pub(super) fn sweep_files(dir: &Path, suffix: &str, needed: impl Fn(u32) -> bool) -> Result<(), StoreError> {
    let wrap = |source| StoreError::Io { path: dir.to_owned(), source };
    for file in fs::read_dir(dir).map_err(wrap)? {
        let name = file.map_err(wrap)?.file_name();
        let number = name.to_str().and_then(|name| {
            name.strip_prefix("round-")?.strip_suffix(suffix)?.strip_suffix('.')?.parse().ok()
        });
        let Some(round) = number.filter(|&round| !needed(round)) else { continue };
        let path = file_of(dir, round, suffix);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::Io { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn path_of(dir: &Path, round: u32) -> PathBuf {
    file_of(dir, round, SUFFIX)
}

/// The path of a round's file.
pub(super) fn file_of(dir: &Path, round: u32, suffix: &str) -> PathBuf {
    dir.join(format!("round-{round:06}.{suffix}"))
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|source| StoreError::Io { path: dir.to_owned(), source })
}

/// Where the record of an entry ends.
fn end_of(entry: &Entry) -> Result<u64, StoreError> {
    let header = header_len(&entry.header).ok_or(StoreError::TooLong)?;
    Ok(entry.offset + PREFIX + header as u64 + u64::from(entry.len) + CHECKSUM)
}

/// A record without its payload.
struct RecordHead {
    head: Vec<u8>,
    len: u32,
    /// Of head and payload.
    crc: u32,
}

fn record_head(update: &UpdateRecord<'_>) -> Result<RecordHead, StoreError> {
    let head = head(&update.header, update.payload.len()).ok_or(StoreError::TooLong)?;
    let len = u32::try_from(update.payload.len()).map_err(|_| StoreError::TooLong)?;
    let mut crc = Crc32::default();
    crc.update(&head);
    crc.update(update.payload);
    Ok(RecordHead { head, len, crc: crc.finish() })
}

/// Adds a record to bytes that have the format of a spool, and returns its entry.
#[cfg(feature = "cluster")]
pub(super) fn append_record(bytes: &mut Vec<u8>, update: &UpdateRecord<'_>) -> Result<Entry, StoreError> {
    let RecordHead { head, len, crc } = record_head(update)?;
    let offset = bytes.len() as u64;
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(update.payload);
    bytes.extend_from_slice(&crc.to_le_bytes());
    Ok(Entry { header: update.header.clone(), offset, len, crc })
}

/// Everything of a record before its payload; `None` if a length does not fit.
fn head(header: &UpdateHeader, payload: usize) -> Option<Vec<u8>> {
    let header = encode_header(header)?;
    let lengths = [u32::try_from(header.len()).ok()?, u32::try_from(payload).ok()?];
    let mut head = MAGIC.to_vec();
    lengths.iter().for_each(|len| head.extend_from_slice(&len.to_le_bytes()));
    head.extend_from_slice(&header);
    Some(head)
}
