//! Signs of life of one device.

use common::{Duration, Instant};

use super::AnswerTiming;

/// Since when a device that was asked has been silent.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Liveness {
    /// Last sign of life, or the opening of the first exchange that it has not answered.
    silent_since: Instant,
    /// Opening of the present exchange.
    asked: Instant,
    longest_silence: Duration,
    /// It was asked and has not answered yet.
    owes_answer: bool,
    /// Last sign of life since the gateway was started.
    last_heard: Option<Instant>,
}

impl Liveness {
    /// An exchange asks the device. If it still owes an earlier answer, its silence goes on.
    pub fn note_asked(&mut self, now: Instant) {
        if !self.owes_answer {
            self.silent_since = self.silent_since.max(now);
        }
        (self.asked, self.longest_silence, self.owes_answer) = (now, Duration::ZERO, true);
    }

    /// The device has sent a frame.
    pub fn note_heard(&mut self, now: Instant) {
        self.longest_silence = self.longest_silence.max(now - self.silent_since.max(self.asked));
        self.silent_since = self.silent_since.max(now);
        self.last_heard = Some(now);
    }

    /// The link is lost; the silence begins now.
    pub fn note_lost_link(&mut self, now: Instant) {
        self.silent_since = self.silent_since.max(now);
    }

    /// The device has answered.
    pub fn note_answered(&mut self, now: Instant) -> AnswerTiming {
        self.note_heard(now);
        self.owes_answer = false;
        AnswerTiming { took: now - self.asked, silence: self.longest_silence }
    }

    /// When it was heard last; `None` if it was not since the gateway was started.
    pub fn last_heard(&self) -> Option<Instant> {
        self.last_heard
    }

    /// Since when the device is silent.
    pub fn silent_since(&self) -> Instant {
        self.silent_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(1000 * seconds)
    }

    fn timing(took: u64, silence: u64) -> AnswerTiming {
        AnswerTiming { took: Duration::from_secs(took), silence: Duration::from_secs(silence) }
    }

    #[test]
    fn a_device_without_work_is_not_silent_and_one_that_owes_an_answer_is() {
        let mut liveness = Liveness::default();
        liveness.note_heard(at(1));
        // It had nothing to do for a hundred seconds.
        liveness.note_asked(at(100));
        assert_eq!(liveness.silent_since(), at(100));
        liveness.note_heard(at(104));
        assert_eq!(liveness.note_answered(at(110)), timing(10, 6));
        liveness.note_asked(at(200));
        // The next exchange is no sign of life.
        liveness.note_asked(at(210));
        assert_eq!(liveness.silent_since(), at(200));
        // Only the silence of this exchange counts in it.
        assert_eq!(liveness.note_answered(at(215)), timing(5, 5));
    }
}
