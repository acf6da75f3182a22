//! The fleet's own small certificate authority, as files in the aggregator's directory.
//!
//! ```text
//! identity/ca.crt  ca.key        the authority; the key never leaves this directory
//! identity/server.crt  server.key
//! identity/devices/<device>.crt  who is enrolled; `aggregator revoke` removes the file
//! identity/serial/<device>.key   the key that a device behind a bridge shares with us, and its terms
//! identity/lock                  held while any of these change: commands run beside the server
//! <device>.page                  the flash page with which such a device gets its name and key
//! <device>.pem                   what the device gets: its certificate, its key, the authority
//! ```
//! A device is who its certificate says, and only while that very certificate is in `devices/`: its name says which
//! file to compare it with, and the content decides.
//!
//! That a file can not be read is no answer: only one that is not there, or that has another content, says that a device
//! is not enrolled. Otherwise a disk that fails would turn away a whole fleet for good.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

mod draft;
mod membership;
mod names;
mod revocation;
mod serial;
mod tokens;

pub use draft::{Draft, Secrecy, write_file};
pub use membership::{Membership, has_expired};
pub use serial::SerialMember;
pub use tokens::{KEY_BYTES, SECRET_BYTES};

use common::{DeviceId, wire::SERVER_NAME};
use draft::sync_parent;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

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
    #[error("no authority in {0}; create one with `aggregator init`")]
    Missing(PathBuf),
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
}

impl Authority {
    /// Creates keys and certificates under `dir/identity`.
    pub fn create(dir: &Path) -> Result<Self, CaError> {
        let this = Self { dir: dir.join("identity") };
        let ca = this.path("ca.crt");
        if ca.exists() {
            return Err(CaError::Exists(ca));
        }
        this.make_dir("devices")?;
        let ca_key = KeyPair::generate()?;
        let ca_cert = authority_params()?.self_signed(&ca_key)?;
        let issuer = Issuer::new(authority_params()?, &ca_key);
        let server_key = KeyPair::generate()?;
        let mut params = leaf_params("aggregator", ExtendedKeyUsagePurpose::ServerAuth)?;
        params.subject_alt_names = vec![rcgen::SanType::DnsName(SERVER_NAME.try_into()?)];
        let server = params.signed_by(&server_key, &issuer)?;
        this.write("ca.key", &ca_key.serialize_pem(), Secrecy::Secret)?;
        this.write("server.key", &server_key.serialize_pem(), Secrecy::Secret)?;
        this.write("server.crt", &server.pem(), Secrecy::Public)?;
        // Last, because where it is the authority is taken for whole.
        this.write("ca.crt", &ca_cert.pem(), Secrecy::Public)?;
        Ok(this)
    }

    pub fn open(dir: &Path) -> Result<Self, CaError> {
        let this = Self { dir: dir.join("identity") };
        if this.path("ca.crt").exists() { Ok(this) } else { Err(CaError::Missing(this.dir)) }
    }

    /// Makes a device a member under the usual terms and returns the PEM bundle it needs. Enrolling again
    /// replaces the earlier certificate.
    pub fn enroll(&self, device: &DeviceId) -> Result<String, CaError> {
        self.enroll_under(device, Membership::default())
    }

    /// The same under other terms.
    pub fn enroll_under(&self, device: &DeviceId, terms: Membership) -> Result<String, CaError> {
        let key = KeyPair::generate()?;
        let certificate = self.certify(device, &key, terms)?;
        let bundle = format!("{certificate}{}{}", key.serialize_pem(), self.read("ca.crt")?);
        let _lock = self.lock()?;
        self.admit(device, &certificate)?;
        Ok(bundle)
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
        fs::rename(&renewed, &present).and_then(|()| sync_parent(&present)).map_err(failed)?;
        Ok(true)
    }

    /// This is the device's certificate from now on, and its only one. The lock is held.
    fn admit(&self, device: &DeviceId, certificate: &str) -> Result<(), CaError> {
        self.remove(&format!("renewed/{device}.crt"))?;
        self.write(&format!("devices/{device}.crt"), certificate, Secrecy::Public)
    }

    pub fn devices(&self) -> Vec<DeviceId> {
        let entries = fs::read_dir(self.path("devices")).into_iter().flatten().flatten();
        let mut devices: Vec<DeviceId> = entries.filter_map(|entry| certified(&entry.path())).collect();
        devices.sort();
        devices
    }

    pub fn root(&self) -> Result<CertificateDer<'static>, CaError> {
        self.pem("ca.crt")
    }

    pub fn server(&self) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), CaError> {
        Ok((self.pem("server.crt")?, self.pem("server.key")?))
    }

    /// Fails where the directory of devices is gone, as with a disk that is not mounted.
    fn check_devices(&self) -> Result<(), CaError> {
        let path = self.path("devices");
        fs::metadata(&path).map(drop).map_err(|source| CaError::Io { path, source })
    }

    fn pem<T: PemObject>(&self, name: &str) -> Result<T, CaError> {
        let path = self.path(name);
        T::from_pem_file(&path).map_err(|error| CaError::Pem { path, what: error.to_string() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read(&self, name: &str) -> Result<String, CaError> {
        let path = self.path(name);
        fs::read_to_string(&path).map_err(|source| CaError::Io { path, source })
    }

    fn write(&self, name: &str, text: &str, secrecy: Secrecy) -> Result<(), CaError> {
        let path = self.path(name);
        write_file(&path, text, secrecy).map_err(|source| CaError::Io { path, source })
    }

    fn make_dir(&self, name: &str) -> Result<(), CaError> {
        let path = self.path(name);
        if path.is_dir() {
            return Ok(());
        }
        let made = fs::create_dir_all(&path).and_then(|()| sync_parent(&path));
        made.map_err(|source| CaError::Io { path, source })
    }

    /// Nobody else changes who is a member until this is dropped.
    fn lock(&self) -> Result<File, CaError> {
        let path = self.path("lock");
        let open = || {
            let file = fs::OpenOptions::new().create(true).append(true).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        open().map_err(|source| CaError::Io { path: path.clone(), source })
    }
}

/// Whether a file has this certificate. No if there is none or another one; an error if that can not be told.
fn holds(path: &Path, certificate: &CertificateDer<'_>) -> Result<bool, CaError> {
    match fs::read(path) {
        Ok(text) => Ok(CertificateDer::from_pem_slice(&text).is_ok_and(|held| held == *certificate)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(CaError::Io { path: path.to_owned(), source }),
    }
}

/// Whose certificate a file is, by its name.
fn certified(path: &Path) -> Option<DeviceId> {
    path.file_name()?.to_str()?.strip_suffix(".crt")?.parse().ok()
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
        assert_eq!(authority.devices(), std::slice::from_ref(&device));

        authority.enroll(&device).unwrap();
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
        let [device, other]: [DeviceId; 2] = ["cam-1", "cam-2"].map(|name| name.parse().unwrap());
        let [certificate, others] = [&device, &other].map(|device| {
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
        assert!(matches!(authority.device_of(&others), Err(CaError::Io { .. })));
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
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        for seconds in [0, 60, 1_800_000_000] {
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
            verifier.verify_server_cert(&server, &[], &name, &[], now).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn keys_are_readable_by_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        Authority::create(dir.path()).unwrap();
        for key in ["ca.key", "server.key"] {
            let mode = fs::metadata(dir.path().join("identity").join(key)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
