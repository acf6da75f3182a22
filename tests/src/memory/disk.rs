//! The worker with a slow disk: one step at a time, and anything may happen between two of them.
//!
//! The steps are those of `RoundWorker::run` on its own thread. There, too, devices hear of a round before its record and of a
//! model before its commit, and updates are written one by one and become durable in groups.

use std::{collections::VecDeque, ops::ControlFlow};

use aggregator::worker::{Answer, Reply, RoundWorker};
use common::{Instant, rng::Rng};
use coordinator::{Action, Coordinator, exchange::ClosedExchange};

use super::Losses;

/// How long a step takes at most.
const STEP_MS: u64 = 20;

#[derive(Debug, Default)]
pub(super) struct Disk {
    /// What the Coordinator has asked for, in order.
    pub jobs: VecDeque<Action>,
    /// Updates that are written and not durable.
    group: Vec<Answer>,
    /// No other update is worth waiting for.
    full: bool,
    busy: bool,
    /// What the aggregator does not survive.
    pub doom: Option<Doom>,
    /// Crashes so far: steps that were planned before one never happen.
    pub start: u32,
}

/// What will be due when the aggregator is killed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Doom {
    Commit,
    Settling,
}

/// Whether the aggregator is still there after a step.
pub(super) type Step = ControlFlow<()>;

impl Disk {
    pub fn is_idle(&self, worker: &RoundWorker) -> bool {
        self.jobs.is_empty() && self.group.is_empty() && worker.is_settled()
    }

    /// When the next step is due, if there is something to do and it is not planned yet.
    pub fn next_step(&mut self, worker: &RoundWorker, rng: &mut Rng) -> Option<u64> {
        if self.is_idle(worker) || std::mem::replace(&mut self.busy, true) {
            return None;
        }
        // Half of all steps take no time at all.
        Some(rng.below(2 * STEP_MS).saturating_sub(STEP_MS))
    }

    /// Does the next thing.
    pub fn step(
        &mut self,
        worker: &mut RoundWorker,
        coordinator: &mut Coordinator,
        rng: &mut Rng,
        now: Instant,
    ) -> Step {
        self.busy = false;
        let hit = match self.doom {
            Some(Doom::Commit) => worker.has_due_commit(),
            Some(Doom::Settling) => !self.group.is_empty(),
            None => false,
        };
        if hit {
            self.doom = None;
            return Step::Break(());
        }
        let more = matches!(self.jobs.front(), Some(Action::Store(_)));
        if !self.group.is_empty() && (self.full || !more && (!self.jobs.is_empty() || rng.below(2) == 0)) {
            self.full = false;
            let reply = worker.settle(std::mem::take(&mut self.group)).unwrap();
            worker.tell(reply, coordinator, now);
            return Step::Continue(());
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
                match worker.begin(action).unwrap() {
                    Some(Reply::Finished) | None => {}
                    Some(reply) => worker.tell(reply, coordinator, now),
                }
            }
            None if self.group.is_empty() => worker.record().unwrap(),
            None => {}
        }
        Step::Continue(())
    }

    /// Nothing of it survives; says what that was.
    pub fn crash(&mut self, worker: &RoundWorker) -> Losses {
        let losses = Losses {
            uncommitted: worker.has_due_commit().into(),
            unsettled: (!self.group.is_empty()).into(),
            undone: (!self.jobs.is_empty()).into(),
        };
        *self = Self { start: self.start + 1, doom: self.doom, ..Self::default() };
        losses
    }
}

/// What is combined is what was delivered, each update once.
fn assert_whole(worker: &RoundWorker, closed: &ClosedExchange) {
    let stored = worker.store.updates(closed.number, closed.exchange).unwrap();
    let stored: Vec<_> = stored.iter().map(|entry| &entry.header.device).collect();
    let delivered: Vec<_> = closed.delivered.iter().map(|(device, ..)| device).collect();
    assert_eq!(stored, delivered, "round {}", closed.number);
}
