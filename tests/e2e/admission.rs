//! Connections and bytes of strangers and devices are bounded, and devices still come in.

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

/// A gateway with this table `server`, whose run takes one round of both devices.
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
    // CONNECTION_REFUSED of QUIC.
    matches!(error, ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) == 2)
}

pub(super) fn client(tls: rustls::ClientConfig) -> ClientConfig {
    ClientConfig::new(Arc::new(quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap()))
}

#[test]
fn an_operator_hears_that_devices_were_refused() {
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

/// The server of one gateway in this process, with waits and limits of our own.
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
    let context = Context { driver, authority, admission, devices, downloads, timeouts };
    tokio::spawn(quic::accept(endpoint, context));
    address
}

#[test]
fn who_connects_and_says_nothing_is_let_go() {
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
        // Whoever has spoken stays.
        talks.say(&ToAggregator::Ready).await;
        talks.hear_until("Wait", |said| matches!(said, ToDevice::Wait(_)).then_some(())).await;
    });
}

#[test]
fn who_never_ends_its_handshake_loses_its_place() {
    let gateway = Gateway::new("run = { min_devices = 2 }", &DEVICES);
    let identity = fs::read(gateway.identity("good-0")).unwrap();
    let timeouts = Timeouts { handshake: Duration::from_secs(5), ..Timeouts::default() };
    let limits = Limits { connections: 9, per_address: 1, handshakes: 99 };
    block_on(async {
        let server = serve_here(&gateway, timeouts, limits);
        // The first packet arrives, and no other, either way.
        let deaf = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let to = deaf.local_addr().unwrap();
        let _connecting =
            endpoint.connect_with(client(tls(&identity, false)), to, wire::SERVER_NAME).unwrap();
        let mut packet = [0; 2048];
        let len = deaf.recv(&mut packet).await.unwrap();
        let start = Instant::now();
        // Packets to one socket arrive in the order in which they were sent: this one comes before the next handshake.
        deaf.send_to(&packet[..len], &server).await.unwrap();
        let error = Raw::connect(&server, tls(&identity, false)).await.map(drop).unwrap_err();
        assert!(is_refused(&error), "the only place of this address is taken: {error}");
        wait_until("the place to be free again", async || {
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
            // None says Hello, which would displace the one before.
            raws.push(connect("good-0").await.unwrap());
            wait_until("the connection to be in", async || {
                let inside = serving.process.output().matches("device=good-0 peer=").count();
                (inside >= raws.len()).then_some(())
            })
            .await;
        }
        // The third makes the first one too many.
        let fate = raws.remove(0).fate().await;
        assert_eq!(fate.closed, Some(Code::Displaced), "{fate:?}");
        // Its place is free a moment after it was closed.
        let third = wait_until("a place", async || {
            let joined = connect("good-1").await;
            joined.inspect_err(|error| assert!(is_refused(error), "{error}")).ok()
        })
        .await;
        let error = connect("good-1").await.map(drop).unwrap_err();
        assert!(is_refused(&error), "a fourth from this address: {error}");
        raws.push(third);
        for raw in raws {
            raw.leave().await;
        }
    });
    finish(&gateway, serving);
}

#[test]
fn who_has_proved_nothing_can_not_make_the_aggregator_remember_much() {
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
        // It was told why; a reset of the stream comes first.
        let ConnectionError::ApplicationClosed(close) = connection.closed().await else {
            panic!("another end")
        };
        assert_eq!(close.error_code.into_inner(), u64::from(Code::BadMessage.number()));
        sent
    });
    assert!(sent <= 1 << 20, "{sent} bytes were taken");
    finish(&gateway, serving);
}

/// Whoever asks for the model and does not read it costs what may be on its way to one device, not a model.
#[test]
fn who_fetches_and_never_reads_costs_a_window() {
    let (idle, fetching) = (peak_beside(false), peak_beside(true));
    // In either direction, as `Windows::ROOMY` of the aggregator says, and as much again for what keeps account of it.
    let windows = 2 * DEAF as u64 * (384 << 10);
    let copies = DEAF as u64 * 4 * WIDE_PARAMETERS;
    assert!(4 * windows < copies, "copies of the model would be seen");
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
/// By how much two runs alike may differ: some arenas of the allocator.
const NOISE: u64 = 24 << 20;

/// Two rounds with one honest device beside devices that take no part, and perhaps fetch a model that they never read.
/// Gives the most memory that the aggregator had.
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
        // A few packets may come, and acknowledging them goes on.
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
            // Until now the aggregator could have sent more, if it had been read.
            if let Some(mut stream) = stream {
                assert!(stream.read(&mut [0; 64]).await.unwrap() > Some(0));
            }
            raw.leave().await;
        }
    });
    peak
}
