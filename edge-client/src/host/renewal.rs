//! A device's certificate, renewed before it expires: over the connection that is open, with a new key, into the file
//! the old one came from. The next connection uses it.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use tracing::{info, warn};

use super::{
    draft::Draft,
    enrol::{self, EnrolError},
    identity::Identity,
    quic::QuicLink,
};

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

    /// Resolves when it is time; never, if it never is.
    pub async fn due(&self) {
        match self.wait() {
            Some(wait) => tokio::time::sleep(wait).await,
            None => std::future::pending().await,
        }
    }

    /// Asks for a new identity if it is time. A failure is no reason to stop: the present one is still good.
    pub async fn renew_if_due(&mut self, link: &QuicLink) {
        self.replace_if_due(enrol::renew_on(link.connection())).await;
    }

    /// The same over a connection of its own.
    pub async fn renew_apart_if_due(&mut self, server: SocketAddr) {
        let identity = self.identity.clone();
        self.replace_if_due(enrol::renew(server, &identity)).await;
    }

    async fn replace_if_due(&mut self, answer: impl Future<Output = Result<String, EnrolError>>) {
        if self.wait().is_none_or(|wait| !wait.is_zero()) {
            return;
        }
        match self.replace(answer).await {
            Ok(()) => info!("identity renewed"),
            Err(error) => {
                warn!("the identity could not be renewed: {error}");
                self.due = Some(SystemTime::now() + RETRY);
            }
        }
    }

    /// Nothing is asked for that could not be kept.
    async fn replace(
        &mut self,
        answer: impl Future<Output = Result<String, EnrolError>>,
    ) -> Result<(), EnrolError> {
        let Some(file) = self.identity.file() else { return Ok(()) };
        let draft = Draft::open(file)?;
        draft.keep(&answer.await?)?;
        let identity = Identity::load(file)?;
        self.due = identity.renewal(SystemTime::now()).filter(|due| *due > SystemTime::now());
        self.identity = identity;
        Ok(())
    }
}
