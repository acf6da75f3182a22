//! Browsers that follow pages of the gateway's dashboard, as its script does.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::sleep,
};

use super::LoadError;

/// The pages that are followed, in turn.
const PAGES: [&str; 5] = ["/", "/tiers", "/devices", "/rounds", "/device?name=load-00000"];
/// Before a connection that has ended is opened again.
const PAUSE: Duration = Duration::from_millis(500);
/// The line of an event, with the end of the line before it.
const EVENT: &[u8] = b"\nevent: part";

/// What viewers were sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Viewed {
    /// Changed parts of pages, by viewer.
    pub parts: Vec<u64>,
    /// Over all viewers.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Seen {
    parts: AtomicU64,
    bytes: AtomicU64,
}

/// Viewers that follow until they are dropped.
#[derive(Debug)]
pub(super) struct Viewers {
    seen: Vec<Arc<Seen>>,
    _tasks: JoinSet<()>,
}

impl Viewers {
    pub fn start(dashboard: SocketAddr, count: usize) -> Self {
        let mut tasks = JoinSet::new();
        let follow = |page: &&'static str| {
            let seen = Arc::<Seen>::default();
            tasks.spawn(follow(dashboard, page, seen.clone()));
            seen
        };
        let seen = PAGES.iter().cycle().take(count).map(follow).collect();
        Self { seen, _tasks: tasks }
    }

    /// Fails if one of them has seen nothing: then nothing was measured.
    pub fn end(self) -> Result<Viewed, LoadError> {
        let parts: Vec<_> = self.seen.iter().map(|seen| seen.parts.load(Relaxed)).collect();
        let bytes = self.seen.iter().map(|seen| seen.bytes.load(Relaxed)).sum();
        if parts.contains(&0) { Err(LoadError::NothingSeen) } else { Ok(Viewed { parts, bytes }) }
    }
}

async fn follow(dashboard: SocketAddr, page: &str, seen: Arc<Seen>) {
    loop {
        // A connection that ends is opened again, as a browser does; `Viewers::end` reports a viewer that has seen nothing.
        let _ = read(dashboard, page, &seen).await;
        sleep(PAUSE).await;
    }
}

async fn read(dashboard: SocketAddr, page: &str, seen: &Seen) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(dashboard).await?;
    let of = page.replace('?', "%3F").replace('=', "%3D");
    let request =
        format!("GET /events?of={of} HTTP/1.1\r\nHost: {dashboard}\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = vec![0; 64 << 10];
    let mut parts = PartCounter::default();
    loop {
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            return Ok(());
        }
        seen.bytes.fetch_add(len as u64, Relaxed);
        seen.parts.fetch_add(parts.count(&buffer[..len]), Relaxed);
    }
}

/// Counts events in pieces of a stream.
#[derive(Debug, Default)]
struct PartCounter {
    /// Bytes of [`EVENT`] at the end of the last piece.
    matched: usize,
}

impl PartCounter {
    fn count(&mut self, piece: &[u8]) -> u64 {
        let mut found = 0;
        for &byte in piece {
            // Its first byte does not occur again inside it, so a mismatch begins anew.
            self.matched = match EVENT.get(self.matched) {
                Some(&wanted) if wanted == byte => self.matched + 1,
                _ => usize::from(byte == EVENT[0]),
            };
            if self.matched == EVENT.len() {
                found += 1;
                self.matched = 0;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_wherever_the_stream_is_cut() {
        let text = b"HTTP/1.1 200 OK\r\n\r\nevent: part\ndata: <p>event: part</p>\n\n\nevent: part\n\n:\n\nevent: closed\n\n";
        for size in 1..text.len() {
            let mut counter = PartCounter::default();
            assert_eq!(text.chunks(size).map(|piece| counter.count(piece)).sum::<u64>(), 2, "{size}");
        }
    }
}
