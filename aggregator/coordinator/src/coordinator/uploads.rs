//! Answers of devices: offers, uploads and receipts.

use common::{
    Code, DeviceId, Instant, TransferId,
    message::{Fetch, Offer, Receipt, Ticket, ToDevice},
    transfer::Arrival,
};

use super::{Action, Coordinator, Phase, StoredUpdate};
use crate::{
    announcement::{codec, vectors},
    exchange::{AnswerState, ExpectedOffer, Purpose, Upload},
    fleet::ConnId,
};

impl Coordinator {
    /// An update is durable, or was refused after all.
    pub fn handle_stored(
        &mut self,
        device: &DeviceId,
        ticket: Ticket,
        result: Result<(), Code>,
        now: Instant,
    ) {
        if let Phase::Collecting(exchange) = &mut self.phase
            && ticket.exchange_id() == exchange.id
            && let Some(state) = exchange.roster.state(device)
        {
            if let AnswerState::Storing(scalars) | AnswerState::Written(scalars) = state {
                let state = match result {
                    Ok(()) => AnswerState::Delivered(scalars.clone()),
                    Err(code) => AnswerState::Refused(code),
                };
                exchange.roster.set(device, state);
                exchange.note_delivered(device, now, &self.settings.deadlines);
            }
            self.receipt(device, ticket, result.err());
            self.start_uploads(now);
        }
        self.advance(now);
    }

    /// An update is written to the disk and no longer in memory, but not durable yet. Takes back its buffer and lets the
    /// next update in.
    pub fn handle_written(&mut self, device: &DeviceId, ticket: Ticket, mut buffer: Vec<u8>, now: Instant) {
        if self.spare.len() < self.settings.max_uploads {
            buffer.clear();
            self.spare.push(buffer);
        }
        if let Phase::Collecting(exchange) = &mut self.phase
            && ticket.exchange_id() == exchange.id
            && let Some(AnswerState::Storing(scalars)) = exchange.roster.state(device)
        {
            let written = AnswerState::Written(scalars.clone());
            exchange.roster.set(device, written);
            self.start_uploads(now);
        }
    }

    pub(super) fn handle_offer(&mut self, device: &DeviceId, mut offer: Offer, now: Instant) {
        if offer.ticket == self.last_closed.ticket && self.last_closed.delivered.contains(device) {
            return self.receipt(device, offer.ticket, None);
        }
        let Phase::Collecting(exchange) = &self.phase else {
            return self.receipt(device, offer.ticket, Some(Code::RoundClosed));
        };
        let (ticket, purpose) = (self.ticket(exchange), exchange.purpose);
        // A validation loss that was not asked for is ignored.
        if !exchange.roster.get(device).is_some_and(|asked| asked.task.validates()) {
            offer.scalars.validation = None;
        }
        match exchange.roster.state(device) {
            Some(AnswerState::Delivered(_)) if offer.ticket == ticket => {
                return self.receipt(device, ticket, None);
            }
            Some(AnswerState::Refused(code)) if offer.ticket == ticket => {
                return self.receipt(device, ticket, Some(*code));
            }
            Some(AnswerState::Storing(_) | AnswerState::Written(_)) if offer.ticket == ticket => return,
            Some(AnswerState::Uploading(upload)) if upload.offer == offer => {
                let fetch = Fetch { transfer: offer.update.transfer, offset: upload.incoming.received() };
                return self.say(device, ToDevice::Fetch(fetch));
            }
            _ => {}
        }
        if let Err(code) = self.review(device, &offer) {
            // An answer to another exchange says nothing about this one.
            if offer.ticket == ticket {
                self.set_state(device, AnswerState::Refused(code));
                self.note_answer(device, false, now);
            }
            return self.receipt(device, offer.ticket, Some(code));
        }
        match purpose {
            Purpose::Evaluate => {
                self.set_state(device, AnswerState::Delivered(offer.scalars));
                self.note_answer(device, true, now);
                self.receipt(device, ticket, None);
            }
            // Scalars alone must be durable, too.
            Purpose::Train if offer.update.bytes == 0 => self.store(device, offer, vec![], now),
            Purpose::Train => {
                self.set_state(device, AnswerState::Queued(Box::new(offer)));
                self.start_uploads(now);
            }
        }
    }

    fn review(&self, device: &DeviceId, offer: &Offer) -> Result<(), Code> {
        let exchange = self.open_exchange().ok_or(Code::RoundClosed)?;
        let tier = exchange.roster.get(device).ok_or(Code::NotSelected)?.tier;
        let samples = self.fleet.get(device).ok_or(Code::UnknownDevice)?.record.data.test_samples;
        let targets = self.model.plans[tier.index()].info.targets();
        let expected = ExpectedOffer {
            ticket: self.ticket(exchange),
            model_check: self.published[tier.index()].check(),
            parameters: self.model.regions.slice_len(tier),
            test_targets: u64::from(samples) * u64::from(targets),
        };
        exchange.review(device, offer, expected)
    }

    /// Hands a complete update to the driver.
    fn store(&mut self, device: &DeviceId, offer: Offer, payload: Vec<u8>, now: Instant) {
        let Phase::Collecting(exchange) = &mut self.phase else { return };
        let Some(entry) = exchange.roster.get(device) else { return };
        let (tier, vectors, codec) = (entry.tier, vectors(&entry.task), codec(&entry.task));
        exchange.roster.set(device, AnswerState::Storing(offer.scalars.clone()));
        self.actions.push_back(Action::Store(StoredUpdate {
            ticket: offer.ticket,
            device: device.clone(),
            tier,
            kind: exchange.kind,
            vectors,
            lr: exchange.lr,
            codec,
            scalars: offer.scalars,
            payload,
            last: exchange.roster.all_answered(),
        }));
        self.note_answer(device, true, now);
    }

    /// Lets queued updates in, as many as memory allows.
    pub(super) fn start_uploads(&mut self, now: Instant) {
        let max = self.settings.max_uploads.max(1);
        while let Phase::Collecting(exchange) = &mut self.phase {
            let Some(device) = exchange.roster.queue.first().cloned() else { return };
            if exchange.roster.in_memory() >= max
                && !exchange.interrupt_upload(now, max, |device| self.fleet.is_connected(device))
            {
                return;
            }
            let Some(AnswerState::Queued(offer)) = exchange.roster.set(&device, AnswerState::Assigned) else {
                return;
            };
            let mut upload = exchange.interrupted.take(&device, &offer, now).unwrap_or_else(|| {
                let buffer = self.spare.pop().unwrap_or_default();
                Upload::new(*offer, buffer, now)
            });
            let fetch = upload.incoming.fetch();
            exchange.roster.set(&device, AnswerState::Uploading(Box::new(upload)));
            self.say(&device, ToDevice::Fetch(fetch));
        }
    }

    pub(super) fn handle_chunk(
        &mut self,
        conn: ConnId,
        transfer: TransferId,
        offset: u32,
        data: &[u8],
        now: Instant,
    ) {
        let Some(outbox) = self.conns.get(conn) else { return };
        let device = outbox.device.clone();
        self.note_heard(&device, now);
        let limits = self.limits(&device);
        let Phase::Collecting(exchange) = &mut self.phase else { return };
        let Some(upload) = exchange.roster.upload_mut(&device) else { return };
        let answer = match upload.incoming.handle_chunk(transfer, offset, data.len()) {
            Arrival::Fresh => {
                upload.push(data, now);
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

    /// A device that is free has nothing more to upload: it was restarted, and is asked again instead of being waited for
    /// until the deadline.
    pub(super) fn forget_offer(&mut self, device: &DeviceId, now: Instant) {
        let Phase::Collecting(exchange) = &mut self.phase else { return };
        exchange.interrupted.forget(device);
        let state = exchange.roster.state(device);
        if matches!(state, Some(AnswerState::Queued(_) | AnswerState::Uploading(_))) {
            exchange.roster.set(device, AnswerState::Assigned);
            self.start_uploads(now);
        }
    }

    pub(super) fn set_state(&mut self, device: &DeviceId, new: AnswerState) {
        if let Phase::Collecting(exchange) = &mut self.phase {
            exchange.roster.set(device, new);
        }
    }

    fn receipt(&mut self, device: &DeviceId, ticket: Ticket, refused: Option<Code>) {
        self.say(device, ToDevice::Receipt(Receipt { ticket, refused }));
    }
}
