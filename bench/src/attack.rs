//! Measures the guard: its cost to honest devices, and the damage it prevents when devices are hostile. The result is
//! one table with a line per fleet and a column per guard.
//!
//! An honest row has no hostile devices; its reference is the same fleet with the guard off. In an attack row a share
//! of the devices is hostile, and its figures are over the other devices. Its reference is the same fleet, all
//! honest, with the guard off. Every cell is a mean of paired differences over seeds, with the half width of its 95 %
//! interval.
//!
//! All settings except tiers, rounds and seed are those that `fairtier gateway init` writes, unless an option changes
//! them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use aggregator::config::ConfigError;
use client::data::DataError;
use serde::Serialize;

use fleet::AttackFleet;
use sim::{data::SetError, engine::EngineError, partition::PartitionError};
use strategies::Registry;

mod change;
mod digits;
mod fleet;
mod liar;
mod row;
mod run;
mod table;
#[cfg(test)]
mod tests;
mod wisdm;

pub use change::PairedChange;
pub use row::{Attack, GuardRow, Honest};
pub use run::FleetFigures;
pub(crate) use table::table;

/// Why rows cannot be measured.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
#[non_exhaustive]
pub enum AttackError {
    #[error("the data: {0}")]
    Data(#[from] DataError),
    #[error(transparent)]
    Set(#[from] SetError),
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error("the configuration: {0}")]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the probe's samples: {0}")]
    Probe(std::io::Error),
    #[error("the run ended without scores of the final model")]
    NoScores,
    #[error("`{0}` is not a row; `fairtier bench attack --list` shows all")]
    NoRow(String),
    #[error("{0} devices are too few: a row needs at least 4")]
    TooFew(usize),
}

/// The data set of the fleet.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum AttackData {
    /// The built-in digits, a Dirichlet draw (0.5) of classes for every device.
    Digits,
    /// People with a phone (WISDM): one device per person.
    Wisdm,
}

/// Options of `fairtier bench attack`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AttackOptions {
    /// What devices hold; the digits by default.
    pub data: AttackData,
    /// Devices of each fleet, at least 4; 20 by default.
    pub devices: usize,
    /// Widths of the tiers, widest first; devices are dealt to them in turn.
    pub tiers: Vec<f64>,
    /// Rounds of each run; 100 by default.
    pub rounds: u32,
    /// Name of the strategy. An empty string keeps the one that `init` writes.
    pub strategy: String,
    /// Parameters of the strategy as the inside of a TOML table, as in `q = 2`.
    pub params: String,
    /// Share of the devices asked in a round.
    pub participation: f64,
    /// Guards that are compared: a name and its `[guard]`.
    pub guards: Vec<(String, String)>,
    /// Rows of the result; [`GuardRow::all`] by default.
    pub rows: Vec<GuardRow>,
    /// Seed of the first run.
    pub seed: u64,
    /// Number of seeds, one after another; 5 by default. One seed gives no interval.
    pub seeds: u64,
    /// Runs at the same time; 2 by default. The result does not depend on it.
    pub threads: usize,
}

impl Default for AttackOptions {
    fn default() -> Self {
        let guard = |name: &str, keys: &str| (name.to_owned(), keys.to_owned());
        Self {
            data: AttackData::Digits,
            devices: 20,
            tiers: vec![1.0, 0.5, 0.25],
            rounds: 100,
            strategy: String::new(),
            params: String::new(),
            participation: 1.0,
            guards: vec![
                guard("off", "mode = \"off\""),
                guard("default", ""),
                guard("agreeing", "bonus = \"agreeing\""),
                guard("probe", PROBE),
            ],
            rows: GuardRow::all(),
            seed: 1,
            seeds: 5,
            threads: 2,
        }
    }
}

/// Name of the guard with a probe; the path of the probe's file is added for each run.
const PROBE: &str = "probe";

/// One row, under every guard.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GuardRowResult {
    /// The fleet that the cells are about.
    #[serde(flatten)]
    pub row: GuardRow,
    /// One cell per guard, in the order of the options.
    pub cells: Vec<GuardCell>,
}

/// A row under one guard.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GuardCell {
    /// Its name in [`AttackOptions::guards`].
    pub guard: String,
    /// Mean loss, relative to the reference.
    pub loss: PairedChange,
    /// Variance of losses over devices, relative to the reference.
    pub variance: PairedChange,
    /// Accuracy in points: of the devices that the row is about (honest rows), or of the worst tenth.
    pub points: PairedChange,
    /// Means over seeds of the figures themselves.
    pub mean: FleetFigures,
}

/// What [`run`] has measured; `fairtier bench attack --format json` prints it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AttackResult {
    /// As given, so that a result can be measured again.
    pub options: AttackOptions,
    /// In the order of the options.
    pub rows: Vec<GuardRowResult>,
}

/// One run: a row, a seed, a guard.
#[derive(Clone, Debug)]
struct AttackRun {
    row: GuardRow,
    seed: u64,
    guard: (String, String),
}

/// Runs every case on all threads. `progress` is called after each run with the number of finished runs and of all
/// runs.
pub fn run(
    registry: &Registry,
    options: &AttackOptions,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<AttackResult, AttackError> {
    if options.devices < 4 {
        return Err(AttackError::TooFew(options.devices));
    }
    let units = units(options);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || -> Result<(), AttackError> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = units.get(at) else { return Ok(()) };
            let fleet = AttackFleet::new(options, unit.row, unit.seed)?;
            let figures = run::once(registry, options, &fleet, unit)?;
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.insert(key(unit), figures);
            progress(done.len(), units.len());
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let rows = options.rows.iter().map(|&row| result(options, row, &done)).collect();
    Ok(AttackResult { options: options.clone(), rows })
}

type RunKey = (String, u64, String);

fn key(unit: &AttackRun) -> RunKey {
    (unit.row.to_string(), unit.seed, unit.guard.0.clone())
}

fn seeds(options: &AttackOptions) -> std::ops::Range<u64> {
    options.seed..options.seed + options.seeds.max(1)
}

/// All runs including references, without repetitions.
fn units(options: &AttackOptions) -> Vec<AttackRun> {
    let mut units: BTreeMap<RunKey, AttackRun> = BTreeMap::new();
    for &row in &options.rows {
        for seed in seeds(options) {
            let reference = AttackRun { row: row.reference(), seed, guard: off() };
            let guarded = options.guards.iter().map(|guard| AttackRun { row, seed, guard: guard.clone() });
            units.extend(guarded.chain([reference]).map(|unit| (key(&unit), unit)));
        }
    }
    units.into_values().collect()
}

fn off() -> (String, String) {
    ("off".to_owned(), "mode = \"off\"".to_owned())
}

fn result(
    options: &AttackOptions,
    row: GuardRow,
    done: &BTreeMap<RunKey, Vec<run::FinalScore>>,
) -> GuardRowResult {
    let figures = |row: GuardRow, seed: u64, guard: &(String, String), of: GuardRow| {
        let scores = &done[&key(&AttackRun { row, seed, guard: guard.clone() })];
        FleetFigures::of(scores, options, of, seed)
    };
    let cell = |guard: &(String, String)| {
        let pairs: Vec<(FleetFigures, FleetFigures)> = seeds(options)
            .map(|seed| (figures(row, seed, guard, row), figures(row.reference(), seed, &off(), row)))
            .collect();
        let relative = |of: fn(&FleetFigures) -> f64| {
            PairedChange::of(pairs.iter().map(|(now, then)| 100.0 * (of(now) / of(then) - 1.0)))
        };
        GuardCell {
            guard: guard.0.clone(),
            loss: relative(|figures| figures.loss),
            variance: relative(|figures| figures.variance),
            points: PairedChange::of(pairs.iter().map(|(now, then)| 100.0 * (now.subject - then.subject))),
            mean: FleetFigures::mean(&pairs.iter().map(|(now, _)| *now).collect::<Vec<_>>()),
        }
    };
    GuardRowResult { row, cells: options.guards.iter().map(cell).collect() }
}
