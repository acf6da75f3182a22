//! Routes for monitors: `/metrics`, `/healthz`, `/readyz`. They name no device, and change nothing.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{metrics::Metrics, server::Handle};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the routes read.
#[derive(Clone, Debug)]
pub struct Monitored {
    metrics: Arc<Metrics>,
    /// `None` as long as another gateway of the cluster leads.
    server: Arc<Mutex<Option<Handle>>>,
    stopping: Arc<AtomicBool>,
}

impl Monitored {
    /// For the routes of one server.
    pub fn new(metrics: Arc<Metrics>, server: Handle) -> Self {
        Self { metrics, server: Arc::new(Mutex::new(Some(server))), stopping: Arc::default() }
    }

    /// For a gateway that does not serve yet.
    #[cfg(feature = "cluster")]
    pub fn standby(metrics: Arc<Metrics>) -> Self {
        Self { metrics, server: Arc::default(), stopping: Arc::default() }
    }

    /// The server that answers from now on; without one, the gateway is a standby.
    #[cfg(feature = "cluster")]
    pub fn serve(&self, server: Option<Handle>) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
        self.stopping.store(false, Ordering::Release);
    }

    /// Sees every report of the server.
    #[cfg(feature = "cluster")]
    pub fn observer(&self) -> crate::worker::Observer {
        let metrics = self.metrics.clone();
        Box::new(move |report| metrics.observe(report))
    }

    fn server(&self) -> Option<Handle> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on the gateway is not ready.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }
}

/// The routes.
pub fn router(monitored: Monitored) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .with_state(monitored)
}

async fn metrics(State(monitored): State<Monitored>) -> Response {
    // A standby has no run to tell of.
    let Some(server) = monitored.server() else {
        return ([(CONTENT_TYPE, OPEN_METRICS)], "# EOF\n").into_response();
    };
    let metrics = monitored.metrics;
    match apart(move || metrics.encode(&server)).await {
        Some(Ok(text)) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        None => (StatusCode::INTERNAL_SERVER_ERROR, "no answer\n").into_response(),
    }
}

/// Whether the process works: the Coordinator answers and the worker has not ended.
async fn health(State(monitored): State<Monitored>) -> Response {
    let Some(server) = monitored.server() else { return "ok\n".into_response() };
    let failed = server.has_failed();
    match apart(move || server.progress()).await {
        Some(_) if !failed => "ok\n".into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the run cannot go on; the log says why\n").into_response(),
    }
}

/// Whether devices are served.
async fn readiness(State(monitored): State<Monitored>) -> Response {
    let Some(server) = monitored.server() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "standby\n").into_response();
    };
    if monitored.stopping.load(Ordering::Acquire) || server.has_failed() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    "ready\n".into_response()
}

/// Waits for a lock on a thread that may block.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = Option<T>> {
    let done = tokio::task::spawn_blocking(work);
    async move { done.await.ok() }
}
