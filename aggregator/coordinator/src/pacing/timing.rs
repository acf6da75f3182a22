//! How fast one device has answered recently, and how long it is waited for because of that.

use common::{Duration, Instant};

use super::{NEW_DEVICE_SILENCE, NOISE, PENALTY_FACTOR, RecentByKind, SILENCE_MARGIN};
use strategies::strategy::Kind;

/// The timing of an answer to one exchange.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AnswerTiming {
    /// Time since the device was asked.
    pub took: Duration,
    /// The longest silence in that time.
    pub silence: Duration,
}

/// The connection of a device.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// It has a connection.
    Connected,
    /// The connection was lost.
    Lost,
    /// The gateway was restarted and the device has not reconnected yet. It may take this long.
    NotBackYet(Duration),
}

/// The recent answers of a device and its penalty; [`crate::pacing`] states the rules.
#[derive(Clone, Debug, Default)]
pub struct DeviceTiming {
    answers: RecentByKind<AnswerTiming>,
    /// Exchanges that waited for the device and closed without it, since its last answer.
    missed: u32,
    /// Until then it is waited for no longer than usual.
    penalty_until: Instant,
}

impl DeviceTiming {
    /// Rule 2: the silence that the device is allowed. `others`: the usual time of such an exchange.
    pub fn allowed_silence(
        &self,
        kind: Kind,
        link: LinkState,
        others: Option<Duration>,
        now: Instant,
    ) -> Duration {
        let usual = self.usual_silence(kind).map(|silence| silence.times(2));
        if self.is_penalized(now) {
            return usual.unwrap_or(Duration::ZERO);
        }
        let allowed = match (link, usual) {
            (LinkState::NotBackYet(return_time), _) => return_time,
            (_, Some(usual)) => usual.plus(SILENCE_MARGIN),
            (LinkState::Connected, None) => {
                others.map_or(NEW_DEVICE_SILENCE, |others| NEW_DEVICE_SILENCE.max(others.times(2)))
            }
            (LinkState::Lost, None) => SILENCE_MARGIN,
        };
        allowed.times(1 << self.missed.min(16))
    }

    /// Rule 3: how long the device is waited for in all; no limit without a penalty.
    pub fn allowed_time(&self, kind: Kind, now: Instant) -> Option<Duration> {
        let usual = || self.answers.median(kind, |answer| answer.took).map(|took| took.times(2));
        self.is_penalized(now).then(|| usual().unwrap_or(Duration::ZERO))
    }

    /// Whether its silence is longer than usual, which alone has no consequence.
    pub fn is_unusually_silent(&self, kind: Kind, silence: Duration) -> bool {
        let new = Duration::from_millis(NEW_DEVICE_SILENCE.as_millis() / 2);
        silence > self.usual_silence(kind).map_or(new, |usual| usual.times(2).plus(NOISE))
    }

    /// The device has answered an exchange.
    pub fn note_answer(&mut self, kind: Kind, answer: AnswerTiming) {
        self.answers.push(kind, answer);
        self.missed = 0;
    }

    /// An exchange has closed without the device, after waiting this long for it alone.
    pub fn note_missed(&mut self, lost: Duration, now: Instant) {
        if lost > Duration::ZERO {
            self.missed = self.missed.saturating_add(1);
            self.penalize(lost, now);
        }
    }

    /// An exchange has waited this long for the device's answer alone. The usual part of it is not charged.
    pub fn note_delay(&mut self, kind: Kind, delay: Duration, silence: Duration, now: Instant) {
        let usual = self.usual_silence(kind).map_or(silence, |usual| usual.times(2));
        let lost = delay.min(silence.minus(usual));
        if lost > NOISE {
            self.penalize(lost, now);
        }
    }

    /// It has missed no exchange since its last answer.
    pub fn is_reliable(&self) -> bool {
        self.missed == 0
    }

    fn usual_silence(&self, kind: Kind) -> Option<Duration> {
        self.answers.median(kind, |answer| answer.silence)
    }

    fn is_penalized(&self, now: Instant) -> bool {
        now < self.penalty_until
    }

    fn penalize(&mut self, lost: Duration, now: Instant) {
        self.penalty_until = self.penalty_until.max(now + lost.times(PENALTY_FACTOR));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind::Train;
    const HERE: LinkState = LinkState::Connected;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn regular(took: u64, silence: u64) -> DeviceTiming {
        let mut timing = DeviceTiming::default();
        let answer = AnswerTiming { took: ms(took), silence: ms(silence) };
        (0..8).for_each(|_| timing.note_answer(KIND, answer));
        timing
    }

    #[test]
    fn allowed_silence_follows_from_the_usual_one_of_the_device() {
        let silence = |timing: &DeviceTiming, link, others| {
            timing.allowed_silence(KIND, link, others, at(0)).as_millis()
        };
        assert_eq!(silence(&regular(25, 10), HERE, None), 2_020);
        // One whose batches take half a minute.
        assert_eq!(silence(&regular(90_000, 30_000), HERE, Some(ms(25))), 62_000);
        let new = DeviceTiming::default();
        assert_eq!(silence(&new, HERE, Some(ms(25))), 15_000);
        assert_eq!(silence(&new, HERE, Some(ms(60_000))), 120_000);
        assert_eq!(silence(&new, LinkState::Lost, Some(ms(60_000))), 2_000);
        assert_eq!(silence(&regular(25, 10), LinkState::NotBackYet(ms(61_000)), None), 61_000);
        // It is new to this kind of exchange.
        assert_eq!(regular(25, 10).allowed_silence(Kind::Alone, HERE, None, at(0)), NEW_DEVICE_SILENCE);
    }

    #[test]
    fn a_device_that_misses_an_exchange_is_penalized_and_then_allowed_twice_the_silence() {
        let mut timing = regular(25, 10);
        timing.note_missed(ms(2_000), at(10_000));
        assert_eq!(
            (timing.allowed_silence(KIND, HERE, None, at(10_000)), timing.allowed_time(KIND, at(10_000))),
            (ms(20), Some(ms(50)))
        );
        // Answers do not end the penalty, or it would cost nothing.
        timing.note_answer(KIND, AnswerTiming { took: ms(25), silence: ms(10) });
        assert_eq!(timing.allowed_time(KIND, at(25_999)), Some(ms(50)));
        assert_eq!(
            (timing.allowed_time(KIND, at(26_000)), timing.allowed_silence(KIND, HERE, None, at(26_000))),
            (None, ms(2_020))
        );

        let mut new = DeviceTiming::default();
        new.note_missed(ms(15_000), at(15_000));
        assert_eq!(
            (new.allowed_silence(KIND, HERE, None, at(134_999)), new.allowed_time(KIND, at(134_999))),
            (ms(0), Some(ms(0)))
        );
        assert_eq!(new.allowed_silence(KIND, HERE, None, at(135_000)), ms(30_000));
        new.note_missed(ms(0), at(135_000));
        let silence = new.allowed_silence(KIND, HERE, None, at(135_000));
        assert_eq!(silence, ms(30_000), "it has not delayed the others");
    }

    #[test]
    fn a_pause_that_ends_in_time_is_charged_and_slowness_is_not() {
        let mut timing = regular(25, 10);
        timing.note_delay(KIND, ms(1_480), ms(1_500), at(0));
        assert_eq!(timing.allowed_time(KIND, at(11_839)), Some(ms(50)));
        assert_eq!(timing.allowed_time(KIND, at(11_840)), None);
        let mut slow = regular(20_000, 5_000);
        slow.note_delay(KIND, ms(19_000), ms(5_200), at(0));
        assert_eq!(slow.allowed_time(KIND, at(0)), None);
    }
}
