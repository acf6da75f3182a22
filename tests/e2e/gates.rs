//! What strangers and devices may cost: handshakes, connections and bytes are bounded, and who belongs here still
//! gets in.

use std::{fs, sync::Arc};

use common::Code;
use fleet::{
    gateway::{Gateway, Serving},
    raw::{Raw, hello, tls},
};
use quinn::{ConnectionError, Endpoint};

const DEVICES: [&str; 2] = ["good-0", "good-1"];

fn town(server: &str) -> (Gateway, Serving) {
    let config = format!("run = {{ rounds = 1, min_devices = 2 }}\nserver = {server}");
    let gateway = Gateway::new(&config, &DEVICES);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    (gateway, serving)
}

/// Both devices finish the run.
fn finish(gateway: &Gateway, serving: Serving) {
    let start = |(index, name): (usize, &&str)| gateway.device(&serving, name, &format!("{index}/2"), &[]);
    let devices: Vec<_> = DEVICES.iter().enumerate().map(start).collect();
    devices.into_iter().for_each(|device| _ = device.succeed());
    serving.process.succeed();
    assert_eq!(gateway.history().len(), 1);
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn is_refused(error: &ConnectionError) -> bool {
    // CONNECTION_REFUSED of QUIC.
    matches!(error, ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) == 2)
}

#[test]
fn a_flood_of_handshakes_is_refused_and_devices_still_get_in() {
    let (gateway, serving) = town("{ max_handshakes_per_s = 4 }");
    let identity = fs::read(gateway.identity("good-0")).unwrap();
    let refused = block_on(async {
        let mut strangers = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let (address, tls) = (serving.address.clone(), tls(&identity, true));
            strangers.spawn(async move { Raw::connect(&address, tls).await.map(drop) });
        }
        let ended = strangers.join_all().await;
        ended.iter().filter(|end| end.as_ref().is_err_and(is_refused)).count()
    });
    // They come within a second or two, of which each has room for four.
    assert!((20..40).contains(&refused), "{refused} of 40 were refused");
    finish(&gateway, serving);
}

#[test]
fn connections_of_a_device_and_of_an_address_are_bounded() {
    let (gateway, serving) = town("{ max_per_address = 3 }");
    let identity = |device: &str| fs::read(gateway.identity(device)).unwrap();
    block_on(async {
        let connect = |device: &str| Raw::connect(&serving.address, tls(&identity(device), false));
        let mut raws = vec![];
        for _ in 0..3 {
            let mut raw = connect("good-0").await.unwrap();
            raw.join(hello("good-0")).await;
            raws.push(raw);
        }
        // The third makes the first one too many.
        let fate = raws.remove(0).fate().await;
        assert_eq!(fate.closed, Some(Code::Busy), "{fate:?}");
        let third = loop {
            // Its place is free a moment after it was closed.
            match connect("good-1").await {
                Ok(raw) => break raw,
                Err(error) => assert!(is_refused(&error), "{error}"),
            }
        };
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
    let (gateway, serving) = town("{}");
    let mut tls = tls(&fs::read(gateway.identity("good-0")).unwrap(), true);
    tls.alpn_protocols = vec![common::enrol::ALPN.to_vec()];
    let sent = block_on(async {
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let server = serving.address.parse().unwrap();
        let connecting = endpoint.connect_with(config, server, common::wire::SERVER_NAME).unwrap();
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
