//! Floods of handshakes are refused, and devices can still join.

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::wire;
use fleet::{
    gateway::Gateway,
    process::wait_for,
    raw::{Raw, tls},
};
use quinn::Endpoint;

use super::admission::{block_on, client, finish, is_refused, start_gateway};

/// Repeats handshakes without a certificate, one after the other from every socket.
struct Flood {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Flood {
    /// Uses one socket for each of these addresses, given by their last byte. Returns once many handshakes have been
    /// refused, so that it works on slow machines, too.
    fn start(server: SocketAddr, identity: &[u8], addresses: &[u8]) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let refused = Arc::new(AtomicUsize::new(0));
        let (config, addresses) = (client(tls(identity, true)), addresses.to_vec());
        let counters = (over.clone(), refused.clone());
        let flood = async move {
            let mut strangers = tokio::task::JoinSet::new();
            for last in addresses {
                let (config, (over, refused)) = (config.clone(), counters.clone());
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

    fn end(self) {
        assert!(!self.thread.is_finished(), "the flood has ended");
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

#[test]
fn a_flood_of_handshakes_is_refused_and_devices_still_get_in() {
    let (gateway, serving) = start_gateway("{ max_handshakes_per_s = 4 }");
    let identity = fs::read(gateway.identity("good-0")).unwrap();
    let start = Instant::now();
    let (mut attempts, mut refused) = (0, 0);
    // Even on a slow machine, many of them fall into the same second.
    while refused < 20 && attempts < 400 {
        attempts += 40;
        refused += block_on(async {
            let mut strangers = tokio::task::JoinSet::new();
            for _ in 0..40 {
                let (address, tls) = (serving.address.clone(), tls(&identity, true));
                strangers.spawn(async move { Raw::connect(&address, tls).await.map(drop) });
            }
            let ended = strangers.join_all().await;
            ended.iter().filter(|end| end.as_ref().is_err_and(is_refused)).count()
        });
    }
    assert!(refused >= 20, "{refused} of {attempts} were refused");
    // Every second that has begun allows four.
    let room = 4 * (start.elapsed().as_secs() as usize + 2);
    assert!(
        refused < attempts && attempts - refused <= room,
        "{refused} of {attempts} were refused, {room} are allowed"
    );
    finish(&gateway, serving);
}

#[test]
fn devices_join_while_another_address_floods_the_gateway() {
    let (gateway, serving) = start_gateway("{ max_handshakes_per_s = 8 }");
    let identity = fs::read(gateway.identity("good-0")).unwrap();
    let flood = Flood::start(serving.address.parse().unwrap(), &identity, &[2; 4]);
    block_on(async {
        for attempt in 0..6 {
            // This address keeps its share of the handshakes during the flood.
            let joined = Raw::connect(&serving.address, tls(&identity, false)).await;
            joined.unwrap_or_else(|error| panic!("attempt {attempt}: {error}")).leave().await;
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    });
    finish(&gateway, serving);
    flood.end();
}

#[test]
fn a_recent_address_comes_back_while_many_addresses_flood_the_gateway() {
    let config = "run = { rounds = 1000000, min_devices = 2 }\nserver = { max_handshakes_per_s = 16 }";
    let gateway = Gateway::new(config, &["good-0"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let identity = fs::read(gateway.identity("good-0")).unwrap();
    let connect = || Raw::connect(&serving.address, tls(&identity, false));
    block_on(async { connect().await.unwrap().leave().await });
    let flood = Flood::start(serving.address.parse().unwrap(), &identity, &[2, 3, 4, 5, 6, 2, 3, 4, 5, 6]);
    block_on(async {
        for attempt in 0..10 {
            let joined = connect().await.unwrap_or_else(|error| panic!("attempt {attempt}: {error}"));
            joined.leave().await;
            // Works at any time of a second: a recent address has a reserved share.
            tokio::time::sleep(Duration::from_millis(430)).await;
        }
    });
    flood.end();
}
