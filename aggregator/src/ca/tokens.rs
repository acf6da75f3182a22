//! One-time tokens: a device makes its own key and trades a token for a certificate.
//!
//! ```text
//! token text                     NAME:SECRET:FINGERPRINT   (hex; the fingerprint is SHA-256 of ca.crt)
//! identity/tokens/<hash>         name, expiry and grant; the hash is SHA-256 of the secret, which is kept nowhere
//! identity/renewed/<device>.crt  a new certificate until it is first used; the old one is valid until then
//! ```
//! Redeeming removes the token's file before the device becomes a member. So a token works once, whatever happens afterwards.
//! Invalid requests are rejected before that, and the token stays valid.

use std::time::Duration;

use common::{DeviceId, TierSet, certificate::Grant};
use rcgen::{PublicKeyData, SignatureAlgorithm};
use ring::{
    agreement::{self, ECDH_P256, EphemeralPrivateKey},
    rand::{SecureRandom, SystemRandom},
};
use rustls::pki_types::CertificateDer;

use super::{
    Authority, CaError, Existing, GrantOptions,
    grant::{has_expired, seconds_now},
    holds,
    journal::UNSTATED_ISSUE,
};

/// Bytes of a public key: an uncompressed point of P-256.
pub(crate) const KEY_BYTES: usize = 65;
pub(crate) const SECRET_BYTES: usize = 32;

/// The key that a device has sent.
struct DeviceKey<'a>(&'a [u8]);

impl<'a> DeviceKey<'a> {
    /// Checks that the key is an uncompressed point of the curve: a 4, then both coordinates.
    fn new(key: &'a [u8]) -> Result<Self, CaError> {
        if key.len() != KEY_BYTES || key.first() != Some(&4) {
            return Err(CaError::Key);
        }
        // Key agreement begins with that check; the agreed secret is discarded.
        let ours =
            EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).map_err(|_| CaError::Random)?;
        let theirs = agreement::UnparsedPublicKey::new(&ECDH_P256, key);
        agreement::agree_ephemeral(ours, &theirs, |_| ()).map_err(|_| CaError::Key)?;
        Ok(Self(key))
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

/// A certificate for a key that a device has sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuedCertificate {
    /// The device that is named in the certificate.
    pub device: DeviceId,
    /// PEM: the device's certificate and the authority's.
    pub bundle: String,
}

/// The content of a token's file: a line each.
struct Token {
    device: DeviceId,
    /// Seconds since 1970.
    expires: u64,
    grant: GrantOptions,
    /// Seconds since 1970; 0 in files of earlier versions.
    made: u64,
    existing: Existing,
}

/// Marks a token that may replace a member.
const REPLACE: &str = "replace";

impl Token {
    fn encode(&self) -> String {
        let Self { device, expires, grant, made, existing } = self;
        let (life, tiers) = (grant.valid_for.as_secs(), grant.tiers.bits());
        let existing = if *existing == Existing::Replace { REPLACE } else { "new" };
        format!("{device}\n{expires}\n{life}\n{tiers}\n{made}\n{existing}\n")
    }

    /// Earlier versions leave out the grant: then it is the default one.
    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let device = lines.next()?.parse().ok()?;
        let expires = lines.next()?.parse().ok()?;
        let life = lines.next().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        let tiers = lines.next().and_then(|bits| bits.parse().ok()).map(TierSet::from_bits);
        let made = lines.next().and_then(|seconds| seconds.parse().ok()).unwrap_or(UNSTATED_ISSUE);
        let existing = if lines.next() == Some(REPLACE) { Existing::Replace } else { Existing::Refuse };
        let usual = GrantOptions::default();
        let grant =
            GrantOptions { valid_for: life.unwrap_or(usual.valid_for), tiers: tiers.unwrap_or(usual.tiers) };
        Some(Self { device, expires, grant, made, existing })
    }
}

impl Authority {
    /// A token with which the device may enrol once within this time. It cannot be shown again.
    pub fn token(
        &self,
        device: &DeviceId,
        valid_for: Duration,
        grant: GrantOptions,
    ) -> Result<String, CaError> {
        self.token_as(device, valid_for, grant, Existing::Refuse)
    }

    /// The same for a name that may be a member already. This is checked again when the token is redeemed.
    pub(crate) fn token_as(
        &self,
        device: &DeviceId,
        valid_for: Duration,
        grant: GrantOptions,
        existing: Existing,
    ) -> Result<String, CaError> {
        let mut secret = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut secret).map_err(|_| CaError::Random)?;
        let _lock = self.lock()?;
        let made = self.admission(device, existing)?.issued;
        let expires = seconds_now().saturating_add(valid_for.as_secs());
        let token = Token { device: device.clone(), expires, grant, made, existing };
        self.make_dir("tokens")?;
        self.write(&token_file(&secret), &token.encode())?;
        Ok(format!("{device}:{}:{}", hex(&secret), hex(&digest(&self.root()?))))
    }

    /// Enrols the device that a token was made for, with the key it has made. `None` if the token is unknown, used, revoked or
    /// expired. An invalid key, or a name that the token may not replace, does not use up the token.
    pub fn redeem(
        &self,
        secret: &[u8; SECRET_BYTES],
        key: &[u8],
    ) -> Result<Option<IssuedCertificate>, CaError> {
        let name = token_file(secret);
        let _lock = self.lock()?;
        let Some(text) = self.read_if_there(&name)? else { return Ok(None) };
        let token = Token::decode(&text).filter(|token| seconds_now() < token.expires);
        let token = match token {
            Some(token) if !self.journal.revokes(&token.device, token.made)? => token,
            _ => return self.remove(&name).map(|_| None),
        };
        let Token { device, grant, existing, .. } = token;
        let key = DeviceKey::new(key)?;
        let admission = self.admission(&device, existing)?;
        // The certificate is void until the device is admitted with it.
        let certificate = self.certify(&device, &key, grant, admission.issued)?;
        let root = self.read("ca.crt")?;
        if !self.remove(&name)? {
            return Ok(None);
        }
        self.admit(&device, &format!("devices/{device}.crt"), &certificate, admission)?;
        Ok(Some(IssuedCertificate { device, bundle: certificate + &root }))
    }

    /// A certificate for a new key of the device that is enrolled with `present`, with the same grant. The present one is valid
    /// until the new one is used, so a lost answer locks no device out. `None` if no device is enrolled with `present`, or it
    /// has expired: then a token is needed.
    pub(crate) fn renew(
        &self,
        present: &CertificateDer<'_>,
        key: &[u8],
    ) -> Result<Option<IssuedCertificate>, CaError> {
        if has_expired(Grant::of(present).as_ref()) {
            return Ok(None);
        }
        let Some(device) = self.device_of(present)? else { return Ok(None) };
        let key = DeviceKey::new(key)?;
        let _lock = self.lock()?;
        // A device that was revoked or replaced just now must not come back this way.
        if !holds(&self.path(&format!("devices/{device}.crt")), present)? {
            return Ok(None);
        }
        let now = seconds_now();
        let issued = self.journal.until(&device)?.map_or(now, |until| until.saturating_add(1).max(now));
        let certificate = self.certify(&device, &key, GrantOptions::of(present), issued)?;
        self.make_dir("renewed")?;
        self.write(&format!("renewed/{device}.crt"), &certificate)?;
        let bundle = certificate + &self.read("ca.crt")?;
        Ok(Some(IssuedCertificate { device, bundle }))
    }
}

/// The device that a token's file is for.
pub(super) fn name_in(file: &[u8]) -> Option<DeviceId> {
    str::from_utf8(file).ok()?.lines().next()?.parse().ok()
}

fn token_file(secret: &[u8]) -> String {
    format!("tokens/{}", hex(&digest(secret)))
}

fn digest(bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().to_vec()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::KeyPair;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn secret(token: &str) -> [u8; SECRET_BYTES] {
        let hex = token.split(':').nth(1).unwrap();
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
    }

    fn certificate(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_token_works_once_and_until_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let key = KeyPair::generate().unwrap();
        let token =
            secret(&authority.token(&device, Duration::from_secs(60), GrantOptions::default()).unwrap());
        assert!(authority.redeem(&[7; 32], key.der_bytes()).unwrap().is_none(), "another secret");
        let IssuedCertificate { device: name, bundle } =
            authority.redeem(&token, key.der_bytes()).unwrap().unwrap();
        assert_eq!(name, device);
        assert_eq!(authority.device_of(&certificate(&bundle)).unwrap(), Some(device.clone()));
        assert!(authority.redeem(&token, key.der_bytes()).unwrap().is_none(), "a second time");

        let other = "cam-2".parse().unwrap();
        let late = secret(&authority.token(&other, Duration::ZERO, GrantOptions::default()).unwrap());
        assert!(authority.redeem(&late, key.der_bytes()).unwrap().is_none(), "too late");
    }

    #[test]
    fn an_invalid_key_does_not_use_up_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let token = authority.token(&device, Duration::from_secs(60), GrantOptions::default()).unwrap();
        let (token, key) = (secret(&token), KeyPair::generate().unwrap());
        let mut beside = key.der_bytes().to_vec();
        beside[40] ^= 1;
        for bad in [&[4; 64][..], &[], &[4; KEY_BYTES], &beside] {
            assert!(matches!(authority.redeem(&token, bad), Err(CaError::Key)));
        }
        assert_eq!(authority.redeem(&token, key.der_bytes()).unwrap().unwrap().device, device);
    }

    #[test]
    fn a_token_replaces_a_member_only_if_it_was_made_for_that() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let key = KeyPair::generate().unwrap();
        let token = |existing| {
            let token =
                authority.token_as(&device, Duration::from_secs(60), GrantOptions::default(), existing);
            token.map(|token| secret(&token))
        };
        // Enrolled since the token was made.
        let early = token(Existing::Refuse).unwrap();
        let present = certificate(&authority.enroll(&device).unwrap());
        assert!(matches!(authority.redeem(&early, key.der_bytes()), Err(CaError::Enrolled(_))));
        assert!(matches!(token(Existing::Refuse), Err(CaError::Enrolled(_))));
        assert_eq!(authority.device_of(&present).unwrap(), Some(device.clone()));

        let late = token(Existing::Replace).unwrap();
        let bundle = authority.redeem(&late, key.der_bytes()).unwrap().unwrap().bundle;
        assert_eq!(authority.device_of(&certificate(&bundle)).unwrap(), Some(device.clone()));
        assert_eq!(authority.device_of(&present).unwrap(), None);
        // It was made before the replacement, so it is void.
        assert!(authority.redeem(&early, key.der_bytes()).unwrap().is_none());
    }

    #[test]
    fn the_old_certificate_is_valid_until_the_new_one_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let old = certificate(&authority.enroll(&device).unwrap());
        let key = KeyPair::generate().unwrap();
        let IssuedCertificate { device: name, bundle } =
            authority.renew(&old, key.der_bytes()).unwrap().unwrap();
        let new = certificate(&bundle);
        assert_eq!(name, device);
        assert_eq!(authority.device_of(&old).unwrap(), Some(device.clone()));
        assert_eq!(authority.device_of(&new).unwrap(), Some(device.clone()));
        assert_eq!(authority.device_of(&old).unwrap(), None, "the new one was used");
        assert_eq!(authority.device_of(&new).unwrap(), Some(device.clone()));

        assert!(authority.revoke(&device).unwrap());
        assert_eq!(authority.device_of(&new).unwrap(), None);
        assert!(!authority.revoke(&device).unwrap());
    }

    #[test]
    fn a_revoked_or_replaced_device_cannot_renew() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let key = KeyPair::generate().unwrap();
        let stolen = certificate(&authority.enroll(&device).unwrap());
        let waiting = authority.renew(&stolen, key.der_bytes()).unwrap().unwrap().bundle;
        let replace = Existing::Replace;
        let token = authority.token_as(&device, Duration::from_secs(60), GrantOptions::default(), replace);
        let token = secret(&token.unwrap());
        let own = authority.redeem(&token, key.der_bytes()).unwrap().unwrap().bundle;
        assert!(authority.renew(&stolen, key.der_bytes()).unwrap().is_none());
        assert_eq!(
            authority.device_of(&certificate(&waiting)).unwrap(),
            None,
            "renewed with a certificate that was replaced since"
        );
        assert_eq!(authority.device_of(&certificate(&own)).unwrap(), Some(device.clone()));

        authority.revoke(&device).unwrap();
        assert!(authority.renew(&certificate(&own), key.der_bytes()).unwrap().is_none());
        assert!(!dir.path().join("identity/renewed/cam-1.crt").exists());
    }

    #[test]
    fn an_expired_certificate_cannot_be_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let key = KeyPair::generate().unwrap();
        let over = GrantOptions { valid_for: Duration::ZERO, ..GrantOptions::default() };
        let expired = certificate(&authority.enroll_with(&device, over).unwrap());
        assert!(authority.renew(&expired, key.der_bytes()).unwrap().is_none());
        assert!(!dir.path().join("identity/renewed/cam-1.crt").exists());
        let good = certificate(&authority.enroll(&"cam-2".parse().unwrap()).unwrap());
        assert!(authority.renew(&good, key.der_bytes()).unwrap().is_some());
    }

    #[test]
    fn open_tokens_of_a_revoked_name_are_invalid() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let [device, other]: [DeviceId; 2] = ["cam-1", "cam-10"].map(|name| name.parse().unwrap());
        let key = KeyPair::generate().unwrap();
        let token =
            |device| authority.token(device, Duration::from_secs(60), GrantOptions::default()).unwrap();
        let (first, second, others) =
            (secret(&token(&device)), secret(&token(&device)), secret(&token(&other)));
        assert!(authority.revoke(&device).unwrap(), "a token alone can be revoked");
        for gone in [first, second] {
            assert!(authority.redeem(&gone, key.der_bytes()).unwrap().is_none());
        }
        assert!(authority.redeem(&others, key.der_bytes()).unwrap().is_some());
        assert!(!authority.revoke(&device).unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn tokens_are_stored_as_hashes_and_private_to_the_owner() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let token = authority
            .token(&"cam-1".parse().unwrap(), Duration::from_secs(60), GrantOptions::default())
            .unwrap();
        let secret = token.split(':').nth(1).unwrap();
        let entries: Vec<_> = fs::read_dir(dir.path().join("identity/tokens")).unwrap().flatten().collect();
        assert_eq!(entries.len(), 1);
        assert!(!entries[0].file_name().to_str().unwrap().contains(secret));
        assert!(!fs::read_to_string(entries[0].path()).unwrap().contains(secret));
        assert_eq!(entries[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
