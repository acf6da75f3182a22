//! A fleet that reconnects to a restarted gateway: the back-off rules of both sides in virtual time, and a real
//! device that follows them.

use std::{collections::BTreeMap, fs, time::Duration};

use client::host::ReconnectBackoff;
use common::{DeviceId, message::IDLE};
use coordinator::pacing::idle_wait;
use fleet::{
    gateway::Gateway,
    process::{Process, wait_for},
    raw::{Raw, hello, tls},
    relay::{Relay, Weather},
};

const RATE: f64 = 100.0;

/// All links are lost at once, and the gateway is back after `outage`. Returns the seconds after which each device
/// reconnects, and the most connections in one second. `under_way`: the devices were in a round.
fn comeback(fleet: usize, outage: Duration, under_way: bool) -> (Vec<f64>, usize) {
    let (mut back, mut attempts) = (vec![], BTreeMap::<u64, usize>::new());
    for number in 0..fleet {
        let device: DeviceId = format!("meter-{number:05}").parse().unwrap();
        let mut backoff = ReconnectBackoff::new(&device);
        // Ten rounds of idle pauses.
        (0..10).for_each(|turn| backoff.told(idle_wait(&device, turn, fleet, RATE)));
        let mut now = backoff.pause(under_way);
        while now < outage {
            now += backoff.pause(under_way);
        }
        *attempts.entry(now.as_secs()).or_default() += 1;
        back.push(now.as_secs_f64());
    }
    (back, attempts.into_values().max().unwrap())
}

#[test]
fn ten_thousand_devices_do_not_reconnect_at_once() {
    for (seconds, most) in [(0, RATE), (5, RATE), (60, RATE), (600, 1.25 * RATE), (7200, 1.25 * RATE)] {
        let (back, peak) = comeback(10_000, Duration::from_secs(seconds), false);
        assert!(peak as f64 <= most, "{peak} in one second after {seconds} s without a gateway");
        let last = back.into_iter().fold(0.0, f64::max);
        let late = last - seconds as f64;
        assert!(late <= 300.0, "the last device reconnects {late:.0} s after the gateway");
    }
}

#[test]
fn ten_thousand_devices_in_a_round_reconnect_soon_but_not_at_once() {
    let (back, peak) = comeback(10_000, Duration::ZERO, true);
    assert!(peak as f64 <= 4.0 * RATE, "{peak} in one second");
    let last = back.into_iter().fold(0.0, f64::max);
    assert!(last <= 51.0, "the last device reconnects after {last:.0} s");
    // After a longer outage they reconnect like idle devices.
    for (seconds, most) in
        [(5, 4.0 * RATE), (30, 4.0 * RATE), (60, 1.25 * RATE), (600, 1.25 * RATE), (7200, 1.25 * RATE)]
    {
        let (back, peak) = comeback(10_000, Duration::from_secs(seconds), true);
        assert!(peak as f64 <= most, "{peak} in one second after {seconds} s without a gateway");
        let late = back.into_iter().fold(0.0, f64::max) - seconds as f64;
        assert!(late <= 300.0, "the last device reconnects {late:.0} s after the gateway");
    }
}

#[test]
fn a_small_fleet_reconnects_at_once() {
    for under_way in [false, true] {
        let (back, _) = comeback(20, Duration::from_millis(300), under_way);
        assert!(back.iter().all(|&seconds| seconds < 2.5), "{back:?}");
    }
}

/// The pauses in seconds that the device logged, one per lost link.
fn pauses(device: &Process) -> Vec<f64> {
    let output = device.output();
    let said = output.split("trying again in ").skip(1).filter_map(|rest| rest.split_once('\n'));
    let seconds = |text: &str| match text.strip_suffix("ms") {
        Some(millis) => millis.parse::<f64>().unwrap() / 1000.0,
        None => text.strip_suffix('s').unwrap().parse().unwrap(),
    };
    said.map(|(text, _)| seconds(text.trim())).collect()
}

/// The short pause of a first attempt, in addition to the assigned delay.
fn is_first(pause: f64) -> bool {
    (0.3..0.7).contains(&pause)
}

/// A device with an assigned reconnect delay, and this delay in seconds. A second device starts the first round.
fn device_with_a_place() -> (Gateway, fleet::gateway::Serving, Process, f64) {
    let config = "run = { rounds = 1, min_devices = 2 }\nround = { arrivals_per_s = 0.01 }\n\
                  training = { epochs = 60000, batch = 1 }";
    let gateway = Gateway::new(config, &["cam-1", "mute"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let mut device = gateway.device(&serving, "cam-1", "0/20", &[]);
    device.wait_line("nothing to do for");
    let place = idle_wait(&"cam-1".parse().unwrap(), 0, 1, 0.01).as_millis() - IDLE.as_millis();
    assert!(place > 10_000, "{place} ms do not tell the cases apart");
    (gateway, serving, device, place as f64 / 1000.0)
}

#[test]
fn a_device_reconnects_after_its_assigned_delay() {
    let (_gateway, serving, mut device, place) = device_with_a_place();
    serving.process.terminate();
    device.wait_line("trying again in");
    let paused = pauses(&device);
    assert!(is_first(paused[0] - place), "{paused:?} with a place at {place} s");
}

#[test]
fn a_device_in_a_round_does_not_wait_for_its_assigned_delay() {
    let (gateway, serving, mut device, place) = device_with_a_place();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let identity = fs::read(gateway.identity("mute")).unwrap();
        let mut mute = Raw::connect(&serving.address, tls(&identity, false)).await.unwrap();
        mute.join(hello("mute")).await;
        mute.assignment().await;
    });
    device.wait_line("assigned");
    serving.process.terminate();
    device.wait_line("trying again in");
    let paused = pauses(&device);
    assert!(is_first(paused[0] - place / 4.0), "{paused:?} with a place at {place} s");
}

/// A link that has carried part of an update counts as good, so pauses do not grow.
#[test]
fn a_link_lost_repeatedly_during_an_upload_is_reopened_soon() {
    let config = "run = { rounds = 1, min_devices = 1 }\nmodel = { source = \"mnist-mlp\" }";
    let gateway = Gateway::new(config, &["cam-1"]);
    let row = |row: usize| {
        (0..784).map(|pixel| ((row * 31 + pixel * 7) % 256).to_string()).collect::<Vec<_>>().join(",")
    };
    let samples: String = (0..20).map(|at| format!("{},{}\n", row(at), at % 10)).collect();
    fs::write(gateway.path("samples.csv"), samples).unwrap();
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let slow = Weather { delay: Duration::from_millis(5), rate: 200_000, ..Weather::FAIR };
    let relay = Relay::start(&serving.address, 1, slow);
    let (csv, identity) = (gateway.text("samples.csv"), gateway.text("cam-1.pem"));
    let address = relay.address();
    let args = [
        "run",
        "--server",
        &address,
        "--identity",
        &identity,
        "--csv",
        &csv,
        "--scale",
        "0.0039",
        "--silence",
        "3",
    ];
    let device = Process::start("cam-1", "device", &args);
    let update = 4 * 178_110;
    for lost in 1..=3 {
        let before = relay.bytes_up();
        wait_for("a part of the update", || (relay.bytes_up() > before + update / 6).then_some(()));
        relay.cut();
        wait_for("a lost link", || (pauses(&device).len() >= lost).then_some(()));
        relay.heal();
    }
    let paused = pauses(&device);
    assert!(paused.iter().copied().all(is_first), "{paused:?}");
    device.succeed();
    serving.process.succeed();
}
