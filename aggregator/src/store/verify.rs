//! Checks a store that no server has open, and goes back to an earlier model.
//!
//! Both work on the files alone; neither needs the configuration or the model's structure.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use redb::{ReadableTable, ReadableTableMetadata};
use serde::de::IgnoredAny;

use super::{
    BestModel, DiskStore, KeptModel, ModelFingerprint, Options, RoundRecord, SavedRun, Store, StoreError,
    disk::complete,
    extras,
    history::{HistoryLine, SetAside, Walked},
    ledger::{self, Ledger, META, MODELS, REPORTS, UPDATES},
    model::{ModelRecord, Models},
    spool::{self, Spool},
};

/// What is in a store, and what is wrong with it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct VerifyReport {
    /// Of the store; an older one is migrated when a server starts.
    pub format: u32,
    /// Of the run; absent before one has begun.
    pub committed: Option<u32>,
    /// The open round, if there is one.
    pub open: Option<u32>,
    /// Rounds whose models are kept.
    pub models: Vec<u32>,
    /// The best model.
    pub best: Option<BestModel>,
    /// Reports of rounds that the ledger holds.
    pub reports: usize,
    /// Devices that have joined the run.
    pub devices: usize,
    /// Updates in spools.
    pub updates: usize,
    /// Of the updates, read and compared with their checksums.
    pub bytes: u64,
    /// What is damaged, in sentences; empty for a sound store.
    pub problems: Vec<String>,
}

/// The models that a store keeps.
#[derive(Clone, PartialEq, Debug)]
pub struct KeptList {
    /// By round.
    pub models: Vec<KeptModel>,
    /// Also one of `models`.
    pub best: Option<BestModel>,
}

/// The result of a rollback.
#[derive(Clone, PartialEq, Debug)]
pub struct RolledBack {
    pub from: u32,
    pub to: u32,
    /// Where the reports of the rounds after `to` are now, one line each.
    pub reports: Option<PathBuf>,
    /// The report of round `to`.
    pub last: Option<String>,
    /// The model after round `to`.
    pub parameters: Vec<f32>,
    /// The best model that is left.
    pub best: Option<BestModel>,
}

impl DiskStore {
    /// Reads the whole directory and writes to no disk. Damage is listed; an error means that nothing could be read.
    pub(crate) fn verify(dir: &Path) -> Result<VerifyReport, StoreError> {
        let Some(ledger) = Ledger::look(dir)? else { return Err(StoreError::NotBegun) };
        let mut found = VerifyReport { format: ledger.format(), ..VerifyReport::default() };
        let spools = dir.join("spool");
        let store = Self::new(ledger, dir, Options::default());
        if let Some(meta) = found.note(store.meta()).flatten() {
            found.committed = Some(meta.next_round.saturating_sub(1));
            found.open = meta.open.map(|open| open.round);
            let models = found.note(store.model_rounds()).unwrap_or_default();
            for &round in &models {
                let parameters = found.note(store.parameters(round)).flatten();
                if let Some(Err(wrong)) = parameters.map(|values| meta.run.model.expect_len(&values)) {
                    found.problems.push(format!("the model of round {round}: {wrong}"));
                }
            }
            let last = meta.next_round.saturating_sub(1);
            if !models.contains(&last) {
                found.problems.push(format!("the model of the last round, {last}, is missing"));
            }
            if let Some(best) = &meta.extras.best
                && !models.contains(&best.round)
            {
                found.problems.push(format!("the best model, that of round {}, is missing", best.round));
            }
            found.best = meta.extras.best;
            found.models = models;
        }
        found.devices = found.note(store.devices()).map_or(0, |devices| devices.len());
        found.read_reports(&store);
        for round in found.note(store.indexed_rounds()).unwrap_or_default() {
            found.read_round(&store, &spools, round);
        }
        Ok(found)
    }

    /// How many rounds of a directory's run are committed; `None` if none has begun. Changes nothing.
    pub(crate) fn committed(dir: &Path) -> Result<Option<u32>, StoreError> {
        let Some(ledger) = Ledger::look(dir)? else { return Ok(None) };
        let meta = Self::new(ledger, dir, Options::default()).meta()?;
        Ok(meta.map(|meta| meta.next_round.saturating_sub(1)))
    }

    /// A directory's run; an error if `model` is not its model. Changes nothing.
    pub fn saved(dir: &Path, model: &ModelFingerprint) -> Result<Option<SavedRun>, StoreError> {
        let Some(ledger) = Ledger::look(dir)? else { return Ok(None) };
        Self::new(ledger, dir, Options::default()).load(model)
    }

    /// The kept models of a directory's run and the best of them; `None` if no run has begun. Changes nothing.
    pub fn kept(dir: &Path) -> Result<Option<KeptList>, StoreError> {
        let Some(ledger) = Ledger::look(dir)? else { return Ok(None) };
        let store = Self::new(ledger, dir, Options::default());
        let Some(meta) = store.meta()? else { return Ok(None) };
        Ok(Some(KeptList { models: store.model_records()?, best: meta.extras.best }))
    }

    /// The parameters of a kept model, also while a server has the store open: it tells which models it keeps.
    pub fn read_kept(dir: &Path, kept: KeptModel) -> Result<Vec<f32>, StoreError> {
        Models::of(dir).read_told(kept)
    }

    /// Makes the kept model after round `to` the present one. Later rounds are undone: their reports go to a
    /// file, their updates are dropped, and the strategy starts without memory; a fairness target is computed again from the
    /// reports that are left. Refused while a server runs.
    pub(crate) fn rollback(dir: &Path, to: u32) -> Result<RolledBack, StoreError> {
        if !dir.join(ledger::FILE).exists() {
            return Err(StoreError::NotBegun);
        }
        // Only the target of the rollback must be intact: damage to the present model, or to updates of the open round, is a
        // reason to go back. Nothing is removed before the ledger has forgotten it.
        if let Some(ledger) = Ledger::look(dir)? {
            Self::new(ledger, dir, Options::default()).indexed_rounds()?;
        }
        let store = Self::new(Ledger::open(dir)?, dir, Options::default());
        let meta = store.begun()?;
        // With a new attempt, answers of devices for undone rounds no longer match.
        let attempt = meta.attempt.wrapping_add(1);
        let from = meta.next_round.saturating_sub(1);
        let kept = store.model_rounds()?;
        if !kept.contains(&to) {
            return Err(StoreError::NoModel { round: to, kept });
        }
        // Read before anything is undone: a damaged model cannot be the target.
        let parameters = store.parameters(to)?;
        let parameters = parameters.ok_or_else(|| StoreError::NoModel { round: to, kept: kept.clone() })?;
        meta.run.model.expect_len(&parameters)?;
        // Durable before the ledger forgets them.
        let SetAside { path: reports, last } = store.set_aside(from, to)?;
        let best = extras::after_rollback(meta.extras.best, to, last.as_deref(), &kept);
        store.ledger.write(|txn| {
            let mut meta = txn.open_table(META)?;
            meta.insert("next", ledger::encode("next", &to.saturating_add(1))?.as_slice())?;
            meta.insert("attempt", ledger::encode("attempt", &attempt)?.as_slice())?;
            meta.insert("open", ledger::encode("open", &None::<RoundRecord>)?.as_slice())?;
            if from != to {
                meta.insert("strategy", ledger::add_checksum("strategy", &[]).as_slice())?;
            }
            extras::write_best(&mut meta, best.as_ref())?;
            txn.open_table(MODELS)?.retain(|round, _| round <= to)?;
            txn.open_table(REPORTS)?.retain(|round, _| round <= to)?;
            txn.open_table(UPDATES)?.retain(|(round, _, _), _| round <= to)?;
            Ok(())
        })?;
        let needed: BTreeSet<u32> = store.indexed_rounds()?.into_iter().collect();
        spool::sweep(&store.spools, |round| needed.contains(&round))?;
        store.models.sweep(|round| round <= to)?;
        store.forget_reports_after(to)?;
        Ok(RolledBack { from, to, reports, last, parameters, best })
    }

    /// Rounds whose models are kept, ascending.
    pub(super) fn model_rounds(&self) -> Result<Vec<u32>, StoreError> {
        Ok(self.model_records()?.into_iter().map(|kept| kept.round).collect())
    }

    /// The same with the checksums of their files.
    pub(super) fn model_records(&self) -> Result<Vec<KeptModel>, StoreError> {
        self.ledger.read(|txn| {
            let table = txn.open_table(MODELS)?;
            let mut rounds = Vec::new();
            for item in table.iter()? {
                let (round, value) = item?;
                let round = round.value();
                let tag = ledger::tag("model", round, "");
                let ModelRecord { crc, .. } = ledger::decode(&tag, value.value())?;
                rounds.push(KeptModel { round, crc });
            }
            complete("the table of models", rounds.len(), table.len()?)?;
            Ok(rounds)
        })
    }
}

impl VerifyReport {
    /// The value, or `None` after noting the problem.
    fn note<T>(&mut self, result: Result<T, StoreError>) -> Option<T> {
        result.map_err(|error| self.problems.push(error.to_string())).ok()
    }

    fn read_reports(&mut self, store: &DiskStore) {
        let committed = self.committed.unwrap_or(0);
        let (mut count, mut gaps) = (0, Gaps::default());
        let walked = store.each_report(0, |line| {
            if let HistoryLine::Report(report) = line
                && report.round <= committed
            {
                gaps.see(report.round);
                count += 1;
                if let Err(wrong) = serde_json::from_str::<IgnoredAny>(report.text) {
                    self.problems.push(format!("the report of round {} is not JSON: {wrong}", report.round));
                }
            }
            Ok(())
        });
        let Some(Walked { faults, unreadable }) = self.note(walked) else { return };
        self.reports = count;
        self.problems.extend(unreadable.iter().map(StoreError::to_string));
        self.problems.extend(faults.named.iter().map(|fault| format!("history: {fault}")));
        if faults.more > 0 {
            self.problems.push(format!("history: {} more lines are not reports", faults.more));
        }
        gaps.see(committed.saturating_add(1));
        if let Some((first, last)) = gaps.span {
            let missing = gaps.missing;
            self.problems
                .push(format!("{missing} reports of rounds {first} to {last} are missing in the history"));
        }
    }

    fn read_round(&mut self, store: &DiskStore, spools: &Path, round: u32) {
        let Some(entries) = self.note(store.of_rounds(round, round)) else { return };
        let Some(mut spool) = self.note(Spool::look(spools, round, &entries)) else { return };
        let mut payload = Vec::new();
        for entry in &entries {
            payload.resize(entry.payload_len(), 0);
            if self.note(spool.read(entry, &mut payload)).is_some() {
                self.updates += 1;
                self.bytes += payload.len() as u64;
            }
        }
    }
}

/// Finds the rounds that are missing in an ascending sequence.
#[derive(Debug, Default)]
struct Gaps {
    last: u32,
    missing: u32,
    /// From the first one that is missing to the last.
    span: Option<(u32, u32)>,
}

impl Gaps {
    fn see(&mut self, round: u32) {
        let expected = self.last.saturating_add(1);
        if round > expected {
            self.missing = self.missing.saturating_add(round - expected);
            let first = self.span.map_or(expected, |(first, _)| first);
            self.span = Some((first, round - 1));
        }
        self.last = self.last.max(round);
    }
}
