//! The database file: everything of a run except updates and models.
//!
//! | table | key | value |
//! |---|---|---|
//! | meta | `format`, `run`, `next`, `attempt`, `open`, `strategy` | number, [`super::RunRecord`], round, number, [`super::RoundRecord`] or none, bytes |
//! | meta | `best`, `config`, `weights`, `began` | see `extras.rs` |
//! | devices | DeviceId | [`strategies::device::DeviceRecord`] |
//! | updates | round, exchange, DeviceId | [`super::Entry`] |
//! | models | round it is the result of | [`super::model::ModelRecord`]: length and checksum of its file |
//! | reports | round | JSON |
//!
//! Every value is a CRC-32 over key and bytes, followed by the bytes (postcard, if it is a record). The database detects what a
//! crash leaves behind, but not a bit that flips later. For the same reason all keys of `meta` exist from the start of a run,
//! and tables that are walked must have the length that they state.

use std::{
    fs::{self, File, TryLockError},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use common::{files, wire::Crc32};
use redb::{Database, ReadTransaction, ReadableDatabase, TableDefinition, WriteTransaction};
use serde::{Serialize, de::DeserializeOwned};

use super::{StoreError, cow_file::CowFile, migrate};

pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
pub(super) const DEVICES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("devices");
pub(super) const UPDATES: TableDefinition<'_, (u32, u8, &str), &[u8]> = TableDefinition::new("updates");
pub(super) const MODELS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("models");
pub(super) const REPORTS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("reports");

/// Raised whenever a table, a record, the spool or the history changes: by a step in `migrate.rs`. What may follow a record as
/// its tail ([`super::entry`]) changes no record that is there.
pub(super) const FORMAT: u32 = migrate::FORMAT;
pub(crate) const FILE: &str = "fairtier.redb";
/// The ledger is small and rarely read. The database's default cache of a gigabyte would fill up over the rounds.
const CACHE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    /// `None` only while it is dropped.
    db: Option<Database>,
    /// The system's error number of the first failure, after which the database refuses everything.
    broken: OnceLock<i32>,
    /// Format of the store; a writable store has the present one.
    format: u32,
}

impl Ledger {
    /// Opens the ledger of a directory, or creates an empty one. A store of an older format is migrated.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        let exists = path.try_exists().map_err(|source| StoreError::Io { path: path.clone(), source })?;
        if !exists {
            create(dir, &path)?;
        }
        let mut ledger = Self::with(path.clone(), |builder| builder.open(&path))?;
        migrate::bring_up_to_date(&mut ledger, dir)?;
        Ok(ledger)
    }

    /// Opens the ledger for reading, if it exists, and writes to no disk.
    ///
    /// Opening repairs what a crash has left, even if it fails in the end. Here the repair stays in memory and the file does
    /// not change. While this is open, no server starts.
    pub fn look(dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = dir.join(FILE);
        let io = |source| StoreError::Io { path: path.clone(), source };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(io)?,
        };
        if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
            return Err(StoreError::Locked { path });
        }
        let cow = CowFile::over(file).map_err(io)?;
        // The database would create a new ledger in an empty file.
        if cow.is_empty() {
            return Err(at(&path, LedgerError::Damaged("the file is empty".to_owned())));
        }
        Self::with(path.clone(), |builder| builder.create_with_backend(cow)).map(Some)
    }

    fn with(
        path: PathBuf,
        open: impl FnOnce(&redb::Builder) -> Result<Database, redb::DatabaseError>,
    ) -> Result<Self, StoreError> {
        let db = caught(|| Ok(open(Database::builder().set_cache_size(CACHE_BYTES))?));
        let db = db.map_err(|error| at(&path, error))?;
        let mut ledger = Self { path, db: Some(db), broken: OnceLock::new(), format: 0 };
        let format = ledger.read(|txn| {
            let value = txn.open_table(META)?.get("format")?;
            value.map(|value| decode::<u32>("format", value.value())).transpose()
        })?;
        ledger.format = match format {
            Some(found @ migrate::OLDEST..=FORMAT) => found,
            Some(found) => {
                return Err(StoreError::Format { path: ledger.path.clone(), found, known: FORMAT });
            }
            None => return Err(at(&ledger.path, LedgerError::Damaged("it has no format number".to_owned()))),
        };
        Ok(ledger)
    }

    pub fn format(&self) -> u32 {
        self.format
    }

    /// Makes a change and raises the format, both or neither.
    pub fn raise(
        &mut self,
        format: u32,
        change: impl FnOnce(&WriteTransaction) -> Result<(), LedgerError>,
    ) -> Result<(), StoreError> {
        self.write(|txn| {
            change(txn)?;
            txn.open_table(META)?.insert("format", encode("format", &format)?.as_slice())?;
            Ok(())
        })?;
        self.format = format;
        Ok(())
    }

    fn db(&self) -> Result<&Database, LedgerError> {
        self.db.as_ref().ok_or(LedgerError::Database(redb::Error::DatabaseClosed))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn read<T>(
        &self,
        look: impl FnOnce(&ReadTransaction) -> Result<T, LedgerError>,
    ) -> Result<T, StoreError> {
        self.sound()?;
        caught(|| look(&self.db()?.begin_read()?)).map_err(|error| self.failed(error))
    }

    /// A view of the present state, which later changes do not touch.
    pub fn begin_read(&self) -> Result<ReadTransaction, StoreError> {
        self.sound()?;
        caught(|| Ok(self.db()?.begin_read()?)).map_err(|error| self.failed(error))
    }

    /// Applies all of `change` durably, or nothing of it.
    pub fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, LedgerError>,
    ) -> Result<T, StoreError> {
        let commit = || {
            let txn = self.db()?.begin_write()?;
            let result = change(&txn)?;
            txn.commit()?;
            Ok(result)
        };
        self.sound()?;
        caught(commit).map_err(|error| self.failed(error))
    }

    /// After a disk failure the database refuses everything until it is reopened. Returns the first cause each time.
    fn sound(&self) -> Result<(), StoreError> {
        let again = |&number: &i32| StoreError::Io {
            path: self.path.clone(),
            source: io::Error::from_raw_os_error(number),
        };
        self.broken.get().map(again).map_or(Ok(()), Err)
    }

    fn failed(&self, error: LedgerError) -> StoreError {
        if let LedgerError::Database(redb::Error::Io(source)) = &error {
            source.raw_os_error().map(|number| self.broken.set(number));
        }
        at(&self.path, error)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // Closing writes too, and may find damage. Everything that counts is committed already.
        let _ = caught(|| {
            drop(self.db.take());
            Ok(())
        });
    }
}

/// A file that is removed on drop; open handles stay valid.
pub(super) struct RemoveOnDrop(pub PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// An error inside a transaction.
#[derive(Debug)]
pub(super) enum LedgerError {
    Database(redb::Error),
    Damaged(String),
    /// An error of the work that goes with a transaction.
    Store(Box<StoreError>),
}

impl From<StoreError> for LedgerError {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

macro_rules! from_database {
    ($($error:ty),*) => {
        $(impl From<$error> for LedgerError {
            fn from(error: $error) -> Self {
                Self::Database(error.into())
            }
        })*
    };
}
from_database!(
    redb::CommitError,
    redb::DatabaseError,
    redb::StorageError,
    redb::TableError,
    redb::TransactionError
);

/// Turns panics into errors: the database panics on some kinds of damage in its own pages.
///
/// After a panic the database refuses everything (its locks are poisoned), so nothing half-done is seen.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, LedgerError>) -> Result<T, LedgerError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(LedgerError::Damaged(text.unwrap_or("the database gave up").to_owned()))
    })
}

/// A value as it is stored. The checksum covers its key, so that neither can change alone.
pub(super) fn add_checksum(tag: &str, bytes: &[u8]) -> Vec<u8> {
    [&checksum(tag, bytes).to_le_bytes(), bytes].concat()
}

/// The bytes of a stored value.
pub(super) fn strip_checksum<'a>(tag: &str, value: &'a [u8]) -> Result<&'a [u8], LedgerError> {
    match value.split_first_chunk::<4>() {
        Some((sum, bytes)) if checksum(tag, bytes) == u32::from_le_bytes(*sum) => Ok(bytes),
        _ => Err(LedgerError::Damaged(format!("checksum of {tag} does not match"))),
    }
}

pub(super) fn encode<T: Serialize>(tag: &str, value: &T) -> Result<Vec<u8>, LedgerError> {
    let bytes = postcard::to_allocvec(value).map_err(|error| LedgerError::Damaged(error.to_string()))?;
    Ok(add_checksum(tag, &bytes))
}

pub(super) fn decode<T: DeserializeOwned>(tag: &str, value: &[u8]) -> Result<T, LedgerError> {
    match postcard::take_from_bytes(strip_checksum(tag, value)?) {
        Ok((record, [])) => Ok(record),
        _ => Err(LedgerError::Damaged(format!("{tag} does not decode"))),
    }
}

/// The key of a value in its checksum: of a round's model or report, or of a device's update.
pub(super) fn tag(what: &str, round: u32, device: &str) -> String {
    format!("{what} {round} {device}")
}

fn checksum(tag: &str, bytes: &[u8]) -> u32 {
    let mut crc = Crc32::default();
    crc.update(tag.as_bytes());
    crc.update(bytes);
    crc.finish()
}

/// Writes the file under another name first, so that a crash leaves no ledger or a complete one.
fn create(dir: &Path, path: &Path) -> Result<(), StoreError> {
    // After the rename the draft no longer exists under this name.
    let draft = RemoveOnDrop(dir.join("fairtier.redb.new"));
    let io = |source| StoreError::Io { path: draft.0.clone(), source };
    match fs::remove_file(&draft.0) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    // The database accepts an empty file and keeps its permissions.
    files::private().write(true).create_new(true).open(&draft.0).map_err(io)?;
    let fill = || {
        let txn_db = Database::builder().set_cache_size(CACHE_BYTES).create(&draft.0)?;
        let txn = txn_db.begin_write()?;
        txn.open_table(META)?.insert("format", encode("format", &FORMAT)?.as_slice())?;
        txn.open_table(DEVICES)?;
        txn.open_table(UPDATES)?;
        txn.open_table(MODELS)?;
        txn.open_table(REPORTS)?;
        txn.commit()?;
        Ok(())
    };
    fill().map_err(|error| at(&draft.0, error))?;
    files::rename(&draft.0, path).map_err(io)
}

pub(super) fn at(path: &Path, error: LedgerError) -> StoreError {
    let path = path.to_owned();
    match error {
        LedgerError::Damaged(what) => StoreError::Damaged { path, what },
        LedgerError::Store(error) => *error,
        LedgerError::Database(redb::Error::DatabaseAlreadyOpen) => StoreError::Locked { path },
        LedgerError::Database(redb::Error::Corrupted(what)) => StoreError::Damaged { path, what },
        LedgerError::Database(redb::Error::Io(source)) => match source.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                StoreError::Damaged { path, what: source.to_string() }
            }
            _ => StoreError::Io { path, source },
        },
        LedgerError::Database(
            error @ (redb::Error::UpgradeRequired(_)
            | redb::Error::TableDoesNotExist(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TypeDefinitionChanged { .. }
            | redb::Error::RepairAborted
            | redb::Error::LockPoisoned(_)),
        ) => StoreError::Damaged { path, what: error.to_string() },
        LedgerError::Database(error) => StoreError::Database { path, source: Box::new(error) },
    }
}
