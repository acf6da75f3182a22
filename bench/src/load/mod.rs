//! Loads a real aggregator with devices that have no data and do not train. They send what real devices send, over
//! real QUIC with mutual TLS.
//!
//! `gateway` starts the aggregator's process, `fleet` opens the connections, and `device` runs the conversation of
//! one device with updates from `updates`. `log` records events and the aggregator's `memory`. For comparison, `bare`
//! moves the same bytes through QUIC streams between two processes, in `turns` with the aggregator. `check` compares
//! the result with the bars. `cost` runs with and without a fairness target, or `viewers` of the dashboard.

use std::{future, io, net::SocketAddr, path::PathBuf, process::ExitStatus, sync::Arc, time::Duration};

use aggregator::{
    ca::{Authority, CaError},
    config::ConfigError,
    run::{RunError, open_model},
};
use client::host::IdentityError;
use common::Codec;
use serde::Serialize;
use strategies::strategy::Needs;

pub mod bare;
mod check;
pub mod cost;
mod device;
mod fleet;
mod gateway;
mod log;
mod memory;
mod reader;
mod table;
mod turns;
mod updates;
mod viewers;

pub use check::{LoadCheck, MissedChecks};
pub use log::{LoadLog, LoadRound};
pub use memory::Peaks;
pub use table::table;
pub use turns::BareRound;
pub use viewers::Viewed;

use bare::{StreamSetup, Streams};
use gateway::Gateway;
use turns::{Schedule, Turns};
use viewers::Viewers;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{0} is missing; build it first: cargo build --release --workspace --bins")]
    NoProgram(PathBuf),
    #[error("{program} ended before it was listening: {said}")]
    Process { program: &'static str, said: String },
    #[error("{program} failed ({status})")]
    Failed { program: &'static str, status: ExitStatus },
    #[error("{0} still runs although all devices have left")]
    Lingers(&'static str),
    #[error(
        "{accepted} updates of {expected} were accepted: {refused} were refused, {lost} connections were lost"
    )]
    Incomplete { accepted: u64, expected: u64, refused: u64, lost: u64 },
    #[error("missed: {0}")]
    MissedChecks(MissedChecks),
    #[error(
        "the gateway's processor time cannot be read from /proc, or the runs are too short; raise --rounds"
    )]
    NoProcessorTime,
    #[error("missed: {percent:+.1} % {what}")]
    Dear { what: &'static str, percent: f64 },
    #[error(
        "undecided: {pairs} pairs of runs give {percent:+.1} % {what} with too wide an interval; raise --pairs"
    )]
    CostUndecided { what: &'static str, percent: f64, pairs: usize },
    #[error("a viewer of the dashboard was sent nothing, so its cost is not measured; raise --rounds")]
    NothingSeen,
    #[error(transparent)]
    Authority(#[from] CaError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Model(#[from] RunError),
    #[error("the gateway's configuration cannot be written as TOML: {0}")]
    Toml(#[from] toml::ser::Error),
    #[error("a model of {0} parameters is too large for one message; choose a smaller one with --model")]
    TooLarge(usize),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("{device}: {what}")]
    Device { device: String, what: String },
}

/// Options of `fairtier bench load`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadOptions {
    pub devices: usize,
    /// Rounds that count. With a reference, additional rounds run that do not count.
    pub rounds: u32,
    /// Connections that are opened at the same time.
    pub concurrency: usize,
    pub codec: Codec,
    pub model: String,
    pub strategy: String,
    /// Also move the same bytes through bare streams.
    pub reference: Option<StreamSetup>,
    /// An aggregator that already runs.
    pub target: Option<Target>,
    /// The fairness target of the gateway, between devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// Pages of the gateway's dashboard that are followed.
    #[serde(skip_serializing_if = "is_zero")]
    pub viewers: usize,
    pub seed: u64,
}

/// A running aggregator on this machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Target {
    pub server: SocketAddr,
    /// Its directory, to enrol the devices.
    pub dir: PathBuf,
    /// Its process id, to measure its memory.
    pub pid: Option<u32>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            devices: 2000,
            rounds: 5,
            concurrency: 64,
            codec: Codec::F32,
            model: "mnist-mlp".into(),
            strategy: "fairheterofl".into(),
            reference: None,
            target: None,
            fairness: None,
            viewers: 0,
            seed: 1,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl LoadOptions {
    fn schedule(&self) -> Schedule {
        Schedule { rounds: self.rounds, in_turns: self.reference.is_some() }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadResult {
    pub options: LoadOptions,
    pub parameters: usize,
    /// Bytes of the model (down) and of an update (up).
    pub bytes: [u32; 2],
    pub connect: Connected,
    pub rounds: Vec<LoadRound>,
    /// Median seconds of the rounds that count.
    pub round_s: f64,
    /// Median of accepted updates per second over the rounds that count.
    pub updates_per_s: f64,
    /// Accepted updates of all rounds.
    pub accepted: u64,
    /// One update of every device in every exchange that asks for one.
    pub expected: u64,
    pub refused: u64,
    /// The aggregator's processor time, in seconds per round.
    pub cpu_s: Option<f64>,
    /// The aggregator's peak memory by phase.
    pub peak_rss_kb: Peaks,
    pub reference: Option<Reference>,
    /// If pages of the dashboard were followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub viewed: Option<Viewed>,
    /// The bars and whether they are met.
    pub checks: Vec<LoadCheck>,
}

/// Figures of the connection phase.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Connected {
    pub devices: usize,
    pub seconds: f64,
    /// Attempts that had to be repeated.
    pub repeated: u64,
    /// Connections that were lost later and opened again.
    pub lost: u64,
}

/// Figures of the bare streams.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reference {
    pub setup: StreamSetup,
    pub rounds: Vec<BareRound>,
    /// Median seconds of the rounds that count.
    pub round_s: f64,
    pub updates_per_s: f64,
    /// The aggregator's updates per second as a share of these.
    pub ratio: f64,
}

/// Called with a round and its seconds when it has ended. Some of its receipts may not be read yet.
pub type Progress = Box<dyn Fn(u32, f64) + Send + Sync>;

/// Runs an aggregator under load.
pub async fn run(options: &LoadOptions, progress: Progress) -> Result<LoadResult, LoadError> {
    let config = gateway::config(options)?;
    let (model, _) = open_model(&config, Needs::default())?;
    let parameters = model.regions.parameters();
    let bytes = [options.codec.encoded_len(parameters).ok_or(LoadError::TooLarge(parameters))?; 2];
    let dir =
        tempfile::tempdir().map_err(|source| LoadError::Io { what: "temporary files".into(), source })?;
    let home = options.target.as_ref().map_or(dir.path(), |target| &target.dir);
    let (authority, gateway) = match &options.target {
        Some(target) => (Authority::open(&target.dir)?, None),
        None => {
            let authority = Authority::create(dir.path())?;
            (authority, Some(Gateway::prepare(dir.path(), &config, options.viewers > 0)?))
        }
    };
    let members = fleet::enrol(&authority, options.devices)?;
    let streams = match options.reference {
        Some(setup) => Some(Streams::open(home, &members, setup, bytes).await?),
        None => None,
    };
    let (server, pid, mut gateway) = match (gateway, &options.target) {
        (Some(gateway), _) => {
            let serving = gateway.start().await?;
            (serving.address, serving.pid, Some(serving))
        }
        (None, Some(target)) => (target.server, target.pid, None),
        (None, None) => return Err(LoadError::NoProgram("fairtier".into())),
    };
    let dashboard = gateway.as_ref().and_then(|serving| serving.dashboard);
    let viewers = dashboard.map(|address| Viewers::start(address, options.viewers));
    let log = Arc::new(LoadLog::new(pid, options.schedule(), progress));
    let turns = Arc::new(Turns::new(streams, options.schedule()));
    let failed = async {
        match &mut gateway {
            Some(serving) => serving.failed().await,
            None => future::pending().await,
        }
    };
    let connect = tokio::select! {
        connect = fleet::run(server, &members, options, log.clone(), turns.clone()) => connect?,
        failed = failed => return Err(failed),
    };
    let viewed = viewers.map(Viewers::end).transpose()?;
    if let Some(serving) = gateway {
        serving.stop(|| log.look()).await?;
    }
    let bare = turns.end().await;
    let (rounds, peaks) = log.rounds();
    let cpu_s = log.cpu_per_round();
    Ok(LoadResult::conclude(
        options,
        Measurements { parameters, bytes, connect, rounds, bare, peaks, cpu_s, viewed },
    ))
}

/// Measurements at the end of the run.
struct Measurements {
    parameters: usize,
    bytes: [u32; 2],
    connect: Connected,
    rounds: Vec<LoadRound>,
    bare: Vec<BareRound>,
    peaks: Peaks,
    cpu_s: Option<f64>,
    viewed: Option<Viewed>,
}

impl LoadResult {
    fn conclude(options: &LoadOptions, seen: Measurements) -> Self {
        let Measurements { parameters, bytes, connect, rounds, bare, peaks, cpu_s, viewed } = seen;
        let counted = || rounds.iter().filter(|round| round.counted);
        let updates_per_s = median(counted().map(|round| round.updates_per_s));
        // Every exchange expects one update of every device; a missing round counts as one exchange.
        let missing = (options.schedule().total() as usize).saturating_sub(rounds.len());
        let exchanges = missing + rounds.iter().map(|round| round.exchanges.max(1)).sum::<usize>();
        let mut result = Self {
            options: options.clone(),
            parameters,
            bytes,
            connect,
            round_s: median(counted().map(|round| round.seconds)),
            updates_per_s,
            accepted: rounds.iter().map(|round| round.accepted).sum(),
            expected: (options.devices * exchanges) as u64,
            refused: rounds.iter().map(|round| round.refused).sum(),
            cpu_s,
            peak_rss_kb: peaks,
            reference: options
                .reference
                .map(|setup| Reference::of(setup, bare, options.devices, updates_per_s)),
            rounds,
            viewed,
            checks: vec![],
        };
        result.checks = check::checks(&result);
        result
    }

    /// Fails if updates are missing, because the figures would be misleading.
    pub fn complete(&self) -> Result<(), LoadError> {
        let Self { accepted, expected, refused, connect: Connected { lost, .. }, .. } = *self;
        if accepted == expected {
            return Ok(());
        }
        Err(LoadError::Incomplete { accepted, expected, refused, lost })
    }

    /// Fails if a bar is missed.
    pub fn check(&self) -> Result<(), LoadError> {
        let missed: Vec<_> = self.checks.iter().filter(|check| !check.passed).copied().collect();
        if missed.is_empty() { Ok(()) } else { Err(LoadError::MissedChecks(MissedChecks(missed))) }
    }
}

impl Reference {
    /// Summarises the bare rounds. Each ends when all its updates have arrived.
    fn of(setup: StreamSetup, rounds: Vec<BareRound>, devices: usize, updates_per_s: f64) -> Self {
        let round_s = median(rounds.iter().filter(|round| round.counted).map(|round| round.seconds));
        let counted = rounds.iter().filter(|round| round.counted);
        let bare = median(counted.map(|round| devices as f64 / round.seconds));
        Self { setup, rounds, round_s, updates_per_s: bare, ratio: updates_per_s / bare }
    }
}

/// Time limit of every step other than a round.
const PATIENCE: Duration = Duration::from_secs(60);

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result of four devices with so many accepted updates in each round. The first round does not count.
    pub fn result(accepted: &[u64]) -> LoadResult {
        let options = LoadOptions {
            devices: 4,
            rounds: accepted.len() as u32 - 1,
            reference: Some(StreamSetup::Plain),
            ..LoadOptions::default()
        };
        let round = |(index, &accepted): (usize, &u64)| LoadRound {
            round: 1 + index as u32,
            counted: index > 0,
            seconds: 2.0,
            collecting_s: 1.0,
            exchanges: 1,
            accepted,
            refused: 0,
            updates_per_s: accepted as f64 / 2.0,
            peak_rss_kb: Some(1000),
        };
        let bare = |index| BareRound { seconds: if index > 0 { 1.0 } else { 100.0 }, counted: index > 0 };
        let seen = Measurements {
            parameters: 1,
            bytes: [4; 2],
            connect: Connected { devices: 4, seconds: 1.0, repeated: 0, lost: 0 },
            rounds: accepted.iter().enumerate().map(round).collect(),
            bare: (0..accepted.len()).map(bare).collect(),
            peaks: Peaks::default(),
            cpu_s: None,
            viewed: None,
        };
        LoadResult::conclude(&options, seen)
    }

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    #[test]
    fn speed_counts_accepted_updates_of_counted_rounds() {
        let whole = result(&[4, 4, 4, 4]);
        assert_eq!((whole.updates_per_s, whole.round_s), (2.0, 2.0));
        assert_eq!(whole.reference.map(|bare| (bare.updates_per_s, bare.ratio)), Some((4.0, 0.5)));
        // Half of the updates gives half of the speed.
        let half = result(&[4, 2, 2, 2]);
        assert_eq!((half.updates_per_s, half.reference.map(|bare| bare.ratio)), (1.0, Some(0.25)));
    }

    #[test]
    fn missing_updates_are_an_error() {
        let whole = result(&[4, 4, 4]);
        assert_eq!((whole.accepted, whole.expected), (12, 12));
        assert!(whole.complete().is_ok());
        let error = result(&[4, 3, 4]).complete().unwrap_err().to_string();
        assert!(error.starts_with("11 updates of 12"), "{error}");
        // A missing round, and an exchange without accepted updates.
        let seen = |rounds| Measurements {
            parameters: 1,
            bytes: whole.bytes,
            connect: whole.connect,
            rounds,
            bare: vec![],
            peaks: Peaks::default(),
            cpu_s: None,
            viewed: None,
        };
        let mut rounds = whole.rounds.clone();
        rounds.pop();
        let fewer = LoadResult::conclude(&whole.options, seen(rounds.clone()));
        assert_eq!((fewer.accepted, fewer.expected), (8, 12));
        rounds[0].exchanges = 2;
        assert_eq!(LoadResult::conclude(&whole.options, seen(rounds)).expected, 16);
    }
}
