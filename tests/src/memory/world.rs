//! Who does what when: frames, links, devices and the aggregator's worker.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use aggregator::{config::Config, run::Run, store::MemoryStore, worker::RoundWorker};
use client::{Event, train::Portable};
use common::{
    Code, DeviceId, Instant, RunId, Versions,
    rng::{Rng, derive},
    wire,
};
use coordinator::{Action, Coordinator, fleet::ConnId, report::RoundReport};
use strategies::tiered::TieredModel;

use super::{
    Accident, Losses, Member, Outcome, Setup,
    disk::{Disk, Doom},
    member, open,
};

/// No run takes this many events unless it goes round in circles.
const MAX_EVENTS: u64 = 3_000_000;

/// Who a frame is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Side {
    Aggregator,
    Device,
}

#[derive(Debug)]
pub(super) enum Happening {
    ToAggregator(ConnId, Vec<u8>),
    ToDevice(usize, ConnId, Vec<u8>),
    Connect(usize),
    /// The aggregator notices that a connection is gone.
    Lost(ConnId),
    Work(usize),
    /// The worker that was started so many times has time for its next step.
    Keep(u32),
    Accident(Accident),
}

/// A fleet and its aggregator; see [`Setup`].
pub struct World {
    setup: Setup,
    model: TieredModel,
    coordinator: Coordinator,
    worker: RoundWorker,
    members: Vec<Member>,
    rng: Rng,
    disk: Disk,
    losses: Losses,
    now: u64,
    sent: u64,
    /// By time, then in the order of sending.
    future: BTreeMap<(u64, u64), Happening>,
    conns: BTreeMap<ConnId, usize>,
    next_conn: u64,
    reports: Arc<Mutex<Vec<RoundReport>>>,
    answers: BTreeMap<(DeviceId, u32), Vec<Option<Code>>>,
    arrived: BTreeMap<(DeviceId, u32, u8), u32>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now).field("setup", &self.setup).finish()
    }
}

impl World {
    pub fn new(setup: &Setup) -> Self {
        let reports = Arc::new(Mutex::new(vec![]));
        let Run { coordinator, worker } = open(setup, Box::new(MemoryStore::new()), &reports, 0);
        let model = worker.conductor.run.model.clone();
        let mut world = Self {
            setup: setup.clone(),
            coordinator,
            worker,
            members: (0..setup.devices).map(|index| member(setup, &model, index, index)).collect(),
            model,
            rng: Rng::new(derive(setup.seed, 0)),
            disk: Disk::default(),
            losses: Losses::default(),
            now: 0,
            sent: 0,
            future: BTreeMap::new(),
            conns: BTreeMap::new(),
            next_conn: 1,
            reports,
            answers: BTreeMap::new(),
            arrived: BTreeMap::new(),
        };
        for index in 0..setup.devices {
            let delay = world.rng.below(setup.faults.outage_ms);
            world.plan(delay, Happening::Connect(index));
        }
        for &(at, accident) in &setup.accidents {
            world.plan(at, Happening::Accident(accident));
        }
        world
    }

    /// Until the run is over and every device knows it.
    pub fn run(&mut self) {
        for _ in 0..MAX_EVENTS {
            let over = self.coordinator.is_finished() && self.disk.is_idle(&self.worker);
            if over && self.members.iter().all(|member| member.done) {
                return;
            }
            assert!(self.step(), "nothing will ever happen again, at {} ms", self.now);
        }
        let seats = self.coordinator.round().map(|round| &round.seats);
        let waiting = self.members.iter().filter(|member| !member.done);
        let waiting: Vec<_> = waiting.map(|member| (&member.device, member.conn, &member.session)).collect();
        panic!(
            "no end after {MAX_EVENTS} events, at {} ms, {} rounds; finished: {}; open round: {seats:?}; \
             devices that wait: {waiting:?}",
            self.now,
            self.coordinator.committed(),
            self.coordinator.is_finished(),
        );
    }

    pub fn outcome(&mut self) -> Outcome {
        Outcome {
            parameters: self.worker.conductor.run.parameters.clone(),
            reports: self.reports.lock().unwrap().clone(),
            answers: self.answers.clone(),
            arrived: self.arrived.clone(),
            slices: self.members.iter_mut().map(|member| member.session.weights().to_vec()).collect(),
            millis: self.now,
            losses: self.losses,
        }
    }

    fn time(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    fn plan(&mut self, delay: u64, happening: Happening) {
        self.sent += 1;
        self.future.insert((self.now + delay, self.sent), happening);
    }

    pub fn model(&self) -> &TieredModel {
        &self.model
    }

    pub fn run_id(&mut self) -> RunId {
        self.worker.store.load(&aggregator::server::mark(&self.model)).unwrap().unwrap().run.run
    }

    /// Delivers a frame that nobody has sent.
    pub fn inject(&mut self, device: usize, frame: Vec<u8>, to: Side) {
        let Some(conn) = self.members[device].conn else { return };
        self.happen(match to {
            Side::Aggregator => Happening::ToAggregator(conn, frame),
            Side::Device => Happening::ToDevice(device, conn, frame),
        });
        self.carry_out();
    }

    /// The next thing that happens: a timer or something planned. False if there is nothing.
    pub fn step(&mut self) -> bool {
        let awake = self.members.iter().filter(|member| member.stopped.is_none());
        let timers = awake.filter_map(|member| member.session.poll_timeout());
        let timer = timers.chain(self.coordinator.poll_timeout()).map(Instant::as_millis).min();
        let planned = self.future.first_key_value().map(|(&(at, _), _)| at);
        match (timer, planned) {
            (Some(timer), planned) if planned.is_none_or(|planned| timer < planned) => {
                self.now = self.now.max(timer);
                self.ring();
            }
            (_, Some(_)) => {
                let ((at, _), happening) = self.future.pop_first().unwrap();
                self.now = self.now.max(at);
                self.happen(happening);
            }
            _ => return false,
        }
        self.carry_out();
        true
    }

    fn ring(&mut self) {
        let now = self.time();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.coordinator.poll_timeout()) {
            self.coordinator.handle_timeout(now);
        }
        for index in 0..self.members.len() {
            if self.members[index].stopped.is_none() && due(self.members[index].session.poll_timeout()) {
                self.members[index].session.handle_timeout(now);
                self.serve(index);
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.time();
        if let Happening::ToDevice(index, ..) | Happening::Work(index) = happening
            && let Some(held) = &mut self.members[index].stopped
        {
            return held.push(happening);
        }
        match happening {
            // What is not understood is answered by the Coordinator itself.
            Happening::ToAggregator(conn, frame) => _ = self.coordinator.handle_frame(conn, &frame, now),
            Happening::ToDevice(index, conn, frame) => {
                if self.members[index].conn == Some(conn) {
                    // A device goes on after a damaged frame, as on a serial line.
                    let _ = self.members[index].session.handle_frame(&frame, now);
                    self.serve(index);
                }
            }
            Happening::Connect(index) => self.connect(index),
            Happening::Lost(conn) => self.coordinator.handle_disconnected(conn, now),
            Happening::Work(index) => {
                let Member { session, shard, working, .. } = &mut self.members[index];
                *working = false;
                if session.has_work() {
                    let worked = session.work(shard, &mut Portable::plain(), now);
                    assert!(worked.is_ok() || self.setup.may_fail, "{worked:?}");
                    self.serve(index);
                }
            }
            Happening::Keep(start) if start == self.disk.start => self.keep(),
            Happening::Keep(_) => {}
            Happening::Accident(Accident::Crash) => self.crash(),
            Happening::Accident(Accident::CrashUncommitted) => self.disk.doom = Some(Doom::Commit),
            Happening::Accident(Accident::CrashUnsettled) => self.disk.doom = Some(Doom::Settling),
            Happening::Accident(Accident::Reboot { device, tier }) => self.reboot(device, tier),
            Happening::Accident(Accident::Vanish { device }) => {
                self.members[device].done = true;
                self.members[device].gone = true;
                self.members[device].conn.into_iter().for_each(|conn| self.break_off(conn));
            }
            Happening::Accident(Accident::Stop { device }) => {
                self.members[device].stopped.get_or_insert_default();
                // Should it never go on, the run ends without it.
                self.members[device].done = true;
            }
            Happening::Accident(Accident::Continue { device }) => {
                self.members[device].done = false;
                for held in self.members[device].stopped.take().unwrap_or_default() {
                    self.happen(held);
                }
            }
            Happening::Accident(Accident::Revoke { device }) => {
                self.members[device].done = true;
                self.members[device].gone = true;
                self.coordinator.handle_revoked(&self.members[device].device, now);
                self.members[device].conn.into_iter().for_each(|conn| self.break_off(conn));
            }
        }
    }

    fn connect(&mut self, index: usize) {
        let (now, limits) = (self.time(), self.setup.limits);
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let member = &mut self.members[index];
        if member.gone || member.conn.is_some() {
            return;
        }
        member.conn = Some(conn);
        self.conns.insert(conn, index);
        self.coordinator.handle_connected(conn, member.device.clone());
        member.session.handle_connected(limits, Versions::OURS, now);
        self.serve(index);
    }

    /// A link breaks: the device notices at once, the aggregator some time later.
    fn break_off(&mut self, conn: ConnId) {
        let Some(&index) = self.conns.get(&conn) else { return };
        let member = &mut self.members[index];
        if member.conn != Some(conn) {
            return;
        }
        member.conn = None;
        member.session.handle_disconnected();
        let outage = self.setup.faults.outage_ms;
        let (noticed, back) = (self.rng.below(2 * outage), 1 + self.rng.below(outage));
        self.plan(noticed, Happening::Lost(conn));
        self.plan(back, Happening::Connect(index));
    }

    /// The aggregator is killed and started again with another configuration.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.setup.config);
        self.crash();
        self.carry_out();
    }

    /// Devices that have work to do now.
    pub fn at_work(&self) -> usize {
        self.members.iter().filter(|member| member.session.has_work()).count()
    }

    /// The aggregator is killed and started again: only what is in the store survives.
    fn crash(&mut self) {
        self.losses += self.disk.crash(&self.worker);
        let store = std::mem::replace(&mut self.worker.store, Box::new(MemoryStore::new()));
        Run { coordinator: self.coordinator, worker: self.worker } =
            open(&self.setup, store, &self.reports, self.now);
        self.coordinator.handle_timeout(self.time());
        let conns: Vec<_> = self.members.iter().filter_map(|member| member.conn).collect();
        for conn in conns {
            self.break_off(conn);
        }
    }

    /// Nothing of what the device was doing survives.
    fn reboot(&mut self, index: usize, tier: usize) {
        let fresh = member(&self.setup, &self.model, index, tier);
        let Member { session, conn, done, .. } = &mut self.members[index];
        if *done {
            return;
        }
        *session = fresh.session;
        match *conn {
            Some(conn) => self.break_off(conn),
            None => self.plan(0, Happening::Connect(index)),
        }
    }

    /// Everything a Session's driver does after each call.
    fn serve(&mut self, index: usize) {
        let mut frame =
            vec![0; wire::MAX_CONTROL.max(self.setup.limits.chunk as usize + wire::CHUNK_OVERHEAD)];
        while let Some(conn) = self.members[index].conn
            && let Some((_, len)) = self.members[index].session.poll_transmit(&mut frame)
        {
            let sent = frame[..len].to_vec();
            self.send(conn, &sent, |frame| Happening::ToAggregator(conn, frame));
        }
        let member = &mut self.members[index];
        while let Some(event) = member.session.poll_event() {
            match event {
                Event::Answered { round, refused, .. } => {
                    self.answers.entry((member.device.clone(), round)).or_default().push(refused);
                }
                Event::Finished { .. } => member.done = true,
                Event::Failed { round, code } if !self.setup.may_fail => {
                    panic!("{} fails in round {round}: {code}", member.device)
                }
                Event::Failed { .. } | Event::Joined { .. } | Event::Assigned { .. } | Event::Refused(_) => {}
            }
        }
        if member.session.has_work() && !member.working {
            member.working = true;
            let drawn = 1 + self.rng.below(5);
            let pace = self.setup.batch_ms.get(index).copied().unwrap_or(drawn);
            self.plan(pace, Happening::Work(index));
        }
    }

    /// Everything the Coordinator's driver does after each call.
    fn carry_out(&mut self) {
        let mut leaving = vec![];
        while let Some(action) = self.coordinator.poll_action() {
            match action {
                Action::Disconnect(conn) => leaving.push(conn),
                action => {
                    if let Action::Store(update) = &action {
                        let key = (update.device.clone(), update.ticket.round, update.ticket.exchange);
                        *self.arrived.entry(key).or_default() += 1;
                    }
                    self.disk.jobs.push_back(action);
                }
            }
        }
        let mut frame = vec![];
        while let Some(conn) = self.coordinator.poll_wake() {
            while self.coordinator.poll_transmit(conn, &mut frame).is_some() {
                if let Some(&index) = self.conns.get(&conn) {
                    let sent = frame.clone();
                    self.send(conn, &sent, |frame| Happening::ToDevice(index, conn, frame));
                }
            }
        }
        leaving.into_iter().for_each(|conn| self.break_off(conn));
        if let Some(delay) = self.disk.next_step(&self.worker, &mut self.rng) {
            self.plan(delay, Happening::Keep(self.disk.start));
        }
    }

    fn keep(&mut self) {
        let now = self.time();
        if self.disk.step(&mut self.worker, &mut self.coordinator, &mut self.rng, now).is_break() {
            self.crash();
        }
    }

    fn send(&mut self, conn: ConnId, frame: &[u8], arrive: impl Fn(Vec<u8>) -> Happening) {
        let faults = self.setup.faults;
        let fate = faults.fate(frame, &mut self.rng);
        for (delay, copy) in fate.copies {
            self.plan(delay, arrive(copy));
        }
        if fate.broken {
            self.break_off(conn);
        }
    }
}
