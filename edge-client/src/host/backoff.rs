//! Pauses of a device before it reconnects, spread so that a fleet does not reconnect at the same moment.
//!
//! A gateway that restarts loses all its devices at once. The last [`ToDevice::Wait`](common::message::ToDevice::Wait) gives
//! each device its slot, a delay that differs between devices.
//!
//! | attempt | delay, in addition to a short pause that doubles |
//! |---|---|
//! | the first, while idle | its slot |
//! | the first, during a transfer or work of a round | a quarter of its slot, because the round has a deadline |
//! | later ones | random, up to about the latest slot that it got |
//!
//! A device does not know whether all others have lost their links, too. If 10,000 devices are in mid-round when the gateway
//! stops, they reconnect within 50 s instead of 200 s: up to four times `round.arrivals_per_s`. This happens only once. If
//! that attempt fails, the device uses the random delay. The count of attempts restarts once a link has carried a chunk or
//! completed a round.

use std::time::Duration;

use common::{DeviceId, message::IDLE, rng::Rng, wire::crc32};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Divisor of the slot for a device in mid-round.
const HASTE: u32 = 4;

/// See the module.
#[derive(Clone, Debug)]
pub struct ReconnectBackoff {
    rng: Rng,
    place: Duration,
    /// About the latest slot so far; it decays.
    spread: Duration,
    pause: Duration,
}

impl ReconnectBackoff {
    /// The random numbers follow from the device's name.
    pub fn new(device: &DeviceId) -> Self {
        let rng = Rng::new(u64::from(crc32(device.as_str().as_bytes())));
        Self { rng, place: Duration::ZERO, spread: Duration::ZERO, pause: FIRST_PAUSE }
    }

    /// Takes the slot from the aggregator's [`ToDevice::Wait`](common::message::ToDevice::Wait).
    pub fn told(&mut self, wait: common::Duration) {
        self.place = Duration::from_millis(wait.as_millis().saturating_sub(IDLE.as_millis()));
        // Decays, because a fleet may shrink.
        self.spread = self.place.max(self.spread.mul_f32(0.95));
    }

    /// The link works: the next attempt counts as the first.
    pub fn reset(&mut self) {
        self.pause = FIRST_PAUSE;
    }

    /// How long to wait before the next attempt. `under_way`: a round waits for this device.
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
    fn pauses_double_and_reset() {
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
        // With a slot.
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
