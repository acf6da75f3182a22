//! The demo: trains one fleet of unequal devices twice from the same start, with HeteroFL and with FairTier's default:
//! FairHeteroFL with a fairness target. It compares how well both models fit each device.
//!
//! | part | does | file |
//! |---|---|---|
//! | [`DemoOptions`] | what to run; checked before anything starts | `options` |
//! | [`Fleet`] | hardware and samples of every device | `fleet` |
//! | federation | one run: aggregator, certificates, clients, all over QUIC | `federation` |
//! | [`DemoResult`] | the results as numbers | `result` |
//! | [`DisparityPoint`], [`SeedResult`] | the target over rounds, and over seeds | `target`, `seeds` |
//! | [`report`] | the result as a table, a page, a picture | `report` |
//!
//! Nothing is simulated. The aggregator, its store, its certificates and all clients are those of `fairtier gateway`
//! and `fairtier device`; they only share a process. The same seed gives the same losses, bit for bit.

mod federation;
mod fleet;
mod options;
pub mod report;
mod result;
mod seeds;
mod target;

use std::{io, path::PathBuf, sync::Arc};

use aggregator::{ca::CaError, server::ServerError};
use client::{
    data::DataError,
    host::{ClientError, IdentityError},
};
use coordinator::report::RoundReport;

pub use fleet::{Fleet, FleetDevice, TierHardware};
pub use options::{BadOption, DemoOptions, Training};
pub use result::{BaselineChange, CurvePoint, DemoResult, Setup, StrategyRun, TierSetup, change};
pub use seeds::{MinorityScores, SeedResult};
pub use target::DisparityPoint;

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
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
    #[error("a device has crashed: {0}")]
    Crashed(#[from] tokio::task::JoinError),
    #[error("cannot create a temporary directory for the aggregator: {0}")]
    Directory(io::Error),
    #[error("the rounds cannot be written to {path}: {source}", path = path.display())]
    Runs { path: PathBuf, source: io::Error },
    #[error("{strategy} ended without scores of the final model")]
    NoScores { strategy: &'static str },
    #[cfg(feature = "dashboard")]
    #[error(transparent)]
    Dashboard(#[from] aggregator::http::HttpError),
    #[error("stopped before the end")]
    Stopped,
}

/// Progress of the demo after a round.
#[derive(Copy, Clone, Debug)]
pub struct Progress<'a> {
    /// Index of the run, from 0.
    pub run: usize,
    /// Number of runs.
    pub runs: usize,
    /// Name of the strategy as it is printed.
    pub title: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Number of rounds of this run.
    pub rounds: u32,
    /// Report of the round.
    pub report: &'a RoundReport,
}

/// Called after every round of every run, on the aggregator's thread.
pub type Observe = Arc<dyn Fn(Progress<'_>) + Send + Sync>;

/// Runs the demo on a multi-threaded tokio runtime. Returns [`DemoError::Stopped`] if `stop` resolves before the end.
pub async fn run(
    options: &DemoOptions,
    observe: Observe,
    stop: impl Future<Output = ()>,
) -> Result<DemoResult, DemoError> {
    options.check()?;
    tokio::pin!(stop);
    let number = RunNumber { first: 0, of: 2 * (1 + options.others.len()) };
    let mut result = compare(&options.of_seed(options.seed), number, &observe, &mut stop).await?;
    for (index, &seed) in options.others.iter().enumerate() {
        let number = RunNumber { first: 2 * (1 + index), ..number };
        let other = compare(&options.of_seed(seed), number, &observe, &mut stop).await?;
        result.seeds.extend(other.seeds);
    }
    result.seeds.sort_by_key(|seed| seed.seed);
    Ok(result)
}

/// Where the runs of a seed stand among all.
#[derive(Copy, Clone)]
struct RunNumber {
    first: usize,
    of: usize,
}

/// Both strategies with one seed.
async fn compare(
    options: &DemoOptions,
    number: RunNumber,
    observe: &Observe,
    stop: &mut (impl Future<Output = ()> + Unpin),
) -> Result<DemoResult, DemoError> {
    let fleet = Fleet::new(options)?;
    let mut runs = vec![];
    for (index, strategy) in options.strategies().iter().enumerate() {
        let config = options.config(strategy, fleet.devices.len());
        let &DemoOptions { rounds, seed, .. } = options;
        let (title, run, observe) = (strategy.title, number.first + index, observe.clone());
        let watch = move |report: &RoundReport| {
            observe(Progress { run, runs: number.of, title, seed, rounds, report });
        };
        #[cfg(feature = "dashboard")]
        let running = federation::run(&config, &fleet, options.dashboard, Box::new(watch), stop);
        #[cfg(not(feature = "dashboard"))]
        let running = federation::run(&config, &fleet, Box::new(watch), stop);
        let (reports, seconds) = running.await?;
        if let Some(runs) = &options.runs {
            let dir = runs.join(format!("{}-{seed}", strategy.name));
            aggregator::computed::write(&dir, &config, &reports)
                .map_err(|source| DemoError::Runs { path: dir.clone(), source })?;
        }
        runs.push(StrategyRun::new(strategy, &reports, seconds)?);
    }
    Ok(DemoResult::new(options, &fleet, runs))
}

#[cfg(test)]
pub(crate) mod tests;
