//! A gateway that is started again meets its whole fleet: both ends' rules of waiting together, in virtual time.

use std::{collections::BTreeMap, time::Duration};

use aggregator::patience::idle;
use common::DeviceId;
use edge_client::host::Pace;

const RATE: f64 = 100.0;

/// Seconds after a common loss of all links at which each device finds a gateway that is back after `outage`; and how many
/// attempts are made in the worst second after that.
fn comeback(fleet: usize, outage: Duration) -> (Vec<f64>, usize) {
    let (mut back, mut attempts) = (vec![], BTreeMap::<u64, usize>::new());
    for number in 0..fleet {
        let device: DeviceId = format!("meter-{number:05}").parse().unwrap();
        let mut pace = Pace::new(&device);
        // In ten rounds.
        (0..10).for_each(|turn| pace.told(idle(&device, turn, fleet, RATE)));
        let mut now = pace.pause();
        while now < outage {
            now += pace.pause();
        }
        *attempts.entry(now.as_secs()).or_default() += 1;
        back.push(now.as_secs_f64());
    }
    (back, attempts.into_values().max().unwrap())
}

#[test]
fn ten_thousand_devices_do_not_reconnect_at_once() {
    for (seconds, most) in [(0, RATE), (5, RATE), (60, RATE), (600, 1.25 * RATE), (7200, 1.25 * RATE)] {
        let (back, peak) = comeback(10_000, Duration::from_secs(seconds));
        assert!(peak as f64 <= most, "{peak} in one second after {seconds} s without a gateway");
        let last = back.into_iter().fold(0.0, f64::max);
        let late = last - seconds as f64;
        assert!(late <= 300.0, "the last one comes {late:.0} s after the gateway");
    }
}

#[test]
fn a_small_fleet_is_back_at_once() {
    let (back, _) = comeback(20, Duration::from_millis(300));
    assert!(back.iter().all(|&seconds| seconds < 2.5), "{back:?}");
}
