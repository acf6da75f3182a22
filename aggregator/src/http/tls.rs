//! TLS of the dashboard: a certificate from the gateway's authority, new at every start.

use std::{net::IpAddr, sync::Arc};

use common::wire::SERVER_NAME;
use rustls::{ServerConfig, crypto::ring};
use tokio_rustls::TlsAcceptor;

use super::HttpError;
use crate::ca::Authority;

/// Accepts HTTPS for an address and these names.
pub(super) fn acceptor(
    authority: &Authority,
    address: IpAddr,
    names: &[String],
) -> Result<TlsAcceptor, HttpError> {
    if let Some(name) = names.iter().find(|name| name.eq_ignore_ascii_case(SERVER_NAME)) {
        return Err(HttpError::Name(name.clone()));
    }
    let (chain, key) = authority.web_certificate(address, names)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
