//! The conduct of a round, without I/O: which exchange comes next, when the round can be combined, and what is committed.
//!
//! ```text
//! open  -> Next::Ask      record the exchange, then announce it
//! close -> Next::Ask      the same, for the next exchange of the round
//!       -> Next::Commit   the round is combined: commit it, then publish the model
//! ```
//! What was asked follows from the strategy's state and from what was delivered in the round. So after a restart,
//! [`Conductor::reopen`] forms the open exchange again, and it means the same. Participants and the guard's findings are computed
//! once per exchange, when it closes. Updates themselves are read through [`Deliveries`].

use std::{collections::BTreeMap, fmt};

use common::{Code, DeviceId, Instant, Tier, brief::Brief};
use serde_json::{Map, Value};
use strategies::{
    device::DeviceRecord,
    error::CombineError,
    guard::{Guard, Verdict},
    method::Method,
    roundfile::RoundDump,
    strategy::{Exchange, Kind, Member},
    tiered::TieredModel,
    updates::Updates,
};
use tracing::{error, warn};

use crate::{
    Settings,
    announcement::Announcement,
    exchange::ClosedExchange,
    published::{Published, publish},
    record::{ExchangeRecord, Header, RoundRecord, Selected},
    report::RoundReport,
};

mod ask;
mod dropouts;
mod finish;
mod held;
pub mod state;
mod traffic;
mod view;

use dropouts::Dropouts;
use held::HeldLog;

/// Where the conductor finds what devices have delivered.
pub trait Deliveries {
    type Error: fmt::Display + Send;
    type Updates<'a>: Updates<Value = f32, Error = Self::Error>
    where
        Self: 'a;

    /// What came in for an exchange, in DeviceId order, with the bytes of each payload.
    fn delivered(&self, round: u32, exchange: u8) -> Result<Vec<(Header, u64)>, Self::Error>;

    /// The last update of every device from rounds before this one, as far as they are kept, in DeviceId order.
    fn past(&self, round: u32) -> Result<Vec<Header>, Self::Error>;

    /// Reads the updates of an exchange. With [`Reading::Past`] also those of [`Deliveries::past`].
    fn read(&mut self, round: u32, exchange: u8, reading: Reading) -> Result<Self::Updates<'_>, Self::Error>;
}

/// How updates are read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reading {
    Now,
    /// Also the last updates of absent devices.
    Past,
    /// A look at some stretches before the same updates are read as a whole: their checksums are left to that.
    Unchecked,
}

/// Writes round files.
pub trait Recorder {
    /// Whether it writes any.
    fn is_on(&self) -> bool;

    /// A round is about to be combined.
    fn record<U: Updates<Value = f32>>(&mut self, dump: RoundDump<'_, U>)
    where
        U::Error: fmt::Display;
}

/// Samples of the gateway's own, which updates are compared with.
pub trait Probe: fmt::Debug + Send {
    /// What one epoch on them changes, over the whole model.
    fn update(&self, model: &TieredModel, parameters: &[f32], brief: &Brief) -> Result<Vec<f64>, String>;
}

/// What has to be done next.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "taken apart at once, never kept in numbers")]
pub enum Next {
    /// Record the round as it is now, and announce its exchange.
    Ask {
        announcement: Announcement,
        record: RoundRecord,
        /// The record must be durable before a device hears of the exchange. Otherwise it is enough before anything of the
        /// exchange is stored.
        durable_first: bool,
    },
    /// Commit the round, and publish its model.
    Commit(Committed),
}

/// A round that is combined.
#[derive(Debug)]
pub struct Committed {
    pub report: RoundReport,
    /// Of the strategy and the guard.
    pub state: Vec<u8>,
    /// What each tier is sent from now on.
    pub published: Vec<Published>,
    /// A round without a single exchange, of which the store does not know yet.
    pub unopened: Option<RoundRecord>,
    /// The commit must be durable before a device hears of the model.
    pub durable_first: bool,
}

/// What is trained, how, and how far it has come.
#[derive(Debug)]
pub struct RunState {
    pub method: Method,
    pub model: TieredModel,
    pub parameters: Vec<f32>,
    /// Rounds committed so far.
    pub committed: u32,
    /// Part of the tickets of the open round and of later ones.
    pub attempt: u16,
    /// The strategy has no memory yet and must be shown the fleet.
    pub fresh: bool,
    pub settings: Settings,
    /// Every device that was ever registered.
    pub fleet: BTreeMap<DeviceId, DeviceRecord>,
    pub guard: Guard,
    pub probe: Option<Box<dyn Probe>>,
    /// Whether conflicts of updates with the step are counted, at the price of one more pass over them.
    pub conflicts: bool,
    /// Parameters of the strategy as configured, for round files.
    pub params: Map<String, Value>,
}

/// See the module.
#[derive(Debug)]
pub struct Conductor {
    pub run: RunState,
    round: Option<Open>,
    held: HeldLog,
}

/// The open round.
#[derive(Debug)]
struct Open {
    record: RoundRecord,
    /// Exchanges that have closed.
    made: Vec<Exchange>,
    /// What was found in each of them.
    found: Vec<Found>,
    dropouts: Dropouts,
    /// The last updates of absent devices.
    past: Vec<Header>,
}

/// What was found when an exchange closed.
#[derive(Debug)]
struct Found {
    /// Who has delivered, in DeviceId order.
    devices: Vec<DeviceId>,
    verdict: Verdict,
    /// Bytes that came in, by tier.
    bytes: Vec<u64>,
}

/// The exchange that was open when the gateway stopped, formed again.
#[derive(Debug)]
pub struct Reopened {
    pub announcement: Announcement,
    /// The record, if devices are told something else now than it says.
    pub changed: Option<RoundRecord>,
}

impl Conductor {
    pub fn new(run: RunState) -> Self {
        Self { run, round: None, held: HeldLog::default() }
    }

    /// A round begins. `wanted` are the updates of each tier that it is content with; empty: all.
    pub fn open<D: Deliveries>(
        &mut self,
        number: u32,
        seats: Vec<(DeviceId, Tier)>,
        wanted: Vec<usize>,
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<Next, D::Error> {
        self.show_fleet();
        let selected = seats.into_iter().map(|(device, tier)| Selected { device, tier }).collect();
        let record = RoundRecord { number, attempt: self.run.attempt, selected, wanted, exchanges: vec![] };
        self.round = Some(self.begin(record, deliveries)?);
        let closed = ClosedExchange::empty(number, self.run.settings.lr_of(number), Instant::ZERO);
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

    /// The exchange that was open when the gateway stopped, as it was. If devices are told something else in it now, because the
    /// configuration has changed, it has another attempt in its name.
    pub fn reopen<D: Deliveries>(
        &mut self,
        record: &RoundRecord,
        deliveries: &mut D,
    ) -> Result<Reopened, D::Error> {
        self.show_fleet();
        let lr = self.run.settings.lr_of(record.number);
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
                error!("the open exchange cannot be formed again: {failed}");
                None
            }
        };
        let announcement = formed.unwrap_or_else(|| Announcement {
            round: record.number,
            number: record.exchange(),
            kind: last.map_or(Kind::Train, |last| last.kind),
            lr,
            seats: vec![],
            guide: vec![],
        });
        let mut record = record.clone();
        let mut changed = None;
        if let Some(last) = record.exchanges.last_mut().filter(|last| last.digest != announcement.digest()) {
            warn!(round = record.number, "the configuration has changed: devices are asked once more");
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

    /// The open round, as it was recorded last.
    pub fn open_record(&self) -> Option<&RoundRecord> {
        self.round.as_ref().map(|open| &open.record)
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
                let Announcement { kind, seats, .. } = &announcement;
                let asked = seats.iter().map(|(device, ..)| device.clone()).collect();
                let exchange = ExchangeRecord { kind: *kind, digest: announcement.digest(), asked };
                let Some(open) = &mut self.round else {
                    return self.finish(closed, None, deliveries, recorder);
                };
                open.record.exchanges.push(exchange);
                // If a device could still deliver after a crash, this exchange would be another one.
                let durable_first = !open.dropouts.is_empty();
                Ok(Next::Ask { announcement, record: open.record.clone(), durable_first })
            }
            Ok(None) => self.finish(closed, None, deliveries, recorder),
            // Acknowledged updates are not given up because the disk has failed.
            Err(CombineError::Read(failed)) => Err(failed),
            Err(failed) => {
                error!(round = closed.number, "the round ends early: {failed}");
                self.finish(closed, Some(Code::NonFiniteResult), deliveries, recorder)
            }
        }
    }

    /// A round before its first exchange.
    fn begin<D: Deliveries>(&self, record: RoundRecord, deliveries: &D) -> Result<Open, D::Error> {
        let past = self.past(record.number, deliveries)?;
        Ok(Open { record, made: vec![], found: vec![], dropouts: Dropouts::default(), past })
    }

    /// A strategy without memory is shown the fleet: at the start of a run, and after going back.
    fn show_fleet(&mut self) {
        if self.run.fresh {
            let fleet = self.run.guard.enrolled(&self.run.fleet);
            self.run.method.strategy.begin(&fleet.iter().map(member).collect::<Vec<_>>());
        }
    }
}

fn member(record: &DeviceRecord) -> Member<'_> {
    let DeviceRecord { device, tier, data, .. } = record;
    Member { device, tier: *tier, samples: f64::from(data.train_samples), groups: &data.groups }
}
