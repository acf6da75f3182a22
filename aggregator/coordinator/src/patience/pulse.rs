//! Signs of life of one device.

use common::{Duration, Instant};

/// Since when a device that has something to do is silent.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Pulse {
    /// It was heard of last, or was asked after it had answered.
    since: Instant,
    /// Of the open exchange.
    asked: Instant,
    longest: Duration,
    /// It was asked and has not answered yet.
    owes: bool,
}

impl Pulse {
    /// An exchange asks the device. One that has not answered to an earlier exchange, and was not heard of since, is as silent
    /// as before.
    pub fn ask(&mut self, now: Instant) {
        if !self.owes {
            self.since = self.since.max(now);
        }
        (self.asked, self.longest, self.owes) = (now, Duration::ZERO, true);
    }

    pub fn beat(&mut self, now: Instant) {
        self.longest = self.longest.max(now - self.since.max(self.asked));
        self.since = self.since.max(now);
    }

    /// The link is lost, which says that it was there a moment ago.
    pub fn lose_link(&mut self, now: Instant) {
        self.since = self.since.max(now);
    }

    /// It has answered. Gives the time since it was asked, and its longest silence in that time.
    pub fn answer(&mut self, now: Instant) -> (Duration, Duration) {
        self.beat(now);
        self.owes = false;
        (now - self.asked, self.longest)
    }

    /// It is silent since then.
    pub fn since(&self) -> Instant {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(1000 * seconds)
    }

    #[test]
    fn a_device_without_work_is_not_silent_and_one_that_owes_an_answer_is() {
        let mut pulse = Pulse::default();
        pulse.beat(at(1));
        // It had nothing to do for a hundred seconds.
        pulse.ask(at(100));
        assert_eq!(pulse.since(), at(100));
        pulse.beat(at(104));
        assert_eq!(pulse.answer(at(110)), (Duration::from_secs(10), Duration::from_secs(6)));
        pulse.ask(at(200));
        // It says nothing, and the next exchange does not make it alive.
        pulse.ask(at(210));
        assert_eq!(pulse.since(), at(200));
        // Only the silence of this exchange counts in it.
        assert_eq!(pulse.answer(at(215)), (Duration::from_secs(5), Duration::from_secs(5)));
    }
}
