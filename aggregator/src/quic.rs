//! The QUIC server: one task group per connection, mutual TLS, frames in and out.
//!
//! The device opens one bidirectional stream for control frames. Each side opens a unidirectional
//! stream per transfer for its chunks. Every frame has its length before it. A bridge, which speaks another
//! ALPN, opens a bidirectional stream per serial device instead.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    Code, DeviceId,
    transfer::{Lane, LinkLimits},
    wire,
};
use quinn::{Connection, Endpoint, RecvStream, SendStream, VarInt};
use rustls::{RootCertStore, pki_types::CertificateDer, server::WebPkiClientVerifier};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::{
    ca::{Authority, CaError},
    enrol,
    fleet::ConnId,
    gate::{Gate, Verdict},
    hub::{Hub, Line},
};

mod bridged;
/// Whoever has not proved who it is by then is let go.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// How often open connections are compared with who is enrolled.
const REVOCATION: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
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
    #[error("can not listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// What the server speaks.
const PROTOCOLS: [&[u8]; 3] = [wire::ALPN, wire::BRIDGE_ALPN, common::enrol::ALPN];

pub fn listen(authority: &Authority, address: SocketAddr) -> Result<Endpoint, QuicError> {
    listen_as(authority, address, &PROTOCOLS)
}

/// An endpoint with the server's certificate and transport that speaks other protocols.
pub fn listen_as(
    authority: &Authority,
    address: SocketAddr,
    protocols: &[&[u8]],
) -> Result<Endpoint, QuicError> {
    let config = server_config(authority, protocols)?;
    let failed = |source| QuicError::Listen { address, source };
    let socket = UdpSocket::bind(address).map_err(failed)?;
    let runtime = Arc::new(quinn::TokioRuntime);
    Endpoint::new(endpoint_config(authority)?, Some(config), socket, runtime).map_err(failed)
}

/// Connections that were open when the aggregator was killed are reset by its successor, because both
/// form reset tokens from the same key; otherwise devices would wait for their idle timeout.
fn endpoint_config(authority: &Authority) -> Result<quinn::EndpointConfig, QuicError> {
    let (_, key) = authority.server()?;
    let secret = [b"fairtier stateless reset", key.secret_der()].concat();
    let reset_key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
    // Connection ids must be recognised by the successor, too.
    let tag = ring::hmac::sign(&reset_key, b"connection ids");
    let ids = tag.as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut config = quinn::EndpointConfig::new(Arc::new(reset_key));
    config.cid_generator(move || Box::new(quinn_proto::HashedConnectionIdGenerator::from_key(ids)));
    Ok(config)
}

fn server_config(authority: &Authority, protocols: &[&[u8]]) -> Result<quinn::ServerConfig, QuicError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.root()?)?;
    // Strangers get as far as the protocol of enrolment, where a token is asked for.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()?;
    let (certificate, key) = authority.server()?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate, authority.root()?], key)?;
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport()));
    Ok(config)
}

/// A transfer is never further ahead than its window, so a stream window of that size and a little
/// more means that writing never waits for the other side's reader.
fn transport() -> quinn::TransportConfig {
    let window = 2 * LinkLimits::QUIC.window;
    let mut transport = quinn::TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(4))
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(2 * window))
        .send_window(u64::from(2 * window))
        .max_idle_timeout(Some(VarInt::from_u32(60_000).into()));
    transport
}

/// Accepts connections until the endpoint is closed.
pub async fn accept(endpoint: Endpoint, hub: Arc<Hub>, authority: Arc<Authority>, gate: Gate<Connection>) {
    let gate = Arc::new(gate);
    let mut tasks = JoinSet::new();
    tasks.spawn(turn_out_the_revoked(gate.clone(), authority.clone()));
    while let Some(incoming) = endpoint.accept().await {
        while tasks.try_join_next().is_some() {}
        let peer = incoming.remote_address();
        let pass = match gate.knock(peer.ip(), incoming.remote_address_validated(), Instant::now()) {
            Verdict::Accept(pass) => pass,
            Verdict::Retry if incoming.may_retry() => {
                // It may: that was just asked.
                let _ = incoming.retry();
                continue;
            }
            Verdict::Retry | Verdict::Refuse => {
                debug!(%peer, "refused: {}", Code::Busy);
                incoming.refuse();
                continue;
            }
        };
        let (hub, authority, gate) = (hub.clone(), authority.clone(), gate.clone());
        tasks.spawn(async move {
            match tokio::time::timeout(HANDSHAKE, incoming.into_future()).await {
                Ok(Ok(connection)) => serve(connection, &hub, &authority, &gate).await,
                Ok(Err(error)) => warn!(%peer, "handshake failed: {error}"),
                Err(_) => warn!(%peer, "handshake took longer than {HANDSHAKE:?}"),
            }
            drop(pass);
        });
    }
}

/// Who is revoked while connected is dropped soon.
async fn turn_out_the_revoked(gate: Arc<Gate<Connection>>, authority: Arc<Authority>) {
    loop {
        tokio::time::sleep(REVOCATION).await;
        let (inside, authority) = (gate.inside(), authority.clone());
        let check =
            move || inside.into_iter().filter(|(_, open)| identify(open, &authority).is_none()).collect();
        let revoked: Vec<_> = tokio::task::spawn_blocking(check).await.unwrap_or_default();
        for (device, connection) in revoked {
            warn!(%device, "dropped: {}", Code::UnknownDevice);
            close(&connection, Code::UnknownDevice);
        }
    }
}

async fn serve(connection: Connection, hub: &Arc<Hub>, authority: &Authority, gate: &Gate<Connection>) {
    let peer = connection.remote_address();
    let device = identify(&connection, authority);
    if protocol(&connection).as_deref() == Some(common::enrol::ALPN) {
        return enrol::serve(&connection, device, authority).await;
    }
    let Some(device) = device else {
        warn!(%peer, "refused: {}", Code::UnknownDevice);
        return close(&connection, Code::UnknownDevice);
    };
    if protocol(&connection).as_deref() == Some(wire::BRIDGE_ALPN) {
        return bridged::serve(&connection, hub, authority, &device).await;
    }
    let (conn, line) = hub.connect(device.clone());
    debug!(%device, %peer, "connected");
    if let Some(oldest) = gate.enter(&device, conn.0, connection.clone()) {
        close(&oldest, Code::Busy);
    }
    let end = converse(&connection, hub, conn, &line, &device).await;
    gate.leave(&device, conn.0);
    hub.disconnect(conn);
    match end {
        Err(End::Refused(code)) => {
            warn!(%device, %peer, "dropped: {code}");
            close(&connection, code);
        }
        Err(End::Link(reason)) => debug!(%device, "connection ended: {reason}"),
        Ok(()) => close(&connection, Code::Unexpected),
    }
}

/// Why a conversation is over.
enum End {
    Refused(Code),
    Link(String),
}

impl<E: std::error::Error> From<E> for End {
    fn from(error: E) -> Self {
        Self::Link(error.to_string())
    }
}

async fn converse(
    connection: &Connection,
    hub: &Hub,
    conn: ConnId,
    line: &Line,
    device: &DeviceId,
) -> Result<(), End> {
    // Whoever connects and says nothing is let go.
    let first = tokio::time::timeout(Duration::from_secs(20), connection.accept_bi()).await?;
    let (send, receive) = first?;
    info!(%device, "joined");
    tokio::select! {
        end = read_frames(receive, hub, conn) => end,
        end = read_transfers(connection, hub, conn) => end,
        end = write_frames(connection, send, hub, conn, line) => end,
    }
}

async fn read_transfers(connection: &Connection, hub: &Hub, conn: ConnId) -> Result<(), End> {
    loop {
        // One after the other: a device sends one update at a time, and a stream that was given up
        // ends with its reset.
        let stream = connection.accept_uni().await?;
        match read_frames(stream, hub, conn).await {
            Err(End::Refused(code)) => return Err(End::Refused(code)),
            Err(End::Link(_)) | Ok(()) => {}
        }
    }
}

async fn read_frames(mut stream: RecvStream, hub: &Hub, conn: ConnId) -> Result<(), End> {
    let limit = LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD;
    let mut frame = Vec::new();
    loop {
        let mut prefix = [0; 4];
        stream.read_exact(&mut prefix).await?;
        let outcome = match wire::frame_len(prefix, limit) {
            Ok(len) => {
                frame.resize(len, 0);
                match stream.read_exact(&mut frame).await {
                    Ok(()) => {}
                    Err(quinn::ReadExactError::FinishedEarly(_)) => frame.clear(),
                    Err(lost) => return Err(lost.into()),
                }
                hub.with(|coordinator, now| coordinator.handle_frame(conn, &frame, now))
            }
            // The Coordinator answers to what is no frame as to any bad one.
            Err(_) => hub.with(|coordinator, now| coordinator.handle_frame(conn, &[], now)),
        };
        if let Err(code) = outcome {
            // The writer still has to deliver the refusal.
            tokio::time::sleep(Duration::from_millis(200)).await;
            return Err(End::Refused(code));
        }
    }
}

async fn write_frames(
    connection: &Connection,
    mut control: SendStream,
    hub: &Hub,
    conn: ConnId,
    line: &Line,
) -> Result<(), End> {
    let mut transfer: Option<(u32, SendStream)> = None;
    let mut frame = Vec::new();
    loop {
        while let Some(lane) = hub.next_frame(conn, &mut frame) {
            let stream = match lane {
                Lane::Control => &mut control,
                Lane::Transfer(id) => {
                    if transfer.as_ref().is_none_or(|(open, _)| *open != id) {
                        if let Some((_, mut done)) = transfer.take() {
                            let _ = done.finish();
                        }
                        let stream = connection.open_uni().await?;
                        // Short messages go first.
                        let _ = stream.set_priority(-1);
                        transfer = Some((id, stream));
                    }
                    match &mut transfer {
                        Some((_, stream)) => stream,
                        None => &mut control,
                    }
                }
            };
            stream.write_all(&wire::frame_prefix(frame.len())).await?;
            stream.write_all(&frame).await?;
        }
        if line.is_closing() {
            let _ = control.finish();
            return std::future::pending().await;
        }
        line.woken().await;
    }
}

/// What the peers have agreed to speak.
fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?;
    data.protocol
}

fn identify(connection: &Connection, authority: &Authority) -> Option<DeviceId> {
    let identity = connection.peer_identity()?;
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    authority.device_of(chain.first()?)
}

fn close(connection: &Connection, code: Code) {
    connection.close(VarInt::from_u32(code.number().into()), code.text().as_bytes());
}
