//! Connects the sockets, the worker and the clock with the Coordinator.
//!
//! Readers call it with frames that arrived, the worker with updates that are durable, the timer when it is time. The caller
//! also passes on the results: actions to the worker, wakes to the writers. The lock is held only while the Coordinator works,
//! never for a socket or a disk.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time,
};

use bytes::Bytes;
use common::{DeviceId, Instant, TierSet, transfer::Lane};
use tokio::sync::{Notify, watch};
use tracing::warn;

use coordinator::{Action, Conduct, Coordinator, Waiting, fleet::ConnId};

use crate::{
    phases::{PhaseClock, PhaseTimes},
    store::{Snapshot, StoreError},
};

/// Timers may be late by this much.
const TIMER_GRAIN_MS: u64 = 20;
/// Buffers that are kept for later: about as many as updates that arrive at once.
const MAX_BUFFERS: usize = 32;

/// A message to the worker.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "matched at once, never stored in large numbers")]
pub enum Job {
    /// Carry out an action of the Coordinator, in the order in which they were asked for.
    Execute(Action),
    /// A view of the store for a backup.
    Snapshot(mpsc::SyncSender<Result<Option<Snapshot>, StoreError>>),
    /// The operator has changed how the run is conducted.
    Adopt(Conduct),
    /// Record what is done, write the files and end.
    Stop,
}

/// Holds the Coordinator behind a lock, passes its actions to the worker, and wakes connections and timers.
#[derive(Debug)]
pub struct Driver {
    coordinator: Mutex<Coordinator>,
    signals: Mutex<HashMap<ConnId, Arc<ConnectionSignals>>>,
    /// Unused buffers for frames that arrive.
    buffers: Mutex<Vec<Vec<u8>>>,
    phases: Mutex<PhaseClock>,
    worker: Mutex<mpsc::Sender<Job>>,
    timer: Notify,
    started: time::Instant,
    next_conn: AtomicU64,
    finished: watch::Sender<bool>,
}

/// Where a run is, for status lines and metrics.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// Rounds of the run.
    pub rounds: u32,
    /// Rounds that are combined.
    pub committed: u32,
    /// The open exchange of the next round, from 0.
    pub exchange: Option<u8>,
    /// How long it has been open.
    pub open_for: Option<common::Duration>,
    /// All rounds are over.
    pub finished: bool,
    /// By tier.
    pub tiers: Vec<TierDevices>,
}

/// How many devices of a tier there are.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TierDevices {
    /// Devices that have joined the run.
    pub registered: usize,
    /// Of these, with an open connection.
    pub connected: usize,
}

impl Progress {
    /// Devices that are connected.
    pub fn connected(&self) -> usize {
        self.tiers.iter().map(|tier| tier.connected).sum()
    }
}

/// What a connection's writer waits for.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSignals {
    wake: Notify,
    closing: std::sync::atomic::AtomicBool,
    displaced: Notify,
}

impl ConnectionSignals {
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Resolves when the device has joined on another connection.
    pub(crate) async fn displaced(&self) {
        self.displaced.notified().await;
    }

    /// No more messages follow; close once everything is sent.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}

impl Driver {
    /// Starts the clock of the run at 0. Actions go to `worker` as [`Job::Execute`].
    pub fn new(coordinator: Coordinator, worker: mpsc::Sender<Job>) -> Self {
        let phases = PhaseClock::new(coordinator.phase(), coordinator.committed() + 1, Instant::ZERO);
        Self {
            coordinator: Mutex::new(coordinator),
            signals: Mutex::default(),
            buffers: Mutex::default(),
            phases: Mutex::new(phases),
            worker: Mutex::new(worker),
            timer: Notify::new(),
            started: time::Instant::now(),
            next_conn: AtomicU64::new(1),
            finished: watch::Sender::new(false),
        }
    }

    /// Calls the Coordinator and passes on the results.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Coordinator, Instant) -> R) -> R {
        let now = self.now();
        let mut coordinator = lock(&self.coordinator);
        let result = call(&mut coordinator, now);
        while let Some(action) = coordinator.poll_action() {
            match action {
                Action::Disconnect(conn) => self.hang_up(conn),
                Action::Displace(conn) => self.displace(conn),
                // A worker that is gone has reported why; the server is shutting down.
                action => _ = lock(&self.worker).send(Job::Execute(action)),
            }
        }
        while let Some(conn) = coordinator.poll_wake() {
            if let Some(signals) = lock(&self.signals).get(&conn) {
                signals.wake.notify_one();
            }
        }
        let notices: Vec<_> = std::iter::from_fn(|| coordinator.poll_notice()).collect();
        lock(&self.phases).note(coordinator.phase(), coordinator.committed() + 1, now);
        drop(coordinator);
        notices.iter().for_each(|notice| warn!("{notice}"));
        self.timer.notify_one();
        result
    }

    /// Looks at the Coordinator without changing it.
    pub fn look<R>(&self, look: impl FnOnce(&Coordinator, Instant) -> R) -> R {
        let now = self.now();
        look(&lock(&self.coordinator), now)
    }

    /// How long the last rounds took, phase by phase.
    pub fn phase_times(&self) -> Vec<PhaseTimes> {
        lock(&self.phases).times().copied().collect()
    }

    /// When the present phase began.
    pub fn phase_began(&self) -> Instant {
        lock(&self.phases).since()
    }

    /// What the run waits for now.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        lock(&self.coordinator).waiting(self.now())
    }

    /// Devices that are registered in the run.
    pub(crate) fn members(&self) -> Vec<DeviceId> {
        lock(&self.coordinator).fleet().devices().map(|device| device.record.device.clone()).collect()
    }

    /// Where the run is.
    pub fn progress(&self) -> Progress {
        let coordinator = lock(&self.coordinator);
        let open = coordinator.open_exchange();
        let mut tiers = vec![TierDevices::default(); coordinator.tiers()];
        for device in coordinator.fleet().devices() {
            if let Some(tier) = tiers.get_mut(device.record.tier.index()) {
                tier.registered += 1;
                tier.connected += usize::from(device.conn.is_some());
            }
        }
        Progress {
            rounds: coordinator.settings().rounds,
            committed: coordinator.committed(),
            exchange: open.map(|open| open.id.exchange),
            open_for: open.map(|open| self.now() - open.opened),
            finished: coordinator.is_finished(),
            tiers,
        }
    }

    /// Changes how the run is conducted.
    pub fn adopt(&self, conduct: Conduct) {
        let _ = lock(&self.worker).send(Job::Adopt(conduct.clone()));
        self.with(|coordinator, now| coordinator.adopt(conduct, now));
    }

    /// A view of the store, taken by the worker between two jobs. Waits for it; `None` if the worker has ended.
    pub fn snapshot(&self) -> Option<Result<Option<Snapshot>, StoreError>> {
        let (reply, taken) = mpsc::sync_channel(1);
        lock(&self.worker).send(Job::Snapshot(reply)).ok()?;
        taken.recv().ok()
    }

    /// A device has proved who it is; `allowed` are the tiers it may have.
    pub(crate) fn connect(&self, device: DeviceId, allowed: TierSet) -> (ConnId, Arc<ConnectionSignals>) {
        let conn = ConnId(self.next_conn.fetch_add(1, Ordering::Relaxed));
        let signals = Arc::new(ConnectionSignals::default());
        lock(&self.signals).insert(conn, signals.clone());
        self.with(|coordinator, _| {
            coordinator.handle_connected(conn, device);
            coordinator.allow(conn, allowed);
        });
        (conn, signals)
    }

    pub(crate) fn disconnect(&self, conn: ConnId) {
        lock(&self.signals).remove(&conn);
        self.with(|coordinator, now| coordinator.handle_disconnected(conn, now));
    }

    pub(crate) fn connections(&self) -> usize {
        lock(&self.signals).len()
    }

    /// A buffer for the bytes of one stream.
    pub(crate) fn lend_buffer(&self) -> Vec<u8> {
        lock(&self.buffers).pop().unwrap_or_default()
    }

    pub(crate) fn take_back(&self, buffer: Vec<u8>) {
        let mut buffers = lock(&self.buffers);
        if buffers.len() < MAX_BUFFERS {
            buffers.push(buffer);
        }
    }

    /// The next frame for a connection; without `chunks`, the next message.
    pub(crate) fn next_frame(&self, conn: ConnId, chunks: bool) -> Option<(Lane, Bytes)> {
        lock(&self.coordinator).poll_frame(conn, chunks)
    }

    /// Whether a connection has fetched something and not acknowledged all of it.
    pub(crate) fn is_sending(&self, conn: ConnId) -> bool {
        lock(&self.coordinator).is_sending(conn)
    }

    /// Runs the Coordinator's timers for ever.
    pub(crate) async fn keep_time(&self) {
        loop {
            let deadline = lock(&self.coordinator).poll_timeout();
            // Checked here, so that timers also run on a busy gateway.
            if deadline.is_some_and(|deadline| deadline <= self.now()) {
                self.with(Coordinator::handle_timeout);
            }
            let wait = deadline.map(|deadline| (deadline - self.now()).as_millis().max(1));
            tokio::select! {
                // Asking for the next deadline takes the lock, so it is not done after every frame.
                () = self.timer.notified() => sleep(Some(TIMER_GRAIN_MS)).await,
                () = sleep(wait) => self.with(Coordinator::handle_timeout),
            }
        }
    }

    pub(crate) fn finish(&self) {
        self.finished.send_replace(true);
    }

    /// Resolves once the run is over.
    pub(crate) async fn finished(&self) {
        // The sender lives in `self`, so this wait cannot fail.
        let _ = self.finished.subscribe().wait_for(|done| *done).await;
    }

    /// Lets the worker finish what it was given, then stop.
    pub(crate) fn stop_worker(&self) {
        let _ = lock(&self.worker).send(Job::Stop);
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_millis(self.started.elapsed().as_millis() as u64)
    }

    fn displace(&self, conn: ConnId) {
        if let Some(signals) = lock(&self.signals).get(&conn) {
            signals.displaced.notify_one();
        }
    }

    fn hang_up(&self, conn: ConnId) {
        if let Some(signals) = lock(&self.signals).get(&conn) {
            signals.closing.store(true, Ordering::Release);
            signals.wake.notify_one();
        }
    }
}

/// A panic in one task must not take the aggregator down with it: the Coordinator's methods leave it
/// consistent or do not return.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn sleep(millis: Option<u64>) {
    match millis {
        Some(millis) => tokio::time::sleep(time::Duration::from_millis(millis)).await,
        None => std::future::pending().await,
    }
}
