//! `fairtier gateway serve` and `fairtier gateway resume`.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    time::Duration,
};

use crate::{
    config::Config,
    notify::Notifier,
    run::RunError,
    server::{Handle, RunEnd, Server, ServerError},
    status,
    store::ReportReader,
    worker::WorkerError,
};
use anyhow::{Error, Result, anyhow, bail};
use common::Code;
use serde::{Deserialize, de::IgnoredAny};
use strategies::registry::Registry;
use tracing::info;
use trainer::data::schema::Scaling;

use super::{
    log::LogLevel,
    monitor::{Monitor, MonitorArgs, Monitored},
    place::Place,
    print,
    reconfigure::Reconfigure,
};

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
    pub listen: Option<SocketAddr>,
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
    #[command(flatten)]
    pub monitor: MonitorArgs,
}

impl ServeArgs {
    /// The configuration of the active run with what the command line overrides.
    pub fn config(&self) -> Result<Config> {
        let mut config = super::load(&Place::of(&self.dir)?.run)?;
        if let Some(listen) = self.listen {
            config.server.listen = listen;
        }
        if let Some(target) = self.fairness {
            config.fairness.target = target;
        }
        Ok(config)
    }
}

pub(super) fn serve(registry: &Registry, args: &ServeArgs, log: &LogLevel) -> Result<()> {
    let config = args.config()?;
    log.follow(&config.log.level)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if config.cluster.is_on() {
        #[cfg(feature = "cluster")]
        return runtime.block_on(super::standby::serve(registry, args, log, config));
        #[cfg(not(feature = "cluster"))]
        bail!("cluster.database is set, and this program is built without the feature `cluster`");
    }
    runtime.block_on(async {
        let monitor = args.monitor.bind(&config).await?;
        let observer = monitor.as_ref().map(Monitor::observer);
        let server = Server::start(registry, &config, &args.dir, observer);
        let stop = stop_signal()?;
        tokio::pin!(stop);
        let (gateway, watch) =
            (ServedGateway { registry, args, log, config: &config }, |handle| Some(monitor?.serve(handle)));
        gateway.conduct(server, watch, stop, std::future::pending()).await.map(drop)
    })
}

/// How a gateway has ended to serve.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ServingEnd {
    /// It was stopped, or the run is over.
    Done,
    /// Another gateway of the cluster leads.
    Lost,
}

/// What a gateway serves with.
#[derive(Copy, Clone)]
pub(super) struct ServedGateway<'a> {
    pub registry: &'a Registry,
    pub args: &'a ServeArgs,
    pub log: &'a LogLevel,
    pub config: &'a Config,
}

impl ServedGateway<'_> {
    /// Serves until the run ends, `stop` resolves, or the lead is `lost`.
    pub async fn conduct(
        self,
        server: Result<Server, ServerError>,
        watch: impl FnOnce(Handle) -> Option<Monitored>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        lost: impl Future<Output = ()>,
    ) -> Result<ServingEnd> {
        let Self { registry, args, log, config } = self;
        let ServeArgs { dir, exit_when_done, .. } = args;
        let own = Place::of(dir)?.run;
        let server = server.map_err(|failed| advise(failed, dir, &own, config))?;
        let monitor = watch(server.handle());
        // For scripts and tests that let the system choose the port.
        print(&format!("listening on {}\n", server.address()))?;
        #[cfg(feature = "dashboard")]
        let _dashboard = dashboard(registry, args, config, &server).await?;
        let mut manager = Notifier::from_environment();
        let mut over = *exit_when_done && server.was_over();
        let mut end = ServingEnd::Done;
        let run = async {
            if over {
                info!(
                    "the run is over and has its final scores; raise run.rounds to continue, or run.stop_after if it has stopped early"
                );
                return;
            }
            tokio::select! {
                () = &mut stop => info!("stopping"),
                end = server.finished() => if end == RunEnd::Over {
                    over = true;
                    linger(&server, *exit_when_done, stop).await;
                }
            }
        };
        let handle = server.handle();
        let follow = Reconfigure { registry, args, log, config: config.clone(), server: &handle }
            .follow(manager.as_mut());
        tokio::select! {
            () = run => {}
            () = lost => end = ServingEnd::Lost,
            ended = follow => ended?,
        }
        if let Some(monitor) = &monitor {
            monitor.stop();
        }
        if let (Some(manager), ServingEnd::Done) = (&mut manager, end) {
            manager.stopping();
        }
        match server.stop().await {
            // An update that was not acknowledged comes to the next leader.
            Err(failed) if end == ServingEnd::Lost || failed.is_lost_lead() => {
                info!("the lead is lost: {failed}");
                return Ok(ServingEnd::Lost);
            }
            stopped => stopped.map_err(|failed| advise(failed, dir, &own, config))?,
        }
        if end == ServingEnd::Lost {
            return Ok(end);
        }
        if over && *exit_when_done {
            expect_training(&own, dir)?;
        }
        if over {
            expect_convergence(&own, dir, config)?;
        }
        Ok(end)
    }
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
    let running = crate::http::start(start).await?;
    // For scripts and tests that let the system choose the port.
    print(&format!("dashboard on {}\n", running.url()))?;
    Ok(Some(running))
}

/// Fails if the scores of the final model show that it has diverged.
fn expect_convergence(own: &Path, dir: &Path, config: &Config) -> Result<()> {
    #[derive(Deserialize)]
    struct Status {
        last_round: Scores,
    }
    #[derive(Deserialize)]
    struct Scores {
        round: u32,
        purpose: String,
        kept: Option<u16>,
    }
    let status: Status = serde_json::from_slice(&fs::read(own.join(status::FILE))?)?;
    let Scores { round, purpose, kept } = status.last_round;
    if purpose != "evaluate" || kept != Some(Code::Diverged.number()) {
        return Ok(());
    }
    // The scores have the number of the round that would follow.
    let before = round.saturating_sub(2);
    let (code, slower, dir) = (Code::Diverged, slower(dir, own, config), dir.display());
    bail!(
        "{code}: the loss of the final model is many times the first one; go back with `fairtier gateway rollback --dir \
         {dir} --to {before}`; {slower}"
    );
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
fn expect_training(own: &Path, dir: &Path) -> Result<()> {
    let Some(mut reader) = ReportReader::open(&own.join("store"))? else { return Ok(()) };
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
    let (dir, own) = (dir.display(), own.display());
    let why: Vec<_> = lost.iter().take(NAMED).map(|(why, times)| format!("{why} {times} times")).collect();
    let why = if why.is_empty() { "no device was connected".to_owned() } else { why.join(", ") };
    bail!(
        "no device could train: all {count} rounds are empty, and the model is still the initial one; {why}. \
         Look at the logs of these devices and remove the cause, raise run.rounds in {own}/fairtier.toml by {count}, \
         then continue with `fairtier gateway resume --dir {dir}`"
    );
}

/// Keeps serving the models of a run that is over.
async fn linger(server: &Server, exit_when_done: bool, stop: Pin<&mut impl Future<Output = ()>>) {
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
fn advise(failed: ServerError, dir: &Path, own: &Path, config: &Config) -> Error {
    let again = match &failed {
        ServerError::Run(RunError::Store(failed)) if failed.is_full() => {
            "free some space, then start again".to_owned()
        }
        ServerError::Run(RunError::Worker(WorkerError::Diverged { .. })) => slower(dir, own, config),
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

/// What to do about divergence: scale what is not scaled, or lower the learning rate.
fn slower(dir: &Path, own: &Path, config: &Config) -> String {
    let (dir, own, lr) = (dir.display(), own.display(), config.training.lr);
    let lower = format!(
        "lower training.lr = {lr} in {own}/fairtier.toml, then continue with `fairtier gateway resume --dir {dir}`"
    );
    let Ok(Some(schema)) = config.schema() else {
        return format!(
            "training expects inputs of about -1 to 1, and without [data] the gateway does not know theirs: scale them \
             (`fairtier data schema` proposes how), or {lower}"
        );
    };
    let open = schema.columns.iter().filter(|column| column.kind.scaling() == Some(Scaling::None));
    let open: Vec<_> = open.take(NAMED).map(|column| format!("`{}`", column.name)).collect();
    if open.is_empty() {
        return format!("all columns are scaled: {lower}");
    }
    format!(
        "column {} of [data] has no scaling: if its numbers leave -1 to 1, begin another run with `fairtier gateway run new \
         --dir {dir} NAME` and set scaling = \"fleet\" in its [data]; otherwise {lower}",
        open.join(", ")
    )
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
