//! `status.json`: the state of a run for users and scripts, also while the server runs.
//!
//! It has two parts with one writer each. The worker writes the run and its last round, the server writes the devices that the
//! run waits for. The file is replaced as a whole, so a reader never sees half of it. Whether a server runs is not in the file,
//! because a killed server could not correct it: [`is_serving`] checks a lock.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use common::files::{self, AtomicFile, Secrecy};
use serde_json::{Map, Value};

pub const FILE: &str = "status.json";
/// Held by a server until its process ends, however it ends.
const LOCK: &str = "serving.lock";
/// How often, and how far apart, a lock is tried that another command may be checking.
const TRIES: usize = 3;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
/// How often a server tries the lock before it gives up.
const HOLD_TRIES: usize = 500;

/// The file of one directory.
#[derive(Debug)]
pub struct StatusFile {
    dir: PathBuf,
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    /// As text, because it is long with many devices.
    run: String,
    waiting: Value,
}

impl StatusFile {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), parts: Mutex::default() }
    }

    /// The run has changed.
    pub fn write_run(&self, run: &Map<String, Value>) -> io::Result<()> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.run = Value::Object(run.clone()).to_string();
        self.write(&parts)
    }

    /// What the run waits for has changed; nothing is written if it is the same as before.
    pub fn write_waiting(&self, waiting: Value) -> io::Result<()> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.waiting == waiting || parts.run.is_empty() {
            return Ok(());
        }
        parts.waiting = waiting;
        self.write(&parts)
    }

    fn write(&self, parts: &Parts) -> io::Result<()> {
        // `waiting` becomes the last key of the run's object, which has others.
        debug_assert!(parts.run.ends_with('}'), "{}", parts.run);
        let run = &parts.run[..parts.run.len() - 1];
        replace(&self.dir, FILE, format!("{run},\"waiting\":{}}}", parts.waiting).as_bytes())
    }
}

/// What the last server of a directory has written; `None` if it cannot be read.
pub fn last(dir: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(dir.join(FILE)).ok()?).ok()
}

/// Marks a directory as served until the file is dropped. The server already has the store open, so no other one runs here.
pub fn mark_serving(dir: &Path) -> io::Result<File> {
    let path = dir.join(LOCK);
    // Other users may have the file of an earlier version open, and could hold the lock. They cannot open a new file.
    if fs::metadata(&path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0) {
        fs::remove_file(&path)?;
    }
    let file = files::private().create(true).append(true).open(&path)?;
    // A shared lock, which waits only for a command that checks at this moment.
    for _ in 0..HOLD_TRIES {
        match file.try_lock_shared() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN_TRIES),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::WouldBlock,
        format!("another process holds {LOCK}; `lslocks` names it: end it, then start again"),
    ))
}

/// Keeps servers from starting until the file is dropped; `None` if one runs.
pub fn hold_stopped(dir: &Path) -> io::Result<Option<File>> {
    let file = files::private().create(true).append(true).open(dir.join(LOCK))?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN_TRIES),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether a server runs in this directory.
pub fn is_serving(dir: &Path) -> io::Result<bool> {
    let file = match File::open(dir.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN_TRIES),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(true)
}

/// A reader sees the old file or the new one, never half of one. The owner and the owner's group can read it.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    AtomicFile::create(&dir.join(name), Secrecy::Group)?.commit_unsynced(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_of_one_part_keeps_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path());
        file.write_waiting(json!({ "round": 1 })).unwrap();
        assert_eq!(last(dir.path()), None, "a run is not known yet");
        let run = |committed: u32| json!({ "committed": committed }).as_object().unwrap().clone();
        file.write_run(&run(1)).unwrap();
        assert_eq!(last(dir.path()), Some(json!({ "committed": 1, "waiting": null })));
        file.write_waiting(json!({ "round": 2 })).unwrap();
        file.write_run(&run(2)).unwrap();
        assert_eq!(last(dir.path()), Some(json!({ "committed": 2, "waiting": { "round": 2 } })));
    }

    #[test]
    fn a_server_is_detected_while_it_runs_and_checking_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_serving(dir.path()).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let held = mark_serving(dir.path()).unwrap();
        assert!(is_serving(dir.path()).unwrap() && is_serving(dir.path()).unwrap());
        drop(held);
        assert!(!is_serving(dir.path()).unwrap());
    }

    #[test]
    fn other_users_cannot_keep_a_server_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        // A file of an earlier version is readable by all users, so any of them could hold the lock.
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let other = File::open(&path).unwrap();
        other.lock().unwrap();
        let _held = mark_serving(dir.path()).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(is_serving(dir.path()).unwrap());
        replace(dir.path(), FILE, b"{}").unwrap();
        assert_eq!(mode(&dir.path().join(FILE)), 0o640);
    }
}
