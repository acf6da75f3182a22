//! Connections and bytes of strangers and devices are bounded, and honest devices can still join.

use std::{
    fs,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use aggregator::{
    admission::{Admission, DeviceConnections, Limits},
    ca::Authority,
    driver::Driver,
    quic::{self, Context, Timeouts},
    run::{Run, RunEnvironment},
    scales::FleetSchema,
    store::MemoryStore,
};
use common::{
    Code,
    message::{ToAggregator, ToDevice},
    transfer::LinkLimits,
    wire,
};
use fleet::{
    gateway::{Gateway, Serving},
    process::wait_until,
    raw::{Raw, hello, tls},
};
use quinn::{ClientConfig, ConnectionError, Endpoint, TransportConfig};

const DEVICES: [&str; 2] = ["good-0", "good-1"];

/// A gateway with this `server` table. Its run has one round with both devices.
pub(super) fn start_gateway(server: &str) -> (Gateway, Serving) {
    let config = format!("run = {{ rounds = 1, min_devices = 2 }}\nserver = {server}");
    let gateway = Gateway::new(&config, &DEVICES);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    (gateway, serving)
}

/// Both devices finish the run.
pub(super) fn finish(gateway: &Gateway, serving: Serving) {
    let start = |(index, name): (usize, &&str)| gateway.device(&serving, name, &format!("{index}/2"), &[]);
    let devices: Vec<_> = DEVICES.iter().enumerate().map(start).collect();
    devices.into_iter().for_each(|device| _ = device.succeed());
    serving.process.succeed();
    assert_eq!(gateway.history().len(), 1);
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(super) fn is_refused(error: &ConnectionError) -> bool {
    // QUIC's CONNECTION_REFUSED.
    matches!(error, ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) == 2)
}

pub(super) fn client(tls: rustls::ClientConfig) -> ClientConfig {
    ClientConfig::new(Arc::new(quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap()))
}

#[test]
fn refused_connections_are_logged() {
    let (gateway, mut serving) = start_gateway("{ max_connections = 1 }");
    let identity = |device: &str| fs::read(gateway.identity(device)).unwrap();
    block_on(async {
        let mut first = Raw::connect(&serving.address, tls(&identity("good-0"), false)).await.unwrap();
        first.join(hello("good-0")).await;
        for _ in 0..5 {
            let error = Raw::connect(&serving.address, tls(&identity("good-1"), false)).await.map(drop);
            assert!(is_refused(&error.unwrap_err()));
        }
        first.leave().await;
    });
    let refused = serving.process.wait_line("connections refused: ");
    assert!(refused.contains("connections full: raise server.max_connections"), "{refused}");
    let output = serving.process.output();
    assert_eq!(output.matches("connections refused: ").count(), 1, "{output}");
}

/// Runs the server of a gateway in this process, with these timeouts and limits.
fn serve_here(gateway: &Gateway, timeouts: Timeouts, limits: Limits) -> String {
    let authority = Arc::new(Authority::open(&gateway.path("gw")).unwrap());
    let around = RunEnvironment {
        store: Box::new(MemoryStore::default()),
        limits: LinkLimits::QUIC,
        dir: None,
        observer: None,
        now: common::Instant::ZERO,
    };
    let run = Run::open(&strategies::Registry::standard(), &gateway.config(), around).unwrap();
    let driver = Arc::new(Driver::new(run.coordinator, mpsc::channel().0));
    let endpoint = quic::listen(&authority, ([127, 0, 0, 1], 0).into()).unwrap();
    let address = endpoint.local_addr().unwrap().to_string();
    let downloads = tokio::sync::Semaphore::new(1);
    let (admission, devices) = (Admission::new(limits), DeviceConnections::default());
    let schema = Arc::new(FleetSchema::open(None, 1, &gateway.path("scales.json")).unwrap());
    let context = Context { driver, authority, admission, devices, downloads, timeouts, schema };
    tokio::spawn(quic::accept(endpoint, context));
    address
}

#[test]
fn a_silent_connection_is_closed() {
    let gateway = Gateway::new("run = { min_devices = 2 }", &DEVICES);
    let identity = |device: &str| fs::read(gateway.identity(device)).unwrap();
    let timeouts = Timeouts { hello: Duration::from_secs(5), ..Timeouts::default() };
    let limits = Limits { connections: 9, per_address: 9, handshakes: 99 };
    block_on(async {
        let server = serve_here(&gateway, timeouts, limits);
        let mut talks = Raw::connect(&server, tls(&identity("good-0"), false)).await.unwrap();
        talks.join(hello("good-0")).await;
        let start = Instant::now();
        Raw::connect(&server, tls(&identity("good-1"), false)).await.unwrap().fate().await;
        assert!(start.elapsed() >= timeouts.hello, "{:?}", start.elapsed());
        // The device that has said Hello stays connected.
        talks.say(&ToAggregator::Ready).await;
        talks.hear_until("Wait", |said| matches!(said, ToDevice::Wait(_)).then_some(())).await;
    });
}

#[test]
fn an_unfinished_handshake_frees_its_slot() {
    let gateway = Gateway::new("run = { min_devices = 2 }", &DEVICES);
    let identity = fs::read(gateway.identity("good-0")).unwrap();
    let timeouts = Timeouts { handshake: Duration::from_secs(5), ..Timeouts::default() };
    let limits = Limits { connections: 9, per_address: 1, handshakes: 99 };
    block_on(async {
        let server = serve_here(&gateway, timeouts, limits);
        // Only the first packet arrives; all others are dropped in both directions.
        let deaf = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let to = deaf.local_addr().unwrap();
        let _connecting =
            endpoint.connect_with(client(tls(&identity, false)), to, wire::SERVER_NAME).unwrap();
        let mut packet = [0; 2048];
        let len = deaf.recv(&mut packet).await.unwrap();
        let start = Instant::now();
        // Packets to one socket arrive in the order of sending, so this one arrives before the next handshake.
        deaf.send_to(&packet[..len], &server).await.unwrap();
        let error = Raw::connect(&server, tls(&identity, false)).await.map(drop).unwrap_err();
        assert!(is_refused(&error), "the only slot of this address is taken: {error}");
        wait_until("the slot to be free again", async || {
            Raw::connect(&server, tls(&identity, false)).await.ok()
        })
        .await;
        assert!(start.elapsed() >= timeouts.handshake, "{:?}", start.elapsed());
    });
}

#[test]
fn connections_of_a_device_and_of_an_address_are_bounded() {
    let (gateway, serving) = start_gateway("{ max_per_address = 3 }");
    let identity = |device: &str| fs::read(gateway.identity(device)).unwrap();
    block_on(async {
        let connect = |device: &str| Raw::connect(&serving.address, tls(&identity(device), false));
        let mut raws = vec![];
        for _ in 0..3 {
            // None of them says Hello, which would close the previous connection.
            raws.push(connect("good-0").await.unwrap());
            wait_until("the connection to be accepted", async || {
                let inside = serving.process.output().matches("device=good-0 peer=").count();
                (inside >= raws.len()).then_some(())
            })
            .await;
        }
        // The third connection exceeds the limit and closes the first.
        let fate = raws.remove(0).fate().await;
        assert_eq!(fate.closed, Some(Code::Displaced), "{fate:?}");
        // The slot is free a moment after the connection was closed.
        let third = wait_until("a slot", async || {
            let joined = connect("good-1").await;
            joined.inspect_err(|error| assert!(is_refused(error), "{error}")).ok()
        })
        .await;
        let error = connect("good-1").await.map(drop).unwrap_err();
        assert!(is_refused(&error), "a fourth connection from this address: {error}");
        raws.push(third);
        for raw in raws {
            raw.leave().await;
        }
    });
    finish(&gateway, serving);
}

#[test]
fn an_unauthenticated_peer_cannot_make_the_aggregator_buffer_much() {
    let (gateway, serving) = start_gateway("{}");
    let mut tls = tls(&fs::read(gateway.identity("good-0")).unwrap(), true);
    tls.alpn_protocols = vec![common::enrol::ALPN.to_vec()];
    let sent = block_on(async {
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let server = serving.address.parse().unwrap();
        let connecting = endpoint.connect_with(client(tls), server, wire::SERVER_NAME).unwrap();
        let connection = connecting.await.unwrap();
        let (mut question, _answer) = connection.open_bi().await.unwrap();
        let mut sent = 0;
        while let Ok(bytes) = question.write(&[0; 64 << 10]).await {
            sent += bytes;
        }
        // The connection is closed with a reason; the stream is reset before that.
        let ConnectionError::ApplicationClosed(close) = connection.closed().await else {
            panic!("the connection ended in another way")
        };
        assert_eq!(close.error_code.into_inner(), u64::from(Code::BadMessage.number()));
        sent
    });
    assert!(sent <= 1 << 20, "{sent} bytes were accepted");
    finish(&gateway, serving);
}

/// A device that requests the model and does not read it costs one flow-control window, not a copy of the model.
#[test]
fn a_download_that_is_not_read_costs_one_window() {
    let (idle, fetching) = (peak_beside(false), peak_beside(true));
    // Both directions as in the aggregator's `Windows::ROOMY`, and the same again for bookkeeping.
    let windows = 2 * DEAF as u64 * (384 << 10);
    let copies = DEAF as u64 * 4 * WIDE_PARAMETERS;
    assert!(4 * windows < copies, "the test could not detect copies of the model");
    println!("peak of {idle} bytes beside {DEAF} idle devices, of {fetching} if they fetch");
    assert!(
        fetching < idle + windows + NOISE,
        "{idle} bytes with {DEAF} idle devices, {fetching} if they fetch"
    );
}

/// Devices that do not read.
const DEAF: usize = 24;
const WIDE: &str = "mlp:64-1400-1400-10";
const WIDE_PARAMETERS: u64 = 65 * 1400 + 1401 * 1400 + 1401 * 10;
/// Difference between two identical runs: some arenas of the allocator.
const NOISE: u64 = 24 << 20;

/// Runs two rounds with one honest device beside devices that take no part. With `fetching`, those request a model
/// that they never read. Returns the aggregator's peak memory.
fn peak_beside(fetching: bool) -> u64 {
    let deaf: Vec<String> = (0..DEAF).map(|index| format!("deaf-{index:02}")).collect();
    let names: Vec<&str> = deaf.iter().map(String::as_str).chain(["good-0"]).collect();
    let config = format!(
        "run = {{ rounds = 2, min_devices = {} }}\nround = {{ quorum = 0.01, deadline_s = 4 }}\n\
         model = {{ source = \"{WIDE}\", tiers = [1.0] }}",
        names.len()
    );
    let gateway = Gateway::new(&config, &names);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let connect = |name: &str| {
        let mut transport = TransportConfig::default();
        // A few packets may arrive, and they are acknowledged.
        transport.stream_receive_window(4096u32.into()).keep_alive_interval(Some(Duration::from_secs(2)));
        let identity = fs::read(gateway.identity(name)).unwrap();
        let address = serving.address.clone();
        async move { Raw::connect_over(&address, tls(&identity, false), transport).await.unwrap() }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let held = runtime.block_on(async {
        let mut raws = vec![];
        for name in &deaf {
            let mut raw = connect(name).await;
            raw.join(hello(name)).await;
            raws.push(raw);
        }
        let honest = gateway.device(&serving, "good-0", "0/5", &[]);
        let mut held = vec![];
        for mut raw in raws {
            let assignment = raw.assignment().await;
            assert_eq!(u64::from(assignment.model.bytes), 4 * WIDE_PARAMETERS);
            let stream = if fetching { Some(raw.fetch(&assignment).await) } else { None };
            held.push((raw, stream));
        }
        (honest, held)
    });
    let status = gateway.wait_committed(2);
    let devices = status["last_round"]["devices"].as_array().unwrap();
    assert!(devices.iter().all(|line| line["device"] == "good-0") && devices.len() == 1, "{status}");
    let (honest, held) = held;
    let peak = serving.process.peak();
    honest.succeed();
    runtime.block_on(async {
        for (raw, stream) in held {
            // The stream was open until now, so the aggregator could have sent more if the device had read it.
            if let Some(mut stream) = stream {
                assert!(stream.read(&mut [0; 64]).await.unwrap() > Some(0));
            }
            raw.leave().await;
        }
    });
    peak
}
