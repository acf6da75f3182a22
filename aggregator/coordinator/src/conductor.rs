//! The conduct of a round, without I/O: which exchange comes next, when the round can be combined, and what is committed.
//!
//! ```text
//! open  -> Next::Ask      record the exchange, then announce it
//! close -> Next::Ask      the same, for the next exchange of the round
//!       -> Next::Commit   the round is combined: commit it, then publish the model
//! ```
//! What was asked follows from the strategy's state and from the round's deliveries alone. So after a restart,
//! [`Conductor::reopen`] forms the same exchange again. Participants and the guard's findings are computed
//! once per exchange, when it closes. Updates themselves are read through [`Deliveries`].

use std::{collections::BTreeMap, fmt};

use common::{Code, DeviceId, ExchangeId, Instant, brief::Brief};
use serde_json::{Map, Value};
use strategies::{
    device::DeviceRecord,
    error::CombineError,
    guard::{Guard, Inspection},
    method::Method,
    roundfile::RoundDump,
    strategy::{Exchange, FleetDevice, Kind},
    tiered::TieredModel,
    updates::Updates,
};
use tracing::{error, warn};

use crate::{
    announcement::Announcement,
    best::{BestModel, EarlyStop},
    exchange::ClosedExchange,
    published::{Published, publish},
    record::{DeviceInTier, ExchangeRecord, RoundRecord, UpdateHeader},
    report::RoundReport,
    settings::Settings,
    wall::WallTime,
};

mod ask;
mod divergence;
mod dropouts;
mod finish;
mod guard_log;
pub mod state;
mod target_log;
mod traffic;
mod view;

pub use divergence::{Divergence, LossWatch};
use dropouts::Dropouts;
use guard_log::GuardLog;
use target_log::TargetLog;

/// What devices have delivered, as the conductor reads it.
pub trait Deliveries {
    /// Why answers cannot be read.
    type Error: fmt::Display + Send;
    /// The payloads of an exchange.
    type Updates<'a>: Updates<Value = f32, Error = Self::Error>
    where
        Self: 'a;

    /// The answers to an exchange, in DeviceId order.
    fn delivered(&self, exchange: ExchangeId) -> Result<Vec<Delivery>, Self::Error>;

    /// The last update of every device from rounds before this one, as far as they are kept, in DeviceId order.
    fn past(&self, round: u32) -> Result<Vec<UpdateHeader>, Self::Error>;

    /// Reads the updates of an exchange. With [`Reading::Past`] also those of [`Deliveries::past`].
    fn read(&mut self, exchange: ExchangeId, reading: Reading) -> Result<Self::Updates<'_>, Self::Error>;
}

/// An answer that is stored.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivery {
    /// Everything except the payload.
    pub header: UpdateHeader,
    /// Length of the payload.
    pub bytes: u64,
}

/// How updates are read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reading {
    /// Those of the exchange.
    Now,
    /// Also the last updates of absent devices.
    Past,
    /// Parts of the updates, before they are read as a whole: checksums are verified then.
    Unchecked,
}

/// Writes round files.
pub trait Recorder {
    /// Whether it writes any.
    fn is_on(&self) -> bool;

    /// Writes a round that is about to be combined.
    fn record<U: Updates<Value = f32>>(&mut self, dump: RoundDump<'_, U>)
    where
        U::Error: fmt::Display;
}

/// Samples of the gateway itself, against which updates are compared.
pub trait Probe: fmt::Debug + Send {
    /// The update that one epoch on them gives, over the whole model.
    fn update(&self, model: &TieredModel, parameters: &[f32], brief: &Brief) -> Result<Vec<f64>, String>;
}

/// What the caller has to do next.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "matched at once, never stored in large numbers")]
pub enum Next {
    /// Record the round as it is now, and announce its exchange.
    Ask {
        /// For the Coordinator.
        announcement: Announcement,
        /// For the store.
        record: RoundRecord,
        /// The record must be durable before devices are told of the exchange. Otherwise, before anything of the exchange is
        /// stored.
        durable_first: bool,
    },
    /// Commit the round, and publish its model.
    Commit(Committed),
}

/// A round that is combined.
#[derive(Debug)]
pub struct Committed {
    /// The figures of the round.
    pub report: RoundReport,
    /// State of the strategy and the guard.
    pub state: Vec<u8>,
    /// What each tier is sent from now on.
    pub published: Vec<Published>,
    /// Training ends with this round, before the last one.
    pub ends_early: bool,
    /// The record of a round without any exchange: the store does not have it yet.
    pub unopened: Option<RoundRecord>,
    /// The commit must be durable before devices are sent the model.
    pub durable_first: bool,
    /// The round of an older model that the store must not drop: the last acceptable one, while training is suspected.
    pub spared: Option<u32>,
    /// Training has diverged: the last acceptable model is back, if it is known, and the run ends after the commit.
    pub diverged: Option<Divergence>,
}

/// What is trained, how, and the present state.
#[derive(Debug)]
pub struct RunState {
    /// The strategy with its options.
    pub method: Method,
    /// The architecture, cut into tiers.
    pub model: TieredModel,
    /// Of the whole model.
    pub parameters: Vec<f32>,
    /// Rounds committed so far.
    pub committed: u32,
    /// Part of the tickets of the open round and of later ones.
    pub attempt: u16,
    /// The strategy has no state yet and must be shown the fleet.
    pub fresh: bool,
    /// How the run is conducted.
    pub settings: Settings,
    /// Every device that was ever registered.
    pub fleet: BTreeMap<DeviceId, DeviceRecord>,
    /// Bounds the influence of one device.
    pub guard: Guard,
    /// Samples of the gateway, if it has any.
    pub probe: Option<Box<dyn Probe>>,
    /// Whether conflicts of updates with the step are counted, which costs one more pass over them.
    pub conflicts: bool,
    /// Parameters of the strategy as configured, for round files.
    pub params: Map<String, Value>,
    /// The best model so far.
    pub best: Option<BestModel>,
}

/// See the module.
#[derive(Debug)]
pub struct Conductor {
    /// What is trained, and the present state.
    pub run: RunState,
    /// What is remembered to notice divergence.
    pub watch: LossWatch,
    round: Option<OpenRound>,
    guard_log: GuardLog,
    target_log: TargetLog,
}

/// The open round.
#[derive(Debug)]
struct OpenRound {
    record: RoundRecord,
    /// Exchanges that have closed.
    made: Vec<Exchange>,
    /// One for each of them.
    findings: Vec<ExchangeFindings>,
    dropouts: Dropouts,
    /// The last updates of absent devices.
    past: Vec<UpdateHeader>,
}

/// What was found when an exchange closed.
#[derive(Debug)]
struct ExchangeFindings {
    /// Devices that have delivered, in DeviceId order.
    devices: Vec<DeviceId>,
    inspection: Inspection,
    /// Bytes of their payloads, by tier.
    bytes: Vec<u64>,
}

/// The exchange that was open when the gateway stopped, formed again.
#[derive(Debug)]
pub struct Reopened {
    /// For the Coordinator.
    pub announcement: Announcement,
    /// The record, if devices are told something else now than it states.
    pub changed: Option<RoundRecord>,
}

impl Conductor {
    /// A conductor without an open round.
    pub fn new(run: RunState) -> Self {
        let watch = LossWatch::default();
        Self { run, watch, round: None, guard_log: GuardLog::default(), target_log: TargetLog::default() }
    }

    /// A round begins. `wanted`: the updates of each tier that are enough; empty: all. `began`: the time of day, if known.
    pub fn open<D: Deliveries>(
        &mut self,
        round: u32,
        selected: Vec<DeviceInTier>,
        wanted: Vec<usize>,
        began: Option<WallTime>,
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<Next, D::Error> {
        self.show_fleet();
        let record =
            RoundRecord { round, attempt: self.run.attempt, selected, wanted, exchanges: vec![], began };
        self.round = Some(self.begin(record, deliveries)?);
        let (first, lr) = (ExchangeId { round, exchange: 0 }, self.run.settings.lr_of(round));
        let closed =
            ClosedExchange { at: began, ..ClosedExchange::empty(first, Kind::Train, lr, Instant::ZERO) };
        self.proceed(&closed, deliveries, recorder)
    }

    /// The open exchange has ended.
    pub fn close<D: Deliveries>(
        &mut self,
        mut closed: ClosedExchange,
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<Next, D::Error> {
        if let Some(mut open) = self.round.take() {
            open.note(&mut closed);
            self.take_in(&mut open, closed.lr, deliveries)?;
            self.round = Some(open);
        }
        self.proceed(&closed, deliveries, recorder)
    }

    /// The exchange that was open when the gateway stopped. If devices are told something else in it now, because the
    /// configuration has changed, its attempt is raised.
    pub fn reopen<D: Deliveries>(
        &mut self,
        record: &RoundRecord,
        deliveries: &mut D,
    ) -> Result<Reopened, D::Error> {
        self.show_fleet();
        let lr = self.run.settings.lr_of(record.round);
        let (mut before, last) = (record.clone(), record.exchanges.last());
        before.exchanges.clear();
        let mut open = self.begin(before, deliveries)?;
        for exchange in &record.exchanges[..record.exchanges.len().saturating_sub(1)] {
            open.record.exchanges.push(exchange.clone());
            self.take_in(&mut open, lr, deliveries)?;
            open.note_missing();
        }
        self.round = Some(open);
        let formed = match self.next_exchange(lr, deliveries) {
            Ok(formed) => formed,
            Err(CombineError::Read(failed)) => return Err(failed),
            Err(failed) => {
                error!(round = record.round, error = %failed, "cannot reopen the exchange");
                None
            }
        };
        let announcement = formed.unwrap_or_else(|| Announcement {
            id: record.open_exchange(),
            kind: last.map_or(Kind::Train, |last| last.kind),
            lr,
            asked: vec![],
            guide: vec![],
        });
        let mut record = record.clone();
        let mut changed = None;
        if let Some(last) = record.exchanges.last_mut().filter(|last| last.digest != announcement.digest()) {
            warn!(round = record.round, "the configuration has changed, asking devices again");
            last.digest = announcement.digest();
            self.run.attempt = self.run.attempt.wrapping_add(1);
            record.attempt = self.run.attempt;
            changed = Some(record.clone());
        }
        if let Some(open) = &mut self.round {
            open.record = record;
        }
        Ok(Reopened { announcement, changed })
    }

    /// The open round, as recorded last.
    pub fn open_record(&self) -> Option<&RoundRecord> {
        self.round.as_ref().map(|open| &open.record)
    }

    /// Why training has ended before the last round, if it has.
    pub fn early_stop(&self) -> Option<EarlyStop> {
        let RunState { settings, committed, best, .. } = &self.run;
        settings.best.stop(best.as_ref()).filter(|_| *committed < settings.rounds)
    }

    /// All rounds of training are committed.
    pub fn has_trained(&self) -> bool {
        self.run.committed >= self.run.settings.rounds || self.early_stop().is_some()
    }

    /// Every tier's slice of the present model.
    pub fn publish(&self) -> Vec<Published> {
        publish(&self.run.model, &self.run.parameters, &self.run.settings.down)
    }

    /// The next exchange of the open round, or its end.
    fn proceed<D: Deliveries>(
        &mut self,
        closed: &ClosedExchange,
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<Next, D::Error> {
        match self.next_exchange(closed.lr, deliveries) {
            Ok(Some(announcement)) => {
                let asked = announcement.asked.iter().map(|asked| asked.device.clone()).collect();
                let exchange =
                    ExchangeRecord { kind: announcement.kind, digest: announcement.digest(), asked };
                let Some(open) = &mut self.round else {
                    return self.finish(closed, None, deliveries, recorder);
                };
                open.record.exchanges.push(exchange);
                // If a device could still deliver after a crash, this exchange would be another one.
                let durable_first = !open.dropouts.is_empty();
                Ok(Next::Ask { announcement, record: open.record.clone(), durable_first })
            }
            Ok(None) => self.finish(closed, None, deliveries, recorder),
            // A failed disk does not cost the round its acknowledged updates.
            Err(CombineError::Read(failed)) => Err(failed),
            Err(failed) => {
                error!(round = closed.id.round, error = %failed, "the round ends early");
                self.finish(closed, Some(Code::NonFiniteResult), deliveries, recorder)
            }
        }
    }

    /// A round before its first exchange.
    fn begin<D: Deliveries>(&self, record: RoundRecord, deliveries: &D) -> Result<OpenRound, D::Error> {
        let past = self.past(record.round, deliveries)?;
        Ok(OpenRound { record, made: vec![], findings: vec![], dropouts: Dropouts::default(), past })
    }

    /// Shows the fleet to a strategy without state: at the start of a run, and after a rollback to it.
    fn show_fleet(&mut self) {
        if self.run.fresh {
            let fleet = self.run.guard.enrolled(&self.run.fleet);
            self.run.method.strategy.begin(&fleet.iter().map(member).collect::<Vec<_>>());
        }
    }
}

fn member(record: &DeviceRecord) -> FleetDevice<'_> {
    let DeviceRecord { device, tier, data, .. } = record;
    FleetDevice { device, tier: *tier, samples: f64::from(data.train_samples), groups: &data.groups }
}
