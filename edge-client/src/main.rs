//! `fairtier-client`: the commands of `fairtier device` alone, for devices with an operating system.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use fairtier_client::cli::Device;

/// Trains this device's slice of a fleet's model on data that never leaves the device.
#[derive(Parser, Debug)]
#[command(name = "fairtier-client", version)]
struct Cli {
    #[command(flatten)]
    device: Device,
}

fn main() -> ExitCode {
    let matches = renamed(Cli::command()).get_matches();
    let done = Cli::from_arg_matches(&matches).map_err(Into::into).and_then(|cli| cli.device.run());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", common::error::explain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Examples with the name of this program.
fn renamed(command: clap::Command) -> clap::Command {
    let help =
        command.get_after_help().map(|help| help.to_string().replace("fairtier device", "fairtier-client"));
    let command = command.mut_subcommands(renamed);
    match help {
        Some(help) => command.after_help(help),
        None => command,
    }
}
