//! `fairtier gateway serve` in a cluster: waits for the lead, serves while it has it, and waits again.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use strategies::registry::Registry;
use tracing::info;

use super::{
    log::LogLevel,
    monitor::{Monitor, Monitored},
    print,
    serve::{ServeArgs, ServedGateway, ServingEnd, stop_signal},
};
use crate::{
    ca::Authority,
    config::{ClusterConfig, Config},
    notify::Notifier,
    quic::StandbyEndpoint,
    runs::{self, RunName},
    server::{OpenStore, Server, StorePlan},
    store::{Candidate, LEDGER, Lead, PostgresOptions, PostgresStore},
};

/// What the database of a cluster is opened with.
pub(super) fn options(config: &ClusterConfig, dir: &Path, address: SocketAddr) -> Result<PostgresOptions> {
    let ClusterConfig { database, objects, node, lease_s, keep_dropped_h, allow_loss, .. } = config;
    let node = match node.as_str() {
        "" => machine()?,
        name => name.to_owned(),
    };
    let mut options = PostgresOptions::new(&node, database, objects, *allow_loss)?;
    options.lease = Duration::from_secs_f64(*lease_s);
    options.keep_dropped = Duration::from_secs_f64(keep_dropped_h * 3600.0);
    options.authority = Authority::open(dir)?.root()?.to_vec();
    options.address = address.to_string();
    Ok(options)
}

/// The name of this machine.
fn machine() -> Result<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .context("the machine's name cannot be read; set cluster.node")?;
    Ok(name.trim().to_owned())
}

/// Where the agreed scales of a cluster are.
pub(super) fn shared_scales(config: &ClusterConfig) -> PathBuf {
    Path::new(&config.shared).join("scales.json")
}

pub(super) async fn serve(
    registry: &Registry,
    args: &ServeArgs,
    log: &LogLevel,
    mut config: Config,
) -> Result<()> {
    let dir = &args.dir;
    if runs::active(dir)? != RunName::first() {
        bail!(
            "a cluster has one run: switch back with `fairtier gateway run switch --dir {} default`",
            dir.display()
        );
    }
    let ledger = dir.join("store").join(LEDGER);
    if ledger.exists() {
        bail!(
            "{} holds a run that is not in the cluster's database; move {} away, or remove [cluster]",
            ledger.display(),
            dir.join("store").display()
        );
    }
    let monitored = args.monitor.bind(&config).await?.map(Monitor::stand_by);
    let stop = stop_signal()?;
    tokio::pin!(stop);
    let mut cluster = options(&config.cluster, dir, config.server.listen)?;
    let mut candidate = None;
    loop {
        let endpoint = StandbyEndpoint::listen(dir, config.server.listen).await?;
        // If the system has chosen the port, it stays.
        config.server.listen = endpoint.address();
        cluster.address = endpoint.address().to_string();
        let candidate = candidate.get_or_insert_with(|| Candidate::new(cluster.clone()));
        print(&format!("standby on {}\n", endpoint.address()))?;
        let lead = tokio::select! {
            lead = candidate.wait() => lead?,
            () = &mut stop => {
                info!("stopping");
                return Ok(());
            }
            () = tell_manager() => continue,
        };
        endpoint.close().await?;
        let observer = monitored.as_ref().map(Monitored::observer);
        let server = Server::start_with(registry, &config, dir, observer, plan(&config, &cluster, &lead));
        if server.as_ref().is_err_and(|failed| failed.is_lost_lead()) {
            info!("the lead was lost before the run was opened");
            continue;
        }
        let watch = |handle| {
            let monitored = monitored.clone()?;
            monitored.serve(Some(handle));
            Some(monitored)
        };
        let end_soon = lead.end_soon();
        let stop_and_end = async {
            stop.as_mut().await;
            end_soon();
        };
        tokio::pin!(stop_and_end);
        let gateway = ServedGateway { registry, args, log, config: &config };
        let lost = async {
            lead.lost().await;
            lead.end_soon()();
        };
        let end = gateway.conduct(server, watch, stop_and_end, lost).await;
        lead.resign(&cluster).await;
        if end? == ServingEnd::Done {
            return Ok(());
        }
        if let Some(monitored) = &monitored {
            monitored.serve(None);
        }
    }
}

/// The store of the leader.
fn plan<'a>(config: &Config, cluster: &'a PostgresOptions, lead: &'a Lead) -> StorePlan<'a> {
    let open: OpenStore<'a> =
        Box::new(|dir, options| Ok(Box::new(PostgresStore::open(lead, cluster, dir, options)?)));
    StorePlan { open, scales: Some(shared_scales(&config.cluster)), record_first: true }
}

/// Tells a service manager that this gateway lives. Never ends.
async fn tell_manager() {
    let mut manager = Notifier::from_environment();
    loop {
        match &mut manager {
            Some(manager) => {
                manager.tick_standby();
                tokio::time::sleep(manager.interval()).await;
            }
            None => std::future::pending::<()>().await,
        }
    }
}
