//! Spreads the requests of devices without work, and of devices that have lost their link, over time.

use common::{
    DeviceId, Duration,
    message::IDLE,
    rng::{Rng, derive},
    wire::crc32,
};

use super::{RETURN_TIME, seconds};

/// Longest spread for a fleet of any size.
const MAX_SPREAD_S: f64 = 900.0;

/// How long one of `fleet` devices waits before it asks again or reconnects; it is told of work earlier.
///
/// Waits are spread so that at most `arrivals_per_s` devices come in any second, but over no more than 15 minutes. Another
/// `turn` gives another order.
pub fn idle_wait(device: &DeviceId, turn: u64, fleet: usize, arrivals_per_s: f64) -> Duration {
    let name = u64::from(crc32(device.as_str().as_bytes()));
    let place = Rng::new(derive(derive(turn, fleet as u64), name)).unit_f64();
    IDLE.plus(seconds(spread_s(fleet, arrivals_per_s) * place))
}

/// How long a device may take to reconnect after the gateway was restarted.
pub fn return_time(fleet: usize, arrivals_per_s: f64) -> Duration {
    RETURN_TIME.plus(seconds(spread_s(fleet, arrivals_per_s)))
}

fn spread_s(fleet: usize, arrivals_per_s: f64) -> f64 {
    // Random waits are uneven: half the rate on average keeps the peaks below the limit.
    (2.0 * fleet as f64 / arrivals_per_s.max(1e-3)).min(MAX_SPREAD_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_devices_do_not_come_back_at_once() {
        for (turn, (fleet, rate)) in
            [(10_000, 100.0), (10_000, 300.0), (2_000, 100.0)].into_iter().enumerate()
        {
            let mut arrivals = std::collections::BTreeMap::<u64, usize>::new();
            for number in 0..fleet {
                let device = format!("meter-{number:05}").parse().unwrap();
                let wait = idle_wait(&device, turn as u64, fleet, rate).as_millis();
                assert!((10_000..=910_000).contains(&wait));
                *arrivals.entry(wait / 1000).or_default() += 1;
            }
            let most = *arrivals.values().max().unwrap();
            assert!(most as f64 <= rate, "{most} of {fleet} in one second, {rate} allowed");
            // No device waits longer than that takes.
            assert!((arrivals.len() as f64) < 1.1 * (2.0 * fleet as f64 / rate) + 1.0);
        }
    }

    #[test]
    fn the_order_changes_from_turn_to_turn_and_waiting_is_bounded() {
        let device: DeviceId = "a".parse().unwrap();
        let waits: Vec<_> = (0..8).map(|turn| idle_wait(&device, turn, 1_000, 10.0).as_millis()).collect();
        assert!(waits.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(idle_wait(&device, 1, 100_000_000, 1.0).as_millis() <= 910_000);
        assert!(idle_wait(&device, 1, 1, 100.0).as_millis() <= 10_020);
    }
}
