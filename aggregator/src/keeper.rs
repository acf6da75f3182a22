//! The one who writes: carries out the Coordinator's actions on the store, combines rounds, and
//! keeps the files that people read up to date.
//!
//! [`Keeper::act`] and [`Keeper::store_updates`] do the work and give a [`Reply`] for the Coordinator.
//! Behind a [`Hub`] they run on a thread of their own ([`Keeper::run`]), so that a slow disk holds up no
//! connection; a simulation calls them directly.

use std::{
    fs, io,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use common::{Code, DeviceId, Tier, message::Ticket};
use models::onnx::{self, ExportOptions};
use serde_json::json;
use tracing::{error, info, warn};

use crate::{
    combine::{Cohort, CombineError, Outcome, check_encoded, combine},
    coordinator::{Action, Coordinator, StoredUpdate},
    fleet::ConnId,
    hub::Hub,
    model::TieredModel,
    report::RoundReport,
    round::{ClosedRound, Purpose},
    store::{Commit, Header, RoundRecord, Selected, Spooled, Store, StoreError, UpdateRecord},
    strategy::Method,
};

/// Updates that wait for one another's disk writes: at most this many, for at most this long.
const GROUP: usize = 32;
const GROUP_WAIT: Duration = Duration::from_millis(5);

#[derive(Debug)]
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

/// What the Coordinator must be told once an action is carried out; see [`Keeper::tell`].
#[derive(Debug)]
pub enum Reply {
    Opened,
    Stored(Vec<(DeviceId, Ticket, Result<(), Code>)>),
    Committed,
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
    /// Where `status.json` and `model.onnx` go.
    pub dir: Option<PathBuf>,
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
        self.write_model()?;
        while let Ok(Job::Do(action)) = jobs.recv() {
            let mut next = Some(action);
            while let Some(action) = next.take() {
                match action {
                    Action::Store(update) => {
                        let (updates, left) = group(update, jobs);
                        let reply = self.store_updates(&updates);
                        self.pass_on(reply, hub);
                        match left {
                            Some(Job::Do(action)) => next = Some(action),
                            Some(Job::Stop) => return Ok(()),
                            None => {}
                        }
                    }
                    action => {
                        if let Some(reply) = self.act(action)? {
                            self.pass_on(reply, hub);
                        }
                    }
                }
            }
        }
        Ok(())
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
            Reply::Opened => coordinator.handle_opened(now),
            Reply::Stored(answers) => {
                for (device, ticket, answer) in answers {
                    coordinator.handle_stored(&device, ticket, answer, now);
                }
            }
            Reply::Committed => coordinator.handle_committed(&self.parameters, now),
            Reply::Onnx { conn, file } => coordinator.handle_onnx(conn, file.into()),
            Reply::Finished => {}
        }
    }

    /// Carries out one action.
    pub fn act(&mut self, action: Action) -> Result<Option<Reply>, KeeperError> {
        Ok(match action {
            Action::Register(device) => {
                self.store.register(&device)?;
                None
            }
            Action::OpenRound { number, seats } => {
                let select = |(device, tier)| Selected { device, tier, attempt: 0 };
                let selected = seats.into_iter().map(select).collect();
                self.store.open_round(&RoundRecord { number, selected })?;
                Some(Reply::Opened)
            }
            Action::Store(update) => Some(self.store_updates(&[update])),
            Action::Close(closed) => Some(self.close(&closed)?),
            Action::Finish(closed) => {
                let report = RoundReport::new(&closed, Purpose::Evaluate, None, self.model.plans.len());
                info!(loss = report.loss.mean, accuracy = report.accuracy.mean, "run is over");
                self.publish(&report)?;
                Some(Reply::Finished)
            }
            Action::Export { conn, tier } => Some(Reply::Onnx { conn, file: self.export(tier)? }),
            // Connections belong to the driver.
            Action::Disconnect(_) => None,
        })
    }

    /// Checks updates, makes the good ones durable together, then answers all.
    pub fn store_updates(&mut self, updates: &[StoredUpdate]) -> Reply {
        let regions = &self.model.regions;
        let mut answers: Vec<(DeviceId, Ticket, Result<(), Code>)> = Vec::with_capacity(updates.len());
        let mut records = Vec::with_capacity(updates.len());
        for update in updates {
            let pieces = regions.pieces(update.tier);
            let checked = check_encoded(&update.payload, update.codec, pieces, regions.sets().len());
            let answer = match checked {
                Ok(norms) => {
                    let header = Header {
                        ticket: update.ticket,
                        device: update.device.clone(),
                        tier: update.tier,
                        codec: update.codec,
                        scalars: update.scalars.clone(),
                        norms,
                    };
                    records.push(UpdateRecord { header, payload: &update.payload });
                    Ok(())
                }
                Err(code) => {
                    warn!(device = %update.device, "update refused: {code}");
                    Err(code)
                }
            };
            answers.push((update.device.clone(), update.ticket, answer));
        }
        if let Err(failed) = self.store.append(&records) {
            error!("updates can not be stored: {failed}");
            for (_, _, answer) in &mut answers {
                *answer = answer.and(Err(failed.code()));
            }
        }
        Reply::Stored(answers)
    }

    fn close(&mut self, closed: &ClosedRound) -> Result<Reply, KeeperError> {
        let outcome = self.combine(closed)?;
        let report = RoundReport::new(closed, Purpose::Train, Some(&outcome), self.model.plans.len());
        let (lost, refused) = (report.silent.len(), report.refused.len());
        info!(
            round = closed.number,
            loss = report.loss.mean,
            devices = report.devices.len(),
            lost,
            refused,
            "combined"
        );
        self.store.commit_round(&Commit {
            round: closed.number,
            parameters: &self.parameters,
            strategy_state: &self.method.save(),
            report: &serde_json::to_string(&report).unwrap_or_default(),
        })?;
        self.committed = closed.number;
        self.write_model()?;
        self.publish(&report)?;
        Ok(Reply::Committed)
    }

    /// The next model, or the present one and the reason why it stays.
    fn combine(&mut self, closed: &ClosedRound) -> Result<Outcome, KeeperError> {
        let entries = self.store.updates(closed.number)?;
        let mut cohort = Cohort::new(&self.model.regions, f64::from(closed.lr));
        cohort.round = closed.number;
        cohort.reserve(entries.len());
        for entry in &entries {
            let Header { device, tier, scalars, norms, .. } = &entry.header;
            // Refusals are kept in the cohort and come back with the outcome.
            let _ = cohort.admit(device.clone(), *tier, scalars.clone(), norms);
        }
        let mut updates = Spooled::new(&mut *self.store, &entries);
        let kept = |code| Outcome {
            kept: Some(code),
            weights: vec![],
            regions: vec![],
            refused: vec![],
            notes: Default::default(),
        };
        match combine(&mut self.method, &cohort, &[], &mut updates, &mut self.parameters) {
            Ok(outcome) => {
                if let Some(code) = outcome.kept {
                    warn!(round = closed.number, "the model stays as it is: {code}");
                }
                Ok(outcome)
            }
            Err(CombineError::Read(failed)) => {
                error!(round = closed.number, "the model stays as it is: {failed}");
                Ok(kept(failed.code()))
            }
            Err(failed) => {
                error!(round = closed.number, "the model stays as it is: {failed}");
                Ok(kept(Code::NonFiniteResult))
            }
        }
    }

    /// A tier's sub-model as an ONNX file.
    fn export(&self, tier: Tier) -> Result<Vec<u8>, KeeperError> {
        let mask = self.model.masks.get(tier.index()).unwrap_or(self.model.graph.full());
        let slice = self.model.graph.gather(mask, &self.parameters)?;
        let metadata = [("round", self.committed.to_string()), ("tier", tier.index().to_string())];
        let options = ExportOptions { metadata: &metadata, ..ExportOptions::default() };
        Ok(onnx::export(&self.model.graph.slice(mask)?, &slice, &options)?)
    }

    fn write_model(&self) -> Result<(), KeeperError> {
        if self.dir.is_none() {
            return Ok(());
        }
        let metadata = [("round", self.committed.to_string())];
        let options = ExportOptions { metadata: &metadata, ..ExportOptions::default() };
        let file = onnx::export(&self.model.graph, &self.parameters, &options)?;
        self.write("model.onnx", &file)
    }

    fn publish(&mut self, report: &RoundReport) -> Result<(), KeeperError> {
        if let Some(observer) = &mut self.observer {
            observer(report);
        }
        let status = json!({
            "strategy": self.method.name(),
            "committed": self.committed,
            "finished": report.purpose == "evaluate",
            "last_round": report,
        });
        self.write("status.json", status.to_string().as_bytes())
    }

    /// Whoever reads sees the old file or the new one, never half of one.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), KeeperError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let (path, part) = (dir.join(name), dir.join(format!(".{name}.part")));
        fs::write(&part, bytes)
            .and_then(|()| fs::rename(&part, &path))
            .map_err(|source| KeeperError::Write { path, source })
    }
}

/// More updates that arrive shortly after the first, and the job that ended the wait.
fn group(first: StoredUpdate, jobs: &Receiver<Job>) -> (Vec<StoredUpdate>, Option<Job>) {
    let mut updates = vec![first];
    let until = Instant::now() + GROUP_WAIT;
    while updates.len() < GROUP {
        match jobs.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Job::Do(Action::Store(update))) => updates.push(update),
            Ok(other) => return (updates, Some(other)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    (updates, None)
}
