//! A view of a running server, for monitors and for a changed configuration.

use std::{path::PathBuf, sync::Arc};

use coordinator::Conduct;
use tokio::sync::watch;

use crate::{
    admission::{Admission, Limits, Refusal},
    ca::Authority,
    driver::{Driver, Progress},
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Handle {
    driver: Arc<Driver>,
    admission: Admission,
    gone: watch::Receiver<bool>,
    dir: PathBuf,
}

impl Handle {
    pub(super) fn new(
        driver: Arc<Driver>,
        admission: Admission,
        gone: watch::Receiver<bool>,
        dir: PathBuf,
    ) -> Self {
        Self { driver, admission, gone, dir }
    }

    /// Where the run is. Waits for the Coordinator, which may be busy for a moment.
    pub fn progress(&self) -> Progress {
        self.driver.progress()
    }

    /// The worker has ended, so the run cannot go on.
    pub fn has_failed(&self) -> bool {
        *self.gone.borrow()
    }

    /// Refused connections by reason since the start.
    pub fn refused(&self) -> Vec<(Refusal, u64)> {
        self.admission.refused()
    }

    /// Bytes that the store can still use; `None` if the system does not say.
    pub fn disk_free(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.dir).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// When the server's certificate expires, in seconds since 1970; `None` if it cannot be read.
    pub fn certificate_expires(&self) -> Option<u64> {
        Authority::open(&self.dir).ok()?.server_expires()
    }

    /// Changes how the run is conducted.
    pub fn adopt(&self, conduct: Conduct) {
        self.driver.adopt(conduct);
    }

    /// Changes the limits on connections.
    pub fn limit(&self, limits: Limits) {
        self.admission.limit(limits);
    }
}
