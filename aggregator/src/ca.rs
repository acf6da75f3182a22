//! The fleet's own small certificate authority, as files in the aggregator's directory.
//!
//! ```text
//! identity/ca.crt  ca.key        the authority; the key never leaves this directory
//! identity/server.pem            the server's certificate and key; earlier versions have server.crt and server.key
//! identity/devices/<device>.crt  enrolled devices; `fairtier gateway revoke` removes the file
//! identity/serial/<device>.key   the key that a device behind a bridge shares with the gateway, and its grant
//! identity/lock                  held while any of these files changes: commands run beside the server
//! revoked.jsonl                  revoked and replaced devices; not in identity/, so that a backup of it
//!                                cannot undo a revocation
//! <device>.board                 the board identity, from which such a device gets its name and key
//! <device>.pem                   what the device gets: its certificate, its key, the authority
//! ```
//! A device is identified by its certificate, and is enrolled only while `devices/` holds exactly that certificate. The name
//! selects the file to compare with, and the content decides. A certificate or key issued before the last revocation of its
//! name stays invalid, whatever `identity/` holds.
//!
//! An unreadable file is an error, not a refusal. A device counts as not enrolled only if its file is missing or has another
//! content. Otherwise a failing disk would turn away a whole fleet for good.
//!
//! All files are private to their owner (0700, 0600): other users can neither read them nor hold the lock.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use common::{
    DeviceId,
    certificate::{common_name, issued},
    files::{self, MAX_CREDENTIAL},
};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tracing::warn;

mod enrolment;
mod error;
mod grant;
mod journal;
mod members;
mod revocation;
mod serial;
mod server;
mod storage;
mod tokens;
#[cfg(feature = "dashboard")]
mod web;

pub(crate) use common::files::{AtomicFile, Secrecy, write_file};
pub use enrolment::Existing;
pub use error::CaError;
pub use grant::GrantOptions;
pub(crate) use grant::has_expired;
use journal::Journal;
pub(crate) use members::{Credential, MemberRecord, MemberState};
pub use serial::SerialCredential;
pub use tokens::IssuedCertificate;

/// Where certificates of devices are: in use, and renewed but not used yet.
const CERTIFICATE_DIRS: [&str; 2] = ["devices", "renewed"];

/// The authority of one fleet.
#[derive(Clone, Debug)]
pub struct Authority {
    dir: PathBuf,
    journal: Journal,
}

impl Authority {
    fn at(dir: &Path) -> Self {
        Self { dir: dir.join("identity"), journal: Journal::of(dir) }
    }

    /// Creates keys and certificates under `dir/identity`.
    pub fn create(dir: &Path) -> Result<Self, CaError> {
        let this = Self::at(dir);
        let ca = this.path("ca.crt");
        if ca.exists() {
            return Err(CaError::Exists(ca));
        }
        this.make_dir("devices")?;
        let ca_key = KeyPair::generate()?;
        let ca_cert = authority_params()?.self_signed(&ca_key)?;
        this.write("ca.key", &ca_key.serialize_pem())?;
        this.make_server_key()?;
        // Written last: the authority counts as complete once this file exists.
        this.write("ca.crt", &ca_cert.pem())?;
        Ok(this)
    }

    /// Opens what [`Authority::create`] made. Removes access for other users that an earlier version has left.
    pub fn open(dir: &Path) -> Result<Self, CaError> {
        let this = Self::at(dir);
        if !this.path("ca.crt").exists() {
            return Err(CaError::Missing(this.dir));
        }
        if let Err(error) = files::tighten(&this.dir) {
            warn!(
                "{} is accessible to other users, and its permissions cannot be changed: {error}",
                this.dir.display()
            );
        }
        this.journal.check()?;
        Ok(this)
    }

    /// The device that is enrolled with this certificate. Reads a few files, however many devices there are.
    pub(crate) fn device_of(&self, certificate: &CertificateDer<'_>) -> Result<Option<DeviceId>, CaError> {
        let name = common_name(certificate).and_then(|name| name.parse().ok());
        let Some(device) = name else { return Ok(None) };
        Ok(self.is_enrolled(&device, certificate)?.then_some(device))
    }

    /// Whether the device is enrolled with this certificate now. The first use of a renewed certificate replaces the one
    /// before.
    pub(crate) fn is_enrolled(
        &self,
        device: &DeviceId,
        certificate: &CertificateDer<'_>,
    ) -> Result<bool, CaError> {
        if self.journal.revokes(device, issued(certificate))? {
            return Ok(false);
        }
        let [present, renewed] = CERTIFICATE_DIRS.map(|dir| self.path(&format!("{dir}/{device}.crt")));
        if holds(&present, certificate)? {
            return Ok(true);
        }
        if !holds(&renewed, certificate)? {
            // Another connection may have replaced it meanwhile. If the whole directory is missing, the disk is gone, not the
            // device.
            return match holds(&present, certificate)? {
                true => Ok(true),
                false => self.check_devices().map(|()| false),
            };
        }
        let _lock = self.lock()?;
        if holds(&present, certificate)? {
            return Ok(true);
        }
        // Only an enrolled device can be renewed: revoking removes both files. If the power fails before this is durable, both
        // files are unchanged and the step is repeated.
        let failed = |source| CaError::Io { path: present.clone(), source };
        if !holds(&renewed, certificate)? || !present.try_exists().map_err(failed)? {
            return Ok(false);
        }
        files::rename(&renewed, &present).map_err(failed)?;
        Ok(true)
    }

    /// The certificate that signs all others, `identity/ca.crt`. Fails if the file is missing or is not PEM.
    pub fn root(&self) -> Result<CertificateDer<'static>, CaError> {
        self.pem("ca.crt")
    }

    /// Fails if the directory of devices is missing, as with a disk that is not mounted.
    fn check_devices(&self) -> Result<(), CaError> {
        let path = self.path("devices");
        fs::metadata(&path).map(drop).map_err(|source| CaError::Io { path, source })
    }
}

/// Whether a file holds this certificate. False if it is missing or holds another one; an error if it cannot be read.
fn holds(path: &Path, certificate: &CertificateDer<'_>) -> Result<bool, CaError> {
    match files::read(path, MAX_CREDENTIAL) {
        Ok(text) => Ok(CertificateDer::from_pem_slice(&text).is_ok_and(|held| held == *certificate)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(CaError::Io { path: path.to_owned(), source }),
    }
}

/// Always the same, so that new certificates have the same issuer as all earlier ones.
fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = name("FairTier fleet authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2056, 1, 1);
    Ok(params)
}

/// Valid from 1970 on, because the clock of a device without a battery starts there.
fn leaf_params(common_name: &str, usage: ExtendedKeyUsagePurpose) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = name(common_name);
    params.extended_key_usages = vec![usage];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(2046, 1, 1);
    Ok(params)
}

fn name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

#[cfg(test)]
mod tests;
