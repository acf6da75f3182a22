//! The real programs over a bad network, made by a relay between them.

use std::{
    fs,
    time::{Duration, Instant},
};

use common::message::{ToAggregator, ToDevice};
use fleet::{
    gateway::Gateway,
    process::{Process, wait_for},
    raw::{Raw, hello, honest, tls},
    relay::{Relay, Way, Weather},
};

const DEVICES: [&str; 3] = ["cam-0", "cam-1", "cam-2"];
/// Bytes of an update of `mnist-mlp` in f32.
const UPDATE: u64 = 4 * 178_110;

/// `fairtier device run` through the relay.
fn device(gateway: &Gateway, relay: &Relay, name: &str, more: &[&str]) -> Process {
    let (address, identity) = (relay.address(), gateway.text(&format!("{name}.pem")));
    let args = ["run", "--server", &address, "--identity", &identity, "--data-seed", "7"];
    Process::start(name, "device", &[&args, more].concat())
}

fn finish(process: Process) -> String {
    let output = process.succeed();
    assert!(output.contains("run is over"), "{output}");
    output
}

#[test]
fn a_fifth_of_all_packets_is_lost_on_a_slow_line() {
    let config = "run = { rounds = 2, min_devices = 3 }\nround = { quorum = 1.0 }";
    let gateway = Gateway::new(config, &DEVICES);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let weather = Weather {
        delay: Duration::from_millis(200),
        jitter: Duration::from_millis(20),
        loss: 0.2,
        repeat: 0.02,
        reorder: 0.05,
        rate: 0,
    };
    let relays = Relay::each(&serving.address, 20, weather, 3);
    let shares = ["0/3", "1/3", "2/3"];
    let devices: Vec<_> = DEVICES
        .iter()
        .zip(&relays)
        .zip(shares)
        .map(|((name, relay), share)| device(&gateway, relay, name, &["--data", "digits", "--share", share]))
        .collect();
    for device in devices {
        finish(device);
    }
    serving.process.succeed();
    let lost: Vec<_> = relays.iter().map(Relay::lost).collect();
    assert!(lost.iter().all(|&lost| lost > 5), "{lost:?} packets were lost");
    let history = gateway.history();
    assert_eq!(history.len(), 2);
    for report in history {
        assert_eq!(report["devices"].as_array().unwrap().len(), 3, "{report}");
    }
}

/// Runs one round of the 178,110-parameter model with one device over a slow line. Calls `happens` when half of the
/// model has come down or half of the update has gone up. Returns the bytes of this direction and the output of the
/// device.
fn disturbed(way: Way, silence: &str, happens: impl FnOnce(&Relay, &mut Process)) -> (u64, String) {
    let gateway =
        Gateway::new("run = { rounds = 1, min_devices = 1 }\nmodel = { source = \"mnist-mlp\" }", &["cam-0"]);
    let pixels = |row: usize| {
        (0..784).map(|pixel| ((row * 31 + pixel * 7) % 256).to_string()).collect::<Vec<_>>().join(",")
    };
    let samples: String = (0..40).map(|row| format!("{},{}\n", pixels(row), row % 10)).collect();
    fs::write(gateway.path("samples.csv"), samples).unwrap();
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    // The second half takes three seconds, long enough on a busy machine.
    let slow = Weather { delay: Duration::from_millis(5), rate: 120_000, ..Weather::FAIR };
    let relay = Relay::start(&serving.address, 1, slow);
    let csv = gateway.text("samples.csv");
    let more = ["--csv", &csv, "--scale", "0.0039", "--partition", "iid", "--silence", silence];
    let mut device = device(&gateway, &relay, "cam-0", &more);
    let bytes = || match way {
        Way::Up => relay.bytes_up(),
        Way::Down => relay.bytes_down(),
    };
    // Model and update have the same length, and the other direction is small.
    wait_for("half of the transfer", || (bytes() > UPDATE / 2).then_some(()));
    happens(&relay, &mut device);
    let output = finish(device);
    serving.process.succeed();
    let history = gateway.history();
    assert_eq!(history.len(), 1);
    assert_eq!(history[0]["devices"].as_array().unwrap().len(), 1, "{}", history[0]);
    (bytes(), output)
}

#[test]
fn a_device_cut_off_in_mid_upload_goes_on_from_the_last_chunk() {
    let (bytes, output) = disturbed(Way::Up, "3", lose_the_connection);
    assert_resumed("update wanted from byte ", &output);
    assert!(bytes < UPDATE * 3 / 2 + UPDATE / 10, "{bytes} bytes went up for an update of {UPDATE}");
}

#[test]
fn a_device_cut_off_in_mid_download_goes_on_from_the_last_chunk() {
    let (bytes, output) = disturbed(Way::Down, "3", lose_the_connection);
    assert_resumed("model asked for from byte ", &output);
    // The device also downloads the new model to score it.
    assert!(bytes < UPDATE * 5 / 2 + UPDATE / 10, "{bytes} bytes came down for two models of {UPDATE}");
}

/// Loses the connection itself, not only packets.
fn lose_the_connection(relay: &Relay, device: &mut Process) {
    relay.cut();
    device.wait_line("link lost");
    relay.heal();
}

/// Nothing that had arrived is requested again, except chunks in flight.
fn assert_resumed(wanted: &str, output: &str) {
    assert_eq!(output.matches("joined as").count(), 2, "{output}");
    let (before, after) = output.split_once("link lost").unwrap();
    let from = |output: &str| -> u64 {
        let (_, rest) = output.split_once(wanted).unwrap();
        rest.lines().next().unwrap().trim().parse().unwrap()
    };
    assert_eq!(from(before), 0, "{output}");
    let resumed = from(after);
    assert!(resumed >= UPDATE / 8 && resumed.is_multiple_of(64 << 10), "resumed from byte {resumed}");
}

#[test]
fn a_port_that_changes_in_mid_upload_does_not_end_the_connection() {
    let (bytes, output) = disturbed(Way::Up, "30", |relay, _| relay.change_ports());
    assert!(!output.contains("link lost"), "{output}");
    assert_eq!(output.matches("joined as").count(), 1, "{output}");
    assert!(bytes > UPDATE && bytes < UPDATE * 13 / 10, "{bytes} bytes went up for an update of {UPDATE}");
}

/// The device continues with another socket. Data sent before is not sent again.
#[test]
fn a_device_that_rebinds_its_socket_in_mid_upload_goes_on() {
    let gateway = Gateway::new("run = { rounds = 1, min_devices = 1 }", &["cam-0"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let identity = fs::read(gateway.identity("cam-0")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut raw = Raw::connect(&serving.address, tls(&identity, false)).await.unwrap();
        let welcome = raw.join(hello("cam-0")).await;
        let assignment = raw.assignment().await;
        let (offer, update) = honest(&assignment, &welcome);
        raw.say(&ToAggregator::Offer(offer.clone())).await;
        let fetch = |message: &ToDevice| match message {
            ToDevice::Fetch(fetch) => Some(*fetch),
            _ => None,
        };
        assert_eq!(raw.hear_until("Fetch", fetch).await.offset, 0);
        let half = update.len() / 8 * 4;
        raw.upload(offer.update.transfer, 0, &update[..half]).await;
        let [before, after] = raw.rebind();
        assert_ne!(before, after);
        raw.upload(offer.update.transfer, half as u32, &update[half..]).await;
        let receipt = |message: &ToDevice| match message {
            ToDevice::Receipt(receipt) => Some(*receipt),
            ToDevice::Fetch(fetch) => panic!("the aggregator asked again for {fetch:?}"),
            _ => None,
        };
        assert_eq!(raw.hear_until("Receipt", receipt).await.refused, None);
        raw.leave().await;
    });
    gateway.wait_committed(1);
}

#[test]
fn a_short_outage_does_not_end_the_connection() {
    let (_, output) = disturbed(Way::Up, "30", |relay, _| {
        let before = relay.lost();
        relay.cut();
        wait_for("packets to be lost", || (relay.lost() > before).then_some(()));
        std::thread::sleep(Duration::from_secs(1));
        relay.heal();
    });
    assert_eq!(output.matches("joined as").count(), 1, "{output}");
}

const SILENCE: Duration = Duration::from_secs(2);

/// Keep-alive packets are sent between batches.
#[test]
fn training_longer_than_the_silence_limit_keeps_the_connection() {
    // Increases the epochs until training takes long enough on this machine.
    let long = [400, 1600, 6400, 25600].iter().any(|epochs| {
        train_in_silence(&format!("training = {{ epochs = {epochs}, batch = 4 }}")) > SILENCE * 3 / 2
    });
    assert!(long, "training is too fast for this test");
}

/// Keep-alive packets are also sent while one batch is computed.
#[test]
fn a_batch_longer_than_the_silence_limit_keeps_the_connection() {
    let long = [500, 1000, 2000, 4000].iter().any(|width| {
        let model = format!("model = {{ source = \"mlp:64-{width}-{width}-10\", tiers = [1.0] }}");
        train_in_silence(&format!("training = {{ batch = 60000 }}\n{model}")) > SILENCE * 3 / 2
    });
    assert!(long, "training is too fast for this test");
}

/// Runs one round of one device over one connection and returns the time of training.
fn train_in_silence(training: &str) -> Duration {
    let gateway = Gateway::new(&format!("run = {{ rounds = 1, min_devices = 1 }}\n{training}"), &["cam-0"]);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let silence = SILENCE.as_secs().to_string();
    let more = ["--silence", &silence, "--backend", "portable"];
    let mut device = gateway.device(&serving, "cam-0", "0/1", &more);
    device.wait_line("assigned");
    let start = Instant::now();
    device.wait_line("update wanted from byte 0");
    let trained = start.elapsed();
    let output = finish(device);
    assert_eq!(output.matches("joined as").count(), 1, "{output}");
    assert!(!output.contains("link lost"), "{output}");
    serving.process.succeed();
    let history = gateway.history();
    assert_eq!(history[0]["devices"].as_array().unwrap().len(), 1, "{}", history[0]);
    trained
}
