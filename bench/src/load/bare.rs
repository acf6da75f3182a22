//! The same bytes through bare QUIC streams: without messages, checksums, disk or aggregation.
//!
//! As with the aggregator, one process serves and this process holds the clients. When told to start a round, the
//! server opens a stream to every client and writes a model. Each client reads it and writes an update back on its
//! own stream. When all updates have arrived, the server reports the end of the round.
//!
//! The aggregator is compared with [`StreamSetup::Plain`], an untuned program: quinn's default endpoint, socket and
//! transport on the server, and quinn's default transport on the clients. The bytes, the number of clients and mutual
//! TLS are the same as for the aggregator. Devices and bare clients share sockets in the same way, so that only the
//! server differs. [`StreamSetup::Tuned`] uses the aggregator's transport and shows the cost of the protocol, the
//! disk and the aggregation alone. Both run in this program with the system's allocator.

use std::{
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use aggregator::{ca::Authority, quic};
use bytes::Bytes;
use client::host::{SILENCE, client_config};
use quinn::{Connection, Endpoint, RecvStream, TransportConfig, crypto::rustls::QuicServerConfig};
use rustls::{RootCertStore, server::WebPkiClientVerifier};
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Barrier,
    task::JoinSet,
};

use super::{
    LoadError, PATIENCE,
    fleet::{self, LoadDevice},
    gateway,
    reader::PACKETS,
};

/// ALPN protocol of the handshake.
const ALPN: &[u8] = b"bare";

/// A third of quinn's default idle timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How QUIC is set up.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamSetup {
    /// quinn's defaults.
    Plain,
    /// The transport of the aggregator and the devices.
    Tuned,
}

impl StreamSetup {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tuned => "tuned",
        }
    }
}

/// Options of the serving process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bare {
    pub setup: StreamSetup,
    pub devices: usize,
    /// Bytes down and up.
    pub bytes: [u32; 2],
}

/// A server and its clients, connected.
#[derive(Debug)]
pub(super) struct Streams {
    server: Child,
    go: ChildStdin,
    done: Lines<BufReader<ChildStdout>>,
    clients: JoinSet<Result<(), LoadError>>,
}

impl Streams {
    pub async fn open(
        dir: &Path,
        members: &[LoadDevice],
        setup: StreamSetup,
        bytes: [u32; 2],
    ) -> Result<Self, LoadError> {
        let mut command = Command::new(gateway::program()?);
        command.args(["bench", "bare"]).arg("--dir").arg(dir).arg("--setup").arg(setup.name());
        command.arg("--devices").arg(members.len().to_string());
        command.arg("--down").arg(bytes[0].to_string()).arg("--up").arg(bytes[1].to_string());
        command.stdin(Stdio::piped());
        let (mut server, address, output) = gateway::start("fairtier bench bare", &mut command).await?;
        let go =
            server.stdin.take().ok_or_else(|| failed(&"the server's standard input is not available"))?;
        let endpoints = fleet::endpoints(members.len())?;
        let update = Bytes::from(vec![7; bytes[1] as usize]);
        let mut clients = JoinSet::new();
        for (index, member) in members.iter().enumerate() {
            let endpoint = endpoints[fleet::socket_of(index)].clone();
            clients.spawn(client(endpoint, address, member.clone(), setup, update.clone()));
        }
        Ok(Self { server, go, done: output.lines(), clients })
    }

    /// Runs one round and returns its seconds.
    pub async fn round(&mut self) -> Result<f64, LoadError> {
        let begin = Instant::now();
        self.go.write_all(b"go\n").await.map_err(|lost| failed(&lost))?;
        tokio::select! {
            done = self.done.next_line() => match done {
                Ok(Some(_)) => Ok(begin.elapsed().as_secs_f64()),
                Ok(None) => Err(failed(&"the server has ended")),
                Err(lost) => Err(failed(&lost)),
            },
            Some(ended) = self.clients.join_next() => {
                ended.map_err(|error| failed(&error))??;
                Err(failed(&"a client has ended"))
            }
        }
    }

    pub async fn close(mut self) {
        // The server ends when its input is closed, and then the clients end.
        drop(self.go);
        let _ = tokio::time::timeout(PATIENCE, self.server.wait()).await;
    }
}

async fn client(
    endpoint: Endpoint,
    server: SocketAddr,
    member: LoadDevice,
    setup: StreamSetup,
    update: Bytes,
) -> Result<(), LoadError> {
    let config = client_of(&member, setup)?;
    let (connection, _) = fleet::connect(&endpoint, server, &member, &config).await?;
    while let Ok(model) = connection.accept_uni().await {
        drain(model).await?;
        let mut stream = connection.open_uni().await.map_err(|error| failed(&error))?;
        stream.write_chunk(update.clone()).await.map_err(|error| failed(&error))?;
        stream.finish().map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Runs the serving process and calls `listening` with its address. Every line of input starts a round; a line of
/// output reports its end. It ends with its input.
pub async fn serve(dir: &Path, bare: Bare, listening: impl FnOnce(SocketAddr)) -> Result<(), LoadError> {
    let endpoint = listen(&Authority::open(dir)?, bare.setup)?;
    let address = endpoint
        .local_addr()
        .map_err(|source| LoadError::Io { what: "the socket's address".into(), source })?;
    listening(address);
    let barrier = Arc::new(Barrier::new(bare.devices + 1));
    let model = Bytes::from(vec![7; bare.bytes[0] as usize]);
    let mut connections = JoinSet::new();
    for _ in 0..bare.devices {
        let incoming =
            endpoint.accept().await.ok_or_else(|| LoadError::Tls("the endpoint is closed".into()))?;
        let (barrier, model) = (barrier.clone(), model.clone());
        connections.spawn(async move {
            let connection = incoming.await.map_err(|error| failed(&error))?;
            if bare.setup == StreamSetup::Tuned {
                quic::set_windows(&connection, bare.devices);
            }
            exchange(&connection, &barrier, &model).await
        });
    }
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = input.next_line().await {
        // The start and the end of the round.
        for _ in 0..2 {
            tokio::select! {
                _ = barrier.wait() => {}
                Some(ended) = connections.join_next() => ended.map_err(|error| failed(&error))??,
            }
        }
        common::output::print("done\n").map_err(|error| failed(&error))?;
    }
    connections.shutdown().await;
    endpoint.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

fn listen(authority: &Authority, setup: StreamSetup) -> Result<Endpoint, LoadError> {
    let address = ([127, 0, 0, 1], 0).into();
    match setup {
        StreamSetup::Plain => Endpoint::server(plain_server(authority)?, address)
            .map_err(|source| LoadError::Io { what: "cannot open a socket".into(), source }),
        StreamSetup::Tuned => quic::listen_as(authority, address, &[ALPN]).map_err(|error| tls(&error)),
    }
}

/// Mutual TLS on top of quinn's defaults.
fn plain_server(authority: &Authority) -> Result<quinn::ServerConfig, LoadError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.root()?).map_err(|error| tls(&error))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| tls(&error))?;
    let (certificate, key) = authority.server()?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| tls(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate, authority.root()?], key)
        .map_err(|error| tls(&error))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(config).map_err(|error| tls(&error))?;
    Ok(quinn::ServerConfig::with_crypto(Arc::new(crypto)))
}

fn client_of(member: &LoadDevice, setup: StreamSetup) -> Result<quinn::ClientConfig, LoadError> {
    let mut config = client_config(&member.identity, &[ALPN], SILENCE).map_err(|error| tls(&error))?;
    if setup == StreamSetup::Plain {
        let mut transport = TransportConfig::default();
        // Without it, quinn would close connections that are silent for 30 s during the aggregator's turn.
        transport.keep_alive_interval(Some(KEEP_ALIVE));
        config.transport_config(Arc::new(transport));
    }
    Ok(config)
}

/// Takes part in rounds until the connection ends.
async fn exchange(connection: &Connection, barrier: &Barrier, model: &Bytes) -> Result<(), LoadError> {
    loop {
        barrier.wait().await;
        let mut stream = connection.open_uni().await.map_err(|error| failed(&error))?;
        stream.write_chunk(model.clone()).await.map_err(|error| failed(&error))?;
        stream.finish().map_err(|error| failed(&error))?;
        drain(connection.accept_uni().await.map_err(|error| failed(&error))?).await?;
        barrier.wait().await;
    }
}

/// Reads all available packets at once, as the aggregator and the devices under load do.
async fn drain(mut stream: RecvStream) -> Result<(), LoadError> {
    loop {
        let mut chunks = [const { Bytes::new() }; PACKETS];
        if stream.read_chunks(&mut chunks).await.map_err(|error| failed(&error))?.is_none() {
            return Ok(());
        }
    }
}

fn tls(error: &dyn std::fmt::Display) -> LoadError {
    LoadError::Tls(error.to_string())
}

fn failed(error: &dyn std::fmt::Display) -> LoadError {
    LoadError::Device { device: "bare streams".into(), what: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_plain_reference_has_quinns_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let config = plain_server(&authority).unwrap();
        assert_eq!(format!("{:?}", config.transport), format!("{:?}", TransportConfig::default()));

        let member = &fleet::enrol(&authority, 1).unwrap()[0];
        let server = listen(&authority, StreamSetup::Plain).unwrap();
        let client = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let config = client_of(member, StreamSetup::Plain).unwrap();
        let mut transport = TransportConfig::default();
        transport.keep_alive_interval(Some(KEEP_ALIVE));
        let shown = format!("{config:?}");
        assert!(shown.contains(&format!("{transport:?}")), "{shown}");

        let accepted = async { server.accept().await.unwrap().await.unwrap() };
        let address = server.local_addr().unwrap();
        let (accepted, connected) = tokio::join!(accepted, fleet::connect(&client, address, member, &config));
        // The client has authenticated itself.
        assert!(connected.is_ok() && accepted.peer_identity().is_some());
    }
}
