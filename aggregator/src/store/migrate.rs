//! Stores of older formats: each step brings a store to the next one.
//!
//! | from | to | what the step does |
//! |---|---|---|
//! | 4 | 5 | every line of the history gets a checksum, and full files of it may exist |
//! | 5 | 6 | the ledger gets keys for the best model, the configuration, the initial weights and the time of the open round |
//!
//! A step runs when a store is opened for writing. It changes files first; these can be read as the old format and as the
//! new one. The ledger is changed, and its format number raised, in one transaction at the end. So a store that is killed at
//! any instant is whole as the old format or as the new one, and a step that runs again does no harm.
//!
//! A new format is one more function in [`MIGRATIONS`].

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, BufWriter, Write},
    path::Path,
};

use common::files::rename;
use redb::WriteTransaction;
use tracing::info;

use super::{
    StoreError, extras,
    history::{History, open_for_writing, parse_line, with_checksum},
    ledger::{Ledger, LedgerError, RemoveOnDrop},
};

/// The oldest format that can be read and migrated.
pub(super) const OLDEST: u32 = 4;
/// The present one.
pub(super) const FORMAT: u32 = OLDEST + MIGRATIONS.len() as u32;

type Migration = fn(&Path, &WriteTransaction) -> Result<(), LedgerError>;

/// The first one starts from [`OLDEST`].
const MIGRATIONS: [Migration; 2] = [add_history_checksums, |_, txn| extras::add(txn)];

/// Runs all steps that a store still needs.
pub(super) fn bring_up_to_date(ledger: &mut Ledger, dir: &Path) -> Result<(), StoreError> {
    let found = ledger.format();
    for (from, step) in (OLDEST..).zip(MIGRATIONS).skip_while(|(from, _)| *from < found) {
        ledger.raise(from + 1, |txn| step(dir, txn))?;
        info!("store migrated from format {from} to {}: {}", from + 1, dir.display());
    }
    Ok(())
}

/// From 4 to 5. A reader of format 4 ignores the checksum, so the file may change before the ledger does.
fn add_history_checksums(dir: &Path, _: &WriteTransaction) -> Result<(), LedgerError> {
    // Left by a version of format 4 that was killed while it opened a store.
    let _ = fs::remove_file(dir.join("fairtier.redb.copy"));
    if let Some(draft) = draft_with_checksums(dir)? {
        publish(dir, &draft)?;
    }
    Ok(())
}

/// Writes the history with checksums under another name, if there is one; durable when it returns.
///
/// Damage stays as it is, so that `verify` still reports it. Bytes after the last line end are left over from a crash; the
/// ledger has that report.
pub(super) fn draft_with_checksums(dir: &Path) -> Result<Option<RemoveOnDrop>, StoreError> {
    let live = History::of(dir).live();
    let file = match File::open(&live) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|source| StoreError::Io { path: live.clone(), source })?,
    };
    let draft = RemoveOnDrop(dir.join("history.jsonl.new"));
    let wrap = |source| StoreError::Io { path: draft.0.clone(), source };
    let new = open_for_writing(&draft.0, File::options().write(true).create(true).truncate(true));
    let mut new = BufWriter::new(new.map_err(wrap)?);
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        lines.read_until(b'\n', &mut line).map_err(|source| StoreError::Io { path: live.clone(), source })?;
        if line.pop() != Some(b'\n') {
            break;
        }
        let mut report = line.clone();
        let opened = parse_line(&mut report).ok().filter(|opened| !opened.has_checksum);
        match opened.and_then(|_| str::from_utf8(&report).ok()) {
            Some(report) => new.write_all(with_checksum(report).as_bytes()),
            None => new.write_all(&line).and_then(|()| new.write_all(b"\n")),
        }
        .map_err(wrap)?;
    }
    let new = new.into_inner().map_err(|error| wrap(error.into_error()))?;
    new.sync_all().map_err(wrap)?;
    Ok(Some(draft))
}

/// Replaces the history by the draft.
pub(super) fn publish(dir: &Path, draft: &RemoveOnDrop) -> Result<(), StoreError> {
    let live = History::of(dir).live();
    rename(&draft.0, &live).map_err(|source| StoreError::Io { path: live, source })
}
