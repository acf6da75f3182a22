//! What the aggregator says, and what follows from it.

use common::{
    Code, Instant,
    message::{Assignment, PlanPart, Receipt, Refusal, Task, ToAggregator, ToDevice, Welcome},
    plan::PlanStore,
    transfer::{Arrival, Incoming},
    wire::{self, Crc32, Frame},
};

use super::{Arena, Event, Job, Link, Session};

impl<A: Arena, const NODES: usize> Session<A, NODES> {
    /// A frame has arrived. Damaged frames are named and otherwise ignored: a serial line goes on, a
    /// driver that has a reliable link may close it.
    pub fn handle_frame(&mut self, bytes: &[u8], now: Instant) -> Result<(), Code> {
        match Frame::decode(bytes).map_err(|error| error.code())? {
            Frame::Control(body) => {
                let message = wire::message(body).map_err(|error| error.code())?;
                self.handle_message(message, now);
            }
            Frame::Chunk { transfer, offset, data } => self.handle_chunk(transfer, offset, data, now),
        }
        Ok(())
    }

    fn handle_message(&mut self, message: ToDevice, now: Instant) {
        match (self.link, message) {
            (_, ToDevice::Refusal(refusal)) => {
                self.event(Event::Refused(refusal));
                self.retry = Some(now + self.limits.timeout);
            }
            (Link::Greeting, ToDevice::Welcome(welcome)) => self.handle_welcome(&welcome, now),
            (Link::Planning, ToDevice::PlanPart(part)) => self.handle_plan_part(&part, now),
            (Link::Up, ToDevice::Assignment(assignment)) => self.handle_assignment(assignment, now),
            (Link::Up, ToDevice::Wait(time)) => {
                if matches!(self.job, Job::Free) {
                    self.retry = Some(now + time);
                }
            }
            (Link::Up, ToDevice::Finished { round }) => {
                self.job = Job::Free;
                self.retry = None;
                self.event(Event::Finished { round });
            }
            (Link::Up, ToDevice::Receipt(receipt)) => self.handle_receipt(receipt, now),
            (Link::Up, ToDevice::Fetch(fetch)) => {
                if let Job::Offering { outgoing, .. } = &mut self.job {
                    outgoing.handle_fetch(fetch, now);
                    self.retry = Some(now + self.limits.timeout);
                }
            }
            (Link::Up, ToDevice::Ack(ack)) => {
                if let Job::Offering { outgoing, .. } = &mut self.job {
                    outgoing.handle_ack(ack, now);
                    self.retry = Some(now + self.limits.timeout);
                }
            }
            // Answers to what was asked on an earlier connection, or twice.
            _ => {}
        }
    }

    fn handle_welcome(&mut self, welcome: &Welcome, now: Instant) {
        let same_plan = self.plan.as_ref().is_some_and(|plan| *plan.info() == welcome.plan);
        let same = same_plan && self.run == Some(welcome.run) && self.tier == Some(welcome.tier);
        if !same {
            self.job = Job::Free;
            self.placed = false;
            self.run = Some(welcome.run);
            self.tier = Some(welcome.tier);
            match PlanStore::new(welcome.plan) {
                Ok(plan) => self.plan = Some(plan),
                Err(_) => return self.refuse(Code::BadPlan.into(), now),
            }
        }
        self.link = Link::Planning;
        self.finish_plan(now);
    }

    fn handle_plan_part(&mut self, part: &PlanPart, now: Instant) {
        let Some(plan) = &mut self.plan else { return };
        if part.digest == plan.info().digest
            && (usize::from(part.node), usize::from(part.step)) == plan.received()
        {
            for node in &part.nodes {
                plan.push(*node);
            }
            for step in &part.steps {
                plan.push_step(*step);
            }
        }
        self.finish_plan(now);
    }

    /// Goes on once the Plan is complete and there is room for it; asks for more nodes until then.
    fn finish_plan(&mut self, now: Instant) {
        let Some(store) = &self.plan else { return };
        if !store.is_complete() {
            return self.request(now);
        }
        let info = *store.info();
        if store.plan().is_err() {
            self.plan = None;
            return self.refuse(Code::BadPlan.into(), now);
        }
        // A device that comes back with its Plan keeps what is in its arena.
        if !self.placed {
            let (need, room) = (info.arena as usize, self.arena.reserve(info.arena as usize));
            if let Err(have) = room {
                self.plan = None;
                let bytes = |floats: usize| floats as u64 * 4;
                let refusal = Refusal { code: Code::DoesNotFit, need: bytes(need), have: bytes(have) };
                return self.refuse(refusal, now);
            }
            self.placed = true;
        }
        self.link = Link::Up;
        if let (Some(run), Some(tier)) = (self.run, self.tier) {
            self.event(Event::Joined { run, tier, parameters: info.params });
        }
        self.request(now);
    }

    fn handle_assignment(&mut self, assignment: Assignment, now: Instant) {
        let present = match &self.job {
            Job::Free => None,
            Job::Downloading { assignment, .. } | Job::Working { assignment, .. } => Some(assignment.ticket),
            Job::Offering { offer, .. } => Some(offer.ticket),
        };
        if present == Some(assignment.ticket) {
            return;
        }
        // The receipt of the earlier round was lost. Asking for it once more costs one answer; not
        // knowing it would cost what a lossy codec has not sent yet.
        if matches!(self.job, Job::Offering { .. }) {
            return self.request(now);
        }
        let Some(plan) = &self.plan else { return };
        if assignment.codec.encoded_len(plan.info().params as usize) != Some(assignment.model.bytes) {
            return self.refuse(Code::WrongShape.into(), now);
        }
        self.event(Event::Assigned { round: assignment.ticket.round });
        let incoming = Incoming::new(assignment.model.transfer, assignment.model.bytes);
        self.job = Job::Downloading { assignment, incoming, crc: Crc32::default() };
        self.request(now);
    }

    fn handle_chunk(&mut self, transfer: u32, offset: u32, data: &[u8], now: Instant) {
        let Job::Downloading { assignment, incoming, crc } = &mut self.job else { return };
        let codec = assignment.codec;
        let (Some(first), Some(count)) = (codec.index_at(offset), codec.count_in(data.len())) else { return };
        let Some(plan) = &self.plan else { return };
        let params = plan.info().params as usize;
        let weights = self.arena.floats().get_mut(..params).unwrap_or_default();
        // Looked up before the transfer moves on, so that what counts as received is also stored.
        let Some(place) = weights.get_mut(first..first + count) else { return };
        let answer = match incoming.handle_chunk(transfer, offset, data.len()) {
            Arrival::Fresh => {
                let _ = codec.decode(data, place);
                crc.update(data);
                ToAggregator::Ack(incoming.ack())
            }
            Arrival::Known => ToAggregator::Ack(incoming.ack()),
            Arrival::Gap => match incoming.refetch() {
                Some(fetch) => ToAggregator::Fetch(fetch),
                None => return,
            },
            Arrival::Foreign => return,
        };
        self.retry = Some(now + self.limits.timeout);
        if incoming.is_done() {
            if core::mem::take(crc).finish() == assignment.model.check {
                let assignment = assignment.clone();
                self.job = Job::Working { assignment, work: None };
                self.retry = None;
            } else {
                *incoming = Incoming::new(assignment.model.transfer, assignment.model.bytes);
                return self.request(now);
            }
        }
        self.say(answer);
    }

    fn handle_receipt(&mut self, receipt: Receipt, now: Instant) {
        let Job::Offering { offer, task, .. } = &self.job else { return };
        if offer.ticket != receipt.ticket {
            return;
        }
        let (scalars, task) = (offer.scalars, task.clone());
        self.job = Job::Free;
        if receipt.refused.is_none() {
            self.keep_residual(&task);
        }
        self.event(Event::Answered { round: receipt.ticket.round, scalars, refused: receipt.refused });
        self.request(now);
    }

    /// Remembers what a lossy codec has not sent.
    fn keep_residual(&mut self, task: &Task) {
        let (Some(plan), Task::Train(brief)) = (&self.plan, task) else { return };
        let info = plan.info();
        let (Some(anchor), Some(residual)) = (info.segments.anchor, info.segments.residual) else { return };
        let segment = |at: u32| at as usize..at as usize + info.params as usize;
        if let Ok([anchor, residual]) =
            self.arena.floats().get_disjoint_mut([segment(anchor), segment(residual)])
        {
            brief.codec.residual(anchor, brief.seed, residual);
        }
    }

    /// Tells both ends that this can not go on.
    fn refuse(&mut self, refusal: Refusal, now: Instant) {
        self.say(ToAggregator::Refusal(refusal));
        self.event(Event::Refused(refusal));
        self.retry = Some(now + self.limits.timeout);
    }
}
