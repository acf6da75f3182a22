//! The command line.

pub mod attack;
pub mod data;
#[expect(clippy::print_stdout, reason = "the `sim load` that has started `sim bare` reads every line")]
pub mod load;
pub mod partition;
pub mod report;
pub mod run;

use std::{io, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use sim::{
    data::SetError,
    demo::{BadOption, DemoOptions},
    experiment::ExperimentError,
    partition::PartitionError,
};

#[derive(Parser, Debug)]
#[command(
    name = "sim",
    version,
    about = "Whole fleets in one process: fair federated learning on unequal devices",
    propagate_version = true,
    after_help = ALL_EXAMPLES
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Trains one fleet with HeteroFL and with FairHeteroFL, and shows who gains and who pays
    #[command(after_help = EXAMPLES)]
    Demo(DemoArgs),
    /// Measures what the guard costs honest devices and what it saves from hostile ones
    #[command(after_help = attack::EXAMPLES)]
    Attack(attack::AttackArgs),
    /// Puts a real aggregator under the load of many devices and measures it
    #[command(after_help = load::EXAMPLES)]
    Load(load::LoadArgs),
    #[command(hide = true)]
    Bare(load::BareArgs),
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

const ALL_EXAMPLES: &str = "\
Examples:
  sim demo                                  20 devices over QUIC, two strategies, report.html
  sim run --list                            experiments of the papers
  sim run fairheterofl-mnist-noniid         one of them, in its quick profile
  sim report                                what was run as one page
  sim data list                             which data sets are here
  sim load --devices 50 --rounds 20         a real aggregator under load";

const EXAMPLES: &str = "\
Examples:
  sim demo                                  20 devices, both strategies, report.html
  sim demo --seed 7                         other data split, other initial model
  sim demo --strategy-params '{\"q\": 5}'     more weight on slow tiers
  sim demo --format json --quiet | jq .changes
  sim demo --rounds 2 --out -               a quick look without a report

One aggregator and all devices run in this process and talk QUIC with mutual TLS over loopback.
The same seed gives the same numbers.";

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Rounds of training per strategy
    #[arg(long, value_name = "N", default_value_t = DemoOptions::default().rounds)]
    pub rounds: u32,
    /// Seed of data split, initial model and order of samples
    #[arg(long, value_name = "S", default_value_t = DemoOptions::default().seed)]
    pub seed: u64,
    /// Devices in each of the five tiers
    #[arg(long, value_name = "N", default_value_t = DemoOptions::default().devices_per_tier)]
    pub devices_per_tier: usize,
    /// Parameters of FairHeteroFL as a JSON object; those not named keep the demo's value
    #[arg(long, value_name = "JSON")]
    pub strategy_params: Option<String>,
    /// Where to write the report; - for none
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Also write the main comparison as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

impl DemoArgs {
    pub fn options(&self) -> Result<DemoOptions, BadOption> {
        let options = DemoOptions {
            rounds: self.rounds,
            seed: self.seed,
            devices_per_tier: self.devices_per_tier,
            ..DemoOptions::default()
        };
        options.check()?;
        match &self.strategy_params {
            Some(params) => options.with_strategy_params(params),
            None => Ok(options),
        }
    }

    /// Where the report goes, if one is wanted.
    pub fn report(&self) -> Option<&PathBuf> {
        (self.out.as_os_str() != "-").then_some(&self.out)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn options(args: &[&str]) -> Result<DemoOptions, BadOption> {
        let cli = Cli::try_parse_from([&["sim", "demo"], args].concat()).unwrap();
        let Command::Demo(demo) = cli.command else { panic!("another command") };
        demo.options()
    }

    #[test]
    fn the_command_line_is_sound_and_its_defaults_are_those_of_the_library() {
        Cli::command().debug_assert();
        assert_eq!(options(&[]), Ok(DemoOptions::default()));
    }

    #[test]
    fn bad_values_are_named() {
        assert_eq!(options(&["--rounds", "0"]), Err(BadOption::Rounds(0)));
        assert_eq!(options(&["--devices-per-tier", "41"]), Err(BadOption::DevicesPerTier(41)));
        for (params, named) in [("[1]", "object"), (r#"{"Q": 1}"#, "Q"), (r#"{"q": -1}"#, "q"), ("{", "EOF")]
        {
            let error = options(&["--strategy-params", params]).unwrap_err().to_string();
            assert!(error.contains(named), "{params}: {error}");
        }
        // One value too few for five tiers.
        let error = options(&["--strategy-params", r#"{"q_m": [1, 2, 3, 4]}"#]).unwrap_err().to_string();
        assert!(error.contains("5 tiers"), "{error}");
    }

    #[test]
    fn parameters_not_named_are_kept() {
        let fair = options(&["--strategy-params", r#"{"q": 7}"#]).unwrap().fair;
        assert_eq!(fair["q"], 7);
        assert_eq!(fair.get("step"), DemoOptions::default().fair.get("step"));
    }
}
