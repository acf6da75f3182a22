//! The QUIC server: one task group per connection, mutual TLS, frames in and out.
//!
//! The device opens one bidirectional stream for control frames. Each side opens a unidirectional
//! stream per transfer for its chunks. Every frame has its length before it. On a further bidirectional stream it may
//! ask for a new certificate. A bridge, which speaks another ALPN, opens a bidirectional stream per serial device
//! instead.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Code, DeviceId, TierSet, certificate::Terms, printable::printable, wire};
use quinn::{Connection, Endpoint, VarInt};
use rustls::{RootCertStore, pki_types::CertificateDer, server::WebPkiClientVerifier};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tracing::{debug, info, warn};

use crate::{
    admission::{Admission, Decision, DeviceConnections, Permit, Refusal},
    ca::{Authority, CaError, has_expired},
    driver::{Driver, Line},
    enrol,
};
use coordinator::fleet::ConnId;

mod bridged;
mod reader;
mod shown;
mod socket;
mod writer;

use shown::Shown;
use socket::Socket;
use writer::Writer;

/// All devices share one socket, and thousands may send at the same moment.
const SOCKET_BUFFER: usize = 8 << 20;
/// Bytes of a connection id. As many as earlier programs have, so that their connections are reset, too.
const CONNECTION_ID: usize = 8;
/// How often open connections and sessions of boards are compared with who is enrolled.
const REVOCATION: Duration = Duration::from_secs(2);
/// How often the log is offered new refusals.
const REFUSALS: Duration = Duration::from_secs(1);

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
const PROTOCOLS: [&[u8]; 4] = [wire::ALPN, wire::ALPN_4, wire::BRIDGE_ALPN, common::enrol::ALPN];

pub fn listen(authority: &Authority, address: SocketAddr) -> Result<Endpoint, QuicError> {
    listen_as(authority, address, &PROTOCOLS)
}

/// An endpoint with the server's certificate and transport that speaks other protocols.
pub fn listen_as(
    authority: &Authority,
    address: SocketAddr,
    protocols: &[&[u8]],
) -> Result<Endpoint, QuicError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let shown = Shown::new(authority, &provider)?;
    let config = server_config(authority, shown.clone(), protocols)?;
    let failed = |source| QuicError::Listen { address, source };
    let socket = UdpSocket::bind(address).map_err(failed)?;
    // As much as the system gives: what does not fit is lost and sent again.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER);
    let runtime = Arc::new(quinn::TokioRuntime);
    let socket = Socket::new(socket, &*runtime).map_err(failed)?;
    let endpoint = endpoint_config(authority)?;
    let endpoint =
        Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, runtime).map_err(failed)?;
    tokio::spawn(shown::watch(Arc::downgrade(&shown)));
    Ok(endpoint)
}

/// Connections that were open when the aggregator was killed are reset by its successor, because both
/// form reset tokens from the same key; otherwise devices would wait for their idle timeout. After a new server key they do.
///
/// Connection ids are random, so that they tell an observer nothing. A successor need not recognise them: it answers every
/// packet of a connection it does not know with a reset, which means something to that connection's owner alone.
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
    shown: Arc<Shown>,
    protocols: &[&[u8]],
) -> Result<quinn::ServerConfig, QuicError> {
    let tls = tls_config(authority, shown, protocols)?;
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport()));
    Ok(config)
}

fn tls_config(
    authority: &Authority,
    shown: Arc<Shown>,
    protocols: &[&[u8]],
) -> Result<rustls::ServerConfig, QuicError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.root()?)?;
    // Strangers get as far as the protocol of enrolment, where a token is asked for.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(shown);
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // A resumed session is believed to have the certificate of the first one, expired or not. A whole fleet that comes
    // back pays for whole handshakes, which the limit per second allows for.
    tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    Ok(tls)
}

/// What one connection may have on its way in either direction. Lists in quinn and tokio stay as long as they ever
/// were, so with thousands of connections long windows cost memory that fills up round after round; with a few, short
/// ones cost time. The tight windows are less than 32 packets, or acknowledgements of them, which is what tokio's queues
/// allocate at a time; at 200 ms they still carry 180 KB per second.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Windows {
    /// Bytes that may wait for us.
    receive: u32,
    /// Bytes on their way to the device: shared between devices, but every packet is remembered until it is acknowledged.
    send: u32,
}

impl Windows {
    const TIGHT: Self = Self { receive: 36 << 10, send: 64 << 10 };
    const ROOMY: Self = Self { receive: 128 << 10, send: 256 << 10 };
    /// For all connections together.
    const ALL: Self = Self { receive: 16 << 20, send: 32 << 20 };

    fn among(connections: usize) -> Self {
        let connections = u32::try_from(connections).unwrap_or(u32::MAX).max(1);
        let (tight, roomy) = (Self::TIGHT, Self::ROOMY);
        Self {
            receive: (Self::ALL.receive / connections).clamp(tight.receive, roomy.receive),
            send: (Self::ALL.send / connections).clamp(tight.send, roomy.send),
        }
    }
}

/// Gives a connection the windows that are right among so many.
pub fn fit(connection: &Connection, connections: usize) {
    let Windows { receive, send } = Windows::among(connections);
    connection.set_receive_window(VarInt::from_u32(receive));
    connection.set_send_window(send.into());
}

fn transport() -> quinn::TransportConfig {
    let mut transport = quinn::TransportConfig::default();
    transport
        // Messages, and a question for a new certificate.
        .max_concurrent_bidi_streams(VarInt::from_u32(2))
        // A device sends one update at a time. quinn keeps the lists of as many streams as there may be, for good, and
        // comes round to the last of them only after as many rounds.
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        .stream_receive_window(VarInt::from_u32(Windows::ROOMY.receive))
        .receive_window(VarInt::from_u32(Windows::TIGHT.receive))
        .send_window(Windows::TIGHT.send.into())
        // Nobody reads datagrams: quinn would keep more than a megabyte of them for every stranger.
        .datagram_receive_buffer_size(None)
        .datagram_send_buffer_size(0)
        .max_idle_timeout(Some(VarInt::from_u32(60_000).into()));
    transport
}

/// How long peers are waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Waits {
    /// Until a peer has proved who it is.
    pub handshake: Duration,
    /// Until its first message.
    pub hello: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { handshake: Duration::from_secs(20), hello: Duration::from_secs(20) }
    }
}

/// A peer that has proved who it is.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A device or a bridge.
    Direct(Connection),
    /// A board behind a bridge. Its session ends when it is notified.
    Board(Arc<Notify>),
}

impl Peer {
    fn disconnect(&self, code: Code) {
        match self {
            Self::Direct(connection) => close(connection, code),
            Self::Board(end) => end.notify_one(),
        }
    }
}

/// What all connections share.
#[derive(Debug)]
pub struct Context {
    pub driver: Arc<Driver>,
    pub authority: Arc<Authority>,
    pub admission: Admission,
    pub devices: DeviceConnections<Peer>,
    /// Places for models on their way to devices.
    pub downloads: Semaphore,
    pub waits: Waits,
}

/// Accepts connections until the endpoint is closed.
pub async fn accept(endpoint: Endpoint, context: Context) {
    let context = Arc::new(context);
    let mut tasks = JoinSet::new();
    tasks.spawn(disconnect_revoked(context.clone()));
    tasks.spawn(log_refusals(context.clone()));
    while let Some(incoming) = endpoint.accept().await {
        while tasks.try_join_next().is_some() {}
        let peer = incoming.remote_address();
        let validated = incoming.remote_address_validated();
        let mut permit = match context.admission.decide(peer.ip(), validated, Instant::now()) {
            Decision::Accept(permit) => permit,
            Decision::Retry if incoming.may_retry() => {
                // It may: that was just asked.
                let _ = incoming.retry();
                continue;
            }
            // It cannot be asked again.
            Decision::Retry => {
                incoming.refuse();
                continue;
            }
            Decision::Refuse(refusal) => {
                debug!(%peer, "refused: {}", refusal.text());
                incoming.refuse();
                continue;
            }
        };
        let context = context.clone();
        tasks.spawn(async move {
            let limit = context.waits.handshake;
            match tokio::time::timeout(limit, incoming.into_future()).await {
                Ok(Ok(connection)) => serve(connection, &context, &mut permit).await,
                Ok(Err(error)) => {
                    context
                        .admission
                        .count_refusal(Refusal::Handshake, &format_args!("{peer}: {}", printable(&error)));
                }
                Err(_) => context
                    .admission
                    .count_refusal(Refusal::Handshake, &format_args!("{peer}: nothing for {limit:?}")),
            }
            drop(permit);
        });
    }
}

/// Closes connections of revoked devices, and of devices whose certificate has expired.
async fn disconnect_revoked(context: Arc<Context>) {
    let mut restored = BTreeSet::new();
    loop {
        let (context, said) = (context.clone(), restored.clone());
        let check = move || {
            context.devices.all().into_iter().for_each(|(device, open)| context.check(&device, &open));
            context.remove_revoked();
            context.warn_of_restored(said)
        };
        // Should it panic, it is tried again.
        restored = tokio::task::spawn_blocking(check).await.unwrap_or(restored);
        tokio::time::sleep(REVOCATION).await;
    }
}

impl Context {
    /// Closes a connection whose device is no longer a member. It stays while the files cannot be read.
    fn check(&self, device: &DeviceId, peer: &Peer) {
        // Sessions of boards check themselves.
        let Peer::Direct(open) = peer else { return };
        let code = match look_up(certificate(open), &self.authority) {
            Ok(_) => return,
            Err(Fault::Unclear(error)) => return self.admission.count_refusal(Refusal::Unclear, &error),
            // It may have a new one already.
            Err(Fault::Expired) => Code::NotReady,
            Err(Fault::Unknown) => Code::UnknownDevice,
        };
        warn!(%device, "dropped: {code}");
        close(open, code);
    }

    /// Warns once of each revoked device whose file a backup has restored. Returns those that were named.
    fn warn_of_restored(&self, said: BTreeSet<DeviceId>) -> BTreeSet<DeviceId> {
        let restored = match self.authority.restored() {
            Ok(restored) => restored.into_iter().collect::<BTreeSet<_>>(),
            Err(error) => {
                self.admission.count_refusal(Refusal::Unclear, &error);
                return said;
            }
        };
        for device in restored.difference(&said) {
            warn!(
                %device,
                "revoked, but its file is in identity/ again, as after restoring a backup: it stays refused; \
                 `fairtier gateway enroll --replace` makes it a member again, `fairtier gateway revoke` removes the file"
            );
        }
        restored
    }

    /// Removes revoked devices from the fleet, connected or not. They stay while the files cannot be read.
    pub fn remove_revoked(&self) {
        for device in self.driver.members() {
            match self.authority.is_member(&device) {
                Ok(true) => {}
                Ok(false) => {
                    warn!(%device, "revoked: it is not waited for, and not counted any more");
                    self.driver.with(|coordinator, now| coordinator.handle_revoked(&device, now));
                }
                Err(error) => return self.admission.count_refusal(Refusal::Unclear, &error),
            }
        }
    }
}

/// Logs refusals, so that an operator finds limits that are too low for the fleet.
async fn log_refusals(context: Arc<Context>) {
    loop {
        tokio::time::sleep(REFUSALS).await;
        if let Some(refused) = context.admission.poll_refusals(Instant::now()) {
            warn!("connections refused: {refused}");
        }
    }
}

async fn serve(connection: Connection, context: &Arc<Context>, permit: &mut Permit) {
    let Context { driver, authority, admission, devices, .. } = &**context;
    let peer = connection.remote_address();
    if protocol(&connection).as_deref() == Some(common::enrol::ALPN) {
        return enrol::serve(&connection, authority, admission).await;
    }
    let (device, terms) = match identify(&connection, authority).await {
        Ok(known) => known,
        Err(fault) => {
            admission.count_refusal(fault.refusal(), &format_args!("{peer}: {fault}"));
            return close(&connection, fault.code());
        }
    };
    if !permit.admit() {
        return close(&connection, Code::Busy);
    }
    let (key, oldest) = devices.add(&device, Peer::Direct(connection.clone()));
    if let Some(oldest) = oldest {
        oldest.disconnect(Code::Displaced);
    }
    if protocol(&connection).as_deref() == Some(wire::BRIDGE_ALPN) {
        bridged::serve(&connection, context, &device).await;
        return devices.remove(&key);
    }
    let (conn, line) = driver.connect(device.clone(), terms.map_or(TierSet::ALL, |terms| terms.tiers));
    debug!(%device, %peer, "connected");
    let end = converse(&connection, context, conn, &line, &device).await;
    devices.remove(&key);
    driver.disconnect(conn);
    match end {
        // The reason is said once for each device, with its figures.
        Err(End::Refused(code)) => {
            debug!(%device, %peer, "dropped: {code}");
            close(&connection, code);
        }
        Err(End::Displaced) => {
            info!(%device, %peer, "joined again; its earlier connection is closed");
            close(&connection, Code::Displaced);
        }
        Err(End::Link(reason)) => {
            // The connection knows better than a stream why it ended.
            let reason = connection.close_reason().map_or(reason, |why| printable(&why));
            debug!(%device, "connection ended: {reason}");
        }
        Ok(()) => close(&connection, Code::Unexpected),
    }
}

/// Why a conversation is over.
enum End {
    Refused(Code),
    /// The device has joined on another connection.
    Displaced,
    Link(String),
}

impl<E: std::error::Error> From<E> for End {
    /// The peer may have chosen what it says.
    fn from(error: E) -> Self {
        Self::Link(printable(&error))
    }
}

async fn converse(
    connection: &Connection,
    context: &Context,
    conn: ConnId,
    line: &Line,
    device: &DeviceId,
) -> Result<(), End> {
    // A connection on which nothing is said is closed.
    let first = tokio::time::timeout(context.waits.hello, connection.accept_bi()).await?;
    let (send, receive) = first?;
    info!(%device, "joined");
    tokio::select! {
        end = reader::messages(receive, &context.driver, conn) => end,
        end = reader::transfers(connection, &context.driver, conn) => end,
        end = Writer::new(connection, send, context, conn, line).run() => end,
        end = enrol::renewals(connection, device, &context.authority, &context.admission) => Err(end.into()),
        () = line.displaced() => Err(End::Displaced),
    }
}

/// What the peers have agreed to speak.
fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?;
    data.protocol
}

/// Why a peer is turned away.
#[derive(Debug)]
enum Fault {
    Unknown,
    Expired,
    /// Nobody can tell; the peer may ask again.
    Unclear(String),
}

impl Fault {
    fn code(&self) -> Code {
        match self {
            Self::Unknown => Code::UnknownDevice,
            Self::Expired => Code::BadCertificate,
            Self::Unclear(_) => Code::NotReady,
        }
    }

    fn refusal(&self) -> Refusal {
        match self {
            Self::Unknown | Self::Expired => Refusal::Unknown,
            Self::Unclear(_) => Refusal::Unclear,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "{}", Code::UnknownDevice),
            Self::Expired => f.write_str("its certificate has expired"),
            Self::Unclear(error) => f.write_str(error),
        }
    }
}

/// Who the peer is, and under which terms its certificate says so. The disk is waited for elsewhere.
async fn identify(
    connection: &Connection,
    authority: &Authority,
) -> Result<(DeviceId, Option<Terms>), Fault> {
    let (certificate, authority) = (certificate(connection), authority.clone());
    let known = tokio::task::spawn_blocking(move || look_up(certificate, &authority)).await;
    known.unwrap_or_else(|error| Err(Fault::Unclear(error.to_string())))
}

fn look_up(
    certificate: Option<CertificateDer<'_>>,
    authority: &Authority,
) -> Result<(DeviceId, Option<Terms>), Fault> {
    let certificate = certificate.ok_or(Fault::Unknown)?;
    let terms = Terms::of(&certificate);
    if has_expired(terms.as_ref()) {
        return Err(Fault::Expired);
    }
    match authority.device_of(&certificate) {
        Ok(device) => Ok((device.ok_or(Fault::Unknown)?, terms)),
        Err(error) => Err(Fault::Unclear(error.to_string())),
    }
}

/// What the peer proves itself with.
pub(crate) fn certificate(connection: &Connection) -> Option<CertificateDer<'static>> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.into_iter().next()
}

fn close(connection: &Connection, code: Code) {
    connection.close(VarInt::from_u32(code.number().into()), code.text().as_bytes());
}

#[cfg(test)]
mod tests;
