//! An append-only file of revoked and replaced devices, with the time.
//!
//! ```text
//! revoked.jsonl   {"device":"cam-2","until":1794838511,"crc":2868021193}
//! ```
//! Certificates, keys and tokens of this name stay invalid if they were issued up to this second (since 1970). The file is
//! outside `identity/`: restoring a backup of that directory brings back certificates, but no ended membership. The checksum is
//! CRC-32 over name and second, with a space between them.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use common::{
    DeviceId,
    files::{self, sync_parent},
    wire::crc32,
};
use serde::{Deserialize, Serialize};

use super::CaError;

/// Credentials of earlier versions do not state when they were issued. They count as the oldest of all.
pub(super) const UNSTATED_ISSUE: u64 = 0;

const FILE: &str = "revoked.jsonl";

#[derive(Clone, Debug)]
pub(super) struct Journal {
    path: PathBuf,
    cached: Arc<Mutex<CachedRevocations>>,
}

/// What was read last.
#[derive(Debug, Default)]
struct CachedRevocations {
    stamp: Option<FileStamp>,
    until: BTreeMap<DeviceId, u64>,
}

/// Changes whenever the file does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct FileStamp {
    inode: u64,
    len: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl FileStamp {
    fn of(file: &fs::Metadata) -> Self {
        Self { inode: file.ino(), len: file.len(), changed_s: file.mtime(), changed_ns: file.mtime_nsec() }
    }
}

#[derive(Serialize, Deserialize)]
struct Revocation {
    device: DeviceId,
    until: u64,
    crc: u32,
}

impl Revocation {
    fn new(device: &DeviceId, until: u64) -> Self {
        Self { device: device.clone(), until, crc: crc32(format!("{device} {until}").as_bytes()) }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let line: Self = serde_json::from_slice(line).ok()?;
        (Self::new(&line.device, line.until).crc == line.crc).then_some(line)
    }
}

impl Journal {
    pub fn of(dir: &Path) -> Self {
        Self { path: dir.join(FILE), cached: Arc::default() }
    }

    /// Fails if it cannot be read.
    pub fn check(&self) -> Result<(), CaError> {
        self.look(|_| ())
    }

    /// Whether a credential of this device that was issued then is revoked.
    pub fn revokes(&self, device: &DeviceId, issued: u64) -> Result<bool, CaError> {
        Ok(self.until(device)?.is_some_and(|until| issued <= until))
    }

    /// Credentials issued up to this second are invalid; `None` if the name was never revoked or replaced.
    pub fn until(&self, device: &DeviceId) -> Result<Option<u64>, CaError> {
        self.look(|until| until.get(device).copied())
    }

    /// All names that were ever revoked or replaced.
    pub fn names(&self) -> Result<Vec<DeviceId>, CaError> {
        self.look(|until| until.keys().cloned().collect())
    }

    /// Entries stay cached: while this process runs, a file that gets shorter undoes no revocation.
    fn look<T>(&self, at: impl FnOnce(&BTreeMap<DeviceId, u64>) -> T) -> Result<T, CaError> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |source| CaError::Io { path: self.path.clone(), source };
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(file) => {
                let stamp = Some(FileStamp::of(&file));
                if stamp != cached.stamp {
                    for line in self.read(&fs::read(&self.path).map_err(failed)?)? {
                        let until = cached.until.entry(line.device).or_default();
                        *until = line.until.max(*until);
                    }
                    cached.stamp = stamp;
                }
            }
        }
        Ok(at(&cached.until))
    }

    fn read(&self, bytes: &[u8]) -> Result<Vec<Revocation>, CaError> {
        let whole = &bytes[..whole_lines(bytes)];
        let lines = whole.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
        let damaged = |at: usize| CaError::Journal { path: self.path.clone(), line: at + 1 };
        lines.map(|(at, line)| Revocation::parse(line).ok_or_else(|| damaged(at))).collect()
    }

    /// Durable when it returns. The caller holds the authority's lock.
    pub fn append(&self, device: &DeviceId, until: u64) -> Result<(), CaError> {
        // Nothing is appended after a line that cannot be read.
        self.check()?;
        let append = || {
            let line = serde_json::to_string(&Revocation::new(device, until))? + "\n";
            let mut file = files::private().read(true).create(true).append(true).open(&self.path)?;
            let (len, mut last) = (file.metadata()?.len(), [b'\n']);
            if len > 0 {
                file.read_exact_at(&mut last, len - 1)?;
            }
            // Bytes after the last line end are left over from a crash.
            if last != *b"\n" {
                file.set_len(whole_lines(&fs::read(&self.path)?) as u64)?;
            }
            file.write_all(line.as_bytes())?;
            file.sync_all()?;
            sync_parent(&self.path)?;
            file.metadata()
        };
        let file = append().map_err(|source| CaError::Io { path: self.path.clone(), source })?;
        // The lock is held, so no other process has appended anything since the file was read.
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let last = cached.until.entry(device.clone()).or_default();
        *last = until.max(*last);
        cached.stamp = Some(FileStamp::of(&file));
        Ok(())
    }
}

fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn journal() -> (tempfile::TempDir, Journal, DeviceId) {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::of(dir.path());
        (dir, journal, "cam-1".parse().unwrap())
    }

    #[test]
    fn revocations_add_up_and_are_private_to_the_owner() {
        let (dir, journal, device) = journal();
        assert_eq!(journal.until(&device).unwrap(), None);
        assert!(!journal.revokes(&device, 0).unwrap());
        journal.append(&device, 100).unwrap();
        journal.append(&"cam-2".parse().unwrap(), 300).unwrap();
        // Another process of the same gateway.
        let other = Journal::of(dir.path());
        other.append(&device, 50).unwrap();
        for journal in [journal, other] {
            assert_eq!(journal.until(&device).unwrap(), Some(100), "the latest counts");
            assert!(journal.revokes(&device, 0).unwrap() && journal.revokes(&device, 100).unwrap());
            assert!(!journal.revokes(&device, 101).unwrap());
        }
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_line_cut_off_by_a_crash_is_skipped_and_damage_is_reported() {
        let (dir, journal, device) = journal();
        journal.append(&device, 100).unwrap();
        let path = dir.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        // The power failed within the second line.
        fs::write(&path, [&whole[..], &whole[..20]].concat()).unwrap();
        let journal = Journal::of(dir.path());
        assert_eq!(journal.until(&device).unwrap(), Some(100));
        journal.append(&device, 200).unwrap();
        assert_eq!(Journal::of(dir.path()).until(&device).unwrap(), Some(200));

        let text = fs::read_to_string(&path).unwrap();
        for changed in [text.replace("200", "1"), text.replace("cam-1", "cam-3"), text.replace('{', "")] {
            fs::write(&path, changed).unwrap();
            let damaged = Journal::of(dir.path());
            let error = damaged.until(&device).unwrap_err();
            assert!(matches!(error, CaError::Journal { .. }), "{error}");
            assert!(damaged.append(&device, 300).is_err());
        }
    }
}
