//! `fairtier gateway serve` and `fairtier gateway resume`.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    run::RunError,
    server::{RunEnd, Server, ServerError},
    store::ReportReader,
};
use anyhow::{Error, Result, anyhow, bail};
use serde::{Deserialize, de::IgnoredAny};
use strategies::registry::Registry;
use tracing::info;

use super::print;

/// How long devices may still fetch their sub-models after the end of the run.
const FETCHING: Duration = Duration::from_secs(30);
/// Reasons that are listed when no device could train.
const NAMED: usize = 5;

#[derive(clap::Args, Debug)]
pub(super) struct ServeArgs {
    #[arg(long, default_value = "gateway")]
    pub dir: PathBuf,
    /// Overrides server.listen
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Overrides fairness.target: how equal the fleet shall be; 0 switches it off
    #[arg(long, value_name = "DISPARITY")]
    fairness: Option<f64>,
    /// Overrides dashboard.listen: pages of the run for browsers. Other addresses than loopback need HTTPS and a login
    #[cfg(feature = "dashboard")]
    #[arg(long, value_name = "ADDRESS")]
    dashboard: Option<SocketAddr>,
    /// Operators can revoke devices, issue tokens, pause, resume and export on the dashboard, after a login
    #[cfg(feature = "dashboard")]
    #[arg(long)]
    dashboard_actions: bool,
    /// Stop when the run is over instead of serving its models; at once if it is over already. Exits with code 1 if no device
    /// could train in any round
    #[arg(long)]
    exit_when_done: bool,
}

pub(super) fn serve(registry: &Registry, args: &ServeArgs) -> Result<()> {
    let ServeArgs { dir, listen, fairness, exit_when_done, .. } = args;
    let mut config = super::load(dir)?;
    if let Some(listen) = *listen {
        config.server.listen = listen;
    }
    if let Some(target) = *fairness {
        config.fairness.target = target;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(registry, &config, dir, None).map_err(|failed| advise(failed, dir))?;
        // For scripts and tests that let the system choose the port.
        print(&format!("listening on {}\n", server.address()))?;
        #[cfg(feature = "dashboard")]
        let _dashboard = dashboard(registry, args, &config, &server).await?;
        let stop = stop_signal()?;
        tokio::pin!(stop);
        let mut over = *exit_when_done && server.was_over();
        if over {
            info!("the run is over and has its final scores; raise run.rounds to continue");
        } else {
            tokio::select! {
                () = &mut stop => info!("stopping"),
                end = server.finished() => if end == RunEnd::Over {
                    over = true;
                    linger(&server, *exit_when_done, stop).await;
                }
            }
        }
        server.stop().await.map_err(|failed| advise(failed, dir))?;
        if over && *exit_when_done { expect_training(dir) } else { Ok(()) }
    })
}

/// Starts the dashboard, if there is to be one.
#[cfg(feature = "dashboard")]
async fn dashboard(
    registry: &Registry,
    args: &ServeArgs,
    config: &crate::config::Config,
    server: &Server,
) -> Result<Option<crate::http::RunningDashboard>> {
    let Some(listen) = args.dashboard.or(config.dashboard.address()) else {
        anyhow::ensure!(
            !args.dashboard_actions,
            "--dashboard-actions needs --dashboard ADDRESS, or dashboard.listen"
        );
        return Ok(None);
    };
    let start = crate::http::DashboardStart {
        listen,
        dir: args.dir.clone(),
        config: config.clone(),
        registry: registry.clone(),
        live: Some(server.live()),
        actions: args.dashboard_actions || config.dashboard.actions,
    };
    let running = crate::http::start(start, axum::Router::new()).await?;
    // For scripts and tests that let the system choose the port.
    print(&format!("dashboard on {}\n", running.url()))?;
    Ok(Some(running))
}

/// What a report states about devices that could not train.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Trained {
    devices: Vec<IgnoredAny>,
    silent: Vec<Silent>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
struct Silent {
    device: String,
}

#[derive(Deserialize)]
struct Refused {
    device: String,
    code: u16,
    why: String,
}

/// Fails if no device has trained in any round: the model is still the initial one.
fn expect_training(dir: &Path) -> Result<()> {
    let Some(mut reader) = ReportReader::open(&dir.join("store"))? else { return Ok(()) };
    let mut lost = BTreeMap::<String, usize>::new();
    let mut count = 0;
    while let Some(report) = reader.read_next()? {
        let report: Trained = serde_json::from_str(report.text)?;
        if !report.devices.is_empty() {
            return Ok(());
        }
        count += 1;
        for Silent { device } in report.silent {
            *lost.entry(format!("{device} did not answer")).or_default() += 1;
        }
        for Refused { device, code, why } in report.refused {
            *lost.entry(format!("{device} was refused (E{code:02} {why})")).or_default() += 1;
        }
    }
    if count == 0 {
        return Ok(());
    }
    let dir = dir.display();
    let why: Vec<_> = lost.iter().take(NAMED).map(|(why, times)| format!("{why} {times} times")).collect();
    let why = if why.is_empty() { "no device was connected".to_owned() } else { why.join(", ") };
    bail!(
        "no device could train: all {count} rounds are empty, and the model is still the initial one; {why}. \
         Look at the logs of these devices and remove the cause, raise run.rounds in {dir}/fairtier.toml by {count}, \
         then continue with `fairtier gateway resume --dir {dir}`"
    );
}

/// Keeps serving the models of a run that is over.
async fn linger(server: &Server, exit_when_done: bool, stop: impl Future<Output = ()>) {
    let enough = async {
        if exit_when_done {
            let _ = tokio::time::timeout(FETCHING, server.all_disconnected()).await;
        } else {
            info!("the run is over; devices can fetch their models until Ctrl-C");
            stop.await;
        }
    };
    tokio::select! {
        () = enough => {}
        () = server.failed() => {}
    }
}

/// Adds the next step to the error of a run that has stopped.
fn advise(failed: ServerError, dir: &Path) -> Error {
    let again = match &failed {
        ServerError::Run(RunError::Store(failed)) if failed.is_full() => {
            "free some space, then start again".to_owned()
        }
        // The error itself states what is affected and what to do.
        ServerError::Run(RunError::Worker(cause)) if cause.is_damage() => return failed.into(),
        ServerError::Run(RunError::Worker(cause)) => {
            let first = if cause.is_full() { "free some space" } else { "remove the cause" };
            let dir = dir.display();
            format!(
                "{first}, then continue with `fairtier gateway resume --dir {dir}`; no acknowledged update is lost"
            )
        }
        _ => return failed.into(),
    };
    anyhow!("{failed}; {again}")
}

/// Resolves on SIGINT or SIGTERM.
pub(super) fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
