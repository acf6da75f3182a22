//! What a running gateway does beside its run: it reads its configuration again on SIGHUP, and tells a service manager of itself.

use anyhow::Result;
use strategies::{registry::Registry, strategy::Needs};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use super::{log::LogLevel, serve::ServeArgs};
use crate::{
    config::Config,
    notify::Notifier,
    reload::{self, Change, Effect},
    run::Run,
    server::Handle,
};

pub(super) struct Reconfigure<'a> {
    pub registry: &'a Registry,
    pub args: &'a ServeArgs,
    pub log: &'a LogLevel,
    /// In effect.
    pub config: Config,
    pub server: &'a Handle,
}

impl Reconfigure<'_> {
    /// Never ends, unless signals cannot be caught.
    pub async fn follow(mut self, mut manager: Option<&mut Notifier>) -> Result<()> {
        let mut hangup = signal(SignalKind::hangup())?;
        if let Some(manager) = &mut manager {
            manager.ready();
        }
        loop {
            let tick = async {
                match &manager {
                    Some(manager) => tokio::time::sleep(manager.interval()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = hangup.recv() => {
                    if let Some(manager) = &mut manager {
                        manager.reloading();
                    }
                    self.reload();
                    if let Some(manager) = &mut manager {
                        manager.ready();
                    }
                }
                () = tick => {
                    let server = self.server.clone();
                    // A Coordinator that does not answer gives no sign of life.
                    let progress = tokio::task::spawn_blocking(move || server.progress()).await;
                    if let (Some(manager), Ok(progress), false) = (&mut manager, progress, self.server.has_failed()) {
                        manager.tick(&progress);
                    }
                }
            }
        }
    }

    /// Reads the file again. An invalid one changes nothing.
    fn reload(&mut self) {
        let read = || -> Result<(Config, Vec<Change>)> {
            let config = self.args.config()?;
            // What only shows when a run is opened would otherwise show at the next start.
            tokio::task::block_in_place(|| Run::prepare(self.registry, &config))?;
            let changes = reload::changes(&self.config, &config)?;
            Ok((config, changes))
        };
        let (config, changes) = match read() {
            Ok(read) => read,
            Err(error) => {
                return error!(
                    error = format!("{error:#}").trim(),
                    "configuration refused; the one in effect stays"
                );
            }
        };
        let adopted = reload::adopted(&self.config, &config);
        self.server.adopt(adopted.settings(Needs::default()).conduct());
        self.server.limit(reload::limits(&adopted));
        let finished = self.server.progress().finished;
        let level = self.log.follow(&adopted.log.level);
        for Change { key, from, to, effect } in &changes {
            let (from, to) = (from.to_string(), to.to_string());
            match (effect, key.as_str()) {
                (_, "log.level") if !matches!(level, Ok(true)) => {
                    warn!(key, from, to, "needs a restart: --log or FAIRTIER_LOG state the level");
                }
                (_, "run.rounds") if finished => {
                    warn!(key, from, to, "needs a restart: the run is over");
                }
                (Effect::Now, _) => info!(key, from, to, "reloaded"),
                (Effect::NextRound, _) => info!(key, from, to, "reloaded: from the next round on"),
                (Effect::Restart, _) => warn!(key, from, to, "needs a restart"),
            }
        }
        info!(
            changed = changes.len(),
            "configuration read; members, revocations and the server's certificate are followed without a reload"
        );
        self.config = adopted;
    }
}
