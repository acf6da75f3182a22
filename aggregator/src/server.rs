//! The whole aggregator: opens what is on disk, starts the worker, the clock and the QUIC server.
//!
//! ```text
//! DIR/fairtier.toml      configuration
//! DIR/identity/          authority and enrolled devices
//! DIR/store/             what survives kill -9; the files history*.jsonl in it have the reports of all rounds
//! DIR/model.onnx         the global model after the last committed round
//! DIR/status.json        the last round in numbers, and whom the run waits for
//! DIR/rounds/            recorded rounds, with `record = true`
//! DIR/revoked.jsonl      who was revoked or replaced, and when
//! DIR/serving.lock       held while the server runs
//! ```
//! `identity/`, `store/`, `rounds/`, `revoked.jsonl` and `serving.lock` are for their owner alone: keys, updates that give back
//! samples, and locks that others could hold. `model.onnx` and `status.json` are for the owner's group, too (0640), so that a
//! monitor or a program that uses the model needs no more than that. They are not for all users: the one names devices and
//! their losses, and two models after another differ by the sum of a round's updates, in a fleet of one by the update itself.
//! `fairtier.toml` holds nothing secret and is as `init` or its owner made it (0644).

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use common::{
    Code, Instant, RunId,
    files::{self, MAX_MODEL},
    tier::Tier,
    transfer::LinkLimits,
};
use models::{
    Graph,
    plan::{CompileError, PlanOptions},
    zoo,
};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    admission::{Admission, DeviceConnections, Limits},
    ca::{Authority, CaError},
    config::{Config, ConfigError, Start, StoreConfig},
    driver::Driver,
    quic::{self, QuicError},
    run::{Run, Surroundings},
    status,
    store::{DiskStore, ModelMark, Options, RunRecord, Saved, Store, StoreError},
    worker::{Observer, RoundWorker, WorkerError},
};
use coordinator::Coordinator;
use strategies::{
    error::StrategyError,
    method::Method,
    registry::Registry,
    strategy::Needs,
    tiered::{ModelError, TieredModel},
};

mod lookout;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    #[error("{code}: {0}", code = Code::BadConfig)]
    Config(#[from] ConfigError),
    #[error("{code}: {0}", code = Code::BadConfig)]
    Strategy(#[from] StrategyError),
    #[error("{code}: {0}", code = Code::BadModel)]
    Model(#[from] ModelError),
    #[error("{code}: guard.probe: {0}", code = Code::BadConfig)]
    Probe(#[from] crate::worker::ProbeError),
    #[error("{code}: {path}: {source}", code = Code::BadModel)]
    ModelFile { path: PathBuf, source: std::io::Error },
    #[error("{code}: {path}: {source}", code = Code::BadModel)]
    Import { path: PathBuf, source: models::onnx::ImportError },
    #[error("{code}: model.source = \"{name}\" is neither a file nor a model of the zoo ({known})", code = Code::BadModel)]
    UnknownModel { name: String, known: String },
    #[error("{code}: model.start = \"zero\", but the model has {layers} layers: with more than one of them no weight would ever change", code = Code::BadConfig)]
    ZeroStart { layers: usize },
    #[error("{code}: devices.{device} = {tier}, but there are {tiers} tiers (counted from 0)", code = Code::BadConfig)]
    FixedTier { device: String, tier: usize, tiers: usize },
    #[error("{code}: tier {tier} needs messages of {need} bytes, server.max_message = {max}: raise it, or choose a smaller model or another codec", code = Code::BadConfig)]
    MaxMessage { tier: usize, need: u64, max: u32 },
    #[error("{code}: {0}", code = .0.code())]
    Store(#[from] StoreError),
    #[error(transparent)]
    Authority(#[from] CaError),
    #[error(transparent)]
    Quic(#[from] QuicError),
    #[error("{path}: {source}", path = .path.display())]
    Lock { path: PathBuf, source: std::io::Error },
    #[error("the run can not go on: {0}")]
    RoundWorker(#[from] WorkerError),
    #[error("the worker has died; the store is as the last commit left it")]
    RoundWorkerDied,
}

/// A running aggregator.
#[derive(Debug)]
pub struct Server {
    endpoint: quinn::Endpoint,
    address: SocketAddr,
    driver: Arc<Driver>,
    worker: thread::JoinHandle<Result<(), WorkerError>>,
    gone: watch::Sender<bool>,
    tasks: tokio::task::JoinSet<()>,
    /// The run was over when it started.
    was_over: bool,
    /// While this is held, a server runs.
    _served: std::fs::File,
}

impl Server {
    /// Starts, or goes on with the run in `dir`. Needs a tokio runtime around it.
    pub fn start(
        registry: &Registry,
        config: &Config,
        dir: &Path,
        observer: Option<Observer>,
    ) -> Result<Self, ServerError> {
        let StoreConfig { keep_models, keep_spool, keep_reports, history_rounds, .. } = config.store;
        let options = Options { keep_models, keep_spool, keep_reports, history_rounds };
        Run::prepare(registry, config)?;
        if !config.guard.obsolete.is_empty() {
            let keys = config.guard.obsolete.join(", ");
            warn!(
                "[guard] {keys}: of an older version, without effect; `fairtier gateway init` writes the keys of this one"
            );
        }
        let store = Box::new(DiskStore::open(&dir.join("store"), options)?);
        let (limits, now) = (LinkLimits::QUIC, Instant::ZERO);
        let rounds = dir.join("rounds");
        if let Err(error) = rounds.is_dir().then(|| files::tighten(&rounds)).transpose() {
            warn!("{} is open to other users, and that cannot be changed: {error}", rounds.display());
        }
        let around = Surroundings { store, limits, dir: Some(dir.to_owned()), observer, now };
        let Run { mut coordinator, worker } = Run::open(registry, config, around)?;
        coordinator.heed_silence(now);
        // After a rollback the file is that of another round.
        worker.write_model()?;
        let locked = |source| ServerError::Lock { path: dir.to_owned(), source };
        let served = status::mark_served(dir).map_err(locked)?;
        let was_over = write_first_status(&worker, dir)?;
        let status_file = worker.status_file.clone();

        let authority = Arc::new(Authority::open(dir)?);
        let endpoint = quic::listen(&authority, config.server.listen)?;
        let failed = |source| QuicError::Listen { address: config.server.listen, source };
        let address = endpoint.local_addr().map_err(failed)?;
        info!(
            run = %coordinator.run(),
            committed = worker.conductor.run.committed,
            strategy = worker.conductor.run.method.name(),
            "serving on {address}"
        );
        let (jobs, inbox) = mpsc::channel();
        let driver = Arc::new(Driver::new(coordinator, jobs));
        let gone = watch::Sender::new(false);
        let worker = {
            let (driver, ending) = (driver.clone(), Ending(gone.clone()));
            thread::spawn(move || {
                let _ending = ending;
                worker.run(&inbox, &driver)
            })
        };
        let admission = Admission::new(Limits {
            connections: config.server.max_connections,
            per_address: config.server.max_per_address,
            handshakes: config.server.max_handshakes_per_s,
        });
        let mut tasks = tokio::task::JoinSet::new();
        let downloads = tokio::sync::Semaphore::new(config.server.max_downloads.max(1));
        let waits = quic::Waits::default();
        let devices = DeviceConnections::default();
        let context =
            quic::Context { driver: driver.clone(), authority, admission, devices, downloads, waits };
        context.remove_revoked();
        tasks.spawn(quic::accept(endpoint.clone(), context));
        let clock = driver.clone();
        tasks.spawn(async move { clock.keep_time().await });
        tasks.spawn(lookout::look_out(driver.clone(), status_file));
        // A resumed round may be complete already.
        driver.with(Coordinator::handle_timeout);
        Ok(Self { endpoint, address, driver, worker, gone, tasks, was_over, _served: served })
    }

    /// Whether the run was over when the server was started: all rounds are committed, and the final scores are there.
    pub fn was_over(&self) -> bool {
        self.was_over
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Resolves when the run is over or can not go on.
    pub async fn finished(&self) -> End {
        tokio::select! {
            biased;
            () = self.failed() => End::Failed,
            () = self.driver.finished() => End::Over,
        }
    }

    /// Resolves when the worker is gone without being told to stop; also after the end of the run, when it still exports
    /// models.
    pub async fn failed(&self) {
        // The sender lives in `self`, so waiting can only end well.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Resolves when no device is connected any more.
    pub async fn deserted(&self) {
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
            _ => Err(ServerError::RoundWorkerDied),
        }
    }
}

/// Says where the run stands, which the last server may not have lived to write. True if the run is over.
fn write_first_status(worker: &RoundWorker, dir: &Path) -> Result<bool, ServerError> {
    let last = status::last(dir)
        .filter(|last| last["committed"].as_u64() == Some(worker.conductor.run.committed.into()));
    let scored = last.as_ref().is_some_and(|last| last["finished"] == true);
    let over = scored && worker.conductor.run.committed >= worker.conductor.run.settings.rounds;
    let last_round = match last {
        Some(last) => last["last_round"].clone(),
        // Killed before it was written.
        None => {
            let report = worker.store.report(worker.conductor.run.committed)?;
            report.and_then(|report| serde_json::from_str(&report).ok()).unwrap_or_default()
        }
    };
    worker.write_status(&worker.run_status(over, &last_round))?;
    Ok(over)
}

/// How a run has ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End {
    Over,
    /// It can not go on; [`Server::stop`] says why.
    Failed,
}

/// Says that the worker is gone, also if it has panicked.
struct Ending(watch::Sender<bool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// The model under its tiers, and its initial parameters.
pub fn open_model(config: &Config, needs: Needs) -> Result<(TieredModel, Vec<f32>), ServerError> {
    let source = &config.model.source;
    let (graph, mut parameters) = match zoo::build(source, config.model.seed) {
        Some(built) => built,
        None => {
            let path = PathBuf::from(source);
            if !path.exists() {
                let known = zoo::ALL.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
                return Err(ServerError::UnknownModel { name: source.clone(), known });
            }
            let file = files::read(&path, MAX_MODEL)
                .map_err(|source| ServerError::ModelFile { path: path.clone(), source })?;
            Graph::from_onnx(&file).map_err(|source| ServerError::Import { path, source })?
        }
    };
    if config.model.start == Start::Zero {
        match graph.layers().len() {
            0 | 1 => parameters.fill(0.0),
            layers => return Err(ServerError::ZeroStart { layers }),
        }
    }
    let mask = |(tier, spec): (usize, &models::tiers::TierSpec)| {
        spec.mask(&graph).map_err(|source| ModelError::Mask { tier, source })
    };
    let masks: Vec<_> = config.model.tiers.iter().enumerate().map(mask).collect::<Result<_, _>>()?;
    let last: Vec<_> = config.model.tiers.iter().map(models::tiers::TierSpec::last).collect();
    let options = config.plan_options(needs);
    let unfused = PlanOptions { fused: false, ..options };
    // Layers that share weights need their gradients summed before they are applied.
    let model = match TieredModel::training(graph.clone(), masks.clone(), &last, &options) {
        Err(ModelError::Plan { source: CompileError::Fused, .. }) => {
            TieredModel::training(graph, masks, &last, &unfused)?
        }
        other => other?,
    };
    check_messages(config, &model, needs)?;
    Ok((model, parameters))
}

/// Both directions of every tier, before a device finds out.
fn check_messages(config: &Config, model: &TieredModel, needs: Needs) -> Result<(), ServerError> {
    let max = config.server.max_message;
    for (tier, plan) in model.plans.iter().enumerate().filter_map(|(n, plan)| Some((Tier::new(n)?, plan))) {
        let (held, trained) = (plan.info.params as usize, model.regions.slice_len(tier));
        let ways = [(&config.wire.down, held), (&config.wire.up, trained * needs.product.vectors())];
        for (codecs, numbers) in ways {
            let bytes = codecs.of(tier).and_then(|codec| codec.encoded_len(numbers));
            let need = bytes.map_or(u64::MAX, u64::from);
            if need > u64::from(max) {
                return Err(ServerError::MaxMessage { tier: tier.index(), need, max });
            }
        }
    }
    Ok(())
}

/// The strategy of a configuration with its options.
pub fn open_method(registry: &Registry, config: &Config) -> Result<Method, StrategyError> {
    registry.method(&config.strategy.name, config.strategy.params.clone().into())
}

pub(crate) fn check_fixed_tiers(config: &Config, tiers: usize) -> Result<(), ServerError> {
    match config.devices.iter().find(|(_, tier)| tier.index() >= tiers) {
        Some((device, tier)) => {
            Err(ServerError::FixedTier { device: device.to_string(), tier: tier.index(), tiers })
        }
        None => Ok(()),
    }
}

/// What tells this model from others in a store.
pub fn mark(model: &TieredModel) -> ModelMark {
    let slices =
        (0..model.plans.len()).filter_map(Tier::new).map(|tier| model.regions.slice_len(tier) as u64);
    ModelMark {
        digest: model.graph.digest(model.graph.full()),
        parameters: model.regions.parameters() as u64,
        tiers: slices.collect(),
    }
}

/// The run in the store, or a new one.
pub fn open_run(
    store: &mut dyn Store,
    model: &TieredModel,
    config: &Config,
    parameters: Vec<f32>,
) -> Result<Saved, StoreError> {
    let mark = mark(model);
    if let Some(saved) = store.load(&mark)? {
        return Ok(saved);
    }
    let run = RunRecord {
        run: RunId(RandomState::new().hash_one(std::time::SystemTime::now())),
        model: mark,
        config: toml::to_string(config).unwrap_or_default(),
    };
    store.begin_run(&run, &parameters)?;
    let (strategy_state, devices) = (vec![], vec![]);
    Ok(Saved { run, next_round: 1, attempt: 0, parameters, strategy_state, devices, open: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_one_layer_may_start_from_zero() {
        let open = |source: &str, start: &str| {
            let text = format!("[model]\nsource = \"{source}\"\nstart = \"{start}\"\ntiers = [1.0]");
            open_model(&Config::parse(&text).unwrap(), Needs::default())
        };
        assert!(open("mlp:3-1", "zero").unwrap().1.iter().all(|&weight| weight == 0.0));
        assert!(open("mlp:3-1", "model").unwrap().1.iter().all(|&weight| weight != 0.0));
        let error = open("mlp:3-4-1", "zero").unwrap_err().to_string();
        assert!(error.contains("model.start") && error.contains("2 layers"), "{error}");
    }
}
