//! A whole fleet in one process: the real Coordinator, RoundWorker and Sessions around a link in memory and a
//! virtual clock.
//!
//! Training runs on threads of its own; everything else happens on the caller's, in the order of virtual
//! time, so the result does not depend on how many threads there are. Devices borrow their arenas: memory is
//! of the order of `threads x model + data`, except where a device keeps a personal model or what a lossy
//! codec owes.
//!
//! ```text
//! exchange opens -> for every asked device: when will it have answered?   (speed, link, chance)
//!   in that order, a few at a time:  model down -> threads train -> update up
//! deadline -> the Coordinator closes the exchange; who is later has missed it
//! ```

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use aggregator::{
    config::Config,
    run::{Run, Surroundings},
    server::ServerError,
    store::MemoryStore,
    worker::{Observer, Reply},
};
use client::data::Shard;
use common::{
    Budget, DeviceId, Instant, Tier, Versions, privacy::Privacy, rng::derive, transfer::LinkLimits,
};
use coordinator::{Action, StoredUpdate, fleet::ConnId, report::RoundReport};
use strategies::Registry;

mod account;
mod cost;
mod device;
mod pool;
#[cfg(test)]
mod tests;

pub use account::{Account, TierAccount};
pub use cost::{Chances, Hardware};
use device::Device;
use pool::Pool;

/// A shard that threads may share.
pub type SharedShard = Arc<dyn Shard + Send + Sync>;

/// Frames as large as the format allows, and no waiting: nothing is ever lost.
const LINK: LinkLimits = LinkLimits { chunk: 512 * 1024, window: 16, ..LinkLimits::QUIC };

/// Bytes of updates that are kept in memory; a large fleet's others wait in a file.
const UPDATES: usize = 64 << 20;

/// One member of the simulated fleet.
#[derive(Clone)]
pub struct Member {
    pub device: DeviceId,
    /// The tier its memory is made for.
    pub tier: Tier,
    pub hardware: Hardware,
    pub shard: SharedShard,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("device", &self.device).field("tier", &self.tier).finish()
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("the run can not go on: {0}")]
    Worker(#[from] aggregator::worker::WorkerError),
    #[error("{device} is not taken: {code}")]
    Refused { device: DeviceId, code: common::Code },
    #[error("round {round} can not close: {answered} of {asked} devices answer, and its quorum needs more")]
    Stuck { round: u32, answered: usize, asked: usize },
    #[error("updates beyond memory need a temporary file: {0} (TMPDIR says where)")]
    Temporary(#[from] std::io::Error),
    #[error("a thread that trains has died")]
    Thread,
}

/// When an asked device will have answered, and what that costs it.
#[derive(Copy, Clone, Debug)]
struct Due {
    finish: Instant,
    index: usize,
    cost: cost::Cost,
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

/// Changes updates on their way in, as hostile devices would.
pub struct Tamper(pub Box<dyn FnMut(&mut StoredUpdate) + Send>);

impl std::fmt::Debug for Tamper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tamper")
    }
}

impl Engine {
    /// Brings the fleet together. `threads` are those that train.
    pub fn new(
        registry: &Registry,
        config: &Config,
        members: Vec<Member>,
        chances: Chances,
        threads: usize,
    ) -> Result<Self, EngineError> {
        let reports = Arc::new(Mutex::new(vec![]));
        let seen = reports.clone();
        let observer: Observer = Box::new(move |report| lock(&seen).push(report.clone()));
        let mut config = config.clone();
        config.run.min_devices = members.len();
        let around = Surroundings {
            store: Box::new(MemoryStore::with_overflow(tempfile::tempfile()?, UPDATES)),
            limits: LINK,
            dir: None,
            observer: Some(observer),
            now: Instant::ZERO,
        };
        let run = Run::open(registry, &config, around)?;
        let plans = &run.worker.conductor.run.model.plans;
        let tiers = plans.len();
        let join = |(index, member): (usize, Member)| {
            let info = plans.get(member.tier.index()).map(|plan| plan.info);
            let ram = info.map_or(0, |info| info.arena_bytes());
            let segments = info.map(|info| info.segments).unwrap_or_default();
            let keeps = segments.residual.is_some() || segments.personal.is_some();
            let budget = Budget { ram, ..Budget::UNLIMITED };
            let privacy = Privacy::simulated(derive(chances.seed, index as u64));
            Device::new(ConnId(index as u64 + 1), member, budget, keeps, privacy)
        };
        let devices = members.into_iter().enumerate().map(join).collect();
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

    /// Lets some devices lie.
    #[must_use]
    pub fn with_tamper(self, tamper: Tamper) -> Self {
        Self { tamper: Some(tamper), ..self }
    }

    /// Simulates to the end of the run and gives the reports of all rounds, the final scores last.
    /// `progress` is called after every round with its report and the model that it has led to.
    pub fn run(
        &mut self,
        mut progress: impl FnMut(&RoundReport, &[f32]),
    ) -> Result<Vec<RoundReport>, EngineError> {
        let mut told = 0;
        while !self.run.coordinator.is_finished() {
            self.exchange()?;
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

    pub fn worker(&self) -> &aggregator::worker::RoundWorker {
        &self.run.worker
    }

    /// What the run has cost so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Everybody says hello and is given a tier and a Plan.
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

    /// One exchange of a round: everybody who is asked answers, as far as time allows.
    fn exchange(&mut self) -> Result<(), EngineError> {
        let Some(round) = self.run.coordinator.round() else { return Err(EngineError::Thread) };
        let (number, exchange, opened) = (round.number, round.exchange, round.opened);
        let asked = round.seats.len();
        for device in self.devices.iter().filter(|device| round.tasks.contains_key(&device.id)) {
            if let Some(tier) = device.tier() {
                self.account.asked(tier);
            }
        }
        let deadline = self.run.coordinator.poll_limit().unwrap_or(opened);
        let mut due = self.due(number, exchange, opened);
        let width = self.pool.threads() + 2;
        let mut flight: VecDeque<Due> = VecDeque::new();
        let mut answered = 0;
        loop {
            while flight.len() < width
                && due.front().is_some_and(|next| next.finish <= deadline)
                && let Some(next) = due.pop_front()
            {
                self.start(next.index, opened)?;
                flight.push_back(next);
            }
            if flight.is_empty()
                && let Some(late) = due.pop_front()
            {
                // Only who is later than the first deadline is left. Without a quorum they are waited for.
                if !self.overdue(Some(late.finish))? {
                    self.spend(&late, opened, false);
                    due.iter().for_each(|late| self.spend(late, opened, false));
                    return Ok(());
                }
                self.start(late.index, opened)?;
                flight.push_back(late);
            }
            let Some(first) = flight.pop_front() else { break };
            let Due { finish, index, .. } = first;
            self.now = self.now.max(finish);
            self.finish(index, finish)?;
            self.spend(&first, opened, true);
            answered += 1;
            if !self.is_open(number, exchange) {
                // Closed before everybody has answered.
                for late in flight.drain(..) {
                    let index = late.index;
                    self.devices[index].session = Some(self.pool.wait(index).ok_or(EngineError::Thread)?);
                    self.devices[index].give_back(&mut self.pool.arenas);
                    self.spend(&late, opened, false);
                }
                return Ok(());
            }
        }
        if self.is_open(number, exchange) && self.overdue(None)? {
            return Err(EngineError::Stuck { round: number, answered, asked });
        }
        Ok(())
    }

    fn is_open(&self, number: u32, exchange: u8) -> bool {
        let round = self.run.coordinator.round();
        round.is_some_and(|round| (round.number, round.exchange) == (number, exchange))
            && !self.run.coordinator.is_finished()
    }

    /// Lets the limits before this time pass, or all of them; true if the exchange is still open then.
    fn overdue(&mut self, until: Option<Instant>) -> Result<bool, EngineError> {
        let Some(round) = self.run.coordinator.round() else { return Ok(false) };
        let (number, exchange) = (round.number, round.exchange);
        loop {
            let limit =
                self.run.coordinator.poll_limit().filter(|limit| until.is_none_or(|until| *limit < until));
            match limit.filter(|_| self.is_open(number, exchange)) {
                Some(limit) => {
                    self.now = self.now.max(limit);
                    self.run.coordinator.handle_timeout(self.now);
                    self.carry_out()?;
                }
                None => return Ok(self.is_open(number, exchange)),
            }
        }
    }

    /// When each asked device will have answered, the first first. Who drops out is not there.
    fn due(&self, number: u32, exchange: u8, opened: Instant) -> VecDeque<Due> {
        let Some(round) = self.run.coordinator.round() else { return VecDeque::new() };
        let model = &self.run.worker.conductor.run.model;
        let mut due: Vec<_> = self
            .devices
            .iter()
            .enumerate()
            .filter_map(|(index, device)| {
                let task = round.tasks.get(&device.id)?;
                let tier = device.tier()?;
                let plan = model.plans.get(tier.index())?;
                let guided = !round.guide.is_empty();
                let down = self.run.coordinator.settings().down.of(tier)?;
                let cost = cost::of(task, plan, device.shard.as_ref(), down, guided);
                let span = self.chances.span(&cost, &device.hardware, number, exchange, &device.id)?;
                Some(Due { finish: opened + span, index, cost })
            })
            .collect();
        due.sort_unstable_by_key(|due| (due.finish, due.index));
        due.into()
    }

    /// Puts what a device has spent on its tier's account.
    fn spend(&mut self, due: &Due, opened: Instant, in_time: bool) {
        let device = &self.devices[due.index];
        if let Some(tier) = device.tier() {
            self.account.worked(tier, &due.cost, due.finish - opened, &device.hardware, in_time);
        }
    }

    /// The model goes down; then the device is on its own.
    fn start(&mut self, index: usize, now: Instant) -> Result<(), EngineError> {
        self.devices[index].lend(&mut self.pool.arenas);
        // What it has not delivered in an earlier exchange is refused first.
        for _ in 0..2 {
            self.devices[index].deaf = false;
            self.talk(index, now)?;
            if self.devices[index].has_work() {
                break;
            }
        }
        let device = &mut self.devices[index];
        if let Some(session) = device.session.take() {
            self.pool.submit(index, session, device.shard.clone());
        }
        Ok(())
    }

    /// The device is ready: its update goes up.
    fn finish(&mut self, index: usize, now: Instant) -> Result<(), EngineError> {
        self.devices[index].session = Some(self.pool.wait(index).ok_or(EngineError::Thread)?);
        self.talk(index, now)?;
        self.devices[index].give_back(&mut self.pool.arenas);
        Ok(())
    }

    /// Both ends say what they have to say, until neither has anything left or there is work to do.
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
                // A refusal is said on the link, too.
                let _ = self.run.coordinator.handle_frame(conn, frame.get(..len).unwrap_or_default(), now);
                self.carry_out()?;
            }
            while !self.devices[index].has_work()
                && !self.devices[index].deaf
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
        // Everybody is asked in turn; nobody needs to be woken.
        while self.run.coordinator.poll_wake().is_some() {}
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
