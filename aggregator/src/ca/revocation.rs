//! Revokes devices: adds them to the journal and removes all their credentials and tokens.

use std::{fs, io};

use common::{
    DeviceId,
    files::{self, MAX_CREDENTIAL, sync_parent},
};

use super::{Authority, CaError, grant::seconds_now, serial::key_file, tokens::name_in};

impl Authority {
    /// Revokes a device, whether it has a certificate, a key or only a token. False if it has none of them.
    pub(crate) fn revoke(&self, device: &DeviceId) -> Result<bool, CaError> {
        let _lock = self.lock()?;
        let mut files = self.tokens_of(device)?;
        for name in [format!("devices/{device}.crt"), format!("renewed/{device}.crt"), key_file(device)] {
            let path = self.path(&name);
            if path.try_exists().map_err(|source| CaError::Io { path, source })? {
                files.push(name);
            }
        }
        if files.is_empty() {
            return Ok(false);
        }
        // First, so that the rest can be interrupted. If the clock was set back, everything issued before is revoked
        // nevertheless. Unreadable credentials are revoked as well.
        let last = self.last_issued(device).ok().flatten().max(self.journal.until(device)?);
        let now = seconds_now();
        self.journal.append(device, last.map_or(now, |last| last.max(now)))?;
        for name in files {
            self.remove(&name)?;
        }
        Ok(true)
    }

    /// Whether a device of this name is enrolled, with any certificate or key. An error if the files cannot be read.
    pub(crate) fn is_member(&self, device: &DeviceId) -> Result<bool, CaError> {
        if self.journal.until(device)?.is_some() {
            return match self.last_issued(device)? {
                Some(issued) => self.journal.revokes(device, issued).map(|revoked| !revoked),
                None => self.check_devices().map(|()| false),
            };
        }
        for name in [format!("devices/{device}.crt"), key_file(device)] {
            let path = self.path(&name);
            if path.try_exists().map_err(|source| CaError::Io { path, source })? {
                return Ok(true);
            }
        }
        // If the whole directory is missing, the disk is gone, not the device.
        self.check_devices().map(|()| false)
    }

    /// Files of open tokens with which this device could enrol.
    fn tokens_of(&self, device: &DeviceId) -> Result<Vec<String>, CaError> {
        let dir = self.path("tokens");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(source) => return Err(CaError::Io { path: dir, source }),
        };
        let mut found = vec![];
        for entry in entries.flatten() {
            let path = entry.path();
            match files::read(&path, MAX_CREDENTIAL) {
                Ok(text) if name_in(&text).as_ref() == Some(device) => {
                    found.push(format!("tokens/{}", entry.file_name().to_string_lossy()));
                }
                Ok(_) => {}
                // It was redeemed or replaced just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(CaError::Io { path, source }),
            }
        }
        Ok(found)
    }

    /// Removes a file durably. False if it does not exist.
    pub(super) fn remove(&self, name: &str) -> Result<bool, CaError> {
        let path = self.path(name);
        match fs::remove_file(&path).and_then(|()| sync_parent(&path)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(CaError::Io { path, source }),
        }
    }
}
