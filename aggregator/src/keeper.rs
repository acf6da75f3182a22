//! The one who writes: carries out the Coordinator's actions on the store, combines rounds, and
//! keeps the files that people read up to date.
//!
//! [`Keeper::act`] does the work and gives a [`Reply`] for the Coordinator. Behind a [`Hub`] the keeper has a thread
//! of its own ([`Keeper::run`]), so that a slow disk holds up no connection; a simulation calls it directly.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use common::{Code, DeviceId, message::Ticket};
use models::onnx;
use tracing::{error, info, warn};

use crate::{
    combine::{check_encoded, check_update, guard::Guard},
    coordinator::{Action, Coordinator, Settings, StoredUpdate},
    fleet::{ConnId, DeviceRecord},
    hub::Hub,
    model::{Published, TieredModel},
    report::RoundReport,
    round::Purpose,
    stage::Stage,
    store::{Header, RoundRecord, Store, StoreError, UpdateRecord},
    strategy::Method,
};

mod books;
mod conduct;
mod files;
pub(crate) mod state;

pub use books::Books;
pub use conduct::Losses;

/// Updates that wait for one another's disk writes: at most this many, for at most this long.
const GROUP: usize = 32;
const GROUP_WAIT: Duration = Duration::from_millis(5);

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "taken apart at once, never kept in numbers")]
pub enum Job {
    Do(Action),
    Stop,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the model can not be exported: {0}")]
    Export(#[from] onnx::ExportError),
    #[error("the model can not be sliced: {0}")]
    Slice(#[from] models::graph::SliceError),
    #[error("the model can not be sliced: {0}")]
    Length(#[from] common::slice::WrongLength),
    #[error("{path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

/// What became of an update.
pub type Answer = (DeviceId, Ticket, Result<(), Code>);

/// What the Coordinator must be told once an action is carried out; see [`Keeper::tell`].
#[derive(Debug)]
pub enum Reply {
    Opened(Stage),
    Stored(Vec<Answer>),
    /// What each tier is sent from now on.
    Committed(Vec<Published>),
    Onnx {
        conn: ConnId,
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
    pub settings: Settings,
    /// Every device that was ever registered.
    pub fleet: BTreeMap<DeviceId, DeviceRecord>,
    /// The round that is open.
    pub open: Option<RoundRecord>,
    /// The store knows of it, and of its present exchange.
    pub recorded: bool,
    pub books: Books,
    /// What is believed of what devices say.
    pub guard: Guard,
    /// Who was lost in the exchanges of the open round.
    pub losses: Losses,
    /// Where `status.json` and `model.onnx` go.
    pub dir: Option<PathBuf>,
    /// What `status.json` has to say and does not say yet.
    pub status: Option<String>,
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
        while let Some(action) = self.await_job(jobs)? {
            let mut next = Some(action);
            while let Some(action) = next.take() {
                match action {
                    Action::Store(update) => {
                        let (reply, left) = self.store_group(update, jobs, hub);
                        self.pass_on(reply, hub);
                        match left {
                            Some(Job::Do(action)) => next = Some(action),
                            Some(Job::Stop) => return self.write_files(),
                            None => {}
                        }
                    }
                    action => {
                        if let Some(reply) = self.carry_out(action)? {
                            self.pass_on(reply, hub);
                        }
                        self.record()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The next action. Files for people are written while there is none, so that devices wait for no file.
    fn await_job(&mut self, jobs: &Receiver<Job>) -> Result<Option<Action>, KeeperError> {
        let job = match jobs.try_recv() {
            Ok(job) => Some(job),
            Err(_) => {
                self.write_files()?;
                jobs.recv().ok()
            }
        };
        match job {
            Some(Job::Do(action)) => Ok(Some(action)),
            Some(Job::Stop) | None => self.write_files().map(|()| None),
        }
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
            Reply::Onnx { conn, file } => coordinator.handle_onnx(conn, file.into()),
            Reply::Finished => {}
        }
    }

    /// Carries out one action.
    pub fn act(&mut self, action: Action) -> Result<Option<Reply>, KeeperError> {
        let reply = self.carry_out(action)?;
        self.record()?;
        self.write_files()?;
        Ok(reply)
    }

    /// Writes down the exchange that was opened last. Devices may have been told by then, but nothing of theirs is
    /// stored before: after a crash in between, the same exchange is formed again.
    fn record(&mut self) -> Result<(), KeeperError> {
        if let Some(open) = self.open.as_ref().filter(|_| !self.recorded) {
            self.store.open_round(open)?;
        }
        self.recorded = true;
        Ok(())
    }

    /// The same, but for what can be written while devices are at work: see `record` and `write_files`.
    fn carry_out(&mut self, action: Action) -> Result<Option<Reply>, KeeperError> {
        Ok(match action {
            Action::Register(device) => {
                self.store.register(&device)?;
                self.guard.enrol(&device);
                self.fleet.insert(device.device.clone(), device);
                None
            }
            Action::OpenRound { number, seats } => Some(self.open_round(number, seats)?),
            Action::Store(update) => {
                let answer = self.put(&update);
                Some(self.settle(vec![answer]))
            }
            Action::Close(closed) => Some(self.close(closed)?),
            Action::Finish(closed) => {
                let report = RoundReport::new(&closed, Purpose::Evaluate, None, self.model.plans.len());
                info!(loss = report.loss.mean, accuracy = report.accuracy.mean, "run is over");
                self.publish(&report);
                self.write_files()?;
                Some(Reply::Finished)
            }
            Action::Export { conn, tier } => Some(Reply::Onnx { conn, file: self.export(tier)? }),
            // Connections belong to the driver.
            Action::Disconnect(_) => None,
        })
    }

    /// Makes an update durable together with those that arrive shortly after it; also gives the job that ended the
    /// wait. Each is checked and written as it comes, so that only the disk is left to wait for.
    fn store_group(&mut self, first: StoredUpdate, jobs: &Receiver<Job>, hub: &Hub) -> (Reply, Option<Job>) {
        let until = Instant::now() + GROUP_WAIT;
        let (mut answers, mut next, mut left) = (vec![], Some(first), None);
        while let Some(update) = next.take() {
            answers.push(self.put(&update));
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
        (self.settle(answers), left)
    }

    /// Checks an update and hands it to the store.
    fn put(&mut self, update: &StoredUpdate) -> Answer {
        let stored = self.check(update).and_then(|norms| {
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
            let put = self.store.put(&UpdateRecord { header, payload: &update.payload });
            put.map(drop).map_err(|failed| failed.code())
        });
        if let Err(code) = stored {
            warn!(device = %update.device, "update refused: {code}");
        }
        (update.device.clone(), update.ticket, stored)
    }

    /// Waits until what was put is durable, then answers all.
    fn settle(&mut self, mut answers: Vec<Answer>) -> Reply {
        if let Err(failed) = self.store.settle() {
            error!("updates can not be stored: {failed}");
            for (_, _, answer) in &mut answers {
                *answer = answer.and(Err(failed.code()));
            }
        }
        Reply::Stored(answers)
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
                let norms = check_update(parts.next().unwrap_or(&[]), pieces, count)?;
                parts.try_for_each(|part| check_update(part, pieces, count).map(drop))?;
                Ok(norms)
            }
        }
    }
}
