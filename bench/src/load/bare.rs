//! The same bytes through QUIC streams with nothing around them: no messages, no checksums, no disk, no sum.
//!
//! One process serves and this one has the clients, as with the aggregator. When the server is told so, it opens a
//! stream to every client and writes a model; each client reads it all and writes an update back on a stream of its
//! own; when all have arrived, the server says so.
//!
//! What the aggregator is held against is [`StreamSetup::Plain`]: quinn's own endpoint, socket and transport on the server and
//! quinn's own transport on the clients, as anybody would write it who has not tuned anything. Only the bytes, the number of
//! clients and mutual TLS are ours, and the sockets on the clients' side: devices and bare clients share theirs in
//! the same way, so that what differs is the server. [`StreamSetup::Tuned`] has the aggregator's transport and shows what the protocol,
//! the disk and the sum cost without it. Both run in this program, which has the system's allocator.

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

/// How peers name this in their handshake.
const ALPN: &[u8] = b"bare";

/// A third of what quinn bears.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How QUIC is set up.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamSetup {
    /// As quinn comes.
    Plain,
    /// As the aggregator and the devices have it.
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

/// What the serving process is told.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bare {
    pub setup: StreamSetup,
    pub devices: usize,
    /// Down and up.
    pub bytes: [u32; 2],
}

/// Both ends, connected.
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
        let go = server.stdin.take().ok_or_else(|| failed(&"no way to speak to the server"))?;
        let endpoints = fleet::endpoints(members.len())?;
        let update = Bytes::from(vec![7; bytes[1] as usize]);
        let mut clients = JoinSet::new();
        for (index, member) in members.iter().enumerate() {
            let endpoint = endpoints[fleet::socket_of(index)].clone();
            clients.spawn(client(endpoint, address, member.clone(), setup, update.clone()));
        }
        Ok(Self { server, go, done: output.lines(), clients })
    }

    /// Moves everything once; says how many seconds that took.
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
        // Without anybody to tell it to go on, the server ends, and so do the clients.
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

/// The serving process; calls `listening` with its address. Every line of its input is a round, after which it writes a
/// line; it ends with its input.
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
        // Begin, and end.
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
            .map_err(|source| LoadError::Io { what: "can not open a socket".into(), source }),
        StreamSetup::Tuned => quic::listen_as(authority, address, &[ALPN]).map_err(|error| tls(&error)),
    }
}

/// Mutual TLS, and nothing else that quinn would not have by itself.
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
        // Connections would not outlive the aggregator's turn: quinn ends silent ones after 30 s.
        transport.keep_alive_interval(Some(KEEP_ALIVE));
        config.transport_config(Arc::new(transport));
    }
    Ok(config)
}

/// Takes part in rounds for ever.
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

/// Takes all packets that are there at once, as the aggregator and the devices under load do.
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
    async fn the_plain_reference_is_quinn_as_it_comes() {
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
        // The client has proved who it is.
        assert!(connected.is_ok() && accepted.peer_identity().is_some());
    }
}
