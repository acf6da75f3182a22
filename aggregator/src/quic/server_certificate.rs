//! The certificate of the server. A new one is loaded while the server runs, for later connections.

use std::{
    sync::{Arc, PoisonError, RwLock, Weak},
    time::Duration,
};

use rustls::{
    crypto::CryptoProvider,
    pki_types::CertificateDer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tracing::{info, warn};

use super::endpoint::QuicError;
use crate::ca::Authority;

/// Time between two checks for a new certificate.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct ServerCertificate {
    authority: Authority,
    provider: Arc<CryptoProvider>,
    present: RwLock<Arc<CertifiedKey>>,
}

impl ServerCertificate {
    pub fn new(authority: &Authority, provider: &Arc<CryptoProvider>) -> Result<Arc<Self>, QuicError> {
        let present = RwLock::new(Arc::new(load(authority, provider)?));
        Ok(Arc::new(Self { authority: authority.clone(), provider: provider.clone(), present }))
    }

    /// True if there is a new certificate.
    pub fn reload(&self) -> Result<bool, QuicError> {
        let (certificate, _) = self.authority.server()?;
        if self.present().cert.first() == Some(&certificate) {
            return Ok(false);
        }
        let next = Arc::new(load(&self.authority, &self.provider)?);
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(true)
    }

    fn present(&self) -> Arc<CertifiedKey> {
        self.present.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present())
    }
}

/// With the certificate of the authority: devices that have only a token look for it there.
fn load(authority: &Authority, provider: &CryptoProvider) -> Result<CertifiedKey, QuicError> {
    let (certificate, key) = authority.server()?;
    let chain: Vec<CertificateDer<'static>> = vec![certificate, authority.root()?];
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}

/// Checks for a new certificate until the server is dropped.
pub(super) async fn watch(certificate: Weak<ServerCertificate>) {
    let mut failing = false;
    loop {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        let Some(certificate) = certificate.upgrade() else { return };
        // If it panics, it is tried again.
        let Ok(reloaded) = tokio::task::spawn_blocking(move || certificate.reload()).await else { continue };
        match &reloaded {
            Ok(true) => info!("the server has a new certificate; new connections use it"),
            Err(error) if !failing => {
                warn!("the server's certificate cannot be read, the present one stays in use: {error}");
            }
            _ => {}
        }
        failing = reloaded.is_err();
    }
}
