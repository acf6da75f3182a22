//! The fleet's own small certificate authority, as files in the aggregator's directory.
//!
//! ```text
//! identity/ca.crt  ca.key        the authority; the key never leaves this directory
//! identity/server.crt  server.key
//! identity/devices/<device>.crt  who is enrolled; `aggregator revoke` removes the file
//! identity/serial/<device>.key   the key that a device behind a bridge shares with us; delete to revoke
//! <device>.page                  the flash page with which such a device gets its name and key
//! <device>.pem                   what the device gets: its certificate, its key, the authority
//! ```
//! A device is who its certificate says, and only while that very certificate is in `devices/`:
//! the connection's certificate is looked up by content, so the name can not be forged and no
//! certificate needs parsing.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

mod membership;
mod tokens;

pub use membership::Membership;
pub use tokens::{KEY_BYTES, SECRET_BYTES};

use common::{
    DeviceId,
    sealed::{Key, Page},
    wire::SERVER_NAME,
};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use ring::rand::{SecureRandom, SystemRandom};
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
    /// Whose certificates were seen in the directory; a hint where to look, never an answer.
    seen: Arc<Mutex<HashMap<Vec<u8>, DeviceId>>>,
}

impl Authority {
    /// Creates keys and certificates under `dir/identity`.
    pub fn create(dir: &Path) -> Result<Self, CaError> {
        let this = Self { dir: dir.join("identity"), seen: Arc::default() };
        let ca = this.path("ca.crt");
        if ca.exists() {
            return Err(CaError::Exists(ca));
        }
        let devices = this.path("devices");
        fs::create_dir_all(&devices).map_err(|source| CaError::Io { path: devices, source })?;
        let ca_key = KeyPair::generate()?;
        let ca_cert = authority_params()?.self_signed(&ca_key)?;
        let issuer = Issuer::new(authority_params()?, &ca_key);
        let server_key = KeyPair::generate()?;
        let mut params = leaf_params("aggregator", ExtendedKeyUsagePurpose::ServerAuth)?;
        params.subject_alt_names = vec![rcgen::SanType::DnsName(SERVER_NAME.try_into()?)];
        let server = params.signed_by(&server_key, &issuer)?;
        this.write("ca.key", &ca_key.serialize_pem(), Secrecy::Secret)?;
        this.write("ca.crt", &ca_cert.pem(), Secrecy::Public)?;
        this.write("server.key", &server_key.serialize_pem(), Secrecy::Secret)?;
        this.write("server.crt", &server.pem(), Secrecy::Public)?;
        Ok(this)
    }

    pub fn open(dir: &Path) -> Result<Self, CaError> {
        let this = Self { dir: dir.join("identity"), seen: Arc::default() };
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
        self.revoke(device)?;
        self.write(&format!("devices/{device}.crt"), &certificate, Secrecy::Public)?;
        Ok(bundle)
    }

    /// Makes a serial device a member and returns the page its board needs. Enrolling again replaces the
    /// earlier key.
    pub fn enroll_serial(&self, device: &DeviceId) -> Result<[u8; Page::LEN], CaError> {
        let mut page = Page { device: device.clone(), key: [0; 32], seed: [0; 16] };
        let random = SystemRandom::new();
        let filled = random.fill(&mut page.key).and_then(|()| random.fill(&mut page.seed));
        filled.map_err(|_| CaError::Random)?;
        let dir = self.path("serial");
        fs::create_dir_all(&dir).map_err(|source| CaError::Io { path: dir, source })?;
        let text: String = page.key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.write(&format!("serial/{device}.key"), &text, Secrecy::Secret)?;
        Ok(page.encode())
    }

    /// The key of a serial device, if it is enrolled.
    pub fn serial_key(&self, device: &DeviceId) -> Option<Key> {
        let text = self.read(&format!("serial/{device}.key")).ok()?;
        let digits: Option<Vec<u8>> =
            text.trim().chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        let bytes: Vec<u8> = digits?.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect();
        bytes.try_into().ok()
    }

    /// Whose certificate this is, if that device is enrolled with it.
    pub fn device_of(&self, certificate: &CertificateDer<'_>) -> Option<DeviceId> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.contains_key(certificate.as_ref()) {
            seen.clear();
            for place in PLACES {
                let entries = fs::read_dir(self.path(place)).into_iter().flatten().flatten();
                seen.extend(entries.filter_map(|entry| {
                    let path = entry.path();
                    let device: DeviceId = path.file_stem()?.to_str()?.parse().ok()?;
                    Some((CertificateDer::from_pem_file(&path).ok()?.to_vec(), device))
                }));
            }
        }
        let device = seen.get(certificate.as_ref())?.clone();
        self.is_enrolled(&device, certificate).then_some(device)
    }

    /// Whether the device is enrolled with this certificate now. The first use of a renewed certificate
    /// replaces the one before.
    pub fn is_enrolled(&self, device: &DeviceId, certificate: &CertificateDer<'_>) -> bool {
        let [present, renewed] = PLACES.map(|place| self.path(&format!("{place}/{device}.crt")));
        let is = |path| CertificateDer::from_pem_file(path).is_ok_and(|enrolled| enrolled == *certificate);
        if is(&present) {
            return true;
        }
        // Only a device that is enrolled can be renewed: revoking removes both.
        is(&renewed) && present.exists() && fs::rename(&renewed, &present).is_ok()
    }

    pub fn devices(&self) -> Vec<DeviceId> {
        let entries = fs::read_dir(self.path("devices")).into_iter().flatten().flatten();
        let mut devices: Vec<DeviceId> =
            entries.filter_map(|entry| entry.path().file_stem()?.to_str()?.parse().ok()).collect();
        devices.sort();
        devices
    }

    pub fn root(&self) -> Result<CertificateDer<'static>, CaError> {
        self.pem("ca.crt")
    }

    pub fn server(&self) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), CaError> {
        Ok((self.pem("server.crt")?, self.pem("server.key")?))
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
}

/// Who may read a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Secrecy {
    Public,
    /// Only the owner (0600).
    Secret,
}

/// Writes a file with its permissions from the first moment on.
pub fn write_file(path: &Path, text: impl AsRef<[u8]>, secrecy: Secrecy) -> io::Result<()> {
    use std::io::Write;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        let mode = if secrecy == Secrecy::Secret { 0o600 } else { 0o644 };
        options.mode(mode);
        if path.exists() {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
    }
    options.open(path)?.write_all(text.as_ref())
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

/// Valid from long ago, because a device without a clock battery wakes up in the past.
fn leaf_params(common_name: &str, usage: ExtendedKeyUsagePurpose) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = name(common_name);
    params.extended_key_usages = vec![usage];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.not_before = date_time_ymd(2020, 1, 1);
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
    use super::*;

    #[test]
    fn a_device_is_known_by_its_certificate_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let bundle = authority.enroll(&device).unwrap();
        let certificate = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
        assert_eq!(authority.device_of(&certificate), Some(device.clone()));
        assert_eq!(authority.devices(), std::slice::from_ref(&device));

        authority.enroll(&device).unwrap();
        assert_eq!(authority.device_of(&certificate), None, "an earlier certificate is no longer good");
    }

    #[test]
    fn a_serial_device_is_known_by_its_key_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "board-1".parse().unwrap();
        assert_eq!(authority.serial_key(&device), None);
        let page = Page::decode(&authority.enroll_serial(&device).unwrap()).unwrap();
        assert_eq!((&page.device, Some(page.key)), (&device, authority.serial_key(&device)));
        let again = Page::decode(&authority.enroll_serial(&device).unwrap()).unwrap();
        assert_ne!(again.key, page.key);
        assert_eq!(authority.serial_key(&device), Some(again.key));
        fs::remove_file(dir.path().join("identity/serial/board-1.key")).unwrap();
        assert_eq!(authority.serial_key(&device), None);
    }

    #[test]
    fn an_authority_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Authority::open(dir.path()), Err(CaError::Missing(_))));
        Authority::create(dir.path()).unwrap();
        assert!(matches!(Authority::create(dir.path()), Err(CaError::Exists(_))));
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
