//! Reading, writing and locking the files of an authority.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use common::files::{self, MAX_CREDENTIAL, Secrecy, sync_parent, write_file};
use rustls::pki_types::pem::PemObject;

use super::{Authority, CaError};

/// How long to wait for the lock, and how often to try it. It is only held for short operations.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
const LOCK: &str = "lock";
const LOCK_RETRY: Duration = Duration::from_millis(2);

impl Authority {
    pub(super) fn pem<T: PemObject>(&self, name: &str) -> Result<T, CaError> {
        let text = self.read(name)?;
        let damaged = |error: rustls::pki_types::pem::Error| error.to_string();
        T::from_pem_slice(text.as_bytes())
            .map_err(|error| CaError::Pem { path: self.path(name), what: damaged(error) })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn read(&self, name: &str) -> Result<String, CaError> {
        let path = self.path(name);
        files::read_text(&path, MAX_CREDENTIAL).map_err(|source| CaError::Io { path, source })
    }

    /// The same; `None` if there is no such file.
    pub(super) fn read_if_there(&self, name: &str) -> Result<Option<String>, CaError> {
        match self.read(name) {
            Err(CaError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// The same for a file that need not be text.
    pub(super) fn read_bytes_if_there(&self, name: &str) -> Result<Option<Vec<u8>>, CaError> {
        let path = self.path(name);
        match files::read(&path, MAX_CREDENTIAL) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|source| CaError::Io { path, source }),
        }
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), CaError> {
        let path = self.path(name);
        write_file(&path, text, Secrecy::Secret).map_err(|source| CaError::Io { path, source })
    }

    pub(super) fn make_dir(&self, name: &str) -> Result<(), CaError> {
        let path = self.path(name);
        if path.is_dir() {
            return Ok(());
        }
        let made = files::make_private_dir(&path).and_then(|()| sync_parent(&path));
        made.map_err(|source| CaError::Io { path, source })
    }

    /// All files of the authority as they are at one moment, with their names below the gateway's directory.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, CaError> {
        let _lock = self.lock()?;
        let mut found = vec![];
        let mut open = vec![String::new()];
        while let Some(below) = open.pop() {
            let dir = self.path(&below);
            let failed = |source| CaError::Io { path: dir.clone(), source };
            for entry in fs::read_dir(&dir).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                // No file of an authority has another name, and a temporary one ends in `~`.
                let Some(name) = entry.file_name().to_str().map(|name| format!("{below}{name}")) else {
                    continue;
                };
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() {
                    open.push(name + "/");
                } else if kind.is_file() && name != LOCK && !name.ends_with('~') {
                    let path = self.path(&name);
                    let bytes = files::read(&path, MAX_CREDENTIAL);
                    found.push((
                        format!("identity/{name}"),
                        bytes.map_err(|source| CaError::Io { path, source })?,
                    ));
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Locks the members until the file is dropped: no other process changes them.
    pub(super) fn lock(&self) -> Result<File, CaError> {
        let path = self.path(LOCK);
        let failed = |source| CaError::Io { path: path.clone(), source };
        let file = files::private().create(true).append(true).open(&path).map_err(failed)?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_TIMEOUT => {
                    thread::sleep(LOCK_RETRY);
                }
                Err(TryLockError::WouldBlock) => return Err(CaError::Locked(path)),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
    }
}
