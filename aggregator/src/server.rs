//! The whole aggregator: opens what is on disk, starts the worker, the clock and the QUIC server.
//!
//! ```text
//! DIR/fairtier.toml      configuration
//! DIR/identity/          authority and enrolled devices
//! DIR/store/             what survives kill -9; the files history*.jsonl in it have the reports of all rounds
//! DIR/model.onnx         the global model after the last committed round
//! DIR/status.json        the last round in numbers, and the devices that the run waits for
//! DIR/scales.json        the scales that the fleet has agreed on, for columns with `scaling = "fleet"`
//! DIR/rounds/            recorded rounds, with `record = true`
//! DIR/revoked.jsonl      revoked and replaced devices, with the time
//! DIR/store/control.sock  for `fairtier gateway backup` while the server runs
//! DIR/serving.lock       held while the server runs
//! DIR/runs/              further runs of the fleet, see `runs.rs`
//! ```
//! `identity/`, `store/`, `rounds/`, `revoked.jsonl` and `serving.lock` are private to their owner. They hold keys, locks, and
//! updates that reveal samples. `model.onnx` and `status.json` are also readable by the owner's group (0640), for a monitor or
//! a program that uses the model. Other users cannot read them. The status names devices and their losses. Two successive
//! models differ by the sum of a round's updates, in a fleet of one by the update itself. `fairtier.toml` holds nothing secret
//! and keeps the permissions that `init` or its owner gave it (0644).

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use common::{Code, Instant, files, transfer::LinkLimits};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    admission::{Admission, DeviceConnections, Limits},
    ca::{Authority, CaError},
    clock,
    config::{Advice, Config, StoreConfig},
    control::Control,
    driver::Driver,
    live::LiveSource,
    quic::{self, QuicError},
    run::{Run, RunEnvironment, RunError},
    runs::{self, RunName, RunsError},
    scales::{self, FleetSchema, ScalesError},
    status,
    store::{DiskStore, Options, Store, StoreError},
    worker::{Observer, RoundWorker, TargetFile, WorkerError},
};
use coordinator::Coordinator;
use serde_json::Value;
use strategies::registry::Registry;

mod handle;
mod wait_report;

pub use handle::Handle;

/// Why a server does not start, or has stopped.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
#[non_exhaustive]
pub enum ServerError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Authority(#[from] CaError),
    #[error(transparent)]
    Quic(#[from] QuicError),
    #[error(transparent)]
    Scales(#[from] ScalesError),
    #[error("{path}: {source}", path = .path.display())]
    Lock { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Runs(#[from] RunsError),
    #[error("the active run was {name} when the gateway started, and is another one now; start it again")]
    Switched { name: RunName },
    #[error("the worker has died; the store is as the last commit left it")]
    WorkerDied,
}

impl ServerError {
    /// Whether another gateway of the cluster leads, or the database does not answer: the run goes on elsewhere or later.
    pub(crate) fn is_lost_lead(&self) -> bool {
        let (Self::Run(RunError::Store(failed)) | Self::Run(RunError::Worker(WorkerError::Store(failed)))) =
            self
        else {
            return false;
        };
        matches!(failed, StoreError::Fenced | StoreError::Away { .. })
    }
}

/// An error that ends the worker ends the run.
impl From<WorkerError> for ServerError {
    fn from(error: WorkerError) -> Self {
        Self::Run(error.into())
    }
}

impl From<StoreError> for ServerError {
    fn from(error: StoreError) -> Self {
        Self::Run(error.into())
    }
}

/// A running aggregator.
#[derive(Debug)]
pub struct Server {
    endpoint: quinn::Endpoint,
    address: SocketAddr,
    driver: Arc<Driver>,
    live: Arc<LiveSource>,
    worker: thread::JoinHandle<Result<(), WorkerError>>,
    gone: watch::Sender<bool>,
    tasks: tokio::task::JoinSet<()>,
    admission: Admission,
    dir: PathBuf,
    /// The run was over when the server was started.
    was_over: bool,
    /// Held while the server runs.
    _serving: std::fs::File,
}

impl Server {
    /// Starts or continues the active run in `dir`, whose configuration is `config`. Needs a tokio runtime around it.
    pub fn start(
        registry: &Registry,
        config: &Config,
        dir: &Path,
        observer: Option<Observer>,
    ) -> Result<Self, ServerError> {
        let open: OpenStore<'_> = Box::new(|dir, options| Ok(Box::new(DiskStore::open(dir, options)?)));
        Self::start_with(
            registry,
            config,
            dir,
            observer,
            StorePlan { open, scales: None, record_first: false },
        )
    }

    /// The same with another store, which `plan` opens in the run's directory.
    pub(crate) fn start_with(
        registry: &Registry,
        config: &Config,
        dir: &Path,
        observer: Option<Observer>,
        plan: StorePlan<'_>,
    ) -> Result<Self, ServerError> {
        // Before the store is opened, which may take long: a change in between counts.
        let name = runs::active(dir)?;
        let own = name.dir(dir);
        let target_file = TargetFile::watch(own.join("fairtier.toml"));
        let StoreConfig { keep_models, keep_spool, keep_reports, history_rounds, .. } = config.store;
        let options = Options { keep_models, keep_spool, keep_reports, history_rounds };
        Run::prepare(registry, config)?;
        if !config.guard.obsolete.is_empty() {
            let keys = config.guard.obsolete.join(", ");
            warn!(
                "[guard] {keys}: keys of an older version have no effect; `fairtier gateway init` writes the current ones"
            );
        }
        let fleet = config.schema().map_err(RunError::from)?;
        let scales = plan.scales.unwrap_or_else(|| own.join("scales.json"));
        if let Some((what, remedy)) = scales::weakness(config).filter(|_| !scales.exists()) {
            warn!("{what}; {remedy}");
        }
        let schema = Arc::new(FleetSchema::open(fleet, config.run.min_devices, &scales)?);
        let store = (plan.open)(&own.join("store"), options)?;
        let (limits, now) = (LinkLimits::QUIC, Instant::ZERO);
        let rounds = own.join("rounds");
        if let Err(error) = rounds.is_dir().then(|| files::tighten(&rounds)).transpose() {
            warn!(
                "{} is accessible to other users, and its permissions cannot be changed: {error}",
                rounds.display()
            );
        }
        let environment = RunEnvironment { store, limits, dir: Some(own.clone()), observer, now };
        let Run { mut coordinator, mut worker } = Run::open(registry, config, environment)?;
        worker.target_file = Some(target_file);
        worker.schema = Some(schema.clone());
        worker.clock = Some(clock::wall_time);
        worker.record_first = plan.record_first;
        // An exchange that is formed again may differ from the one that was recorded.
        if plan.record_first {
            worker.record()?;
        }
        coordinator.detect_silence(now);
        if let Some(Advice { what, remedy }) = config.advice(coordinator.fleet().len()) {
            info!("{what}; {remedy}");
        }
        // After a rollback the file holds the model of another round.
        worker.write_model()?;
        let locked = |source| ServerError::Lock { path: dir.to_owned(), source };
        let serving = status::mark_serving(dir).map_err(locked)?;
        // Another command may have waited for the lock, too.
        if runs::active(dir)? != name {
            return Err(ServerError::Switched { name });
        }
        let was_over = write_first_status(&worker, &own)?;
        let status_file = worker.status_file.clone();

        let authority = Arc::new(Authority::open(dir)?);
        let endpoint = quic::listen(&authority, config.server.listen)?;
        let failed = |source| QuicError::Listen { address: config.server.listen, source };
        let address = endpoint.local_addr().map_err(failed)?;
        info!(
            name = %name,
            run = %coordinator.run(),
            committed = worker.conductor.run.committed,
            strategy = worker.conductor.run.method.name(),
            "serving on {address}"
        );
        let (jobs, inbox) = mpsc::channel();
        let driver = Arc::new(Driver::new(coordinator, jobs));
        let gone = watch::Sender::new(false);
        let worker = {
            let (driver, gone_on_drop) = (driver.clone(), GoneOnDrop(gone.clone()));
            thread::spawn(move || {
                let _held = gone_on_drop;
                worker.run(&inbox, &driver)
            })
        };
        let admission = Admission::new(Limits {
            connections: config.server.max_connections,
            per_address: config.server.max_per_address,
            handshakes: config.server.max_handshakes_per_s,
        });
        let mut tasks = tokio::task::JoinSet::new();
        match Control::listen(&own) {
            Ok(control) => _ = tasks.spawn(control.serve(dir.to_owned(), name, driver.clone())),
            Err(error) => warn!("no backups while the server runs: the control socket fails: {error}"),
        }
        let downloads = tokio::sync::Semaphore::new(config.server.max_downloads.max(1));
        let timeouts = quic::Timeouts::default();
        let devices = DeviceConnections::default();
        let context = quic::Context {
            driver: driver.clone(),
            authority,
            admission: admission.clone(),
            devices,
            downloads,
            timeouts,
            schema,
        };
        context.remove_revoked();
        tasks.spawn(quic::accept(endpoint.clone(), context));
        let clock = driver.clone();
        tasks.spawn(async move { clock.keep_time().await });
        tasks.spawn(wait_report::run(driver.clone(), status_file));
        // A resumed round may be complete already.
        driver.with(Coordinator::handle_timeout);
        let (dir, live) = (dir.to_owned(), Arc::new(LiveSource::new(driver.clone())));
        Ok(Self {
            endpoint,
            address,
            driver,
            live,
            worker,
            gone,
            tasks,
            admission,
            dir,
            was_over,
            _serving: serving,
        })
    }

    /// Whether the run was over when the server was started: all rounds are committed, and the final scores are there.
    pub(crate) fn was_over(&self) -> bool {
        self.was_over
    }

    /// The bound address: with port 0 in the configuration, this has the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For parts of the program that observe the server or change its limits.
    pub fn handle(&self) -> Handle {
        Handle::new(self.driver.clone(), self.admission.clone(), self.gone.subscribe(), self.dir.clone())
    }

    /// What happens in the run now, for pages and metrics.
    pub fn live(&self) -> Arc<LiveSource> {
        self.live.clone()
    }

    /// Resolves when the run is over or cannot go on.
    pub async fn finished(&self) -> RunEnd {
        tokio::select! {
            biased;
            () = self.failed() => RunEnd::Failed,
            () = self.driver.finished() => RunEnd::Over,
        }
    }

    /// Resolves when the worker has ended without being told to stop. Also after the end of the run, when it still exports
    /// models.
    pub(crate) async fn failed(&self) {
        // The sender lives in `self`, so this wait cannot fail.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Resolves when no device is connected any more.
    pub async fn all_disconnected(&self) {
        while self.driver.connections() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Finishes what has arrived, tells devices, and closes.
    pub async fn stop(mut self) -> Result<(), ServerError> {
        self.endpoint
            .close(quinn::VarInt::from_u32(Code::NotReady.number().into()), b"the aggregator is stopping");
        self.driver.stop_worker();
        let worker = self.worker;
        let result = tokio::task::spawn_blocking(move || worker.join()).await;
        self.tasks.abort_all();
        self.endpoint.wait_idle().await;
        match result {
            Ok(Ok(result)) => Ok(result?),
            _ => Err(ServerError::WorkerDied),
        }
    }
}

/// Writes the state of the run, which a killed server may not have written. True if the run is over.
fn write_first_status(worker: &RoundWorker, dir: &Path) -> Result<bool, ServerError> {
    let last = status::last(dir)
        .filter(|last| last["committed"].as_u64() == Some(worker.conductor.run.committed.into()));
    let scored = last.as_ref().is_some_and(|last| last["finished"] == true);
    let over = scored && worker.conductor.has_trained();
    let last_round = match last {
        Some(last) => last["last_round"].clone(),
        // The server was killed before it was written.
        None => {
            let report = worker.store.report(worker.conductor.run.committed)?;
            report.and_then(|report| serde_json::from_str(&report).ok()).unwrap_or(Value::Null)
        }
    };
    worker.write_status(&worker.run_status(over, &last_round))?;
    Ok(over)
}

/// Opens the store of a run's directory.
pub(crate) type OpenStore<'a> = Box<dyn FnOnce(&Path, Options) -> Result<Box<dyn Store>, StoreError> + 'a>;

/// Where the run of a server is kept.
pub(crate) struct StorePlan<'a> {
    pub open: OpenStore<'a>,
    /// Where the agreed scales are, if not in the run's directory.
    pub scales: Option<PathBuf>,
    /// Devices are told what is durable, and nothing else: another gateway may go on at any moment.
    pub record_first: bool,
}

/// How a run has ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// All rounds are committed, and the scores of the final model are collected.
    Over,
    /// It cannot go on; [`Server::stop`] says why.
    Failed,
}

/// Reports that the worker is gone, even if it has panicked.
struct GoneOnDrop(watch::Sender<bool>);

impl Drop for GoneOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}
