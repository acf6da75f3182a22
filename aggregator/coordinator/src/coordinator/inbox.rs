//! What devices say, and what follows from it.

use common::{
    Code, DeviceId, Duration, Instant, Tier, TierSet, Versions,
    message::{
        Assignment, Fetch, Hello, Offer, PLAN_PART, PLAN_STEPS, PlanPart, Receipt, Refusal, Ticket,
        ToAggregator, ToDevice, Welcome,
    },
    transfer::{Arrival, LinkLimits},
    wire::{self, Frame, WireError},
};

use super::{Action, Coordinator, GUIDE_TRANSFER, Phase, StoredUpdate};
use crate::{
    announcement::{codec, upload},
    exchange::{Purpose, Seat, Upload},
    fleet::ConnId,
    patience::idle,
};

impl Coordinator {
    /// A frame has arrived. Whoever sends what can not be understood is told so and dropped.
    pub fn handle_frame(&mut self, conn: ConnId, bytes: &[u8], now: Instant) -> Result<(), Code> {
        self.handle_decoded(conn, Frame::decode(bytes), now)
    }

    /// The same for whoever has looked at the frame already: that takes longer than all else, and many can look at once.
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
            // A chunk moves no phase: what it completes must become durable first.
            Ok(Frame::Chunk { transfer, offset, data }) => {
                self.handle_chunk(conn, transfer, offset, data, now);
                Ok(())
            }
            Err(error) => Err(error.code().into()),
        };
        let Err(refusal) = result else { return Ok(()) };
        if let Some(outbox) = self.conns.get_mut(&conn) {
            self.notices.refused(&outbox.device, refusal);
            outbox.say(ToDevice::Refusal(refusal));
            self.awake.insert(conn);
            self.actions.push_back(Action::Disconnect(conn));
        }
        Err(refusal.code)
    }

    fn handle_message(
        &mut self,
        conn: ConnId,
        message: ToAggregator,
        tail: &[u8],
        now: Instant,
    ) -> Result<(), Refusal> {
        let outbox = self.conns.get(&conn).ok_or(Code::UnknownDevice)?;
        let device = outbox.device.clone();
        if let ToAggregator::Hello(hello) = message {
            return self.handle_hello(conn, &device, &hello, wire::tail(tail), now);
        }
        if !outbox.joined {
            return Err(Code::Unexpected.into());
        }
        self.hear(&device, now);
        match message {
            ToAggregator::PlanRequest { node, step } => self.answer_plan(&device, node, step),
            ToAggregator::Ready => {
                self.forget_offer(&device, now);
                self.answer_ready(&device);
            }
            ToAggregator::Fetch(fetch) => {
                // A device that resumes on a new connection, perhaps after its round has ended.
                if !self.conns.get(&conn).is_some_and(|outbox| outbox.offers(fetch.transfer)) {
                    self.answer_ready(&device);
                }
                if let Some(outbox) = self.conns.get_mut(&conn) {
                    outbox.handle_fetch(fetch, now);
                    self.awake.insert(conn);
                }
            }
            ToAggregator::Ack(ack) => {
                if let Some(outbox) = self.conns.get_mut(&conn) {
                    outbox.handle_ack(ack, now);
                    self.awake.insert(conn);
                }
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
        self.agree(conn, versions)?;
        if hello.device != *device {
            return Err(Code::WrongIdentity.into());
        }
        let allowed = self.conns.get(&conn).map_or(TierSet::ALL, |outbox| outbox.allowed);
        let before = self.fleet.member(device).and_then(|member| member.conn);
        let admitted = self.fleet.admit(hello, conn, &self.model.plans, self.settings.needs, allowed)?;
        self.hear(device, now);
        if let Some(earlier) = before.filter(|before| *before != conn) {
            self.actions.push_back(Action::Displace(earlier));
        }
        if let Some(changed) = admitted {
            self.actions.extend(self.registry.note(changed).map(Action::Register));
        }
        if let Some(outbox) = self.conns.get_mut(&conn) {
            outbox.joined = true;
        }
        if let Some(member) = self.fleet.member(device) {
            let tier = member.record.tier;
            self.resign_other_tier(device, tier, now);
            if let Some(plan) = self.model.plans.get(tier.index()) {
                let welcome = Welcome { run: self.run, tier, plan: plan.info };
                self.say(device, ToDevice::Welcome(welcome));
            }
        }
        Ok(())
    }

    /// Settles which version is spoken on a connection.
    fn agree(&mut self, conn: ConnId, versions: Option<Versions>) -> Result<(), Refusal> {
        let theirs = versions.unwrap_or(Versions::FOUR);
        let Some(version) = Versions::OURS.agree(theirs) else {
            let (need, have) = (Versions::OURS.oldest.into(), theirs.newest.into());
            return Err(Refusal { code: Code::WrongVersion, need, have });
        };
        if let Some(outbox) = self.conns.get_mut(&conn) {
            outbox.speak(version, versions.is_some());
        }
        Ok(())
    }

    fn answer_plan(&mut self, device: &DeviceId, node: u16, step: u16) {
        let Some(member) = self.fleet.member(device) else { return };
        let Some(plan) = self.model.plans.get(member.record.tier.index()) else { return };
        let nodes = plan.nodes.iter().skip(usize::from(node)).take(PLAN_PART);
        let steps = plan.schedule.iter().skip(usize::from(step)).take(PLAN_STEPS);
        let (nodes, steps) = (nodes.copied().collect(), steps.copied().collect());
        let part = PlanPart { digest: plan.info.digest, node, step, nodes, steps };
        self.say(device, ToDevice::PlanPart(part));
    }

    /// What a device that is free should do now.
    pub(super) fn answer_ready(&mut self, device: &DeviceId) {
        let message = match &self.phase {
            Phase::Finished { round } => ToDevice::Finished { round: *round },
            // A device whose tier has changed since the round was opened waits for the next one.
            Phase::Collecting(round) => match round.seats.get(device) {
                Some((tier, Seat::Assigned)) if self.tier(device) == Some(*tier) => {
                    match self.assignment(device) {
                        Some(assignment) => ToDevice::Assignment(assignment),
                        None => return,
                    }
                }
                _ => ToDevice::Wait(self.idle(device)),
            },
            _ => ToDevice::Wait(self.idle(device)),
        };
        self.say(device, message);
    }

    /// How long a device without work waits before it asks again.
    fn idle(&self, device: &DeviceId) -> Duration {
        // After a restart most of them are still on their way.
        let fleet = self.conns.len().max(self.fleet.known());
        idle(device, u64::from(self.committed), fleet, self.settings.arrivals_per_s)
    }

    /// A device that is free has nothing more to upload: it was restarted, and is asked again instead
    /// of being waited for until the deadline.
    fn forget_offer(&mut self, device: &DeviceId, now: Instant) {
        let Phase::Collecting(round) = &mut self.phase else { return };
        round.parked.forget(device);
        if matches!(round.seats.get(device), Some((_, Seat::Queued(_) | Seat::Uploading(_)))) {
            round.seats.set(device, Seat::Assigned);
            self.start_uploads(now);
        }
    }

    fn tier(&self, device: &DeviceId) -> Option<Tier> {
        self.fleet.member(device).map(|member| member.record.tier)
    }

    /// How the link to a device wants to be used.
    fn limits(&self, device: &DeviceId) -> LinkLimits {
        let limits = self.settings.limits;
        self.fleet.member(device).map_or(limits, |member| limits.for_peer(member.max_chunk))
    }

    fn assignment(&mut self, device: &DeviceId) -> Option<Assignment> {
        let round = self.round()?;
        let (number, exchange, ticket) = (round.number, round.exchange, self.ticket(round));
        let task = round.tasks.get(device)?.clone();
        let member = self.fleet.member(device)?;
        let tier = member.record.tier.index();
        let slice = self.published.get(tier)?.clone();
        let guide = round.guide.get(tier).cloned();
        let limits = self.limits(device);
        let outbox = self.conns.get_mut(&member.conn?)?;
        let codec = self.settings.down.of(member.record.tier)?;
        let model = outbox.publish(number, slice, codec.align(), limits);
        let guide = guide.map(|guide| {
            // Unlike the model, the guide changes from exchange to exchange.
            let transfer = GUIDE_TRANSFER | (number << 3 | u32::from(exchange) & 7) & (GUIDE_TRANSFER - 1);
            outbox.publish(transfer, guide, codec.align(), limits)
        });
        Some(Assignment { ticket, task, model, codec, guide })
    }

    fn handle_offer(&mut self, device: &DeviceId, offer: Offer, now: Instant) {
        let (last, devices) = &self.counted;
        if offer.ticket == *last && devices.contains(device) {
            return self.receipt(device, offer.ticket, None);
        }
        let Phase::Collecting(round) = &self.phase else {
            return self.receipt(device, offer.ticket, Some(Code::RoundClosed));
        };
        let (ticket, purpose) = (self.ticket(round), round.purpose);
        match round.seats.get(device) {
            Some((_, Seat::Delivered(_))) if offer.ticket == ticket => {
                return self.receipt(device, ticket, None);
            }
            Some((_, Seat::Refused(code))) if offer.ticket == ticket => {
                return self.receipt(device, ticket, Some(*code));
            }
            Some((_, Seat::Storing(_) | Seat::Written(_))) if offer.ticket == ticket => return,
            Some((_, Seat::Uploading(upload))) if upload.offer == offer => {
                let fetch = Fetch { transfer: offer.update.transfer, offset: upload.incoming.received() };
                return self.say(device, ToDevice::Fetch(fetch));
            }
            _ => {}
        }
        if let Err(code) = self.review(device, &offer) {
            // An answer to another round says nothing about this one.
            if offer.ticket == ticket {
                self.set_seat(device, Seat::Refused(code));
                self.note_answer(device, false, now);
            }
            return self.receipt(device, offer.ticket, Some(code));
        }
        match purpose {
            Purpose::Evaluate => {
                self.set_seat(device, Seat::Delivered(offer.scalars));
                self.note_answer(device, true, now);
                self.receipt(device, ticket, None);
            }
            // Numbers alone must be durable, too.
            Purpose::Train if offer.update.bytes == 0 => self.store(device, offer, vec![], now),
            Purpose::Train => {
                self.set_seat(device, Seat::Queued(Box::new(offer)));
                self.start_uploads(now);
            }
        }
    }

    /// Hands a complete update on.
    fn store(&mut self, device: &DeviceId, offer: Offer, payload: Vec<u8>, now: Instant) {
        let Phase::Collecting(round) = &mut self.phase else { return };
        let (kind, lr) = (round.kind, round.lr);
        let vectors = round.tasks.get(device).map_or(0, |task| upload(task, 0).0);
        let codec = round.tasks.get(device).map(codec).unwrap_or_default();
        let Some(&(tier, _)) = round.seats.get(device) else { return };
        round.seats.set(device, Seat::Storing(offer.scalars.clone()));
        let last = round.seats.all_answered();
        self.actions.push_back(Action::Store(StoredUpdate {
            ticket: offer.ticket,
            device: device.clone(),
            tier,
            kind,
            vectors,
            lr,
            codec,
            scalars: offer.scalars,
            payload,
            last,
        }));
        self.note_answer(device, true, now);
    }

    fn review(&self, device: &DeviceId, offer: &Offer) -> Result<(), Code> {
        let round = self.round().ok_or(Code::RoundClosed)?;
        let (tier, _) = round.seats.get(device).ok_or(Code::NotSelected)?;
        let slice = self.published.get(tier.index()).ok_or(Code::NotSelected)?;
        let parameters = self.model.regions.slice_len(*tier);
        let tested = self.fleet.member(device).map_or(0, |member| member.record.data.test_samples);
        let targets = self.model.plans.get(tier.index()).map_or(0, |plan| plan.info.targets());
        let targets = u64::from(tested) * u64::from(targets);
        round.review(device, offer, self.ticket(round), slice.check(), parameters, targets)
    }

    /// Lets waiting updates in, as many as memory allows.
    pub(super) fn start_uploads(&mut self, now: Instant) {
        let max = self.settings.max_uploads.max(1);
        while let Phase::Collecting(round) = &mut self.phase {
            let Some(device) = round.seats.queue.first().cloned() else { return };
            if round.seats.held() >= max
                && !round.interrupt_upload(now, max, |device| self.fleet.is_connected(device))
            {
                return;
            }
            let Some(Seat::Queued(offer)) = round.seats.set(&device, Seat::Assigned) else { return };
            let mut upload = round.parked.take(&device, &offer, now).unwrap_or_else(|| {
                let buffer = self.spare.pop().unwrap_or_default();
                Upload::new(*offer, buffer, now)
            });
            let fetch = upload.incoming.fetch();
            round.seats.set(&device, Seat::Uploading(Box::new(upload)));
            self.say(&device, ToDevice::Fetch(fetch));
        }
    }

    fn handle_chunk(&mut self, conn: ConnId, transfer: u32, offset: u32, data: &[u8], now: Instant) {
        let Some(outbox) = self.conns.get(&conn) else { return };
        let device = outbox.device.clone();
        self.hear(&device, now);
        let limits = self.limits(&device);
        let Phase::Collecting(round) = &mut self.phase else { return };
        let Some(upload) = round.seats.upload(&device) else { return };
        let answer = match upload.incoming.handle_chunk(transfer, offset, data.len()) {
            Arrival::Fresh => {
                upload.take(data, now);
                upload.incoming.poll_ack(limits, now).map(ToDevice::Ack)
            }
            Arrival::Known => Some(ToDevice::Ack(upload.incoming.ack())),
            Arrival::Gap => upload.incoming.refetch().map(ToDevice::Fetch),
            Arrival::Foreign => None,
        };
        if upload.incoming.is_done() {
            let (offer, payload) = (upload.offer.clone(), std::mem::take(&mut upload.bytes));
            self.store(&device, offer, payload, now);
            self.start_uploads(now);
        }
        if let Some(answer) = answer {
            self.say(&device, answer);
        }
    }

    /// A device can not do what it was asked to.
    fn resign(&mut self, device: &DeviceId, code: Code, now: Instant) {
        let seat = self.round().and_then(|round| round.seats.get(device));
        if matches!(seat, Some((_, Seat::Assigned))) {
            self.refuse_open_seat(device, code, now);
        }
    }

    /// A device that comes back with other hardware cannot fill the seat it had, so it is not waited for.
    fn resign_other_tier(&mut self, device: &DeviceId, tier: Tier, now: Instant) {
        let seat = self.round().and_then(|round| round.seats.get(device));
        if seat.is_some_and(|(seat_tier, _)| *seat_tier != tier) {
            self.refuse_open_seat(device, Code::NotReady, now);
        }
    }

    pub(super) fn set_seat(&mut self, device: &DeviceId, new: Seat) {
        if let Phase::Collecting(round) = &mut self.phase {
            round.seats.set(device, new);
        }
    }

    pub(super) fn receipt(&mut self, device: &DeviceId, ticket: Ticket, refused: Option<Code>) {
        self.say(device, ToDevice::Receipt(Receipt { ticket, refused }));
    }
}
