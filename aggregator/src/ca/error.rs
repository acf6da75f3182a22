//! What can be wrong with an authority or a request to it.

use std::{io, path::PathBuf};

use common::DeviceId;

use super::storage::LOCK_TIMEOUT;

/// Why the authority does not do what it was asked to.
#[derive(Debug, thiserror::Error)]
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
    #[error(
        "{0} is enrolled already; with --replace it gets a new identity, and the present one is no longer good"
    )]
    Enrolled(DeviceId),
    #[error("{0} was revoked; with --replace it becomes a member again")]
    Revoked(DeviceId),
    #[error(
        "{path}:{line} is damaged, so it is not known who was revoked; restore the file, or remove the line and revoke again whom it was about"
    )]
    Journal { path: PathBuf, line: usize },
    #[error("the operating system gives no random numbers")]
    Random,
    #[error("a device's key must be an uncompressed point of P-256")]
    Key,
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}
