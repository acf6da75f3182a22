//! Reports the devices that the run waits for: in `status.json`, and in the log when the wait is noticeably longer than usual.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use common::{DeviceId, Instant};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::{clock::since_1970, driver::Driver, status::StatusFile};
use coordinator::{Gathering, WaitedFor, Waiting, exchange::Purpose};

/// Time between two checks, and so between two changes of the file.
const INTERVAL: Duration = Duration::from_secs(1);
/// Devices that are named; the others are counted.
const NAMED: usize = 5;
const LISTED: usize = 100;

/// Reports once a second, for ever.
pub(super) async fn run(driver: Arc<Driver>, status: Option<Arc<StatusFile>>) {
    let mut last = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let (waiting, now) = (driver.waiting().filter(|waiting| waiting.is_long), driver.now());
        let reported = waiting.as_ref().map(Reported::of);
        if let Some(waiting) = waiting.as_ref().filter(|_| reported != last) {
            info!("{}", describe(waiting, now));
        }
        last = reported;
        if let Some(status) = status.clone() {
            let json = waiting
                .as_ref()
                .map_or(Value::Null, |waiting| to_json(waiting, now, since_1970().as_secs_f64()));
            let written = tokio::task::spawn_blocking(move || status.write_waiting(json)).await;
            if let Ok(Err(error)) = written {
                warn!("status.json cannot be written: {error}");
            }
        }
    }
}

/// The subject of a log line. The same subject is not logged twice.
#[derive(PartialEq, Eq)]
struct Reported {
    round: u32,
    gathering: Option<Gathering>,
    devices: Vec<(DeviceId, bool)>,
}

impl Reported {
    fn of(waiting: &Waiting) -> Self {
        let devices = waiting.devices.iter().map(|line| (line.device.clone(), line.silent.is_some()));
        Self { round: waiting.round, gathering: waiting.gathering, devices: devices.collect() }
    }
}

fn describe(waiting: &Waiting, now: Instant) -> String {
    let Waiting { round, purpose, gathering, devices, .. } = waiting;
    let round = match purpose {
        Purpose::Train => format!("round {round}"),
        Purpose::Evaluate => "the round of final scores".to_owned(),
    };
    if let Some(Gathering { have, need }) = gathering {
        return format!("{round} waits for devices: {have} of {need} are connected");
    }
    if devices.is_empty() {
        return format!("{round} waits for an answer; all its devices are silent or disconnected");
    }
    let mut text = format!("{round} waits for ");
    for (index, line) in devices.iter().take(NAMED).enumerate() {
        let _ = write!(text, "{}{}", if index == 0 { "" } else { ", " }, named(line, now));
    }
    match devices.len().checked_sub(NAMED) {
        None | Some(0) => {}
        Some(more) => _ = write!(text, " and {more} more"),
    }
    text
}

/// As in `cam-3 (tier 2), at most 41 s more`.
fn named(line: &WaitedFor, now: Instant) -> String {
    let WaitedFor { device, tier, silent, until } = line;
    let seconds = |millis: u64| millis.div_ceil(1000);
    let silence =
        silent.map_or(String::new(), |since| format!(", silent for {} s", (now - since).as_millis() / 1000));
    let most = match until {
        Some(until) => format!(", at most {} s more", seconds((*until - now).as_millis())),
        None => String::new(),
    };
    let unless = if silent.is_some() { " unless it is heard from" } else { "" };
    format!("{device} (tier {}{silence}){most}{unless}", tier.index())
}

/// Times are seconds since 1970, so that they stay true while nothing changes.
fn to_json(waiting: &Waiting, now: Instant, unix: f64) -> Value {
    // Whole seconds, or the file would change at every check.
    let at =
        |instant: Instant| (unix + (instant.as_millis() as f64 - now.as_millis() as f64) / 1000.0).round();
    let Waiting { round, purpose, opened, devices, gathering, .. } = waiting;
    let device = |line: &WaitedFor| {
        json!({
            "device": line.device.as_str(),
            "tier": line.tier.index(),
            "silent_since": line.silent.map(at),
            "until": line.until.map(at),
        })
    };
    json!({
        "round": round,
        "purpose": match purpose {
            Purpose::Train => "train",
            Purpose::Evaluate => "evaluate",
        },
        "opened": opened.map(at),
        "have": gathering.map(|gathering| gathering.have),
        "need": gathering.map(|gathering| gathering.need),
        "count": devices.len(),
        "devices": devices.iter().take(LISTED).map(device).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use common::Tier;

    use super::*;

    fn waiting() -> Waiting {
        let at = |seconds: u64| Instant::from_millis(1000 * seconds);
        let device = |name: &str, tier: usize, silent: Option<u64>, until: Option<u64>| WaitedFor {
            device: name.parse().unwrap(),
            tier: Tier::new(tier).unwrap(),
            silent: silent.map(at),
            until: until.map(at),
        };
        Waiting {
            round: 12,
            purpose: Purpose::Train,
            opened: Some(at(100)),
            is_long: true,
            devices: vec![device("cam-3", 2, None, Some(161)), device("cam-4", 0, Some(110), Some(125))],
            gathering: None,
        }
    }

    #[test]
    fn the_log_names_the_devices_waited_for_and_the_longest_wait() {
        let now = Instant::from_millis(120_000);
        assert_eq!(
            describe(&waiting(), now),
            "round 12 waits for cam-3 (tier 2), at most 41 s more, \
             cam-4 (tier 0, silent for 10 s), at most 5 s more unless it is heard from"
        );
        let gathering = Some(Gathering { have: 1, need: 3 });
        let few = Waiting { gathering, devices: vec![], ..waiting() };
        assert_eq!(describe(&few, now), "round 12 waits for devices: 1 of 3 are connected");
        let many = Waiting { devices: vec![waiting().devices[0].clone(); 8], ..waiting() };
        assert!(describe(&many, now).ends_with(" and 3 more"), "{}", describe(&many, now));
    }

    #[test]
    fn the_file_stays_true_while_nothing_changes() {
        let first = to_json(&waiting(), Instant::from_millis(120_000), 1000.2);
        let later = to_json(&waiting(), Instant::from_millis(121_000), 1001.2);
        assert_eq!(first, later);
        assert_eq!((&first["opened"], &first["devices"][0]["until"]), (&json!(980.0), &json!(1041.0)));
    }
}
