//! One run of one strategy: an aggregator in its own directory, and all devices connected to it, each with its own
//! certificate.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use aggregator::{
    ca::Authority,
    config::Config,
    server::{RunEnd, Server},
    worker::Observer,
};
use client::{
    Profile,
    data::Shard,
    host::{Client, Conclusion, Identity},
    train::Portable,
};
use common::{Budget, privacy::Privacy};
use coordinator::report::RoundReport;
use tokio::task::JoinSet;

use super::{DemoError, Fleet, FleetDevice};

/// On loopback, a lost link is back at once unless something is broken.
const GIVE_UP: Duration = Duration::from_secs(30);

type Ended = Result<Conclusion, DemoError>;

/// Returns the reports of all rounds, with the scores of the final model last, and the seconds of the run.
pub(super) async fn run(
    config: &Config,
    fleet: &Fleet,
    #[cfg(feature = "dashboard")] dashboard: Option<std::net::SocketAddr>,
    mut observer: Observer,
    stop: &mut (impl Future<Output = ()> + Unpin),
) -> Result<(Vec<RoundReport>, f64), DemoError> {
    let dir = tempfile::tempdir().map_err(DemoError::Directory)?;
    let authority = Authority::create(dir.path())?;
    let reports = Arc::new(Mutex::new(Vec::new()));
    let log = reports.clone();
    let record = move |report: &RoundReport| {
        observer(report);
        log.lock().unwrap_or_else(PoisonError::into_inner).push(report.clone());
    };
    let started = Instant::now();
    let server =
        Server::start(&strategies::Registry::standard(), config, dir.path(), Some(Box::new(record)))?;
    #[cfg(feature = "dashboard")]
    let dashboard = match dashboard {
        Some(listen) => {
            let start = aggregator::http::DashboardStart {
                listen,
                dir: dir.path().to_owned(),
                config: config.clone(),
                registry: strategies::Registry::standard(),
                live: Some(server.live()),
                actions: false,
            };
            Some(aggregator::http::start(start).await?)
        }
        None => None,
    };
    let mut clients = JoinSet::new();
    for device in &fleet.devices {
        let budget = fleet.hardware[device.tier].budget;
        let client = client(&server, &authority, device, budget)?;
        clients.spawn(serve(client, device.clone()));
    }
    let outcome = tokio::select! {
        ended = finish(&server, &mut clients) => ended,
        () = stop => Err(DemoError::Stopped),
    };
    clients.shutdown().await;
    #[cfg(feature = "dashboard")]
    if let Some(dashboard) = dashboard {
        dashboard.stop().await;
    }
    server.stop().await?;
    outcome?;
    let reports = std::mem::take(&mut *reports.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((reports, started.elapsed().as_secs_f64()))
}

/// Waits for the end of the run and of all devices. The failure of one device ends the run, because rounds wait for
/// all devices.
async fn finish(server: &Server, clients: &mut JoinSet<Ended>) -> Result<(), DemoError> {
    let finished = server.finished();
    tokio::pin!(finished);
    loop {
        tokio::select! {
            end = &mut finished => match end {
                RunEnd::Over => break,
                // `Server::stop` returns the reason.
                RunEnd::Failed => return Ok(()),
            },
            Some(ended) = clients.join_next() => { ended??; }
        }
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

fn client(
    server: &Server,
    authority: &Authority,
    device: &FleetDevice,
    budget: Budget,
) -> Result<Client, DemoError> {
    let bundle = authority.enroll(&device.device)?;
    let identity = Identity::parse(bundle.as_bytes())
        .map_err(|source| DemoError::Identity { device: device.device.to_string(), source })?;
    Ok(Client {
        gateways: server.address().into(),
        identity,
        profile: Profile {
            device: device.device.clone(),
            budget,
            data: device.shard.summary(),
            privacy: Privacy::simulated(0),
        },
        spent: None,
        save_model: None,
        give_up_after: Some(GIVE_UP),
        silence: client::host::SILENCE,
        leave_after: client::host::refusals::LEAVE_AFTER,
    })
}

/// Runs one device. `Portable` gives the same bits on every processor.
async fn serve(client: Client, device: FleetDevice) -> Ended {
    let never = std::future::pending();
    let ended = client.run(&device.shard, &mut Portable::plain(), never, |_| {}).await;
    ended.map_err(|source| DemoError::Client { device: device.device.to_string(), source })
}
