//! The dashboard of one directory: what its pages are made from, and its routes.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use axum::{Router, routing::get};
use tokio::sync::Semaphore;
use tracing::warn;

use super::{
    access::{Accounts, Attempts, Sessions, User},
    history::{RunHistory, report_of},
    members::Members,
    pages::{Page, ReportOf, RoundPage, RoundQuery, WhatIf, replay},
    view::View,
};
use crate::{
    ca::Authority,
    clock::since_1970,
    config::Config,
    live::{LiveSource, TierShape},
};
use strategies::Registry;

mod actions;
mod events;
mod login;
mod requests;

/// Pages that are made at the same time; others wait for their turn.
const MAKING: usize = 2;
/// Browsers that follow the run at the same time; others load pages by hand.
const FOLLOWING: usize = 32;

/// What a dashboard shows, and to whom.
#[derive(Debug)]
pub struct DashboardOptions {
    /// The gateway's: certificates and accounts.
    pub dir: PathBuf,
    /// The active run's: history, status and model.
    pub run: PathBuf,
    /// Its name.
    pub run_name: String,
    /// What its tiers hold.
    pub shapes: Vec<TierShape>,
    pub config: Config,
    pub registry: Registry,
    /// Absent if no server runs: then the run is shown as it was left.
    pub live: Option<Arc<LiveSource>>,
    /// Forms that change the run, for operators.
    pub actions: bool,
    /// Also those who only read must log in.
    pub login_to_read: bool,
    /// Cookies are for HTTPS alone.
    pub https: bool,
}

/// The state behind the routes.
#[derive(Debug)]
pub struct Dashboard {
    options: DashboardOptions,
    strategies: Vec<&'static str>,
    authority: Option<Authority>,
    history: RwLock<RunHistory>,
    members: Members,
    accounts: Accounts,
    sessions: Sessions,
    attempts: Attempts,
    making: Semaphore,
    /// One round is computed again at a time.
    computing: Semaphore,
    /// One password is checked at a time: each takes 19 MiB.
    checking: Semaphore,
    following: Arc<Semaphore>,
}

impl Dashboard {
    pub fn new(options: DashboardOptions) -> Arc<Self> {
        let authority = Authority::open(&options.dir).ok();
        Arc::new(Self {
            strategies: options.registry.names().collect(),
            history: RwLock::new(RunHistory::new(&options.run)),
            members: Members::new(authority.clone()),
            authority,
            accounts: Accounts::of(&options.dir),
            sessions: Sessions::default(),
            attempts: Attempts::default(),
            making: Semaphore::new(MAKING),
            computing: Semaphore::new(1),
            checking: Semaphore::new(1),
            following: Arc::new(Semaphore::new(FOLLOWING)),
            options,
        })
    }

    /// Its routes. Other routes can be merged with them.
    pub fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .route("/", get(requests::overview))
            .route("/tiers", get(requests::tiers))
            .route("/devices", get(requests::devices))
            .route("/device", get(requests::device))
            .route("/rounds", get(requests::rounds))
            .route("/round", get(requests::round))
            .route("/events", get(events::follow))
            .route("/assets/dashboard.css", get(requests::style_sheet))
            .route("/assets/live.js", get(requests::script))
            .merge(login::routes())
            .merge(actions::routes())
            .fallback(requests::not_found)
            .with_state(self)
    }

    /// Makes something from the present state, on a thread that may block.
    async fn make<R: Send + 'static>(
        self: &Arc<Self>,
        user: Option<User>,
        said: Option<String>,
        make: impl FnOnce(&View<'_>) -> R + Send + 'static,
    ) -> Option<R> {
        let _place = self.making.acquire().await.ok()?;
        let this = self.clone();
        let made = tokio::task::spawn_blocking(move || {
            this.refresh();
            let history = this.history.read().unwrap_or_else(PoisonError::into_inner);
            let (members, server_expires) = this.members.list();
            let view = View {
                now: since_1970().as_secs_f64(),
                live: this.options.live.as_ref().map(|live| live.view()),
                phases: this.options.live.as_ref().map_or_else(Vec::new, |live| live.phases()),
                run: &this.options.run_name,
                shapes: &this.options.shapes,
                history: &history,
                members,
                server_expires,
                config: &this.options.config,
                disk: disk(&this.options.run),
                user: user.as_ref(),
                actions: this.options.actions,
                strategies: &this.strategies,
                said: said.as_deref(),
            };
            make(&view)
        });
        made.await.ok()
    }

    fn refresh(&self) {
        if !self.history.read().unwrap_or_else(PoisonError::into_inner).is_stale() {
            return;
        }
        let mut history = self.history.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = history.refresh() {
            warn!("the dashboard cannot read the history: {error}");
        }
    }

    /// Reads a round for its page, and computes it again if that is asked for.
    async fn round(self: &Arc<Self>, query: RoundQuery) -> Option<RoundPage> {
        let RoundQuery { number, page, strategy, params } = query;
        let place = match strategy {
            Some(_) => Some(self.computing.acquire().await.ok()?),
            None => None,
        };
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            this.refresh();
            let committed = this.history.read().unwrap_or_else(PoisonError::into_inner).committed();
            let dir = &this.options.run;
            let report = match report_of(dir, number, committed) {
                Ok(report) => report.map(|report| Arc::new(ReportOf(report))),
                Err(error) => {
                    warn!(round = number, "the dashboard cannot read the report: {error}");
                    None
                }
            };
            let recorded = dir.join("rounds").join(format!("round-{number:06}.json")).is_file();
            let what_if = strategy.filter(|_| recorded).map(|strategy| {
                let params = params.unwrap_or_default();
                let result = replay(&this.options.registry, dir, number, &strategy, &params);
                WhatIf { strategy, params, result }
            });
            RoundPage { round: number, page: page.unwrap_or(1), report, recorded, what_if }
        });
        let read = read.await.ok();
        drop(place);
        read
    }

    /// A whole page.
    async fn html(self: &Arc<Self>, page: Page, user: Option<User>, said: Option<String>) -> Option<String> {
        self.make(user, said, move |view| page.html(view)).await
    }
}

/// Free and all bytes of the disk that holds a directory.
fn disk(dir: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}
