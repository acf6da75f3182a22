//! Getting an identity: the device makes its own key, which never leaves it, and trades a token (or its present
//! certificate) for a certificate.
//!
//! The token names the fleet's authority by its SHA-256, so the first connection is as safe as all later ones.

use std::{io, net::SocketAddr, str::FromStr, sync::Arc, time::Duration};

use common::{
    DeviceId,
    enrol::{ALPN, Question},
    wire::SERVER_NAME,
};
use quinn::{Connection, VarInt};
use rustls::{
    DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{
    identity::{Identity, IdentityError},
    quic::{self, LinkError},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Two certificates are far below this.
const MAX_ANSWER: usize = 16 << 10;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    #[error("a token is written as NAME:SECRET:FINGERPRINT, as `aggregator token` prints it")]
    Token,
    #[error("can not open a socket: {0}")]
    Socket(io::Error),
    #[error("the aggregator gives no certificate: {0}; a token is good once and for a limited time")]
    Refused(common::Code),
    #[error("no answer from the aggregator: {0}")]
    Link(String),
    #[error("no key can be made: {0}")]
    Key(#[from] rcgen::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{path}: {source}")]
    Write { path: String, source: io::Error },
}

/// What `aggregator token` prints. Its secret is shown by nothing.
#[derive(Clone)]
pub struct Token {
    pub device: DeviceId,
    secret: [u8; 32],
    authority: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("device", &self.device).finish_non_exhaustive()
    }
}

impl FromStr for Token {
    type Err = EnrolError;

    fn from_str(text: &str) -> Result<Self, EnrolError> {
        let parts: Vec<_> = text.trim().split(':').collect();
        let [device, secret, authority] = parts[..] else { return Err(EnrolError::Token) };
        let device = device.parse().map_err(|_| EnrolError::Token)?;
        let bytes = |text| unhex(text).ok_or(EnrolError::Token);
        Ok(Self { device, secret: bytes(secret)?, authority: bytes(authority)? })
    }
}

/// Trades a token for an identity, as a PEM bundle.
pub async fn enrol(server: SocketAddr, token: &Token) -> Result<String, EnrolError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Pinned { authority: token.authority, provider: provider.clone() });
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    ask(server, tls, Some(token.secret)).await
}

/// Trades the present identity for one with a new key. The present one is good until the new one is used.
pub async fn renew(server: SocketAddr, identity: &Identity) -> Result<String, EnrolError> {
    ask(server, identity.tls().as_ref().clone(), None).await
}

async fn ask(
    server: SocketAddr,
    mut tls: rustls::ClientConfig,
    secret: Option<[u8; 32]>,
) -> Result<String, EnrolError> {
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).map_err(|error| link(&error))?;
    let endpoint = quic::endpoint(server).map_err(EnrolError::Socket)?;
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connecting = endpoint.connect_with(config, server, SERVER_NAME).map_err(|error| link(&error))?;
    let exchange = async {
        let connection = connecting.await.map_err(|error| unproven(&error))?;
        let bundle = trade(&connection, secret).await?;
        connection.close(VarInt::from_u32(0), b"");
        Ok::<_, EnrolError>(bundle)
    };
    let bundle = tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| late())??;
    endpoint.wait_idle().await;
    Ok(bundle)
}

/// Trades the identity of an open connection for one with a new key. The present one is good until the new one is
/// used.
pub(super) async fn renew_on(connection: &Connection) -> Result<String, EnrolError> {
    tokio::time::timeout(PATIENCE, trade(connection, None)).await.map_err(|_| late())?
}

/// Makes a key, asks for its certificate on a stream of its own, and gives both as a bundle.
async fn trade(connection: &Connection, secret: Option<[u8; 32]>) -> Result<String, EnrolError> {
    let key = rcgen::KeyPair::generate()?;
    let public = heapless::Vec::from_slice(rcgen::PublicKeyData::der_bytes(&key)).unwrap_or_default();
    let question = Question { secret, key: public };
    let (mut send, mut receive) = connection.open_bi().await.map_err(refused)?;
    let mut bytes = [0; 128];
    let bytes = postcard::to_slice(&question, &mut bytes).map_err(|error| link(&error))?;
    send.write_all(bytes).await.map_err(|error| link(&error))?;
    send.finish().map_err(|error| link(&error))?;
    let answer = receive
        .read_to_end(MAX_ANSWER)
        .await
        .map_err(|error| connection.close_reason().map_or_else(|| link(&error), refused))?;
    let certificates = String::from_utf8(answer).map_err(|error| link(&error))?;
    let bundle = format!("{certificates}{}", key.serialize_pem());
    // Whatever is written can be used.
    Identity::parse(bundle.as_bytes())?;
    Ok(bundle)
}

fn link(error: &dyn std::error::Error) -> EnrolError {
    EnrolError::Link(error.to_string())
}

fn late() -> EnrolError {
    EnrolError::Link(format!("nothing within {PATIENCE:?}"))
}

fn unproven(error: &quinn::ConnectionError) -> EnrolError {
    EnrolError::Link(LinkError::before_proof(error).to_string())
}

fn refused(error: quinn::ConnectionError) -> EnrolError {
    match LinkError::from(error) {
        LinkError::Refused(code) => EnrolError::Refused(code),
        LinkError::Lost(reason) => EnrolError::Link(reason),
    }
}

/// Trusts the one authority whose certificate has this SHA-256 and is part of what the server shows.
#[derive(Debug)]
struct Pinned {
    authority: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
        let pinned = chain.iter().find(|certificate| digest(certificate).as_ref() == self.authority);
        let unknown = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let mut roots = RootCertStore::empty();
        roots.add(pinned.ok_or_else(unknown)?.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone());
        verifier.build().map_err(|_| unknown())?.verify_server_cert(server, &[], name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_as_they_are_printed() {
        let (secret, authority) = ("0a".repeat(32), "ff".repeat(32));
        let token: Token = format!("cam-1:{secret}:{authority}\n").parse().unwrap();
        assert_eq!((token.device.as_str(), token.secret, token.authority), ("cam-1", [10; 32], [255; 32]));
        let shown = format!("{token:?}");
        assert!(!shown.contains("10") && !shown.contains("0a"), "{shown}");
        for bad in [
            "",
            "cam-1",
            "cam-1:00:00",
            &format!("a b:{secret}:{authority}"),
            &format!("a:{secret}:{authority}:"),
        ] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
    }
}
