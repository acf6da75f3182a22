//! The QUIC link of a device: one control stream and one stream per transfer, with length-prefixed frames.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use common::{
    Code, TransferId, Versions,
    printable::printable,
    transfer::{Lane, LinkLimits},
    wire::{self, SERVER_NAME},
};
use quinn::{
    Connection, ConnectionError, Endpoint, RecvStream, SendStream, VarInt,
    crypto::rustls::NoInitialCipherSuite,
};
use tokio::{sync::mpsc, task::JoinSet};

use super::identity::Identity;

/// Not a final error: the right server may answer the next time.
pub(super) const OLD_SERVER: &str = "the server's certificate is older than one that this device has seen: its key may be \
                                     stolen, or the gateway's identity/ was restored from a backup; \
                                     `fairtier gateway rotate-server-key` on the gateway gives it a new one";

/// Idle timeout of the gateway. QUIC uses the shorter timeout of both ends.
const GATEWAY_SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum LinkError {
    /// The authenticated aggregator has closed the connection with a reason.
    #[error("{0}")]
    Refused(Code),
    /// The server takes no further connection now. An attacker on the path can forge this.
    #[error("{0}")]
    NoRoom(String),
    /// The server speaks none of the protocols that were offered. An attacker on the path can forge this.
    #[error("{0}; the server speaks no version of the protocol that this program knows")]
    OtherProtocol(String),
    #[error("{0}")]
    Lost(String),
}

/// TLS alerts as QUIC's error codes.
const ALERTS: std::ops::Range<u64> = 0x100..0x200;
/// The alert for a peer that speaks none of our protocols.
const NO_PROTOCOL: u64 = 0x178;
/// QUIC's error code of a server that refuses a connection.
const CONNECTION_REFUSED: u64 = 0x2;

impl LinkError {
    /// From an error whose text the peer may have chosen.
    pub(super) fn lost(error: &dyn std::fmt::Display) -> Self {
        Self::Lost(printable(error))
    }

    /// The gateway has no room or is not ready, so that another one may serve the device.
    pub(super) fn is_turned_away(&self) -> bool {
        matches!(self, Self::NoRoom(_) | Self::Refused(Code::Busy | Code::NotReady))
    }

    /// From an error before the handshake is complete, when an attacker on the path can forge any reason.
    pub(super) fn before_proof(error: &ConnectionError) -> Self {
        let code = match error {
            ConnectionError::TransportError(error) => u64::from(error.code),
            ConnectionError::ConnectionClosed(close) => u64::from(close.error_code),
            _ => 0,
        };
        let reason = printable(error);
        match code {
            CONNECTION_REFUSED => Self::NoRoom(reason),
            NO_PROTOCOL => Self::OtherProtocol(reason),
            code if ALERTS.contains(&code) => {
                Self::Lost(format!("{reason}; is --server the gateway that made this identity or token?"))
            }
            _ => Self::Lost(reason),
        }
    }
}

/// From an error of a connection whose handshake is complete.
impl From<ConnectionError> for LinkError {
    fn from(error: ConnectionError) -> Self {
        match &error {
            ConnectionError::ApplicationClosed(close) => {
                let code = u16::try_from(close.error_code.into_inner()).ok().and_then(Code::of);
                code.map_or_else(|| Self::lost(&error), Self::Refused)
            }
            // The gateway checks the device's certificate after the device has completed its handshake.
            ConnectionError::ConnectionClosed(close) if ALERTS.contains(&u64::from(close.error_code)) => {
                Self::Refused(Code::BadCertificate)
            }
            _ => Self::lost(&error),
        }
    }
}

/// Protocols of a device, newest first.
const PROTOCOLS: [&[u8]; 2] = [wire::ALPN, wire::ALPN_4];

/// The protocol that the peers have negotiated.
fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?;
    data.protocol
}

/// An open link.
#[derive(Debug)]
pub(super) struct QuicLink {
    connection: Connection,
    control: SendStream,
    transfer: Option<(TransferId, SendStream)>,
    frames: mpsc::Receiver<Result<Vec<u8>, LinkError>>,
    _readers: JoinSet<()>,
}

/// A socket for outgoing connections.
pub(super) fn endpoint(server: SocketAddr) -> io::Result<Endpoint> {
    Endpoint::client(local(server))
}

/// The local address of connections to a server.
fn local(server: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match (server.is_ipv4(), server.ip().is_loopback()) {
        (true, true) => Ipv4Addr::LOCALHOST.into(),
        (true, false) => Ipv4Addr::UNSPECIFIED.into(),
        (false, true) => Ipv6Addr::LOCALHOST.into(),
        (false, false) => Ipv6Addr::UNSPECIFIED.into(),
    };
    (ip, 0).into()
}

/// Sockets for outgoing connections to several servers: one for each kind of address.
#[derive(Debug)]
pub(super) struct Sockets(Vec<(SocketAddr, Endpoint)>);

impl Sockets {
    /// Fails if there is no socket for any of these servers.
    pub(super) fn open(servers: &[SocketAddr]) -> io::Result<Self> {
        let (mut this, mut failed) = (Self(vec![]), None);
        for &server in servers {
            failed = this.to(server).err().or(failed);
        }
        match failed {
            Some(error) if this.0.is_empty() => Err(error),
            _ => Ok(this),
        }
    }

    /// The socket for connections to a server.
    pub(super) fn to(&mut self, server: SocketAddr) -> io::Result<Endpoint> {
        let local = local(server);
        if let Some((_, open)) = self.0.iter().find(|(address, _)| *address == local) {
            return Ok(open.clone());
        }
        let endpoint = Endpoint::client(local)?;
        self.0.push((local, endpoint.clone()));
        Ok(endpoint)
    }

    /// Waits until all connections are closed.
    pub(super) async fn wait_idle(&self) {
        for (_, endpoint) in &self.0 {
            endpoint.wait_idle().await;
        }
    }
}

/// How a device connects: identity, protocols and idle timeout.
pub fn client_config(
    identity: &Identity,
    protocols: &[&[u8]],
    silence: Duration,
) -> Result<quinn::ClientConfig, NoInitialCipherSuite> {
    let mut tls = (*identity.tls()).clone();
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls)?;
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport(silence)));
    Ok(config)
}

/// Opens a connection that speaks one of `protocols`.
pub(super) async fn connect(
    sockets: &mut Sockets,
    server: SocketAddr,
    identity: &Identity,
    protocols: &[&[u8]],
    silence: Duration,
) -> Result<Connection, LinkError> {
    let endpoint = sockets.to(server).map_err(|error| LinkError::lost(&error))?;
    let config = client_config(identity, protocols, silence).map_err(|error| LinkError::lost(&error))?;
    let connecting =
        endpoint.connect_with(config, server, SERVER_NAME).map_err(|error| LinkError::lost(&error))?;
    let connected = tokio::time::timeout(Duration::from_secs(10), connecting)
        .await
        .map_err(|_| LinkError::Lost("no answer within 10 s".into()))?;
    let connection = connected.map_err(|error| match identity.freshness().take_refused() {
        true => LinkError::Lost(OLD_SERVER.into()),
        false => LinkError::before_proof(&error),
    })?;
    identity.note_server(&connection);
    Ok(connection)
}

impl QuicLink {
    pub(super) async fn connect(
        sockets: &mut Sockets,
        server: SocketAddr,
        identity: &Identity,
        silence: Duration,
    ) -> Result<Self, LinkError> {
        let connection = connect(sockets, server, identity, &PROTOCOLS, silence).await?;
        let (control, receive) = connection.open_bi().await?;
        let (sender, frames) = mpsc::channel(32);
        let mut readers = JoinSet::new();
        readers.spawn(read_control(connection.clone(), receive, sender.clone()));
        readers.spawn(read_transfers(connection.clone(), sender));
        Ok(Self { connection, control, transfer: None, frames, _readers: readers })
    }

    pub(super) async fn send(&mut self, lane: Lane, frame: &[u8]) -> Result<(), LinkError> {
        let stream = match lane {
            Lane::Control => &mut self.control,
            Lane::Transfer(id) => {
                let stream = match self.transfer.take() {
                    Some((open, stream)) if open == id => stream,
                    before => {
                        self.transfer = before;
                        self.end_transfer();
                        self.connection.open_uni().await?
                    }
                };
                &mut self.transfer.insert((id, stream)).1
            }
        };
        let prefix = wire::frame_prefix(frame.len());
        let sent = match stream.write_all(&prefix).await {
            Ok(()) => stream.write_all(frame).await,
            failed => failed,
        };
        match sent {
            Ok(()) => Ok(()),
            Err(quinn::WriteError::ConnectionLost(error)) => Err(error.into()),
            Err(error) => Err(LinkError::lost(&error)),
        }
    }

    /// Closes the stream of a finished update. The aggregator admits one such stream at a time, so the next one need not wait.
    pub(super) fn end_transfer(&mut self) {
        if let Some((_, mut done)) = self.transfer.take() {
            let _ = done.finish();
        }
    }

    pub(super) async fn receive(&mut self) -> Result<Vec<u8>, LinkError> {
        self.frames.recv().await.unwrap_or_else(|| Err(LinkError::Lost("link is closed".into())))
    }

    /// A frame that has already arrived.
    pub(super) fn try_receive(&mut self) -> Option<Result<Vec<u8>, LinkError>> {
        self.frames.try_recv().ok()
    }

    /// The versions that Hello may name: a gateway of protocol 4 reads none.
    pub(super) fn versions(&self) -> Versions {
        if protocol(&self.connection).as_deref() == Some(wire::ALPN) {
            Versions::OURS
        } else {
            Versions::FOUR
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Waits until everything sent is delivered, then closes.
    pub(super) async fn close(mut self) {
        let _ = self.control.finish();
        let _ = tokio::time::timeout(Duration::from_secs(1), self.control.stopped()).await;
        self.connection.close(VarInt::from_u32(0), b"");
    }
}

/// Keeps an idle connection alive, and allows a transfer's whole window in flight.
fn transport(silence: Duration) -> quinn::TransportConfig {
    let window = 2 * LinkLimits::QUIC.window;
    let mut transport = quinn::TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(4))
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(2 * window))
        .keep_alive_interval(Some(silence.min(GATEWAY_SILENCE) / 4))
        // The number of milliseconds always fits a VarInt.
        .max_idle_timeout(silence.try_into().ok());
    transport
}

type Frames = mpsc::Sender<Result<Vec<u8>, LinkError>>;

async fn read_control(connection: Connection, stream: RecvStream, frames: Frames) {
    let error = read_frames(stream, &frames).await;
    // The connection's reason is more precise than the stream's.
    let reason = match tokio::time::timeout(Duration::from_millis(500), connection.closed()).await {
        Ok(reason) => reason.into(),
        Err(_) => LinkError::Lost(error),
    };
    let _ = frames.send(Err(reason)).await;
}

async fn read_transfers(connection: Connection, frames: Frames) {
    while let Ok(stream) = connection.accept_uni().await {
        read_frames(stream, &frames).await;
    }
}

/// Reads until the stream ends and returns why.
async fn read_frames(mut stream: RecvStream, frames: &Frames) -> String {
    let limit = LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD;
    loop {
        let mut prefix = [0; 4];
        if let Err(error) = stream.read_exact(&mut prefix).await {
            return printable(&error);
        }
        let len = match wire::frame_len(prefix, limit) {
            Ok(len) => len,
            Err(error) => return printable(&error),
        };
        let mut frame = vec![0; len];
        if let Err(error) = stream.read_exact(&mut frame).await {
            return printable(&error);
        }
        if frames.send(Ok(frame)).await.is_err() {
            return "the link was dropped".into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_follows_the_shorter_idle_timeout() {
        for (silence, every) in [(4, "1s"), (60, "15s"), (3600, "15s")] {
            let shown = format!("{:?}", transport(Duration::from_secs(silence)));
            assert!(shown.contains(&format!("keep_alive_interval: Some({every})")), "{shown}");
        }
    }
}
