//! Peers of older and newer protocols: they use the newest common version, or wait for an upgrade.

use aggregator::{ca::Authority, quic::listen_as};
use common::{
    Code, Versions,
    message::{ToAggregator, ToDevice, Welcome},
    wire::{self, Frame},
};
use fleet::{
    gateway::{Gateway, lasting_address},
    process::Process,
    raw::{Raw, control, hello, in_time, tls},
};

const CONFIG: &str = "run = { rounds = 1000000, min_devices = 1 }";

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(future)
}

/// Sends a Hello with or without versions on a connection with these protocols. Returns the Welcome and its tail.
async fn greet(
    gateway: &Gateway,
    server: &str,
    protocols: &[&[u8]],
    versions: Option<Versions>,
) -> Result<(Welcome, Option<u8>), Code> {
    let mut tls = tls(&std::fs::read(gateway.identity("cam-1")).unwrap(), false);
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let mut raw = Raw::connect(server, tls).await.unwrap();
    let hello = ToAggregator::Hello(hello("cam-1"));
    match versions {
        Some(versions) => {
            let mut frame = [0; wire::MAX_CONTROL];
            let len = wire::encode_control(&(hello, versions), &mut frame).unwrap();
            raw.frame(&frame[..len]).await;
        }
        None => raw.frame(&control(&hello)).await,
    }
    let frame = raw.hear_bytes().await.unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&frame) else { panic!("no message") };
    match wire::control(body).unwrap() {
        (ToDevice::Welcome(welcome), tail) => {
            raw.leave().await;
            Ok((welcome, wire::tail(tail)))
        }
        (ToDevice::Refusal(refusal), _) => {
            assert_eq!((refusal.need, refusal.have), (4, versions.unwrap().newest.into()));
            Err(refusal.code)
        }
        (other, _) => panic!("{other:?}"),
    }
}

#[test]
fn a_gateway_speaks_with_devices_of_older_and_newer_protocols() {
    let gateway = Gateway::new(CONFIG, &["cam-1"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let address = &serving.address;
    block_on(async {
        // Protocol 4: its frames, and no tail in the answer, which it could not read.
        let (_, tail) = greet(&gateway, address, &[wire::ALPN_4], None).await.unwrap();
        assert_eq!(tail, None);
        let both = [wire::ALPN, wire::ALPN_4];
        for (newest, agreed) in [(4, 4), (5, 5), (6, 6), (7, 7), (8, 8), (200, 8)] {
            let versions = Versions { oldest: 4, newest };
            let (_, tail) = greet(&gateway, address, &both, Some(versions)).await.unwrap();
            assert_eq!(tail, Some(agreed));
        }
        for versions in [Versions { oldest: 1, newest: 3 }, Versions { oldest: 9, newest: 10 }] {
            let refused = greet(&gateway, address, &both, Some(versions)).await;
            assert_eq!(refused.unwrap_err(), Code::WrongVersion);
        }
    });
}

/// Runs a server with the gateway's certificate that speaks `protocol`. Returns the first frame of a device.
async fn first_frame(gateway: &Gateway, protocol: &[u8]) -> Vec<u8> {
    let authority = Authority::open(&gateway.path("gw")).unwrap();
    let endpoint = listen_as(&authority, ([127, 0, 0, 1], 0).into(), &[protocol]).unwrap();
    let server = endpoint.local_addr().unwrap().to_string();
    let identity = gateway.text("cam-1.pem");
    let args = ["run", "--server", &server, "--identity", &identity, "--share", "0/5", "--data", "digits"];
    let _device = Process::start("cam-1", "device", &args);
    let connection = in_time("a device", endpoint.accept()).await.unwrap().await.unwrap();
    let (_send, mut receive) = in_time("a stream", connection.accept_bi()).await.unwrap();
    let mut prefix = [0; 4];
    receive.read_exact(&mut prefix).await.unwrap();
    let mut frame = vec![0; wire::frame_len(prefix, wire::MAX_CONTROL).unwrap()];
    receive.read_exact(&mut frame).await.unwrap();
    frame
}

#[test]
fn a_device_speaks_protocol_4_with_older_gateways() {
    let gateway = Gateway::new(CONFIG, &["cam-1"]);
    block_on(async {
        let frame = first_frame(&gateway, wire::ALPN_4).await;
        let Ok(Frame::Control(body)) = Frame::decode(&frame) else { panic!("no message") };
        // Protocol 4 is strict: trailing bytes are an error.
        let hello = wire::message::<ToAggregator>(body).unwrap();
        assert!(matches!(hello, ToAggregator::Hello(_)));
        let frame = first_frame(&gateway, wire::ALPN).await;
        let Ok(Frame::Control(body)) = Frame::decode(&frame) else { panic!("no message") };
        let (_, tail) = wire::control::<ToAggregator>(body).unwrap();
        assert_eq!(wire::tail(tail), Some(Versions::OURS));
    });
}

#[test]
fn a_device_waits_for_a_gateway_without_a_common_version() {
    let gateway = Gateway::new(CONFIG, &["cam-1"]);
    let mut device = block_on(async {
        let authority = Authority::open(&gateway.path("gw")).unwrap();
        let endpoint = listen_as(&authority, lasting_address().parse().unwrap(), &[b"fairtier/99"]).unwrap();
        let server = endpoint.local_addr().unwrap().to_string();
        let identity = gateway.text("cam-1.pem");
        let args =
            ["run", "--server", &server, "--identity", &identity, "--share", "0/5", "--data", "digits"];
        let mut device = Process::start("cam-1", "device", &args);
        for _ in 0..2 {
            let incoming = in_time("a device", endpoint.accept()).await.unwrap();
            assert!(incoming.await.is_err());
        }
        device.wait_line("speaks no version of the protocol that this program knows");
        drop(endpoint);
        (device, server)
    });
    let _serving = gateway.serve(&device.1, &[]);
    device.0.wait_line("joined as");
}
