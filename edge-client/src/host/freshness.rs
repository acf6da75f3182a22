//! The newest server certificate that this device has seen; older ones are refused.
//!
//! A server whose key was stolen gets a new one (`fairtier gateway rotate-server-key`). A device has no revocation list, and
//! many have no clock. But each new certificate has a later time of issue.
//!
//! ```text
//! cam-1.pem          server-issued: 1794838511                 known when the identity was issued
//! cam-1.pem.server   SHA-256 of the authority, 1794838511      seen since; ignored under another authority
//! ```

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use common::{
    certificate::issued,
    enrol::SERVER_ISSUED,
    files::{self, MAX_CREDENTIAL, Secrecy},
};
use rustls::{
    CertificateError,
    client::{
        WebPkiServerVerifier,
        danger::{ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tracing::warn;

use super::verify::CertificateCheck;

/// Verifies servers as WebPKI does, and that their certificate is not older than the newest one seen.
#[derive(Debug)]
pub(super) struct FreshnessVerifier {
    inner: Arc<WebPkiServerVerifier>,
    /// SHA-256 of the authority's certificate, in hex.
    authority: String,
    /// Seconds since 1970.
    seen: AtomicU64,
    /// A server was refused since the last [`Self::take_refused`].
    refused: AtomicBool,
}

impl FreshnessVerifier {
    /// `bundle` is the identity.
    pub fn new(inner: Arc<WebPkiServerVerifier>, authority: &[u8], bundle: &[u8]) -> Self {
        let seen = AtomicU64::new(stated(bundle));
        Self { inner, authority: fingerprint(authority), seen, refused: AtomicBool::new(false) }
    }

    /// Seconds since 1970.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Reads the stored time of issue next to this identity file.
    pub fn recall(&self, identity: &Path) {
        let path = beside(identity);
        let text = match files::read_text(&path, MAX_CREDENTIAL) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                return warn!("{}: {error}; the newest server certificate is not known", path.display());
            }
        };
        match text.trim_end().split_once(' ').map(|(authority, seen)| (authority, seen.parse())) {
            Some((authority, Ok(seen))) if authority == self.authority => {
                self.seen.fetch_max(seen, Ordering::Relaxed);
            }
            Some((_, Ok(_))) => {}
            _ => warn!("{} is damaged; the newest server certificate is not known", path.display()),
        }
    }

    /// Remembers the certificate of an authenticated server, next to the identity file.
    pub fn note(&self, server: &CertificateDer<'_>, identity: Option<&Path>) {
        let issued = issued(server);
        if self.seen.fetch_max(issued, Ordering::Relaxed) >= issued {
            return;
        }
        let Some(path) = identity.map(beside) else { return };
        let text = format!("{} {issued}\n", self.authority);
        if let Err(error) = files::write_file(&path, text, Secrecy::Secret) {
            warn!(
                "{}: {error}; after a restart an older server certificate would be accepted",
                path.display()
            );
        }
    }

    /// Whether a server was refused since the last call.
    pub fn take_refused(&self) -> bool {
        self.refused.swap(false, Ordering::Relaxed)
    }
}

/// The file next to an identity file.
fn beside(identity: &Path) -> PathBuf {
    let mut path = identity.as_os_str().to_owned();
    path.push(".server");
    path.into()
}

pub(super) fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    digest
}

fn fingerprint(certificate: &[u8]) -> String {
    digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The time of issue that a bundle states; 0 if none.
fn stated(bundle: &[u8]) -> u64 {
    let line =
        bundle.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(SERVER_ISSUED.as_bytes()));
    line.and_then(|seconds| str::from_utf8(seconds).ok()?.trim().parse().ok()).unwrap_or(0)
}

impl CertificateCheck for Arc<FreshnessVerifier> {
    fn check(
        &self,
        server: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.inner.verify_server_cert(server, chain, name, &[], now)?;
        if issued(server) < self.seen() {
            self.refused.store(true, Ordering::Relaxed);
            return Err(rustls::Error::InvalidCertificate(CertificateError::Revoked));
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use common::{
        TierSet,
        certificate::{GRANT_OID, Grant},
    };
    use rcgen::{CertificateParams, CustomExtension, KeyPair};
    use rustls::RootCertStore;

    use super::*;

    fn certificate(issued: u64) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec![]).unwrap();
        let grant = Grant::encode(issued, TierSet::EMPTY).to_vec();
        params.custom_extensions = vec![CustomExtension::from_oid_content(&GRANT_OID, grant)];
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn freshness(bundle: &str, authority: &CertificateDer<'static>) -> FreshnessVerifier {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        FreshnessVerifier::new(inner, authority, bundle.as_bytes())
    }

    #[test]
    fn the_newest_time_of_issue_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let identity = dir.path().join("cam-1.pem");
        let (ours, theirs) = (certificate(1), certificate(1));
        let first = freshness("server-issued: 70\n-----BEGIN", &ours);
        assert_eq!(first.seen(), 70);
        first.note(&certificate(60), Some(&identity));
        assert!(!beside(&identity).exists() && first.seen() == 70);
        first.note(&certificate(90), Some(&identity));
        let recalled = |bundle: &str, authority| {
            let freshness = freshness(bundle, authority);
            freshness.recall(&identity);
            freshness.seen()
        };
        assert_eq!(recalled("server-issued: 70", &ours), 90);
        assert_eq!(recalled("", &ours), 90);
        assert_eq!(recalled("server-issued: 100", &ours), 100);
        assert_eq!(recalled("", &theirs), 0, "another fleet has another server");
        for damaged in ["", "90", &format!("{} soon", fingerprint(&ours))] {
            fs::write(beside(&identity), damaged).unwrap();
            assert_eq!(recalled("server-issued: 70", &ours), 70);
        }
    }
}
