//! The demo: one fleet of unequal devices, trained twice from the same start, once with HeteroFL and
//! once with FairHeteroFL, and how both models serve each device.
//!
//! | part | does | file |
//! |---|---|---|
//! | [`DemoOptions`] | what to run; checked before anything starts | `options` |
//! | [`Fleet`] | who has which hardware and which samples | `fleet` |
//! | federation | one run: aggregator, certificates, clients, all over QUIC | `federation` |
//! | [`DemoResult`] | what came out, in numbers | `result` |
//! | [`report`] | the result as a table, a page, a picture | `report` |
//!
//! Nothing is simulated but the place: the aggregator, its store and certificates, and every client
//! are those of `fairtier gateway` and `fairtier device`; they only share a process. The same seed
//! gives the same losses, bit for bit.

mod federation;
mod fleet;
mod options;
pub mod report;
mod result;

use std::{io, sync::Arc};

use aggregator::{ca::CaError, server::ServerError};
use client::{
    data::DataError,
    host::{ClientError, IdentityError},
};
use coordinator::report::RoundReport;

pub use fleet::{Fleet, FleetDevice, TierHardware};
pub use options::{BadOption, DemoOptions, Training};
pub use result::{BaselineChange, CurvePoint, DemoResult, Setup, StrategyRun, TierSetup, change};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    #[error(transparent)]
    Option(#[from] BadOption),
    #[error("the built-in digits: {0}")]
    Data(#[from] DataError),
    #[error("the aggregator: {0}")]
    Server(#[from] ServerError),
    #[error("the fleet's certificates: {0}")]
    Authority(#[from] CaError),
    #[error("device {device}: {source}")]
    Identity { device: String, source: IdentityError },
    #[error("device {device}: {source}")]
    Client { device: String, source: ClientError },
    #[error("a device has stopped working: {0}")]
    Crashed(#[from] tokio::task::JoinError),
    #[error("no room for the aggregator's files in the directory for temporary files: {0}")]
    Directory(io::Error),
    #[error("{strategy} ended without scores of the final model")]
    NoScores { strategy: &'static str },
    #[error("stopped before the end")]
    Stopped,
}

/// What can be seen while the demo runs.
#[derive(Copy, Clone, Debug)]
pub struct Progress<'a> {
    /// Which of the runs, from 0.
    pub run: usize,
    pub runs: usize,
    /// As people write it.
    pub title: &'static str,
    /// Rounds of this run in all.
    pub rounds: u32,
    pub report: &'a RoundReport,
}

/// Called after every round of every run, from the aggregator's own thread.
pub type Observe = Arc<dyn Fn(Progress<'_>) + Send + Sync>;

/// Runs everything; needs a multi-threaded tokio runtime around it. Ends early, with
/// [`DemoError::Stopped`], when `stop` resolves.
pub async fn run(
    options: &DemoOptions,
    observe: Observe,
    stop: impl Future<Output = ()>,
) -> Result<DemoResult, DemoError> {
    options.check()?;
    let fleet = Fleet::new(options)?;
    let strategies = options.strategies();
    let mut runs = vec![];
    tokio::pin!(stop);
    for (index, strategy) in strategies.iter().enumerate() {
        let config = options.config(strategy, fleet.devices.len());
        let (title, rounds, count) = (strategy.title, options.rounds, strategies.len());
        let observe = observe.clone();
        let watch = move |report: &RoundReport| {
            observe(Progress { run: index, runs: count, title, rounds, report });
        };
        let (reports, seconds) = federation::run(&config, &fleet, Box::new(watch), &mut stop).await?;
        runs.push(StrategyRun::new(strategy, &reports, seconds)?);
    }
    Ok(DemoResult::new(options, &fleet, runs))
}

#[cfg(test)]
pub(crate) mod tests;
