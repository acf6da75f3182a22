//! Handles the frames of devices.

use common::{
    Code, DeviceId, Instant, Tier, TierSet, Versions,
    message::{Hello, PLAN_PART, PLAN_STEPS, PlanPart, Refusal, ToAggregator, ToDevice, Welcome},
    wire::{self, Frame, WireError},
};

use super::{Action, Coordinator};
use crate::{exchange::AnswerState, fleet::ConnId};

impl Coordinator {
    /// A frame has arrived. A device whose frame cannot be understood is told so and disconnected.
    pub fn handle_frame(&mut self, conn: ConnId, bytes: &[u8], now: Instant) -> Result<(), Code> {
        self.handle_decoded(conn, Frame::decode(bytes), now)
    }

    /// The same for a frame that is decoded already. Decoding takes longer than everything else, and a driver can do it on
    /// several threads at once.
    pub fn handle_decoded(
        &mut self,
        conn: ConnId,
        frame: Result<Frame<'_>, WireError>,
        now: Instant,
    ) -> Result<(), Code> {
        let result = match frame {
            Ok(Frame::Control(body)) => match wire::control(body) {
                Ok((message, tail)) => {
                    let result = self.handle_message(conn, message, tail, now);
                    self.advance(now);
                    result
                }
                Err(error) => Err(error.code().into()),
            },
            // A chunk changes no phase: the update that it completes must become durable first.
            Ok(Frame::Chunk { transfer, offset, data }) => {
                self.handle_chunk(conn, transfer, offset, data, now);
                Ok(())
            }
            Err(error) => Err(error.code().into()),
        };
        let Err(refusal) = result else { return Ok(()) };
        if let Some(outbox) = self.conns.get(conn) {
            self.notices.refused(&outbox.device, refusal);
            self.conns.change(conn, |outbox| outbox.say(ToDevice::Refusal(refusal)));
            self.awake.insert(conn);
            self.actions.push_back(Action::Disconnect(conn));
        }
        Err(refusal.code)
    }

    fn handle_message(
        &mut self,
        conn: ConnId,
        mut message: ToAggregator,
        tail: &[u8],
        now: Instant,
    ) -> Result<(), Refusal> {
        let outbox = self.conns.get(conn).ok_or(Code::UnknownDevice)?;
        let device = outbox.device.clone();
        if let ToAggregator::Hello(hello) = message {
            return self.handle_hello(conn, &device, &hello, wire::tail(tail), now);
        }
        if !outbox.joined {
            return Err(Code::Unexpected.into());
        }
        message.read_tail(tail, outbox.version());
        self.note_heard(&device, now);
        match message {
            ToAggregator::PlanRequest { node, step } => self.answer_plan(&device, node, step),
            ToAggregator::Ready => {
                self.forget_offer(&device, now);
                self.answer_ready(&device);
            }
            ToAggregator::Fetch(fetch) => {
                // The device resumes on a new connection, perhaps after its round has ended.
                if !self.conns.get(conn).is_some_and(|outbox| outbox.offers(fetch.transfer)) {
                    self.answer_ready(&device);
                }
                self.conns.change(conn, |outbox| outbox.handle_fetch(fetch, now));
                self.awake.insert(conn);
            }
            ToAggregator::Ack(ack) => {
                self.conns.change(conn, |outbox| outbox.handle_ack(ack, now));
                self.awake.insert(conn);
            }
            ToAggregator::Offer(offer) => self.handle_offer(&device, offer, now),
            ToAggregator::Refusal(refusal) => {
                self.notices.declined(&device, refusal);
                self.resign(&device, refusal.code, now);
            }
            ToAggregator::PullOnnx => self.handle_pull(conn, &device),
            ToAggregator::Goodbye => {
                if self.fleet.leave(&device, conn) {
                    self.note_goodbye(&device, now);
                }
            }
            ToAggregator::Progress(_) | ToAggregator::Hello(_) => {}
        }
        Ok(())
    }

    fn handle_hello(
        &mut self,
        conn: ConnId,
        device: &DeviceId,
        hello: &Hello,
        versions: Option<Versions>,
        now: Instant,
    ) -> Result<(), Refusal> {
        let version = self.agree(conn, versions)?;
        if hello.device != *device {
            return Err(Code::WrongIdentity.into());
        }
        let allowed = self.conns.get(conn).map_or(TierSet::ALL, |outbox| outbox.allowed);
        let before = self.fleet.get(device).and_then(|device| device.conn);
        let admitted = self.fleet.admit(hello, version, conn, &self.model, self.settings.needs, allowed)?;
        self.note_heard(device, now);
        if let Some(earlier) = before.filter(|before| *before != conn) {
            self.actions.push_back(Action::Displace(earlier));
        }
        if let Some(changed) = admitted {
            self.mean_quorum.take();
            self.actions.extend(self.registrations.note(changed).map(Action::Register));
        }
        self.conns.change(conn, |outbox| outbox.joined = true);
        if let Some(tier) = self.tier(device) {
            self.resign_other_tier(device, tier, now);
            let plan = self.plan(device, tier).info;
            self.say(device, ToDevice::Welcome(Welcome { run: self.run, tier, plan }));
        }
        Ok(())
    }

    /// Negotiates the protocol version of a connection.
    fn agree(&mut self, conn: ConnId, versions: Option<Versions>) -> Result<u8, Refusal> {
        let theirs = versions.unwrap_or(Versions::FOUR);
        let Some(version) = Versions::OURS.agree(theirs) else {
            let (need, have) = (Versions::OURS.oldest.into(), theirs.newest.into());
            return Err(Refusal { code: Code::WrongVersion, need, have });
        };
        self.conns.change(conn, |outbox| outbox.speak(version, versions.is_some()));
        Ok(version)
    }

    fn answer_plan(&mut self, device: &DeviceId, node: u16, step: u16) {
        let Some(tier) = self.tier(device) else { return };
        let plan = self.plan(device, tier);
        let nodes = plan.nodes.iter().skip(usize::from(node)).take(PLAN_PART);
        let steps = plan.schedule.iter().skip(usize::from(step)).take(PLAN_STEPS);
        let (nodes, steps) = (nodes.copied().collect(), steps.copied().collect());
        let part = PlanPart { digest: plan.info.digest, node, step, nodes, steps };
        self.say(device, ToDevice::PlanPart(part));
    }

    /// A device cannot do what it was asked to.
    fn resign(&mut self, device: &DeviceId, code: Code, now: Instant) {
        let state = self.open_exchange().and_then(|exchange| exchange.roster.state(device));
        if matches!(state, Some(AnswerState::Assigned)) {
            self.refuse_open(device, code, now);
        }
    }

    /// A device that comes back with other hardware cannot answer for the tier it was asked for, so it is not waited for.
    fn resign_other_tier(&mut self, device: &DeviceId, tier: Tier, now: Instant) {
        let asked = self.open_exchange().and_then(|exchange| exchange.roster.get(device));
        if asked.is_some_and(|asked| asked.tier != tier) {
            self.refuse_open(device, Code::NotReady, now);
        }
    }
}
