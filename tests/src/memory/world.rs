//! The event loop of a simulated fleet: frames, links, devices and the round worker.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use aggregator::{config::Config, run::Run, store::MemoryStore, worker::RoundWorker};
use client::train::Portable;
use common::{
    Code, DeviceId, ExchangeId, Instant, RunId,
    rng::{Rng, derive},
};
use coordinator::{Coordinator, fleet::ConnId, report::RoundReport};
use strategies::tiered::TieredModel;

use super::{
    Accident, CrashCounts, Outcome, Setup, TestDevice,
    disk::{Disk, PlannedCrash},
    open, test_device,
};

mod drive;

/// A run with more events does not end.
const MAX_EVENTS: u64 = 3_000_000;

/// The end that receives a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Recipient {
    Aggregator,
    Device,
}

#[derive(Debug)]
pub(super) enum WorldEvent {
    ToAggregator(ConnId, Vec<u8>),
    ToDevice(usize, ConnId, Vec<u8>),
    Connect(usize),
    /// The aggregator notices that a connection is lost.
    Lost(ConnId),
    Work(usize),
    /// The round worker takes its next step, unless it has crashed since; see [`Disk::start`].
    WorkerStep(u32),
    Accident(Accident),
}

/// A fleet and its aggregator; see [`Setup`].
pub struct World {
    setup: Setup,
    model: TieredModel,
    coordinator: Coordinator,
    worker: RoundWorker,
    devices: Vec<TestDevice>,
    rng: Rng,
    disk: Disk,
    crashes: CrashCounts,
    now: u64,
    sent: u64,
    /// By time, then in the order of sending.
    future: BTreeMap<(u64, u64), WorldEvent>,
    conns: BTreeMap<ConnId, usize>,
    next_conn: u64,
    reports: Arc<Mutex<Vec<RoundReport>>>,
    answers: BTreeMap<(DeviceId, u32), Vec<Option<Code>>>,
    arrived: BTreeMap<(DeviceId, ExchangeId), u32>,
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
            devices: (0..setup.devices).map(|index| test_device(setup, &model, index, index)).collect(),
            model,
            rng: Rng::new(derive(setup.seed, 0)),
            disk: Disk::default(),
            crashes: CrashCounts::default(),
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
            world.schedule(delay, WorldEvent::Connect(index));
        }
        for &(at, accident) in &setup.accidents {
            world.schedule(at, WorldEvent::Accident(accident));
        }
        world
    }

    /// Runs until the run is over and every device knows it.
    pub fn run(&mut self) {
        for _ in 0..MAX_EVENTS {
            let over = self.coordinator.is_finished() && self.disk.is_idle(&self.worker);
            if over && self.devices.iter().all(|device| device.done) || self.disk.diverged.is_some() {
                return;
            }
            assert!(self.step(), "no event is left at {} ms", self.now);
        }
        let roster = self.coordinator.open_exchange().map(|exchange| &exchange.roster);
        let waiting = self.devices.iter().filter(|device| !device.done);
        let waiting: Vec<_> = waiting.map(|device| (&device.device, device.conn, &device.session)).collect();
        panic!(
            "no end after {MAX_EVENTS} events, at {} ms, {} rounds; finished: {}; open exchange: {roster:?}; \
             waiting devices: {waiting:?}",
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
            slices: self.devices.iter_mut().map(|device| device.session.weights().to_vec()).collect(),
            millis: self.now,
            crashes: self.crashes,
        }
    }

    /// Why the run has ended before its last round.
    pub fn diverged(&self) -> Option<String> {
        self.disk.diverged.as_ref().map(ToString::to_string)
    }

    fn time(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    fn schedule(&mut self, delay: u64, event: WorldEvent) {
        self.sent += 1;
        self.future.insert((self.now + delay, self.sent), event);
    }

    pub fn model(&self) -> &TieredModel {
        &self.model
    }

    pub fn run_id(&mut self) -> RunId {
        self.worker.store.load(&aggregator::run::fingerprint(&self.model)).unwrap().unwrap().run.run
    }

    /// Delivers a forged frame.
    pub fn inject(&mut self, device: usize, frame: Vec<u8>, to: Recipient) {
        let Some(conn) = self.devices[device].conn else { return };
        self.apply(match to {
            Recipient::Aggregator => WorldEvent::ToAggregator(conn, frame),
            Recipient::Device => WorldEvent::ToDevice(device, conn, frame),
        });
        self.run_actions();
    }

    /// Handles the next event: a timer or a scheduled one. False if there is none.
    pub fn step(&mut self) -> bool {
        let awake = self.devices.iter().filter(|device| device.stopped.is_none());
        let timers = awake.filter_map(|device| device.session.poll_timeout());
        let timer = timers.chain(self.coordinator.poll_timeout()).map(Instant::as_millis).min();
        let planned = self.future.first_key_value().map(|(&(at, _), _)| at);
        match (timer, planned) {
            (Some(timer), planned) if planned.is_none_or(|planned| timer < planned) => {
                self.now = self.now.max(timer);
                self.fire_timers();
            }
            (_, Some(_)) => {
                let ((at, _), event) = self.future.pop_first().unwrap();
                self.now = self.now.max(at);
                self.apply(event);
            }
            _ => return false,
        }
        self.run_actions();
        true
    }

    fn fire_timers(&mut self) {
        let now = self.time();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.coordinator.poll_timeout()) {
            self.coordinator.handle_timeout(now);
        }
        for index in 0..self.devices.len() {
            if self.devices[index].stopped.is_none() && due(self.devices[index].session.poll_timeout()) {
                self.devices[index].session.handle_timeout(now);
                self.drive_device(index);
            }
        }
    }

    fn apply(&mut self, event: WorldEvent) {
        let now = self.time();
        if let WorldEvent::ToDevice(index, ..) | WorldEvent::Work(index) = event
            && let Some(held) = &mut self.devices[index].stopped
        {
            return held.push(event);
        }
        match event {
            // The Coordinator itself answers frames that it does not understand.
            WorldEvent::ToAggregator(conn, frame) => _ = self.coordinator.handle_frame(conn, &frame, now),
            WorldEvent::ToDevice(index, conn, frame) => {
                if self.devices[index].conn == Some(conn) {
                    // A device goes on after a damaged frame, as on a serial line.
                    let _ = self.devices[index].session.handle_frame(&frame, now);
                    self.drive_device(index);
                }
            }
            WorldEvent::Connect(index) => self.connect(index),
            WorldEvent::Lost(conn) => self.coordinator.handle_disconnected(conn, now),
            WorldEvent::Work(index) => {
                let TestDevice { session, shard, working, .. } = &mut self.devices[index];
                *working = false;
                if session.has_work() {
                    let worked = session.work(shard, &mut Portable::plain(), now);
                    assert!(worked.is_ok() || self.setup.may_fail, "{worked:?}");
                    self.drive_device(index);
                }
            }
            WorldEvent::WorkerStep(start) if start == self.disk.start => self.step_worker(),
            WorldEvent::WorkerStep(_) => {}
            WorldEvent::Accident(Accident::Crash) => self.crash(),
            WorldEvent::Accident(Accident::CrashUncommitted) => {
                self.disk.planned_crash = Some(PlannedCrash::Commit);
            }
            WorldEvent::Accident(Accident::CrashUnsettled) => {
                self.disk.planned_crash = Some(PlannedCrash::Settling);
            }
            WorldEvent::Accident(Accident::Reboot { device, tier }) => self.reboot(device, tier),
            WorldEvent::Accident(Accident::Vanish { device }) => {
                self.devices[device].done = true;
                self.devices[device].gone = true;
                self.devices[device].conn.into_iter().for_each(|conn| self.drop_link(conn));
            }
            WorldEvent::Accident(Accident::Stop { device }) => {
                self.devices[device].stopped.get_or_insert_default();
                // If it never continues, the run ends without it.
                self.devices[device].done = true;
            }
            WorldEvent::Accident(Accident::Continue { device }) => {
                self.devices[device].done = false;
                for held in self.devices[device].stopped.take().into_iter().flatten() {
                    self.apply(held);
                }
            }
            WorldEvent::Accident(Accident::Revoke { device }) => {
                self.devices[device].done = true;
                self.devices[device].gone = true;
                self.coordinator.handle_revoked(&self.devices[device].device, now);
                self.devices[device].conn.into_iter().for_each(|conn| self.drop_link(conn));
            }
        }
    }

    /// Restarts the aggregator with another configuration.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.setup.config);
        self.crash();
        self.run_actions();
    }

    /// Number of devices that have work now.
    pub fn at_work(&self) -> usize {
        self.devices.iter().filter(|device| device.session.has_work()).count()
    }

    /// Kills the aggregator and starts it again: only the store survives.
    fn crash(&mut self) {
        self.crashes += self.disk.crash(&self.worker);
        let store = std::mem::replace(&mut self.worker.store, Box::new(MemoryStore::new()));
        Run { coordinator: self.coordinator, worker: self.worker } =
            open(&self.setup, store, &self.reports, self.now);
        self.coordinator.handle_timeout(self.time());
        let conns: Vec<_> = self.devices.iter().filter_map(|device| device.conn).collect();
        for conn in conns {
            self.drop_link(conn);
        }
    }

    /// Resets a device with the memory of a tier.
    fn reboot(&mut self, index: usize, tier: usize) {
        let fresh = test_device(&self.setup, &self.model, index, tier);
        let TestDevice { session, conn, done, .. } = &mut self.devices[index];
        if *done {
            return;
        }
        *session = fresh.session;
        match *conn {
            Some(conn) => self.drop_link(conn),
            None => self.schedule(0, WorldEvent::Connect(index)),
        }
    }

    fn step_worker(&mut self) {
        let now = self.time();
        if self.disk.step(&mut self.worker, &mut self.coordinator, &mut self.rng, now).is_break() {
            self.crash();
        }
    }
}
