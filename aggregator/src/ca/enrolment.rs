//! Enrols devices, also under names that are or were members.
//!
//! An enrolment holds the lock from the first check of the name until its bundle is written. If two processes enrol one name at
//! once, one is refused, or both bundles are valid one after the other. Nothing is replaced unless that was requested.

use std::path::Path;

use common::{DeviceId, certificate::issued, enrol::SERVER_ISSUED};
use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{
    AtomicFile, Authority, CaError, GrantOptions, Secrecy, SerialCredential, grant::seconds_now,
    journal::UNSTATED_ISSUE, serial::key_file,
};

/// What to do with a name that is a member, or was revoked.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// Fails with [`CaError::Enrolled`] or [`CaError::Revoked`].
    #[default]
    Refuse,
    /// Its present credentials become invalid.
    Replace,
}

/// A name that may be admitted.
#[derive(Copy, Clone, Debug)]
pub(super) struct Admission {
    /// When the new credential is issued: later than all earlier ones of this name.
    pub issued: u64,
    replaces: bool,
}

impl Authority {
    /// Enrols a device with the default grant and returns its PEM bundle.
    pub fn enroll(&self, device: &DeviceId) -> Result<String, CaError> {
        self.enroll_with(device, GrantOptions::default())
    }

    /// Enrols a device with this grant.
    pub(crate) fn enroll_with(&self, device: &DeviceId, grant: GrantOptions) -> Result<String, CaError> {
        self.enroll_as(device, grant, Existing::Refuse, None)
    }

    /// The same for a name that may be a member already. The bundle is also written to `out`, private to its owner, before
    /// another process can enrol.
    pub fn enroll_as(
        &self,
        device: &DeviceId,
        grant: GrantOptions,
        existing: Existing,
        out: Option<&Path>,
    ) -> Result<String, CaError> {
        let key = KeyPair::generate()?;
        let _lock = self.lock()?;
        let admission = self.admission(device, existing)?;
        let out = OutFile::create(out)?;
        let certificate = self.certify(device, &key, grant, admission.issued)?;
        let server = issued(&self.server()?.0);
        let ca = self.read("ca.crt")?;
        let bundle = format!("{SERVER_ISSUED}{server}\n{certificate}{}{ca}", key.serialize_pem());
        self.admit(device, &format!("devices/{device}.crt"), &certificate, admission)?;
        out.commit(bundle.as_bytes())?;
        Ok(bundle)
    }

    /// Whether this name may be enrolled now. A command can report an error before it changes anything.
    pub(crate) fn may_enroll(&self, device: &DeviceId, existing: Existing) -> Result<(), CaError> {
        self.admission(device, existing).map(drop)
    }

    pub(super) fn admission(&self, device: &DeviceId, existing: Existing) -> Result<Admission, CaError> {
        let (last, until) = (self.last_issued(device)?, self.journal.until(device)?);
        match (existing, last, until) {
            (Existing::Refuse, Some(_), _) => return Err(CaError::Enrolled(device.clone())),
            (Existing::Refuse, None, Some(_)) => return Err(CaError::Revoked(device.clone())),
            _ => {}
        }
        let before = last.max(until);
        let now = seconds_now();
        let issued = before.map_or(now, |before| before.saturating_add(1).max(now));
        Ok(Admission { issued, replaces: before.is_some() })
    }

    /// Makes this the only credential of the device. The caller holds the lock.
    pub(super) fn admit(
        &self,
        device: &DeviceId,
        name: &str,
        content: &str,
        admission: Admission,
    ) -> Result<(), CaError> {
        self.write(name, content)?;
        for other in [format!("devices/{device}.crt"), format!("renewed/{device}.crt"), key_file(device)] {
            if other != name {
                self.remove(&other)?;
            }
        }
        if admission.replaces {
            self.journal.append(device, admission.issued.saturating_sub(1))?;
        }
        Ok(())
    }

    /// When the newest credential of a name was issued: 0 if that is unknown, `None` if it has no credential.
    pub(super) fn last_issued(&self, device: &DeviceId) -> Result<Option<u64>, CaError> {
        let certificate = |text: String| {
            CertificateDer::from_pem_slice(text.as_bytes()).map_or(UNSTATED_ISSUE, |der| issued(&der))
        };
        let key = |text: String| SerialCredential::decode(&text).map_or(UNSTATED_ISSUE, |key| key.issued);
        let present = self.read_if_there(&format!("devices/{device}.crt"))?.map(certificate);
        let serial = self.read_if_there(&key_file(device))?.map(key);
        // A renewed certificate counts only beside the present one.
        let renewed = self.read_if_there(&format!("renewed/{device}.crt"))?.map(certificate);
        Ok(present.max(renewed.filter(|_| present.is_some())).max(serial))
    }
}

/// The file that a new identity goes to, if one was asked for.
pub(super) struct OutFile<'a>(Option<(AtomicFile, &'a Path)>);

impl<'a> OutFile<'a> {
    /// Fails if the file cannot be written, while the present identity is still valid.
    pub fn create(path: Option<&'a Path>) -> Result<Self, CaError> {
        let create = |path: &'a Path| {
            AtomicFile::create(path, Secrecy::Secret)
                .map(|file| (file, path))
                .map_err(|source| CaError::Io { path: path.to_owned(), source })
        };
        path.map(create).transpose().map(Self)
    }

    pub fn commit(self, content: &[u8]) -> Result<(), CaError> {
        match self.0 {
            Some((file, path)) => {
                file.commit(content).map_err(|source| CaError::Io { path: path.to_owned(), source })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    fn authority() -> (tempfile::TempDir, Authority, DeviceId) {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        (dir, authority, "cam-1".parse().unwrap())
    }

    fn certificate(bundle: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap()
    }

    #[test]
    fn a_member_is_replaced_only_on_request() {
        let (_dir, authority, device) = authority();
        let first = authority.enroll(&device).unwrap();
        let refused = authority.enroll(&device).unwrap_err();
        assert!(
            matches!(refused, CaError::Enrolled(_)) && refused.to_string().contains("--replace"),
            "{refused}"
        );
        assert!(matches!(authority.enroll_serial(&device), Err(CaError::Enrolled(_))), "nor as a board");
        assert_eq!(authority.device_of(&certificate(&first)).unwrap(), Some(device.clone()));

        let replace = || authority.enroll_as(&device, GrantOptions::default(), Existing::Replace, None);
        let second = replace().unwrap();
        assert_eq!(authority.device_of(&certificate(&first)).unwrap(), None);
        assert_eq!(authority.device_of(&certificate(&second)).unwrap(), Some(device.clone()));
        // Even within one second, a later certificate is newer.
        assert!(issued(&certificate(&second)) > issued(&certificate(&first)));

        authority.revoke(&device).unwrap();
        let refused = authority.enroll(&device).unwrap_err();
        assert!(
            matches!(refused, CaError::Revoked(_)) && refused.to_string().contains("--replace"),
            "{refused}"
        );
        let third = replace().unwrap();
        assert_eq!(authority.device_of(&certificate(&third)).unwrap(), Some(device.clone()));
    }

    #[test]
    fn concurrent_enrolments_of_one_name_have_one_winner() {
        let (dir, _, device) = authority();
        let enrol = |existing| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    let (authority, device) = (Authority::open(dir.path()).unwrap(), device.clone());
                    let file = dir.path().join("cam-1.pem");
                    thread::spawn(move || {
                        authority.enroll_as(&device, GrantOptions::default(), existing, Some(&file))
                    })
                })
                .collect();
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let kept = certificate(&fs::read_to_string(dir.path().join("cam-1.pem")).unwrap());
            assert!(Authority::open(dir.path()).unwrap().is_enrolled(&device, &kept).unwrap());
            ended.iter().filter(|end| end.is_ok()).count()
        };
        assert_eq!(enrol(Existing::Refuse), 1);
        assert_eq!(enrol(Existing::Replace), 8);
    }
}
