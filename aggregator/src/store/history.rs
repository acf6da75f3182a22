//! Reports of all rounds as files: one line of JSON each, which commands read while a server has the ledger open.
//!
//! ```text
//! DIR/history-000001-010000.jsonl   full
//! DIR/history.jsonl                 the rounds after it
//! ```
//! A report is committed to the ledger first and then appended to `history.jsonl`. A crash can lose the last lines; they are
//! written again when the store is opened. Old reports leave the ledger once this file is durable, and then exist only here.
//! Every line has a checksum (`line.rs`). After `store.history_rounds` rounds the file is full: it is made durable and renamed.
//! Full files are never removed; a rollback into one makes it the live file again. A run continues without the files.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use common::files::rename;
use redb::ReadableTable;

use super::{
    DiskStore, StoreError,
    ledger::{self, LedgerError, REPORTS},
    spool::sync_dir,
};

mod files;
mod line;
mod reader;
mod tail;
mod written;

pub(super) use files::open_for_writing;
pub(super) use line::{parse as parse_line, with_checksum};
pub(super) use reader::{ChecksumRule, HistoryLine};
pub use reader::{LineFaults, Report, ReportReader, Reports};
pub(crate) use written::write_history;

/// The history files of a store. They are opened for every line, so they may be moved away at any time.
#[derive(Debug)]
pub(super) struct History(PathBuf);

impl History {
    pub fn of(store: &Path) -> Self {
        Self(store.to_owned())
    }

    /// The file that lines are added to.
    pub fn live(&self) -> PathBuf {
        files::live(&self.0)
    }

    /// A file that is not empty, if there is one.
    pub fn any(&self) -> Result<Option<PathBuf>, StoreError> {
        let archives = files::archives(&self.0).map_err(|source| self.failed(source))?;
        let mut files = archives.into_iter().map(|archive| archive.path).chain([self.live()]);
        Ok(files.find(|path| fs::metadata(path).is_ok_and(|file| file.len() > 0)))
    }

    /// Adds a line; it is durable after [`History::sync`].
    pub fn append(&self, report: &str) -> Result<(), StoreError> {
        let added = open_for_writing(&self.live(), File::options().append(true).create(true));
        added
            .and_then(|mut file| file.write_all(with_checksum(report).as_bytes()))
            .map_err(|source| self.failed(source))
    }

    /// The full files, by round.
    pub fn full(&self) -> Result<Vec<PathBuf>, StoreError> {
        let archives = files::archives(&self.0).map_err(|source| self.failed(source))?;
        Ok(archives.into_iter().map(|archive| archive.path).collect())
    }

    pub fn sync(&self) -> Result<(), StoreError> {
        if let Some(file) = files::open_for_reading(&self.live()).map_err(|source| self.failed(source))? {
            file.sync_data().map_err(|source| self.failed(source))?;
        }
        sync_dir(&self.0)
    }

    /// Renames the live file, which ends with round `last`, as a full one.
    pub fn archive(&self, last: u32) -> Result<(), StoreError> {
        let live = self.live();
        if fs::metadata(&live).map_or(0, |file| file.len()) == 0 {
            return Ok(());
        }
        self.sync()?;
        let full = files::archive(&self.0, self.first_round()?.unwrap_or(last), last);
        if full.exists() {
            let source = io::Error::new(io::ErrorKind::AlreadyExists, "move this file away");
            return Err(StoreError::Io { path: full, source });
        }
        rename(&live, &full).map_err(|source| StoreError::Io { path: full, source })
    }

    /// The round that the live file begins with.
    fn first_round(&self) -> Result<Option<u32>, StoreError> {
        let file = files::open_for_reading(&self.live()).map_err(|source| self.failed(source))?;
        let Some(mut reader) = file.map(|file| ReportReader::of_file(self.live(), file)) else {
            return Ok(None);
        };
        let first = reader.read_next()?.map(|report| report.round);
        // Each damaged line before it stands for one round.
        let faults = reader.faults();
        let damaged = u32::try_from(faults.named.len() + faults.more).unwrap_or(u32::MAX);
        Ok(first.map(|round| round.saturating_sub(damaged).max(1)))
    }

    /// The last round of the full files, by their names; 0 if there are none.
    fn archived(&self) -> Result<u32, StoreError> {
        let archives = files::archives(&self.0).map_err(|source| self.failed(source))?;
        Ok(archives.last().map_or(0, |archive| archive.last))
    }

    /// The last round that has a line.
    fn last_round(&self) -> Result<u32, StoreError> {
        let wrap = |source| self.failed(source);
        let file = files::open_for_reading(&self.live()).map_err(wrap)?;
        let live = file.map(|file| tail::last_round(&file)).transpose().map_err(wrap)?.flatten();
        live.map_or_else(|| self.archived(), Ok)
    }

    /// Removes the lines of rounds after `last`, also from full files. If it is killed, the next call finishes the work.
    fn cut(&self, last: u32) -> Result<(), StoreError> {
        loop {
            let archives = files::archives(&self.0).map_err(|source| self.failed(source))?;
            // During a cut, a file that was full may be the live one.
            let before = archives.last().map_or(0, |archive| archive.last.min(last));
            self.rewrite(last.saturating_add(1), before, std::iter::empty())?;
            let live = self.live();
            let empty = fs::metadata(&live).map_or(0, |file| file.len()) == 0;
            let Some(archive) = archives.last().filter(|archive| empty && archive.last > last) else {
                return sync_dir(&self.0);
            };
            // Replaces the live file, which is empty now.
            fs::rename(&archive.path, &live).map_err(|source| self.failed(source))?;
        }
    }

    /// Keeps the lines of rounds before `first` and appends those of `reports`. The file begins after round `before`.
    pub(super) fn rewrite(
        &self,
        first: u32,
        before: u32,
        reports: impl Iterator<Item = Option<String>>,
    ) -> Result<(), StoreError> {
        let mut reports = reports.peekable();
        let live = self.live();
        if reports.peek().is_none() && !live.exists() {
            return Ok(());
        }
        let wrap = |source| self.failed(source);
        let mut how = File::options();
        let file = open_for_writing(&live, how.read(true).write(true).create(true).truncate(false));
        let file = file.map_err(wrap)?;
        let len = file.metadata().map_err(wrap)?.len();
        let mut end = tail::end_before(&file, first, before).map_err(wrap)?;
        let mut same = true;
        for report in reports {
            let Some(report) = report else {
                // The ledger's report cannot be read. The line here may be the only copy.
                if same {
                    return Ok(());
                }
                continue;
            };
            let line = with_checksum(&report);
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
        StoreError::Io { path: self.live(), source }
    }
}

/// Problems found while reading all reports.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Lines that are not reports.
    pub faults: LineFaults,
    /// Reports in the ledger that cannot be read.
    pub unreadable: Vec<StoreError>,
}

impl DiskStore {
    /// Brings the files up to date with the ledger.
    pub(super) fn catch_up(&self, committed: u32) -> Result<(), StoreError> {
        // Lines of rounds that the ledger does not know: after a killed rollback, or with a ledger from a backup.
        let last = self.history.last_round()?;
        if last > committed {
            let undone = self.set_aside(last, committed)?;
            if let Some(path) = undone.path {
                tracing::warn!(
                    "the ledger ends with round {committed}; reports of rounds up to {last} are now in {}",
                    path.display()
                );
            }
            self.history.cut(committed)?;
        }
        // A run needs no reports; `verify` reports what is wrong with them.
        let Ok(rounds) = self.report_rounds() else { return Ok(()) };
        let archived = self.history.archived()?;
        let first = rounds.first().copied().unwrap_or(committed.saturating_add(1));
        let first = first.max(archived.saturating_add(1));
        let reports = rounds.into_iter().filter(|&round| round >= first);
        self.history.rewrite(first, archived, reports.map(|round| self.ledger_report(round).ok().flatten()))
    }

    /// Removes the reports of rounds after `to` from the files. [`DiskStore::set_aside`] has copied them.
    pub(super) fn forget_reports_after(&self, to: u32) -> Result<(), StoreError> {
        self.history.cut(to)?;
        self.catch_up(to)
    }

    /// Rounds whose reports the ledger has, ascending.
    fn report_rounds(&self) -> Result<Vec<u32>, StoreError> {
        self.ledger.read(|txn| {
            let table = txn.open_table(REPORTS)?;
            table.iter()?.map(|item| Ok(item?.0.value())).collect::<Result<Vec<u32>, LedgerError>>()
        })
    }

    /// The report of a round, if the ledger still has it.
    pub(super) fn ledger_report(&self, round: u32) -> Result<Option<String>, StoreError> {
        self.ledger.read(|txn| {
            let value = txn.open_table(REPORTS)?.get(round)?;
            value.map(|value| text(round, value.value())).transpose()
        })
    }

    /// Visits every line of rounds after `after`, by round: from the ledger, or from the files if the ledger has none.
    pub(super) fn each_report(
        &self,
        after: u32,
        mut show: impl FnMut(HistoryLine<'_>) -> Result<(), StoreError>,
    ) -> Result<Walked, StoreError> {
        let mut walked = Walked::default();
        let mut known = self.report_rounds()?.into_iter().filter(|&round| round > after).peekable();
        let mut show_known = |round: u32, line: Option<Report<'_>>, show: &mut LineVisitor<'_>| {
            match self.ledger_report(round) {
                Ok(Some(text)) => return show(HistoryLine::Report(Report { round, text: &text })),
                Ok(None) => {}
                Err(error) => walked.unreadable.push(error),
            }
            line.map_or(Ok(()), |report| show(HistoryLine::Report(report)))
        };
        let rule =
            if self.ledger.format() < CHECKSUMS_SINCE { ChecksumRule::Any } else { ChecksumRule::None };
        let mut last = 0;
        if let Some(mut reader) = ReportReader::with_rule(&self.history.0, rule)? {
            while let Some(line) = reader.next_line()? {
                match line {
                    HistoryLine::Report(report) => {
                        last = report.round;
                        while let Some(round) = known.next_if(|&round| round < report.round) {
                            show_known(round, None, &mut show)?;
                        }
                        if known.next_if_eq(&report.round).is_some() {
                            show_known(report.round, Some(report), &mut show)?;
                        } else if report.round > after {
                            show(line)?;
                        }
                    }
                    HistoryLine::Damaged(_) if last >= after => show(line)?,
                    HistoryLine::Damaged(_) => {}
                }
            }
            walked.faults = reader.into_faults();
        }
        for round in known {
            show_known(round, None, &mut show)?;
        }
        Ok(walked)
    }

    /// Copies all lines of rounds after `to`, also damaged ones, into a file of their own and makes it durable.
    pub(super) fn set_aside(&self, from: u32, to: u32) -> Result<SetAside, StoreError> {
        let dir = &self.history.0;
        let name = |number: u32| dir.join(format!("undone-{from:06}-to-{to:06}.{number}.jsonl"));
        // An existing file is never overwritten.
        let path = (0..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(u32::MAX));
        let wrap = |source| StoreError::Io { path: path.clone(), source };
        let mut last = None;
        let mut file: Option<BufWriter<File>> = None;
        self.each_report(to.saturating_sub(1), |line| {
            let bytes = match line {
                HistoryLine::Report(report) if report.round <= to => {
                    last = Some(report.text.to_owned());
                    return Ok(());
                }
                HistoryLine::Report(report) => with_checksum(report.text).into_bytes(),
                HistoryLine::Damaged(raw) => [raw, b"\n"].concat(),
            };
            let file = match &mut file {
                Some(file) => file,
                None => {
                    let new = open_for_writing(&path, File::options().write(true).create_new(true));
                    file.insert(BufWriter::new(new.map_err(wrap)?))
                }
            };
            file.write_all(&bytes).map_err(wrap)
        })?;
        let Some(file) = file else { return Ok(SetAside { path: None, last }) };
        let file = file.into_inner().map_err(|error| wrap(error.into_error()))?;
        file.sync_all().map_err(wrap)?;
        sync_dir(dir)?;
        Ok(SetAside { path: Some(path), last })
    }
}

/// Receives one line after another.
type LineVisitor<'a> = dyn FnMut(HistoryLine<'_>) -> Result<(), StoreError> + 'a;

/// From this format of the store on, every line has a checksum.
const CHECKSUMS_SINCE: u32 = 5;

/// The result of [`DiskStore::set_aside`].
#[derive(Debug)]
pub(super) struct SetAside {
    /// Absent if there was nothing to copy.
    pub path: Option<PathBuf>,
    /// The report of the last round that stays.
    pub last: Option<String>,
}

/// A report as the ledger has it.
fn text(round: u32, value: &[u8]) -> Result<String, LedgerError> {
    let report = ledger::strip_checksum(&ledger::tag("report", round, ""), value)?;
    String::from_utf8(report.to_vec()).map_err(|_| LedgerError::Damaged("a report is not text".to_owned()))
}

#[cfg(test)]
mod tests;
