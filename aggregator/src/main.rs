//! `aggregator`: the gateway's command line.
// `println!` panics when the reader has gone; see `cli/output.rs`.
#![deny(clippy::print_stdout)]

use std::process::ExitCode;

use aggregator::roundfile::RoundFileError;
use clap::Parser;

mod cli;

// glibc's heap has holes after every round and grows for days; this one does not (`sim load` shows it).
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", common::error::explain(error.as_ref()));
            // As for a wrong argument: what was given has to be mended.
            if error.is::<RoundFileError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
