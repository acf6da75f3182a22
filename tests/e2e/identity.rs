//! How devices become members, stay so with new keys, and cease to be.

use std::{fs, os::unix::fs::PermissionsExt};

use fleet::{
    gateway::{Gateway, Serving},
    process::{Process, wait_for},
};

const CONFIG: &str = "run = { rounds = 1000000, min_devices = 1 }";

fn token(gateway: &Gateway, device: &str) -> String {
    let dir = gateway.text("gw");
    Process::start("token", "aggregator", &["token", "--dir", &dir, device]).succeed().trim().to_owned()
}

fn enroll(gateway: &Gateway, serving: &Serving, token: &str) -> Process {
    let out = gateway.text(".");
    let args = ["enroll", "--server", &serving.address, "--token", token, "--out", &out];
    Process::start("enroll", "edge-client", &args)
}

#[test]
fn a_token_makes_a_member_once_whose_key_can_be_renewed_until_it_is_revoked() {
    let gateway = Gateway::new(CONFIG, &[]);
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    let token = token(&gateway, "cam-9");
    enroll(&gateway, &serving, &token).succeed();
    let identity = gateway.identity("cam-9");
    assert_eq!(fs::metadata(&identity).unwrap().permissions().mode() & 0o777, 0o600);
    let again = enroll(&gateway, &serving, &token).fail();
    assert!(again.contains("gives no certificate") && again.contains("good once"), "{again}");

    let mut device = gateway.device(&serving, "cam-9", "0/5", &[]);
    device.wait_line("joined as");
    let before = fs::read_to_string(&identity).unwrap();
    let renew = ["renew", "--server", &serving.address, "--identity", identity.to_str().unwrap()];
    Process::start("renew", "edge-client", &renew).succeed();
    assert_ne!(fs::read_to_string(&identity).unwrap(), before);
    device.terminate();
    device.succeed();
    let mut device = gateway.device(&serving, "cam-9", "0/5", &[]);
    device.wait_line("joined as");

    // The earlier certificate is no longer good, now that the new one was used.
    fs::write(gateway.path("old.pem"), before).unwrap();
    let old = gateway.text("old.pem");
    let args = ["run", "--server", &serving.address, "--identity", &old, "--device", "cam-9"];
    let output = Process::start("old", "edge-client", &args).fail();
    assert!(output.contains("E30"), "{output}");

    let dir = gateway.text("gw");
    Process::start("revoke", "aggregator", &["revoke", "--dir", &dir, "cam-9"]).succeed();
    let output = device.fail();
    assert!(output.contains("E30"), "{output}");
    let output = Process::start("revoke", "aggregator", &["revoke", "--dir", &dir, "cam-9"]).fail();
    assert!(output.contains("cam-9 is not enrolled"), "{output}");

    assert!(serving.process.is_running());
    let secret = token.split(':').nth(1).unwrap();
    assert!(!serving.process.output().contains(secret), "the secret is in the log");
}

#[test]
fn a_token_of_another_fleet_is_not_shown_to_this_one() {
    let (ours, theirs) = (Gateway::new(CONFIG, &[]), Gateway::new(CONFIG, &[]));
    let serving = theirs.serve("127.0.0.1:0", &[]);
    let token = token(&ours, "cam-9");
    let output = enroll(&ours, &serving, &token).fail();
    assert!(output.contains("certificate is not from this aggregator"), "{output}");
    assert!(!serving.process.output().contains("enrolment refused"), "{}", serving.process.output());
}

/// `aggregator enroll` under terms.
fn enroll_under(gateway: &Gateway, device: &str, terms: &[&str]) {
    let (dir, out) = (gateway.text("gw"), gateway.text("."));
    let args = [&["enroll", "--dir", &dir, "--out", &out], terms, &[device]].concat();
    Process::start("enroll", "aggregator", &args).succeed();
}

#[test]
fn a_running_device_renews_its_certificate_before_it_expires() {
    let gateway = Gateway::new(CONFIG, &[]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    // Good for 17 seconds.
    enroll_under(&gateway, "cam-1", &["--days", "0.0002"]);
    let identity = gateway.identity("cam-1");
    let first = fs::read_to_string(&identity).unwrap();
    let mut device = gateway.device(&serving, "cam-1", "0/5", &[]);
    device.wait_line("identity renewed");
    let second = fs::read_to_string(&identity).unwrap();
    assert_ne!(first, second);
    assert_eq!(fs::metadata(&identity).unwrap().permissions().mode() & 0o777, 0o600);

    // The connection ends with the certificate it was opened with; the device comes back with the new one.
    device.wait_line("link lost");
    wait_for("the device to come back", || (device.output().matches("joined as").count() >= 2).then_some(()));
    fs::write(gateway.path("first.pem"), &first).unwrap();
    let first = gateway.text("first.pem");
    let args = ["run", "--server", &serving.address, "--identity", &first, "--device", "cam-1"];
    let output = Process::start("expired", "edge-client", &args).fail();
    assert!(output.contains("E32") || output.contains("E30"), "{output}");
    assert!(device.is_running());
    let renewed = gateway.wait_committed(3);
    assert!(renewed["committed"].as_u64() >= Some(3), "rounds go on");
    assert!(!serving.process.output().contains("PRIVATE"), "a key is in the log");
    device.terminate();
    device.succeed();
}

#[test]
fn a_certificate_allows_some_tiers_only() {
    let gateway = Gateway::new(CONFIG, &[]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    enroll_under(&gateway, "cam-1", &["--tiers", "3,4"]);
    let mut device = gateway.device(&serving, "cam-1", "0/5", &[]);
    let joined = device.wait_line("joined as");
    assert!(joined.starts_with("tier 3"), "the widest one that is allowed, not {joined}");
    device.terminate();
    device.succeed();

    // Its memory is enough for narrow tiers, its certificate for the widest.
    enroll_under(&gateway, "cam-2", &["--tiers", "0"]);
    let output = gateway.device(&serving, "cam-2", "1/5", &["--ram", "16k"]).fail();
    assert!(output.contains("E42") && output.contains("--tiers"), "{output}");

    // Tokens carry terms, too.
    let dir = gateway.text("gw");
    let args = ["token", "--dir", &dir, "--tiers", "4", "cam-3"];
    let token = Process::start("token", "aggregator", &args).succeed();
    enroll(&gateway, &serving, token.trim()).succeed();
    let mut device = gateway.device(&serving, "cam-3", "2/5", &[]);
    let joined = device.wait_line("joined as");
    assert!(joined.starts_with("tier 4"), "{joined}");
}
