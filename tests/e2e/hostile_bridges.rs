//! Hostile boards and gateways at the ends of a bridge, and what a hostile bridge can find out.

use std::{fs, net::SocketAddr, time::Duration};

use aggregator::{ca::Authority, quic};
use common::{
    sealed::{CHALLENGE, HAIL, REFUSED, SEAL_OVERHEAD, SEAL_VERSION, SEALED, STRANGER},
    wire,
};
use fleet::{
    board::Board,
    gateway::Gateway,
    process::{Process, wait_for},
    raw::{Raw, packet, tls},
};

const CONFIG: &str = "run = { rounds = 1000000, min_devices = 1 }";

fn enroll_board(gateway: &Gateway, name: &str) {
    let (dir, out) = (gateway.text("gw"), gateway.text("."));
    Process::start("enroll", "gateway", &["enroll", "--dir", &dir, "--out", &out, "--serial", name])
        .succeed();
}

/// A gateway and a board that send packets of every kind to each other.
#[test]
fn only_the_kinds_that_they_need_pass_between_board_and_gateway() {
    let gateway = Gateway::new(CONFIG, &["bridge"]);
    enroll_board(&gateway, "m4");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let authority = Authority::open(&gateway.path("gw")).unwrap();
    let endpoint = runtime.block_on(async {
        quic::listen_as(&authority, SocketAddr::from(([127, 0, 0, 1], 0)), &[wire::BRIDGE_ALPN]).unwrap()
    });
    let (address, socket) = (endpoint.local_addr().unwrap().to_string(), gateway.text("boards.sock"));
    let (identity, port) = (gateway.text("bridge.pem"), format!("unix:{socket}"));
    let args = ["bridge", "--server", &address, "--identity", &identity, "--port", &port];
    let mut bridge = Process::start("bridge", "device", &args);
    let connection =
        runtime.block_on(async { endpoint.accept().await.unwrap().accept().unwrap().await.unwrap() });
    bridge.wait_line("connected to");
    let mut board = Board::plug(&gateway.path("m4.board"), &gateway.path("boards.sock"));
    // The bridge reports that there was no session; then its stream is open.
    wait_for("the bridge", || board.next_packet().filter(|packet| packet[..] == [STRANGER]));

    // Up: each packet is followed by one that is always forwarded, so that nothing is still in flight.
    board.put(&[SEALED, 0xff]);
    let (mut send, mut receive) = runtime.block_on(connection.accept_bi()).unwrap();
    let mut up = vec![];
    for kind in 0..=255 {
        board.put(&[kind, 7, 7, 7]);
        board.put(&[SEALED, kind]);
        loop {
            let packet = runtime.block_on(packet(&mut receive)).unwrap();
            if packet[..] == [SEALED, kind] {
                break;
            }
            if packet.len() == 4 {
                up.push(packet[0]);
            }
        }
    }
    assert_eq!(up, [HAIL, SEALED]);

    // Down: includes packets with samples and with requests for the board's status.
    let mut down = vec![];
    for kind in 0..=255 {
        for bytes in [&[kind, 7, 7, 7][..], &[SEALED, kind]] {
            let framed = [&wire::frame_prefix(bytes.len())[..], bytes].concat();
            runtime.block_on(send.write_all(&framed)).unwrap();
        }
        loop {
            let packet = wait_for("the bridge", || board.next_packet());
            if packet[..] == [SEALED, kind] {
                break;
            }
            down.push(packet[0]);
        }
    }
    assert_eq!(down, [CHALLENGE, SEALED, STRANGER, REFUSED]);
    assert!(bridge.is_running());
}

#[test]
fn a_bridge_cannot_find_out_which_boards_are_enrolled() {
    let gateway = Gateway::new(CONFIG, &["bridge", "m6"]);
    enroll_board(&gateway, "m4");
    enroll_board(&gateway, "m5");
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let revoked = Process::start("revoke", "gateway", &["revoke", "--dir", &gateway.text("gw"), "m5"]);
    revoked.succeed();
    let mut tls = tls(&fs::read(gateway.identity("bridge")).unwrap(), false);
    tls.alpn_protocols = vec![wire::BRIDGE_ALPN.to_vec()];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut raw = Raw::connect(&serving.address, tls).await.unwrap();
        let mut challenges = vec![];
        for version in 1..=SEAL_VERSION {
            // An enrolled board, a revoked one, a device that is not a board, and an unknown name.
            for name in ["m4", "m5", "m6", "m7", "m4", "m7"] {
                raw.frame(&[&[HAIL, version][..], &[7; 16], name.as_bytes()].concat()).await;
                let challenge = raw.hear_bytes().await.unwrap();
                assert_eq!((challenge[0], challenge.len()), (CHALLENGE, 33), "{name}, version {version}");
                challenges.push(challenge);
                // The answers that follow do not differ either.
                raw.frame(&[SEALED; 40]).await;
                assert_eq!(raw.hear_bytes().await.unwrap(), [STRANGER], "{name}, version {version}");
            }
        }
        let all = challenges.len();
        challenges.sort();
        challenges.dedup();
        assert_eq!(challenges.len(), all, "a repeated challenge reveals something");
        raw.leave().await;
    });
    // The gateway logs the names.
    wait_for("a line in the log", || {
        serving.process.output().lines().any(|line| line.contains("not enrolled (last: m")).then_some(())
    });
}

#[test]
fn sessions_of_one_board_are_bounded() {
    let gateway = Gateway::new(CONFIG, &["bridge"]);
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    enroll_board(&gateway, "m4");
    let (bridge, port) = (gateway.text("bridge.pem"), format!("unix:{}", gateway.text("boards.sock")));
    let args = ["bridge", "--server", &serving.address, "--identity", &bridge, "--port", &port];
    let mut bridge = Process::start("bridge", "device", &args);
    bridge.wait_line("connected to");
    // Three boards use the key of one.
    let [mut first, mut second, mut third] =
        [(); 3].map(|()| Board::plug(&gateway.path("m4.board"), &gateway.path("boards.sock")));
    first.join();
    second.join();
    third.join();
    first.wait_lost();
    assert!(bridge.is_running(), "the bridge must keep running for its other boards");
    serving.process.wait_line("dropped: E36");
}

#[test]
fn a_bridge_rejects_long_packets_and_does_not_flood_the_log() {
    let gateway = Gateway::new(CONFIG, &["bridge"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let mut tls = tls(&fs::read(gateway.identity("bridge")).unwrap(), false);
    tls.alpn_protocols = vec![wire::BRIDGE_ALPN.to_vec()];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut raw = Raw::connect(&serving.address, tls.clone()).await.unwrap();
        // It is refused at once, not after all bytes have arrived.
        raw.write(&wire::frame_prefix(wire::MAX_CONTROL + SEAL_OVERHEAD + 1)).await;
        assert_eq!(raw.hear().await, None, "the connection stays open");
        raw.leave().await;

        let mut raw = Raw::connect(&serving.address, tls).await.unwrap();
        let nobody = [&[HAIL, SEAL_VERSION][..], &[7; 16], b"nobody"].concat();
        for _ in 0..100 {
            raw.frame(&nobody).await;
        }
        // `wait_line` would block this thread, which has to keep sending.
        while !serving.process.output().contains("connections refused: ") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        raw.leave().await;
    });
    let output = serving.process.output();
    // Tests log at debug level; an operator does not see these lines.
    let said = |line: &&str| line.contains("nobody") && !line.contains(" DEBUG ");
    let lines: Vec<_> = output.lines().filter(said).collect();
    assert!(matches!(lines[..], [line] if line.contains("not enrolled (last: nobody")), "{output}");
}
