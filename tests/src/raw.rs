//! A device under the control of a test: frames and bytes over real QUIC, without a Session.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use common::{
    Budget, Code, Codec, TransferId,
    message::{
        Assignment, DataSummary, Fetch, Hello, Offer, Refusal, Scalars, ToAggregator, ToDevice, Welcome,
    },
    wire::{self, Frame},
};
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream, TransportConfig};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::process::PATIENCE;

/// An open connection with its control stream.
#[derive(Debug)]
pub struct Raw {
    endpoint: Endpoint,
    connection: Connection,
    control: SendStream,
    receive: RecvStream,
}

/// How a connection ended.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Fate {
    /// The last refusal that was received.
    pub refusal: Option<Refusal>,
    /// The code the connection was closed with.
    pub closed: Option<Code>,
}

/// TLS with or without an own certificate.
pub fn tls(identity: &[u8], anonymous: bool) -> rustls::ClientConfig {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(identity).map(Result::unwrap).collect();
    let [device, authority] = <[_; 2]>::try_from(certificates).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority).unwrap();
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
    let mut tls = if anonymous {
        builder.with_no_client_auth()
    } else {
        builder.with_client_auth_cert(vec![device], PrivateKeyDer::from_pem_slice(identity).unwrap()).unwrap()
    };
    tls.alpn_protocols = vec![wire::ALPN.to_vec()];
    tls
}

impl Raw {
    pub async fn connect(server: &str, tls: rustls::ClientConfig) -> Result<Self, ConnectionError> {
        Self::connect_over(server, tls, TransportConfig::default()).await
    }

    /// Connects with this transport configuration.
    pub async fn connect_over(
        server: &str,
        tls: rustls::ClientConfig,
        transport: TransportConfig,
    ) -> Result<Self, ConnectionError> {
        let server: SocketAddr = server.parse().unwrap();
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let connecting = endpoint.connect_with(config, server, wire::SERVER_NAME).unwrap();
        let connection = in_time("a connection", connecting).await?;
        let (control, receive) = in_time("a stream", connection.open_bi()).await?;
        Ok(Self { endpoint, connection, control, receive })
    }

    /// Writes bytes to the control stream.
    pub async fn write(&mut self, bytes: &[u8]) {
        // The aggregator may have closed the connection already; the test checks its reason.
        let _ = self.control.write_all(bytes).await;
    }

    /// Writes a frame with its length prefix.
    pub async fn frame(&mut self, frame: &[u8]) {
        self.write(&[&wire::frame_prefix(frame.len())[..], frame].concat()).await;
    }

    pub async fn say(&mut self, message: &ToAggregator) {
        let frame = control(message);
        self.frame(&frame).await;
    }

    /// Ends the control stream.
    pub fn stop_talking(&mut self) {
        let _ = self.control.finish();
    }

    /// Sends an update in one chunk, on its own stream.
    pub async fn upload(&mut self, transfer: TransferId, offset: u32, data: &[u8]) {
        let mut frame = vec![0; data.len() + wire::CHUNK_OVERHEAD];
        wire::encode_chunk(transfer, offset, data.len(), &mut frame, |to| to.copy_from_slice(data)).unwrap();
        let mut stream = self.connection.open_uni().await.unwrap();
        stream.write_all(&[&wire::frame_prefix(frame.len())[..], &frame].concat()).await.unwrap();
        stream.finish().unwrap();
    }

    /// Continues with another socket, like a device whose address changes. Returns the old and the new port.
    pub fn rebind(&self) -> [u16; 2] {
        let port = || self.endpoint.local_addr().unwrap().port();
        let before = port();
        self.endpoint.rebind(std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap()).unwrap();
        [before, port()]
    }

    /// The next message; `None` at the end of the stream.
    pub async fn hear(&mut self) -> Option<ToDevice> {
        let frame = self.hear_bytes().await?;
        match Frame::decode(&frame).unwrap() {
            Frame::Control(body) => Some(wire::control(body).unwrap().0),
            Frame::Chunk { .. } => panic!("a chunk on the control stream"),
        }
    }

    /// The next packet with a length prefix; `None` at the end of the stream.
    pub async fn hear_bytes(&mut self) -> Option<Vec<u8>> {
        in_time("an answer", packet(&mut self.receive)).await
    }

    /// Skips messages until one is of the wanted kind.
    pub async fn hear_until<T>(&mut self, what: &str, wanted: impl Fn(&ToDevice) -> Option<T>) -> T {
        loop {
            match self.hear().await {
                Some(message) => {
                    if let Some(found) = wanted(&message) {
                        return found;
                    }
                }
                None => panic!("the aggregator hung up before {what}: {:?}", self.connection.close_reason()),
            }
        }
    }

    /// Listens until the aggregator closes the connection.
    pub async fn fate(mut self) -> Fate {
        let mut refusal = None;
        while let Some(message) = self.hear().await {
            if let ToDevice::Refusal(said) = message {
                refusal = Some(said);
            }
        }
        let closed = match in_time("the end", self.connection.closed()).await {
            ConnectionError::ApplicationClosed(close) => code(close.error_code.into_inner()),
            _ => None,
        };
        Fate { refusal, closed }
    }

    /// Closes the connection, so that the aggregator knows at once.
    pub async fn leave(self) {
        self.connection.close(0u32.into(), b"");
        in_time("the connection to close", self.endpoint.wait_idle()).await;
    }

    /// Says Hello and waits for the answer.
    pub async fn join(&mut self, hello: Hello) -> Welcome {
        self.say(&ToAggregator::Hello(hello)).await;
        let welcome = |message: &ToDevice| match message {
            ToDevice::Welcome(welcome) => Some(welcome.clone()),
            _ => None,
        };
        self.hear_until("Welcome", welcome).await
    }

    /// Waits for an Assignment.
    pub async fn assignment(&mut self) -> Assignment {
        self.say(&ToAggregator::Ready).await;
        let assignment = |message: &ToDevice| match message {
            ToDevice::Assignment(assignment) => Some(assignment.clone()),
            _ => None,
        };
        self.hear_until("an Assignment", assignment).await
    }

    /// Requests the model and returns its stream, which the test may read or not.
    pub async fn fetch(&mut self, assignment: &Assignment) -> RecvStream {
        let fetch = Fetch { transfer: assignment.model.transfer, offset: 0 };
        self.say(&ToAggregator::Fetch(fetch)).await;
        in_time("a model", self.connection.accept_uni()).await.unwrap()
    }

    /// Offers an update, and sends it if the aggregator asks for it. Returns the code of the receipt.
    pub async fn deliver(&mut self, offer: &Offer, update: &[u8]) -> Option<Code> {
        self.say(&ToAggregator::Offer(offer.clone())).await;
        loop {
            match self.hear().await {
                Some(ToDevice::Fetch(fetch)) => {
                    let rest = &update[fetch.offset as usize..];
                    self.upload(fetch.transfer, fetch.offset, rest).await;
                }
                Some(ToDevice::Receipt(receipt)) if receipt.ticket == offer.ticket => return receipt.refused,
                Some(_) => {}
                None => panic!("the aggregator hung up before a receipt"),
            }
        }
    }
}

/// The next packet with a length prefix.
pub async fn packet(stream: &mut RecvStream) -> Option<Vec<u8>> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).await.ok()?;
    let len = u32::from_le_bytes(prefix) as usize;
    assert!(len <= wire::MAX_FRAME, "{len} bytes");
    let mut packet = vec![0; len];
    stream.read_exact(&mut packet).await.ok()?;
    Some(packet)
}

/// The Hello of a device with ample resources, for the built-in digits.
pub fn hello(device: &str) -> Hello {
    Hello {
        device: device.parse().unwrap(),
        budget: Budget::UNLIMITED,
        data: DataSummary {
            train_samples: 10,
            test_samples: 0,
            inputs: 64,
            classes: 10,
            ..DataSummary::default()
        },
        max_chunk: 64 << 10,
        max_nodes: 64,
    }
}

/// The offer of an honest device after training, with its update.
pub fn honest(assignment: &Assignment, welcome: &Welcome) -> (Offer, Vec<u8>) {
    let update = vec![0.0; welcome.plan.params as usize];
    let mut bytes = vec![0; Codec::F32.encoded_len(update.len()).unwrap() as usize];
    Codec::F32.encode(&update, 0, 0, &mut bytes).unwrap();
    let scalars = Scalars {
        samples: 10,
        loss_before: 2.3,
        loss_after: None,
        test: None,
        steps: 1,
        ..Scalars::default()
    };
    let transfer = TransferId(assignment.ticket.round);
    let offer = Offer {
        ticket: assignment.ticket,
        update: common::message::Blob { transfer, bytes: bytes.len() as u32, check: 0 },
        model_check: assignment.model.check,
        scalars,
    };
    (offer, bytes)
}

/// A message as a frame.
pub fn control(message: &ToAggregator) -> Vec<u8> {
    let mut frame = vec![0; wire::MAX_CONTROL];
    let len = wire::encode_control(message, &mut frame).unwrap();
    frame.truncate(len);
    frame
}

fn code(number: u64) -> Option<Code> {
    Code::of(u16::try_from(number).ok()?)
}

pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE.min(Duration::from_secs(60)), future).await {
        Ok(value) => value,
        Err(_) => panic!("timed out waiting for {what}"),
    }
}
