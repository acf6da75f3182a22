//! The same bytes through QUIC streams with nothing around them: no messages, no checksums, no disk, no sum.
//!
//! One process serves and this one has the clients, as with the aggregator. In every round the server opens a
//! stream to every client and writes a model; the client reads it all and writes an update back on a stream of its
//! own; when all have arrived, the next round begins.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use aggregator::{ca::Authority, quic};
use bytes::Bytes;
use quinn::{Connection, Endpoint, RecvStream};
use tokio::{process::Command, sync::Barrier, task::JoinSet};

use super::{
    LoadError,
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
    pub rounds: u32,
    /// Down and up.
    pub bytes: [u32; 2],
}

/// Seconds of each round.
pub(super) async fn run(
    dir: &Path,
    members: &[Member],
    rounds: u32,
    bytes: [u32; 2],
) -> Result<Vec<f64>, LoadError> {
    let program = std::env::current_exe()
        .map_err(|source| LoadError::Io { what: "this program's path".into(), source })?;
    let mut command = Command::new(program);
    command.arg("bare").arg("--dir").arg(dir);
    command.arg("--devices").arg(members.len().to_string()).arg("--rounds").arg(rounds.to_string());
    command.arg("--down").arg(bytes[0].to_string()).arg("--up").arg(bytes[1].to_string());
    let (mut child, server) = gateway::start("sim", &mut command).await?;
    let starts = Arc::new(Starts::default());
    let endpoints = fleet::endpoints(members.len())?;
    let mut clients = JoinSet::new();
    let update = Bytes::from(vec![7; bytes[1] as usize]);
    for (index, member) in members.iter().enumerate() {
        let endpoint = endpoints[fleet::socket_of(index)].clone();
        clients.spawn(client(endpoint, server, member.clone(), rounds, update.clone(), starts.clone()));
    }
    while let Some(ended) = clients.join_next().await {
        ended.map_err(|error| failed(&error))??;
    }
    let _ = child.kill().await;
    Ok(starts.rounds())
}

/// When each round began, and the end.
#[derive(Default)]
struct Starts(Mutex<Vec<Instant>>);

impl Starts {
    fn note(&self, round: usize) {
        let mut starts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if starts.len() == round {
            starts.push(Instant::now());
        }
    }

    fn rounds(&self) -> Vec<f64> {
        let starts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect()
    }
}

async fn client(
    endpoint: Endpoint,
    server: SocketAddr,
    member: Member,
    rounds: u32,
    update: Bytes,
    starts: Arc<Starts>,
) -> Result<(), LoadError> {
    let (connection, _) = fleet::connect(&endpoint, server, &member, ALPN).await?;
    // One more, whose begin is the end of the last.
    for round in 0..=rounds as usize {
        let model = connection.accept_uni().await.map_err(|error| failed(&error))?;
        starts.note(round);
        drain(model).await?;
        let mut stream = connection.open_uni().await.map_err(|error| failed(&error))?;
        stream.write_chunk(update.clone()).await.map_err(|error| failed(&error))?;
        stream.finish().map_err(|error| failed(&error))?;
    }
    connection.closed().await;
    Ok(())
}

/// The serving process; calls `listening` with its address.
pub async fn serve(dir: &Path, bare: Bare, listening: impl FnOnce(SocketAddr)) -> Result<(), LoadError> {
    let authority = Authority::open(dir)?;
    let tls = |error: quic::QuicError| LoadError::Tls(error.to_string());
    let endpoint = quic::listen_as(&authority, ([127, 0, 0, 1], 0).into(), &[ALPN]).map_err(tls)?;
    let address = endpoint
        .local_addr()
        .map_err(|source| LoadError::Io { what: "the socket's address".into(), source })?;
    listening(address);
    let barrier = Arc::new(Barrier::new(bare.devices));
    let model = Bytes::from(vec![7; bare.bytes[0] as usize]);
    let mut connections = JoinSet::new();
    for _ in 0..bare.devices {
        let incoming =
            endpoint.accept().await.ok_or_else(|| LoadError::Tls("the endpoint is closed".into()))?;
        let (barrier, model) = (barrier.clone(), model.clone());
        connections.spawn(async move {
            let connection = incoming.await.map_err(|error| failed(&error))?;
            exchange(&connection, bare.rounds, &barrier, &model).await
        });
    }
    while let Some(ended) = connections.join_next().await {
        ended.map_err(|error| failed(&error))??;
    }
    endpoint.wait_idle().await;
    Ok(())
}

async fn exchange(
    connection: &Connection,
    rounds: u32,
    barrier: &Barrier,
    model: &Bytes,
) -> Result<(), LoadError> {
    for _ in 0..=rounds {
        barrier.wait().await;
        let mut stream = connection.open_uni().await.map_err(|error| failed(&error))?;
        stream.write_chunk(model.clone()).await.map_err(|error| failed(&error))?;
        stream.finish().map_err(|error| failed(&error))?;
        drain(connection.accept_uni().await.map_err(|error| failed(&error))?).await?;
    }
    barrier.wait().await;
    connection.close(0u32.into(), b"");
    Ok(())
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

fn failed(error: &dyn std::error::Error) -> LoadError {
    LoadError::Device { device: "bare streams".into(), what: error.to_string() }
}
