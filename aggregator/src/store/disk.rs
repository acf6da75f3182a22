//! The durable store: one directory with a ledger and a spool file per round.
//!
//! ```text
//! DIR/fairtier.redb              run, devices, rounds, index of updates, models, reports
//! DIR/spool/round-000007.spool   updates of round 7 as they arrived
//! ```
//! An update counts once its index entry is committed, and that happens after its bytes are on the disk.
//! A round counts once its model is committed; the spool is removed after that.

use std::{
    fs,
    path::{Path, PathBuf},
};

use common::RunId;
use redb::{ReadableTable, WriteTransaction};

use super::{
    Commit, Entry, Kept, ModelMark, OpenRound, RoundRecord, RunRecord, Saved, Store, StoreError,
    UpdateRecord,
    ledger::{self, DEVICES, Fault, Ledger, META, MODELS, REPORTS, UPDATES},
    model,
    spool::{self, Spool, sync_dir},
};
use crate::fleet::DeviceRecord;

pub(super) const DEFAULT_KEEP_MODELS: usize = 2;

/// What a [`DiskStore`] keeps beyond what it needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Model versions, the newest included; at least 1.
    pub keep_models: usize,
    /// Keep the updates of closed rounds.
    pub keep_spool: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { keep_models: DEFAULT_KEEP_MODELS, keep_spool: false }
    }
}

/// See the [module](self) for the layout.
#[derive(Debug)]
pub struct DiskStore {
    ledger: Ledger,
    spools: PathBuf,
    options: Options,
    run: Option<RunId>,
    /// Of the open round.
    spool: Option<Spool>,
}

impl DiskStore {
    /// Opens the store of a directory, or creates it. Only one process can have it open.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let spools = dir.join("spool");
        fs::create_dir_all(&spools).map_err(|source| StoreError::Io { path: spools.clone(), source })?;
        sync_dir(dir)?;
        let ledger = Ledger::open(dir)?;
        let mut store = Self { ledger, spools, options, run: None, spool: None };
        store.run = store.run_record()?.map(|run| run.run);
        if let Some(round) = store.open_record()? {
            let entries = store.updates(round.number)?;
            store.spool = Some(Spool::open(&store.spools, round.number, &entries)?);
        }
        let indexed = store.indexed_rounds()?;
        let open = store.open_number();
        spool::sweep(&store.spools, |round| Some(round) == open || indexed.contains(&round))?;
        Ok(store)
    }

    fn run_record(&self) -> Result<Option<RunRecord>, StoreError> {
        self.ledger.read(|txn| ledger::record(&txn.open_table(META)?, "run"))
    }

    fn open_record(&self) -> Result<Option<RoundRecord>, StoreError> {
        self.ledger.read(|txn| ledger::record(&txn.open_table(META)?, "open"))
    }

    fn next_round(&self) -> Result<u32, StoreError> {
        let next = self.ledger.read(|txn| ledger::record(&txn.open_table(META)?, "next"))?;
        next.ok_or(StoreError::NotBegun)
    }

    fn open_number(&self) -> Option<u32> {
        self.spool.as_ref().map(|spool| spool.round)
    }

    /// Rounds with entries in the index, ascending.
    fn indexed_rounds(&self) -> Result<Vec<u32>, StoreError> {
        self.ledger.read(|txn| {
            let updates = txn.open_table(UPDATES)?;
            let mut rounds = Vec::new();
            let mut from = 0;
            while let Some(first) = updates.range((from, "")..)?.next() {
                let round = first?.0.value().0;
                rounds.push(round);
                let Some(next) = round.checked_add(1) else { break };
                from = next;
            }
            Ok(rounds)
        })
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
        self.ledger.write(|txn| {
            let mut meta = txn.open_table(META)?;
            meta.insert("run", ledger::encode(run)?.as_slice())?;
            meta.insert("next", ledger::encode(&1u32)?.as_slice())?;
            txn.open_table(MODELS)?.insert(0, ledger::seal(&model::encode(parameters)).as_slice())?;
            Ok(())
        })?;
        self.run = Some(run.run);
        Ok(())
    }

    fn load(&mut self, model: &ModelMark) -> Result<Option<Saved>, StoreError> {
        let Some(run) = self.run_record()? else { return Ok(None) };
        run.model.expect(model)?;
        let next_round = self.next_round()?;
        let parameters = self.parameters(next_round.saturating_sub(1))?;
        let parameters = parameters.ok_or_else(|| self.damaged("the model of the last round is missing"))?;
        run.model.expect_len(&parameters).map_err(|error| self.damaged(&error.to_string()))?;
        let (strategy_state, devices) = self.ledger.read(|txn| {
            let state = txn.open_table(META)?.get("strategy")?;
            let state = state.map(|value| ledger::unseal("strategy", value.value()).map(<[u8]>::to_vec));
            let devices: Result<Vec<_>, Fault> = txn
                .open_table(DEVICES)?
                .iter()?
                .map(|item| {
                    item.map_err(Fault::from).and_then(|(_, value)| ledger::decode("a device", value.value()))
                })
                .collect();
            Ok((state.transpose()?.unwrap_or_default(), devices?))
        })?;
        let open = match self.open_record()? {
            Some(record) => Some(OpenRound { updates: self.updates(record.number)?, record }),
            None => None,
        };
        Ok(Some(Saved { run, next_round, parameters, strategy_state, devices, open }))
    }

    fn register(&mut self, device: &DeviceRecord) -> Result<(), StoreError> {
        self.ledger.write(|txn| {
            txn.open_table(DEVICES)?.insert(device.device.as_str(), ledger::encode(device)?.as_slice())?;
            Ok(())
        })
    }

    fn open_round(&mut self, round: &RoundRecord) -> Result<(), StoreError> {
        let next = self.next_round()?;
        if round.number != next {
            return Err(StoreError::NotNext { next, got: round.number });
        }
        if self.open_number() != Some(round.number) {
            self.spool = Some(Spool::open(&self.spools, round.number, &[])?);
        }
        self.ledger.write(|txn| {
            txn.open_table(META)?.insert("open", ledger::encode(round)?.as_slice())?;
            Ok(())
        })
    }

    fn append(&mut self, updates: &[UpdateRecord<'_>]) -> Result<Vec<Kept>, StoreError> {
        let run = self.run.ok_or(StoreError::NotBegun)?;
        let open = self.open_number();
        updates.iter().try_for_each(|update| update.check(run, open))?;
        let kept = self.ledger.read(|txn| {
            let index = txn.open_table(UPDATES)?;
            let mut kept = Vec::with_capacity(updates.len());
            for (number, UpdateRecord { header, .. }) in updates.iter().enumerate() {
                let in_batch = updates.iter().take(number).any(|other| other.header.device == header.device);
                let known = in_batch || index.get((header.ticket.round, header.device.as_str()))?.is_some();
                kept.push(if known { Kept::Known } else { Kept::New });
            }
            Ok(kept)
        })?;
        let new: Vec<_> = updates
            .iter()
            .zip(&kept)
            .filter(|&(_, &kept)| kept == Kept::New)
            .map(|(update, _)| update)
            .collect();
        let Some(spool) = self.spool.as_mut().filter(|_| !new.is_empty()) else { return Ok(kept) };
        let entries = spool.append(&new)?;
        let committed = self.ledger.write(|txn| {
            let mut index = txn.open_table(UPDATES)?;
            for entry in &entries {
                let key = (entry.header.ticket.round, entry.header.device.as_str());
                index.insert(key, ledger::encode(entry)?.as_slice())?;
            }
            Ok(())
        });
        committed.inspect_err(|_| spool.rewind(&entries))?;
        Ok(kept)
    }

    fn updates(&self, round: u32) -> Result<Vec<Entry>, StoreError> {
        self.ledger.read(|txn| {
            let updates = txn.open_table(UPDATES)?;
            let mut entries = Vec::new();
            for item in updates.range((round, "")..)? {
                let (key, value) = item?;
                if key.value().0 != round {
                    break;
                }
                entries.push(ledger::decode("an index entry", value.value())?);
            }
            Ok(entries)
        })
    }

    fn read(&mut self, entry: &Entry, payload: &mut Vec<u8>) -> Result<(), StoreError> {
        let round = entry.header.ticket.round;
        match &mut self.spool {
            Some(spool) if spool.round == round => spool.read(entry, payload),
            _ => {
                let entries = self.updates(round)?;
                if entries.is_empty() {
                    return Err(StoreError::WrongRound { open: self.open_number(), got: round });
                }
                Spool::open(&self.spools, round, &entries)?.read(entry, payload)
            }
        }
    }

    fn commit_round(&mut self, commit: &Commit<'_>) -> Result<(), StoreError> {
        let run = self.run_record()?.ok_or(StoreError::NotBegun)?;
        run.model.expect_len(commit.parameters)?;
        let open = self.open_number();
        if open != Some(commit.round) {
            return Err(StoreError::WrongRound { open, got: commit.round });
        }
        let options = self.options.clone();
        self.ledger.write(|txn| write_commit(txn, commit, &options))?;
        self.spool = None;
        if !options.keep_spool {
            // The round is closed whatever happens here; a file that stays is removed on the next start.
            let _ = spool::remove(&self.spools, commit.round);
        }
        Ok(())
    }

    fn parameters(&self, round: u32) -> Result<Option<Vec<f32>>, StoreError> {
        self.ledger.read(|txn| {
            let value = txn.open_table(MODELS)?.get(round)?;
            let decode = |value: redb::AccessGuard<'_, &[u8]>| {
                model::decode(ledger::unseal("a model", value.value())?)
                    .ok_or_else(|| Fault::Damaged("a model is cut off".to_owned()))
            };
            value.map(decode).transpose()
        })
    }

    fn history(&self) -> Result<Vec<(u32, String)>, StoreError> {
        self.ledger.read(|txn| {
            let mut reports = Vec::new();
            for item in txn.open_table(REPORTS)?.iter()? {
                let (round, value) = item?;
                let report = String::from_utf8(ledger::unseal("a report", value.value())?.to_vec());
                let report = report.map_err(|_| Fault::Damaged("a report is not text".to_owned()))?;
                reports.push((round.value(), report));
            }
            Ok(reports)
        })
    }
}

fn write_commit(txn: &WriteTransaction, commit: &Commit<'_>, options: &Options) -> Result<(), Fault> {
    let next = commit.round.saturating_add(1);
    let mut meta = txn.open_table(META)?;
    meta.insert("strategy", ledger::seal(commit.strategy_state).as_slice())?;
    meta.insert("next", ledger::encode(&next)?.as_slice())?;
    meta.remove("open")?;
    let mut models = txn.open_table(MODELS)?;
    models.insert(commit.round, ledger::seal(&model::encode(commit.parameters)).as_slice())?;
    let oldest = next.saturating_sub(u32::try_from(options.keep_models.max(1)).unwrap_or(u32::MAX));
    models.retain(|round, _| round >= oldest)?;
    txn.open_table(REPORTS)?.insert(commit.round, ledger::seal(commit.report.as_bytes()).as_slice())?;
    if !options.keep_spool {
        txn.open_table(UPDATES)?.retain_in((commit.round, "")..(next, ""), |_, _| false)?;
    }
    Ok(())
}
