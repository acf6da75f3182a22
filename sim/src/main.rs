//! `sim run`, `sim sweep`, `sim compare`, `sim report`, `sim keep`, `sim reproduce`, `sim attack`, `sim load`,
//! `sim demo`, `sim data`, `sim partition`: see `--help`.
#![forbid(unsafe_code)]
// `println!` panics when the reader has gone; see `print`.
#![deny(clippy::print_stdout)]

use std::{
    fs, future,
    io::{self, ErrorKind, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use sim::{
    demo::{self, DemoError},
    report,
};

mod cli;
mod progress;

use cli::{Cli, Command, DemoArgs, Format};

/// As shells report a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // Silent unless asked for, as in RUST_LOG=info.
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let done = match &command {
        Command::Demo(args) => demo(args),
        Command::Attack(args) => cli::attack::run(args).map_err(Into::into).and_then(|text| print(&text)),
        Command::Data(args) => cli::data::run(args).map_err(Into::into).and_then(|text| print(&text)),
        Command::Load(args) => cli::load::run(args).map_err(Into::into).and_then(|text| print(&text)),
        Command::Bare(args) => cli::load::bare(args).map_err(Into::into).and_then(|text| print(&text)),
        Command::Partition(args) => {
            cli::partition::run(args).map_err(Into::into).and_then(|text| print(&text))
        }
        Command::Report(args) => cli::report::report(args).map_err(Into::into).and_then(|text| print(&text)),
        Command::Keep(args) => cli::report::kept(args).map_err(Into::into).and_then(|text| print(&text)),
        Command::Reproduce(args) => {
            cli::report::reproduce(args).map_err(Into::into).and_then(|text| print(&text))
        }
        Command::Run(args) => cli::run::run(args).map_err(Into::into).and_then(|text| print(&text)),
        Command::Sweep(args) => cli::run::sweep(args).map_err(Into::into).and_then(|text| print(&text)),
        Command::Compare(args) => cli::run::compare(args).map_err(Into::into).and_then(|text| print(&text)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if matches!(error.downcast_ref(), Some(DemoError::Stopped)) => {
            eprintln!("stopped; nothing was written");
            INTERRUPTED.into()
        }
        Err(error) => {
            eprintln!("error: {}", common::error::explain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn demo(args: &DemoArgs) -> Result<()> {
    let options = args.options()?;
    // Better now than after the work is done.
    for path in args.report().into_iter().chain(&args.picture) {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(dir.is_dir(), "can not write {}: there is no directory {}", path.display(), dir.display());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            future::pending::<()>().await;
        }
    };
    let result = runtime.block_on(demo::run(&options, progress::observer(args.quiet), stop))?;
    let text = match args.format {
        Format::Table => report::table(&result),
        Format::Json => serde_json::to_string(&result)? + "\n",
    };
    if let Some(path) = args.report() {
        write(path, &report::html(&result), args.quiet)?;
    }
    if let Some(path) = &args.picture {
        write(path, &report::picture(&result), args.quiet)?;
    }
    print(&text)
}

/// Not print!, which panics when the reader has gone. One that closes early, as in `| head`, is no failure.
fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("can not print the result"),
    }
}

fn write(path: &Path, text: &str, quiet: bool) -> Result<()> {
    fs::write(path, text).with_context(|| format!("can not write {}", path.display()))?;
    if !quiet {
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}
