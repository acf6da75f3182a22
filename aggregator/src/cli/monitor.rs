//! `serve --metrics`: what a monitor reads over HTTP.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use coordinator::report::RoundReport;
use tracing::info;

pub(super) use crate::http::metrics::Monitored;
use crate::{
    config::Config,
    http::{HttpLimits, Listener, metrics::router},
    metrics::Metrics,
    server::Handle,
    worker::Observer,
};

#[derive(clap::Args, Debug)]
pub(super) struct MonitorArgs {
    /// Answer /metrics, /healthz and /readyz over HTTP at this address; without TLS and login, so keep it inside
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
}

impl MonitorArgs {
    /// Binds the address before the run is opened, so that a taken one is reported at once.
    pub async fn bind(&self, config: &Config) -> Result<Option<Monitor>> {
        let Some(address) = self.metrics else { return Ok(None) };
        let bound = Listener::bind(address, None, HttpLimits::default()).await;
        let listener = bound.with_context(|| format!("--metrics {address}"))?;
        Ok(Some(Monitor { listener, metrics: Arc::new(Metrics::new(&config.strategy.name)) }))
    }
}

/// A bound address that does not answer yet.
pub(super) struct Monitor {
    listener: Listener,
    metrics: Arc<Metrics>,
}

impl Monitor {
    pub fn observer(&self) -> Observer {
        let metrics = self.metrics.clone();
        Box::new(move |report: &RoundReport| metrics.observe(report))
    }

    /// Answers until the program ends, as a standby at first.
    #[cfg(feature = "cluster")]
    pub fn stand_by(self) -> Monitored {
        let monitored = Monitored::standby(self.metrics);
        info!("metrics on http://{}/metrics", self.listener.address());
        tokio::spawn(self.listener.serve(router(monitored.clone())));
        monitored
    }

    /// Answers until the program ends.
    pub fn serve(self, server: Handle) -> Monitored {
        let monitored = Monitored::new(self.metrics, server);
        info!("metrics on http://{}/metrics", self.listener.address());
        tokio::spawn(self.listener.serve(router(monitored.clone())));
        monitored
    }
}
