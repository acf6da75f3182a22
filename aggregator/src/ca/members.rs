//! All names that the authority knows: members, expired ones, and revoked ones.

#[cfg(feature = "dashboard")]
use std::time::SystemTime;
use std::{collections::BTreeMap, fs, path::Path};

use common::{DeviceId, TierSet, certificate::Grant};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{
    Authority, CaError, SerialCredential, grant::seconds_now, journal::UNSTATED_ISSUE, serial::key_file,
};

/// The kind of credential that a device has.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Credential {
    Certificate,
    /// Of a board behind a bridge.
    SerialKey,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MemberState {
    Member,
    Expired,
    /// It was revoked, and its files are removed.
    Revoked,
    /// It was revoked, but its file exists again: `identity/` was restored from an older backup. It stays refused.
    Restored,
    /// Its file cannot be used.
    Damaged,
}

/// A name with what is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRecord {
    pub device: DeviceId,
    pub credential: Option<Credential>,
    pub state: MemberState,
    /// Seconds since 1970, if known.
    pub issued: Option<u64>,
    pub expires: Option<u64>,
    pub tiers: TierSet,
}

impl Authority {
    /// All names, in order.
    pub(crate) fn members(&self) -> Result<Vec<MemberRecord>, CaError> {
        let mut members = BTreeMap::new();
        for device in self.named("devices", ".crt")? {
            let Some(text) = self.read_if_there(&format!("devices/{device}.crt"))? else { continue };
            let grant = CertificateDer::from_pem_slice(text.as_bytes()).ok().map(|der| Grant::of(&der));
            let (issued, expires) =
                (grant.flatten().map(|grant| grant.issued), grant.flatten().map(|grant| grant.expires));
            let state = self.state(&device, grant.is_some(), issued, expires)?;
            let tiers = grant.flatten().map_or(TierSet::ALL, |grant| grant.tiers);
            let credential = Some(Credential::Certificate);
            members.insert(
                (device.clone(), credential),
                MemberRecord { device, credential, state, issued, expires, tiers },
            );
        }
        for device in self.named("serial", ".key")? {
            let Some(text) = self.read_if_there(&key_file(&device))? else { continue };
            let member = SerialCredential::decode(&text);
            let issued = member.as_ref().map(|member| member.issued);
            let expires = member.as_ref().and_then(|member| member.expires);
            let state = self.state(&device, member.is_some(), issued, expires)?;
            let tiers = member.map_or(TierSet::ALL, |member| member.tiers);
            let credential = Some(Credential::SerialKey);
            members.insert(
                (device.clone(), credential),
                MemberRecord { device, credential, state, issued, expires, tiers },
            );
        }
        for device in self.journal.names()? {
            if members.keys().all(|(name, _)| *name != device) {
                let (credential, state, tiers) = (None, MemberState::Revoked, TierSet::EMPTY);
                let gone = MemberRecord {
                    device: device.clone(),
                    credential,
                    state,
                    issued: None,
                    expires: None,
                    tiers,
                };
                members.insert((device, None), gone);
            }
        }
        Ok(members.into_values().collect())
    }

    /// When the server's certificate expires, in seconds since 1970; `None` if it cannot be read.
    pub(crate) fn server_expires(&self) -> Option<u64> {
        let (certificate, _) = self.server().ok()?;
        Grant::of(&certificate).map(|grant| grant.expires)
    }

    /// Changes whenever a member is added, replaced or removed.
    #[cfg(feature = "dashboard")]
    pub(crate) fn members_stamp(&self) -> [Option<SystemTime>; 2] {
        ["devices", "serial"].map(|dir| fs::metadata(self.path(dir)).ok()?.modified().ok())
    }

    /// Revoked devices with files in `identity/`, as after restoring an older backup. They stay refused.
    pub(crate) fn restored(&self) -> Result<Vec<DeviceId>, CaError> {
        let mut found = vec![];
        for device in self.journal.names()? {
            if let Some(issued) = self.last_issued(&device)?
                && self.journal.revokes(&device, issued)?
            {
                found.push(device);
            }
        }
        Ok(found)
    }

    fn state(
        &self,
        device: &DeviceId,
        sound: bool,
        issued: Option<u64>,
        expires: Option<u64>,
    ) -> Result<MemberState, CaError> {
        Ok(match () {
            () if !sound => MemberState::Damaged,
            () if self.journal.revokes(device, issued.unwrap_or(UNSTATED_ISSUE))? => MemberState::Restored,
            () if expires.is_some_and(|expires| expires <= seconds_now()) => MemberState::Expired,
            () => MemberState::Member,
        })
    }

    /// Names of the files in a directory; none if the directory does not exist.
    fn named(&self, dir: &str, suffix: &str) -> Result<Vec<DeviceId>, CaError> {
        let path = self.path(dir);
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries.map_err(|source| CaError::Io { path, source })?,
        };
        let name = |path: &Path| path.file_name()?.to_str()?.strip_suffix(suffix)?.parse().ok();
        Ok(entries.flatten().filter_map(|entry| name(&entry.path())).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{Existing, GrantOptions},
        *,
    };

    #[test]
    fn a_restored_backup_readmits_no_revoked_device() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let [cam, board, other]: [DeviceId; 3] = ["cam-1", "m4", "other"].map(|name| name.parse().unwrap());
        let old = authority.enroll(&cam).unwrap();
        let old = CertificateDer::from_pem_slice(old.as_bytes()).unwrap();
        authority.enroll_serial(&board).unwrap();
        authority.enroll(&other).unwrap();
        let token =
            authority.token(&"new".parse().unwrap(), Duration::from_secs(600), GrantOptions::default());
        let files = ["devices/cam-1.crt", "serial/m4.key", "devices/other.crt"];
        let backup = files.map(|name| std::fs::read(dir.path().join("identity").join(name)).unwrap());
        assert!(token.is_ok());

        authority.revoke(&cam).unwrap();
        authority.revoke(&board).unwrap();
        let replaced = || authority.enroll_as(&other, GrantOptions::default(), Existing::Replace, None);
        let replacement = CertificateDer::from_pem_slice(replaced().unwrap().as_bytes()).unwrap();
        assert_eq!(authority.restored().unwrap(), []);
        for (name, content) in files.iter().zip(&backup) {
            std::fs::write(dir.path().join("identity").join(name), content).unwrap();
        }
        // Also in a process that was started after the revocation.
        for authority in [authority.clone(), Authority::open(dir.path()).unwrap()] {
            assert_eq!(authority.device_of(&old).unwrap(), None);
            assert_eq!(authority.serial_credential(&board).unwrap(), None);
            assert!(!authority.is_member(&cam).unwrap() && !authority.is_member(&board).unwrap());
            assert_eq!(authority.restored().unwrap(), [cam.clone(), board.clone(), other.clone()]);
            let members = authority.members().unwrap();
            assert!(members.iter().all(|member| member.state == MemberState::Restored), "{members:?}");
        }
        // Only a new identity makes them members again, and the error says so.
        assert!(matches!(authority.enroll(&cam), Err(CaError::Enrolled(_))));
        let again = authority.enroll_as(&cam, GrantOptions::default(), Existing::Replace, None).unwrap();
        let again = CertificateDer::from_pem_slice(again.as_bytes()).unwrap();
        assert_eq!(authority.device_of(&again).unwrap(), Some(cam.clone()));
        assert_eq!(authority.device_of(&old).unwrap(), None);
        assert_eq!(authority.device_of(&replacement).unwrap(), None, "its file is an older one");
    }
}
