//! The gateway's HTTP side: pages for browsers. It only looks at a run, and cannot slow it: page loads read snapshots and
//! files, never through the worker's queue.
//!
//! | module | does |
//! |---|---|
//! | [`listener`] | sockets, TLS, and limits for slow and greedy clients |
//! | [`metrics`] | figures for monitors, and whether the gateway works |
//! | `headers` | what every answer carries, and which hosts may be named |
//! | `access` | accounts, sessions, limits for guessing |
//! | `history`, `members`, `view` | what pages show: the files of the run, its members, its present state |
//! | `pages`, `alerts` | the pages themselves |
//! | `dashboard` | the routes |

use std::net::SocketAddr;

use tokio::task::JoinHandle;

pub(crate) mod access;
mod alerts;
mod dashboard;
mod headers;
mod history;
pub mod listener;
mod members;
pub mod metrics;
mod pages;
mod tls;
mod view;

use dashboard::{Dashboard, DashboardOptions};
pub use headers::{AllowedHosts, guarded};
pub use listener::{HttpLimits, Listener};

use crate::{
    ca::{Authority, CaError},
    config::Config,
    live::{LiveSource, TierShape},
    run::open_model,
    runs::{self, RunsError},
};
use access::{AccountError, Accounts};
use strategies::{Registry, strategy::Needs};
use tracing::warn;

/// Why a dashboard does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The address is taken, or not one of this machine.
    #[error("the dashboard cannot listen on {address}: {source}; choose another address")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// Only a loopback address is read without a login.
    #[error(
        "the dashboard on {0} needs a login, and there is no account; add one with `fairtier gateway dashboard user add`, \
         or listen on a loopback address"
    )]
    NoAccount(SocketAddr),
    /// Nothing could be done with the actions.
    #[error(
        "--dashboard-actions needs an operator; add one with `fairtier gateway dashboard user add NAME --role operator`"
    )]
    NoOperator,
    /// The file of accounts cannot be read.
    #[error(transparent)]
    Accounts(#[from] AccountError),
    /// The certificate for browsers cannot be made.
    #[error(transparent)]
    Authority(#[from] CaError),
    /// The active run is not known.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// The certificate for browsers cannot be used.
    #[error("TLS of the dashboard: {0}")]
    Tls(#[from] rustls::Error),
    /// Devices must not take a browser's page for their gateway.
    #[error("dashboard.names: {0:?} is the name that devices expect of the gateway; choose another one")]
    Name(String),
}

/// A dashboard to be started.
#[derive(Debug)]
pub struct DashboardStart {
    /// Where browsers connect; port 0 chooses one.
    pub listen: SocketAddr,
    /// The gateway's directory; the active run in it is shown.
    pub dir: std::path::PathBuf,
    /// The run's configuration as it is in effect.
    pub config: Config,
    /// Strategies with which rounds can be computed again.
    pub registry: Registry,
    /// Of the server; absent if none runs.
    pub live: Option<std::sync::Arc<LiveSource>>,
    /// Operators can change the run.
    pub actions: bool,
}

/// A dashboard that runs until it is dropped.
#[derive(Debug)]
pub struct RunningDashboard {
    address: SocketAddr,
    https: bool,
    task: JoinHandle<()>,
}

impl RunningDashboard {
    /// As for the address bar of a browser.
    pub fn url(&self) -> String {
        format!("{}://{}/", if self.https { "https" } else { "http" }, self.address)
    }
}

impl RunningDashboard {
    /// Closes the listener and all connections. The address is free when it returns.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for RunningDashboard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a dashboard of the active run.
///
/// On a loopback address, pages are read without a login. On any other one, TLS and a login are needed.
pub async fn start(start: DashboardStart) -> Result<RunningDashboard, HttpError> {
    let DashboardStart { listen, dir, config, registry, live, actions } = start;
    let https = !listen.ip().to_canonical().is_loopback();
    let accounts = Accounts::of(&dir).list()?;
    if https && accounts.is_empty() {
        return Err(HttpError::NoAccount(listen));
    }
    if actions && !accounts.iter().any(|account| account.role == access::Role::Operator) {
        return Err(HttpError::NoOperator);
    }
    let names = config.dashboard.names.clone();
    let tls = if https { Some(tls::acceptor(&Authority::open(&dir)?, listen.ip(), &names)?) } else { None };
    let hosts = AllowedHosts { names, loopback_only: !https };
    let run_name = runs::active(&dir)?;
    let run = run_name.dir(&dir);
    let shapes = match &live {
        Some(live) => live.view().tiers.iter().map(|tier| tier.shape).collect(),
        // The pages of a run whose model cannot be opened any more lack its tiers.
        None => open_model(&config, Needs::default())
            .inspect_err(|error| warn!("the dashboard shows no widths of tiers: {error}"))
            .map_or_else(|_| vec![], |(model, _)| TierShape::of(&model)),
    };
    let run_name = run_name.to_string();
    let options = DashboardOptions {
        dir,
        run,
        run_name,
        shapes,
        config,
        registry,
        live,
        actions,
        login_to_read: https,
        https,
    };
    let router = guarded(Dashboard::new(options).routes(), hosts);
    let failed = |source| HttpError::Listen { address: listen, source };
    let listener = Listener::bind(listen, tls, HttpLimits::default()).await.map_err(failed)?;
    let address = listener.address();
    let task = tokio::spawn(listener.serve(router));
    Ok(RunningDashboard { address, https, task })
}
