//! `fairtier gateway history`: one line per round.
//!
//! Reports are read and printed one after another, so memory does not grow with their number.

use std::{io::Write, path::Path};

use crate::{
    status,
    store::{LineFaults, Report, ReportReader},
};
use anyhow::{Result, bail};
use clap::ValueEnum;
use coordinator::{
    best::BestModel,
    report::history::{HistoryRow, csv_head, has_target, table_head, tiers},
};
use serde::Deserialize as _;
use serde_json::Value;
use tracing::warn;

use super::output::stream;

/// Damaged lines that are reported one by one.
const NAMED: usize = 10;

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Format {
    Table,
    Json,
    Csv,
}

pub(super) fn history(dir: &Path, format: Format, last: Option<usize>) -> Result<()> {
    let status = status::last(dir);
    let store = dir.join("store");
    let mut reader = open(&store, last)?;
    stream(|out| match format {
        Format::Table => {
            let target = any_target(open(&store, last)?)?;
            let end = print_rows(&mut reader, out, &table_head(target), |row, before| {
                let change = change_line(row, before).map_or(String::new(), |line| line + "\n");
                change + &row.table(target)
            })?;
            Ok(write!(out, "{}", end_lines(end.as_ref(), status.as_ref()))?)
        }
        Format::Csv => {
            // The header names every tier, so the tiers are counted first.
            let tiers = most_tiers(open(&store, last)?)?;
            print_rows(&mut reader, out, &csv_head(tiers), |row, _| row.csv(tiers)).map(drop)
        }
        Format::Json => print_json(&mut reader, out),
    })?;
    name_faults(&store, reader.faults());
    Ok(())
}

fn open(store: &Path, last: Option<usize>) -> Result<ReportReader> {
    let reader = match last {
        Some(count) => ReportReader::last(store, count)?,
        None => ReportReader::open(store)?,
    };
    let Some(reader) = reader else {
        bail!("{}: no round is finished yet, or this is not an aggregator's directory", store.display());
    };
    Ok(reader)
}

fn print_rows(
    reader: &mut ReportReader,
    out: &mut dyn Write,
    head: &str,
    line: impl Fn(&HistoryRow, Option<&HistoryRow>) -> String,
) -> Result<Option<HistoryRow>> {
    writeln!(out, "{head}")?;
    let mut before = None;
    while let Some(Report { round, text }) = reader.read_next()? {
        match HistoryRow::parse(text) {
            Ok(row) => {
                writeln!(out, "{}", line(&row, before.as_ref()))?;
                before = Some(row);
            }
            Err(error) => {
                warn!("the report of round {round} is left out, because it cannot be parsed: {error}");
            }
        }
    }
    Ok(before)
}

/// A line before a round whose strategy or configuration is not that of the round before.
fn change_line(row: &HistoryRow, before: Option<&HistoryRow>) -> Option<String> {
    let round = row.cells[0].map_or("-".to_owned(), |round| round.to_string());
    if let Some(change) = row.change() {
        return Some(format!("-- changed before round {round}: {change}"));
    }
    // After a rollback, a round is compared with one that is undone.
    let (from, to) = (before?.strategy.as_ref()?, row.strategy.as_ref()?);
    (from != to).then(|| format!("-- changed before round {round}: strategy.name {from} -> {to}"))
}

/// Why training has ended early, and the best model. The scores after the last round, which have no line, may have changed it.
fn end_lines(last: Option<&HistoryRow>, status: Option<&Value>) -> String {
    let Some(last) = last else { return String::new() };
    let told = status.filter(|status| status["committed"].as_f64() == last.cells[0]);
    let told = told.and_then(|status| BestModel::deserialize(&status["best"]).ok());
    let best = told.as_ref().or(last.best.as_ref());
    let stopped = last.stopped.iter().map(|why| format!("-- {why}\n"));
    stopped.chain(best.map(|best| format!("-- the best model is {best}\n"))).collect()
}

fn most_tiers(mut reader: ReportReader) -> Result<usize> {
    let mut most = 0;
    while let Some(report) = reader.read_next()? {
        most = most.max(tiers(report.text));
    }
    Ok(most)
}

/// Whether any round has a fairness target, so that the table has columns for it.
fn any_target(mut reader: ReportReader) -> Result<bool> {
    while let Some(report) = reader.read_next()? {
        if has_target(report.text) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn print_json(reader: &mut ReportReader, out: &mut dyn Write) -> Result<()> {
    let mut before = "[";
    while let Some(report) = reader.read_next()? {
        write!(out, "{before}{}", report.text)?;
        before = ",\n";
    }
    let first = if before == "[" { "[" } else { "" };
    Ok(writeln!(out, "{first}]")?)
}

fn name_faults(store: &Path, faults: &LineFaults) {
    for fault in faults.named.iter().take(NAMED) {
        warn!("{}: {fault}; the line is left out", store.display());
    }
    let more = faults.named.len().saturating_sub(NAMED) + faults.more;
    if more > 0 {
        warn!("{}: {more} more lines are damaged and left out", store.display());
    }
    if !faults.is_empty() {
        warn!("restore these lines from a backup; `fairtier gateway verify` checks the rest of the store");
    }
}
