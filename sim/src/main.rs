//! `sim demo`: see `--help`.
#![forbid(unsafe_code)]

use std::{fs, future, path::Path};

use anyhow::{Context, Result};
use clap::Parser;
use sim::{
    demo::{self, DemoError, DemoResult},
    report,
};

mod cli;
mod progress;

use cli::{Cli, Command, DemoArgs, Format};

/// As shells report a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

fn main() -> Result<()> {
    let Command::Demo(args) = Cli::parse().command;
    // Silent unless asked for, as in RUST_LOG=info.
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let options = args.options()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            future::pending::<()>().await;
        }
    };
    match runtime.block_on(demo::run(&options, progress::observer(args.quiet), stop)) {
        Ok(result) => finish(&args, &result),
        Err(DemoError::Stopped) => {
            eprintln!("stopped; nothing was written");
            std::process::exit(INTERRUPTED);
        }
        Err(error) => Err(error.into()),
    }
}

fn finish(args: &DemoArgs, result: &DemoResult) -> Result<()> {
    match args.format {
        Format::Table => print!("{}", report::table(result)),
        Format::Json => println!("{}", serde_json::to_string_pretty(result)?),
    }
    if let Some(path) = args.report() {
        write(path, &report::html(result), args.quiet)?;
    }
    if let Some(path) = &args.picture {
        write(path, &report::picture(result), args.quiet)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str, quiet: bool) -> Result<()> {
    fs::write(path, text).with_context(|| format!("can not write {}", path.display()))?;
    if !quiet {
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}
