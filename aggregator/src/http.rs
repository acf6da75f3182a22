//! The gateway's HTTP routes, and a small listener for them.
//!
//! Connections are bounded in number, and a peer that does not finish its request in time is cut off.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tracing::{debug, warn};

pub mod metrics;

/// Connections at once; others wait in the system's queue.
const MAX_CONNECTIONS: usize = 32;
/// Until a request's headers have arrived.
const HEADERS: Duration = Duration::from_secs(5);
/// Until a connection is closed, whatever its peer does.
const CONNECTION: Duration = Duration::from_secs(30);
/// Bytes of a request's headers.
const MAX_HEADERS: usize = 16 << 10;

/// A socket that is bound and does not answer yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    pub address: SocketAddr,
}

impl Listener {
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Answers requests for ever.
    pub async fn serve(self, routes: Router) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let stream = match self.socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!("no HTTP connection: {error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let routes = TowerToHyperService::new(routes.clone());
            tokio::spawn(async move {
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(MAX_HEADERS);
                let connection = http.serve_connection(TokioIo::new(stream), routes);
                match tokio::time::timeout(CONNECTION, connection).await {
                    Ok(Err(error)) => debug!("HTTP connection ended: {error}"),
                    Ok(Ok(())) | Err(_) => {}
                }
                drop(place);
            });
        }
    }
}
