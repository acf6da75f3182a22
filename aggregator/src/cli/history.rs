//! `aggregator history`: one line per round.

use std::path::Path;

use aggregator::{
    report::history::{self, Row},
    store::Reports,
};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::Value;
use tracing::warn;

use super::print;

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Format {
    Table,
    Json,
    Csv,
}

pub(super) fn history(dir: &Path, format: Format) -> Result<()> {
    let path = dir.join("store");
    let Some(Reports { reports, damaged }) = Reports::read(&path)? else {
        bail!("{}: no round is finished yet, or this is not an aggregator's directory", path.display());
    };
    if !damaged.is_empty() {
        warn!("{}: lines {damaged:?} of history.jsonl are no reports", path.display());
    }
    let parse = |(round, report): (u32, String)| {
        serde_json::from_str(&report).with_context(|| format!("{}: report of round {round}", path.display()))
    };
    let reports = reports.into_iter().map(parse).collect::<Result<Vec<Value>>>()?;
    let text = match format {
        Format::Json => Value::from(reports).to_string() + "\n",
        Format::Csv => history::csv(&reports),
        Format::Table => table(&reports),
    };
    Ok(print(&text)?)
}

fn table(reports: &[Value]) -> String {
    let line = |cells: Vec<String>| cells.join(" ") + "\n";
    let names = history::COLUMNS.iter().map(|&(name, width, _)| format!("{name:>width$}"));
    let mut text = line(names.collect());
    for row in reports.iter().map(Row::of) {
        let cell = |(&(_, width, digits), value): (&(&str, usize, usize), Option<f64>)| {
            let value = value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
            format!("{value:>width$}")
        };
        text += &line(history::COLUMNS.iter().zip(row.0).map(cell).collect());
    }
    text
}
