//! The server's endpoint: socket, TLS and transport parameters.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
};

use common::wire;
use quinn::{Endpoint, VarInt};
use rustls::{RootCertStore, server::WebPkiClientVerifier};

use super::{
    server_certificate::{self, ServerCertificate},
    socket::Socket,
    windows::Windows,
};
use crate::ca::{Authority, CaError};

/// All devices share one socket, and thousands may send at the same moment.
const SOCKET_BUFFER: usize = 8 << 20;
/// Bytes of a connection id. As long as in earlier versions, so that their connections are reset, too.
pub(super) const CONNECTION_ID: usize = 8;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
#[non_exhaustive]
pub enum QuicError {
    #[error(transparent)]
    Authority(#[from] CaError),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("TLS: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    #[error("TLS offers no cipher that QUIC can use")]
    Cipher(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// The protocols that the server speaks.
pub(super) const PROTOCOLS: [&[u8]; 5] =
    [wire::ALPN, wire::ALPN_4, wire::BRIDGE_ALPN, common::enrol::ALPN, common::schema::ALPN];

/// An endpoint with mutual TLS for devices, bridges, enrolment and schemas. Fails if the address is in use.
pub fn listen(authority: &Authority, address: SocketAddr) -> Result<Endpoint, QuicError> {
    listen_as(authority, address, &PROTOCOLS)
}

/// Fails if the server's certificate and key cannot be used, or do not match.
pub fn check_server_certificate(authority: &Authority) -> Result<(), QuicError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerCertificate::new(authority, &provider).map(drop)
}

/// The same endpoint with other protocols.
pub fn listen_as(
    authority: &Authority,
    address: SocketAddr,
    protocols: &[&[u8]],
) -> Result<Endpoint, QuicError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server_certificate = ServerCertificate::new(authority, &provider)?;
    let config = server_config(authority, server_certificate.clone(), protocols)?;
    let failed = |source| QuicError::Listen { address, source };
    let socket = UdpSocket::bind(address).map_err(failed)?;
    // As much as the system gives: packets that do not fit are lost and sent again.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER);
    let runtime = Arc::new(quinn::TokioRuntime);
    let socket = Socket::new(socket, &*runtime).map_err(failed)?;
    let endpoint = endpoint_config(authority)?;
    let endpoint =
        Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, runtime).map_err(failed)?;
    tokio::spawn(server_certificate::watch(Arc::downgrade(&server_certificate)));
    Ok(endpoint)
}

/// A restarted aggregator resets the connections of the killed one, because both form reset tokens from the same key. Otherwise
/// devices would wait for their idle timeout, as they do after a new server key.
///
/// Connection ids are random, so that they reveal nothing to an observer. The restarted aggregator need not recognise them: it
/// answers every packet of an unknown connection with a reset. Only the owner of that connection can use the reset.
fn endpoint_config(authority: &Authority) -> Result<quinn::EndpointConfig, QuicError> {
    let (_, key) = authority.server()?;
    let secret = [b"fairtier stateless reset", key.secret_der()].concat();
    let mut config =
        quinn::EndpointConfig::new(Arc::new(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret)));
    config.cid_generator(|| Box::new(quinn_proto::RandomConnectionIdGenerator::new(CONNECTION_ID)));
    Ok(config)
}

fn server_config(
    authority: &Authority,
    server_certificate: Arc<ServerCertificate>,
    protocols: &[&[u8]],
) -> Result<quinn::ServerConfig, QuicError> {
    let tls = tls_config(authority, server_certificate, protocols)?;
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport()));
    Ok(config)
}

pub(super) fn tls_config(
    authority: &Authority,
    server_certificate: Arc<ServerCertificate>,
    protocols: &[&[u8]],
) -> Result<rustls::ServerConfig, QuicError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.root()?)?;
    // Peers without a certificate reach only the enrolment protocol, which asks for a token.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(server_certificate);
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // A resumed session would keep the certificate of the first one, expired or not. So devices that reconnect make full
    // handshakes, which the limit per second allows for.
    tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    Ok(tls)
}

fn transport() -> quinn::TransportConfig {
    let mut transport = quinn::TransportConfig::default();
    transport
        // Messages, and a request for a new certificate.
        .max_concurrent_bidi_streams(VarInt::from_u32(2))
        // A device sends one update at a time. quinn permanently keeps lists for all streams that are allowed, and serves the
        // last of them only after all others.
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        .stream_receive_window(VarInt::from_u32(Windows::ROOMY.receive))
        .receive_window(VarInt::from_u32(Windows::TIGHT.receive))
        .send_window(Windows::TIGHT.send.into())
        // Datagrams are not used: quinn would keep more than a megabyte of them for every unknown peer.
        .datagram_receive_buffer_size(None)
        .datagram_send_buffer_size(0)
        .max_idle_timeout(Some(VarInt::from_u32(60_000).into()));
    transport
}
