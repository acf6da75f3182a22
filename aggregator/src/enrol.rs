//! Enrolment and renewal over QUIC: a connection of its own protocol ([`common::enrol::ALPN`]) with one question and one
//! answer ([`common::enrol`]).
//!
//! Without a certificate a token is needed; with one, a device gets a certificate for a new key. A device that is
//! connected asks on a further stream of its connection ([`renewals`]).

use std::time::Duration;

use common::{Code, DeviceId, enrol::Question, wire};
use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt};
use rustls::pki_types::CertificateDer;
use tracing::{info, warn};

use crate::{
    ca::{Authority, CaError},
    quic::certificate,
};

const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_RENEWALS: Duration = Duration::from_secs(2);

/// Serves one connection.
pub async fn serve(connection: &Connection, authority: &Authority) {
    let peer = connection.remote_address();
    let code = match tokio::time::timeout(PATIENCE, answer(connection, authority)).await {
        Ok(Some(Ok(name))) => {
            info!(device = %name, %peer, "certificate issued");
            // The device closes once it has everything.
            let _ = tokio::time::timeout(PATIENCE, connection.closed()).await;
            return;
        }
        Ok(Some(Err(code))) => code,
        Ok(None) | Err(_) => Code::BadMessage,
    };
    warn!(%peer, "enrolment refused: {code}");
    connection.close(VarInt::from_u32(code.number().into()), code.text().as_bytes());
}

/// Answers a connected device that asks for a new certificate, for as long as it is connected.
pub async fn renewals(connection: &Connection, device: &DeviceId, authority: &Authority) -> ConnectionError {
    loop {
        let (send, receive) = match connection.accept_bi().await {
            Ok(streams) => streams,
            Err(lost) => return lost,
        };
        let answered = reply(send, receive, certificate(connection), authority);
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Some(Ok(_))) => info!(%device, "certificate renewed"),
            Ok(Some(Err(code))) => warn!(%device, "no new certificate: {code}"),
            Ok(None) | Err(_) => warn!(%device, "no new certificate: {}", Code::BadMessage),
        }
        // Signing costs more than asking.
        tokio::time::sleep(BETWEEN_RENEWALS).await;
    }
}

/// `None` if the question can not be understood.
async fn answer(connection: &Connection, authority: &Authority) -> Option<Result<DeviceId, Code>> {
    let (send, receive) = connection.accept_bi().await.ok()?;
    reply(send, receive, certificate(connection), authority).await
}

async fn reply(
    mut send: SendStream,
    mut receive: RecvStream,
    present: Option<CertificateDer<'static>>,
    authority: &Authority,
) -> Option<Result<DeviceId, Code>> {
    let question = receive.read_to_end(wire::MAX_CONTROL).await.ok()?;
    let Question { secret, key } = wire::message(&question).ok()?;
    let authority = authority.clone();
    // The disk is waited for.
    let issue = move || match (secret, present) {
        (Some(secret), _) => authority.redeem(&secret, &key),
        (None, Some(present)) => authority.renew(&present, &key),
        (None, None) => Ok(None),
    };
    let (device, certificates) = match tokio::task::spawn_blocking(issue).await.ok()? {
        Ok(Some(issued)) => issued,
        Ok(None) => return Some(Err(Code::UnknownDevice)),
        Err(error) => {
            warn!("no certificate: {error}");
            let asked_wrongly = matches!(error, CaError::Key);
            return Some(Err(if asked_wrongly { Code::BadCertificate } else { Code::NotReady }));
        }
    };
    send.write_all(certificates.as_bytes()).await.ok()?;
    send.finish().ok()?;
    Some(Ok(device))
}
