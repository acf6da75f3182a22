//! Reports of all rounds as a file: one line of JSON each, for whoever looks while a server has the ledger open.
//!
//! ```text
//! DIR/history.jsonl
//! ```
//! A report is committed in the ledger first and then appended here, so a crash can cost the last lines; they are
//! written again when the store is opened. Old reports leave the ledger once this file is durable, and from then on
//! are nowhere else. A run goes on without the file.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use redb::ReadableTable;
use serde::Deserialize;

use super::{
    DiskStore, StoreError,
    ledger::{self, Fault, REPORTS},
    spool::sync_dir,
};

const FILE: &str = "history.jsonl";
/// Bytes that are looked at together for the end of a line.
const BLOCK: u64 = 1 << 16;

/// The file; opened for every line, so that it may be moved away at any time.
#[derive(Debug)]
pub(super) struct History(PathBuf);

/// What a file of reports says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reports {
    /// By round.
    pub reports: BTreeMap<u32, String>,
    /// Numbers of lines that are no report, from 1.
    pub damaged: Vec<usize>,
}

/// The only key of a report that the store reads.
#[derive(Deserialize)]
struct Numbered {
    round: u32,
}

impl Reports {
    /// Reads the file of a store's directory, also while a server writes to it; `None` if there is none.
    pub fn read(dir: &Path) -> Result<Option<Self>, StoreError> {
        History::of(dir).read()
    }

    pub fn parse(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        // What follows the last end of a line is being written, or the rest of a crash.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
        for (index, line) in bytes[..whole].split(|&byte| byte == b'\n').enumerate() {
            match (round_of(line), str::from_utf8(line)) {
                (Some(round), Ok(report)) => _ = found.reports.insert(round, report.to_owned()),
                _ if line.is_empty() => {}
                _ => found.damaged.push(index + 1),
            }
        }
        found
    }
}

impl History {
    pub fn of(store: &Path) -> Self {
        Self(store.join(FILE))
    }

    pub fn path(&self) -> PathBuf {
        self.0.clone()
    }

    fn read(&self) -> Result<Option<Reports>, StoreError> {
        match fs::read(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(|bytes| Some(Reports::parse(&bytes))).map_err(|source| self.failed(source)),
        }
    }

    /// Adds a line; it is durable after [`History::sync`].
    pub fn append(&self, report: &str) -> Result<(), StoreError> {
        let added = common::files::private().append(true).create(true).open(&self.0);
        added
            .and_then(|mut file| file.write_all(line(report).as_bytes()))
            .map_err(|source| self.failed(source))
    }

    pub fn sync(&self) -> Result<(), StoreError> {
        match File::open(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.and_then(|file| file.sync_data()).map_err(|source| self.failed(source))?,
        }
        self.0.parent().map_or(Ok(()), sync_dir)
    }

    /// Lets the lines of rounds before `first` stay, and behind them those that `reports` gives.
    fn rewrite(&self, first: u32, reports: impl Iterator<Item = Option<String>>) -> Result<(), StoreError> {
        let mut reports = reports.peekable();
        if reports.peek().is_none() && !self.0.exists() {
            return Ok(());
        }
        let wrap = |source| self.failed(source);
        let mut options = common::files::private();
        let open = options.read(true).write(true).create(true).truncate(false).open(&self.0);
        let file = open.map_err(wrap)?;
        let len = file.metadata().map_err(wrap)?.len();
        let mut end = end_before(&file, len, first).map_err(wrap)?;
        let mut same = true;
        for report in reports {
            let Some(report) = report else {
                // It can not be read any more. The line here may be all that is left of it.
                if same {
                    return Ok(());
                }
                continue;
            };
            let line = line(&report);
            let mut found = vec![0; line.len()];
            same = same && file.read_exact_at(&mut found, end).is_ok() && found == line.as_bytes();
            if !same {
                file.set_len(end).and_then(|()| file.write_all_at(line.as_bytes(), end)).map_err(wrap)?;
            }
            end += line.len() as u64;
        }
        if len > end {
            file.set_len(end).map_err(wrap)?;
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Io { path: self.0.clone(), source }
    }
}

impl DiskStore {
    /// Brings the file up to what the ledger says.
    pub(super) fn catch_up(&self, committed: u32) -> Result<(), StoreError> {
        let rounds = self.ledger.read(|txn| {
            let table = txn.open_table(REPORTS)?;
            table.iter()?.map(|item| Ok(item?.0.value())).collect::<Result<Vec<u32>, Fault>>()
        });
        // A run needs no reports; `verify` says what is wrong with them.
        let Ok(rounds) = rounds else { return Ok(()) };
        let first = rounds.first().copied().unwrap_or(committed.saturating_add(1));
        self.history.rewrite(first, rounds.into_iter().map(|round| self.report(round).ok().flatten()))
    }

    /// The report of a round, if the ledger still has it.
    fn report(&self, round: u32) -> Result<Option<String>, StoreError> {
        self.ledger.read(|txn| {
            let value = txn.open_table(REPORTS)?.get(round)?;
            value.map(|value| text(round, value.value())).transpose()
        })
    }

    /// Every report up to the last committed round: those of the file, and over them those of the ledger.
    pub(super) fn all_reports(&self) -> Result<Reports, StoreError> {
        let committed = self.meta()?.map_or(0, |meta| meta.next_round.saturating_sub(1));
        let mut found = self.history.read()?.unwrap_or_default();
        self.ledger.read(|txn| {
            for item in txn.open_table(REPORTS)?.iter()? {
                let (round, value) = item?;
                found.reports.insert(round.value(), text(round.value(), value.value())?);
            }
            Ok(())
        })?;
        found.reports.retain(|&round, _| round <= committed);
        Ok(found)
    }
}

/// A report as the ledger has it.
fn text(round: u32, value: &[u8]) -> Result<String, Fault> {
    let report = ledger::unseal(&ledger::tag("report", round, ""), value)?;
    String::from_utf8(report.to_vec()).map_err(|_| Fault::Damaged("a report is not text".to_owned()))
}

/// A report as the file has it.
fn line(report: &str) -> String {
    report.replace('\n', " ") + "\n"
}

fn round_of(line: &[u8]) -> Option<u32> {
    serde_json::from_slice::<Numbered>(line).ok().map(|report| report.round)
}

/// Where the last line of a round before `first` ends; searched from the end, because a file may hold the reports of years.
fn end_before(file: &File, len: u64, first: u32) -> io::Result<u64> {
    let mut end = len;
    while end > 0 {
        let start = start_of_line(file, end)?;
        let mut line = vec![0; (end - start) as usize];
        file.read_exact_at(&mut line, start)?;
        let earlier = line.strip_suffix(b"\n").and_then(round_of).is_some_and(|round| round < first);
        if earlier {
            return Ok(end);
        }
        end = start;
    }
    Ok(0)
}

/// Where the line that ends at `end` starts.
fn start_of_line(file: &File, end: u64) -> io::Result<u64> {
    // The last byte is the end of this line, or its line has no end.
    let mut until = end.saturating_sub(1);
    while until > 0 {
        let from = until.saturating_sub(BLOCK);
        let mut block = vec![0; (until - from) as usize];
        file.read_exact_at(&mut block, from)?;
        if let Some(at) = block.iter().rposition(|&byte| byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        until = from;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn report(round: u32) -> String {
        format!("{{\"round\": {round}, \"devices\": \"{}\"}}", "x".repeat(round as usize * 30_000))
    }

    fn rounds(dir: &TempDir) -> Vec<u32> {
        let found = Reports::read(dir.path()).unwrap().unwrap();
        assert!(found.damaged.is_empty(), "{:?}", found.damaged);
        found.reports.into_keys().collect()
    }

    #[test]
    fn what_a_crash_leaves_is_made_good_and_what_agrees_is_not_written_again() {
        let dir = TempDir::new().unwrap();
        let history = History::of(dir.path());
        assert_eq!(Reports::read(dir.path()).unwrap(), None);
        history.rewrite(1, std::iter::empty()).unwrap();
        history.sync().unwrap();
        assert!(!history.0.exists(), "nothing to say, no file");
        for round in 1..=5 {
            history.append(&report(round)).unwrap();
        }
        let whole = fs::read(&history.0).unwrap();
        let from = |first: u32| (first..=5).map(|round| Some(report(round)));
        // The ledger has rounds 3 to 5; the file was cut off anywhere behind round 2, or ends in zeroes.
        let kept = report(1).len() + report(2).len() + 2;
        for cut in [
            kept,
            kept + 1,
            kept + 70_000,
            kept + report(3).len(),
            kept + report(3).len() + 1,
            whole.len() - 1,
        ] {
            for tail in [0, 100_000] {
                let mut left = whole[..cut].to_vec();
                left.resize(cut + tail, 0);
                fs::write(&history.0, left).unwrap();
                history.rewrite(3, from(3)).unwrap();
                assert!(fs::read(&history.0).unwrap() == whole, "cut at {cut}");
            }
        }
        assert_eq!(rounds(&dir), [1, 2, 3, 4, 5]);
        // Rounds that are undone.
        history.rewrite(3, std::iter::empty()).unwrap();
        assert_eq!(rounds(&dir), [1, 2]);
        // A file that somebody has moved away.
        fs::remove_file(&history.0).unwrap();
        history.rewrite(4, from(4)).unwrap();
        assert_eq!(rounds(&dir), [4, 5]);
    }

    #[test]
    fn a_line_whose_report_the_ledger_has_lost_stays() {
        let dir = TempDir::new().unwrap();
        let history = History::of(dir.path());
        (1..=4).for_each(|round| history.append(&report(round)).unwrap());
        let ledger = [Some(report(2)), None, Some(report(4))];
        history.rewrite(2, ledger.into_iter()).unwrap();
        assert_eq!(rounds(&dir), [1, 2, 3, 4]);
    }

    #[test]
    fn a_reader_passes_over_what_is_no_report() {
        let dir = TempDir::new().unwrap();
        let text = format!("{}\n{{}}\nwhat\n\n{}\n{{\"round\": 3", report(1), report(2));
        fs::write(dir.path().join(FILE), text).unwrap();
        let found = Reports::read(dir.path()).unwrap().unwrap();
        assert_eq!(found.reports.into_keys().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(found.damaged, [2_usize, 3]);
    }
}
