//! How devices are enrolled, renew their keys, and are revoked.

use std::{fs, os::unix::fs::PermissionsExt};

use fleet::{
    gateway::{Gateway, Serving},
    process::{Process, wait_for},
};

const CONFIG: &str = "run = { rounds = 1000000, min_devices = 1 }";

fn token(gateway: &Gateway, device: &str) -> String {
    token_of(gateway, &[device])
}

/// `fairtier gateway token` with options.
fn token_of(gateway: &Gateway, args: &[&str]) -> String {
    let dir = gateway.text("gw");
    let args = [&["token", "--dir", &dir], args].concat();
    Process::start("token", "gateway", &args).succeed().trim().to_owned()
}

fn enroll(gateway: &Gateway, serving: &Serving, token: &str) -> Process {
    let out = gateway.text(".");
    let args = ["enroll", "--server", &serving.address, "--token", token, "--out", &out];
    Process::start("enroll", "device", &args)
}

#[test]
fn a_token_enrols_once_and_the_key_is_renewable_until_revoked() {
    let gateway = Gateway::new(CONFIG, &[]);
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    let token = token(&gateway, "cam-9");
    let enrolling = enroll(&gateway, &serving, &token).succeed();
    let identity = gateway.identity("cam-9");
    let first_key = key_lines(&fs::read_to_string(&identity).unwrap());
    assert_eq!(fs::metadata(&identity).unwrap().permissions().mode() & 0o777, 0o600);
    let again = enroll(&gateway, &serving, &token).fail();
    assert!(again.contains("issues no certificate") && again.contains("valid once"), "{again}");

    let mut device = gateway.device(&serving, "cam-9", "0/5", &[]);
    device.wait_line("joined as");
    let before = fs::read_to_string(&identity).unwrap();
    let renew = ["renew", "--server", &serving.address, "--identity", identity.to_str().unwrap()];
    let renewing = Process::start("renew", "device", &renew).succeed();
    assert_ne!(fs::read_to_string(&identity).unwrap(), before);
    device.terminate();
    let first_log = device.succeed();
    let mut device = gateway.device(&serving, "cam-9", "0/5", &["--leave-after", "0"]);
    device.wait_line("joined as");

    // The earlier certificate is no longer valid once the new one was used.
    fs::write(gateway.path("old.pem"), before).unwrap();
    let old = gateway.text("old.pem");
    let args = [
        "run",
        "--data",
        "digits",
        "--server",
        &serving.address,
        "--identity",
        &old,
        "--device",
        "cam-9",
        "--leave-after",
        "0",
    ];
    let output = Process::start("old", "device", &args).fail();
    assert!(output.contains("E30"), "{output}");

    revoke(&gateway, &["cam-9"]).succeed();
    let output = device.fail();
    assert!(output.contains("E30"), "{output}");
    let revoked = revoke(&gateway, &["cam-9"]).fail();
    assert!(revoked.contains("cam-9 is not enrolled"), "{revoked}");

    assert!(serving.process.is_running());
    let mut secrets = [first_key, key_lines(&fs::read_to_string(&identity).unwrap())].concat();
    secrets.push(token.split(':').nth(1).unwrap().to_owned());
    for log in [&serving.process.output(), &output, &enrolling, &again, &first_log, &renewing] {
        assert!(!log.contains("PRIVATE KEY"), "a key is in the log");
        assert!(secrets.iter().all(|secret| !log.contains(secret)), "a secret is in the log");
    }
}

/// The lines of a bundle that make up its private key.
fn key_lines(bundle: &str) -> Vec<String> {
    let key = bundle.split("BEGIN PRIVATE KEY-----").nth(1).unwrap().split("-----END").next().unwrap();
    key.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn revoke(gateway: &Gateway, devices: &[&str]) -> Process {
    let dir = gateway.text("gw");
    Process::start("revoke", "gateway", &[&["revoke", "--dir", &dir], devices].concat())
}

#[test]
fn a_token_from_before_a_revocation_is_refused() {
    let gateway = Gateway::new(CONFIG, &["cam-1"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let (of_member, of_nobody) = (token_of(&gateway, &["--replace", "cam-1"]), token(&gateway, "cam-9"));
    revoke(&gateway, &["cam-1", "cam-9"]).succeed();
    for token in [of_member, of_nobody] {
        let output = enroll(&gateway, &serving, &token).fail();
        assert!(output.contains("E30"), "{output}");
    }
    let later = token_of(&gateway, &["--replace", "cam-9"]);
    enroll(&gateway, &serving, &later).succeed();
}

#[test]
fn revoking_continues_after_unknown_names() {
    let gateway = Gateway::new(CONFIG, &["cam-1", "cam-2"]);
    let output = revoke(&gateway, &["nobody", "cam-1", "no-one", "cam-2"]).fail();
    assert!(output.contains("nobody is not enrolled; no-one is not enrolled"), "{output}");
    assert!(output.contains("revoked cam-1") && output.contains("revoked cam-2"), "{output}");
    assert_eq!(fs::read_dir(gateway.path("gw/identity/devices")).unwrap().count(), 0);
}

#[test]
fn a_token_is_not_used_up_if_the_identity_cannot_be_saved() {
    let gateway = Gateway::new(CONFIG, &[]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let token = token(&gateway, "cam-9");
    fs::write(gateway.path("file"), "").unwrap();
    for out in ["missing/dir", "file"] {
        let out = gateway.text(out);
        let args = ["enroll", "--server", &serving.address, "--token", &token, "--out", &out];
        let output = Process::start("enroll", "device", &args).fail();
        assert!(output.contains(&out), "{output}");
    }
    enroll(&gateway, &serving, &token).succeed();
    assert!(!gateway.path("cam-9.pem~").exists());
}

#[test]
fn enroll_writes_private_files_and_keeps_the_old_ones_on_failure() {
    let gateway = Gateway::new(CONFIG, &["cam-1"]);
    let mode = |file: &str| fs::metadata(gateway.path(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("cam-1.pem"), 0o600);
    // Also if it replaces a file that all users could read.
    fs::set_permissions(gateway.path("cam-1.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    enroll_with(&gateway, "cam-1", &["--replace"]);
    assert_eq!(mode("cam-1.pem"), 0o600);
    enroll_with(&gateway, "m4", &["--serial"]);
    assert_eq!((mode("m4.board"), mode("gw/identity/serial/m4.key")), (0o600, 0o600));

    let certificate = || fs::read(gateway.path("gw/identity/devices/cam-1.crt")).unwrap();
    let before = certificate();
    fs::create_dir_all(gateway.path("out/cam-1.pem")).unwrap();
    let (dir, out) = (gateway.text("gw"), gateway.text("out"));
    let args = ["enroll", "--dir", &dir, "--out", &out, "--replace", "cam-1"];
    let output = Process::start("enroll", "gateway", &args).fail();
    assert!(output.contains("cam-1.pem"), "{output}");
    assert!(certificate() == before, "the old certificate was replaced");
}

#[test]
fn a_token_is_not_sent_to_the_gateway_of_another_fleet() {
    let (ours, theirs) = (Gateway::new(CONFIG, &[]), Gateway::new(CONFIG, &[]));
    let serving = theirs.serve("127.0.0.1:0", &[]);
    let token = token(&ours, "cam-9");
    let output = enroll(&ours, &serving, &token).fail();
    assert!(output.contains("is --server the gateway that made this identity or token?"), "{output}");
    assert!(!serving.process.output().contains("enrolment refused"), "{}", serving.process.output());
}

/// `fairtier gateway enroll` with these options.
fn enroll_with(gateway: &Gateway, device: &str, grant: &[&str]) {
    let (dir, out) = (gateway.text("gw"), gateway.text("."));
    let args = [&["enroll", "--dir", &dir, "--out", &out], grant, &[device]].concat();
    Process::start("enroll", "gateway", &args).succeed();
}

#[test]
fn a_running_device_renews_its_certificate_before_it_expires() {
    let gateway = Gateway::new(CONFIG, &[]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    // Valid for 17 seconds.
    enroll_with(&gateway, "cam-1", &["--days", "0.0002"]);
    let identity = gateway.identity("cam-1");
    let first = fs::read_to_string(&identity).unwrap();
    let mut device = gateway.device(&serving, "cam-1", "0/5", &[]);
    device.wait_line("identity renewed");
    let second = fs::read_to_string(&identity).unwrap();
    assert_ne!(first, second);
    assert_eq!(fs::metadata(&identity).unwrap().permissions().mode() & 0o777, 0o600);

    // The connection ends when the certificate expires with which it was opened; the device returns with the new one.
    device.wait_line("link lost");
    wait_for("the device to come back", || (device.output().matches("joined as").count() >= 2).then_some(()));
    fs::write(gateway.path("first.pem"), &first).unwrap();
    let first = gateway.text("first.pem");
    let args =
        ["run", "--data", "digits", "--server", &serving.address, "--identity", &first, "--device", "cam-1"];
    // The gateway's clock may be wrong, so this does not end the process.
    let mut expired = Process::start("expired", "device", &args);
    expired.wait_line("refused: E32");
    expired.wait_line("refused: E32");
    assert!(expired.is_running());
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
    enroll_with(&gateway, "cam-1", &["--tiers", "3,4"]);
    let mut device = gateway.device(&serving, "cam-1", "0/5", &[]);
    let joined = device.wait_line("joined as");
    assert!(joined.starts_with("tier 3"), "the widest allowed tier, not {joined}");
    device.terminate();
    device.succeed();

    // Its memory suffices for narrow tiers only, and its certificate allows only the widest.
    enroll_with(&gateway, "cam-2", &["--tiers", "0"]);
    let output = gateway.device(&serving, "cam-2", "1/5", &["--ram", "16k"]).fail();
    assert!(output.contains("E42") && output.contains("--tiers"), "{output}");

    // Tokens can carry a grant, too.
    let dir = gateway.text("gw");
    let args = ["token", "--dir", &dir, "--tiers", "4", "cam-3"];
    let token = Process::start("token", "gateway", &args).succeed();
    enroll(&gateway, &serving, token.trim()).succeed();
    let mut device = gateway.device(&serving, "cam-3", "2/5", &[]);
    let joined = device.wait_line("joined as");
    assert!(joined.starts_with("tier 4"), "{joined}");
}
