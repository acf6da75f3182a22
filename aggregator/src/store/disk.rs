//! The durable store: one directory with a ledger and a spool file per round.
//!
//! ```text
//! DIR/fairtier.redb              run, devices, rounds, index of updates and models, reports
//! DIR/spool/round-000007.spool   updates of round 7 as they arrived
//! DIR/models/round-000006.model  the model that round 6 gave
//! DIR/history.jsonl              reports of all rounds, also those that have left the ledger
//! DIR/history-000001-010000.jsonl  and of earlier ones
//! ```
//! An update counts once its index entry is committed, which happens after its bytes are on disk. A round counts once its model
//! is committed; then its spool is removed. All files are private to their owner (0700, 0600).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::{RunId, files};
use redb::{AccessGuard, ReadableTable, ReadableTableMetadata};
use tracing::warn;

use super::{
    Entry, RoundRecord, RunRecord, Store, StoreError,
    extras::Extras,
    history::History,
    ledger::{self, DEVICES, Ledger, LedgerError, META, UPDATES},
    model::Models,
    spool::{self, SpareFile, Spool},
};
use coordinator::wall::WallTime;
use strategies::device::DeviceRecord;

mod run;

pub(super) const DEFAULT_KEEP_MODELS: usize = 2;

/// What a [`DiskStore`] keeps beyond what it needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Model versions, the newest included; at least 1.
    pub keep_models: usize,
    /// Keep the updates of closed rounds.
    pub keep_spool: bool,
    /// Fewest reports in the ledger; all of them are in files beside it.
    pub keep_reports: usize,
    /// The history begins a new file after every round that is a multiple of this; at least 1.
    pub history_rounds: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_models: DEFAULT_KEEP_MODELS,
            keep_spool: false,
            keep_reports: 100,
            history_rounds: 10_000,
        }
    }
}

/// The meta table of a run that has begun.
pub(super) struct Meta {
    pub run: RunRecord,
    pub next_round: u32,
    pub attempt: u16,
    pub open: Option<RoundRecord>,
    strategy_state: Vec<u8>,
    pub extras: Extras,
}

/// Keeps a run in one directory: see the module.
#[derive(Debug)]
pub struct DiskStore {
    pub(super) ledger: Ledger,
    pub(super) spools: PathBuf,
    pub(super) models: Models,
    pub(super) history: History,
    options: Options,
    run: Option<RunId>,
    /// Spool of the open round.
    spool: Option<Spool>,
    /// Written, but neither durable nor in the index.
    unsettled: Vec<Entry>,
    /// File for the spool of the next round.
    spare: Option<SpareFile>,
    /// Spools of earlier rounds, opened as they are read; until the next commit.
    old: BTreeMap<u32, Spool>,
    /// Shared with every snapshot that lives: until then no file is removed.
    pub(super) held: Arc<()>,
}

impl DiskStore {
    /// Opens the store of a directory, or creates it. Only one process can have it open.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let spools = dir.join("spool");
        files::make_private_dir(&spools).map_err(|source| StoreError::Io { path: spools.clone(), source })?;
        Models::of(dir).create(dir)?;
        // An update of few samples reveals them, so other users must not read any.
        for dir in [dir, &spools, &dir.join("models")] {
            if let Err(error) = files::tighten(dir) {
                warn!(
                    "{} is accessible to other users, and its permissions cannot be changed: {error}",
                    dir.display()
                );
            }
        }
        match Ledger::look(dir)? {
            Some(ledger) => Self::new(ledger, dir, options).read_through()?,
            None => expect_empty(dir)?,
        }
        let mut store = Self::new(Ledger::open(dir)?, dir, options);
        let meta = store.meta()?;
        let open = meta.as_ref().and_then(|meta| meta.open.as_ref()).map(|open| open.round);
        let committed = meta.as_ref().map_or(0, |meta| meta.next_round.saturating_sub(1));
        store.run = meta.map(|meta| meta.run.run);
        let indexed = store.indexed_rounds()?;
        if let Some(round) = open {
            let entries = store.of_rounds(round, round)?;
            store.spool = Some(Spool::open(&store.spools, round, &entries, None)?);
        }
        SpareFile::sweep(&store.spools);
        spool::sweep(&store.spools, |round| Some(round) == open || indexed.contains(&round))?;
        let kept = store.model_rounds()?;
        store.models.sweep(|round| kept.contains(&round))?;
        store.catch_up(committed)?;
        store.archive_history(committed);
        Ok(store)
    }

    pub(super) fn new(ledger: Ledger, dir: &Path, options: Options) -> Self {
        let (spools, models, history) = (dir.join("spool"), Models::of(dir), History::of(dir));
        let (spool, unsettled, spare, old, held) = (None, vec![], None, BTreeMap::new(), Arc::default());
        Self { ledger, spools, models, history, options, run: None, spool, unsettled, spare, old, held }
    }

    /// Fails if anything is damaged that a run needs to continue.
    fn read_through(mut self) -> Result<(), StoreError> {
        if let Some(meta) = self.meta()? {
            let saved = self.load(&meta.run.model)?;
            if let Some(open) = saved.and_then(|saved| saved.open) {
                let number = open.record.round;
                spool::check(&self.spools, number, &self.of_rounds(number, number)?)?;
            }
        }
        self.indexed_rounds().map(drop)
    }

    /// `None` before a run has begun.
    pub(super) fn meta(&self) -> Result<Option<Meta>, StoreError> {
        self.ledger.read(|txn| {
            let meta = txn.open_table(META)?;
            if meta.len()? == 1 && meta.get("format")?.is_some() {
                return Ok(None);
            }
            let bytes = |key: &str| {
                let value = meta.get(key)?.map(|value| value.value().to_vec());
                value.ok_or_else(|| LedgerError::Damaged(format!("{key} is missing")))
            };
            let extras = Extras::read(&meta, self.ledger.format())?;
            let mut open: Option<RoundRecord> = ledger::decode("open", &bytes("open")?)?;
            if let Some(open) = &mut open {
                open.began = extras.began.map(WallTime);
            }
            Ok(Some(Meta {
                run: ledger::decode("run", &bytes("run")?)?,
                next_round: ledger::decode("next", &bytes("next")?)?,
                attempt: ledger::decode("attempt", &bytes("attempt")?)?,
                open,
                strategy_state: ledger::strip_checksum("strategy", &bytes("strategy")?)?.to_vec(),
                extras,
            }))
        })
    }

    pub(super) fn begun(&self) -> Result<Meta, StoreError> {
        self.meta()?.ok_or(StoreError::NotBegun)
    }

    fn open_number(&self) -> Option<u32> {
        self.spool.as_ref().map(|spool| spool.round)
    }

    /// Rounds with entries in the index, ascending; walks and checks the whole index.
    pub(super) fn indexed_rounds(&self) -> Result<Vec<u32>, StoreError> {
        self.ledger.read(|txn| {
            let updates = txn.open_table(UPDATES)?;
            let mut rounds = Vec::new();
            let mut count = 0;
            for item in updates.iter()? {
                let (round, _) = entry(item?)?;
                count += 1;
                if rounds.last() != Some(&round) {
                    rounds.push(round);
                }
            }
            complete("the index of updates", count, updates.len()?)?;
            Ok(rounds)
        })
    }

    /// All updates of a range of rounds, by round, exchange and DeviceId.
    pub(super) fn of_rounds(&self, first: u32, last: u32) -> Result<Vec<Entry>, StoreError> {
        self.ledger.read(|txn| {
            let updates = txn.open_table(UPDATES)?;
            let mut entries = Vec::new();
            for item in updates.range((first, 0, "")..)? {
                let (round, entry) = entry(item?)?;
                if round > last {
                    break;
                }
                entries.push(entry);
            }
            Ok(entries)
        })
    }

    pub(super) fn devices(&self) -> Result<Vec<DeviceRecord>, StoreError> {
        self.ledger.read(|txn| {
            let table = txn.open_table(DEVICES)?;
            let mut devices = Vec::new();
            for item in table.iter()? {
                let (key, value) = item?;
                devices.push(ledger::decode(key.value(), value.value())?);
            }
            complete("the registry of devices", devices.len(), table.len()?)?;
            Ok(devices)
        })
    }

    /// The spool of an update, opened for reading.
    fn spool_of(
        &mut self,
        entry: &Entry,
        read: impl FnOnce(&mut Spool) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let round = entry.header.ticket.round;
        if let Some(spool) = self.spool.as_mut().filter(|spool| spool.round == round) {
            return read(spool);
        }
        if !self.old.contains_key(&round) {
            let entries = self.of_rounds(round, round)?;
            if entries.is_empty() {
                return Err(StoreError::WrongRound { open: self.open_number(), got: round });
            }
            self.old.insert(round, Spool::open(&self.spools, round, &entries, None)?);
        }
        let open = self.open_number();
        read(self.old.get_mut(&round).ok_or(StoreError::WrongRound { open, got: round })?)
    }

    /// Whether a snapshot of the store lives.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.held) > 1
    }

    /// Starts a new history file if one is due. A failure does not stop the run.
    fn archive_history(&self, round: u32) {
        if round > 0 && round.is_multiple_of(self.options.history_rounds.max(1)) {
            let done = self.history.archive(round);
            let _ = done.map_err(|error| warn!("history.jsonl cannot be renamed and grows: {error}"));
        }
    }

    fn damaged(&self, what: &str) -> StoreError {
        StoreError::Damaged { path: self.ledger.path().to_owned(), what: what.to_owned() }
    }
}

/// Round, exchange and DeviceId of an update.
type Key<'a> = AccessGuard<'a, (u32, u8, &'static str)>;

/// A row of the index.
fn entry((key, value): (Key<'_>, AccessGuard<'_, &[u8]>)) -> Result<(u32, Entry), LedgerError> {
    let (round, exchange, device) = key.value();
    let tag = update_tag(round, exchange, device);
    let entry = Entry::decode(ledger::strip_checksum(&tag, value.value())?);
    Ok((round, entry.ok_or_else(|| LedgerError::Damaged(format!("{tag} does not decode")))?))
}

/// Without its ledger, the files of a run look like leftovers, and a new run would remove them.
fn expect_empty(dir: &Path) -> Result<(), StoreError> {
    let rounds =
        [dir.join("spool"), dir.join("models")].into_iter().flat_map(fs::read_dir).flatten().flatten();
    let named = rounds.map(|file| file.path()).find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("round-"))
    });
    let any = match named {
        Some(file) => Some(file),
        None => History::of(dir).any()?,
    };
    match any {
        None => Ok(()),
        Some(file) => Err(StoreError::Damaged {
            path: dir.join(ledger::FILE),
            what: format!("it is missing, but {} of a run exists", file.display()),
        }),
    }
}

/// A table must have as many rows as it states.
pub(super) fn complete(what: &str, walked: usize, stated: u64) -> Result<(), LedgerError> {
    if walked as u64 == stated {
        Ok(())
    } else {
        Err(LedgerError::Damaged(format!("{what} has {walked} rows and should have {stated}")))
    }
}

fn update_tag(round: u32, exchange: u8, device: &str) -> String {
    ledger::tag(&format!("update {exchange}"), round, device)
}
