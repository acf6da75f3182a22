//! The command line.

pub mod data;
pub mod partition;
pub mod report;
pub mod run;

use std::{io, path::PathBuf};

use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use common::output::{COLUMNS, print};
use strategies::Registry;

use crate::{data::SetError, experiment::ExperimentError, partition::PartitionError};

/// `fairtier sim`.
#[derive(Subcommand, Debug)]
pub enum Sim {
    /// Data sets: which there are, and what is in them
    #[command(after_help = data::EXAMPLES)]
    Data(data::DataArgs),
    /// Divides a data set among clients and shows who has what
    #[command(after_help = partition::EXAMPLES)]
    Partition(partition::PartitionArgs),
    /// Saved results as one self-contained page, Markdown or JSON: published against ours
    #[command(after_help = report::EXAMPLES)]
    Report(report::ReportArgs),
    /// Keeps saved results with the source: every figure, curves with a few points
    #[command(after_help = report::KEEP_EXAMPLES)]
    Keep(report::KeepArgs),
    /// Kept results as a record of every published claim: reached or not
    #[command(after_help = report::REPRODUCE_EXAMPLES)]
    Reproduce(report::ReproduceArgs),
    /// Runs an experiment of the papers, or one of your own
    #[command(after_help = run::RUN_EXAMPLES)]
    Run(run::RunArgs),
    /// Runs an experiment for several values of its keys
    #[command(after_help = run::SWEEP_EXAMPLES)]
    Sweep(run::SweepArgs),
    /// Compares results: two strategies, or two directories
    #[command(after_help = run::COMPARE_EXAMPLES)]
    Compare(run::CompareArgs),
}

impl Sim {
    pub fn run(&self, registry: &Registry) -> Result<()> {
        start_log();
        let text = match self {
            Self::Data(args) => data::run(args)?,
            Self::Partition(args) => partition::run(args)?,
            Self::Report(args) => report::report(args)?,
            Self::Keep(args) => report::kept(args)?,
            Self::Reproduce(args) => report::reproduce(args)?,
            Self::Run(args) => run::run(registry, args)?,
            Self::Sweep(args) => run::sweep(registry, args)?,
            Self::Compare(args) => run::compare(args)?,
        };
        Ok(print(&text)?)
    }
}

/// Columns of a terminal that a table may take.
fn columns(wide: bool) -> usize {
    if wide { usize::MAX } else { COLUMNS }
}

/// Silent unless asked for, as in RUST_LOG=info.
pub fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}

/// What can go wrong with data sets, partitions and experiments.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Set(#[from] SetError),
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error("can not write JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("can not write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}: a partition is drawn to a file that ends in .html or .svg", .0.display())]
    Ending(PathBuf),
}

/// What `fairtier sim --help` shows after the commands.
pub const SIM_EXAMPLES: &str = "\
Examples:
  fairtier sim run --list                     experiments of the papers
  fairtier sim run fairheterofl-mnist-noniid  one of them, in its quick profile
  fairtier sim report                         what was run as one page
  fairtier sim data list                      which data sets are here";

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    Table,
    Json,
}
