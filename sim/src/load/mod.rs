//! A real aggregator under load: devices without data and without training, which say and send what real ones
//! would, over real QUIC with mutual TLS.
//!
//! `gateway` starts the aggregator's process, `fleet` opens the connections, `device` holds the conversation
//! of one device with updates from `updates`, and `log` writes down what happens when. `bare` moves the same
//! bytes through QUIC streams with nothing around them, between two processes, for comparison, in `turns`.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use aggregator::{
    ca::{Authority, CaError},
    config::ConfigError,
    server::{ServerError, open_model},
    strategy::Needs,
};
use common::Codec;
use edge_client::host::IdentityError;
use serde::Serialize;

pub mod bare;
mod device;
mod fleet;
mod gateway;
mod log;
mod reader;
mod table;
mod turns;
mod updates;

pub use log::{LoadLog, LoadRound};
pub use table::table;
pub use turns::BareRound;

use bare::{Setup, Streams};
use gateway::Gateway;
use turns::{Schedule, Turns};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{0} is missing; build it first: cargo build --release --workspace --bins")]
    NoProgram(PathBuf),
    #[error("{program} has ended before it was listening: {said}")]
    Process { program: &'static str, said: String },
    #[error(transparent)]
    Authority(#[from] CaError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Model(#[from] ServerError),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("{device}: {what}")]
    Device { device: String, what: String },
}

/// What to do.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadOptions {
    pub devices: usize,
    /// Rounds that count; with a reference there are more.
    pub rounds: u32,
    /// Connections that are opened at the same time.
    pub concurrency: usize,
    pub codec: Codec,
    pub model: String,
    pub strategy: String,
    /// Also move the same bytes through bare streams.
    pub reference: Option<Setup>,
    /// An aggregator that is running already.
    pub target: Option<Target>,
    pub seed: u64,
}

/// A running aggregator on this machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Target {
    pub server: SocketAddr,
    /// Its directory, where the devices are enrolled.
    pub dir: PathBuf,
    /// Its process, to see its memory.
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
            seed: 1,
        }
    }
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
    /// Bytes of the model down and of an update up.
    pub bytes: [u32; 2],
    pub connect: Connected,
    pub rounds: Vec<LoadRound>,
    /// Median seconds of the rounds that count.
    pub round_s: f64,
    pub updates_per_s: f64,
    pub accepted: u64,
    pub refused: u64,
    /// The aggregator's peak memory with all devices connected, before the first round.
    pub idle_rss_kb: Option<u64>,
    pub peak_rss_kb: Option<u64>,
    pub reference: Option<Reference>,
}

/// How the fleet came in.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Connected {
    pub devices: usize,
    pub seconds: f64,
    /// Attempts that had to be repeated.
    pub repeated: u64,
    /// Connections that were lost later and opened again.
    pub lost: u64,
}

/// The same bytes without a protocol, a disk or a sum.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reference {
    pub setup: Setup,
    pub rounds: Vec<BareRound>,
    /// Median seconds of those that count.
    pub round_s: f64,
    pub updates_per_s: f64,
    /// Updates per second of the aggregator as a share of these.
    pub ratio: f64,
}

/// Called when a round has ended.
pub type Progress = Box<dyn Fn(&LoadRound) + Send + Sync>;

/// Puts an aggregator under load.
pub async fn run(options: &LoadOptions, progress: Progress) -> Result<LoadResult, LoadError> {
    let config = gateway::config(options)?;
    let (model, _) = open_model(&config, Needs::default())?;
    let parameters = model.regions.parameters();
    let bytes = [options.codec.encoded_len(parameters).unwrap_or(0); 2];
    let dir =
        tempfile::tempdir().map_err(|source| LoadError::Io { what: "temporary files".into(), source })?;
    let home = options.target.as_ref().map_or(dir.path(), |target| &target.dir);
    let (authority, gateway) = match &options.target {
        Some(target) => (Authority::open(&target.dir)?, None),
        None => {
            let authority = Authority::create(dir.path())?;
            (authority, Some(Gateway::prepare(dir.path(), &config)?))
        }
    };
    let members = fleet::enrol(&authority, options.devices)?;
    let streams = match options.reference {
        Some(setup) => Some(Streams::open(home, &members, setup, bytes).await?),
        None => None,
    };
    let (server, pid, gateway) = match (gateway, &options.target) {
        (Some(gateway), _) => {
            let serving = gateway.start().await?;
            (serving.address, serving.pid, Some(serving))
        }
        (None, Some(target)) => (target.server, target.pid, None),
        (None, None) => return Err(LoadError::NoProgram("aggregator".into())),
    };
    let log = Arc::new(LoadLog::new(pid, options.schedule(), progress));
    let turns = Arc::new(Turns::new(streams, options.schedule()));
    let connect = fleet::run(server, &members, options, log.clone(), turns.clone()).await?;
    if let Some(serving) = gateway {
        serving.stop().await;
    }
    let reference = options.reference.zip(Some(turns.end().await));
    let (rounds, idle_rss_kb) = log.rounds();
    let round_s = median(rounds.iter().filter(|round| round.counted).map(|round| round.seconds));
    let updates_per_s = options.devices as f64 / round_s;
    Ok(LoadResult {
        options: options.clone(),
        parameters,
        bytes,
        connect,
        round_s,
        updates_per_s,
        accepted: rounds.iter().map(|round| round.accepted).sum(),
        refused: rounds.iter().map(|round| round.refused).sum(),
        idle_rss_kb,
        peak_rss_kb: rounds.iter().filter_map(|round| round.peak_rss_kb).max(),
        reference: reference.map(|(setup, rounds)| {
            let bare = median(rounds.iter().filter(|round| round.counted).map(|round| round.seconds));
            Reference {
                setup,
                rounds,
                round_s: bare,
                updates_per_s: options.devices as f64 / bare,
                ratio: bare / round_s,
            }
        }),
        rounds,
    })
}

/// How long anything may take that is not a round.
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
    use super::median;

    #[test]
    fn the_middle_of_an_even_number_lies_between() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }
}
