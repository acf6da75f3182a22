//! Whom the guard has held, told once for each device and change: a device that is held in every round makes one line in the log.

use std::collections::BTreeMap;

use common::DeviceId;
use tracing::info;

use strategies::guard::GuardLine;

/// After this many rounds without it, a device counts as no longer held.
const OVER_AFTER: u32 = 10;

/// What the log has told, since this process was started.
#[derive(Clone, Debug, Default)]
pub struct HeldLog {
    /// Round in which it was held last, by device and reason.
    held: BTreeMap<(String, &'static str), u32>,
    /// Rounds in which each device took part, and in which it was held.
    rounds: BTreeMap<String, (u32, u32)>,
}

impl HeldLog {
    /// Takes note of a round.
    pub fn note<'d>(&mut self, round: u32, devices: impl Iterator<Item = &'d DeviceId>, lines: &[GuardLine]) {
        for device in devices {
            self.rounds.entry(device.to_string()).or_default().0 += 1;
        }
        for GuardLine { device, what, why, said, counted, .. } in lines {
            if self.held.insert((device.clone(), *what), round).is_none() {
                info!(round, device, what, said, counted, "guard: held, {why}");
            }
        }
        self.held.retain(|(device, what), last| {
            let held = round.saturating_sub(*last) < OVER_AFTER;
            if !held {
                info!(round, device, what, "guard: no longer held");
            }
            held
        });
        let mut named: Vec<&str> = lines.iter().map(|line| line.device.as_str()).collect();
        named.sort_unstable();
        named.dedup();
        for device in named {
            if let Some((_, held)) = self.rounds.get_mut(device) {
                *held += 1;
            }
        }
    }

    /// The run is over: devices that were held in more than half of their rounds.
    pub fn sum_up(&self) {
        for (device, &(rounds, held)) in &self.rounds {
            if 2 * held > rounds {
                info!(device, held, rounds, "guard: badly off, different, or lying; the guard cannot tell");
            }
        }
    }
}
