//! Which device a connection belongs to.

use std::fmt;

use common::{Code, DeviceId, certificate::Grant};
use quinn::Connection;
use rustls::pki_types::CertificateDer;

use crate::{
    admission::Refusal,
    ca::{Authority, has_expired},
};

/// Why a peer is refused.
#[derive(Debug)]
pub(super) enum IdentifyError {
    Unknown,
    Expired,
    /// The files cannot be read; the peer may ask again.
    Unclear(String),
}

impl IdentifyError {
    pub fn code(&self) -> Code {
        match self {
            Self::Unknown => Code::UnknownDevice,
            Self::Expired => Code::BadCertificate,
            Self::Unclear(_) => Code::NotReady,
        }
    }

    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Unknown | Self::Expired => Refusal::Unknown,
            Self::Unclear(_) => Refusal::Unclear,
        }
    }
}

impl fmt::Display for IdentifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "{}", Code::UnknownDevice),
            Self::Expired => f.write_str("its certificate has expired"),
            Self::Unclear(error) => f.write_str(error),
        }
    }
}

/// A device that has proved who it is.
#[derive(Debug)]
pub(super) struct AuthenticatedDevice {
    pub device: DeviceId,
    /// Absent in certificates of earlier versions.
    pub grant: Option<Grant>,
}

/// The device that a connection belongs to. Disk reads run on a blocking thread.
pub(super) async fn identify(
    connection: &Connection,
    authority: &Authority,
) -> Result<AuthenticatedDevice, IdentifyError> {
    let (certificate, authority) = (certificate(connection), authority.clone());
    let known = tokio::task::spawn_blocking(move || look_up(certificate, &authority)).await;
    known.unwrap_or_else(|error| Err(IdentifyError::Unclear(error.to_string())))
}

pub(super) fn look_up(
    certificate: Option<CertificateDer<'_>>,
    authority: &Authority,
) -> Result<AuthenticatedDevice, IdentifyError> {
    let certificate = certificate.ok_or(IdentifyError::Unknown)?;
    let grant = Grant::of(&certificate);
    if has_expired(grant.as_ref()) {
        return Err(IdentifyError::Expired);
    }
    match authority.device_of(&certificate) {
        Ok(device) => Ok(AuthenticatedDevice { device: device.ok_or(IdentifyError::Unknown)?, grant }),
        Err(error) => Err(IdentifyError::Unclear(error.to_string())),
    }
}

/// The certificate of the peer.
pub(super) fn certificate(connection: &Connection) -> Option<CertificateDer<'static>> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.into_iter().next()
}
