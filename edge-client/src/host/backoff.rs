//! When a device tries again after it has lost its link: soon, but not together with all others.
//!
//! A gateway that is started again loses all its devices at the same moment. Each knows its place among them from the last
//! [`ToDevice::Wait`](common::message::ToDevice::Wait).
//!
//! | attempt | waits, besides a short pause that grows |
//! |---|---|
//! | the first, with nothing under way | its place |
//! | the first, with a transfer or work of a round under way | a quarter of its place: the round has a deadline |
//! | later ones, after nobody was there | another place by chance, among all that it was ever told |
//!
//! A device can not know whether it has lost its link alone or with everybody else. If all of 10,000 are in mid-round when the
//! gateway goes, they come back within 50 s instead of 200, up to four times `round.arrivals_per_s` in a second. That is
//! once: whoever then finds nobody there waits as long as those with nothing to do, so that those who wait do not gather.
//! Attempts are first ones again as soon as a link has carried a chunk or brought a round to its end.

use std::time::Duration;

use common::{DeviceId, message::IDLE, rng::Rng, wire::crc32};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// By how much a device with something under way is ahead of its place.
const HASTE: u32 = 4;

#[derive(Clone, Debug)]
pub struct ReconnectBackoff {
    rng: Rng,
    place: Duration,
    /// About the last place of all.
    spread: Duration,
    pause: Duration,
}

impl ReconnectBackoff {
    pub fn new(device: &DeviceId) -> Self {
        let rng = Rng::new(u64::from(crc32(device.as_str().as_bytes())));
        Self { rng, place: Duration::ZERO, spread: Duration::ZERO, pause: FIRST_PAUSE }
    }

    /// The aggregator has said how long to wait.
    pub fn told(&mut self, wait: common::Duration) {
        self.place = Duration::from_millis(wait.as_millis().saturating_sub(IDLE.as_millis()));
        // A fleet may also get smaller.
        self.spread = self.place.max(self.spread.mul_f32(0.95));
    }

    /// All is well: the next pause is a first one.
    pub fn reset(&mut self) {
        self.pause = FIRST_PAUSE;
    }

    /// How long to wait before the next attempt; `under_way`: a round waits for this device.
    pub fn pause(&mut self, under_way: bool) -> Duration {
        let place = match (self.pause == FIRST_PAUSE, under_way) {
            (true, true) => self.place / HASTE,
            (true, false) => self.place,
            (false, _) => self.spread.mul_f32(self.rng.unit_f32()),
        };
        let jittered = self.pause.mul_f32(0.75 + 0.5 * self.rng.unit_f32());
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        place + jittered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_begin_anew() {
        let mut backoff = ReconnectBackoff::new(&"cam-1".parse().unwrap());
        let near = |pause: Duration, seconds: f32| {
            let share = pause.as_secs_f32() / seconds;
            assert!((0.75..=1.25).contains(&share), "{pause:?} instead of {seconds} s");
        };
        for seconds in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            near(backoff.pause(false), seconds);
        }
        backoff.reset();
        near(backoff.pause(false), 0.5);
        // With a place among many.
        backoff.reset();
        backoff.told(common::Duration::from_secs(110));
        near(backoff.pause(false) - Duration::from_secs(100), 0.5);
        backoff.reset();
        near(backoff.pause(true) - Duration::from_secs(25), 0.5);
        let later: Vec<_> = (0..200).map(|turn| backoff.pause(turn % 2 == 0).as_secs_f32()).collect();
        assert!(later.iter().all(|&seconds| seconds < 140.0));
        assert!(later.iter().filter(|&&seconds| seconds > 75.0).count() > 50, "{later:?}");
    }
}
