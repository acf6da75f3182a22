//! The command line: groups of commands, each implemented in the crate that does the work.

use std::{io, path::PathBuf, process::ExitCode};

use aggregator::cli::{Codes, FairnessTools, Gateway, Round};
use anyhow::{Context, Result};
use bench::cli::Bench;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use client::cli::{Board, DataTools, Device};
use common::output::print;
use models::cli::ModelTools;
use sim::cli::{SIM_EXAMPLES, Sim};
use strategies::{Registry, roundfile::RoundFileError};

mod demo;
mod moved;
mod reference;
mod troubleshooting;

/// Fair federated learning on unequal devices.
#[derive(Parser, Debug)]
#[command(name = "fairtier", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Trains one fleet with HeteroFL and with FairHeteroFL, and compares the results of every device
    #[command(after_help = demo::EXAMPLES)]
    Demo(demo::DemoArgs),
    /// The gateway: configuration, enrolled devices, rounds, and the resulting model
    Gateway(Gateway),
    /// A device with an operating system: takes part in rounds, or connects boards to the gateway
    Device(Device),
    /// Boards on serial ports: firmware, samples, state
    Board(Board),
    /// Files of samples: a schema for their columns, and what fits it
    Data(DataTools),
    /// Models: what is in them, slices, memory they need, gradients
    Model(ModelTools),
    /// Whole fleets in virtual time: experiments, data sets, reports
    #[command(subcommand, after_help = SIM_EXAMPLES)]
    Sim(Sim),
    /// Recorded rounds
    #[command(subcommand, after_help = ROUND)]
    Round(Round),
    /// Fairness targets over recorded rounds
    #[command(subcommand, after_help = FAIRNESS)]
    Fairness(FairnessTools),
    /// Measurements: a gateway under load, the guard under attack
    #[command(subcommand, after_help = BENCH)]
    Bench(Bench),
    /// Lists the numbered errors
    Codes(Codes),
    /// Prints a generated page of the documentation as Markdown
    #[command(after_help = REFERENCE)]
    Reference {
        /// Which page of the documentation
        #[arg(long, value_enum, default_value_t = Page::Reference)]
        page: Page,
    },
    /// Prints completions for a shell
    #[command(after_help = COMPLETIONS)]
    Completions { shell: clap_complete::Shell },
    /// Writes a manual page for every command
    #[command(after_help = MAN)]
    Man {
        /// Directory to write to; created if missing
        #[arg(long, default_value = "man")]
        out: PathBuf,
    },
}

/// A page that is generated from the code.
#[derive(Copy, Clone, Debug, ValueEnum)]
enum Page {
    /// All strategies with their parameters, all configuration keys and all codes
    Reference,
    /// Every code with its remedy
    Troubleshooting,
}

const EXAMPLES: &str = "\
Examples:
  fairtier demo                                      20 devices over QUIC, two strategies, report.html
  fairtier gateway init gateway                      configuration and certificates of a gateway
  fairtier gateway enroll --dir gateway cam-1        a device joins the fleet: cam-1.pem
  fairtier gateway serve --dir gateway               serve the fleet
  fairtier device run --identity cam-1.pem --data samples.csv
  fairtier sim run --list                            experiments of the papers";

const ROUND: &str = "\
Examples:
  fairtier round combine --strategy fedlf round.json  compute a recorded round again, with any strategy";

const FAIRNESS: &str = "\
Examples:
  fairtier fairness replay gateway/store/history.jsonl --target 0.2   what a target of 0.2 would have asked for";

const BENCH: &str = "\
Examples:
  fairtier bench load --devices 50 --rounds 20        a real gateway under load
  fairtier bench attack --seeds 2                     cost and benefit of the guard";

const MAN: &str = "\
Examples:
  fairtier man --out /usr/local/share/man/man1";

const REFERENCE: &str = "\
Examples:
  fairtier reference > docs/REFERENCE.md
  fairtier reference --page troubleshooting > docs/troubleshooting.md";

const COMPLETIONS: &str = "\
Examples:
  fairtier completions bash > /etc/bash_completion.d/fairtier
  fairtier completions zsh > ~/.zfunc/_fairtier";

/// The command line, for completions and manual pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the whole program with the strategies of a registry: reads the arguments, executes the command, and returns
/// the exit code.
pub fn run(registry: &Registry) -> ExitCode {
    if let Some(advice) = moved::advice(std::env::args().skip(1)) {
        eprintln!("error: {advice}");
        return ExitCode::from(2);
    }
    match Cli::parse().command.run(registry) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", common::error::explain(error.as_ref()));
            // The input file is wrong, so the exit code is that of a wrong argument.
            if error.is::<RoundFileError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

impl Command {
    fn run(self, registry: &Registry) -> Result<ExitCode> {
        match self {
            Self::Demo(args) => return args.run(),
            Self::Model(tools) => return tools.run(),
            Self::Gateway(gateway) => gateway.run(registry)?,
            Self::Device(device) => device.run()?,
            Self::Board(board) => board.run()?,
            Self::Data(tools) => tools.run()?,
            Self::Sim(sim) => sim.run(registry)?,
            Self::Round(round) => round.run(registry)?,
            Self::Fairness(tools) => tools.run(registry)?,
            Self::Bench(bench) => bench.run(registry)?,
            Self::Codes(codes) => codes.run()?,
            Self::Reference { page: Page::Reference } => print(&reference::markdown(registry)?)?,
            Self::Reference { page: Page::Troubleshooting } => print(&troubleshooting::markdown())?,
            Self::Completions { shell } => {
                clap_complete::generate(shell, &mut command(), "fairtier", &mut io::stdout());
            }
            Self::Man { out } => {
                std::fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
                clap_mangen::generate_to(command(), &out).with_context(|| out.display().to_string())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
