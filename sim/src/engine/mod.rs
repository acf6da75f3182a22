//! A whole fleet in one process: the real Coordinator, RoundWorker and Sessions around a link in memory and a
//! virtual clock.
//!
//! Devices train on worker threads; everything else happens on the caller's thread, in the order of virtual
//! time. So the result does not depend on the number of threads. Devices borrow their arenas, so memory is of
//! the order of `threads x model + data`. A device that keeps a personal model or the residual of a lossy codec has
//! its own arena.
//!
//! ```text
//! exchange opens -> for every asked device: when will it have answered?   (speed, link, chance)
//!   in that order, a few at a time:  model down -> threads train -> update up
//! deadline -> the Coordinator closes the exchange; later devices have missed it
//! ```

use std::sync::{Arc, Mutex};

use aggregator::{
    config::Config,
    run::{Run, RunEnvironment, RunError},
    store::MemoryStore,
    worker::{Observer, Reply},
};
use client::data::Shard;
use common::{
    Budget, DeviceId, Instant, Tier, Versions, privacy::Privacy, rng::derive, transfer::LinkLimits,
};
use coordinator::{Action, StoredUpdate, fleet::ConnId, report::RoundReport};
use strategies::{Registry, tiered::TierPlan};

mod account;
mod cost;
mod device;
mod exchange;
mod pool;
#[cfg(test)]
mod tests;

pub use account::{Account, TierAccount};
pub use cost::{Chances, CostError, Hardware};
use device::Device;
use pool::Pool;

/// A shard that threads may share.
pub type SharedShard = Arc<dyn Shard + Send + Sync>;

/// Long chunks and no pauses: this link loses nothing.
const LINK: LinkLimits = LinkLimits { chunk: 512 * 1024, window: 16, ..LinkLimits::QUIC };

/// Bytes of updates that are kept in memory; the others wait in a temporary file.
const MAX_UPDATES: usize = 64 << 20;

/// One device of the simulated fleet.
#[derive(Clone)]
pub struct DeviceSpec {
    /// Its name.
    pub device: DeviceId,
    /// The tier that its memory just holds.
    pub tier: Tier,
    /// Its speed and energy.
    pub hardware: Hardware,
    /// Its samples.
    pub shard: SharedShard,
}

impl std::fmt::Debug for DeviceSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSpec").field("device", &self.device).field("tier", &self.tier).finish()
    }
}

/// Why a simulation cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The configuration is wrong.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The round worker has failed.
    #[error("the run cannot go on: {0}")]
    Worker(#[from] aggregator::worker::WorkerError),
    /// The aggregator does not admit a device.
    #[error("{device} is refused: {code}")]
    Refused {
        /// Its name.
        device: DeviceId,
        /// The reason.
        code: common::Code,
    },
    /// A device is in a tier that the model does not have.
    #[error("{device} is in tier {tier}, and the model has tiers 0 to {last}", last = tiers - 1)]
    UnknownTier {
        /// Its name.
        device: DeviceId,
        /// The tier of its [`DeviceSpec`].
        tier: usize,
        /// Number of tiers of the model.
        tiers: usize,
    },
    /// The time that a task takes cannot be computed.
    #[error("the cost of a task of {device} is unknown: {source}")]
    Cost {
        /// Its name.
        device: DeviceId,
        /// The reason.
        source: CostError,
    },
    /// All devices have answered or dropped out, and a tier has no quorum.
    #[error(
        "round {round} cannot close: {answered} of {asked} devices answered, which is no quorum; \
         lower round.quorum, or set round.give_up_s"
    )]
    Stuck {
        /// From 1.
        round: u32,
        /// Devices that have answered.
        answered: usize,
        /// Devices that were asked.
        asked: usize,
    },
    /// The file for updates beyond memory cannot be created.
    #[error("cannot create a temporary file for updates: {0}; set TMPDIR to a writable directory")]
    Temporary(#[from] std::io::Error),
    /// A worker thread has panicked.
    #[error("a training thread has died")]
    Thread,
    /// The Coordinator waits for more devices than there are.
    #[error("no exchange is open, and the run is not over")]
    Idle,
}

/// A run that is being simulated.
#[derive(Debug)]
pub struct Engine {
    run: Run,
    devices: Vec<Device>,
    pool: Pool,
    chances: Chances,
    reports: Arc<Mutex<Vec<RoundReport>>>,
    account: Account,
    now: Instant,
    /// Reused by every frame.
    frame: Vec<u8>,
    tamper: Option<Tamper>,
}

/// Changes updates before they are stored, as hostile devices would.
pub struct Tamper(pub Box<dyn FnMut(&mut StoredUpdate) + Send>);

impl std::fmt::Debug for Tamper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tamper")
    }
}

impl Engine {
    /// Connects the fleet. `threads`: number of training threads.
    pub fn new(
        registry: &Registry,
        config: &Config,
        specs: Vec<DeviceSpec>,
        chances: Chances,
        threads: usize,
    ) -> Result<Self, EngineError> {
        let reports = Arc::new(Mutex::new(vec![]));
        let seen = reports.clone();
        let observer: Observer = Box::new(move |report| lock(&seen).push(report.clone()));
        let mut config = config.clone();
        config.run.min_devices = specs.len();
        let environment = RunEnvironment {
            store: Box::new(MemoryStore::with_overflow(tempfile::tempfile()?, MAX_UPDATES)),
            limits: LINK,
            dir: None,
            observer: Some(observer),
            now: Instant::ZERO,
        };
        let run = Run::open(registry, &config, environment)?;
        let plans = &run.worker.conductor.run.model.plans;
        let tiers = plans.len();
        let mut devices = Vec::with_capacity(specs.len());
        for (index, spec) in specs.into_iter().enumerate() {
            let Some(TierPlan { info, .. }) = plans.get(spec.tier.index()) else {
                let (device, tier) = (spec.device, spec.tier.index());
                return Err(EngineError::UnknownTier { device, tier, tiers });
            };
            let keeps_arena = info.segments.residual.is_some() || info.segments.personal.is_some();
            let budget = Budget { ram: info.arena_bytes(), ..Budget::UNLIMITED };
            let privacy = Privacy::simulated(derive(chances.seed, index as u64));
            devices.push(Device::new(ConnId(index as u64 + 1), spec, budget, keeps_arena, privacy));
        }
        let mut engine = Self {
            run,
            devices,
            pool: Pool::new(threads),
            chances,
            reports,
            account: Account::new(tiers),
            now: Instant::ZERO,
            frame: Vec::new(),
            tamper: None,
        };
        engine.join()?;
        Ok(engine)
    }

    /// Changes the updates of hostile devices with `tamper`.
    #[must_use]
    pub fn with_tamper(self, tamper: Tamper) -> Self {
        Self { tamper: Some(tamper), ..self }
    }

    /// Simulates to the end of the run and returns the reports of all rounds, the final scores last.
    /// `progress` is called after every round with its report and the new parameters.
    pub fn run(
        &mut self,
        mut progress: impl FnMut(&RoundReport, &[f32]),
    ) -> Result<Vec<RoundReport>, EngineError> {
        let mut told = 0;
        while !self.run.coordinator.is_finished() {
            self.run_exchange()?;
            let fresh: Vec<_> = lock(&self.reports).iter().skip(told).cloned().collect();
            told += fresh.len();
            fresh.iter().for_each(|report| progress(report, &self.run.worker.conductor.run.parameters));
        }
        Ok(lock(&self.reports).clone())
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The global model now.
    pub fn parameters(&self) -> &[f32] {
        &self.run.worker.conductor.run.parameters
    }

    /// The round worker, for inspection.
    pub fn worker(&self) -> &aggregator::worker::RoundWorker {
        &self.run.worker
    }

    /// What the run has cost so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// All devices say Hello and receive a tier and a Plan.
    fn join(&mut self) -> Result<(), EngineError> {
        for index in 0..self.devices.len() {
            let device = &mut self.devices[index];
            self.run.coordinator.handle_connected(device.conn, device.id.clone());
            if let Some(session) = &mut device.session {
                session.handle_connected(LINK, Versions::OURS, self.now);
            }
            self.talk(index, self.now)?;
            if let Some(code) = self.devices[index].refused {
                return Err(EngineError::Refused { device: self.devices[index].id.clone(), code });
            }
        }
        Ok(())
    }

    /// Moves frames between both ends, until neither has any left or the device has work.
    fn talk(&mut self, index: usize, now: Instant) -> Result<(), EngineError> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(LINK.chunk as usize + common::wire::CHUNK_OVERHEAD, 0);
        let (mut answer, mut quiet) = (Vec::new(), false);
        while !quiet && !self.devices[index].has_work() {
            quiet = true;
            let conn = self.devices[index].conn;
            while let Some((_, len)) =
                self.devices[index].session.as_mut().and_then(|s| s.poll_transmit(&mut frame))
            {
                quiet = false;
                // The device is told of a refusal on the link.
                let _ = self.run.coordinator.handle_frame(conn, &frame[..len], now);
                self.carry_out()?;
            }
            while !self.devices[index].has_work()
                && !self.devices[index].stops_receiving
                && self.run.coordinator.poll_transmit(conn, &mut answer).is_some()
            {
                quiet = false;
                if let Some(session) = &mut self.devices[index].session {
                    let _ = session.handle_frame(&answer, now);
                }
                self.devices[index].note_events();
            }
        }
        self.frame = frame;
        Ok(())
    }

    fn carry_out(&mut self) -> Result<(), EngineError> {
        while let Some(action) = self.run.coordinator.poll_action() {
            if let Action::Disconnect(_) = action {
                continue;
            }
            let action = match (action, &mut self.tamper) {
                (Action::Store(mut update), Some(Tamper(tamper))) => {
                    tamper(&mut update);
                    Action::Store(update)
                }
                (action, _) => action,
            };
            match self.run.worker.act(action)? {
                None | Some(Reply::Finished) => {}
                Some(reply) => self.run.worker.tell(reply, &mut self.run.coordinator, self.now),
            }
        }
        // All devices are polled in turn, so none has to be woken.
        while self.run.coordinator.poll_wake().is_some() {}
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
