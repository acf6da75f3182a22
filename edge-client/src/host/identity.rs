//! A device's credentials: one PEM file with its certificate, its key and the fleet's authority.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use common::{certificate::Terms, wire::ALPN};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the identity is not a bundle of `aggregator enroll` (certificate, key, authority): {0}")]
    Bundle(String),
    #[error("the identity's certificate and key can not be used: {0}")]
    Tls(#[from] rustls::Error),
}

/// What a device proves itself with, ready for connecting.
#[derive(Clone, Debug)]
pub struct Identity {
    tls: Arc<rustls::ClientConfig>,
    terms: Option<Terms>,
    /// Where it was read from, and where a new one goes.
    file: Option<PathBuf>,
}

impl Identity {
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let pem = fs::read(path).map_err(|source| IdentityError::Read { path: path.to_owned(), source })?;
        Ok(Self { file: Some(path.to_owned()), ..Self::parse(&pem)? })
    }

    pub fn parse(pem: &[u8]) -> Result<Self, IdentityError> {
        let bundle = |error: rustls::pki_types::pem::Error| IdentityError::Bundle(error.to_string());
        let certificates =
            CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(bundle)?;
        let [device, authority] = <[_; 2]>::try_from(certificates)
            .map_err(|found| IdentityError::Bundle(format!("{} certificates instead of 2", found.len())))?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(bundle)?;
        let terms = Terms::of(&device);
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![device], key)?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { tls: Arc::new(tls), terms, file: None })
    }

    /// Where it was read from.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// When it is time for a new one; never if it does not say when it was made. A clock that is behind that moment
    /// is wrong, so now is as good as any time.
    pub(super) fn renewal(&self, now: SystemTime) -> Option<SystemTime> {
        let terms = self.terms?;
        let issued = SystemTime::UNIX_EPOCH + Duration::from_secs(terms.issued);
        let due = SystemTime::UNIX_EPOCH + Duration::from_secs(terms.renewal());
        Some(if now < issued { now } else { due })
    }

    pub(super) fn tls(&self) -> Arc<rustls::ClientConfig> {
        self.tls.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_bundle_is_refused_with_a_reason() {
        let error = Identity::parse(b"no pem at all").unwrap_err().to_string();
        assert!(error.contains("0 certificates instead of 2"), "{error}");
        let missing = Identity::load(Path::new("does-not-exist.pem")).unwrap_err().to_string();
        assert!(missing.contains("does-not-exist.pem"), "{missing}");
    }
}
