//! Text from peers reaches the log on one line, with control characters escaped.

use std::{fs, sync::Arc};

use aggregator::{ca::Authority, quic};
use common::wire;
use fleet::{
    gateway::Gateway,
    process::wait_until,
    raw::{Raw, tls},
};
use quinn::{Connection, Endpoint, VarInt};
use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

const CONFIG: &str = "run = { rounds = 1000000, min_devices = 9 }";
/// A forged log line, and escape sequences that clear a terminal.
const FORGED: &str = "over\r\n2026-01-01T00:00:00.000000Z  INFO joined device=forged\n\u{1b}[2J\u{9b}31m";
const ESCAPED: &str =
    "over\\r\\n2026-01-01T00:00:00.000000Z  INFO joined device=forged\\n\\u{1b}[2J\\u{9b}31m";

fn expect_one_line(log: &str, marker: &str) {
    let line = log.lines().find(|line| line.contains(marker)).unwrap();
    assert!(line.contains(ESCAPED), "{line}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01T00:00:00")), "{log}");
    assert!(!log.contains(['\u{1b}', '\u{9b}', '\r']), "{log}");
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn connect(address: &str, tls: rustls::ClientConfig) -> Result<Connection, quinn::ConnectionError> {
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    endpoint.connect_with(config, address.parse().unwrap(), wire::SERVER_NAME).unwrap().await
}

/// Ends its handshake with a CONNECTION_CLOSE with an arbitrary reason.
#[derive(Debug)]
struct Rude;

impl ServerCertVerifier for Rude {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Err(rustls::Error::General(FORGED.into()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

#[test]
fn the_reason_of_a_stranger_is_one_line_of_the_gateway_s_log() {
    let gateway = Gateway::new(CONFIG, &[]);
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Rude))
        .with_no_client_auth();
    tls.alpn_protocols = vec![wire::ALPN.to_vec()];
    block_on(async { connect(&serving.address, tls).await.unwrap_err() });
    serving.process.wait_line("connections refused: ");
    expect_one_line(&serving.process.output(), "connections refused: ");
}

#[test]
fn the_reasons_of_devices_and_bridges_are_one_line_of_the_gateway_s_log() {
    let gateway = Gateway::new(CONFIG, &["cam-1", "bridge"]);
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    for (name, alpn, joined, marker) in [
        ("cam-1", wire::ALPN, "device=cam-1", "connection ended: "),
        ("bridge", wire::BRIDGE_ALPN, "bridge connected", "bridge is gone: "),
    ] {
        let mut tls = tls(&fs::read(gateway.identity(name)).unwrap(), false);
        tls.alpn_protocols = vec![alpn.to_vec()];
        block_on(async {
            let connection = connect(&serving.address, tls).await.unwrap();
            let (mut send, _receive) = connection.open_bi().await.unwrap();
            send.write_all(&[0]).await.unwrap();
            wait_until("the gateway to log the connection", async || {
                serving.process.output().contains(joined).then_some(())
            })
            .await;
            connection.close(VarInt::from_u32(7), FORGED.as_bytes());
            // Waits until the packet is sent.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        });
        serving.process.wait_line(marker);
        expect_one_line(&serving.process.output(), marker);
    }
}

#[test]
fn the_reason_of_a_server_is_one_line_of_the_device_s_log() {
    let gateway = Gateway::new(CONFIG, &["cam-1"]);
    let authority = Authority::open(&gateway.path("gw")).unwrap();
    let identity = gateway.text("cam-1.pem");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let server = quic::listen_as(&authority, ([127, 0, 0, 1], 0).into(), &[wire::ALPN]).unwrap();
    let address = server.local_addr().unwrap().to_string();
    runtime.spawn(async move {
        while let Some(incoming) = server.accept().await {
            let Ok(connection) = incoming.await else { continue };
            // No `Code` has this number.
            connection.close(VarInt::from_u32(9999), FORGED.as_bytes());
        }
    });
    let args = ["run", "--server", &address, "--identity", &identity, "--share", "0/5", "--data", "digits"];
    let mut device = fleet::process::Process::start("cam-1", "device", &args);
    device.wait_line("link lost (");
    expect_one_line(&device.output(), "link lost (");
}

/// Names of devices are checked when they are decoded. Devices send no other text.
#[test]
fn a_name_with_line_breaks_is_refused() {
    assert!("cam\nforged".parse::<common::DeviceId>().is_err());
    let gateway = Gateway::new(CONFIG, &["cam-1"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let identity = fs::read(gateway.identity("cam-1")).unwrap();
    block_on(async {
        let mut raw = Raw::connect(&serving.address, tls(&identity, false)).await.unwrap();
        let mut frame =
            fleet::raw::control(&common::message::ToAggregator::Hello(fleet::raw::hello("cam-1")));
        let at = frame.windows(5).position(|window| window == b"cam-1").unwrap();
        frame[at + 3] = b'\n';
        let len = frame.len();
        let checksum = wire::crc32(&frame[..len - 4]).to_le_bytes();
        frame[len - 4..].copy_from_slice(&checksum);
        raw.frame(&frame).await;
        raw.fate().await;
    });
    assert!(
        !serving.process.output().lines().any(|line| line.starts_with('1')),
        "{}",
        serving.process.output()
    );
}
