//! Floods from many addresses, and bridges that carry more than boards: what they may cost, and whom they keep out.

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use common::{sealed, wire};
use fleet::{
    board::Board,
    gateway::Gateway,
    process::{Process, wait_for},
    raw::{Raw, tls},
};
use quinn::Endpoint;

use crate::gates::{client, is_refused};

const CONFIG: &str = "run = { rounds = 1000000, min_devices = 2 }";

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Strangers who knock without end.
pub struct Siege {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Siege {
    /// One stranger for each of `hosts`, the last byte of its address. Returns when many of them have been refused, however
    /// slow the machine is.
    pub fn begin(server: &str, identity: &[u8], hosts: &'static [u8]) -> Self {
        let server: SocketAddr = server.parse().unwrap();
        let (over, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (config, done, count) = (client(tls(identity, true)), over.clone(), refused.clone());
        let flood = async move {
            let mut strangers = tokio::task::JoinSet::new();
            for &last in hosts {
                let (config, over, refused) = (config.clone(), done.clone(), count.clone());
                let endpoint = Endpoint::client(([127, 0, 0, last], 0).into()).unwrap();
                strangers.spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        let connecting =
                            endpoint.connect_with(config.clone(), server, wire::SERVER_NAME).unwrap();
                        let refusals = usize::from(connecting.await.is_err_and(|error| is_refused(&error)));
                        refused.fetch_add(refusals, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                });
            }
            strangers.join_all().await;
        };
        let thread = thread::spawn(move || block_on(flood));
        wait_for("the flood to be refused", || (refused.load(Ordering::Relaxed) > 50).then_some(()));
        Self { over, thread }
    }

    pub fn end(self) {
        assert!(!self.thread.is_finished(), "the flood has dried up");
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

#[test]
fn who_was_here_comes_back_while_many_addresses_flood_the_gateway() {
    let config = format!("{CONFIG}\nserver = {{ max_handshakes_per_s = 16 }}");
    let gateway = Gateway::new(&config, &["good-0"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let identity = fs::read(gateway.identity("good-0")).unwrap();
    let connect = || Raw::connect(&serving.address, tls(&identity, false));
    block_on(async { connect().await.unwrap().leave().await });
    let siege = Siege::begin(&serving.address, &identity, &[2, 3, 4, 5, 6, 2, 3, 4, 5, 6]);
    block_on(async {
        for attempt in 0..10 {
            let joined = connect().await.unwrap_or_else(|error| panic!("attempt {attempt}: {error}"));
            joined.leave().await;
            // At any time of a second: a quarter of its handshakes is for this address.
            tokio::time::sleep(Duration::from_millis(430)).await;
        }
    });
    siege.end();
}

#[test]
fn sessions_of_one_board_are_bounded() {
    let gateway = Gateway::new(CONFIG, &["bridge"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let (dir, out) = (gateway.text("gw"), gateway.text("."));
    Process::start("enroll", "gateway", &["enroll", "--dir", &dir, "--out", &out, "--serial", "m4"])
        .succeed();
    let (bridge, port) = (gateway.text("bridge.pem"), format!("unix:{}", gateway.text("boards.sock")));
    let args = ["bridge", "--server", &serving.address, "--identity", &bridge, "--port", &port];
    let mut bridge = Process::start("bridge", "device", &args);
    bridge.wait_line("connected to");
    // Whoever has read out the key of one board.
    let [mut first, mut second, mut third] =
        [(); 3].map(|()| Board::plug(&gateway.path("m4.page"), &gateway.path("boards.sock")));
    first.join();
    second.join();
    third.join();
    first.wait_lost();
    assert!(bridge.is_running(), "the other boards of a bridge have nothing to do with it");
    assert!(serving.process.output().contains("dropped: E36"), "{}", serving.process.output());
}

#[test]
fn a_bridge_carries_nothing_longer_than_boards_send_and_fills_no_log() {
    let gateway = Gateway::new(CONFIG, &["bridge"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let mut tls = tls(&fs::read(gateway.identity("bridge")).unwrap(), false);
    tls.alpn_protocols = vec![wire::BRIDGE_ALPN.to_vec()];
    block_on(async {
        let mut raw = Raw::connect(&serving.address, tls.clone()).await.unwrap();
        // It is told at once, not when so many bytes have arrived.
        raw.write(&wire::frame_prefix(wire::MAX_CONTROL + sealed::SEAL_OVERHEAD + 1)).await;
        assert_eq!(raw.hear().await, None, "the line goes on");
        raw.leave().await;

        let mut raw = Raw::connect(&serving.address, tls).await.unwrap();
        let nobody = [&[sealed::HAIL, sealed::SEAL_VERSION][..], &[7; 16], b"nobody"].concat();
        for _ in 0..100 {
            raw.frame(&nobody).await;
        }
        // Not by `wait_line`, which would keep this thread from sending.
        while !serving.process.output().contains("connections refused: ") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        raw.leave().await;
    });
    let output = serving.process.output();
    // Tests show more than an operator sees.
    let said = |line: &&str| line.contains("nobody") && !line.contains(" DEBUG ");
    let lines: Vec<_> = output.lines().filter(said).collect();
    assert!(matches!(lines[..], [line] if line.contains("not enrolled (last: nobody")), "{output}");
}
