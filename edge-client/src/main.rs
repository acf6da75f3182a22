//! `edge-client`: a device with an operating system.
// `println!` panics when the reader has gone; see `cli/output.rs`.
#![deny(clippy::print_stdout)]

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
