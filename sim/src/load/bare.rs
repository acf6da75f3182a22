//! The same bytes through QUIC streams with nothing around them: no messages, no checksums, no disk, no sum.
//!
//! One process serves and this one has the clients, as with the aggregator. When the server is told so, it opens a
//! stream to every client and writes a model; each client reads it all and writes an update back on a stream of its
//! own; when all have arrived, the server says so.

use std::{net::SocketAddr, path::Path, process::Stdio, sync::Arc, time::Instant};

use aggregator::{ca::Authority, quic};
use bytes::Bytes;
use quinn::{Connection, Endpoint, RecvStream};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Barrier,
    task::JoinSet,
};

use super::{
    LoadError, PATIENCE,
    fleet::{self, Member},
    gateway,
    reader::PACKETS,
};

/// How peers name this in their handshake.
const ALPN: &[u8] = b"bare";

/// What the serving process is told.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bare {
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
    pub async fn open(dir: &Path, members: &[Member], bytes: [u32; 2]) -> Result<Self, LoadError> {
        let program = std::env::current_exe()
            .map_err(|source| LoadError::Io { what: "this program's path".into(), source })?;
        let mut command = Command::new(program);
        command.arg("bare").arg("--dir").arg(dir).arg("--devices").arg(members.len().to_string());
        command.arg("--down").arg(bytes[0].to_string()).arg("--up").arg(bytes[1].to_string());
        command.stdin(Stdio::piped());
        let (mut server, address, output) = gateway::start("sim", &mut command).await?;
        let go = server.stdin.take().ok_or_else(|| failed(&"no way to speak to the server"))?;
        let endpoints = fleet::endpoints(members.len())?;
        let update = Bytes::from(vec![7; bytes[1] as usize]);
        let mut clients = JoinSet::new();
        for (index, member) in members.iter().enumerate() {
            let endpoint = endpoints[fleet::socket_of(index)].clone();
            clients.spawn(client(endpoint, address, member.clone(), update.clone()));
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
    member: Member,
    update: Bytes,
) -> Result<(), LoadError> {
    let (connection, _) = fleet::connect(&endpoint, server, &member, ALPN).await?;
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
    let authority = Authority::open(dir)?;
    let tls = |error: quic::QuicError| LoadError::Tls(error.to_string());
    let endpoint = quic::listen_as(&authority, ([127, 0, 0, 1], 0).into(), &[ALPN]).map_err(tls)?;
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
            quic::fit(&connection, bare.devices);
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
        println!("done");
    }
    connections.shutdown().await;
    endpoint.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
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

fn failed(error: &dyn std::fmt::Display) -> LoadError {
    LoadError::Device { device: "bare streams".into(), what: error.to_string() }
}
