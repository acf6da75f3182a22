//! Routes for monitors: `/metrics`, `/healthz`, `/readyz`. They name no device, and change nothing.

use std::{
    future::Future,
    sync::{
        Arc,
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
    server: Handle,
    stopping: Arc<AtomicBool>,
}

impl Monitored {
    pub fn new(metrics: Arc<Metrics>, server: Handle) -> Self {
        Self { metrics, server, stopping: Arc::default() }
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

async fn metrics(State(Monitored { metrics, server, .. }): State<Monitored>) -> Response {
    match apart(move || metrics.encode(&server)).await {
        Some(Ok(text)) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        None => (StatusCode::INTERNAL_SERVER_ERROR, "no answer\n").into_response(),
    }
}

/// Whether the process works: the Coordinator answers and the worker has not ended.
async fn health(State(Monitored { server, .. }): State<Monitored>) -> Response {
    let failed = server.has_failed();
    match apart(move || server.progress()).await {
        Some(_) if !failed => "ok\n".into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the run cannot go on; the log says why\n").into_response(),
    }
}

/// Whether devices are served.
async fn readiness(State(Monitored { server, stopping, .. }): State<Monitored>) -> Response {
    if stopping.load(Ordering::Acquire) || server.has_failed() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    "ready\n".into_response()
}

/// Waits for a lock on a thread that may block.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = Option<T>> {
    let done = tokio::task::spawn_blocking(work);
    async move { done.await.ok() }
}
