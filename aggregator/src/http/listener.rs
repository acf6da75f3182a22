//! Accepts connections and serves a router on them. Slow and greedy clients are bounded here, whatever the router does.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

mod write_timeout;

use write_timeout::WriteTimeout;

/// Bounds on what clients may take.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HttpLimits {
    /// Open connections.
    pub connections: usize,
    /// Of these, from one address.
    pub per_address: usize,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Header lines of a request.
    pub headers: usize,
    /// For the TLS handshake, for each head, and between two requests.
    pub head_time: Duration,
    /// For a client that takes nothing of an answer.
    pub stalled: Duration,
    /// After this time a connection takes no further request.
    pub age: Duration,
    /// After this time a connection ends, whatever it does.
    pub most_age: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            per_address: 48,
            head_bytes: 16 << 10,
            headers: 64,
            head_time: Duration::from_secs(10),
            stalled: Duration::from_secs(20),
            age: Duration::from_secs(120),
            most_age: Duration::from_secs(900),
        }
    }
}

/// The address of the other end, as handlers see it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Client(pub IpAddr);

/// A socket that waits for connections.
#[expect(missing_debug_implementations, reason = "a TLS acceptor has none")]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    limits: HttpLimits,
}

impl Listener {
    /// Binds the socket; with `tls`, only HTTPS is spoken.
    pub async fn bind(address: SocketAddr, tls: Option<TlsAcceptor>, limits: HttpLimits) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, tls, limits })
    }

    /// Where it listens; with port 0 in the request, this has the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves for ever. Dropping the future closes all connections.
    pub async fn serve(self, router: Router) {
        let Self { socket, tls, limits, .. } = self;
        let open = Arc::new(OpenConnections::default());
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let (stream, peer) = match socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, for example: the next attempt may succeed.
                    warn!("the dashboard cannot accept a connection: {error}");
                    sleep(Duration::from_millis(200)).await;
                    continue;
                }
            };
            let Some(place) = open.clone().enter(canonical(peer), &limits) else { continue };
            let (tls, router) = (tls.clone(), router.clone().layer(Extension(Client(place.address))));
            connections.spawn(async move {
                let ended = timeout(limits.most_age, converse(stream, tls, router, limits)).await;
                if let Ok(Err(error)) = ended {
                    debug!("a connection to the dashboard ended: {error}");
                }
                drop(place);
            });
        }
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn converse(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: HttpLimits,
) -> Result<(), ConnectionError> {
    stream.set_nodelay(true)?;
    match tls {
        Some(tls) => {
            let stream = timeout(limits.head_time, tls.accept(stream)).await??;
            answer(stream, router, limits).await
        }
        None => answer(stream, router, limits).await,
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    limits: HttpLimits,
) -> Result<(), ConnectionError> {
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.stalled));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_bytes)
        .max_headers(limits.headers)
        .serve_connection(stream, TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        () = sleep(limits.age) => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

/// IPv4 addresses that arrive on an IPv6 socket count as IPv4.
fn canonical(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

/// Number of open connections by address.
#[derive(Debug, Default)]
struct OpenConnections(Mutex<HashMap<IpAddr, usize>>);

/// One open connection, until it is dropped.
struct Place {
    open: Arc<OpenConnections>,
    address: IpAddr,
}

impl OpenConnections {
    fn enter(self: Arc<Self>, address: IpAddr, limits: &HttpLimits) -> Option<Place> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = open.values().sum();
        let own = open.get(&address).copied().unwrap_or_default();
        if all >= limits.connections || own >= limits.per_address {
            return None;
        }
        open.insert(address, own + 1);
        drop(open);
        Some(Place { open: self, address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_connections() {
        let limits = HttpLimits { connections: 3, per_address: 2, ..HttpLimits::default() };
        let open = Arc::new(OpenConnections::default());
        let [a, b]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        let first = open.clone().enter(a, &limits).unwrap();
        let _second = open.clone().enter(a, &limits).unwrap();
        assert!(open.clone().enter(a, &limits).is_none());
        let _third = open.clone().enter(b, &limits).unwrap();
        assert!(open.clone().enter(b, &limits).is_none(), "all places are taken");
        drop(first);
        assert!(open.clone().enter(b, &limits).is_some());
        assert_eq!(canonical("[::ffff:192.0.2.1]:80".parse().unwrap()), a);
    }
}
