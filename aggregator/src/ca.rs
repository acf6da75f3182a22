//! The fleet's own small certificate authority, as files in the aggregator's directory.
//!
//! ```text
//! identity/ca.crt  ca.key        the authority; the key never leaves this directory
//! identity/server.pem            the server's certificate and key; earlier programs have server.crt and server.key
//! identity/devices/<device>.crt  who is enrolled; `fairtier gateway revoke` removes the file
//! identity/serial/<device>.key   the key that a device behind a bridge shares with us, and its terms
//! identity/lock                  held while any of these change: commands run beside the server
//! revoked.jsonl                  who was revoked or replaced, and when; not in identity/, so that a backup of it
//!                                cannot take a revocation back
//! <device>.page                  the flash page with which such a device gets its name and key
//! <device>.pem                   what the device gets: its certificate, its key, the authority
//! ```
//! A device is who its certificate says, and only while that very certificate is in `devices/`: its name says which
//! file to compare it with, and the content decides. A certificate or key from before the last revocation of its name
//! is never good again, whatever is in `identity/`.
//!
//! That a file cannot be read is no answer: only one that is not there, or that has another content, says that a device
//! is not enrolled. Otherwise a disk that fails would turn away a whole fleet for good.
//!
//! Everything here is for its owner alone (0700, 0600): other users can neither read it nor hold the lock.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

mod enrolment;
mod journal;
mod membership;
mod names;
mod revocation;
mod roster;
mod serial;
mod server;
mod tokens;

pub use common::files::{Draft, Secrecy, write_file};
pub use enrolment::Existing;
pub use membership::{Membership, has_expired};
pub use roster::{Credential, Member, Standing};
pub use serial::SerialMember;
pub use tokens::{KEY_BYTES, SECRET_BYTES};

use common::{
    DeviceId,
    certificate::issued,
    files::{self, MAX_CREDENTIAL, sync_parent},
};
use journal::Journal;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tracing::warn;

/// How long the lock is waited for, and how often it is tried: those who hold it are done at once.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a PEM file with the expected content: {what}")]
    Pem { path: PathBuf, what: String },
    #[error(
        "{0} exists already; remove it first if you really want a new authority (every device must then be enrolled again)"
    )]
    Exists(PathBuf),
    #[error("no authority in {0}; create one with `fairtier gateway init`")]
    Missing(PathBuf),
    #[error(
        "{0} has been held by another process for {LOCK_PATIENCE:?}; `lslocks` names it: end it, then try again"
    )]
    Locked(PathBuf),
    #[error(
        "{0} is enrolled already; with --replace it gets a new identity, and the present one is no longer good"
    )]
    Enrolled(DeviceId),
    #[error("{0} was revoked; with --replace it becomes a member again")]
    Revoked(DeviceId),
    #[error(
        "{path}:{line} is damaged, so it is not known who was revoked; restore the file, or remove the line and revoke again whom it was about"
    )]
    Journal { path: PathBuf, line: usize },
    #[error("the operating system gives no random numbers")]
    Random,
    #[error("a device's key must be an uncompressed point of P-256")]
    Key,
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// Where certificates of devices are: in use, and renewed but not used yet.
const PLACES: [&str; 2] = ["devices", "renewed"];

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
        // Last, because where it is the authority is taken for whole.
        this.write("ca.crt", &ca_cert.pem())?;
        Ok(this)
    }

    /// Opens what [`Authority::create`] made. What an earlier program has left open to other users is closed.
    pub fn open(dir: &Path) -> Result<Self, CaError> {
        let this = Self::at(dir);
        if !this.path("ca.crt").exists() {
            return Err(CaError::Missing(this.dir));
        }
        if let Err(error) = files::tighten(&this.dir) {
            warn!("{} is open to other users, and that cannot be changed: {error}", this.dir.display());
        }
        this.journal.check()?;
        Ok(this)
    }

    /// Whose certificate this is, if that device is enrolled with it. Costs a few files, however many devices there are.
    pub fn device_of(&self, certificate: &CertificateDer<'_>) -> Result<Option<DeviceId>, CaError> {
        for device in names::in_certificate(certificate) {
            if self.is_enrolled(&device, certificate)? {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// Whether the device is enrolled with this certificate now. The first use of a renewed certificate
    /// replaces the one before.
    pub fn is_enrolled(&self, device: &DeviceId, certificate: &CertificateDer<'_>) -> Result<bool, CaError> {
        if self.journal.revokes(device, issued(certificate))? {
            return Ok(false);
        }
        let [present, renewed] = PLACES.map(|place| self.path(&format!("{place}/{device}.crt")));
        if holds(&present, certificate)? {
            return Ok(true);
        }
        if !holds(&renewed, certificate)? {
            // Another connection may have been faster. Should nothing be there at all, the disk is gone, not the device.
            return match holds(&present, certificate)? {
                true => Ok(true),
                false => self.check_devices().map(|()| false),
            };
        }
        let _lock = self.lock()?;
        if holds(&present, certificate)? {
            return Ok(true);
        }
        // Only a device that is enrolled can be renewed: revoking removes both. Should the power fail before this is
        // durable, both are as they were and it happens again.
        let failed = |source| CaError::Io { path: present.clone(), source };
        if !holds(&renewed, certificate)? || !present.try_exists().map_err(failed)? {
            return Ok(false);
        }
        files::rename(&renewed, &present).map_err(failed)?;
        Ok(true)
    }

    pub fn root(&self) -> Result<CertificateDer<'static>, CaError> {
        self.pem("ca.crt")
    }

    /// Fails where the directory of devices is gone, as with a disk that is not mounted.
    fn check_devices(&self) -> Result<(), CaError> {
        let path = self.path("devices");
        fs::metadata(&path).map(drop).map_err(|source| CaError::Io { path, source })
    }

    fn pem<T: PemObject>(&self, name: &str) -> Result<T, CaError> {
        let text = self.read(name)?;
        let damaged = |error: rustls::pki_types::pem::Error| error.to_string();
        T::from_pem_slice(text.as_bytes())
            .map_err(|error| CaError::Pem { path: self.path(name), what: damaged(error) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read(&self, name: &str) -> Result<String, CaError> {
        let path = self.path(name);
        files::read_text(&path, MAX_CREDENTIAL).map_err(|source| CaError::Io { path, source })
    }

    /// The same; `None` if there is no such file.
    fn read_if_there(&self, name: &str) -> Result<Option<String>, CaError> {
        match self.read(name) {
            Err(CaError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// The same for what need not be text.
    fn read_bytes_if_there(&self, name: &str) -> Result<Option<Vec<u8>>, CaError> {
        let path = self.path(name);
        match files::read(&path, MAX_CREDENTIAL) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|source| CaError::Io { path, source }),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), CaError> {
        let path = self.path(name);
        write_file(&path, text, Secrecy::Secret).map_err(|source| CaError::Io { path, source })
    }

    fn make_dir(&self, name: &str) -> Result<(), CaError> {
        let path = self.path(name);
        if path.is_dir() {
            return Ok(());
        }
        let made = files::make_private_dir(&path).and_then(|()| sync_parent(&path));
        made.map_err(|source| CaError::Io { path, source })
    }

    /// No other process changes who is a member until this is dropped.
    fn lock(&self) -> Result<File, CaError> {
        let path = self.path("lock");
        let failed = |source| CaError::Io { path: path.clone(), source };
        let file = files::private().create(true).append(true).open(&path).map_err(failed)?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_PATIENCE => {
                    thread::sleep(BETWEEN_TRIES);
                }
                Err(TryLockError::WouldBlock) => return Err(CaError::Locked(path)),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
    }
}

/// Whether a file has this certificate. No if there is none or another one; an error if that cannot be told.
fn holds(path: &Path, certificate: &CertificateDer<'_>) -> Result<bool, CaError> {
    match files::read(path, MAX_CREDENTIAL) {
        Ok(text) => Ok(CertificateDer::from_pem_slice(&text).is_ok_and(|held| held == *certificate)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(CaError::Io { path: path.to_owned(), source }),
    }
}

/// The same every time, so that the issuer of a new certificate is the one of all earlier ones.
fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = name("FairTier fleet authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2056, 1, 1);
    Ok(params)
}

/// Valid from the beginning of time, because a device without a clock battery wakes up there.
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
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_device_is_known_by_its_certificate_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let bundle = authority.enroll(&device).unwrap();
        let certificate = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
        assert_eq!(authority.device_of(&certificate).unwrap(), Some(device.clone()));

        authority.enroll_as(&device, Membership::default(), Existing::Replace, None).unwrap();
        let known = authority.device_of(&certificate).unwrap();
        assert_eq!(known, None, "an earlier certificate is no longer good");
    }

    /// A directory in the place of a file can not be read, by root neither.
    fn spoil(path: &Path) {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }

    #[test]
    fn a_file_that_can_not_be_read_is_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let [device, other, third]: [DeviceId; 3] =
            ["cam-1", "cam-2", "cam-3"].map(|name| name.parse().unwrap());
        let [certificate, others, thirds] = [&device, &other, &third].map(|device| {
            CertificateDer::from_pem_slice(authority.enroll(device).unwrap().as_bytes()).unwrap()
        });
        spoil(&dir.path().join("identity/devices/cam-1.crt"));
        assert!(matches!(authority.device_of(&certificate), Err(CaError::Io { .. })));
        // It is nobody else's trouble, whether they are enrolled or not.
        assert_eq!(authority.device_of(&others).unwrap(), Some(other.clone()));
        authority.revoke(&other).unwrap();
        assert_eq!(authority.device_of(&others).unwrap(), None);
        // Not mounted.
        fs::rename(dir.path().join("identity/devices"), dir.path().join("elsewhere")).unwrap();
        assert!(matches!(authority.device_of(&thirds), Err(CaError::Io { .. })));
        assert_eq!(authority.device_of(&others).unwrap(), None, "that it is revoked stands elsewhere");
    }

    #[test]
    fn a_renewed_certificate_that_can_not_be_put_to_use_is_good_later() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let present = CertificateDer::from_pem_slice(authority.enroll(&device).unwrap().as_bytes()).unwrap();
        let key = KeyPair::generate().unwrap();
        let (_, bundle) = authority.renew(&present, rcgen::PublicKeyData::der_bytes(&key)).unwrap().unwrap();
        let renewed = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
        let lock = dir.path().join("identity/lock");
        spoil(&lock);
        assert!(matches!(authority.device_of(&renewed), Err(CaError::Io { .. })));
        assert_eq!(authority.device_of(&present).unwrap(), Some(device.clone()), "nothing is to be changed");
        fs::remove_dir(lock).unwrap();
        assert_eq!(authority.device_of(&renewed).unwrap(), Some(device));
    }

    #[test]
    fn an_authority_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Authority::open(dir.path()), Err(CaError::Missing(_))));
        Authority::create(dir.path()).unwrap();
        assert!(matches!(Authority::create(dir.path()), Err(CaError::Exists(_))));
    }

    #[test]
    fn a_device_whose_clock_was_never_set_trusts_the_server() {
        use rustls::{
            client::{WebPkiServerVerifier, danger::ServerCertVerifier},
            pki_types::{ServerName, UnixTime},
        };
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.root().unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let (server, _) = authority.server().unwrap();
        let name = ServerName::try_from(common::wire::SERVER_NAME).unwrap();
        for seconds in [0, 60, 1_800_000_000] {
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
            verifier.verify_server_cert(&server, &[], &name, &[], now).unwrap();
        }
    }

    #[test]
    fn nothing_in_the_directory_is_open_to_other_users() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let [cam, board, new]: [DeviceId; 3] = ["cam-1", "m4", "new"].map(|name| name.parse().unwrap());
        let bundle = authority.enroll(&cam).unwrap();
        let present = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
        let key = KeyPair::generate().unwrap();
        authority.renew(&present, rcgen::PublicKeyData::der_bytes(&key)).unwrap().unwrap();
        authority.enroll_serial(&board).unwrap();
        authority.token(&new, Duration::from_secs(60), Membership::default()).unwrap();
        let identity = dir.path().join("identity");
        let check = || {
            let mut open = vec![identity.clone()];
            let mut count = 0;
            while let Some(path) = open.pop() {
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
                count += 1;
                if path.is_dir() {
                    open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                }
            }
            assert!(count > 10, "{count} files and directories");
        };
        check();
        // As an earlier program has left it.
        let loosen = |name: &str, mode| {
            fs::set_permissions(identity.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        loosen("lock", 0o644);
        loosen("devices/cam-1.crt", 0o644);
        loosen("devices", 0o755);
        loosen(".", 0o755);
        Authority::open(dir.path()).unwrap();
        check();
    }
}
