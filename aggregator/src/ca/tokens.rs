//! One-time tokens: a device makes its own key and trades a token for a certificate.
//!
//! ```text
//! token text                     NAME:SECRET:FINGERPRINT   (hex; the fingerprint is SHA-256 of ca.crt)
//! identity/tokens/<hash>         name, expiry and terms; the hash is SHA-256 of the secret, which is kept nowhere
//! identity/renewed/<device>.crt  a new certificate until it is first used; the old one is good until then
//! ```
//! Whoever redeems a token removes its file first, so it is good once, whatever happens afterwards.

use std::{
    fs, io,
    time::{Duration, SystemTime},
};

use common::{DeviceId, TierSet};
use rcgen::{PublicKeyData, SignatureAlgorithm};
use ring::rand::SecureRandom;

use super::{Authority, CaError, Membership, Secrecy};

/// Bytes of a public key: an uncompressed point of P-256.
pub const KEY_BYTES: usize = 65;
pub const SECRET_BYTES: usize = 32;

/// The key that a device has sent.
struct DeviceKey<'a>(&'a [u8]);

impl<'a> DeviceKey<'a> {
    /// Uncompressed: a 4 before both coordinates.
    fn new(key: &'a [u8]) -> Result<Self, CaError> {
        if key.len() == KEY_BYTES && key.first() == Some(&4) { Ok(Self(key)) } else { Err(CaError::Key) }
    }
}

impl PublicKeyData for DeviceKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl Authority {
    /// A token with which the device may enrol once, in this time. It can not be shown again.
    pub fn token(&self, device: &DeviceId, good_for: Duration, terms: Membership) -> Result<String, CaError> {
        let mut secret = [0; SECRET_BYTES];
        ring::rand::SystemRandom::new().fill(&mut secret).map_err(|_| CaError::Random)?;
        let expires = SystemTime::now() + good_for;
        let expires = expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        self.make_dir("tokens")?;
        let (life, tiers) = (terms.good_for.as_secs(), terms.tiers.bits());
        let text = format!("{device}\n{expires}\n{life}\n{tiers}\n");
        self.write(&token_file(&secret), &text, Secrecy::Secret)?;
        Ok(format!("{device}:{}:{}", hex(&secret), hex(&digest(&self.root()?))))
    }

    /// Enrols the device that a token was made for, with the key it has made. `None` if the token is unknown,
    /// used or too old.
    pub fn redeem(
        &self,
        secret: &[u8; SECRET_BYTES],
        key: &[u8],
    ) -> Result<Option<(DeviceId, String)>, CaError> {
        let name = token_file(secret);
        let Ok(text) = self.read(&name) else { return Ok(None) };
        let path = self.path(&name);
        match fs::remove_file(&path) {
            Ok(()) => {}
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CaError::Io { path, source }),
        }
        let mut lines = text.lines();
        let device = lines.next().and_then(|name| name.parse::<DeviceId>().ok());
        let expires = lines.next().and_then(|seconds| seconds.parse::<u64>().ok());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (Some(device), Some(expires)) = (device, expires) else { return Ok(None) };
        if now >= expires {
            return Ok(None);
        }
        let life = lines.next().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        let tiers = lines.next().and_then(|bits| bits.parse().ok()).map(TierSet::from_bits);
        let usual = Membership::default();
        let terms =
            Membership { good_for: life.unwrap_or(usual.good_for), tiers: tiers.unwrap_or(usual.tiers) };
        let certificate = self.certify(&device, &DeviceKey::new(key)?, terms)?;
        self.write(&format!("devices/{device}.crt"), &certificate, Secrecy::Public)?;
        Ok(Some((device, certificate + &self.read("ca.crt")?)))
    }

    /// A certificate for a new key of an enrolled device, under the terms of the present one, which is good until the
    /// new one is used, so an answer that is lost locks nobody out.
    pub fn renew(&self, device: &DeviceId, key: &[u8]) -> Result<String, CaError> {
        let certificate = self.certify(device, &DeviceKey::new(key)?, self.membership(device))?;
        self.make_dir("renewed")?;
        self.write(&format!("renewed/{device}.crt"), &certificate, Secrecy::Public)?;
        Ok(certificate + &self.read("ca.crt")?)
    }

    /// The device is a stranger from now on. False if it was one before.
    pub fn revoke(&self, device: &DeviceId) -> Result<bool, CaError> {
        let mut known = false;
        for name in [format!("renewed/{device}.crt"), format!("devices/{device}.crt")] {
            let path = self.path(&name);
            match fs::remove_file(&path) {
                Ok(()) => known = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(CaError::Io { path, source }),
            }
        }
        Ok(known)
    }

    fn make_dir(&self, name: &str) -> Result<(), CaError> {
        let path = self.path(name);
        fs::create_dir_all(&path).map_err(|source| CaError::Io { path, source })
    }
}

fn token_file(secret: &[u8]) -> String {
    format!("tokens/{}", hex(&digest(secret)))
}

fn digest(bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    use super::*;

    fn secret(token: &str) -> [u8; SECRET_BYTES] {
        let hex = token.split(':').nth(1).unwrap();
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
    }

    fn certificate(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_token_is_good_once_and_for_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let key = KeyPair::generate().unwrap();
        let token =
            secret(&authority.token(&device, Duration::from_secs(60), Membership::default()).unwrap());
        assert!(authority.redeem(&[7; 32], key.der_bytes()).unwrap().is_none(), "another secret");
        let (name, bundle) = authority.redeem(&token, key.der_bytes()).unwrap().unwrap();
        assert_eq!(name, device);
        assert_eq!(authority.device_of(&certificate(&bundle)), Some(device.clone()));
        assert!(authority.redeem(&token, key.der_bytes()).unwrap().is_none(), "a second time");

        let late = secret(&authority.token(&device, Duration::ZERO, Membership::default()).unwrap());
        assert!(authority.redeem(&late, key.der_bytes()).unwrap().is_none(), "too late");
        let bad = secret(&authority.token(&device, Duration::from_secs(60), Membership::default()).unwrap());
        assert!(matches!(authority.redeem(&bad, &[4; 64]), Err(CaError::Key)));
    }

    #[test]
    fn the_old_certificate_is_good_until_the_new_one_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let old = certificate(&authority.enroll(&device).unwrap());
        let key = KeyPair::generate().unwrap();
        let new = certificate(&authority.renew(&device, key.der_bytes()).unwrap());
        assert_eq!(authority.device_of(&old), Some(device.clone()));
        assert_eq!(authority.device_of(&new), Some(device.clone()));
        assert_eq!(authority.device_of(&old), None, "the new one was used");
        assert_eq!(authority.device_of(&new), Some(device.clone()));

        assert!(authority.revoke(&device).unwrap());
        assert_eq!(authority.device_of(&new), None);
        assert!(!authority.revoke(&device).unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn tokens_are_kept_as_hashes_and_for_the_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let token = authority
            .token(&"cam-1".parse().unwrap(), Duration::from_secs(60), Membership::default())
            .unwrap();
        let secret = token.split(':').nth(1).unwrap();
        let entries: Vec<_> = fs::read_dir(dir.path().join("identity/tokens")).unwrap().flatten().collect();
        assert_eq!(entries.len(), 1);
        assert!(!entries[0].file_name().to_str().unwrap().contains(secret));
        assert!(!fs::read_to_string(entries[0].path()).unwrap().contains(secret));
        assert_eq!(entries[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
