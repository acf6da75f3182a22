//! Boards behind a real bridge: enrolment and revocation of boards and bridges, and allowed tiers.

use std::{fs, os::unix::fs::PermissionsExt};

use common::{Code, Tier, wire};
use fleet::{
    board::Board,
    gateway::{Gateway, Serving},
    process::{Process, wait_for, wait_until},
    raw::{Raw, tls},
};

const CONFIG: &str = "run = { rounds = 1000000, min_devices = 1 }";

/// An aggregator with a bridge that boards can connect to.
struct Village {
    gateway: Gateway,
    serving: Serving,
    bridge: Process,
}

impl Village {
    fn new() -> Self {
        let gateway = Gateway::new(CONFIG, &["bridge"]);
        let serving = gateway.serve("127.0.0.1:0", &[]);
        let mut bridge = start_bridge(&gateway, &serving);
        bridge.wait_line("connected to");
        Self { gateway, serving, bridge }
    }

    /// Enrols a board with these options and connects it.
    fn board(&self, name: &str, grant: &[&str]) -> Board {
        let (dir, out) = (self.gateway.text("gw"), self.gateway.text("."));
        let args = [&["enroll", "--dir", &dir, "--out", &out, "--serial"], grant, &[name]].concat();
        Process::start("enroll", "gateway", &args).succeed();
        self.plug(name)
    }

    fn plug(&self, name: &str) -> Board {
        let identity = self.gateway.path(&format!("{name}.board"));
        Board::plug(&identity, &self.gateway.path("boards.sock"))
    }

    fn revoke(&self, devices: &[&str]) -> Process {
        let dir = self.gateway.text("gw");
        Process::start("revoke", "gateway", &[&["revoke", "--dir", &dir], devices].concat())
    }

    fn log(&self) -> String {
        self.serving.process.output()
    }
}

fn start_bridge(gateway: &Gateway, serving: &Serving) -> Process {
    let (identity, port) = (gateway.text("bridge.pem"), format!("unix:{}", gateway.text("boards.sock")));
    let args = [
        "bridge",
        "--server",
        &serving.address,
        "--identity",
        &identity,
        "--port",
        &port,
        "--leave-after",
        "0",
    ];
    Process::start("bridge", "device", &args)
}

#[test]
fn a_revoked_board_loses_its_session_and_cannot_open_another() {
    let mut village = Village::new();
    let (mut revoked, mut stays) = (village.board("m4", &[]), village.board("m5", &[]));
    revoked.join();
    stays.join();
    let output = village.revoke(&["m4"]).succeed();
    assert!(output.contains("revoked m4"), "{output}");
    assert!(!village.gateway.path("gw/identity/serial/m4.key").exists());
    revoked.wait_lost();
    assert_eq!(revoked.hail(), Err(Code::UnknownDevice));
    let output = village.revoke(&["m4"]).fail();
    assert!(output.contains("m4 is not enrolled"), "{output}");

    stays.say(&common::message::ToAggregator::Ready);
    assert!(!matches!(stays.hear(), fleet::board::Answer::Lost), "another board is cut off as well");
    assert!(village.bridge.is_running());
    let log = village.log();
    assert!(log.contains("dropped: E30"), "{log}");

    // Enrolling again creates another key; the old session is not valid under it.
    let mut anew = village.board("m5", &["--replace"]);
    stays.wait_lost();
    anew.join();
}

#[test]
fn a_board_revoked_between_hail_and_hello_cannot_join() {
    let village = Village::new();
    let mut board = village.board("m4", &[]);
    board.hail().unwrap();
    village.revoke(&["m4"]).succeed();
    let hello = board.hello();
    board.say(&hello);
    board.wait_lost();
    assert_eq!(board.hail(), Err(Code::UnknownDevice));
    assert!(!village.log().contains("joined over a serial line"), "{}", village.log());
}

#[test]
fn a_board_with_older_firmware_joins() {
    let village = Village::new();
    drop(village.board("m4", &[]));
    let (identity, socket) = (village.gateway.path("m4.board"), village.gateway.path("boards.sock"));
    let mut board = Board::plug_older(&identity, &socket);
    board.join();
    board.say(&common::message::ToAggregator::Ready);
    assert!(matches!(board.hear(), fleet::board::Answer::Message(_)));
    wait_for("a log line about the old version", || village.log().contains("seal version 1").then_some(()));
    village.revoke(&["m4"]).succeed();
    board.wait_lost();
    assert_eq!(board.hail(), Err(Code::UnknownDevice));
}

#[test]
fn a_revoked_bridge_is_disconnected() {
    let Village { gateway, serving: mut aggregator, bridge } = Village::new();
    let dir = gateway.text("gw");
    Process::start("revoke", "gateway", &["revoke", "--dir", &dir, "bridge"]).succeed();
    let output = bridge.fail();
    assert!(output.contains("E30"), "{output}");
    let output = start_bridge(&gateway, &aggregator).fail();
    assert!(output.contains("E30"), "{output}");
    assert!(aggregator.process.is_running());
}

#[test]
fn connections_of_a_bridge_are_bounded() {
    let gateway = Gateway::new(CONFIG, &["bridge"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let mut tls = tls(&fs::read(gateway.identity("bridge")).unwrap(), false);
    tls.alpn_protocols = vec![wire::BRIDGE_ALPN.to_vec()];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut raws = vec![];
        for count in 1..=3 {
            raws.push(Raw::connect(&serving.address, tls.clone()).await.unwrap());
            // The connection counts when the aggregator logs it.
            wait_until("the bridge's connection", async || {
                (serving.process.output().matches("bridge connected").count() >= count).then_some(())
            })
            .await;
        }
        let fate = raws.remove(0).fate().await;
        assert_eq!(fate.closed, Some(Code::Displaced), "{fate:?}");
        for raw in raws {
            raw.leave().await;
        }
    });
}

#[test]
fn a_bridge_renews_its_certificate_before_it_expires() {
    let gateway = Gateway::new(CONFIG, &[]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let (dir, out) = (gateway.text("gw"), gateway.text("."));
    // Valid for 17 seconds.
    let args = ["enroll", "--dir", &dir, "--out", &out, "--days", "0.0002", "bridge"];
    Process::start("enroll", "gateway", &args).succeed();
    let first = fs::read_to_string(gateway.identity("bridge")).unwrap();
    let mut bridge = start_bridge(&gateway, &serving);
    bridge.wait_line("identity renewed");
    assert_ne!(fs::read_to_string(gateway.identity("bridge")).unwrap(), first);
    // The connection ends when the certificate expires with which it was opened.
    wait_for("the bridge to come back", || {
        (bridge.output().matches("connected to").count() >= 2).then_some(())
    });
    assert!(bridge.is_running());
}

#[test]
fn a_boards_key_is_limited_to_tiers_and_a_time() {
    let village = Village::new();
    let welcome = village.board("m4", &["--tiers", "3,4"]).join();
    assert_eq!(welcome.tier, Tier::new(3).unwrap(), "the widest allowed tier");

    // Valid for 17 seconds, or longer on a machine that takes longer to join.
    let mut board = ["0.0002", "0.0004", "0.0008"]
        .iter()
        .find_map(|days| {
            let mut board = village.board("m5", &["--days", days]);
            board.try_join().ok().map(|_| board)
        })
        .expect("a board joins before its key expires");
    board.wait_lost();
    assert_eq!(board.hail(), Err(Code::UnknownDevice));

    // A key file of an earlier program, without a grant.
    let mut board = village.board("m6", &["--tiers", "4"]);
    let file = village.gateway.path("gw/identity/serial/m6.key");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.lines().next().unwrap()).unwrap();
    assert_eq!(board.join().tier, Tier::new(0).unwrap());
}

#[test]
fn a_boards_key_is_readable_by_the_owner_alone_and_in_no_log() {
    let village = Village::new();
    let mut board = village.board("m4", &[]);
    board.join();
    for file in ["m4.board", "gw/identity/serial/m4.key"] {
        let mode = fs::metadata(village.gateway.path(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let key = board.identity().key;
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{:?}", &key[..8]);
    // The logs are complete once the processes have ended.
    let Village { gateway: _dir, serving, bridge } = village;
    for (process, said) in [(bridge, "connected to"), (serving.process, "joined over a serial line")] {
        process.terminate();
        let log = process.succeed();
        assert!(log.contains(said), "{log}");
        assert!(!log.to_lowercase().contains(&hex) && !log.contains(list.trim_end_matches(']')), "{log}");
    }
}
