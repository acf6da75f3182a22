//! The aggregator's side of the protocol, sans-io.
//!
//! How to drive it: tell it what happens (`handle_*`, each with the time), then
//! 1. carry out every [`Action`] of [`Coordinator::poll_action`] in order, and report back with
//!    [`Coordinator::handle_opened`], [`Coordinator::handle_stored`], [`Coordinator::handle_committed`];
//! 2. for every connection of [`Coordinator::poll_wake`], send what [`Coordinator::poll_transmit`]
//!    gives until it gives nothing;
//! 3. call [`Coordinator::handle_timeout`] at [`Coordinator::poll_timeout`];
//! 4. say what [`Coordinator::poll_notice`] gives, if there are people to read it.
//!
//! ```text
//! Gathering --enough devices--> Opening --recorded--> Collecting --every tier done--> Closing
//!     ^                                                   ^                              |
//!     |                                                   +---- next exchange recorded --+
//!     +------------------------------- committed ----------------------------------------+
//! ```
//! After the last round one more collects scores only; then the run is Finished.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use common::{
    Code, Codec, DeviceId, Duration, Instant, RunId, Tier, TierSet,
    brief::Brief,
    message::{Scalars, Task, Ticket, ToDevice},
    rng,
    transfer::LinkLimits,
};

use crate::{
    announcement::Announcement,
    exchange::{ClosedExchange, OpenExchange, Purpose, Seat},
    fleet::{ConnId, Fleet},
    patience::{ByKind, Patience},
    published::{Published, publish},
};
use strategies::{
    device::DeviceRecord,
    strategy::{Kind, Needs, PerTier},
    tiered::TieredModel,
};

mod exports;
mod inbox;
mod notice;
mod outbox;
mod registry;
#[cfg(test)]
mod tests;
mod waiting;
mod watch;

use exports::Exports;
use notice::Notices;
pub use notice::{Notice, Side};
use outbox::Outbox;
use registry::Registry;
pub use waiting::{Gathering, WaitedFor, Waiting};

/// How a run is conducted.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    pub rounds: u32,
    /// The first round waits for this many devices.
    pub min_devices: usize,
    /// Share of the connected devices asked in a round.
    pub participation: f64,
    pub patience: Patience,
    /// How many more devices are asked than are wanted; the round closes with the wanted number of each tier.
    pub over_selection: f64,
    /// Devices without work that may come back in one second.
    pub arrivals_per_s: f64,
    /// What devices are told, but for the learning rate and the seed.
    pub brief: Brief,
    pub lr: f64,
    /// Learning rate of round t is `lr * lr_decay^(t-1)`.
    pub lr_decay: f64,
    pub seed: u64,
    /// Encoding of models and of updates; the brief's is replaced by that of the device's tier.
    pub down: PerTier<Codec>,
    pub up: PerTier<Codec>,
    /// Updates held in memory at once, until they are written; the others wait. Of as many that were interrupted, what has
    /// arrived is kept.
    pub max_uploads: usize,
    pub limits: LinkLimits,
    /// What the strategy wants of devices.
    pub needs: Needs,
}

impl Settings {
    /// Learning rate of a round, counted from 1.
    pub fn lr_of(&self, round: u32) -> f32 {
        (self.lr * self.lr_decay.powf(f64::from(round.saturating_sub(1)))) as f32
    }
}

/// What the driver must do, in this order.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "taken apart at once, never kept in numbers")]
pub enum Action {
    /// Remember a device.
    Register(DeviceRecord),
    /// A round begins: call [`Coordinator::handle_opened`] with its first exchange. It must be recorded before anything
    /// of it is stored.
    /// `wanted` are the updates of each tier that it is content with; empty: all.
    OpenRound { number: u32, seats: Vec<(DeviceId, Tier)>, wanted: Vec<usize> },
    /// Check an update and make it durable, then call [`Coordinator::handle_stored`].
    Store(StoredUpdate),
    /// An exchange has ended. Either record the next one and call [`Coordinator::handle_opened`], or combine
    /// and commit, then call [`Coordinator::handle_committed`].
    Close(ClosedExchange),
    /// The scores of the final model are in; the run is over.
    Finish(ClosedExchange),
    /// Export a tier's sub-model, then call [`Coordinator::handle_onnx`]. There is one at a time for every tier.
    Export { tier: Tier },
    /// Close a connection once everything queued for it is sent.
    Disconnect(ConnId),
    /// Close a connection at once: its device has joined on another one.
    Displace(ConnId),
}

/// A complete update as it arrived.
#[derive(Clone, Debug)]
pub struct StoredUpdate {
    pub ticket: Ticket,
    pub device: DeviceId,
    pub tier: Tier,
    pub kind: Kind,
    /// Vectors of the slice's length in the payload.
    pub vectors: u8,
    pub lr: f32,
    pub codec: Codec,
    pub scalars: Scalars,
    pub payload: Vec<u8>,
    /// Everybody who was asked has answered: no other update is worth waiting for.
    pub last: bool,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Phase {
    Gathering,
    Opening,
    Collecting(OpenExchange),
    Closing,
    Finished { round: u32 },
}

/// Where a run starts or goes on.
#[derive(Debug)]
pub struct Start {
    pub run: RunId,
    /// Rounds committed so far.
    pub committed: u32,
    /// Of the tickets from now on.
    pub attempt: u16,
    pub devices: Vec<DeviceRecord>,
    /// Tiers fixed by the operator.
    pub fixed: BTreeMap<DeviceId, Tier>,
    /// A round that was open when the aggregator stopped, with the updates that are durable.
    pub open: Option<OpenRound>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct OpenRound {
    pub exchange: Announcement,
    /// Updates of each tier that it is content with; empty: all.
    pub wanted: Vec<usize>,
    pub delivered: Vec<(DeviceId, Scalars)>,
}

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
    /// Whose updates count in the round that was closed last: a device whose receipt was lost with
    /// its connection may ask for it after the next round has begun.
    counted: (Ticket, BTreeSet<DeviceId>),
    /// Updates of each tier that the open round is content with; empty: all.
    wanted: Vec<usize>,
    /// Buffers of updates that are written, for the next ones: allocating them anew, on one thread after the other,
    /// makes the process grow.
    spare: Vec<Vec<u8>>,
    exports: Exports,
    registry: Registry,
    /// Devices give signs of life while they work.
    heeds_silence: bool,
    /// Until the last answer of an exchange.
    times: ByKind<Duration>,
    notices: Notices,
    conns: BTreeMap<ConnId, Outbox>,
    awake: BTreeSet<ConnId>,
    actions: VecDeque<Action>,
}

impl Coordinator {
    pub fn new(
        settings: Settings,
        model: TieredModel,
        parameters: &[f32],
        start: Start,
        now: Instant,
    ) -> Self {
        let published = publish(&model, parameters, &settings.down);
        let (phase, wanted) = match start.open {
            Some(open) => {
                let wanted = open.wanted.clone();
                (Phase::Collecting(open.into_round(now)), wanted)
            }
            None => (Phase::Gathering, vec![]),
        };
        let fleet = Fleet::new(start.fixed, start.devices);
        let (conns, awake, actions) = (BTreeMap::new(), BTreeSet::new(), VecDeque::new());
        let Start { run, committed, attempt, .. } = start;
        let counted = (Ticket { run, round: committed, exchange: 0, attempt }, BTreeSet::new());
        let mut this = Self {
            settings,
            model,
            run,
            committed,
            attempt,
            published,
            fleet,
            phase,
            counted,
            wanted,
            spare: vec![],
            exports: Exports::default(),
            registry: Registry::default(),
            heeds_silence: false,
            times: ByKind::default(),
            notices: Notices::default(),
            conns,
            awake,
            actions,
        };
        this.begin_watch();
        this
    }

    pub fn run(&self) -> RunId {
        self.run
    }

    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn committed(&self) -> u32 {
        self.committed
    }

    /// The round that is collecting, if one is.
    pub fn round(&self) -> Option<&OpenExchange> {
        match &self.phase {
            Phase::Collecting(round) => Some(round),
            _ => None,
        }
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. })
    }

    /// The driver has authenticated a device on a new connection.
    pub fn handle_connected(&mut self, conn: ConnId, device: DeviceId) {
        self.conns.insert(conn, Outbox::new(device));
    }

    /// The certificate of a connection allows these tiers only.
    pub fn allow(&mut self, conn: ConnId, tiers: TierSet) {
        if let Some(outbox) = self.conns.get_mut(&conn) {
            outbox.allowed = tiers;
        }
    }

    pub fn handle_disconnected(&mut self, conn: ConnId, now: Instant) {
        if let Some(outbox) = self.conns.remove(&conn)
            && self.fleet.leave(&outbox.device, conn)
        {
            self.note_lost_link(&outbox.device, now);
        }
        self.exports.forget(conn);
        self.awake.remove(&conn);
        self.advance(now);
    }

    /// An exchange is recorded: devices may be told.
    pub fn handle_opened(&mut self, exchange: Announcement, now: Instant) {
        if matches!(self.phase, Phase::Opening | Phase::Closing) {
            let mut round = OpenExchange::open(exchange, Purpose::Train, now);
            round.wanted.clone_from(&self.wanted);
            self.collect(round);
        }
        // Nobody may be left to be asked.
        self.advance(now);
    }

    /// An update is durable, or was refused after all.
    pub fn handle_stored(
        &mut self,
        device: &DeviceId,
        ticket: Ticket,
        result: Result<(), Code>,
        now: Instant,
    ) {
        if let Phase::Collecting(round) = &mut self.phase
            && (ticket.round, ticket.exchange) == (round.number, round.exchange)
            && let Some((_, seat)) = round.seats.get(device)
        {
            if let Seat::Storing(scalars) | Seat::Written(scalars) = seat {
                let seat = match result {
                    Ok(()) => Seat::Delivered(scalars.clone()),
                    Err(code) => Seat::Refused(code),
                };
                round.seats.set(device, seat);
                round.note_delivered(device, now, &self.settings.patience);
            }
            self.receipt(device, ticket, result.err());
            self.start_uploads(now);
        }
        self.advance(now);
    }

    /// An update is with the disk and no longer in memory, though not durable yet: the next one may come in. Takes
    /// back its buffer.
    pub fn handle_written(&mut self, device: &DeviceId, ticket: Ticket, mut buffer: Vec<u8>, now: Instant) {
        if self.spare.len() < self.settings.max_uploads {
            buffer.clear();
            self.spare.push(buffer);
        }
        if let Phase::Collecting(round) = &mut self.phase
            && (ticket.round, ticket.exchange) == (round.number, round.exchange)
            && let Some((_, Seat::Storing(scalars))) = round.seats.get(device)
        {
            let written = Seat::Written(scalars.clone());
            round.seats.set(device, written);
            self.start_uploads(now);
        }
    }

    /// The round is committed; `published` is the new model (or the old one if combining failed), by tier.
    pub fn handle_committed(&mut self, published: Vec<Published>, now: Instant) {
        self.committed += 1;
        self.published = published;
        self.exports.expire(self.committed);
        self.phase = Phase::Gathering;
        self.advance(now);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        for (&conn, outbox) in &mut self.conns {
            if outbox.handle_timeout(now) {
                self.awake.insert(conn);
            }
        }
        self.start_uploads(now);
        if self.round().is_some_and(|round| round.next_look.is_some_and(|look| look <= now)) {
            self.look_for_silence(now);
        }
        self.advance(now);
        let patience = &self.settings.patience;
        if let Phase::Collecting(round) = &mut self.phase {
            round.look_at(now, patience);
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        let transfers = self.conns.values().filter_map(Outbox::poll_timeout);
        self.poll_limit().into_iter().chain(transfers).min()
    }

    /// The next moment at which time alone may close the exchange that is open.
    pub fn poll_limit(&self) -> Option<Instant> {
        self.round().and_then(|round| round.next_limit(&self.settings.patience))
    }

    /// What the operator should know.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.poll()
    }

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
            Phase::Collecting(round)
                if (round.may_close(now, &self.settings.patience) || self.is_deserted(round))
                    && !self.awaits_return(round) =>
            {
                self.close(now);
            }
            _ => {}
        }
    }

    /// A round that was complete when the aggregator was started again closes once a device is there. A device that did not get its
    /// receipt asks for it then, and only the process that closes a round knows whose updates it counted.
    fn awaits_return(&self, round: &OpenExchange) -> bool {
        round.complete_at_start && self.fleet.connected().next().is_none()
    }

    fn gather(&mut self, now: Instant) {
        if self.fleet.connected().count() < self.needed() {
            return;
        }
        let mut present: Vec<_> =
            self.fleet.connected().map(|(device, member, _)| (device.clone(), member.record.tier)).collect();
        let number = self.committed + 1;
        if self.committed >= self.settings.rounds {
            let lr = self.settings.lr_of(number);
            let ask = |(device, tier)| (device, tier, Task::Evaluate(None));
            let seats = present.into_iter().map(ask).collect();
            let exchange =
                Announcement { round: number, number: 0, kind: Kind::Losses, lr, seats, guide: vec![] };
            self.collect(OpenExchange::open(exchange, Purpose::Evaluate, now));
            return;
        }
        rng::Rng::new(rng::derive(self.settings.seed, u64::from(number))).shuffle(&mut present);
        let wanted = (self.settings.participation * present.len() as f64).round().max(1.0) as usize;
        let rest = present.split_off(wanted.min(present.len()));
        self.wanted = self.select_more(&mut present, rest);
        present.sort();
        self.actions.extend(self.registry.catch_up().map(Action::Register));
        self.actions.push_back(Action::OpenRound { number, seats: present, wanted: self.wanted.clone() });
        self.phase = Phase::Opening;
    }

    /// How many devices a round needs to begin: the first one the whole fleet, later ones what a quorum of the devices
    /// allows that are still members.
    fn needed(&self) -> usize {
        let least = self.settings.min_devices;
        let needed = match self.committed {
            0 => least,
            _ => (self.mean_quorum() * least.min(self.fleet.known()) as f64).ceil() as usize,
        };
        needed.max(1)
    }

    /// The share of all devices that are there when every tier has just its quorum.
    fn mean_quorum(&self) -> f64 {
        let quorum = |tier| self.settings.patience.quorum.of(tier).unwrap_or(0.0);
        let sum: f64 = self.fleet.members().map(|member| quorum(member.record.tier)).sum();
        if self.fleet.known() > 0 { sum / self.fleet.known() as f64 } else { 1.0 }
    }

    /// Asks more devices than are wanted, tier by tier; gives how many are wanted, empty if nobody was added.
    fn select_more(&self, seats: &mut Vec<(DeviceId, Tier)>, rest: Vec<(DeviceId, Tier)>) -> Vec<usize> {
        let mut wanted = vec![0; self.model.plans.len()];
        for (_, tier) in &*seats {
            if let Some(wanted) = wanted.get_mut(tier.index()) {
                *wanted += 1;
            }
        }
        let more = |wanted: &usize| (*wanted as f64 * (self.settings.over_selection - 1.0)).ceil().max(0.0);
        let mut room: Vec<usize> = wanted.iter().map(|wanted| more(wanted) as usize).collect();
        let before = seats.len();
        for (device, tier) in rest {
            if let Some(room) = room.get_mut(tier.index()).filter(|room| **room > 0) {
                *room -= 1;
                seats.push((device, tier));
            }
        }
        if seats.len() > before { wanted } else { vec![] }
    }

    fn close(&mut self, now: Instant) {
        let Phase::Collecting(round) = std::mem::replace(&mut self.phase, Phase::Closing) else { return };
        let late: Vec<_> = round.seats.iter().map(|(device, ..)| device.clone()).collect();
        let closed = round.settle(now, |device| self.fleet.is_connected(device));
        self.end_watch(&round, now);
        match round.purpose {
            // All have left before they could say anything. Those that are there now are asked instead.
            Purpose::Evaluate if self.is_deserted(&round) => {
                self.phase = Phase::Gathering;
                self.advance(now);
            }
            Purpose::Train => {
                let ticket = self.ticket(&round);
                self.counted = (ticket, closed.delivered.iter().map(|(d, ..)| d.clone()).collect());
                self.actions.push_back(Action::Close(closed));
            }
            Purpose::Evaluate => {
                self.phase = Phase::Finished { round: self.committed };
                self.actions.push_back(Action::Finish(closed));
                for device in late {
                    self.say(&device, ToDevice::Finished { round: self.committed });
                }
            }
        }
    }

    /// A round is open: everybody is told.
    fn collect(&mut self, round: OpenExchange) {
        self.phase = Phase::Collecting(round);
        self.begin_watch();
        self.announce();
    }

    /// Tells everybody with an empty seat that there is work.
    fn announce(&mut self) {
        let waiting: Vec<_> = match &self.phase {
            Phase::Collecting(round) => {
                let assigned = |seat: &Seat| matches!(seat, Seat::Assigned);
                round.seats.iter().filter(|(.., seat)| assigned(seat)).map(|(d, ..)| d.clone()).collect()
            }
            _ => vec![],
        };
        for device in waiting {
            self.answer_ready(&device);
        }
    }

    fn ticket(&self, round: &OpenExchange) -> Ticket {
        Ticket { run: self.run, round: round.number, exchange: round.exchange, attempt: self.attempt }
    }

    fn say(&mut self, device: &DeviceId, message: ToDevice) {
        if let Some(conn) = self.fleet.member(device).and_then(|member| member.conn)
            && let Some(outbox) = self.conns.get_mut(&conn)
        {
            outbox.say(message);
            self.awake.insert(conn);
        }
    }
}

/// Transfers of ONNX files and of guides are told apart from those of models by these bits.
const ONNX_TRANSFER: u32 = 1 << 31;
const GUIDE_TRANSFER: u32 = 1 << 30;

impl OpenRound {
    fn into_round(self, now: Instant) -> OpenExchange {
        let mut round = OpenExchange::open(self.exchange, Purpose::Train, now);
        round.wanted = self.wanted;
        for (device, scalars) in self.delivered {
            round.seats.set(&device, Seat::Delivered(scalars));
        }
        round.complete_at_start = round.seats.all_answered();
        round
    }
}
