//! The durable store: one directory with a ledger and a spool file per round.
//!
//! ```text
//! DIR/fairtier.redb              run, devices, rounds, index of updates and models, reports
//! DIR/spool/round-000007.spool   updates of round 7 as they arrived
//! DIR/models/round-000006.model  the model that round 6 gave
//! DIR/history.jsonl              reports of all rounds, also those that have left the ledger
//! DIR/history-000001-010000.jsonl  and of earlier ones
//! ```
//! An update counts once its index entry is committed, and that happens after its bytes are on the disk.
//! A round counts once its model is committed; the spool is removed after that. All of it is for its owner alone (0700, 0600).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use common::{RunId, files, message::Ticket};
use redb::{AccessGuard, ReadableTable, ReadableTableMetadata, WriteTransaction};
use tracing::warn;

use super::{
    Commit, Entry, Header, Kept, ModelMark, OpenRound, RoundRecord, RunRecord, Saved, Store, StoreError,
    UpdateRecord,
    history::{History, Line, Report},
    ledger::{self, DEVICES, Fault, Ledger, META, MODELS, REPORTS, UPDATES},
    model::{ModelRecord, Models},
    spool::{self, Spare, Spool},
};
use strategies::device::DeviceRecord;

pub(super) const DEFAULT_KEEP_MODELS: usize = 2;
/// Reports leave the ledger this many rounds at a time, because their file has to be durable before.
const FORGET_EVERY: u32 = 16;

/// What a [`DiskStore`] keeps beyond what it needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Model versions, the newest included; at least 1.
    pub keep_models: usize,
    /// Keep the updates of closed rounds.
    pub keep_spool: bool,
    /// Reports in the ledger, at least; all of them are in files beside it.
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
    /// Of the open round.
    spool: Option<Spool>,
    /// Written, but neither durable nor in the index.
    unsettled: Vec<Entry>,
    /// For the next round.
    spare: Option<Spare>,
    /// Of rounds before, opened as they are read; until the next commit.
    old: BTreeMap<u32, Spool>,
}

impl DiskStore {
    /// Opens the store of a directory, or creates it. Only one process can have it open.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let spools = dir.join("spool");
        files::make_private_dir(&spools).map_err(|source| StoreError::Io { path: spools.clone(), source })?;
        Models::of(dir).create(dir)?;
        // An update of few samples gives them back, so other users must not read any.
        for dir in [dir, &spools, &dir.join("models")] {
            if let Err(error) = files::tighten(dir) {
                warn!("{} is open to other users, and that cannot be changed: {error}", dir.display());
            }
        }
        match Ledger::look(dir)? {
            Some(ledger) => Self::new(ledger, dir, options).read_through()?,
            None => expect_empty(dir)?,
        }
        let mut store = Self::new(Ledger::open(dir)?, dir, options);
        let meta = store.meta()?;
        let open = meta.as_ref().and_then(|meta| meta.open.as_ref()).map(|round| round.number);
        let committed = meta.as_ref().map_or(0, |meta| meta.next_round.saturating_sub(1));
        store.run = meta.map(|meta| meta.run.run);
        let indexed = store.indexed_rounds()?;
        if let Some(round) = open {
            let entries = store.of_rounds(round, round)?;
            store.spool = Some(Spool::open(&store.spools, round, &entries, None)?);
        }
        Spare::sweep(&store.spools);
        spool::sweep(&store.spools, |round| Some(round) == open || indexed.contains(&round))?;
        let kept = store.model_rounds()?;
        store.models.sweep(|round| kept.contains(&round))?;
        store.catch_up(committed)?;
        store.archive_history(committed);
        Ok(store)
    }

    pub(super) fn new(ledger: Ledger, dir: &Path, options: Options) -> Self {
        let (spools, models, history) = (dir.join("spool"), Models::of(dir), History::of(dir));
        let (spool, unsettled, spare, old) = (None, vec![], None, BTreeMap::new());
        Self { ledger, spools, models, history, options, run: None, spool, unsettled, spare, old }
    }

    /// Fails if something is damaged that a run needs to go on.
    fn read_through(mut self) -> Result<(), StoreError> {
        if let Some(meta) = self.meta()? {
            let saved = self.load(&meta.run.model)?;
            if let Some(open) = saved.and_then(|saved| saved.open) {
                let number = open.record.number;
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
                value.ok_or_else(|| Fault::Damaged(format!("{key} is missing")))
            };
            Ok(Some(Meta {
                run: ledger::decode("run", &bytes("run")?)?,
                next_round: ledger::decode("next", &bytes("next")?)?,
                attempt: ledger::decode("attempt", &bytes("attempt")?)?,
                open: ledger::decode("open", &bytes("open")?)?,
                strategy_state: ledger::unseal("strategy", &bytes("strategy")?)?.to_vec(),
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

    /// All updates of a span of rounds, by round, exchange and DeviceId.
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

    /// Lets the spool that an update is in be read.
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
        self.old.get_mut(&round).map_or(Ok(()), read)
    }

    /// Lets the history begin a new file where it is time for one. A run does not depend on it.
    fn archive_history(&self, round: u32) {
        if round > 0 && round.is_multiple_of(self.options.history_rounds.max(1)) {
            let done = self.history.archive(round);
            let _ = done.map_err(|error| warn!("history.jsonl stays as it is and grows on: {error}"));
        }
    }

    fn damaged(&self, what: &str) -> StoreError {
        StoreError::Damaged { path: self.ledger.path().to_owned(), what: what.to_owned() }
    }
}

impl Store for DiskStore {
    fn begin_run(&mut self, run: &RunRecord, parameters: &[f32]) -> Result<(), StoreError> {
        if self.run.is_some() {
            return Err(StoreError::AlreadyBegun);
        }
        run.model.expect_len(parameters)?;
        let model = self.models.write(0, parameters)?;
        self.ledger.write(|txn| {
            let mut meta = txn.open_table(META)?;
            meta.insert("run", ledger::encode("run", run)?.as_slice())?;
            meta.insert("next", ledger::encode("next", &1u32)?.as_slice())?;
            meta.insert("attempt", ledger::encode("attempt", &0u16)?.as_slice())?;
            meta.insert("open", ledger::encode("open", &None::<RoundRecord>)?.as_slice())?;
            meta.insert("strategy", ledger::seal("strategy", &[]).as_slice())?;
            insert_model(txn, 0, &model)
        })?;
        self.run = Some(run.run);
        Ok(())
    }

    fn load(&mut self, model: &ModelMark) -> Result<Option<Saved>, StoreError> {
        let Some(meta) = self.meta()? else { return Ok(None) };
        meta.run.model.expect(model)?;
        let parameters = self.parameters(meta.next_round.saturating_sub(1))?;
        let parameters = parameters.ok_or_else(|| self.damaged("the model of the last round is missing"))?;
        meta.run.model.expect_len(&parameters).map_err(|error| self.damaged(&error.to_string()))?;
        let open = match meta.open {
            Some(record) => {
                Some(OpenRound { updates: self.updates(record.number, record.exchange())?, record })
            }
            None => None,
        };
        Ok(Some(Saved {
            run: meta.run,
            next_round: meta.next_round,
            attempt: meta.attempt,
            parameters,
            strategy_state: meta.strategy_state,
            devices: self.devices()?,
            open,
        }))
    }

    fn register(&mut self, device: &DeviceRecord) -> Result<(), StoreError> {
        self.ledger.write(|txn| {
            let key = device.device.as_str();
            txn.open_table(DEVICES)?.insert(key, ledger::encode(key, device)?.as_slice())?;
            Ok(())
        })
    }

    fn open_round(&mut self, round: &RoundRecord) -> Result<(), StoreError> {
        let next = self.begun()?.next_round;
        if round.number != next {
            return Err(StoreError::NotNext { next, got: round.number });
        }
        if self.open_number() != Some(round.number) {
            self.spool = Some(Spool::open(&self.spools, round.number, &[], self.spare.take())?);
        }
        self.ledger.write(|txn| {
            let mut meta = txn.open_table(META)?;
            meta.insert("open", ledger::encode("open", &Some(round))?.as_slice())?;
            meta.insert("attempt", ledger::encode("attempt", &round.attempt)?.as_slice())?;
            Ok(())
        })
    }

    fn put(&mut self, update: &UpdateRecord<'_>) -> Result<Kept, StoreError> {
        let run = self.run.ok_or(StoreError::NotBegun)?;
        update.check(run, self.open_number())?;
        let Header { ticket, device, .. } = &update.header;
        let same = |Entry { header, .. }: &Entry| {
            header.device == *device && header.ticket.exchange == ticket.exchange
        };
        let key = (ticket.round, ticket.exchange, device.as_str());
        let known = self.unsettled.iter().any(same)
            || self.ledger.read(|txn| Ok(txn.open_table(UPDATES)?.get(key)?.is_some()))?;
        let Some(spool) = self.spool.as_mut().filter(|_| !known) else { return Ok(Kept::Known) };
        self.unsettled.push(spool.write(update)?);
        Ok(Kept::New)
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        let entries = std::mem::take(&mut self.unsettled);
        let Some(spool) = self.spool.as_mut().filter(|_| !entries.is_empty()) else { return Ok(()) };
        let settled = spool.sync().and_then(|()| {
            self.ledger.write(|txn| {
                let mut index = txn.open_table(UPDATES)?;
                for entry in &entries {
                    let Ticket { round, exchange, .. } = entry.header.ticket;
                    let device = entry.header.device.as_str();
                    let value = ledger::encode(&update_tag(round, exchange, device), entry)?;
                    index.insert((round, exchange, device), value.as_slice())?;
                }
                Ok(())
            })
        });
        settled.inspect_err(|_| spool.rewind(&entries))
    }

    fn updates(&self, round: u32, exchange: u8) -> Result<Vec<Entry>, StoreError> {
        let mut entries = self.of_rounds(round, round)?;
        entries.retain(|entry| entry.header.ticket.exchange == exchange);
        Ok(entries)
    }

    fn past(&self, before: u32) -> Result<Vec<Entry>, StoreError> {
        let Some(last) = before.checked_sub(1) else { return Ok(vec![]) };
        let mut entries = self.of_rounds(0, last)?;
        let newest = super::kept(&entries, usize::MAX);
        entries.retain(|Entry { header, .. }| newest.contains(&(header.ticket, header.device.clone())));
        entries.sort_by(|a, b| a.header.device.cmp(&b.header.device));
        Ok(entries)
    }

    fn read_into(&mut self, entry: &Entry, payload: &mut [u8]) -> Result<(), StoreError> {
        self.spool_of(entry, |spool| spool.read(entry, payload))
    }

    fn read_part(
        &mut self,
        entry: &Entry,
        bytes: Range<usize>,
        payload: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.spool_of(entry, |spool| spool.read_part(entry, bytes, payload))
    }

    fn commit_round(&mut self, commit: &Commit<'_>) -> Result<(), StoreError> {
        self.begun()?.run.model.expect_len(commit.parameters)?;
        let open = self.open_number();
        if open != Some(commit.round) {
            return Err(StoreError::WrongRound { open, got: commit.round });
        }
        let options = self.options;
        let entries = self.of_rounds(0, commit.round)?;
        let kept = super::kept(&entries, commit.history);
        let stays = |Entry { header, .. }: &Entry| kept.contains(&(header.ticket, header.device.clone()));
        let dropped: Vec<_> = entries.iter().filter(|entry| !options.keep_spool && !stays(entry)).collect();
        let model = self.models.write(commit.round, commit.parameters)?;
        if forgets(commit.round) {
            self.history.sync()?;
        }
        self.ledger.write(|txn| write_commit(txn, commit, &model, &options, &dropped))?;
        let files = (self.spool.take(), std::mem::take(&mut self.old));
        if !options.keep_spool {
            let needed: BTreeSet<u32> = kept.iter().map(|(ticket, _)| ticket.round).collect();
            if !needed.contains(&commit.round) {
                self.spare = Spare::set_aside(&self.spools, commit.round);
            }
            // The round is closed whatever happens here; a file that stays is removed on the next start.
            let _ = spool::sweep(&self.spools, |round| needed.contains(&round));
        }
        let oldest = first_kept(commit.round, options.keep_models);
        let _ = self.models.sweep(|round| round >= oldest);
        // Closing the last handle gives the blocks back, which takes longer than the commit: nobody waits for it.
        let _ = std::thread::Builder::new().spawn(move || drop(files));
        self.history.append(commit.report)?;
        self.archive_history(commit.round);
        Ok(())
    }

    fn parameters(&self, round: u32) -> Result<Option<Vec<f32>>, StoreError> {
        let kept = self.ledger.read(|txn| {
            let value = txn.open_table(MODELS)?.get(round)?;
            value.map(|value| ledger::decode(&ledger::tag("model", round, ""), value.value())).transpose()
        })?;
        kept.map(|kept| self.models.read(round, kept)).transpose()
    }

    fn report(&self, round: u32) -> Result<Option<String>, StoreError> {
        self.ledger_report(round)
    }

    fn history(&self) -> Result<Vec<(u32, String)>, StoreError> {
        let committed = self.meta()?.map_or(0, |meta| meta.next_round.saturating_sub(1));
        let mut reports = Vec::new();
        let walked = self.each_report(0, |line| {
            if let Line::Report(Report { round, text }) = line
                && round <= committed
            {
                reports.push((round, text.to_owned()));
            }
            Ok(())
        })?;
        walked.unreadable.into_iter().next().map_or(Ok(reports), Err)
    }
}

fn write_commit(
    txn: &WriteTransaction,
    commit: &Commit<'_>,
    model: &ModelRecord,
    options: &Options,
    dropped: &[&Entry],
) -> Result<(), Fault> {
    let next = commit.round.saturating_add(1);
    let mut meta = txn.open_table(META)?;
    meta.insert("strategy", ledger::seal("strategy", commit.strategy_state).as_slice())?;
    meta.insert("next", ledger::encode("next", &next)?.as_slice())?;
    meta.insert("open", ledger::encode("open", &None::<RoundRecord>)?.as_slice())?;
    insert_model(txn, commit.round, model)?;
    let oldest = first_kept(commit.round, options.keep_models);
    txn.open_table(MODELS)?.retain(|round, _| round >= oldest)?;
    let report = ledger::seal(&ledger::tag("report", commit.round, ""), commit.report.as_bytes());
    let mut reports = txn.open_table(REPORTS)?;
    reports.insert(commit.round, report.as_slice())?;
    if forgets(commit.round) {
        reports.retain_in(..first_kept(commit.round, options.keep_reports), |_, _| false)?;
    }
    let mut updates = txn.open_table(UPDATES)?;
    for Entry { header, .. } in dropped {
        updates.remove((header.ticket.round, header.ticket.exchange, header.device.as_str()))?;
    }
    Ok(())
}

/// Whether old reports leave the ledger with this round.
fn forgets(round: u32) -> bool {
    round.is_multiple_of(FORGET_EVERY)
}

/// The first of so many rounds, of which this one is the last; it is always kept itself.
fn first_kept(round: u32, count: usize) -> u32 {
    let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    round.saturating_add(1).saturating_sub(count)
}

fn insert_model(txn: &WriteTransaction, round: u32, model: &ModelRecord) -> Result<(), Fault> {
    let value = ledger::encode(&ledger::tag("model", round, ""), model)?;
    txn.open_table(MODELS)?.insert(round, value.as_slice())?;
    Ok(())
}

/// Round, exchange and DeviceId of an update.
type Key<'a> = AccessGuard<'a, (u32, u8, &'static str)>;

/// A row of the index.
fn entry((key, value): (Key<'_>, AccessGuard<'_, &[u8]>)) -> Result<(u32, Entry), Fault> {
    let (round, exchange, device) = key.value();
    Ok((round, ledger::decode(&update_tag(round, exchange, device), value.value())?))
}

fn update_tag(round: u32, exchange: u8, device: &str) -> String {
    ledger::tag(&format!("update {exchange}"), round, device)
}

/// Without its ledger the files of a run cannot be told from leftovers, and a new run would sweep them away.
fn expect_empty(dir: &Path) -> Result<(), StoreError> {
    let rounds =
        [dir.join("spool"), dir.join("models")].into_iter().flat_map(fs::read_dir).flatten().flatten();
    let named = rounds.map(|file| file.path()).find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("round-"))
    });
    match named.or_else(|| History::of(dir).any()) {
        None => Ok(()),
        Some(file) => Err(StoreError::Damaged {
            path: dir.join(ledger::FILE),
            what: format!("it is missing, but {} of a run is there", file.display()),
        }),
    }
}

/// A table that was walked must have as many rows as it says.
pub(super) fn complete(what: &str, walked: usize, stated: u64) -> Result<(), Fault> {
    if walked as u64 == stated {
        Ok(())
    } else {
        Err(Fault::Damaged(format!("{what} has {walked} rows and should have {stated}")))
    }
}
