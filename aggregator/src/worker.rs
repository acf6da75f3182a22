//! The only place that writes to the store. It executes what the Coordinator and the [`Conductor`] ask for: put, settle, open,
//! commit.
//!
//! [`RoundWorker::act`] does the work and gives a [`Reply`] for the Coordinator. Behind a [`Driver`] the worker has a thread
//! of its own (`RoundWorker::run`), so that a slow disk holds up no connection. A simulation calls it directly.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use common::{Tier, metrics::Summary};
use serde_json::{Map, Value};
use tracing::{debug, info};

use crate::{
    driver::{Driver, Job},
    scales::FleetSchema,
    status::StatusFile,
    store::{Commit, OpenRound, RoundRecord, Store},
};
use coordinator::{
    Action, Coordinator, StoredUpdate,
    announcement::Announcement,
    conductor::{Committed, Conductor, Next},
    exchange::ClosedExchange,
    published::Published,
    report::RoundReport,
    wall::WallTime,
};

mod config_log;
mod deliveries;
mod error;
mod files;
mod probe;
mod registrations;
mod target_file;
mod updates;

pub use config_log::ConfigLog;
use deliveries::StoredDeliveries;
pub use error::WorkerError;
use files::RoundFiles;
pub use probe::{ProbeError, ProbeSamples};
pub(crate) use target_file::TargetFile;
pub use updates::UpdateOutcome;

/// Updates that are made durable together: at most this many, for at most this long.
const GROUP: usize = 32;
const GROUP_WAIT: Duration = Duration::from_millis(5);
/// Files for users are not written more often than this, however short rounds are; the last ones always are.
const FILES_EVERY: Duration = Duration::from_millis(250);

/// The result of an action, for the Coordinator; see [`RoundWorker::tell`].
#[derive(Debug)]
pub enum Reply {
    /// The exchange is stored; devices may be told.
    Opened(Announcement),
    /// One outcome for each update of the group that was settled.
    Stored(Vec<UpdateOutcome>),
    /// What each tier is sent from now on; the commit may still be due.
    Committed {
        /// By tier.
        published: Vec<Published>,
        /// No more rounds of training follow, although there would be more.
        ends_early: bool,
    },
    /// The model of one tier, for devices that ask for it.
    Onnx {
        /// Whose slice it is.
        tier: Tier,
        /// Of the model.
        round: u32,
        /// The bytes of an ONNX file.
        file: Vec<u8>,
    },
    /// The run is over; for the driver.
    Finished,
}

/// Called with the report of every round.
pub type Observer = Box<dyn FnMut(&RoundReport) + Send>;

/// Carries out the actions of a Coordinator on a store. It is the only writer of that store.
pub struct RoundWorker {
    /// Only tests replace it, to simulate a crash.
    pub store: Box<dyn Store>,
    /// Decides about the next exchange; holds the model and the strategy's state.
    pub conductor: Conductor,
    /// The open round, if the store does not have it or its present exchange yet.
    unrecorded: Option<RoundRecord>,
    /// The round before, if the store does not have its result yet.
    pending: Option<PendingCommit>,
    round_files: RoundFiles,
    /// Where `status.json` and `model.onnx` go.
    dir: Option<PathBuf>,
    /// Also written by the server.
    pub(crate) status_file: Option<Arc<StatusFile>>,
    /// The state of the run that `status.json` does not have yet.
    status: Option<Map<String, Value>>,
    /// When the files were written last.
    written: Option<Instant>,
    observer: Option<Observer>,
    /// The configuration that a running server follows.
    pub(crate) target_file: Option<TargetFile>,
    /// What the columns of samples mean, for the files of models.
    pub(crate) schema: Option<Arc<FleetSchema>>,
    /// Tells the time of day for reports. A simulation has none.
    pub clock: Option<fn() -> WallTime>,
    /// The configuration of rounds.
    pub config_log: ConfigLog,
    /// Everything is stored before devices are told of it. Without it, what can be formed again is stored while they work.
    pub record_first: bool,
}

/// A combined round that the store does not have yet.
#[derive(Clone, Debug)]
struct PendingCommit {
    report: RoundReport,
    /// Of the strategy, the guard and the watch for divergence.
    state: Vec<u8>,
    /// The configuration, if it must be recorded.
    config: Option<String>,
    /// The round of an older model that is not dropped.
    spared: Option<u32>,
}

impl std::fmt::Debug for RoundWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoundWorker").field("conductor", &self.conductor).finish_non_exhaustive()
    }
}

impl RoundWorker {
    /// `record` says whether every round is written as a round file.
    pub(crate) fn new(
        store: Box<dyn Store>,
        conductor: Conductor,
        record: bool,
        dir: Option<PathBuf>,
        observer: Option<Observer>,
    ) -> Self {
        Self {
            store,
            conductor,
            unrecorded: None,
            pending: None,
            round_files: RoundFiles(dir.clone().filter(|_| record)),
            status_file: dir.as_deref().map(|dir| Arc::new(StatusFile::new(dir))),
            dir,
            status: None,
            written: None,
            observer,
            target_file: None,
            schema: None,
            clock: None,
            config_log: ConfigLog::default(),
            record_first: false,
        }
    }

    /// The exchange that was open when the gateway stopped, formed again.
    pub(crate) fn reopen(&mut self, open: &OpenRound) -> Result<Announcement, WorkerError> {
        let reopened = self.conductor.reopen(&open.record, &mut StoredDeliveries(&mut *self.store))?;
        self.unrecorded = reopened.changed;
        Ok(reopened.announcement)
    }

    /// The store has everything that devices have been told.
    pub fn is_settled(&self) -> bool {
        self.pending.is_none() && self.unrecorded.is_none()
    }

    /// A round is combined and not committed.
    pub fn has_pending_commit(&self) -> bool {
        self.pending.is_some()
    }

    /// Works until told to stop. An error means that the run cannot go on.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>, driver: &Driver) -> Result<(), WorkerError> {
        let mut next = None;
        while let Some(job) = next.take().map_or_else(|| self.await_job(jobs), |job| Ok(Some(job)))? {
            match job {
                Job::Stop => break,
                Job::Snapshot(reply) => {
                    self.record()?;
                    // A backup that was given up has no receiver.
                    let _ = reply.send(self.store.snapshot());
                }
                Job::Adopt(conduct) => self.conductor.run.settings.adopt(conduct),
                Job::Execute(Action::Store(update)) => {
                    self.record()?;
                    let (reply, left) = self.store_group(update, jobs, driver)?;
                    self.pass_on(reply, driver);
                    next = left;
                }
                Job::Execute(Action::Register(device)) => next = self.register_group(device, jobs)?,
                Job::Execute(action) => {
                    if let Some(reply) = self.begin(action)? {
                        self.pass_on(reply, driver);
                    }
                    // The reply may cause the next round to open, which devices wait for.
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

    /// The next job. Files for users are written while there is none, so that they delay no device.
    fn await_job(&mut self, jobs: &Receiver<Job>) -> Result<Option<Job>, WorkerError> {
        let pause = self.written.map_or(Duration::ZERO, |at| FILES_EVERY.saturating_sub(at.elapsed()));
        if self.status.is_some() {
            match jobs.recv_timeout(pause) {
                Ok(job) => return Ok(Some(job)),
                Err(_) => self.write_files()?,
            }
        }
        Ok(jobs.recv().ok())
    }

    fn pass_on(&self, reply: Reply, driver: &Driver) {
        if matches!(reply, Reply::Finished) {
            return driver.finish();
        }
        driver.with(|coordinator, now| self.tell(reply, coordinator, now));
    }

    /// Reports what was done to the Coordinator that asked for it.
    pub fn tell(&self, reply: Reply, coordinator: &mut Coordinator, now: common::Instant) {
        match reply {
            Reply::Opened(exchange) => coordinator.handle_opened(exchange, now),
            Reply::Stored(outcomes) => {
                for UpdateOutcome { device, ticket, stored } in outcomes {
                    coordinator.handle_stored(&device, ticket, stored, now);
                }
            }
            Reply::Committed { published, ends_early } => {
                if ends_early {
                    coordinator.end_training();
                }
                coordinator.handle_committed(published, now);
            }
            Reply::Onnx { tier, round, file } => coordinator.handle_onnx(tier, round, file.into()),
            Reply::Finished => {}
        }
    }

    /// Carries out one action.
    pub fn act(&mut self, action: Action) -> Result<Option<Reply>, WorkerError> {
        let reply = self.begin(action)?;
        self.record()?;
        self.write_files()?;
        Ok(reply)
    }

    /// Stores what is due: the commit of a round, then the exchange that was opened last.
    ///
    /// Devices may have been told of both by then, but none of their updates is stored before. After a crash in between, the
    /// same model follows from the stored updates, and the same exchange is formed again.
    pub fn record(&mut self) -> Result<(), WorkerError> {
        self.commit()?;
        if let Some(open) = &self.unrecorded {
            self.store.open_round(open)?;
        }
        self.unrecorded = None;
        Ok(())
    }

    /// Makes the result of the last round durable, then publishes it.
    fn commit(&mut self) -> Result<(), WorkerError> {
        let Some(PendingCommit { report, state, config, spared }) = self.pending.take() else {
            return Ok(());
        };
        self.store.commit_round(&Commit {
            round: report.round,
            parameters: &self.conductor.run.parameters,
            strategy_state: &state,
            report: &serde_json::to_string(&report)?,
            history: self.conductor.run.method.needs().history,
            best: report.best.as_ref(),
            config: config.as_deref(),
            spared,
        })?;
        self.config_log.note_committed();
        self.publish(&report);
        Ok(())
    }

    fn time(&self) -> Option<WallTime> {
        self.clock.map(|clock| clock())
    }

    /// Carries out the conductor's decision.
    fn follow(&mut self, next: Next) -> Result<Reply, WorkerError> {
        match next {
            Next::Ask { announcement, record, durable_first } => {
                self.unrecorded = Some(record);
                if durable_first || self.record_first {
                    self.record()?;
                }
                Ok(Reply::Opened(announcement))
            }
            Next::Commit(committed) => {
                let Committed {
                    mut report,
                    state,
                    published,
                    unopened,
                    ends_early,
                    durable_first,
                    spared,
                    diverged,
                } = committed;
                if let Some(record) = unopened {
                    // A round must be open before it can be committed, and the one before it closed.
                    self.commit()?;
                    self.store.open_round(&record)?;
                }
                report.strategy = Some(self.conductor.run.method.name().to_owned());
                report.changes = self.config_log.changes();
                let config = self.config_log.text();
                let (round, model_of) = (report.round, report.model_of);
                self.pending = Some(PendingCommit { report, state, config, spared });
                if durable_first || self.record_first {
                    self.commit()?;
                }
                if let Some(why) = diverged {
                    self.write_files()?;
                    return Err(WorkerError::Diverged { round, model_of, why });
                }
                Ok(Reply::Committed { published, ends_early })
            }
        }
    }

    /// Carries out one action as far as devices wait for it; see [`RoundWorker::record`] for the rest.
    pub fn begin(&mut self, action: Action) -> Result<Option<Reply>, WorkerError> {
        // Reading updates of earlier rounds requires the commit, which decides which of them are kept.
        let waits = self.conductor.run.method.needs().history > 0;
        if waits || !matches!(action, Action::OpenRound { .. }) {
            self.record()?;
        }
        Ok(match action {
            Action::Register(device) => {
                self.register(vec![device])?;
                None
            }
            Action::OpenRound { round, selected, wanted } => {
                self.follow_target(round);
                let began = self.time();
                let Self { conductor, store, round_files, .. } = self;
                let next = conductor.open(
                    round,
                    selected,
                    wanted,
                    began,
                    &mut StoredDeliveries(&mut **store),
                    round_files,
                )?;
                Some(self.follow(next)?)
            }
            Action::Store(update) => {
                let outcome = self.put(&update)?;
                Some(self.settle(vec![outcome])?)
            }
            Action::Close(closed) => {
                let closed = ClosedExchange { at: self.time(), ..closed };
                let Self { conductor, store, round_files, .. } = self;
                let next = conductor.close(closed, &mut StoredDeliveries(&mut **store), round_files)?;
                Some(self.follow(next)?)
            }
            Action::Finish(closed) => {
                let before = self.conductor.run.best.as_ref().map(|best| best.round);
                let mut report = self.conductor.final_report(ClosedExchange { at: self.time(), ..closed });
                report.strategy = Some(self.conductor.run.method.name().to_owned());
                if let Some(best) = report.best.as_ref().filter(|best| Some(best.round) != before) {
                    self.store.set_best(best)?;
                }
                let mean = |summary: &Summary| (summary.count > 0).then_some(summary.mean);
                let best = report.best.as_ref().map(|best| best.round);
                let (loss, accuracy) = (mean(&report.loss), mean(&report.accuracy));
                match &report.stopped {
                    Some(why) => info!(loss, accuracy, best, "run is over, {why}"),
                    None => info!(loss, accuracy, best, "run is over"),
                }
                self.publish(&report);
                self.write_files()?;
                Some(Reply::Finished)
            }
            Action::Export { tier } => {
                let (round, file) = (self.conductor.run.committed, self.export(tier)?);
                debug!(tier = tier.index(), round, "exported");
                Some(Reply::Onnx { tier, round, file })
            }
            // Connections belong to the driver.
            Action::Disconnect(_) | Action::Displace(_) => None,
        })
    }

    /// Makes an update durable together with those that arrive shortly after it. Also returns the job that ended the wait. Each
    /// update is checked and written on arrival, so that only the flush to disk is left.
    fn store_group(
        &mut self,
        first: StoredUpdate,
        jobs: &Receiver<Job>,
        driver: &Driver,
    ) -> Result<(Reply, Option<Job>), WorkerError> {
        let until = Instant::now() + GROUP_WAIT;
        let (mut outcomes, mut next, mut left) = (vec![], Some(first), None);
        while let Some(update) = next.take() {
            outcomes.push(self.put(&update)?);
            let StoredUpdate { device, ticket, payload, last, .. } = update;
            driver.with(|coordinator, now| coordinator.handle_written(&device, ticket, payload, now));
            if outcomes.len() >= GROUP || last {
                break;
            }
            match jobs.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Job::Execute(Action::Store(update))) => next = Some(update),
                Ok(other) => left = Some(other),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        Ok((self.settle(outcomes)?, left))
    }
}
