//! Handles messages of the aggregator.

use common::{
    Code, Instant,
    message::{PlanPart, Receipt, Refusal, ToDevice, Welcome},
    plan::PlanStore,
    wire::{self, Frame},
};

use super::{Arena, BaselineOf, Event, Job, Link, QueuedMessage, ReceivedVectors, Session};
use crate::train::FULL;

impl<A: Arena, const NODES: usize> Session<A, NODES> {
    /// Handles a frame. Damaged frames give an error and are otherwise ignored: the driver of a reliable link may close it.
    #[inline(never)]
    pub fn handle_frame(&mut self, bytes: &[u8], now: Instant) -> Result<(), Code> {
        match Frame::decode(bytes).map_err(|error| error.code())? {
            Frame::Control(body) => {
                let (mut message, tail) = match wire::control::<ToDevice>(body) {
                    Ok(message) => message,
                    Err(error) => return Err(self.not_understood(error.code(), now)),
                };
                // A Welcome without a tail means protocol 4, the oldest that a Hello names.
                if let (Link::Greeting, ToDevice::Welcome(_), Some(version)) =
                    (self.link, &message, wire::tail::<u8>(tail))
                {
                    if !self.versions.contains(version) {
                        self.refuse(Code::WrongVersion.into(), now);
                        return Err(Code::WrongVersion);
                    }
                    self.version = version;
                }
                message.read_tail(tail, self.version);
                self.handle_message(message, now);
            }
            Frame::Chunk { transfer, offset, data } => self.handle_chunk(transfer, offset, data, now),
        }
        Ok(())
    }

    /// A message with a valid checksum that does not decode needs more than this program has room for. The device refuses it, so
    /// that the aggregator does not wait for an answer.
    #[inline(never)]
    fn not_understood(&mut self, code: Code, now: Instant) -> Code {
        if matches!(self.job, Job::Downloading(_)) {
            self.job = Job::Free;
        }
        if self.link == Link::Planning || self.link == Link::Up && matches!(self.job, Job::Free) {
            self.refuse(if FULL { code } else { Code::LeftOut }.into(), now);
        }
        code
    }

    #[inline(never)]
    fn handle_message(&mut self, message: ToDevice, now: Instant) {
        match (self.link, message) {
            (_, ToDevice::Refusal(refusal)) => {
                self.event(Event::Refused(refusal));
                self.retry = Some(now + self.limits.timeout);
            }
            (Link::Greeting, ToDevice::Welcome(welcome)) => self.handle_welcome(&welcome, now),
            (Link::Planning, ToDevice::PlanPart(part)) => self.handle_plan_part(&part, now),
            (Link::Up, ToDevice::Assignment(assignment)) => self.handle_assignment(assignment, now),
            (Link::Up, ToDevice::Wait(time)) => match self.job {
                Job::Free => self.retry = Some(now + time),
                _ => self.deferred = true,
            },
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
            // Answers to requests of an earlier connection, or to repeated ones.
            _ => {}
        }
    }

    #[inline(never)]
    fn handle_welcome(&mut self, welcome: &Welcome, now: Instant) {
        let same_plan = self.plan.as_ref().is_some_and(|plan| *plan.info() == welcome.plan);
        let same = same_plan && self.run == Some(welcome.run) && self.tier == Some(welcome.tier);
        if !same {
            self.job = Job::Free;
            self.placed = false;
            self.held = ReceivedVectors::default();
            self.note_model(None);
            self.own.personal = false;
            if self.baseline_of != Some(BaselineOf { run: welcome.run, plan: welcome.plan.digest }) {
                self.own.baseline = None;
            }
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

    #[inline(never)]
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

    /// Continues once the Plan is complete and there is room for it; asks for more nodes until then.
    fn finish_plan(&mut self, now: Instant) {
        let Some(store) = &self.plan else { return };
        if !store.is_complete() {
            return self.request(now);
        }
        let info = *store.info();
        if let Err(error) = store.plan() {
            self.plan = None;
            return self.refuse(error.code().into(), now);
        }
        // A device that reconnects with the same Plan keeps the content of its arena.
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

    #[inline(never)]
    fn handle_receipt(&mut self, receipt: Receipt, now: Instant) {
        let Job::Offering { offer, task, .. } = &self.job else { return };
        if offer.ticket != receipt.ticket {
            return;
        }
        let (scalars, task) = (offer.scalars.clone(), task.clone());
        self.job = Job::Free;
        if receipt.refused.is_none() {
            self.keep_residual(&task);
        }
        self.event(Event::Answered { round: receipt.ticket.round, scalars, refused: receipt.refused });
        self.request(now);
    }

    /// Refuses towards the aggregator, and reports the refusal as an event.
    pub(super) fn refuse(&mut self, refusal: Refusal, now: Instant) {
        self.say(QueuedMessage::Refusal(refusal));
        self.event(Event::Refused(refusal));
        self.retry = Some(now + self.limits.timeout);
    }
}
