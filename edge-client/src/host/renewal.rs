//! Renews a device's certificate before it expires: over the open connection, with a new key, into the file of the old one.
//! The next connection uses it. The authority never changes.
//!
//! The renewal is due at a date, but the device's clock may be wrong: before the time of issue, or so far ahead that a new
//! certificate seems old. The clock is trusted only once it has agreed with the certificate. Until then, the device renews
//! after a measured two thirds of the certificate's lifetime.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use common::{
    certificate::Grant,
    files::{self, MAX_CREDENTIAL},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tracing::{info, warn};

use super::{
    enrol::{self, EnrolError},
    identity::Identity,
    private_file::PrivateFile,
    quic::QuicLink,
};

/// Pause after a failed attempt.
const RETRY: Duration = Duration::from_secs(60);

/// Longest sleep, because the clock may be set meanwhile.
const LOOK: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Renewal {
    identity: Identity,
    timing: Option<Timing>,
}

/// When to ask for a new certificate.
#[derive(Debug)]
struct Timing {
    /// The clock has agreed with the certificate once.
    clock_trusted: bool,
    /// Renew at this time at the latest, independently of the clock.
    latest: Instant,
    /// Do not try before this time, because an attempt has failed.
    not_before: Instant,
}

impl Timing {
    /// Time until the next attempt. `due` is the date from the certificate.
    fn wait(&self, due: SystemTime, clock: SystemTime, now: Instant) -> Duration {
        let measured = self.latest.saturating_duration_since(now);
        let wait = match due.duration_since(clock).unwrap_or(Duration::ZERO) {
            Duration::ZERO if !self.clock_trusted => measured,
            by_clock => by_clock.min(measured),
        };
        wait.max(self.not_before.saturating_duration_since(now)).min(LOOK)
    }
}

impl Renewal {
    /// Renews this identity.
    pub fn new(identity: Identity) -> Self {
        // A clock may stay behind for long, so renewing once too often is better than never.
        let timing = Self::timing(&identity, true);
        Self { identity, timing }
    }

    fn timing(identity: &Identity, clock_trusted: bool) -> Option<Timing> {
        // Without a file, a renewed identity would be lost with the process.
        let renewal_age = renewal_age(identity.file()?)?;
        let now = Instant::now();
        Some(Timing { clock_trusted, latest: now + renewal_age, not_before: now })
    }

    /// The identity for the next connection.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Reads the identity file again, because a refused device may have been enrolled again.
    pub fn reload(&mut self) {
        let Some(file) = self.identity.file() else { return };
        match Identity::load(file) {
            Ok(identity) if identity.is_same(&self.identity) => {}
            Ok(identity) => {
                info!("{} holds a new identity", file.display());
                *self = Self::new(identity);
            }
            Err(error) => warn!("{error}"),
        }
    }

    /// Time until the renewal is due or the clock is checked again; `None` if it is never due.
    pub fn wait(&self) -> Option<Duration> {
        let (timing, clock) = (self.timing.as_ref()?, SystemTime::now());
        Some(timing.wait(self.identity.renewal(clock)?, clock, Instant::now()))
    }

    /// Resolves after [`Self::wait`].
    pub async fn due(&self) {
        match self.wait() {
            Some(wait) => tokio::time::sleep(wait).await,
            None => std::future::pending().await,
        }
    }

    /// Asks for a new identity if it is due. A failure is only logged: the present identity is still valid.
    pub async fn renew_if_due(&mut self, link: &QuicLink) {
        let identity = self.identity.clone();
        self.replace_if_due(enrol::renew_on(link.connection(), &identity)).await;
    }

    /// Like [`Self::renew_if_due`], over a separate connection.
    pub async fn renew_apart_if_due(&mut self, server: SocketAddr) {
        let identity = self.identity.clone();
        self.replace_if_due(enrol::renew(server, &identity)).await;
    }

    async fn replace_if_due(&mut self, answer: impl Future<Output = Result<String, EnrolError>>) {
        self.look_at_clock();
        if self.wait().is_none_or(|wait| !wait.is_zero()) {
            return;
        }
        match self.replace(answer).await {
            Ok(()) => info!("identity renewed"),
            Err(error) => {
                warn!("the identity could not be renewed: {error}");
                if let Some(timing) = &mut self.timing {
                    timing.not_before = Instant::now() + RETRY;
                }
            }
        }
    }

    fn look_at_clock(&mut self) {
        let clock = SystemTime::now();
        if let (Some(timing), Some(due)) = (&mut self.timing, self.identity.renewal(clock)) {
            timing.clock_trusted |= due > clock;
        }
    }

    /// Creates the file before asking, so that no certificate is issued that cannot be stored.
    async fn replace(
        &mut self,
        answer: impl Future<Output = Result<String, EnrolError>>,
    ) -> Result<(), EnrolError> {
        let Some(file) = self.identity.file() else { return Ok(()) };
        let new = PrivateFile::create(file)?;
        new.commit(&answer.await?)?;
        let identity = Identity::load(file)?;
        self.timing = Self::timing(&identity, false);
        self.identity = identity;
        self.look_at_clock();
        Ok(())
    }
}

/// Two thirds of a certificate's lifetime, if it states one.
fn renewal_age(file: &Path) -> Option<Duration> {
    let certificate = CertificateDer::from_pem_slice(&files::read(file, MAX_CREDENTIAL).ok()?).ok()?;
    let grant = Grant::of(&certificate)?;
    Some(Duration::from_secs(grant.renewal().saturating_sub(grant.issued)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use common::{TierSet, certificate::GRANT_OID};
    use rcgen::{CertificateParams, CustomExtension, Issuer, KeyPair};

    use super::*;

    const DAY: u64 = 24 * 3600;

    fn seconds_now() -> u64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
    }

    /// An identity that was issued at `issued`.
    fn bundle(issued: u64, life: u64) -> String {
        let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let authority = CertificateParams::new(vec![]).unwrap();
        let root = authority.self_signed(&authority_key).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(issued + life);
        let grant = Grant::encode(issued, TierSet::ALL).to_vec();
        params.custom_extensions = vec![CustomExtension::from_oid_content(&GRANT_OID, grant)];
        let certificate = params.signed_by(&key, &Issuer::new(authority, &authority_key)).unwrap();
        format!("{}{}{}", certificate.pem(), root.pem(), key.serialize_pem())
    }

    /// A device with an expired certificate that is renewed at `issued` by the aggregator's clock.
    fn renewed(issued: u64, life: u64) -> Renewal {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cam-1.pem");
        fs::write(&file, bundle(1000, 90)).unwrap();
        let mut renewal = Renewal::new(Identity::load(&file).unwrap());
        assert_eq!(renewal.wait(), Some(Duration::ZERO));
        let answer = async { Ok(bundle(issued, life)) };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(renewal.replace_if_due(answer));
        renewal
    }

    #[test]
    fn a_wrong_clock_does_not_prevent_the_next_renewal() {
        let now = seconds_now();
        for issued in [now + 1000 * DAY, now - 1000 * DAY] {
            let renewal = renewed(issued, 30 * DAY);
            let timing = renewal.timing.as_ref().unwrap();
            assert!(!timing.clock_trusted);
            assert_eq!(renewal.wait(), Some(LOOK), "it checks the clock again later");
            let left = timing.latest.duration_since(Instant::now()).as_secs();
            assert!(left > 19 * DAY && left <= 20 * DAY, "{left} s");
        }
        let renewal = renewed(now - 1, 30 * DAY);
        assert!(renewal.timing.as_ref().unwrap().clock_trusted);
        assert_eq!(renewal.wait(), Some(LOOK));
    }

    #[test]
    fn a_corrected_clock_is_used() {
        let (now, clock) = (Instant::now(), SystemTime::UNIX_EPOCH + Duration::from_secs(1000 * DAY));
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(DAY));
        let doubted = Timing { clock_trusted: false, latest: now + 20 * day, not_before: now };
        // The renewal seems due by a clock that was never right.
        assert_eq!(doubted.wait(clock, clock, now), LOOK);
        assert_eq!(doubted.wait(clock - 500 * day, clock, now), LOOK);
        assert_eq!(doubted.wait(clock, clock, now + 20 * day), Duration::ZERO, "due by measured time");
        // A correct clock takes precedence over measured time, even if it was just set.
        assert_eq!(doubted.wait(clock + second, clock, now), second);
        let clock_trusted = Timing { clock_trusted: true, ..doubted };
        assert_eq!(clock_trusted.wait(clock, clock, now), Duration::ZERO);
        assert_eq!(clock_trusted.wait(clock + 30 * day, clock, now + 20 * day), Duration::ZERO);
        let failed = Timing { not_before: now + RETRY, ..clock_trusted };
        assert_eq!(failed.wait(clock, clock, now), RETRY);
    }

    #[test]
    fn a_failed_attempt_is_repeated_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cam-1.pem");
        fs::write(&file, bundle(1000, 90)).unwrap();
        let mut renewal = Renewal::new(Identity::load(&file).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(renewal.replace_if_due(async { Err(EnrolError::Token) }));
        assert!(renewal.wait().is_some_and(|wait| !wait.is_zero() && wait <= RETRY));
    }
}
