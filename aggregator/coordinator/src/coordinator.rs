//! The aggregator's side of the protocol, sans-io.
//!
//! How to drive it: tell it what happens (`handle_*`, each with the time), then
//! 1. carry out every [`Action`] of [`Coordinator::poll_action`] in order, and report back with
//!    [`Coordinator::handle_opened`], [`Coordinator::handle_stored`], [`Coordinator::handle_committed`];
//! 2. for every connection of [`Coordinator::poll_wake`], send what [`Coordinator::poll_transmit`]
//!    returns until it returns nothing;
//! 3. call [`Coordinator::handle_timeout`] at [`Coordinator::poll_timeout`];
//! 4. log what [`Coordinator::poll_notice`] returns.
//!
//! ```text
//! Gathering --enough devices--> Opening --recorded--> Collecting --every tier done--> Closing
//!     ^                                                   ^                              |
//!     |                                                   +---- next exchange recorded --+
//!     +------------------------------- committed ----------------------------------------+
//! ```
//! After the last round, one more exchange collects scores; then the run is Finished.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::OnceLock,
};

use common::{
    DeviceId, Duration, Instant, RunId, TierSet,
    message::{Ticket, ToDevice},
};

use crate::{
    announcement::Announcement,
    exchange::{AnswerState, OpenExchange, Purpose},
    fleet::{ConnId, Fleet},
    pacing::RecentByKind,
    published::{Published, publish},
    settings::{Conduct, Settings},
};
use strategies::tiered::TieredModel;

mod action;
mod assign;
mod connections;
mod exports;
mod inbox;
mod notice;
mod outbox;
mod progress;
mod registrations;
mod selection;
mod start;
#[cfg(test)]
mod tests;
mod uploads;
mod waiting;
mod watch;

pub use action::{Action, StoredUpdate};
use connections::Connections;
use exports::Exports;
use notice::Notices;
pub use notice::{Notice, RefusedBy};
use outbox::Outbox;
pub use progress::PhaseName;
use registrations::Registrations;
pub use start::{ReopenedExchange, Start};
pub use waiting::{Gathering, WaitedFor, Waiting};

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "only one value exists")]
enum Phase {
    Gathering,
    Opening,
    Collecting(OpenExchange),
    Closing,
    Finished { round: u32 },
}

/// The aggregator's side of the protocol. Its [module](crate) says how to drive it.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
    model: TieredModel,
    run: RunId,
    committed: u32,
    attempt: u16,
    published: Vec<Published>,
    fleet: Fleet,
    phase: Phase,
    last_closed: LastClosed,
    /// The result of [`Coordinator::mean_quorum`], until devices or the settings change.
    mean_quorum: OnceLock<f64>,
    /// Updates of each tier that are enough for the open round; empty: all.
    wanted: Vec<usize>,
    /// Buffers of written updates, reused for the next ones. Allocating them again on changing threads makes the process grow.
    spare: Vec<Vec<u8>>,
    exports: Exports,
    registrations: Registrations,
    /// Devices give signs of life while they work.
    detects_silence: bool,
    /// Training has ended before the last round.
    ended_early: bool,
    /// Times until the last answer of an exchange.
    answer_times: RecentByKind<Duration>,
    notices: Notices,
    /// The operator wants no further round for now.
    paused: bool,
    conns: Connections,
    awake: BTreeSet<ConnId>,
    actions: VecDeque<Action>,
}

/// The updates that count in the exchange that was closed last. A device whose receipt was lost with its connection may
/// ask for it after the next exchange has begun.
#[derive(Debug)]
struct LastClosed {
    ticket: Ticket,
    delivered: BTreeSet<DeviceId>,
}

impl Coordinator {
    /// A coordinator that starts or goes on as `start` says. `parameters`: those of the whole model.
    pub fn new(
        settings: Settings,
        model: TieredModel,
        parameters: &[f32],
        start: Start,
        now: Instant,
    ) -> Self {
        let published = publish(&model, parameters, &settings.down);
        let (phase, wanted) = match start.reopened {
            Some(reopened) => {
                let wanted = reopened.wanted.clone();
                (Phase::Collecting(reopened.open(now)), wanted)
            }
            None => (Phase::Gathering, vec![]),
        };
        let Start { run, committed, attempt, .. } = start;
        let ticket = Ticket { run, round: committed, exchange: 0, attempt };
        let mut this = Self {
            settings,
            model,
            run,
            committed,
            attempt,
            published,
            fleet: Fleet::new(start.fixed, start.devices),
            phase,
            last_closed: LastClosed { ticket, delivered: BTreeSet::new() },
            mean_quorum: OnceLock::new(),
            wanted,
            spare: vec![],
            exports: Exports::default(),
            registrations: Registrations::default(),
            detects_silence: false,
            ended_early: false,
            answer_times: RecentByKind::default(),
            notices: Notices::default(),
            paused: false,
            conns: Connections::default(),
            awake: BTreeSet::new(),
            actions: VecDeque::new(),
        };
        this.begin_watch();
        this
    }

    /// The run that it coordinates.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// All devices of the run.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Tiers of the model.
    pub fn tiers(&self) -> usize {
        self.model.plans.len()
    }

    /// How the run is conducted.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The operator has changed how the run is conducted.
    pub fn adopt(&mut self, conduct: Conduct, now: Instant) {
        self.settings.adopt(conduct);
        self.mean_quorum.take();
        self.start_uploads(now);
        self.advance(now);
    }

    /// Rounds committed so far.
    pub fn committed(&self) -> u32 {
        self.committed
    }

    /// The exchange that is collecting answers, if one is.
    pub fn open_exchange(&self) -> Option<&OpenExchange> {
        match &self.phase {
            Phase::Collecting(exchange) => Some(exchange),
            _ => None,
        }
    }

    /// The final scores are collected and the run is over.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. })
    }

    /// The driver has authenticated a device on a new connection.
    pub fn handle_connected(&mut self, conn: ConnId, device: DeviceId) {
        self.conns.insert(conn, Outbox::new(device));
    }

    /// The certificate of a connection allows these tiers only.
    pub fn allow(&mut self, conn: ConnId, tiers: TierSet) {
        self.conns.change(conn, |outbox| outbox.allowed = tiers);
    }

    /// A connection has ended.
    pub fn handle_disconnected(&mut self, conn: ConnId, now: Instant) {
        if let Some(outbox) = self.conns.remove(conn)
            && self.fleet.leave(&outbox.device, conn)
        {
            self.note_lost_link(&outbox.device, now);
        }
        self.exports.forget(conn);
        self.awake.remove(&conn);
        self.advance(now);
    }

    /// An exchange is recorded: devices may be told.
    pub fn handle_opened(&mut self, announcement: Announcement, now: Instant) {
        if matches!(self.phase, Phase::Opening | Phase::Closing) {
            let mut exchange = OpenExchange::open(announcement, Purpose::Train, now);
            exchange.wanted.clone_from(&self.wanted);
            self.collect(exchange);
        }
        // Perhaps no device is left to be asked.
        self.advance(now);
    }

    /// The round is committed; `published` is the new model (or the old one if combining failed), by tier.
    pub fn handle_committed(&mut self, published: Vec<Published>, now: Instant) {
        self.committed += 1;
        self.published = published;
        self.exports.expire(self.committed);
        self.phase = Phase::Gathering;
        self.advance(now);
    }

    /// No more rounds of training follow: after the open one, if there is one, scores are collected. Call it before
    /// [`Coordinator::handle_committed`].
    pub fn end_training(&mut self) {
        self.ended_early = true;
    }

    /// Whether all rounds of training are committed.
    fn has_trained(&self) -> bool {
        self.ended_early || self.committed >= self.settings.rounds
    }

    /// Time has passed: call it at [`Coordinator::poll_timeout`] or later.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.awake.extend(self.conns.handle_timeout(now));
        self.start_uploads(now);
        let check = self.open_exchange().and_then(|exchange| exchange.next_silence_check);
        if check.is_some_and(|check| check <= now) {
            self.check_silence(now);
        }
        self.advance(now);
        if let Phase::Collecting(exchange) = &mut self.phase {
            exchange.handle_timeout(now, &self.settings.deadlines);
        }
    }

    /// When to call [`Coordinator::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.poll_limit().into_iter().chain(self.conns.poll_timeout()).min()
    }

    /// The next moment at which time alone may close the open exchange.
    pub fn poll_limit(&self) -> Option<Instant> {
        self.open_exchange().and_then(|exchange| exchange.next_limit(&self.settings.deadlines))
    }

    /// The next message for the operator.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.poll()
    }

    /// The next thing for the driver to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A connection that has something to send.
    pub fn poll_wake(&mut self) -> Option<ConnId> {
        self.awake.pop_first()
    }

    /// Moves to the next phase if it is time.
    fn advance(&mut self, now: Instant) {
        match &self.phase {
            Phase::Gathering => self.gather(now),
            Phase::Collecting(exchange)
                if (exchange.may_close(now, &self.settings.deadlines) || self.is_deserted(exchange))
                    && !self.awaits_return(exchange) =>
            {
                self.close(now);
            }
            _ => {}
        }
    }

    /// An exchange that was complete when the aggregator was restarted closes once a device is connected. A device without a
    /// receipt asks for it then, and only the process that closes an exchange knows which updates count in it.
    fn awaits_return(&self, exchange: &OpenExchange) -> bool {
        exchange.complete_at_start && self.fleet.connected_len() == 0
    }

    fn close(&mut self, now: Instant) {
        let Phase::Collecting(exchange) = std::mem::replace(&mut self.phase, Phase::Closing) else { return };
        let closed = exchange.settle(now, |device| self.fleet.is_connected(device));
        self.end_watch(&exchange, now);
        match exchange.purpose {
            // All devices have left before any answer. Those that are connected now are asked instead.
            Purpose::Evaluate if self.is_deserted(&exchange) => {
                self.phase = Phase::Gathering;
                self.advance(now);
            }
            Purpose::Train => {
                let delivered = closed.delivered.iter().map(|(device, ..)| device.clone()).collect();
                self.last_closed = LastClosed { ticket: self.ticket(&exchange), delivered };
                self.actions.push_back(Action::Close(closed));
            }
            Purpose::Evaluate => {
                self.phase = Phase::Finished { round: self.committed };
                self.actions.push_back(Action::Finish(closed));
                for (device, _) in exchange.roster.iter() {
                    self.say(device, ToDevice::Finished { round: self.committed });
                }
            }
        }
    }

    /// Opens an exchange and tells all its devices.
    fn collect(&mut self, exchange: OpenExchange) {
        self.phase = Phase::Collecting(exchange);
        self.begin_watch();
        let Phase::Collecting(exchange) = &self.phase else { return };
        let assigned = |state: &AnswerState| matches!(state, AnswerState::Assigned);
        let entries = exchange.roster.iter().filter(|(_, entry)| assigned(&entry.state));
        let asked: Vec<_> = entries.map(|(device, _)| device.clone()).collect();
        for device in asked {
            self.answer_ready(&device);
        }
    }

    fn ticket(&self, exchange: &OpenExchange) -> Ticket {
        let common::ExchangeId { round, exchange } = exchange.id;
        Ticket { run: self.run, round, exchange, attempt: self.attempt }
    }

    fn say(&mut self, device: &DeviceId, message: ToDevice) {
        if let Some(conn) = self.fleet.get(device).and_then(|device| device.conn)
            && self.conns.change(conn, |outbox| outbox.say(message)).is_some()
        {
            self.awake.insert(conn);
        }
    }
}
