//! What was seen of one device lately, and how long it is waited for because of that.

use common::{Duration, Instant};

use super::{ByKind, DEBT, MARGIN, NEW, NOISE};
use strategies::strategy::Kind;

/// An answer to one exchange.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Time since it was asked.
    pub took: Duration,
    /// The longest silence in that time.
    pub quiet: Duration,
}

/// Where a device is, as far as the gateway can tell.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    Connected,
    /// It has lost its connection.
    Gone,
    /// The gateway was started again, and it is not back yet. It may take so long.
    Away(Duration),
}

/// See [`crate::patience`] for the rules.
#[derive(Clone, Debug, Default)]
pub struct Past {
    answers: ByKind<Answer>,
    /// How often it was waited for in vain since it last answered.
    vain: u32,
    /// Until then it is waited for no longer than usual.
    debt: Instant,
}

impl Past {
    /// Rule 2: the silence that the device is given. `others`: the usual time of such an exchange.
    pub fn silence(
        &self,
        kind: Kind,
        place: Whereabouts,
        others: Option<Duration>,
        now: Instant,
    ) -> Duration {
        let usual = self.answers.usual(kind, |answer| answer.quiet).map(|quiet| quiet.times(2));
        if self.is_in_debt(now) {
            return usual.unwrap_or(Duration::ZERO);
        }
        let given = match (place, usual) {
            (Whereabouts::Away(comeback), _) => comeback,
            (_, Some(usual)) => usual.plus(MARGIN),
            (Whereabouts::Connected, None) => others.map_or(NEW, |others| NEW.max(others.times(2))),
            (Whereabouts::Gone, None) => MARGIN,
        };
        given.times(1 << self.vain.min(16))
    }

    /// Rule 3: how long the device is waited for at all; no limit without a debt.
    pub fn longest(&self, kind: Kind, now: Instant) -> Option<Duration> {
        let usual = || self.answers.usual(kind, |answer| answer.took).map(|took| took.times(2));
        self.is_in_debt(now).then(|| usual().unwrap_or(Duration::ZERO))
    }

    /// Whether its silence is longer than it usually is, which alone says nothing yet.
    pub fn is_unusual(&self, kind: Kind, silent: Duration) -> bool {
        let usual = self.answers.usual(kind, |answer| answer.quiet);
        silent > usual.map_or(Duration::from_millis(NEW.as_millis() / 2), |quiet| quiet.times(2).plus(NOISE))
    }

    pub fn note_answer(&mut self, kind: Kind, answer: Answer) {
        self.answers.push(kind, answer);
        self.vain = 0;
    }

    /// An exchange has closed without it after waiting so long for it alone.
    pub fn note_vain(&mut self, lost: Duration, now: Instant) {
        if lost > Duration::ZERO {
            self.vain = self.vain.saturating_add(1);
            self.charge(lost, now);
        }
    }

    /// An exchange has waited so long for its answer alone. What is usual for it is not charged.
    pub fn note_hold_up(&mut self, kind: Kind, held_up: Duration, quiet: Duration, now: Instant) {
        let usual = self.answers.usual(kind, |answer| answer.quiet).map_or(quiet, |usual| usual.times(2));
        let lost = held_up.min(quiet.minus(usual));
        if lost > NOISE {
            self.charge(lost, now);
        }
    }

    /// It has missed no exchange since it last answered.
    pub fn is_regular(&self) -> bool {
        self.vain == 0
    }

    fn is_in_debt(&self, now: Instant) -> bool {
        now < self.debt
    }

    fn charge(&mut self, lost: Duration, now: Instant) {
        self.debt = self.debt.max(now + lost.times(DEBT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind::Train;
    const HERE: Whereabouts = Whereabouts::Connected;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn regular(took: u64, quiet: u64) -> Past {
        let mut past = Past::default();
        (0..8).for_each(|_| past.note_answer(KIND, Answer { took: ms(took), quiet: ms(quiet) }));
        past
    }

    #[test]
    fn silence_is_measured_by_what_is_usual_for_the_device() {
        let silence = |past: &Past, place, others| past.silence(KIND, place, others, at(0)).as_millis();
        assert_eq!(silence(&regular(25, 10), HERE, None), 2_020);
        // One whose batches take half a minute.
        assert_eq!(silence(&regular(90_000, 30_000), HERE, Some(ms(25))), 62_000);
        let new = Past::default();
        assert_eq!(silence(&new, HERE, Some(ms(25))), 15_000);
        assert_eq!(silence(&new, HERE, Some(ms(60_000))), 120_000);
        assert_eq!(silence(&new, Whereabouts::Gone, Some(ms(60_000))), 2_000);
        assert_eq!(silence(&regular(25, 10), Whereabouts::Away(ms(61_000)), None), 61_000);
        // It is new to this kind of exchange.
        assert_eq!(regular(25, 10).silence(Kind::Alone, HERE, None, at(0)), NEW);
    }

    #[test]
    fn who_is_waited_for_in_vain_pays_and_is_then_given_twice_the_time() {
        let mut past = regular(25, 10);
        past.note_vain(ms(2_000), at(10_000));
        assert_eq!(
            (past.silence(KIND, HERE, None, at(10_000)), past.longest(KIND, at(10_000))),
            (ms(20), Some(ms(50)))
        );
        // Answers do not pay the debt, or it would cost nothing.
        past.note_answer(KIND, Answer { took: ms(25), quiet: ms(10) });
        assert_eq!(past.longest(KIND, at(25_999)), Some(ms(50)));
        assert_eq!(
            (past.longest(KIND, at(26_000)), past.silence(KIND, HERE, None, at(26_000))),
            (None, ms(2_020))
        );

        let mut new = Past::default();
        new.note_vain(ms(15_000), at(15_000));
        assert_eq!(
            (new.silence(KIND, HERE, None, at(134_999)), new.longest(KIND, at(134_999))),
            (ms(0), Some(ms(0)))
        );
        assert_eq!(new.silence(KIND, HERE, None, at(135_000)), ms(30_000));
        new.note_vain(ms(0), at(135_000));
        assert_eq!(new.silence(KIND, HERE, None, at(135_000)), ms(30_000), "it has not held up the others");
    }

    #[test]
    fn a_pause_that_ends_in_time_is_charged_and_slowness_is_not() {
        let mut past = regular(25, 10);
        past.note_hold_up(KIND, ms(1_480), ms(1_500), at(0));
        assert_eq!(past.longest(KIND, at(11_839)), Some(ms(50)));
        assert_eq!(past.longest(KIND, at(11_840)), None);
        let mut slow = regular(20_000, 5_000);
        slow.note_hold_up(KIND, ms(19_000), ms(5_200), at(0));
        assert_eq!(slow.longest(KIND, at(0)), None);
    }
}
