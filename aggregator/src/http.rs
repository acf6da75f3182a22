//! The gateway's HTTP side: pages for browsers. It only looks at a run, and cannot slow it: page loads read snapshots and
//! files, never through the worker's queue.
//!
//! | module | does |
//! |---|---|
//! | [`listener`] | sockets, TLS, and limits for slow and greedy clients |
//! | `headers` | what every answer carries, and which hosts may be named |
//! | [`access`] | accounts, sessions, limits for guessing |
//! | `history`, `members`, `view` | what pages show: the files of the run, its members, its present state |
//! | `pages`, `alerts` | the pages themselves |
//! | [`dashboard`] | the routes |

use std::net::SocketAddr;

use axum::Router;
use tokio::task::JoinHandle;

pub mod access;
mod alerts;
pub mod dashboard;
mod headers;
mod history;
pub mod listener;
mod members;
mod pages;
mod tls;
mod view;

pub use dashboard::{Dashboard, DashboardOptions};
pub use headers::{AllowedHosts, guarded};
pub use listener::{HttpLimits, Listener};

use crate::{
    ca::{Authority, CaError},
    config::Config,
    live::LiveSource,
};
use access::{AccountError, Accounts};
use strategies::Registry;

/// Why a dashboard does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    #[error("the dashboard cannot listen on {address}: {source}; choose another address with --dashboard")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(
        "the dashboard on {0} needs a login, and there is no account; add one with `fairtier gateway dashboard user add`, \
         or listen on a loopback address"
    )]
    NoAccount(SocketAddr),
    #[error(
        "--dashboard-actions needs an operator; add one with `fairtier gateway dashboard user add NAME --role operator`"
    )]
    NoOperator,
    #[error(transparent)]
    Accounts(#[from] AccountError),
    #[error(transparent)]
    Authority(#[from] CaError),
    #[error("TLS of the dashboard: {0}")]
    Tls(#[from] rustls::Error),
    #[error("dashboard.names: {0:?} is the name that devices expect of the gateway; choose another one")]
    Name(String),
}

/// A dashboard to be started.
#[derive(Debug)]
pub struct DashboardStart {
    pub listen: SocketAddr,
    pub dir: std::path::PathBuf,
    pub config: Config,
    pub registry: Registry,
    pub live: Option<std::sync::Arc<LiveSource>>,
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

/// No routes besides those of the dashboard.
pub fn no_routes() -> Router {
    Router::new()
}

/// Starts a dashboard; `others` are routes that it serves besides its own, behind the same limits.
///
/// On a loopback address, pages are read without a login. On any other one, TLS and a login are needed.
pub async fn start(start: DashboardStart, others: Router) -> Result<RunningDashboard, HttpError> {
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
    let options = DashboardOptions { dir, config, registry, live, actions, login_to_read: https, https };
    let router = guarded(Dashboard::new(options).routes().merge(others), hosts);
    let failed = |source| HttpError::Listen { address: listen, source };
    let listener = Listener::bind(listen, tls, HttpLimits::default()).await.map_err(failed)?;
    let address = listener.address();
    let task = tokio::spawn(listener.serve(router));
    Ok(RunningDashboard { address, https, task })
}
