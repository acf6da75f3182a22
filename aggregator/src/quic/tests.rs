use rustls::{
    HandshakeKind, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{
    endpoint::{CONNECTION_ID, PROTOCOLS, tls_config},
    identify::look_up,
    server_certificate::ServerCertificate,
    windows::Windows,
    *,
};
use crate::ca::GrantOptions;

fn client(authority: &Authority, device: Option<&DeviceId>) -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority.root().unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut tls = match device.map(|device| authority.enroll(device).unwrap()) {
        None => builder.with_no_client_auth(),
        Some(bundle) => {
            let certificate = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(bundle.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    tls.alpn_protocols = vec![common::enrol::ALPN.to_vec()];
    tls
}

/// A handshake in memory, with the messages right after it.
fn shake_hands(server: &Arc<rustls::ServerConfig>, client: &Arc<rustls::ClientConfig>) -> HandshakeKind {
    let name = wire::SERVER_NAME.try_into().unwrap();
    let mut client = rustls::ClientConnection::new(client.clone(), name).unwrap();
    let mut server = rustls::ServerConnection::new(server.clone()).unwrap();
    let mut bytes = vec![];
    while client.wants_write() || server.wants_write() {
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut sent = &bytes[..];
        while !sent.is_empty() {
            server.read_tls(&mut sent).unwrap();
            server.process_new_packets().unwrap();
        }
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut sent = &bytes[..];
        while !sent.is_empty() {
            client.read_tls(&mut sent).unwrap();
            client.process_new_packets().unwrap();
        }
        bytes.clear();
    }
    assert!(server.peer_certificates().is_some_and(|chain| !chain.is_empty()));
    server.handshake_kind().unwrap()
}

#[test]
fn a_device_that_reconnects_shows_its_certificate_again() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let device = "cam-1".parse().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = ServerCertificate::new(&authority, &provider).unwrap();
    let server = Arc::new(tls_config(&authority, certificate, &PROTOCOLS).unwrap());
    let client = Arc::new(client(&authority, Some(&device)));
    for _ in 0..3 {
        assert_eq!(shake_hands(&server, &client), HandshakeKind::Full);
    }
}

#[test]
fn a_failing_disk_turns_no_device_away_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let enrolled = |device: &str, grant| {
        let bundle = authority.enroll_with(&device.parse().unwrap(), grant).unwrap();
        CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap()
    };
    let code = |certificate: &CertificateDer<'static>| {
        look_up(Some(certificate.clone()), &authority).map(drop).map_err(|error| error.code())
    };
    let certificate = enrolled("cam-1", GrantOptions::default());
    assert_eq!(code(&certificate), Ok(()));
    let (file, aside) = (dir.path().join("identity/devices/cam-1.crt"), dir.path().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    assert_eq!(code(&certificate), Err(Code::UnknownDevice));
    // A directory cannot be read as a file.
    std::fs::create_dir(&file).unwrap();
    assert_eq!(code(&certificate), Err(Code::NotReady));
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&aside, &file).unwrap();
    assert_eq!(code(&certificate), Ok(()));
    let expired = enrolled("cam-2", GrantOptions { valid_for: Duration::ZERO, ..GrantOptions::default() });
    assert_eq!(code(&expired), Err(Code::BadCertificate));
}

#[test]
fn datagrams_are_not_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(client(&authority, None)).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = listen(&authority, ([127, 0, 0, 1], 0).into()).unwrap();
        let client = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let address = server.local_addr().unwrap();
        let connecting = client.connect_with(config, address, wire::SERVER_NAME).unwrap();
        let (accepted, connected) = tokio::join!(async { server.accept().await.unwrap().await }, connecting);
        let (_open, connected) = (accepted.unwrap(), connected.unwrap());
        assert_eq!(connected.max_datagram_size(), None);
        let sent = connected.send_datagram(bytes::Bytes::from_static(b"anything"));
        assert_eq!(sent, Err(quinn::SendDatagramError::UnsupportedByPeer));
    });
}

#[test]
fn windows_get_shorter_as_the_fleet_grows() {
    let all = [0, 1, 128, 200, 2000, usize::MAX].map(Windows::among);
    assert_eq!((all[0], all[2], all[4]), (Windows::ROOMY, Windows::ROOMY, Windows::TIGHT));
    assert_eq!((all[1], all[5]), (Windows::ROOMY, Windows::TIGHT));
    assert!(all.is_sorted_by_key(|windows| std::cmp::Reverse((windows.receive, windows.send))));
    assert!(all[3].receive < Windows::ROOMY.receive && all[3].receive > Windows::TIGHT.receive);
}

/// Source connection ids of the server's first packets to `clients` clients, read off the wire.
async fn ids_on_the_wire(authority: &Authority, clients: usize) -> Vec<Vec<u8>> {
    let server = listen(authority, ([127, 0, 0, 1], 0).into()).unwrap();
    let to = server.local_addr().unwrap();
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            tokio::spawn(incoming.into_future());
        }
    });
    let mut ids = vec![];
    for _ in 0..clients {
        // A relay: the client speaks to `near`, which passes everything on from `far`.
        let [near, far] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let at = near.local_addr().unwrap();
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(client(authority, None)).unwrap();
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let connecting = endpoint.connect_with(config, at, wire::SERVER_NAME).unwrap();
        let id = tokio::task::spawn_blocking(move || {
            let mut packet = [0; 2048];
            let len = near.recv(&mut packet).unwrap();
            far.send_to(&packet[..len], to).unwrap();
            let len = far.recv(&mut packet).unwrap();
            // | form | version | length, destination id | length, source id | as RFC 9000 has it
            let rest = &packet[5..len];
            let rest = &rest[1 + usize::from(rest[0])..];
            rest[1..1 + usize::from(rest[0])].to_vec()
        });
        ids.push(id.await.unwrap());
        drop(connecting);
    }
    ids
}

#[test]
fn connection_ids_reveal_nothing_about_the_server() {
    use quinn_proto::ConnectionIdGenerator;
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ids = runtime.block_on(ids_on_the_wire(&authority, 4));
    // As earlier versions made them: 3 random bytes, and a short hash of them and of a key that follows from the server's.
    let (_, key) = authority.server().unwrap();
    let secret = [b"fairtier stateless reset", key.secret_der()].concat();
    let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret), b"connection ids");
    let key = u64::from_le_bytes(*tag.as_ref().first_chunk().unwrap());
    let linked = quinn_proto::HashedConnectionIdGenerator::from_key(key);
    for id in &ids {
        assert_eq!(id.len(), CONNECTION_ID);
        assert!(linked.validate(&quinn_proto::ConnectionId::new(id)).is_err(), "{id:?}");
    }
}

#[test]
fn a_new_server_key_is_shown_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let certificate =
        ServerCertificate::new(&authority, &Arc::new(rustls::crypto::ring::default_provider())).unwrap();
    assert!(!certificate.reload().unwrap());
    authority.rotate_server_key().unwrap();
    assert!(certificate.reload().unwrap() && !certificate.reload().unwrap());
    // An unreadable file does not end the server.
    std::fs::write(dir.path().join("identity/server.pem"), "no key").unwrap();
    assert!(certificate.reload().is_err());
}
