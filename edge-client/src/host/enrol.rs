//! Enrolment: the device generates its own key, which never leaves it, and trades a token (or its present certificate) for a
//! certificate.
//!
//! The token contains the SHA-256 of the fleet's authority, so the first connection is as safe as all later ones. An answer is
//! accepted only if that authority has signed it for this device's name and its new key; a renewal expects the authority of
//! the present identity. So a stolen server key is not enough to issue an identity or to replace the authority.

use std::{io, net::SocketAddr, str::FromStr, sync::Arc, time::Duration};

use common::{
    Code, DeviceId,
    certificate::{self, common_name},
    enrol::{ALPN, EnrolRequest, SERVER_ISSUED},
    printable::printable,
    wire::SERVER_NAME,
};
use quinn::{Connection, ReadError, ReadToEndError, VarInt};
use rustls::{
    RootCertStore,
    client::{
        WebPkiServerVerifier,
        danger::{ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
    sign::CertifiedKey,
};

use super::{
    freshness::digest,
    identity::{Identity, IdentityError, server_certificate},
    quic::{self, LinkError, OLD_SERVER},
    verify::{CertificateCheck, Verifier},
};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest answer in bytes; two certificates are far shorter.
const MAX_ANSWER: usize = 16 << 10;

/// Why a device gets no identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum EnrolError {
    #[error("a token is written as NAME:SECRET:FINGERPRINT, as `fairtier gateway token` prints it")]
    Token,
    #[error("cannot open a socket: {0}")]
    Socket(io::Error),
    #[error("the aggregator issues no certificate: {code}; {advice}", code = .0, advice = advice(*.0))]
    Refused(Code),
    #[error(
        "the answer {0}, so it is refused and the identity stays unchanged; if this persists, the server's key may be \
         stolen: tell the operator of the gateway"
    )]
    Answer(&'static str),
    #[error("no answer from the aggregator: {0}")]
    Link(String),
    #[error("cannot generate a key: {0}")]
    Key(#[from] rcgen::Error),
    #[error("the public key is too long for the protocol")]
    KeyLength,
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{path}: {source}")]
    Write { path: String, source: io::Error },
}

/// A token of `fairtier gateway token`. Its secret is never printed.
#[derive(Clone)]
pub struct Token {
    /// The name that the identity will have.
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
    let check = Pinned { authority: token.authority, provider: provider.clone() };
    let verifier = Arc::new(Verifier { check, provider: provider.clone() });
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let expected = ExpectedAnswer { authority: token.authority, name: token.device.as_str(), server: 0 };
    ask(server, tls, Some(token.secret), &expected, None).await
}

/// Trades the present identity for one with a new key. The present one stays valid until the new one is used.
pub async fn renew(server: SocketAddr, identity: &Identity) -> Result<String, EnrolError> {
    let expected = ExpectedAnswer::of(identity)?;
    ask(server, identity.tls().as_ref().clone(), None, &expected, Some(identity)).await
}

/// What an answer must contain.
struct ExpectedAnswer<'a> {
    /// SHA-256 of the authority's certificate.
    authority: [u8; 32],
    name: &'a str,
    /// Time of issue of the newest known server certificate.
    server: u64,
}

impl<'a> ExpectedAnswer<'a> {
    fn of(identity: &'a Identity) -> Result<Self, EnrolError> {
        let name = identity.name().ok_or(EnrolError::Answer("is for an identity without a name"))?;
        Ok(Self { authority: identity.authority(), name, server: identity.freshness().seen() })
    }

    /// Checks an answer and returns its certificates, without anything else that it contains.
    fn check(&self, answer: &str, key: &rcgen::KeyPair) -> Result<String, EnrolError> {
        let text = certificates_alone(answer);
        let found: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok).collect();
        let [device, authority] =
            <[_; 2]>::try_from(found).map_err(|_| EnrolError::Answer("is not two certificates"))?;
        if digest(&authority) != self.authority {
            return Err(EnrolError::Answer("has another authority than this device trusts"));
        }
        if common_name(&device).as_deref() != Some(self.name) {
            return Err(EnrolError::Answer("is for another device's name"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let verifier = verifier.map_err(|error| link(&error))?;
        // Checked at the time of issue, because the device's clock may be wrong.
        let then = UnixTime::since_unix_epoch(Duration::from_secs(certificate::issued(&device)));
        if verifier.verify_client_cert(&device, &[], then).is_err() {
            return Err(EnrolError::Answer("is not signed by this device's authority"));
        }
        let own = PrivatePkcs8KeyDer::from(key.serialize_der());
        if CertifiedKey::from_der(vec![device], own.into(), &provider).is_err() {
            return Err(EnrolError::Answer("is for another key than this device's new one"));
        }
        Ok(text)
    }
}

/// The lines of PEM certificates, so that nothing else of an answer gets into a bundle.
fn certificates_alone(answer: &str) -> String {
    let (mut text, mut inside) = (String::new(), false);
    for line in answer.lines() {
        inside |= line == "-----BEGIN CERTIFICATE-----";
        if inside {
            text += line;
            text.push('\n');
        }
        inside &= line != "-----END CERTIFICATE-----";
    }
    text
}

async fn ask(
    server: SocketAddr,
    mut tls: rustls::ClientConfig,
    secret: Option<[u8; 32]>,
    expected: &ExpectedAnswer<'_>,
    identity: Option<&Identity>,
) -> Result<String, EnrolError> {
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).map_err(|error| link(&error))?;
    let endpoint = quic::endpoint(server).map_err(EnrolError::Socket)?;
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connecting = endpoint.connect_with(config, server, SERVER_NAME).map_err(|error| link(&error))?;
    let exchange = async {
        let connection = connecting.await.map_err(|error| {
            let old = identity.is_some_and(|identity| identity.freshness().take_refused());
            if old { EnrolError::Link(OLD_SERVER.into()) } else { unproven(&error) }
        })?;
        if let Some(identity) = identity {
            identity.note_server(&connection);
        }
        let bundle = trade(&connection, secret, expected).await?;
        connection.close(VarInt::from_u32(0), b"");
        Ok::<_, EnrolError>(bundle)
    };
    let bundle = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await.map_err(|_| late())??;
    endpoint.wait_idle().await;
    Ok(bundle)
}

/// Like [`renew`], on an open connection.
pub(super) async fn renew_on(connection: &Connection, identity: &Identity) -> Result<String, EnrolError> {
    let expected = ExpectedAnswer::of(identity)?;
    tokio::time::timeout(ANSWER_TIMEOUT, trade(connection, None, &expected)).await.map_err(|_| late())?
}

/// Generates a key, asks for its certificate on a new stream, and returns both as a bundle.
async fn trade(
    connection: &Connection,
    secret: Option<[u8; 32]>,
    expected: &ExpectedAnswer<'_>,
) -> Result<String, EnrolError> {
    let key = rcgen::KeyPair::generate()?;
    let public = heapless::Vec::from_slice(rcgen::PublicKeyData::der_bytes(&key));
    let public = public.map_err(|_| EnrolError::KeyLength)?;
    let question = EnrolRequest { secret, key: public };
    let (mut send, mut receive) = connection.open_bi().await.map_err(refused)?;
    let mut bytes = [0; 128];
    let bytes = postcard::to_slice(&question, &mut bytes).map_err(|error| link(&error))?;
    send.write_all(bytes).await.map_err(|error| link(&error))?;
    send.finish().map_err(|error| link(&error))?;
    let answer = receive.read_to_end(MAX_ANSWER).await.map_err(|error| unanswered(connection, &error))?;
    let answer = String::from_utf8(answer).map_err(|error| link(&error))?;
    let certificates = expected.check(&answer, &key)?;
    let server = server_certificate(connection).map_or(0, |server| certificate::issued(&server));
    let server = server.max(expected.server);
    let bundle = format!("{SERVER_ISSUED}{server}\n{certificates}{}", key.serialize_pem());
    // Checked here, so that no unusable bundle is written.
    Identity::parse(bundle.as_bytes())?;
    Ok(bundle)
}

/// A refusal closes the connection or resets the stream, with its code.
fn unanswered(connection: &Connection, error: &ReadToEndError) -> EnrolError {
    let reset = match error {
        ReadToEndError::Read(ReadError::Reset(code)) => {
            u16::try_from(code.into_inner()).ok().and_then(Code::of)
        }
        _ => None,
    };
    match (reset, connection.close_reason()) {
        (Some(code), _) => EnrolError::Refused(code),
        (None, Some(reason)) => refused(reason),
        (None, None) => link(error),
    }
}

/// The text is escaped, because the peer may have chosen it.
fn link(error: &dyn std::error::Error) -> EnrolError {
    EnrolError::Link(printable(error))
}

fn advice(code: Code) -> &'static str {
    match code {
        Code::AlreadyEnrolled => "`fairtier gateway token --replace` prints a token that may replace it",
        _ => "a token is valid once and for a limited time",
    }
}

fn late() -> EnrolError {
    EnrolError::Link(format!("nothing within {ANSWER_TIMEOUT:?}"))
}

fn unproven(error: &quinn::ConnectionError) -> EnrolError {
    EnrolError::Link(LinkError::before_proof(error).to_string())
}

fn refused(error: quinn::ConnectionError) -> EnrolError {
    match LinkError::from(error) {
        LinkError::Refused(code) => EnrolError::Refused(code),
        other => EnrolError::Link(other.to_string()),
    }
}

/// Trusts only the authority whose certificate has this SHA-256 and is in the server's chain.
#[derive(Debug)]
struct Pinned {
    authority: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl CertificateCheck for Pinned {
    fn check(
        &self,
        server: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = chain.iter().find(|certificate| digest(certificate) == self.authority);
        let unknown = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let mut roots = RootCertStore::empty();
        roots.add(pinned.ok_or_else(unknown)?.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone());
        verifier.build().map_err(|_| unknown())?.verify_server_cert(server, &[], name, &[], now)
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
        Issuer, KeyPair,
    };

    use super::*;

    #[test]
    fn tokens_are_parsed_as_they_are_printed() {
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

    /// An authority, and a certificate of it for a name and a key.
    fn issue(authority: &KeyPair, name: &str, key: &KeyPair) -> [String; 2] {
        let params = |name: &str| {
            let mut params = CertificateParams::new(vec![]).unwrap();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params
        };
        let mut root = params("authority");
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut leaf = params(name);
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        leaf.not_before = rcgen::date_time_ymd(1970, 1, 1);
        let certificate = leaf.signed_by(key, &Issuer::new(root.clone(), authority)).unwrap();
        // The serial number follows from the key, so the certificate is the same every time.
        root.serial_number = Some(7u64.into());
        [certificate.pem(), root.self_signed(authority).unwrap().pem()]
    }

    #[test]
    fn an_answer_must_be_signed_by_the_present_authority_for_this_name_and_key() {
        let [ours, theirs, key, other] = [(); 4].map(|()| KeyPair::generate().unwrap());
        let [certificate, root] = issue(&ours, "cam-1", &key);
        let authority = digest(&CertificateDer::from_pem_slice(root.as_bytes()).unwrap());
        let expected = ExpectedAnswer { authority, name: "cam-1", server: 0 };
        let good = format!("{certificate}{root}");
        assert_eq!(expected.check(&good, &key).unwrap(), good.replace('\r', ""));
        // Everything else in an answer is dropped: a key, or a server certificate of the far future.
        let more = format!("{SERVER_ISSUED}{}\n{}{good}{SERVER_ISSUED}1\n", u64::MAX, other.serialize_pem());
        assert_eq!(expected.check(&more, &key).unwrap(), good.replace('\r', ""));

        let [forged, foreign] = issue(&theirs, "cam-1", &key);
        let [renamed, _] = issue(&ours, "cam-2", &key);
        let [elsewhere, _] = issue(&ours, "cam-1", &other);
        for (answer, why) in [
            (format!("{forged}{foreign}"), "another authority"),
            (format!("{certificate}{foreign}"), "another authority"),
            (format!("{forged}{root}"), "not signed"),
            (format!("{renamed}{root}"), "another device's name"),
            (format!("{elsewhere}{root}"), "another key"),
            (format!("{certificate}{root}{foreign}"), "not two certificates"),
            (String::new(), "not two certificates"),
        ] {
            let error = expected.check(&answer, &key).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
