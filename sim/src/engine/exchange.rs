//! One exchange of a round in virtual time.

use std::collections::VecDeque;

use common::{ExchangeId, Instant};
use coordinator::exchange::{OpenExchange, RosterEntry};

use super::{Engine, EngineError, cost};

/// When an asked device will have answered, and what its work costs.
#[derive(Copy, Clone, Debug)]
struct PendingAnswer {
    finish: Instant,
    index: usize,
    cost: cost::Cost,
}

impl Engine {
    /// Runs the open exchange: all devices that are asked answer, as far as time allows.
    pub(super) fn run_exchange(&mut self) -> Result<(), EngineError> {
        let exchange = self.run.coordinator.open_exchange().ok_or(EngineError::Idle)?;
        let (id, opened, asked) = (exchange.id, exchange.opened, exchange.roster.len());
        for (_, entry) in exchange.roster.iter() {
            self.account.asked(entry.tier);
        }
        let mut pending = self.pending_answers(exchange)?;
        let deadline = self.run.coordinator.poll_limit().unwrap_or(opened);
        let width = self.pool.threads() + 2;
        let mut training: VecDeque<PendingAnswer> = VecDeque::new();
        let mut answered = 0;
        loop {
            while training.len() < width
                && pending.front().is_some_and(|next| next.finish <= deadline)
                && let Some(next) = pending.pop_front()
            {
                self.start(next.index, opened)?;
                training.push_back(next);
            }
            if training.is_empty()
                && let Some(late) = pending.pop_front()
            {
                // Only devices later than the first deadline are left. Without a quorum they are waited for.
                if !self.pass_limits(Some(late.finish))? {
                    self.spend(&late, opened, false);
                    pending.iter().for_each(|late| self.spend(late, opened, false));
                    return Ok(());
                }
                self.start(late.index, opened)?;
                training.push_back(late);
            }
            let Some(first) = training.pop_front() else { break };
            let PendingAnswer { finish, index, .. } = first;
            self.now = self.now.max(finish);
            self.finish(index, finish)?;
            self.spend(&first, opened, true);
            answered += 1;
            if !self.is_open(id) {
                // Closed before all devices have answered.
                for late in training.drain(..) {
                    let index = late.index;
                    self.devices[index].session = Some(self.pool.wait(index).ok_or(EngineError::Thread)?);
                    self.devices[index].give_back(&mut self.pool.arenas);
                    self.spend(&late, opened, false);
                }
                return Ok(());
            }
        }
        if self.is_open(id) && self.pass_limits(None)? {
            return Err(EngineError::Stuck { round: id.round, answered, asked });
        }
        Ok(())
    }

    fn is_open(&self, id: ExchangeId) -> bool {
        let open = self.run.coordinator.open_exchange();
        open.is_some_and(|exchange| exchange.id == id) && !self.run.coordinator.is_finished()
    }

    /// Lets the limits before this time pass, or all of them; true if the exchange is still open then.
    fn pass_limits(&mut self, until: Option<Instant>) -> Result<bool, EngineError> {
        let Some(exchange) = self.run.coordinator.open_exchange() else { return Ok(false) };
        let id = exchange.id;
        loop {
            let limit =
                self.run.coordinator.poll_limit().filter(|limit| until.is_none_or(|until| *limit < until));
            match limit.filter(|_| self.is_open(id)) {
                Some(limit) => {
                    self.now = self.now.max(limit);
                    self.run.coordinator.handle_timeout(self.now);
                    self.carry_out()?;
                }
                None => return Ok(self.is_open(id)),
            }
        }
    }

    /// When each asked device will have answered, the first first. Devices that drop out are left out.
    fn pending_answers(&self, exchange: &OpenExchange) -> Result<VecDeque<PendingAnswer>, EngineError> {
        let plans = &self.run.worker.conductor.run.model.plans;
        let mut pending = vec![];
        for (index, device) in self.devices.iter().enumerate() {
            let Some(RosterEntry { tier, task, .. }) = exchange.roster.get(&device.id) else { continue };
            let plan = &plans[tier.index()];
            let guided = !exchange.guide.is_empty();
            let down = self.run.coordinator.settings().down_codec(*tier);
            let cost = cost::of(task, plan, device.shard.as_ref(), down, guided)
                .map_err(|source| EngineError::Cost { device: device.id.clone(), source })?;
            if let Some(span) = self.chances.span(&cost, &device.hardware, exchange.id, &device.id) {
                pending.push(PendingAnswer { finish: exchange.opened + span, index, cost });
            }
        }
        pending.sort_unstable_by_key(|pending| (pending.finish, pending.index));
        Ok(pending.into())
    }

    /// Charges the work of a device to its tier.
    fn spend(&mut self, pending: &PendingAnswer, opened: Instant, in_time: bool) {
        let device = &self.devices[pending.index];
        if let Some(tier) = device.tier() {
            self.account.worked(tier, &pending.cost, pending.finish - opened, &device.hardware, in_time);
        }
    }

    /// Sends the model to the device and lets it train.
    fn start(&mut self, index: usize, now: Instant) -> Result<(), EngineError> {
        self.devices[index].lend(&mut self.pool.arenas);
        // First, an answer to an earlier exchange may be refused.
        for _ in 0..2 {
            self.devices[index].stops_receiving = false;
            self.talk(index, now)?;
            if self.devices[index].has_work() {
                break;
            }
        }
        let device = &mut self.devices[index];
        if let Some(session) = device.session.take() {
            self.pool.submit(index, session, device.shard.clone());
        }
        Ok(())
    }

    /// Sends the update of a device that has trained.
    fn finish(&mut self, index: usize, now: Instant) -> Result<(), EngineError> {
        self.devices[index].session = Some(self.pool.wait(index).ok_or(EngineError::Thread)?);
        self.talk(index, now)?;
        self.devices[index].give_back(&mut self.pool.arenas);
        Ok(())
    }
}
