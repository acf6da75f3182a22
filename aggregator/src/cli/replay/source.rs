//! Recorded sums: of a gateway's history, or of a file of sums per tier.

use std::path::Path;

use anyhow::{Context, Result, bail};
use common::files::{MAX_MODEL, read_text};
use strategies::fairness::{RecordedReport, RecordedRow, Recording, RoundSignal, last_stretch};

use crate::store::ReportReader;

/// See the module.
#[derive(Debug)]
pub(super) struct Source {
    pub tiers: usize,
    pub rounds: Vec<RecordedReport>,
}

impl Source {
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("history") && name.ends_with(".jsonl") {
            return Self::of_reports(read_history(path)?);
        }
        let text = read_text(path, MAX_MODEL)?;
        if path.extension().is_some_and(|end| end == "csv") {
            return Self::of_rows(&text);
        }
        // A list is what `gateway history --format json` prints.
        if text.trim_start().starts_with('[') {
            return Self::of_reports(serde_json::from_str(&text)?);
        }
        let recording: Recording = serde_json::from_str(&text).context(
            "neither sums per tier ({\"size\": [..], \"rounds\": [{\"n\": [..], \"s1\": [..], \"s2\": [..], \"sv\": [..]}]}) \
             nor a history",
        )?;
        let rounds = (1..).zip(recording.signals()?);
        Self::of_signals(rounds.collect())
    }

    /// `round,tier,size,n,s1,s2,sv`, one row per round and tier.
    fn of_rows(text: &str) -> Result<Self> {
        let rows: Vec<RecordedRow> = csv::Reader::from_reader(text.as_bytes())
            .deserialize()
            .collect::<Result<_, _>>()
            .context("expected the columns round,tier,size,n,s1,s2,sv")?;
        let mut numbers: Vec<u32> = rows.iter().map(|row| row.round).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let signals = Recording::from_rows(rows)?.signals()?;
        Self::of_signals(numbers.into_iter().zip(signals).collect())
    }

    fn of_signals(rounds: Vec<(u32, RoundSignal)>) -> Result<Self> {
        let Some(tiers) = rounds.first().map(|(_, signal)| signal.tiers.len()) else {
            bail!("there are no rounds in it");
        };
        let round = |(round, signal): (u32, RoundSignal)| RecordedReport {
            round,
            fairness: vec![],
            fairness_sums: signal.tiers,
        };
        Ok(Self { tiers, rounds: rounds.into_iter().map(round).collect() })
    }

    fn of_reports(reports: Vec<RecordedReport>) -> Result<Self> {
        let rounds = last_stretch(reports);
        let tiers = rounds.iter().map(|report| report.fairness_sums.len()).max().unwrap_or(0);
        if tiers == 0 {
            bail!("no round in it has `fairness_sums`; a gateway records them with `fairness.target` set");
        }
        Ok(Self { tiers, rounds })
    }
}

/// The reports of a store's history, also of the full files before the live one.
fn read_history(path: &Path) -> Result<Vec<RecordedReport>> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(mut reader) = ReportReader::open(dir)? else { bail!("there is no such file") };
    let mut reports = vec![];
    while let Some(report) = reader.read_next()? {
        reports.push(serde_json::from_str(report.text).with_context(|| format!("round {}", report.round))?);
    }
    // A missing round would give other knobs without a word.
    if let Some(fault) = reader.faults().named.first() {
        bail!("{fault}; restore this line from a backup, because every round counts");
    }
    Ok(reports)
}
