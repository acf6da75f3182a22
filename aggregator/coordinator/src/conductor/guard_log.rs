//! Logs which devices the guard limits: one line for each device and reason, even if it is limited in every round.

use std::collections::BTreeMap;

use common::DeviceId;
use tracing::info;

use strategies::guard::GuardFinding;

/// Rounds without a finding after which a device is logged as no longer limited.
const FORGET_AFTER: u32 = 10;

/// What was logged since this process was started.
#[derive(Clone, Debug, Default)]
pub struct GuardLog {
    /// The last round in which a device was limited, by device and reason.
    last_limited: BTreeMap<(String, &'static str), u32>,
    rounds: BTreeMap<String, DeviceRounds>,
}

/// Rounds of one device.
#[derive(Copy, Clone, Debug, Default)]
struct DeviceRounds {
    participated: u32,
    limited: u32,
}

impl GuardLog {
    /// Takes note of a round.
    pub fn note<'d>(
        &mut self,
        round: u32,
        devices: impl Iterator<Item = &'d DeviceId>,
        lines: &[GuardFinding],
    ) {
        for device in devices {
            self.rounds.entry(device.to_string()).or_default().participated += 1;
        }
        for GuardFinding { device, what, why, said, counted, .. } in lines {
            if self.last_limited.insert((device.clone(), *what), round).is_none() {
                info!(round, device, what, said, counted, why, "guard limits the device");
            }
        }
        self.last_limited.retain(|(device, what), last| {
            let limited = round.saturating_sub(*last) < FORGET_AFTER;
            if !limited {
                info!(round, device, what, "guard no longer limits the device");
            }
            limited
        });
        let mut named: Vec<&str> = lines.iter().map(|line| line.device.as_str()).collect();
        named.sort_unstable();
        named.dedup();
        for device in named {
            if let Some(rounds) = self.rounds.get_mut(device) {
                rounds.limited += 1;
            }
        }
    }

    /// The run is over: logs devices that were limited in more than half of their rounds.
    pub fn summarize(&self) {
        for (device, &DeviceRounds { participated, limited }) in &self.rounds {
            if 2 * limited > participated {
                info!(
                    device,
                    limited,
                    rounds = participated,
                    "guard limited the device in most rounds: it has a high loss, different data, or lies"
                );
            }
        }
    }
}
