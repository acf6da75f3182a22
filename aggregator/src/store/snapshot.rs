//! A consistent view of a store while its run goes on, for backups.
//!
//! The ledger is read in one transaction, which later commits do not change. Spools only grow and models never change, so their
//! bytes stay valid as well. While a snapshot lives, the store removes none of these files.

use std::{
    fmt, fs,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::{RunId, files};
use redb::{Database, ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};

use super::{
    DiskStore, Options, StoreError,
    ledger::{self, DEVICES, Ledger, LedgerError, META, MODELS, REPORTS, UPDATES},
    spool,
};

/// See the module.
pub struct Snapshot {
    ledger: ReadTransaction,
    /// Of the ledger, for errors.
    path: PathBuf,
    /// The run, if one has begun.
    pub run: Option<RunInSnapshot>,
    /// Everything but the ledger.
    pub files: Vec<SnapshotFile>,
    _held: Arc<()>,
    /// The store of a directory that no server has open.
    _store: Option<Box<DiskStore>>,
}

/// Where the run stood.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RunInSnapshot {
    pub run: RunId,
    pub committed: u32,
    /// The open round.
    pub open: Option<u32>,
}

/// A file of a snapshot.
#[derive(Debug)]
pub struct SnapshotFile {
    /// Below the store's directory, as in `spool/round-000007.spool`.
    pub name: String,
    /// How many of its first bytes belong to the snapshot.
    pub bytes: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    At(PathBuf),
    /// It may be renamed meanwhile.
    Open(File),
}

impl SnapshotFile {
    /// Opens the file for reading from its start.
    pub fn open(&self) -> io::Result<File> {
        match &self.content {
            Content::At(path) => File::open(path),
            Content::Open(file) => file.try_clone(),
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("run", &self.run).field("files", &self.files).finish_non_exhaustive()
    }
}

impl DiskStore {
    /// A snapshot of the store. Updates that are not settled are not in it.
    pub(super) fn take_snapshot(&self) -> Result<Snapshot, StoreError> {
        let meta = self.meta()?;
        let run = meta.map(|meta| RunInSnapshot {
            run: meta.run.run,
            committed: meta.next_round.saturating_sub(1),
            open: meta.open.map(|open| open.round),
        });
        let ledger = self.ledger.begin_read()?;
        let mut found = vec![];
        for round in self.indexed_rounds()? {
            let (_, end) = spool::check(&self.spools, round, &self.of_rounds(round, round)?)?;
            let path = spool::path_of(&self.spools, round);
            found.push(SnapshotFile { name: named("spool", &path), bytes: end, content: Content::At(path) });
        }
        for round in self.model_rounds()? {
            let path = self.models.path(round);
            let bytes = len(&path)?;
            found.push(SnapshotFile { name: named("models", &path), bytes, content: Content::At(path) });
        }
        for path in self.history.full()? {
            let bytes = len(&path)?;
            found.push(SnapshotFile { name: named("", &path), bytes, content: Content::At(path) });
        }
        let live = self.history.live();
        match File::open(&live) {
            Ok(file) => {
                let bytes = file.metadata().map_err(|source| failed(&live, source))?.len();
                found.push(SnapshotFile { name: named("", &live), bytes, content: Content::Open(file) });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed(&live, source)),
        }
        let path = self.ledger.path().to_owned();
        Ok(Snapshot { ledger, path, run, files: found, _held: self.held.clone(), _store: None })
    }

    /// A snapshot of a directory that no server has open; none can start while it lives. `None` if there is no store.
    pub fn snapshot_of(dir: &Path) -> Result<Option<Snapshot>, StoreError> {
        let Some(ledger) = Ledger::look(dir)? else { return Ok(None) };
        let store = Self::new(ledger, dir, Options::default());
        let snapshot = store.take_snapshot()?;
        Ok(Some(Snapshot { _store: Some(Box::new(store)), ..snapshot }))
    }

    /// Prepares the store of a restored backup: raises the attempt, so that answers which devices have formed for rounds after
    /// the backup do not count.
    pub fn mark_restored(dir: &Path) -> Result<(), StoreError> {
        let store = Self::new(Ledger::open(dir)?, dir, Options::default());
        let Some(meta) = store.meta()? else { return Ok(()) };
        let attempt = meta.attempt.wrapping_add(1);
        let open = meta.open.map(|open| super::RoundRecord { attempt, ..open });
        store.ledger.write(|txn| {
            let mut meta = txn.open_table(META)?;
            meta.insert("attempt", ledger::encode("attempt", &attempt)?.as_slice())?;
            meta.insert("open", ledger::encode("open", &open)?.as_slice())?;
            Ok(())
        })
    }
}

impl Snapshot {
    /// Writes the ledger into a new file.
    pub fn write_ledger(&self, to: &Path) -> Result<(), StoreError> {
        let created = files::private().read(true).write(true).create_new(true).open(to);
        created.map_err(|source| failed(to, source))?;
        let copy = || {
            let db = Database::builder().create(to)?;
            let txn = db.begin_write()?;
            copy_table(&self.ledger, &txn, META)?;
            copy_table(&self.ledger, &txn, DEVICES)?;
            copy_table(&self.ledger, &txn, UPDATES)?;
            copy_table(&self.ledger, &txn, MODELS)?;
            copy_table(&self.ledger, &txn, REPORTS)?;
            txn.commit()?;
            Ok(())
        };
        ledger::caught(copy).map_err(|error| ledger::at(&self.path, error))
    }
}

fn copy_table<K: redb::Key + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    table: TableDefinition<'static, K, &'static [u8]>,
) -> Result<(), LedgerError> {
    let mut to = to.open_table(table)?;
    for row in from.open_table(table)?.iter()? {
        let (key, value) = row?;
        to.insert(key.value(), value.value())?;
    }
    Ok(())
}

fn len(path: &Path) -> Result<u64, StoreError> {
    Ok(fs::metadata(path).map_err(|source| failed(path, source))?.len())
}

fn failed(path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { path: path.to_owned(), source }
}

/// All names in a store are ASCII.
fn named(dir: &str, path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if dir.is_empty() { name.into_owned() } else { format!("{dir}/{name}") }
}
