//! `aggregator history`: one line per round that the store remembers.

use std::path::Path;

use aggregator::{
    report::history::{self, Row},
    store::{DiskStore, Options, Store},
};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::Value;

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Format {
    Table,
    Json,
    Csv,
}

pub(super) fn history(dir: &Path, format: Format) -> Result<()> {
    let path = dir.join("store");
    if !path.is_dir() {
        bail!("{}: no round is finished yet, or this is not an aggregator's directory", path.display());
    }
    let store = DiskStore::open(&path, Options::default())?;
    let mut reports: Vec<Value> = Vec::new();
    for (round, report) in store.history()? {
        reports.push(serde_json::from_str(&report).with_context(|| format!("report of round {round}"))?);
    }
    match format {
        Format::Json => println!("{}", Value::from(reports)),
        Format::Csv => print!("{}", history::csv(&reports)),
        Format::Table => {
            for (name, width, _) in history::COLUMNS {
                print!("{name:>width$} ");
            }
            println!();
            for row in reports.iter().map(Row::of) {
                for ((_, width, digits), value) in history::COLUMNS.iter().zip(row.0) {
                    let text = value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
                    print!("{text:>width$} ");
                }
                println!();
            }
        }
    }
    Ok(())
}
