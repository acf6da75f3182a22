//! Only an authenticated gateway may end a running device or bridge.

use std::fs;

use fleet::{
    forge::Forger,
    gateway::{Gateway, Serving, lasting_address},
    process::{Process, wait_for},
};

const CONFIG: &str = "run = { rounds = 1000000, min_devices = 1 }";
/// TLS alert 48, `unknown_ca`, as a QUIC error.
const UNKNOWN_CA: u16 = 0x130;

fn run(gateway: &Gateway, server: &str, device: &str, more: &[&str]) -> Process {
    let identity = gateway.text(&format!("{device}.pem"));
    let args = ["run", "--server", server, "--identity", &identity, "--share", "0/5", "--data", "digits"];
    Process::start(device, "device", &[&args, more].concat())
}

fn bridge(gateway: &Gateway, server: &str) -> Process {
    let (identity, port) = (gateway.text("bridge.pem"), format!("unix:{}", gateway.text("boards.sock")));
    let args = ["bridge", "--server", server, "--identity", &identity, "--port", &port];
    Process::start("bridge", "device", &args)
}

/// The port of a gateway, after it has ended.
fn free_port(serving: Serving) -> String {
    let address = serving.address.clone();
    drop(serving);
    address
}

#[test]
fn one_forged_packet_does_not_end_a_device() {
    let gateway = Gateway::new(CONFIG, &["cam-1"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let forger = Forger::start(&serving.address, 3, UNKNOWN_CA, b"go\naway");
    let mut device = run(&gateway, &forger.address.to_string(), "cam-1", &[]);
    device.wait_line("joined as");
    assert_eq!(forger.sent(), 3);
    device.wait_line("link lost");
    assert!(!device.output().contains("\naway"), "a forged reason starts a new log line");
}

#[test]
fn one_forged_packet_does_not_end_a_bridge() {
    let gateway = Gateway::new(CONFIG, &["bridge"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let forger = Forger::start(&serving.address, 3, UNKNOWN_CA, b"");
    let mut bridge = bridge(&gateway, &forger.address.to_string());
    bridge.wait_line("connected to");
    assert_eq!(forger.sent(), 3);
}

/// For example, after the address was temporarily given to another machine.
#[test]
fn a_foreign_server_on_the_port_does_not_end_a_device_or_a_bridge() {
    let (gateway, other) = (Gateway::new(CONFIG, &["cam-1", "bridge"]), Gateway::new(CONFIG, &[]));
    let foreign = other.serve(&lasting_address(), &[]);
    let mut device = run(&gateway, &foreign.address, "cam-1", &[]);
    let mut bridge = bridge(&gateway, &foreign.address);
    for process in [&mut device, &mut bridge] {
        let line = process.wait_line("is --server the gateway that made this identity or token?");
        assert!(line.contains("trying again"), "{line}");
    }
    let address = free_port(foreign);
    let _serving = gateway.serve(&address, &[]);
    device.wait_line("joined as");
    bridge.wait_line("connected to");
}

/// A gateway whose clock is ahead reports every certificate as expired.
#[test]
fn an_expired_certificate_does_not_end_a_device() {
    let gateway = Gateway::new(CONFIG, &[]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let (dir, out) = (gateway.text("gw"), gateway.text("."));
    let args = ["enroll", "--dir", &dir, "--out", &out, "cam-1"];
    Process::start("enroll", "gateway", &[&args[..], &["--days", "0.00001"]].concat()).succeed();
    let mut device = run(&gateway, &serving.address, "cam-1", &["--leave-after", "0"]);
    wait_for("more refusals than end a device that is not enrolled", || {
        (device.output().matches("refused: E32").count() > 5).then_some(())
    });
    assert!(device.is_running());
    // A new identity in the same file is used without a restart.
    Process::start("enroll", "gateway", &[&args[..], &["--replace"]].concat()).succeed();
    device.wait_line("joined as");
}

#[test]
fn a_revoked_device_ends_after_five_refusals_and_leave_after() {
    let gateway = Gateway::new(CONFIG, &["patient", "hasty"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let mut patient = run(&gateway, &serving.address, "patient", &[]);
    let mut hasty = run(&gateway, &serving.address, "hasty", &["--leave-after", "0"]);
    for device in [&mut patient, &mut hasty] {
        device.wait_line("joined as");
    }
    let dir = gateway.text("gw");
    Process::start("revoke", "gateway", &["revoke", "--dir", &dir, "patient", "hasty"]).succeed();
    let output = hasty.fail();
    assert_eq!(output.matches("refused: E30").count(), 4, "{output}");
    assert!(output.contains("refused by the aggregator: E30"), "{output}");
    wait_for("as many refusals", || (patient.output().matches("refused: E30").count() >= 5).then_some(()));
    assert!(patient.is_running());
}

#[test]
fn enrolling_fails_without_retries() {
    let gateway = Gateway::new(CONFIG, &[]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let forger = Forger::start(&serving.address, 1, UNKNOWN_CA, b"");
    let dir = gateway.text("gw");
    let token = Process::start("token", "gateway", &["token", "--dir", &dir, "cam-1"]).succeed();
    let token = token.lines().find(|line| line.starts_with("cam-1:")).unwrap();
    let (server, out) = (forger.address.to_string(), gateway.text("."));
    let args = ["enroll", "--server", &server, "--token", token, "--out", &out];
    let output = Process::start("enroll", "device", &args).fail();
    assert!(output.contains("no answer from the aggregator"), "{output}");
    assert!(!fs::exists(gateway.path("cam-1.pem")).unwrap());
}
