//! A device's certificate, renewed before it expires: over the connection that is open, with a new key, into the file
//! the old one came from. The next connection uses it.

use std::time::{Duration, SystemTime};

use tracing::{info, warn};

use super::{enrol, identity::Identity, quic::QuicLink};

/// After an attempt that failed.
const RETRY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Renewal {
    identity: Identity,
    due: Option<SystemTime>,
}

impl Renewal {
    pub fn new(identity: Identity) -> Self {
        // Without a file a new identity would be lost with the process.
        let due = identity.file().and_then(|_| identity.renewal(SystemTime::now()));
        Self { identity, due }
    }

    /// What to connect with.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How long to wait until it is time.
    pub fn wait(&self) -> Option<Duration> {
        self.due.map(|due| due.duration_since(SystemTime::now()).unwrap_or_default())
    }

    /// Asks for a new identity if it is time. A failure is no reason to stop: the present one is still good.
    pub async fn renew_if_due(&mut self, link: &QuicLink) {
        if self.wait().is_none_or(|wait| !wait.is_zero()) {
            return;
        }
        match self.renew(link).await {
            Ok(()) => info!("identity renewed"),
            Err(error) => {
                warn!("the identity could not be renewed: {error}");
                self.due = Some(SystemTime::now() + RETRY);
            }
        }
    }

    async fn renew(&mut self, link: &QuicLink) -> Result<(), enrol::EnrolError> {
        let Some(file) = self.identity.file() else { return Ok(()) };
        let bundle = enrol::renew_on(link.connection()).await?;
        enrol::write_identity(file, &bundle)?;
        let identity = Identity::load(file)?;
        self.due = identity.renewal(SystemTime::now()).filter(|due| *due > SystemTime::now());
        self.identity = identity;
        Ok(())
    }
}
