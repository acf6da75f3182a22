//! The real programs over a bad network: a relay of our own between them.

use std::{fs, time::Duration};

use common::message::{ToAggregator, ToDevice};
use fleet::{
    gateway::Gateway,
    process::{Process, wait_for},
    raw::{Raw, hello, honest, tls},
    relay::{Relay, Weather},
};

const DEVICES: [&str; 3] = ["cam-0", "cam-1", "cam-2"];
/// Of an update of `mnist-mlp` in f32.
const UPDATE: u64 = 4 * 178_110;

/// `edge-client run` through the relay.
fn device(gateway: &Gateway, relay: &Relay, name: &str, more: &[&str]) -> Process {
    let (address, identity) = (relay.address(), gateway.text(&format!("{name}.pem")));
    let args = ["run", "--server", &address, "--identity", &identity, "--data-seed", "7"];
    Process::start(name, "edge-client", &[&args, more].concat())
}

fn finish(process: Process) -> String {
    let output = process.succeed();
    assert!(output.contains("run is over"), "{output}");
    output
}

#[test]
fn a_fifth_of_all_packets_lost_and_far_away() {
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
    let relay = Relay::start(&serving.address, 20, weather);
    let shares = ["0/3", "1/3", "2/3"];
    let devices: Vec<_> = DEVICES
        .iter()
        .zip(shares)
        .map(|(name, share)| device(&gateway, &relay, name, &["--share", share]))
        .collect();
    for device in devices {
        finish(device);
    }
    serving.process.succeed();
    assert!(relay.lost() > 20, "{} packets were lost", relay.lost());
    let history = gateway.history();
    assert_eq!(history.len(), 2);
    for report in history {
        assert_eq!(report["devices"].as_array().unwrap().len(), 3, "{report}");
    }
}

/// One round of the 178,110-parameter model with one device over a slow line, where something happens in
/// the middle of the upload. Gives the bytes that went up, and what the device wrote.
fn upload(happens: impl FnOnce(&Relay, &mut Process)) -> (u64, String) {
    let gateway =
        Gateway::new("run = { rounds = 1, min_devices = 1 }\nmodel = { source = \"mnist-mlp\" }", &["cam-0"]);
    let pixels = |row: usize| {
        (0..784).map(|pixel| ((row * 31 + pixel * 7) % 256).to_string()).collect::<Vec<_>>().join(",")
    };
    let samples: String = (0..40).map(|row| format!("{},{}\n", pixels(row), row % 10)).collect();
    fs::write(gateway.path("samples.csv"), samples).unwrap();
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let slow = Weather { delay: Duration::from_millis(5), rate: 400_000, ..Weather::FAIR };
    let relay = Relay::start(&serving.address, 1, slow);
    let csv = gateway.text("samples.csv");
    let more = ["--csv", &csv, "--scale", "0.0039", "--partition", "iid", "--silence", "3"];
    let mut device = device(&gateway, &relay, "cam-0", &more);
    // Acknowledgements of the model that comes down are small, so this is half of the update.
    wait_for("half of the update", || (relay.bytes_up() > UPDATE / 2).then_some(()));
    happens(&relay, &mut device);
    let output = finish(device);
    serving.process.succeed();
    let history = gateway.history();
    assert_eq!(history.len(), 1);
    assert_eq!(history[0]["devices"].as_array().unwrap().len(), 1, "{}", history[0]);
    (relay.bytes_up(), output)
}

#[test]
fn a_device_cut_off_in_mid_upload_goes_on_from_the_last_chunk() {
    let (bytes, output) = upload(|relay, device| {
        relay.cut();
        // The connection itself is lost, not only packets.
        device.wait_line("link lost");
        relay.heal();
    });
    assert_eq!(output.matches("joined as").count(), 2, "{output}");
    // What had arrived is not asked for again, but for the chunk that was under way.
    let wanted = output.split("link lost").nth(1).unwrap().split("update wanted from byte ").nth(1).unwrap();
    let from: u64 = wanted.lines().next().unwrap().trim().parse().unwrap();
    assert!(from >= UPDATE / 8 && from.is_multiple_of(64 << 10), "resumed from byte {from}");
    assert!(bytes < UPDATE * 3 / 2 + UPDATE / 10, "{bytes} bytes went up for an update of {UPDATE}");
}

#[test]
fn a_port_that_changes_in_mid_upload_does_not_end_the_connection() {
    let (bytes, output) = upload(|relay, _| relay.change_ports());
    assert!(!output.contains("link lost"), "{output}");
    assert_eq!(output.matches("joined as").count(), 1, "{output}");
    assert!(bytes > UPDATE && bytes < UPDATE * 13 / 10, "{bytes} bytes went up for an update of {UPDATE}");
}

/// The same from the other end: the device goes on with another socket. What it sent before is not sent again.
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
            ToDevice::Fetch(fetch) => panic!("asked again for {fetch:?}"),
            _ => None,
        };
        assert_eq!(raw.hear_until("Receipt", receipt).await.refused, None);
        raw.leave().await;
    });
    gateway.wait_committed(1);
}

#[test]
fn a_short_outage_does_not_end_the_connection() {
    let (_, output) = upload(|relay, _| {
        relay.cut();
        std::thread::sleep(Duration::from_secs(1));
        relay.heal();
    });
    assert_eq!(output.matches("joined as").count(), 1, "{output}");
}
