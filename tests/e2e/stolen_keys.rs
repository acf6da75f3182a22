//! Limits of the authority: stolen server keys, names that are enrolled twice, and restored backups.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use aggregator::{
    ca::{Authority, GrantOptions},
    quic,
};
use common::{DeviceId, enrol, wire};
use fleet::{
    gateway::{Gateway, Serving, files},
    process::{Process, wait_for},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};

const CONFIG: &str = "run = { rounds = 1000000, min_devices = 1 }";

fn aggregator(args: &[&str]) -> Process {
    Process::start(args[0], "gateway", args)
}

fn copy(from: &Path, to: &Path) {
    for (path, content) in files(from) {
        let to = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, content).unwrap();
    }
}

fn certificate(bundle: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&fs::read(bundle).unwrap()).unwrap()
}

/// The answer of a thief to a device that renews its certificate.
#[derive(Copy, Clone, Debug)]
enum Trick {
    /// A certificate and an authority of its own.
    OwnAuthority,
    /// A certificate of its own authority, together with the true authority's certificate.
    OwnCertificate,
    /// The certificate that the device has presented: signed by the true authority, but for the old key.
    OldCertificate,
}

/// Serves with a stolen server key, but without the key of the authority.
async fn steal(endpoint: quinn::Endpoint, rogue: Authority, ca: String, present: String, trick: Trick) {
    while let Some(incoming) = endpoint.accept().await {
        let Ok(connection) = incoming.await else { continue };
        let Ok((mut send, mut receive)) = connection.accept_bi().await else { continue };
        let question = receive.read_to_end(wire::MAX_CONTROL).await.unwrap();
        let question: enrol::EnrolRequest = wire::message(&question).unwrap();
        let name: DeviceId = "cam-1".parse().unwrap();
        let token = rogue.token(&name, Duration::from_secs(60), GrantOptions::default()).unwrap();
        let hex = token.split(':').nth(1).unwrap();
        let secret = std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap());
        let certificates = rogue.redeem(&secret, &question.key).unwrap().unwrap().bundle;
        let own = certificates.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap().to_owned();
        let answer = match trick {
            Trick::OwnAuthority => certificates,
            Trick::OwnCertificate => own + &ca,
            Trick::OldCertificate => present.clone() + &ca,
        };
        send.write_all(answer.as_bytes()).await.unwrap();
        send.finish().unwrap();
        connection.closed().await;
    }
}

#[test]
fn a_thief_of_the_server_key_cannot_replace_the_authority_of_a_device() {
    for trick in [Trick::OwnAuthority, Trick::OwnCertificate, Trick::OldCertificate] {
        let gateway = Gateway::new(CONFIG, &["cam-1"]);
        let stolen = Authority::open(&gateway.path("gw")).unwrap();
        let rogue = Authority::create(&gateway.path("rogue")).unwrap();
        let ca = fs::read_to_string(gateway.path("gw/identity/ca.crt")).unwrap();
        let present = fs::read_to_string(gateway.path("gw/identity/devices/cam-1.crt")).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _inside = runtime.enter();
        let server = quic::listen_as(&stolen, ([127, 0, 0, 1], 0).into(), &[enrol::ALPN]).unwrap();
        let address = server.local_addr().unwrap().to_string();
        runtime.spawn(steal(server, rogue, ca, present, trick));
        let identity = gateway.text("cam-1.pem");
        let before = fs::read(&identity).unwrap();
        let renew = ["renew", "--server", &address, "--identity", &identity];
        let output = Process::start("renew", "device", &renew).fail();
        assert!(output.contains("it is refused and the identity stays as it is"), "{trick:?}: {output}");
        assert!(fs::read(&identity).unwrap() == before, "{trick:?}: the identity was replaced");
        // The identity still works.
        let serving = gateway.serve("127.0.0.1:0", &[]);
        gateway.device(&serving, "cam-1", "0/5", &[]).wait_line("joined as");
    }
}

fn join(gateway: &Gateway, serving: &Serving, device: &str) {
    let mut process = gateway.device(serving, device, "0/5", &[]);
    process.wait_line("joined as");
    process.terminate();
    process.succeed();
}

#[test]
fn a_stolen_server_key_is_worth_nothing_once_devices_have_seen_the_next_one() {
    let gateway = Gateway::new(CONFIG, &["cam-1", "later"]);
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    join(&gateway, &serving, "cam-1");
    // The thief has the whole directory, so that only the certificate's age distinguishes it from the true server.
    copy(&gateway.path("gw/identity"), &gateway.path("thief/identity"));
    fs::copy(gateway.path("gw/fairtier.toml"), gateway.path("thief/fairtier.toml")).unwrap();
    let dir = gateway.text("gw");
    aggregator(&["rotate-server-key", "--dir", &dir]).succeed();
    serving.process.wait_line("the server has a new certificate");
    join(&gateway, &serving, "cam-1");
    let memory = gateway.path("cam-1.pem.server");
    assert_eq!(fs::metadata(&memory).unwrap().permissions().mode() & 0o777, 0o600);

    let thief_dir = gateway.text("thief");
    let mut thief = aggregator(&["serve", "--dir", &thief_dir, "--listen", "127.0.0.1:0"]);
    let address = thief.wait_line("listening on ");
    let thief = Serving { process: thief, address };
    // This device was enrolled after the key was replaced, and has not connected yet.
    gateway.enroll(&["fresh"]);
    for name in ["cam-1", "fresh"] {
        let output = gateway.device(&thief, name, "0/5", &["--give-up-after", "1"]).fail();
        assert!(output.contains("older than one that this device has seen"), "{name}: {output}");
        assert!(!output.contains("joined as"), "{name}: {output}");
    }
    let identity = gateway.text("cam-1.pem");
    let renew = ["renew", "--server", &thief.address, "--identity", &identity];
    let output = Process::start("renew", "device", &renew).fail();
    assert!(output.contains("older than one that this device has seen"), "{output}");
    assert!(!thief.process.output().contains("device=cam-1"), "{}", thief.process.output());

    // A renewed identity also knows the new key, even if the file beside it that records it is lost.
    let renew = ["renew", "--server", &serving.address, "--identity", &identity];
    Process::start("renew", "device", &renew).succeed();
    fs::remove_file(&memory).unwrap();
    let output = gateway.device(&thief, "cam-1", "0/5", &["--give-up-after", "1"]).fail();
    assert!(output.contains("older than one that this device has seen"), "{output}");
    join(&gateway, &serving, "cam-1");
    // Not defended: a device that has not seen the new key.
    join(&gateway, &thief, "later");
}

/// Older programs left server certificates without a time of issue, and identities that record none.
#[test]
fn a_device_of_an_older_gateway_survives_a_new_server_key() {
    let gateway = Gateway::of_format_4();
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    let join = |serving: &Serving| {
        let mut device = gateway.device(serving, "c", "2/40", &[]);
        device.wait_line("joined as");
    };
    join(&serving);
    assert!(!gateway.path("c.pem.server").exists());
    let dir = gateway.text("gw");
    aggregator(&["rotate-server-key", "--dir", &dir]).succeed();
    serving.process.wait_line("the server has a new certificate");
    join(&serving);
    assert!(gateway.path("c.pem.server").exists());
    drop(serving);
    join(&gateway.serve("127.0.0.1:0", &[]));
}

#[test]
fn only_one_of_two_concurrent_enrolments_of_a_name_succeeds() {
    let gateway = Gateway::new(CONFIG, &[]);
    let (dir, out) = (gateway.text("gw"), gateway.text("."));
    for round in 0..5 {
        let name = format!("cam-{round}");
        let enroll = |more: &[&str]| {
            let args = [&["enroll", "--dir", &dir, "--out", &out], more, &[&name]].concat();
            [(); 4].map(|()| aggregator(&args)).map(Process::finish)
        };
        let agree = || {
            let held = certificate(&gateway.path(&format!("gw/identity/devices/{name}.crt")));
            assert_eq!(certificate(&gateway.identity(&name)), held, "bundle and certificate differ");
        };
        let ended = enroll(&[]);
        agree();
        let (won, lost): (Vec<_>, Vec<_>) = ended.iter().partition(|(status, _)| status.success());
        assert_eq!((won.len(), lost.len()), (1, 3), "{ended:?}");
        assert!(lost.iter().all(|(_, output)| output.contains("--replace")), "{lost:?}");
        assert!(enroll(&["--replace"]).iter().all(|(status, _)| status.success()));
        agree();
    }
}

#[test]
fn an_enrolled_name_is_replaced_only_on_request() {
    let gateway = Gateway::new(CONFIG, &["cam-1"]);
    let (dir, out) = (gateway.text("gw"), gateway.text("."));
    let before = fs::read(gateway.identity("cam-1")).unwrap();
    for args in [
        &["enroll", "--dir", &dir, "--out", &out, "cam-1"][..],
        &["enroll", "--dir", &dir, "--out", &out, "cam-2", "cam-1"],
        &["enroll", "--dir", &dir, "--out", &out, "--serial", "cam-1"],
        &["token", "--dir", &dir, "cam-1"],
    ] {
        let output = aggregator(args).fail();
        assert!(output.contains("cam-1 is already enrolled") && output.contains("--replace"), "{output}");
    }
    assert!(fs::read(gateway.identity("cam-1")).unwrap() == before);
    assert!(!gateway.path("cam-1.board").exists() && !gateway.path("cam-2.pem").exists());

    // A token from before the name was enrolled.
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let token = aggregator(&["token", "--dir", &dir, "cam-2"]).succeed();
    gateway.enroll(&["cam-2"]);
    let elsewhere = gateway.text("gw");
    let args = ["enroll", "--server", &serving.address, "--token", token.trim(), "--out", &elsewhere];
    let output = Process::start("enroll", "device", &args).fail();
    assert!(output.contains("E46") && output.contains("--replace"), "{output}");
    let token = aggregator(&["token", "--dir", &dir, "--replace", "cam-2"]).succeed();
    let args = ["enroll", "--server", &serving.address, "--token", token.trim(), "--out", &out];
    Process::start("enroll", "device", &args).succeed();
    join(&gateway, &serving, "cam-2");
}

#[test]
fn a_restored_backup_does_not_bring_back_revoked_devices() {
    let gateway = Gateway::new(CONFIG, &["cam-1", "cam-2"]);
    let dir = gateway.text("gw");
    copy(&gateway.path("gw/identity"), &gateway.path("backup"));
    aggregator(&["revoke", "--dir", &dir, "cam-1"]).succeed();
    fs::remove_dir_all(gateway.path("gw/identity")).unwrap();
    copy(&gateway.path("backup"), &gateway.path("gw/identity"));

    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    let output = gateway.device(&serving, "cam-1", "0/5", &["--leave-after", "0"]).fail();
    assert!(output.contains("E30"), "{output}");
    wait_for("the server to log the file", || {
        let named = |line: &str| {
            line.contains("revoked, but its file is in identity/") && line.contains("device=cam-1")
        };
        serving.process.output().lines().any(named).then_some(())
    });
    assert!(serving.process.is_running());
    join(&gateway, &serving, "cam-2");
    let listed = aggregator(&["members", "--dir", &dir]).succeed();
    let state = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(state("cam-1").contains("restored") && state("cam-2").contains("member"), "{listed}");
    let json = aggregator(&["members", "--dir", &dir, "--format", "json"]).succeed();
    assert!(json.contains(r#""state":"restored""#), "{json}");

    let out = gateway.text(".");
    aggregator(&["enroll", "--dir", &dir, "--out", &out, "--replace", "cam-1"]).succeed();
    join(&gateway, &serving, "cam-1");
}
