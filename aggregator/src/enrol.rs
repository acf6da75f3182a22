//! Enrolment and renewal over QUIC: a connection of its own protocol ([`common::enrol::ALPN`]) with one question and one
//! answer ([`common::enrol`]).
//!
//! Without a certificate a token is needed; with one, a device gets a certificate for a new key.

use std::time::Duration;

use common::{Code, DeviceId, enrol::Question, wire};
use quinn::{Connection, VarInt};
use tracing::{info, warn};

use crate::ca::Authority;

const PATIENCE: Duration = Duration::from_secs(10);

/// Serves one connection; `device` is who its certificate says.
pub async fn serve(connection: &Connection, device: Option<DeviceId>, authority: &Authority) {
    let peer = connection.remote_address();
    let code = match tokio::time::timeout(PATIENCE, answer(connection, device, authority)).await {
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

/// `None` if the question can not be understood.
async fn answer(
    connection: &Connection,
    device: Option<DeviceId>,
    authority: &Authority,
) -> Option<Result<DeviceId, Code>> {
    let (mut send, mut receive) = connection.accept_bi().await.ok()?;
    let question = receive.read_to_end(wire::MAX_CONTROL).await.ok()?;
    let Question { secret, key } = wire::message(&question).ok()?;
    let issued = match (secret, device) {
        (Some(secret), _) => authority.redeem(&secret, &key),
        (None, Some(device)) => authority.renew(&device, &key).map(|bundle| Some((device, bundle))),
        (None, None) => Ok(None),
    };
    let (device, certificates) = match issued {
        Ok(Some(issued)) => issued,
        Ok(None) => return Some(Err(Code::UnknownDevice)),
        Err(error) => {
            warn!("no certificate: {error}");
            return Some(Err(Code::BadCertificate));
        }
    };
    send.write_all(certificates.as_bytes()).await.ok()?;
    send.finish().ok()?;
    Some(Ok(device))
}
