//! The server's certificate and key, and how they are replaced.
//!
//! Devices cannot be told that a certificate is revoked, and many have no clock. So every certificate of the server states when
//! it was issued, and each one is newer than the one before. A device remembers the newest one it has seen and refuses older
//! ones. A stolen key is useless against a device that has seen a newer certificate.

use common::{
    TierSet,
    certificate::{GRANT_OID, Grant, issued},
    wire::SERVER_NAME,
};
use rcgen::{CustomExtension, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::{Authority, CaError, authority_params, grant::seconds_now, leaf_params};

/// Both in one file, so that they always match.
const FILE: &str = "server.pem";
/// Earlier versions have two files.
const EARLIER: [&str; 2] = ["server.crt", "server.key"];

impl Authority {
    /// The server's certificate and key.
    pub fn server(&self) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), CaError> {
        match self.read_if_there(FILE)? {
            Some(both) => {
                let wrong = |error: rustls::pki_types::pem::Error| CaError::Pem {
                    path: self.path(FILE),
                    what: error.to_string(),
                };
                let certificate = CertificateDer::from_pem_slice(both.as_bytes()).map_err(wrong)?;
                Ok((certificate, PrivateKeyDer::from_pem_slice(both.as_bytes()).map_err(wrong)?))
            }
            None => {
                let [certificate, key] = EARLIER;
                Ok((self.pem(certificate)?, self.pem(key)?))
            }
        }
    }

    /// Gives the server a new key and certificate. Returns when the certificate was issued, in seconds since 1970.
    pub(crate) fn rotate_server_key(&self) -> Result<u64, CaError> {
        let _lock = self.lock()?;
        let issued = self.make_server_key()?;
        for name in EARLIER {
            self.remove(name)?;
        }
        Ok(issued)
    }

    pub(super) fn make_server_key(&self) -> Result<u64, CaError> {
        // An unreadable certificate is replaced as well: its key may be damaged or missing.
        let before = self.server().map_or(0, |(certificate, _)| issued(&certificate));
        let issued = seconds_now().max(before.saturating_add(1));
        let ca_key = KeyPair::from_pem(&self.read("ca.key")?)?;
        let key = KeyPair::generate()?;
        let mut params = leaf_params("aggregator", ExtendedKeyUsagePurpose::ServerAuth)?;
        params.subject_alt_names = vec![rcgen::SanType::DnsName(SERVER_NAME.try_into()?)];
        let value = Grant::encode(issued, TierSet::EMPTY).to_vec();
        params.custom_extensions = vec![CustomExtension::from_oid_content(&GRANT_OID, value)];
        let certificate = params.signed_by(&key, &Issuer::new(authority_params()?, &ca_key))?;
        self.write(FILE, &format!("{}{}", certificate.pem(), key.serialize_pem()))?;
        Ok(issued)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_certificate_of_the_server_is_newer_than_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let mut last = authority.server().unwrap();
        assert!(issued(&last.0) > 0);
        for _ in 0..3 {
            let said = authority.rotate_server_key().unwrap();
            let next = authority.server().unwrap();
            assert!(next.0 != last.0 && next.1 != last.1);
            assert!(issued(&next.0) > issued(&last.0) && issued(&next.0) == said);
            last = next;
        }
    }

    #[test]
    fn the_two_files_of_an_earlier_version_are_read_until_they_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let identity = dir.path().join("identity");
        let both = fs::read_to_string(identity.join(FILE)).unwrap();
        let (certificate, key) = both.split_at(both.find("-----BEGIN PRIVATE").unwrap());
        fs::write(identity.join("server.crt"), certificate).unwrap();
        fs::write(identity.join("server.key"), key).unwrap();
        fs::remove_file(identity.join(FILE)).unwrap();
        let before = authority.server().unwrap();
        authority.rotate_server_key().unwrap();
        assert_ne!(authority.server().unwrap().0, before.0);
        assert!(EARLIER.iter().all(|name| !identity.join(name).exists()));
    }
}
