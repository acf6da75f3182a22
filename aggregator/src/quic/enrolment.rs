//! Enrolment and renewal over QUIC: a connection of its own protocol ([`common::enrol::ALPN`]) with one request and one answer
//! ([`common::enrol`]).
//!
//! A peer without a certificate needs a token; a device with one gets a certificate for a new key. A connected device asks on a
//! further stream of its connection ([`renewals`]).

use std::time::{Duration, Instant};

use common::{Code, DeviceId, enrol::EnrolRequest, wire};
use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt};
use rustls::pki_types::CertificateDer;
use tracing::info;

use super::identify::certificate;
use crate::{
    admission::{Admission, RENEWAL_INTERVAL, Refusal, Renewals},
    ca::{Authority, CaError, IssuedCertificate},
};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why no certificate is issued.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Code(Code),
    #[error(transparent)]
    Authority(#[from] CaError),
}

impl Refused {
    const QUESTION: Self = Self::Code(Code::BadMessage);

    fn code(&self) -> Code {
        match self {
            Self::Code(code) => *code,
            Self::Authority(CaError::Key) => Code::BadCertificate,
            Self::Authority(CaError::Enrolled(_) | CaError::Revoked(_)) => Code::AlreadyEnrolled,
            // A later attempt may succeed.
            Self::Authority(_) => Code::NotReady,
        }
    }
}

/// Serves one connection.
pub async fn serve(connection: &Connection, authority: &Authority, admission: &Admission) {
    let peer = connection.remote_address();
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, answer(connection, authority, admission)).await;
    match answered.unwrap_or(Err(Refused::QUESTION)) {
        Ok(name) => {
            info!(device = %name, %peer, "certificate issued");
            // The device closes once it has everything.
            let _ = tokio::time::timeout(ANSWER_TIMEOUT, connection.closed()).await;
        }
        Err(refused) => {
            admission.count_refusal(Refusal::Enrolment, &format_args!("{peer}: {refused}"));
            let code = refused.code();
            connection.close(VarInt::from_u32(code.number().into()), code.text().as_bytes());
        }
    }
}

/// Answers a connected device that asks for a new certificate, until it disconnects.
pub async fn renewals(
    connection: &Connection,
    device: &DeviceId,
    authority: &Authority,
    admission: &Admission,
) -> ConnectionError {
    loop {
        let (send, receive) = match connection.accept_bi().await {
            Ok(streams) => streams,
            Err(lost) => return lost,
        };
        let answered = reply(send, receive, certificate(connection), authority, admission);
        match tokio::time::timeout(ANSWER_TIMEOUT, answered).await.unwrap_or(Err(Refused::QUESTION)) {
            Ok(_) => info!(%device, "certificate renewed"),
            Err(refused) => admission.count_refusal(Refusal::Enrolment, &format_args!("{device}: {refused}")),
        }
        tokio::time::sleep(RENEWAL_INTERVAL).await;
    }
}

async fn answer(
    connection: &Connection,
    authority: &Authority,
    admission: &Admission,
) -> Result<DeviceId, Refused> {
    let (send, receive) = connection.accept_bi().await.map_err(|_| Refused::QUESTION)?;
    reply(send, receive, certificate(connection), authority, admission).await
}

/// Answers on the stream. A refusal resets it with its code, so that the peer never reads an empty answer.
async fn reply(
    mut send: SendStream,
    receive: RecvStream,
    present: Option<CertificateDer<'static>>,
    authority: &Authority,
    admission: &Admission,
) -> Result<DeviceId, Refused> {
    match bundle(receive, present, authority, admission).await {
        Ok(IssuedCertificate { device, bundle }) => {
            if send.write_all(bundle.as_bytes()).await.is_err() || send.finish().is_err() {
                return Err(Refused::QUESTION);
            }
            Ok(device)
        }
        Err(refused) => {
            // Fails only if the peer has given up the stream.
            let _ = send.reset(VarInt::from_u32(refused.code().number().into()));
            Err(refused)
        }
    }
}

async fn bundle(
    mut receive: RecvStream,
    present: Option<CertificateDer<'static>>,
    authority: &Authority,
    admission: &Admission,
) -> Result<IssuedCertificate, Refused> {
    let question = receive.read_to_end(wire::MAX_CONTROL).await.map_err(|_| Refused::QUESTION)?;
    let question = wire::message(&question).map_err(|_| Refused::QUESTION)?;
    let (authority, renewals) = (authority.clone(), admission.renewals.clone());
    // Issuing a certificate waits for the disk.
    let issued = move || issue(&question, present.as_ref(), &authority, &renewals);
    let issued = tokio::task::spawn_blocking(issued).await;
    issued.unwrap_or(Err(Refused::Code(Code::NotReady)))
}

/// Issues a certificate to a peer that has a token or a certificate.
fn issue(
    EnrolRequest { secret, key }: &EnrolRequest,
    present: Option<&CertificateDer<'_>>,
    authority: &Authority,
    renewals: &Renewals,
) -> Result<IssuedCertificate, Refused> {
    let unknown = Refused::Code(Code::UnknownDevice);
    let issued = match (secret, present) {
        (Some(secret), _) => authority.redeem(secret, key)?,
        (None, Some(present)) => {
            let Some(device) = authority.device_of(present)? else { return Err(unknown) };
            if !renewals.allow(&device, Instant::now()) {
                return Err(Refused::Code(Code::Busy));
            }
            authority.renew(present, key)?
        }
        (None, None) => None,
    };
    issued.ok_or(unknown)
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PublicKeyData};
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn a_device_cannot_keep_the_authority_busy() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let [one, other] = ["cam-1", "cam-2"].map(|name| {
            let bundle = authority.enroll(&name.parse().unwrap()).unwrap();
            CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap()
        });
        let key = KeyPair::generate().unwrap();
        let key = heapless::Vec::from_slice(key.der_bytes()).unwrap();
        let question = EnrolRequest { secret: None, key };
        let renewals = Renewals::default();
        let ask = |present| issue(&question, Some(present), &authority, &renewals).map_err(|no| no.code());
        assert!(ask(&one).is_ok());
        assert_eq!(ask(&one).unwrap_err(), Code::Busy);
        assert!(ask(&other).is_ok(), "others do not wait for it");
        assert_eq!(issue(&question, None, &authority, &renewals).unwrap_err().code(), Code::UnknownDevice);
    }
}
