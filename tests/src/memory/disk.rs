//! The round worker with a slow disk. It takes one step at a time, and other events may occur between two steps.
//!
//! The steps are those of `RoundWorker::run` on its own thread. Devices are told of a round before its record is durable, and
//! of a model before its commit is. Updates are written one by one and become durable in groups.

use std::{collections::VecDeque, ops::ControlFlow};

use aggregator::worker::{Reply, RoundWorker, UpdateOutcome, WorkerError};
use common::{Instant, rng::Rng};
use coordinator::{Action, Coordinator, exchange::ClosedExchange};

use super::CrashCounts;

/// Longest duration of a step in milliseconds.
const STEP_MS: u64 = 20;

#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Actions of the Coordinator, in order.
    pub jobs: VecDeque<Action>,
    /// Updates that are written but not durable.
    group: Vec<UpdateOutcome>,
    /// No further update is expected, so the group can be synced.
    full: bool,
    busy: bool,
    /// When the aggregator is killed next.
    pub planned_crash: Option<PlannedCrash>,
    /// Why the run has ended.
    pub diverged: Option<WorkerError>,
    /// Crashes so far: steps that were scheduled before one are dropped.
    pub start: u32,
}

/// The state in which the aggregator is killed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum PlannedCrash {
    Commit,
    Settling,
}

impl Disk {
    pub fn is_idle(&self, worker: &RoundWorker) -> bool {
        self.jobs.is_empty() && self.group.is_empty() && worker.is_settled()
    }

    /// Milliseconds to the next step, if there is something to do and it is not scheduled yet.
    pub fn next_step(&mut self, worker: &RoundWorker, rng: &mut Rng) -> Option<u64> {
        if self.is_idle(worker) || std::mem::replace(&mut self.busy, true) {
            return None;
        }
        // Half of all steps take no time.
        Some(rng.below(2 * STEP_MS).saturating_sub(STEP_MS))
    }

    /// Takes the next step; breaks if the aggregator is killed.
    pub fn step(
        &mut self,
        worker: &mut RoundWorker,
        coordinator: &mut Coordinator,
        rng: &mut Rng,
        now: Instant,
    ) -> ControlFlow<()> {
        self.busy = false;
        let hit = match self.planned_crash {
            Some(PlannedCrash::Commit) => worker.has_pending_commit(),
            Some(PlannedCrash::Settling) => !self.group.is_empty(),
            None => false,
        };
        if hit {
            self.planned_crash = None;
            return ControlFlow::Break(());
        }
        let more = matches!(self.jobs.front(), Some(Action::Store(_)));
        if !self.group.is_empty() && (self.full || !more && (!self.jobs.is_empty() || rng.below(2) == 0)) {
            self.full = false;
            let reply = worker.settle(std::mem::take(&mut self.group)).unwrap();
            worker.tell(reply, coordinator, now);
            return ControlFlow::Continue(());
        }
        match self.jobs.pop_front() {
            Some(Action::Store(update)) => {
                worker.record().unwrap();
                self.group.push(worker.put(&update).unwrap());
                self.full = update.last;
                coordinator.handle_written(&update.device, update.ticket, update.payload, now);
            }
            Some(action) => {
                if let Action::Close(closed) = &action {
                    worker.record().unwrap();
                    assert_whole(worker, closed);
                }
                match worker.begin(action) {
                    Ok(Some(Reply::Finished) | None) => {}
                    Ok(Some(reply)) => worker.tell(reply, coordinator, now),
                    Err(diverged @ WorkerError::Diverged { .. }) => self.diverged = Some(diverged),
                    Err(failed) => panic!("{failed}"),
                }
            }
            None if self.group.is_empty() => worker.record().unwrap(),
            None => {}
        }
        ControlFlow::Continue(())
    }

    /// Drops all unfinished work and returns what it was.
    pub fn crash(&mut self, worker: &RoundWorker) -> CrashCounts {
        let counts = CrashCounts {
            uncommitted: worker.has_pending_commit().into(),
            unsettled: (!self.group.is_empty()).into(),
            undone: (!self.jobs.is_empty()).into(),
        };
        *self = Self { start: self.start + 1, planned_crash: self.planned_crash, ..Self::default() };
        counts
    }
}

/// The stored updates are exactly those that were delivered.
fn assert_whole(worker: &RoundWorker, closed: &ClosedExchange) {
    let stored = worker.store.updates(closed.id.round, closed.id.exchange).unwrap();
    let stored: Vec<_> = stored.iter().map(|entry| &entry.header.device).collect();
    let delivered: Vec<_> = closed.delivered.iter().map(|(device, ..)| device).collect();
    assert_eq!(stored, delivered, "{:?}", closed.id);
}
