//! What a service manager is told: `sd_notify`, if systemd has set `NOTIFY_SOCKET`.
//!
//! The gateway is ready once it listens. It reports a status line, that it reloads, and that it stops. With `WatchdogSec` it
//! gives a sign of life at least twice in that time, as long as the Coordinator answers and the worker has not ended.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::{info, warn};

use crate::driver::Progress;

/// Time between two status lines; also the longest time between two signs of life.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Notifier {
    watchdog: Option<Duration>,
    status: String,
    failed: bool,
}

impl Notifier {
    /// `None` if no service manager wants to be told.
    pub fn from_environment() -> Option<Self> {
        std::env::var_os("NOTIFY_SOCKET")?;
        let watchdog = sd_notify::watchdog_enabled();
        if let Some(limit) = watchdog {
            info!(limit_s = limit.as_secs_f64(), "the service manager watches this process");
        }
        Some(Self { watchdog, status: String::new(), failed: false })
    }

    /// How often [`Notifier::tick`] is to be called.
    pub fn interval(&self) -> Duration {
        self.watchdog.map_or(INTERVAL, |limit| INTERVAL.min(limit / 3))
    }

    pub fn ready(&mut self) {
        self.send(&[NotifyState::Ready]);
    }

    /// The gateway lives and waits for its turn.
    #[cfg(feature = "cluster")]
    pub fn tick_standby(&mut self) {
        const STANDBY: &str = "standby";
        if self.status != STANDBY {
            self.send(&[NotifyState::Ready, NotifyState::Status(STANDBY)]);
            STANDBY.clone_into(&mut self.status);
        }
        if self.watchdog.is_some() {
            self.send(&[NotifyState::Watchdog]);
        }
    }

    /// Followed by [`Notifier::ready`].
    pub fn reloading(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(error) => warn!("the clock cannot be read: {error}"),
        }
    }

    pub fn stopping(&mut self) {
        self.send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// The gateway lives, and this is where its run is.
    pub fn tick(&mut self, progress: &Progress) {
        let status = describe(progress);
        if status != self.status {
            self.send(&[NotifyState::Status(&status)]);
            self.status = status;
        }
        if self.watchdog.is_some() {
            self.send(&[NotifyState::Watchdog]);
        }
    }

    fn send(&mut self, states: &[NotifyState<'_>]) {
        // Once: it would fail every second.
        if let Err(error) = sd_notify::notify(states)
            && !std::mem::replace(&mut self.failed, true)
        {
            warn!("the service manager cannot be told: {error}");
        }
    }
}

fn describe(progress: &Progress) -> String {
    let Progress { rounds, committed, exchange, finished, .. } = progress;
    let connected = progress.connected();
    let what = match exchange {
        _ if *finished => "finished".to_owned(),
        Some(exchange) if committed >= rounds => format!("final scores, exchange {exchange}"),
        Some(exchange) => format!("round {}, exchange {exchange}", committed + 1),
        None => format!("round {} waits", committed + 1),
    };
    format!("{committed} of {rounds} rounds committed; {what}; {connected} devices connected")
}
