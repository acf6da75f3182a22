//! A device's credentials: one PEM file with its certificate, its key and the fleet's authority. A file next to it holds the
//! newest server certificate's time of issue.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use common::{
    certificate::{Grant, common_name},
    files::{self, MAX_CREDENTIAL},
    printable::printable,
    wire::ALPN,
};
use quinn::Connection;
use rustls::{
    RootCertStore,
    client::WebPkiServerVerifier,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{
    freshness::{FreshnessVerifier, digest},
    verify::Verifier,
};

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum IdentityError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the identity is not a bundle of `fairtier gateway enroll` (certificate, key, authority): {0}")]
    Bundle(String),
    #[error("the identity's certificate and key cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}

/// Key and certificate of a device, ready for connecting.
#[derive(Clone, Debug)]
pub struct Identity {
    tls: Arc<rustls::ClientConfig>,
    grant: Option<Grant>,
    /// Name of the device.
    name: Option<String>,
    /// SHA-256 of the device's certificate, and of the fleet's authority.
    certificate: [u8; 32],
    authority: [u8; 32],
    freshness: Arc<FreshnessVerifier>,
    /// The file that it was read from, and that a renewed one replaces.
    file: Option<PathBuf>,
}

impl Identity {
    /// Reads an identity file and the state next to it.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let pem = files::read(path, MAX_CREDENTIAL)
            .map_err(|source| IdentityError::Read { path: path.to_owned(), source })?;
        let this = Self { file: Some(path.to_owned()), ..Self::parse(&pem)? };
        this.freshness.recall(path);
        Ok(this)
    }

    /// Reads a PEM bundle of certificate, authority and key.
    pub fn parse(pem: &[u8]) -> Result<Self, IdentityError> {
        let bundle = |error: rustls::pki_types::pem::Error| IdentityError::Bundle(printable(&error));
        let certificates =
            CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(bundle)?;
        let [device, authority] = <[_; 2]>::try_from(certificates)
            .map_err(|found| IdentityError::Bundle(format!("{} certificates instead of 2", found.len())))?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(bundle)?;
        let (grant, certificate) = (Grant::of(&device), digest(&device));
        let name = common_name(&device);
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.build().map_err(|error| IdentityError::Bundle(printable(&error)))?;
        let freshness = Arc::new(FreshnessVerifier::new(verifier, &authority, pem));
        let verifier = Verifier { check: freshness.clone(), provider: provider.clone() };
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(vec![device], key)?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let authority = digest(&authority);
        Ok(Self { tls: Arc::new(tls), grant, name, certificate, authority, freshness, file: None })
    }

    /// The file that it was read from.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// When to renew the identity; `None` if it has no time of issue. A clock before the time of issue is wrong, so the result is
    /// then now.
    pub(super) fn renewal(&self, now: SystemTime) -> Option<SystemTime> {
        let grant = self.grant?;
        let issued = SystemTime::UNIX_EPOCH + Duration::from_secs(grant.issued);
        let due = SystemTime::UNIX_EPOCH + Duration::from_secs(grant.renewal());
        Some(if now < issued { now } else { due })
    }

    /// The device name in its certificate.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether both identities have the same certificate.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }

    /// SHA-256 of the only trusted authority.
    pub(super) fn authority(&self) -> [u8; 32] {
        self.authority
    }

    /// The verifier of the server's certificates.
    pub(super) fn freshness(&self) -> &FreshnessVerifier {
        &self.freshness
    }

    /// Remembers the server certificate of this connection.
    pub(super) fn note_server(&self, connection: &Connection) {
        if let Some(server) = server_certificate(connection) {
            self.freshness.note(&server, self.file());
        }
    }

    pub(super) fn tls(&self) -> Arc<rustls::ClientConfig> {
        self.tls.clone()
    }
}

/// The certificate of the server.
pub(super) fn server_certificate(connection: &Connection) -> Option<CertificateDer<'static>> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_bundle_are_refused_with_a_reason() {
        let error = Identity::parse(b"no pem at all").unwrap_err().to_string();
        assert!(error.contains("0 certificates instead of 2"), "{error}");
        let missing = Identity::load(Path::new("does-not-exist.pem")).unwrap_err().to_string();
        assert!(missing.contains("does-not-exist.pem"), "{missing}");
    }
}
