//! What can be wrong with an authority or a request to it.

use std::{io, path::PathBuf};

use common::DeviceId;

use super::storage::LOCK_TIMEOUT;

/// Why a request to the authority fails.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
#[non_exhaustive]
pub enum CaError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a PEM file with the expected content: {what}")]
    Pem { path: PathBuf, what: String },
    #[error(
        "{0} exists already; remove it first if you really want a new authority (every device must then be enrolled again)"
    )]
    Exists(PathBuf),
    #[error("no authority in {0}; create one with `fairtier gateway init`")]
    Missing(PathBuf),
    #[error(
        "{0} has been held by another process for {LOCK_TIMEOUT:?}; `lslocks` names it: end it, then try again"
    )]
    Locked(PathBuf),
    #[error("{0} is already enrolled; --replace gives it a new identity and invalidates the present one")]
    Enrolled(DeviceId),
    #[error("{0} was revoked; --replace makes it a member again")]
    Revoked(DeviceId),
    #[error(
        "{path}:{line} is damaged, so the revoked devices are unknown; restore the file, or remove the line and revoke its device again"
    )]
    Journal { path: PathBuf, line: usize },
    #[error("the operating system provides no random numbers")]
    Random,
    #[error("a device's key must be an uncompressed point of P-256")]
    Key,
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}
