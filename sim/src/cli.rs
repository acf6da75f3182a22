//! The command line.

mod data;
mod leaderboard;
mod new;
mod partition;
mod report;
mod run;

use std::{io, path::PathBuf};

use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use common::output::{COLUMNS, print};
use strategies::Registry;

use crate::{
    data::SetError, experiment::ExperimentError, leaderboard::FillError, partition::PartitionError,
    results::ResultsError,
};

/// `fairtier sim`.
#[derive(Subcommand, Debug)]
pub enum Sim {
    /// Data sets: lists them, and shows their content
    #[command(after_help = data::EXAMPLES)]
    Data(data::DataArgs),
    /// Divides a data set among clients and shows the result
    #[command(after_help = partition::EXAMPLES)]
    Partition(partition::PartitionArgs),
    /// Writes saved results as one self-contained page, Markdown or JSON, compared with the published values
    #[command(after_help = report::EXAMPLES)]
    Report(report::ReportArgs),
    /// Saves a small copy of results for the repository: every figure, and curves with a few points
    #[command(after_help = report::KEEP_EXAMPLES)]
    Keep(report::KeepArgs),
    /// Writes the record of every published claim from kept results: reached or not
    #[command(after_help = report::REPRODUCE_EXAMPLES)]
    Reproduce(report::ReproduceArgs),
    /// Writes a commented experiment file to start from
    #[command(after_help = new::EXAMPLES)]
    New(new::NewArgs),
    /// Runs an experiment of the papers, or one of your own
    #[command(after_help = run::RUN_EXAMPLES)]
    Run(run::RunArgs),
    /// Runs an experiment for several values of its keys
    #[command(after_help = run::SWEEP_EXAMPLES)]
    Sweep(run::SweepArgs),
    /// Prints the board of all strategies from kept results, and runs what it lacks
    #[command(after_help = leaderboard::EXAMPLES)]
    Leaderboard(leaderboard::LeaderboardArgs),
    /// Compares results: two strategies, or two directories
    #[command(after_help = run::COMPARE_EXAMPLES)]
    Compare(run::CompareArgs),
}

impl Sim {
    /// Executes the command and prints its output.
    pub fn run(&self, registry: &Registry) -> Result<()> {
        start_log();
        let text = match self {
            Self::Data(args) => data::run(args)?,
            Self::Partition(args) => partition::run(args)?,
            Self::Report(args) => report::report(args)?,
            Self::Keep(args) => report::kept(args)?,
            Self::Reproduce(args) => report::reproduce(args)?,
            Self::New(args) => new::run(args)?,
            Self::Run(args) => run::run(registry, args)?,
            Self::Sweep(args) => run::sweep(registry, args)?,
            Self::Leaderboard(args) => leaderboard::run(registry, args)?,
            Self::Compare(args) => run::compare(args)?,
        };
        Ok(print(&text)?)
    }
}

/// Maximum width of a table in columns of a terminal.
fn columns(wide: bool) -> usize {
    if wide { usize::MAX } else { COLUMNS }
}

/// No log output unless requested, as in RUST_LOG=info.
pub fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}

/// Errors of data sets, partitions and experiments.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Set(#[from] SetError),
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Fill(#[from] FillError),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}: a partition is drawn to a file that ends in .html or .svg", .0.display())]
    Ending(PathBuf),
}

/// Text after the commands in `fairtier sim --help`.
pub const SIM_EXAMPLES: &str = "\
Examples:
  fairtier sim run --list                     experiments of the papers
  fairtier sim run fairheterofl-mnist-noniid  one of them, in its quick profile
  fairtier sim new mine                       mine.toml, an experiment of your own
  fairtier sim report                         results as one page
  fairtier sim data list                      known data sets, and which are installed";

/// How commands print their output: as aligned text, or as JSON with every number.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
#[expect(missing_docs, reason = "clap would print the line of a variant in every --help")]
pub enum Format {
    Table,
    Json,
}
