//! The one who writes: carries out the Coordinator's actions on the store, combines rounds, and
//! keeps the files that people read up to date.
//!
//! [`Keeper::act`] does the work and gives a [`Reply`] for the Coordinator. Behind a [`Hub`] the keeper has a thread
//! of its own ([`Keeper::run`]), so that a slow disk holds up no connection; a simulation calls it directly.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use common::{Code, DeviceId, Tier, message::Ticket, metrics::Summary};
use models::onnx;
use serde_json::{Map, Value};
use tracing::{debug, info, warn};

use crate::{
    hub::Hub,
    status::StatusFile,
    store::{Header, RoundRecord, Store, StoreError, UpdateRecord, is_full},
};
use coordinator::{
    Action, Coordinator, Settings, StoredUpdate, published::Published, report::RoundReport, stage::Stage,
};
use strategies::{
    check::{check_encoded, check_update},
    device::DeviceRecord,
    guard::Guard,
    method::Method,
    tiered::TieredModel,
};

mod books;
mod conduct;
mod files;
mod finish;
mod held;
mod losses;
mod probe;
mod scene;
pub(crate) mod state;

pub use books::Books;
pub use finish::Due;
pub use held::HeldLog;
pub use losses::Losses;
pub use probe::{Probe, ProbeError};

/// Updates that wait for one another's disk writes: at most this many, for at most this long.
const GROUP: usize = 32;
const GROUP_WAIT: Duration = Duration::from_millis(5);
/// Files for people are not written more often than this, however short rounds are; the last ones always are.
const FILES_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "taken apart at once, never kept in numbers")]
pub enum Job {
    Do(Action),
    Stop,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    #[error("{code}: {0}", code = .0.code())]
    Store(#[from] StoreError),
    #[error("the model can not be exported: {0}")]
    Export(#[from] onnx::ExportError),
    #[error("the model can not be sliced: {0}")]
    Slice(#[from] models::graph::SliceError),
    #[error("the model can not be sliced: {0}")]
    Length(#[from] common::slice::WrongLength),
    #[error("{path}: {source}", path = .path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl KeeperError {
    /// Whether stored data is damaged, or the database has failed in a way of which nothing is known.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Store(StoreError::Damaged { .. } | StoreError::Database { .. }))
    }

    /// Whether there is no room on the disk for what has to be written.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Store(failed) => failed.is_full(),
            Self::Write { source, .. } => is_full(source),
            _ => false,
        }
    }
}

/// What became of an update.
pub type Answer = (DeviceId, Ticket, Result<(), Code>);

/// What the Coordinator must be told once an action is carried out; see [`Keeper::tell`].
#[derive(Debug)]
pub enum Reply {
    Opened(Stage),
    Stored(Vec<Answer>),
    /// What each tier is sent from now on; the commit may still be due.
    Committed(Vec<Published>),
    Onnx {
        tier: Tier,
        /// Of the model.
        round: u32,
        file: Vec<u8>,
    },
    /// The run is over: this is for the driver.
    Finished,
}

/// Called with the report of every round.
pub type Observer = Box<dyn FnMut(&RoundReport) + Send>;

pub struct Keeper {
    pub store: Box<dyn Store>,
    pub method: Method,
    pub model: TieredModel,
    pub parameters: Vec<f32>,
    pub committed: u32,
    /// Part of the tickets of the open round and of later ones.
    pub attempt: u16,
    /// The strategy has no memory yet and must be shown the fleet.
    pub fresh: bool,
    pub settings: Settings,
    /// Every device that was ever registered.
    pub fleet: BTreeMap<DeviceId, DeviceRecord>,
    /// The round that is open.
    pub open: Option<RoundRecord>,
    /// The store knows of it, and of its present exchange.
    pub recorded: bool,
    /// The round before, if the store does not know its result.
    pub due: Option<Due>,
    pub books: Books,
    pub guard: Guard,
    /// The gateway's own samples, if the guard compares updates with them.
    pub probe: Option<Probe>,
    /// Whom the guard has held in which rounds, for the log.
    pub held: HeldLog,
    /// Who was lost in the exchanges of the open round.
    pub losses: Losses,
    /// Where `status.json` and `model.onnx` go.
    pub dir: Option<PathBuf>,
    /// Others write to it, too.
    pub status_file: Option<Arc<StatusFile>>,
    /// What `status.json` has to say of the run and does not say yet.
    pub status: Option<Map<String, Value>>,
    /// When the files were written last.
    pub written: Option<Instant>,
    pub observer: Option<Observer>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("method", &self.method).field("committed", &self.committed).finish()
    }
}

impl Keeper {
    /// Works until told to stop. An error means that the run can not go on.
    pub fn run(mut self, jobs: &Receiver<Job>, hub: &Hub) -> Result<(), KeeperError> {
        let mut next = None;
        while let Some(job) = next.take().map_or_else(|| self.await_job(jobs), |job| Ok(Some(job)))? {
            match job {
                Job::Stop => break,
                Job::Do(Action::Store(update)) => {
                    self.record()?;
                    let (reply, left) = self.store_group(update, jobs, hub)?;
                    self.pass_on(reply, hub);
                    next = left;
                }
                Job::Do(action) => {
                    if let Some(reply) = self.begin(action)? {
                        self.pass_on(reply, hub);
                    }
                    // What has just been told may be answered with the opening of the next round, which devices wait for.
                    next = jobs.try_recv().ok();
                    if next.is_none() {
                        self.record()?;
                    }
                }
            }
        }
        self.record()?;
        self.write_files()
    }

    /// The next job. Files for people are written while there is none, so that devices wait for no file.
    fn await_job(&mut self, jobs: &Receiver<Job>) -> Result<Option<Job>, KeeperError> {
        let pause = self.written.map_or(Duration::ZERO, |at| FILES_EVERY.saturating_sub(at.elapsed()));
        if self.status.is_some() {
            match jobs.recv_timeout(pause) {
                Ok(job) => return Ok(Some(job)),
                Err(_) => self.write_files()?,
            }
        }
        Ok(jobs.recv().ok())
    }

    fn pass_on(&self, reply: Reply, hub: &Hub) {
        if matches!(reply, Reply::Finished) {
            return hub.finish();
        }
        hub.with(|coordinator, now| self.tell(reply, coordinator, now));
    }

    /// Reports what was done to the Coordinator that asked for it.
    pub fn tell(&self, reply: Reply, coordinator: &mut Coordinator, now: common::Instant) {
        match reply {
            Reply::Opened(stage) => coordinator.handle_opened(stage, now),
            Reply::Stored(answers) => {
                for (device, ticket, answer) in answers {
                    coordinator.handle_stored(&device, ticket, answer, now);
                }
            }
            Reply::Committed(published) => coordinator.handle_committed(published, now),
            Reply::Onnx { tier, round, file } => coordinator.handle_onnx(tier, round, file.into()),
            Reply::Finished => {}
        }
    }

    /// Carries out one action.
    pub fn act(&mut self, action: Action) -> Result<Option<Reply>, KeeperError> {
        let reply = self.begin(action)?;
        self.record()?;
        self.write_files()?;
        Ok(reply)
    }

    /// Writes down what is due: the commit of a round, then the exchange that was opened last.
    ///
    /// Devices may have been told of both by then, but nothing of theirs is stored before. After a crash in between, the
    /// same model follows from the updates that are there, and the same exchange is formed again.
    pub fn record(&mut self) -> Result<(), KeeperError> {
        self.commit()?;
        if let Some(open) = self.open.as_ref().filter(|_| !self.recorded) {
            self.store.open_round(open)?;
        }
        self.recorded = true;
        Ok(())
    }

    /// Carries out one action as far as devices wait for it; see [`Keeper::record`] for the rest.
    pub fn begin(&mut self, action: Action) -> Result<Option<Reply>, KeeperError> {
        // Whoever looks at updates of rounds before finds those that the commit keeps.
        let waits = self.method.needs().history > 0;
        if waits || !matches!(action, Action::OpenRound { .. }) {
            self.record()?;
        }
        Ok(match action {
            Action::Register(device) => {
                debug!(device = %device.device, "registered");
                self.store.register(&device)?;
                self.fleet.insert(device.device.clone(), device);
                None
            }
            Action::OpenRound { number, seats, wanted } => Some(self.open_round(number, seats, wanted)?),
            Action::Store(update) => {
                let answer = self.put(&update)?;
                Some(self.settle(vec![answer])?)
            }
            Action::Close(closed) => Some(self.close(closed)?),
            Action::Finish(closed) => {
                let report = self.final_report(closed);
                self.held.sum_up();
                let mean = |summary: &Summary| (summary.count > 0).then_some(summary.mean);
                info!(loss = mean(&report.loss), accuracy = mean(&report.accuracy), "run is over");
                self.publish(&report);
                self.write_files()?;
                Some(Reply::Finished)
            }
            Action::Export { tier } => {
                let (round, file) = (self.committed, self.export(tier)?);
                debug!(tier = tier.index(), round, "exported");
                Some(Reply::Onnx { tier, round, file })
            }
            // Connections belong to the driver.
            Action::Disconnect(_) | Action::Displace(_) => None,
        })
    }

    /// Makes an update durable together with those that arrive shortly after it; also gives the job that ended the
    /// wait. Each is checked and written as it comes, so that only the disk is left to wait for.
    fn store_group(
        &mut self,
        first: StoredUpdate,
        jobs: &Receiver<Job>,
        hub: &Hub,
    ) -> Result<(Reply, Option<Job>), KeeperError> {
        let until = Instant::now() + GROUP_WAIT;
        let (mut answers, mut next, mut left) = (vec![], Some(first), None);
        while let Some(update) = next.take() {
            answers.push(self.put(&update)?);
            let StoredUpdate { device, ticket, payload, last, .. } = update;
            hub.with(|coordinator, now| coordinator.handle_written(&device, ticket, payload, now));
            if answers.len() >= GROUP || last {
                break;
            }
            match jobs.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Job::Do(Action::Store(update))) => next = Some(update),
                Ok(other) => left = Some(other),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        Ok((self.settle(answers)?, left))
    }

    /// Checks an update and hands it to the store, once what is due is [recorded](Keeper::record). It counts when it is
    /// [settled](Keeper::settle). What is wrong with it is the answer; an error is the store's, and no device's fault.
    pub fn put(&mut self, update: &StoredUpdate) -> Result<Answer, KeeperError> {
        let stored = match self.check(update) {
            Err(code) => Err(code),
            Ok(norms) => {
                let header = Header {
                    ticket: update.ticket,
                    device: update.device.clone(),
                    tier: update.tier,
                    kind: update.kind,
                    vectors: update.vectors,
                    lr: update.lr,
                    codec: update.codec,
                    scalars: update.scalars.clone(),
                    norms,
                };
                match self.store.put(&UpdateRecord { header, payload: &update.payload }) {
                    Err(refused @ (StoreError::WrongRound { .. } | StoreError::TooLong)) => {
                        Err(refused.code())
                    }
                    put => put.map(|_| Ok(()))?,
                }
            }
        };
        if let Err(code) = stored {
            warn!(device = %update.device, "update refused: {code}");
        }
        Ok((update.device.clone(), update.ticket, stored))
    }

    /// Waits until what was put is durable, then answers all.
    pub fn settle(&mut self, answers: Vec<Answer>) -> Result<Reply, KeeperError> {
        self.store.settle()?;
        Ok(Reply::Stored(answers))
    }

    /// Squared norms of an update by region; numbers alone have none.
    fn check(&self, update: &StoredUpdate) -> Result<Vec<f64>, Code> {
        let (regions, count) = (&self.model.regions, self.model.regions.sets().len());
        let pieces = regions.pieces(update.tier);
        match update.vectors {
            0 => Ok(vec![0.0; count]),
            1 => check_encoded(&update.payload, update.codec, pieces, count),
            vectors => {
                let len = update.codec.count_in(update.payload.len()).ok_or(Code::WrongShape)?;
                let mut values = vec![0.0; len];
                update.codec.decode(&update.payload, &mut values).map_err(|_| Code::WrongShape)?;
                let mut parts = values.chunks(len.div_ceil(usize::from(vectors)).max(1));
                let mut norms = check_update(parts.next().unwrap_or(&[]), pieces, count)?;
                // The guard shortens both by the longer one.
                parts.try_for_each(|part| {
                    let others = check_update(part, pieces, count)?;
                    norms.iter_mut().zip(others).for_each(|(norm, other)| *norm = norm.max(other));
                    Ok::<_, Code>(())
                })?;
                Ok(norms)
            }
        }
    }
}
