//! Who is still waited for: keeps signs of life and applies the rules of [`crate::patience`].

use common::{Code, DeviceId, Duration, Instant, Tier};

use super::{Coordinator, Phase};
use crate::{
    exchange::{OpenExchange, Seat},
    patience::{Answer, LOOK, Whereabouts, comeback},
};

impl Coordinator {
    /// Devices give signs of life on this link, so a device that is silent is not waited for long. Without this call, as in a
    /// simulation whose devices say nothing while they compute, silence means nothing.
    pub fn heed_silence(&mut self, now: Instant) {
        self.heeds_silence = true;
        self.look_for_silence(now);
    }

    /// A device is no member any more: it is not waited for, and not counted.
    pub fn handle_revoked(&mut self, device: &DeviceId, now: Instant) {
        if !self.fleet.remove(device) {
            return;
        }
        self.refuse_open_seat(device, Code::UnknownDevice, now);
        self.advance(now);
    }

    /// A sign of life.
    pub(super) fn hear(&mut self, device: &DeviceId, now: Instant) {
        if let Some(member) = self.fleet.member_mut(device) {
            member.pulse.beat(now);
        }
        if self.round().is_none_or(|round| round.seats.absent_since(device).is_none()) {
            return;
        }
        let limit = self.limit_of(device, self.usual_time(), now);
        if let Phase::Collecting(round) = &mut self.phase
            && limit.is_none_or(|limit| limit > now)
        {
            round.seats.expect(device);
            round.look_by(limit);
        }
    }

    /// A device has lost its connection, which is not the end of it.
    pub(super) fn note_lost_link(&mut self, device: &DeviceId, now: Instant) {
        let waited_for = |round: &OpenExchange| round.seats.absent_since(device).is_none();
        if let Some(member) = self.fleet.member_mut(device)
            && member.conn.is_none()
            && let Phase::Collecting(round) = &mut self.phase
            && waited_for(round)
        {
            member.pulse.lose_link(now);
            let limit = self.limit_of(device, self.usual_time(), now);
            if let Phase::Collecting(round) = &mut self.phase {
                round.look_by(limit);
            }
        }
    }

    /// A device says that it leaves. Where every device is wanted, it is waited for all the same.
    pub(super) fn note_goodbye(&mut self, device: &DeviceId, now: Instant) {
        let wanted = self.is_indispensable(device);
        if let Phase::Collecting(round) = &mut self.phase
            && !wanted
        {
            round.seats.let_go(device, now);
        }
    }

    /// Whether the operator wants every device of its tier, and no round has yet been given up without it.
    fn is_indispensable(&self, device: &DeviceId) -> bool {
        let seat = self.round().and_then(|round| round.seats.get(device));
        let wanted = seat.is_some_and(|(tier, _)| self.settings.patience.wants_all(*tier));
        wanted && self.fleet.member(device).is_some_and(|member| member.past.is_regular())
    }

    /// The devices of a round that has just been opened are asked.
    pub(super) fn begin_watch(&mut self) {
        let Phase::Collecting(round) = &mut self.phase else { return };
        let (opened, mut strangers) = (round.opened, vec![]);
        for (device, ..) in round.seats.iter().filter(|(.., seat)| seat.is_open()) {
            match self.fleet.member_mut(device) {
                Some(member) => member.pulse.ask(opened),
                // It was revoked since the round began.
                None => strangers.push(device.clone()),
            }
        }
        strangers.iter().for_each(|device| self.refuse_open_seat(device, Code::UnknownDevice, opened));
        self.look_for_silence(opened);
    }

    /// Lets those go who are waited for no longer.
    pub(super) fn look_for_silence(&mut self, now: Instant) {
        let Some(round) = self.round() else { return };
        let (others, mut gone, mut next) = (self.usual_time(), vec![], None::<Instant>);
        for (device, _) in round.seats.expected() {
            match self.limit_of(device, others, now) {
                Some(limit) if limit <= now => gone.push(device.clone()),
                Some(limit) => next = Some(next.map_or(limit, |next| next.min(limit))),
                None => {}
            }
        }
        let Phase::Collecting(round) = &mut self.phase else { return };
        gone.iter().for_each(|device| round.seats.let_go(device, now));
        round.next_look = next.map(|next| next.max(now + LOOK));
    }

    /// Until when a device that has not answered is waited for, as far as it depends on the device (rules 2 and 3). It moves on
    /// with every sign of life. `others`: what [`Coordinator::usual_time`] says.
    pub(super) fn limit_of(
        &self,
        device: &DeviceId,
        others: Option<Duration>,
        now: Instant,
    ) -> Option<Instant> {
        if self.is_indispensable(device) {
            return None;
        }
        let (round, member) = (self.round()?, self.fleet.member(device)?);
        let past = &member.past;
        let place = match (member.conn, member.returned) {
            (Some(_), _) => Whereabouts::Connected,
            (None, true) => Whereabouts::Gone,
            (None, false) => Whereabouts::Away(comeback(self.fleet.known(), self.settings.arrivals_per_s)),
        };
        let silence = || past.silence(round.kind, place, others, now);
        let silent = self.heeds_silence.then(|| member.pulse.since() + silence());
        let longest = past.longest(round.kind, now).map(|longest| round.opened + longest);
        silent.into_iter().chain(longest).min()
    }

    /// How long exchanges like the open one usually take until the last answer.
    pub(super) fn usual_time(&self) -> Option<Duration> {
        self.times.usual(self.round()?.kind, |time| time)
    }

    /// A device has done what it was asked to; `useful`: with a result, so that it is known how long that takes.
    pub(super) fn note_answer(&mut self, device: &DeviceId, useful: bool, now: Instant) {
        let Phase::Collecting(round) = &mut self.phase else { return };
        let Some(member) = self.fleet.member_mut(device) else { return };
        let (took, quiet) = member.pulse.answer(now);
        if useful {
            member.past.note_answer(round.kind, Answer { took, quiet });
        }
        round.note_answer(device, now, quiet);
    }

    /// An exchange has closed: remembers how long it took, and who has held it up.
    pub(super) fn end_watch(&mut self, round: &OpenExchange, now: Instant) {
        // If there was no answer, all were late alike.
        let Some(last) = &round.last else { return };
        self.times.push(round.kind, last.at - round.opened);
        if let Some(member) = self.fleet.member_mut(&last.device) {
            member.past.note_hold_up(round.kind, last.held_up, last.quiet, now);
        }
        for (device, _, _) in round.seats.iter().filter(|(.., seat)| seat.is_open()) {
            let until = round.seats.absent_since(device).unwrap_or(now);
            if let Some(member) = self.fleet.member_mut(device) {
                member.past.note_vain(until - last.at, now);
            }
        }
    }

    /// No device of the round is there any more, and another one is.
    pub(super) fn is_deserted(&self, round: &OpenExchange) -> bool {
        round.is_deserted() && self.fleet.has_others(|device| round.seats.get(device).is_some())
    }

    /// A device that has not answered is not going to.
    pub(super) fn refuse_open_seat(&mut self, device: &DeviceId, code: Code, now: Instant) {
        let seat = self.round().and_then(|round| round.seats.get(device));
        if seat.is_some_and(|(_, seat)| seat.is_open()) {
            self.set_seat(device, Seat::Refused(code));
            self.note_answer(device, false, now);
        }
    }

    /// The latest end of the wait for a tier, by the clock alone (rule 1).
    pub(super) fn end_of(&self, round: &OpenExchange, tier: Tier) -> Option<Instant> {
        let patience = &self.settings.patience;
        let tally = round.seats.tallies().get(tier.index())?;
        let deadline = round.opened + patience.deadline(tier);
        let given_up = patience.give_up().map(|limit| round.opened + limit);
        if patience.has_quorum(tier, tally) { Some(deadline) } else { given_up }
    }
}
