//! Devices and bridges with several addresses: what they do when a gateway stops, dies or comes back elsewhere.

use std::{fs, process::Command};

use client::host::GatewayAddresses;
use fleet::{
    gateway::{Gateway, Serving, lasting_address},
    process::Process,
};

const DEVICES: [&str; 2] = ["cam-0", "cam-1"];
const CONFIG: &str = "run = { rounds = 1000000, min_devices = 2 }\nround = { quorum = 1.0, deadline_s = 600 }\n\
                      strategy = { name = \"heterofl\" }\n";

/// Two addresses as one list, in the order in which a device of this name tries them.
fn addresses(device: &str) -> ([String; 2], String) {
    let list = [lasting_address(), lasting_address()].join(",");
    let order = GatewayAddresses::resolve(&list).unwrap().order_of(device);
    let [first, second] = order[..] else { panic!("two addresses: {order:?}") };
    ([first.to_string(), second.to_string()], list)
}

fn start_device(gateway: &Gateway, list: &str, name: &str, share: &str) -> Process {
    let identity = gateway.text(&format!("{name}.pem"));
    // Dead links are detected soon.
    let args = ["run", "--server", list, "--identity", &identity, "--data", "digits", "--share", share];
    Process::start(name, "device", &[&args[..], &["--silence", "2"]].concat())
}

/// Rounds that are committed after two more.
fn two_rounds_later(gateway: &Gateway) -> u64 {
    let before = gateway.status().map_or(0, |status| status["committed"].as_u64().unwrap());
    gateway.wait_committed(before + 2)["committed"].as_u64().unwrap()
}

#[test]
fn devices_go_on_at_another_address_when_their_gateway_stops_or_dies() {
    let gateway = Gateway::new(CONFIG, &DEVICES);
    let ([first, second], list) = addresses(DEVICES[0]);
    let serving = gateway.serve(&first, &[]);
    let devices = [("cam-0", "0/2"), ("cam-1", "1/2")];
    let devices = devices.map(|(name, share)| start_device(&gateway, &list, name, share));
    two_rounds_later(&gateway);
    // It stops as for an update, and is started elsewhere.
    serving.process.terminate();
    serving.process.succeed();
    let serving = gateway.serve(&second, &[]);
    two_rounds_later(&gateway);
    // It dies, and comes back at the first address.
    serving.process.kill();
    let serving = gateway.serve(&first, &[]);
    let committed = two_rounds_later(&gateway);
    serving.process.terminate();
    serving.process.succeed();
    for device in &devices {
        let output = device.output();
        assert!(output.contains(&format!("trying {second} in ")), "{output}");
        assert!(output.contains(&format!("trying {first} in ")), "{output}");
        // The gateway that has died had this device's link, so it is tried once more.
        let lost = output.split("link lost (").filter(|line| line.contains("trying again in")).count();
        assert!(lost >= 1, "{output}");
    }
    let history = gateway.history();
    assert!(history.len() as u64 >= committed);
    for (report, round) in history.iter().zip(1..) {
        let devices = report["devices"].as_array().unwrap().len();
        assert_eq!((report["round"].as_u64(), devices), (Some(round), 2), "{report}");
    }
}

#[test]
fn a_full_gateway_sends_devices_to_the_next_address_at_once() {
    let full = Gateway::new(&format!("{CONFIG}server = {{ max_connections = 1 }}"), &DEVICES);
    // A second gateway with the same identity, and a run of its own.
    let roomy = full.text("roomy");
    assert!(Command::new("cp").args(["-r", &full.text("gw"), &roomy]).status().unwrap().success());
    let config = CONFIG.replace("min_devices = 2", "min_devices = 1");
    fs::write(full.path("roomy/fairtier.toml"), config).unwrap();
    let ([first, second], list) = addresses(DEVICES[0]);
    let serving = full.serve(&first, &[]);
    let mut roomy = Process::start("roomy", "gateway", &["serve", "--dir", &roomy, "--listen", &second]);
    roomy.wait_line("listening on ");
    // The only place is taken.
    let mut other = start_device(&full, &first, DEVICES[1], "1/2");
    other.wait_line("joined as ");
    let mut device = start_device(&full, &list, DEVICES[0], "0/2");
    device.wait_line("joined as ");
    let output = device.output();
    let refused = output.lines().find(|line| line.contains("link lost (")).unwrap();
    assert!(refused.ends_with(&format!("trying {second} now")), "{output}");
    device.wait_line("update accepted");
    drop((serving, roomy));
}

#[test]
fn a_bridge_goes_on_at_another_address() {
    let gateway = Gateway::new(CONFIG, &["bridge"]);
    let ([first, second], list) = addresses("bridge");
    let serving = gateway.serve(&first, &[]);
    let (identity, port) = (gateway.text("bridge.pem"), format!("unix:{}", gateway.text("boards.sock")));
    let args = ["bridge", "--server", &list, "--identity", &identity, "--port", &port];
    let mut bridge = Process::start("bridge", "device", &args);
    assert_eq!(bridge.wait_line("connected to "), first);
    serving.process.terminate();
    serving.process.succeed();
    let serving = gateway.serve(&second, &[]);
    bridge.wait_line(&format!("connected to {second}"));
    assert!(bridge.is_running());
    drop(serving);
}

#[test]
fn enrolment_takes_the_address_that_answers() {
    let gateway = Gateway::new(CONFIG, &[]);
    let ([dead, alive], list) = addresses("cam-7");
    let Serving { process: serving, .. } = gateway.serve(&alive, &[]);
    let dir = gateway.text("gw");
    let token = Process::start("token", "gateway", &["token", "--dir", &dir, "cam-7"]).succeed();
    let out = gateway.text(".");
    let args = ["enroll", "--server", &list, "--token", token.trim(), "--out", &out];
    let output = Process::start("enroll", "device", &args).succeed();
    assert!(output.contains(&dead) && output.contains(&format!("trying {alive}")), "{output}");
    assert!(gateway.identity("cam-7").exists());
    drop(serving);
}
