//! Which devices are still waited for: keeps signs of life and applies the rules of [`crate::pacing`].

use common::{Code, DeviceId, Duration, Instant, Tier};

use super::{Coordinator, Phase};
use crate::{
    exchange::{AnswerState, OpenExchange},
    pacing::{LinkState, SILENCE_CHECK_INTERVAL, return_time},
};

impl Coordinator {
    /// Silent devices are not waited for long from now on. Devices must give signs of life while they work, which those of a
    /// simulation in virtual time do not.
    pub fn detect_silence(&mut self, now: Instant) {
        self.detects_silence = true;
        self.check_silence(now);
    }

    /// A device was revoked: it is not waited for, and not counted.
    pub fn handle_revoked(&mut self, device: &DeviceId, now: Instant) {
        if !self.fleet.remove(device) {
            return;
        }
        self.mean_quorum.take();
        self.refuse_open(device, Code::UnknownDevice, now);
        self.advance(now);
    }

    /// A sign of life.
    pub(super) fn note_heard(&mut self, device: &DeviceId, now: Instant) {
        if let Some(device) = self.fleet.get_mut(device) {
            device.liveness.note_heard(now);
        }
        if self.open_exchange().is_none_or(|exchange| exchange.roster.absent_since(device).is_none()) {
            return;
        }
        let limit = self.limit_of(device, self.usual_time(), now);
        if let Phase::Collecting(exchange) = &mut self.phase
            && limit.is_none_or(|limit| limit > now)
        {
            exchange.roster.set_expected(device);
            exchange.check_silence_by(limit);
        }
    }

    /// A device has lost its connection; it may come back.
    pub(super) fn note_lost_link(&mut self, device: &DeviceId, now: Instant) {
        let waited_for = |exchange: &OpenExchange| exchange.roster.absent_since(device).is_none();
        if let Some(lost) = self.fleet.get_mut(device)
            && lost.conn.is_none()
            && let Phase::Collecting(exchange) = &mut self.phase
            && waited_for(exchange)
        {
            lost.liveness.note_lost_link(now);
            let limit = self.limit_of(device, self.usual_time(), now);
            if let Phase::Collecting(exchange) = &mut self.phase {
                exchange.check_silence_by(limit);
            }
        }
    }

    /// A device leaves. If its tier needs every device, it is still waited for.
    pub(super) fn note_goodbye(&mut self, device: &DeviceId, now: Instant) {
        let required = self.is_required(device);
        if let Phase::Collecting(exchange) = &mut self.phase
            && !required
        {
            exchange.roster.set_absent(device, now);
        }
    }

    /// Whether the operator wants every device of its tier, and no exchange has been given up without it yet.
    fn is_required(&self, device: &DeviceId) -> bool {
        let asked = self.open_exchange().and_then(|exchange| exchange.roster.get(device));
        asked.is_some_and(|asked| self.settings.deadlines.needs_every_device(asked.tier))
            && self.fleet.get(device).is_some_and(|device| device.timing.is_reliable())
    }

    /// The devices of an exchange that has just been opened are asked.
    pub(super) fn begin_watch(&mut self) {
        let Phase::Collecting(exchange) = &mut self.phase else { return };
        let (opened, mut revoked) = (exchange.opened, vec![]);
        for (device, _) in exchange.roster.iter().filter(|(_, entry)| entry.state.is_open()) {
            match self.fleet.get_mut(device) {
                Some(device) => device.liveness.note_asked(opened),
                // It was revoked since the round began.
                None => revoked.push(device.clone()),
            }
        }
        revoked.iter().for_each(|device| self.refuse_open(device, Code::UnknownDevice, opened));
        self.check_silence(opened);
    }

    /// Stops waiting for devices whose limit has passed.
    pub(super) fn check_silence(&mut self, now: Instant) {
        let Some(exchange) = self.open_exchange() else { return };
        let (others, mut absent, mut next) = (self.usual_time(), vec![], None::<Instant>);
        for (device, _) in exchange.roster.expected() {
            match self.limit_of(device, others, now) {
                Some(limit) if limit <= now => absent.push(device.clone()),
                Some(limit) => next = Some(next.map_or(limit, |next| next.min(limit))),
                None => {}
            }
        }
        let Phase::Collecting(exchange) = &mut self.phase else { return };
        absent.iter().for_each(|device| exchange.roster.set_absent(device, now));
        exchange.next_silence_check = next.map(|next| next.max(now + SILENCE_CHECK_INTERVAL));
    }

    /// Until when a device that has not answered is waited for, by its own timing (rules 2 and 3). Every sign of life moves
    /// the limit. `others`: the result of [`Coordinator::usual_time`].
    pub(super) fn limit_of(
        &self,
        device: &DeviceId,
        others: Option<Duration>,
        now: Instant,
    ) -> Option<Instant> {
        if self.is_required(device) {
            return None;
        }
        let (exchange, device) = (self.open_exchange()?, self.fleet.get(device)?);
        let timing = &device.timing;
        let link = match (device.conn, device.returned) {
            (Some(_), _) => LinkState::Connected,
            (None, true) => LinkState::Lost,
            (None, false) => {
                LinkState::NotBackYet(return_time(self.fleet.len(), self.settings.arrivals_per_s))
            }
        };
        let allowed = || timing.allowed_silence(exchange.kind, link, others, now);
        let silent = self.detects_silence.then(|| device.liveness.silent_since() + allowed());
        let longest = timing.allowed_time(exchange.kind, now).map(|longest| exchange.opened + longest);
        silent.into_iter().chain(longest).min()
    }

    /// How long exchanges like the open one usually take until the last answer.
    pub(super) fn usual_time(&self) -> Option<Duration> {
        self.answer_times.median(self.open_exchange()?.kind, |time| time)
    }

    /// A device has answered; `useful`: with a result, so that its timing counts.
    pub(super) fn note_answer(&mut self, device: &DeviceId, useful: bool, now: Instant) {
        let Phase::Collecting(exchange) = &mut self.phase else { return };
        let Some(answered) = self.fleet.get_mut(device) else { return };
        let timing = answered.liveness.note_answered(now);
        if useful {
            answered.timing.note_answer(exchange.kind, timing);
        }
        exchange.note_answer(device, now, timing.silence);
    }

    /// An exchange has closed: notes how long it took, and which devices have delayed it.
    pub(super) fn end_watch(&mut self, exchange: &OpenExchange, now: Instant) {
        // Without any answer, no device has delayed another one.
        let Some(last) = &exchange.last_answer else { return };
        self.answer_times.push(exchange.kind, last.at - exchange.opened);
        if let Some(device) = self.fleet.get_mut(&last.device) {
            device.timing.note_delay(exchange.kind, last.delay, last.silence, now);
        }
        for (device, _) in exchange.roster.iter().filter(|(_, entry)| entry.state.is_open()) {
            let until = exchange.roster.absent_since(device).unwrap_or(now);
            if let Some(device) = self.fleet.get_mut(device) {
                device.timing.note_missed(until - last.at, now);
            }
        }
    }

    /// All devices of the exchange are absent, and another one is connected.
    pub(super) fn is_deserted(&self, exchange: &OpenExchange) -> bool {
        let is_asked = |device: &DeviceId| exchange.roster.get(device).is_some();
        exchange.is_deserted() && self.fleet.connected().any(|device| !is_asked(&device.record.device))
    }

    /// A device that has not answered is not going to.
    pub(super) fn refuse_open(&mut self, device: &DeviceId, code: Code, now: Instant) {
        let state = self.open_exchange().and_then(|exchange| exchange.roster.state(device));
        if state.is_some_and(AnswerState::is_open) {
            self.set_state(device, AnswerState::Refused(code));
            self.note_answer(device, false, now);
        }
    }

    /// The latest end of the wait for a tier, by the clock alone (rule 1).
    pub(super) fn end_of(&self, exchange: &OpenExchange, tier: Tier) -> Option<Instant> {
        let deadlines = &self.settings.deadlines;
        let counts = exchange.roster.tier_counts().get(tier.index())?;
        let deadline = exchange.opened + deadlines.deadline(tier);
        let given_up = deadlines.give_up().map(|limit| exchange.opened + limit);
        if deadlines.has_quorum(tier, counts) { Some(deadline) } else { given_up }
    }
}
