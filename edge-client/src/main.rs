//! `edge-client`: a device with an operating system.

use std::process::ExitCode;

use clap::Parser;

mod cli;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", common::error::explain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
