//! A run, opened from its configuration and its store: the Coordinator and the worker that belong together.
//!
//! The server adds QUIC and a clock; a simulation drives them directly.

use std::{collections::BTreeMap, path::PathBuf};

use common::{Instant, transfer::LinkLimits};

use crate::{
    config::Config,
    store::Store,
    worker::{ConfigLog, Observer, ProbeSamples, RoundWorker},
};
use coordinator::{
    Coordinator, ReopenedExchange, Start,
    conductor::{Conductor, LossWatch, Probe, RunState, state::StateParts},
};
use models::forward::computes_the_same_when_rolled;
use strategies::{guard::Guard, method::Method, registry::Registry, tiered::TieredModel};

mod error;
mod model;
mod saved;

pub use error::RunError;
use model::{check_fixed_tiers, check_schema};
pub use model::{open_graph, open_method, open_model};
pub(crate) use saved::expect_same;
pub use saved::fingerprint;

/// A Coordinator and the worker that carries out what it asks for.
#[derive(Debug)]
pub struct Run {
    /// Decides what devices are told.
    pub coordinator: Coordinator,
    /// Carries out what the Coordinator asks for.
    pub worker: RoundWorker,
}

/// The parts of a run, before anything is written.
#[derive(Debug)]
pub struct PreparedRun {
    /// The strategy with its parameters.
    pub method: Method,
    /// The graph with a Plan for every tier.
    pub model: TieredModel,
    /// Parameters that a new run begins with.
    pub initial: Vec<f32>,
    /// The samples of `guard.probe`, if it names a file.
    pub probe: Option<ProbeSamples>,
}

/// What a run is opened with, besides its configuration.
#[expect(missing_debug_implementations, reason = "destructured at once")]
pub struct RunEnvironment {
    /// Empty, or with a run of the same model.
    pub store: Box<dyn Store>,
    /// Chunks, window and timeout of the link to devices.
    pub limits: LinkLimits,
    /// Where files for users go.
    pub dir: Option<PathBuf>,
    /// Sees every report.
    pub observer: Option<Observer>,
    /// When the Coordinator starts.
    pub now: Instant,
}

impl Run {
    /// Starts a run, or continues the one in the store.
    pub fn open(registry: &Registry, config: &Config, environment: RunEnvironment) -> Result<Self, RunError> {
        let RunEnvironment { mut store, limits, dir, observer, now } = environment;
        let PreparedRun { mut method, model, initial, probe } = Self::prepare(registry, config)?;
        let needs = method.needs();
        let saved = saved::load_or_begin(&mut *store, &model, config, initial)?;
        let state = StateParts::split(&saved.strategy_state);
        method.restore(state.method)?;
        if state.is_fresh() && saved.next_round > 1 && method.fairness.is_some() {
            method.recall_fairness(saved::reports(&*store)?)?;
        }
        let mut guard = Guard::new(config.guard.clone());
        guard.restore(state.guard);
        if guard.is_on() {
            method.strategy.bound(guard.config().floor, guard.config().fifth.min(guard.config().share));
        }
        let mut settings = config.settings(needs);
        settings.limits = limits;
        let fleet = saved.devices.iter().map(|record| (record.device.clone(), record.clone())).collect();
        let run = RunState {
            method,
            model: model.clone(),
            parameters: saved.parameters,
            committed: saved.next_round - 1,
            attempt: saved.attempt,
            fresh: state.is_fresh(),
            settings: settings.clone(),
            fleet,
            guard,
            probe: probe.map(|probe| Box::new(probe) as Box<dyn Probe>),
            conflicts: config.report.conflicts,
            params: config.strategy.params.clone(),
            best: saved.best,
        };
        let mut conductor = Conductor::new(run);
        conductor.watch = LossWatch::restore(state.watch, |round| store.parameters(round))?;
        let mut worker = RoundWorker::new(store, conductor, config.store.record, dir, observer);
        let reopened = match &saved.open {
            Some(open) => {
                let scalars =
                    |entry: &crate::store::Entry| (entry.header.device.clone(), entry.header.scalars.clone());
                let delivered = open.updates.iter().map(scalars).collect();
                let wanted = open.record.wanted.clone();
                Some(ReopenedExchange { announcement: worker.reopen(open)?, wanted, delivered })
            }
            None => None,
        };
        let start = Start {
            run: saved.run.run,
            committed: worker.conductor.run.committed,
            attempt: worker.conductor.run.attempt,
            devices: saved.devices,
            fixed: config.devices.clone().into_iter().collect::<BTreeMap<_, _>>(),
            reopened,
        };
        worker.config_log = ConfigLog::new(saved.config.as_deref(), config)?;
        let mut coordinator = Coordinator::new(settings, model, &worker.conductor.run.parameters, start, now);
        if worker.conductor.early_stop().is_some() {
            coordinator.end_training();
        }
        Ok(Self { coordinator, worker })
    }

    /// Checks the whole configuration before anything is written.
    pub fn prepare(registry: &Registry, config: &Config) -> Result<PreparedRun, RunError> {
        let mut method = open_method(registry, config)?;
        let needs = method.needs();
        config.suits(&method)?;
        let (model, initial) = open_model(config, needs)?;
        let dims = &model.graph.input().shape.dims;
        method.see_images(&dims.iter().map(|dim| dim.size(model.graph.full())).collect::<Vec<_>>());
        check_fixed_tiers(config, model.plans.len())?;
        check_schema(config, &model)?;
        method.fits(&model.regions)?;
        if method.strategy.rolls() {
            let same = computes_the_same_when_rolled(&model.graph);
            if !same.map_err(|error| RunError::Forward(Box::new(error)))? {
                return Err(RunError::TiedUnits { strategy: method.name() });
            }
        }
        method.aim(config.fairness.clone(), &config.strategy.params, &model.regions)?;
        let probe = ProbeSamples::open(&config.guard, &model)?;
        Ok(PreparedRun { method, model, initial, probe })
    }
}

#[cfg(test)]
mod tests {
    use common::{Budget, DeviceId, Tier, message::DataSummary};

    use super::*;
    use crate::{
        store::{MemoryStore, OpenRound},
        worker::Reply,
    };
    use coordinator::{Action, announcement::Announcement, record::DeviceInTier};
    use strategies::{device::DeviceRecord, strategy::Kind};

    fn open(config: &Config, store: Box<dyn Store>) -> RoundWorker {
        let limits = LinkLimits::QUIC;
        let around = RunEnvironment { store, limits, dir: None, observer: None, now: Instant::ZERO };
        Run::open(&Registry::standard(), config, around).unwrap().worker
    }

    /// A worker with one device, and the first announcement of round 1.
    fn first_exchange(config: &str, validate: bool) -> (RoundWorker, Announcement) {
        let mut worker = open(&Config::parse(config).unwrap(), Box::new(MemoryStore::new()));
        worker.conductor.run.settings.validate = validate;
        let (tier, device) = (Tier::new(0).unwrap(), "a".parse::<DeviceId>().unwrap());
        let data = DataSummary { train_samples: 10, ..DataSummary::default() };
        let record = DeviceRecord { device: device.clone(), tier, budget: Budget::UNLIMITED, data };
        worker.act(Action::Register(record)).unwrap();
        let selected = vec![DeviceInTier { device, tier }];
        let reply = worker.act(Action::OpenRound { round: 1, selected, wanted: vec![] }).unwrap();
        match reply {
            Some(Reply::Opened(announcement)) => (worker, announcement),
            _ => panic!("no exchange"),
        }
    }

    #[test]
    fn validation_is_asked_for_with_the_training_alone() {
        let validates = |announcement: &Announcement| announcement.asked[0].task.validates();
        for validate in [false, true] {
            let (_, training) = first_exchange("strategy = { name = \"heterofl\" }", validate);
            assert_eq!((training.kind, validates(&training)), (Kind::Train, validate));
        }
        let (_, other) = first_exchange("strategy = { name = \"fedeba_plus\" }", true);
        assert!(other.kind != Kind::Train && !validates(&other), "{:?}", other.kind);
    }

    #[test]
    fn a_restart_that_asks_for_validation_asks_again_and_one_that_changes_nothing_does_not() {
        let (mut worker, _) = first_exchange("strategy = { name = \"heterofl\" }", false);
        for (validate, attempt) in [(false, 0), (true, 1), (true, 1), (false, 2)] {
            worker.conductor.run.settings.validate = validate;
            let record = worker.conductor.open_record().unwrap().clone();
            let announcement = worker.reopen(&OpenRound { record, updates: vec![] }).unwrap();
            assert_eq!(announcement.asked[0].task.validates(), validate);
            assert_eq!(worker.conductor.run.attempt, attempt);
        }
    }

    /// A device that is not in the first round counts as well.
    #[test]
    fn a_strategy_is_shown_the_fleet_again_after_a_crash() {
        let config = Config::parse("strategy = { name = \"fedfb\" }").unwrap();
        let mut worker = open(&config, Box::new(MemoryStore::new()));
        let tier = Tier::new(0).unwrap();
        let devices: [DeviceId; 3] = ["a", "b", "c"].map(|name| name.parse().unwrap());
        for (device, samples) in devices.iter().zip([10, 30, 50]) {
            let groups = [samples / 2, samples / 2].into_iter().collect();
            let data = DataSummary { train_samples: samples, groups, ..DataSummary::default() };
            let record = DeviceRecord { device: device.clone(), tier, budget: Budget::UNLIMITED, data };
            worker.act(Action::Register(record)).unwrap();
        }
        let nothing = worker.conductor.run.method.save();
        let selected =
            devices[..2].iter().map(|device| DeviceInTier { device: device.clone(), tier }).collect();
        worker.act(Action::OpenRound { round: 1, selected, wanted: vec![1] }).unwrap();
        let state = worker.conductor.run.method.save();
        assert_ne!(state, nothing);
        let again = open(&config, worker.store);
        assert_eq!((again.conductor.run.method.save(), again.conductor.run.attempt), (state, 0));
        assert_eq!(again.conductor.open_record().map(|open| open.wanted.clone()), Some(vec![1]));
    }
}
