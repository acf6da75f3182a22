//! How devices become members, stay so with new keys, and cease to be.

use std::{fs, os::unix::fs::PermissionsExt};

use fleet::{
    gateway::{Gateway, Serving},
    process::Process,
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
