//! Looking after a store that no server has open: reading it through, and going back to an earlier model.
//!
//! Both work on the files alone; neither needs the configuration or the model's structure.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    path::Path,
    path::PathBuf,
};

use redb::{ReadableTable, ReadableTableMetadata};

use super::{
    DiskStore, Options, Reports, RoundRecord, Store, StoreError,
    disk::complete,
    ledger::{self, Ledger, META, MODELS, REPORTS, UPDATES},
    model::ModelRecord,
    spool::{self, Spool},
};

/// What is in a store, and what is wrong with it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verified {
    /// Of the run; absent before one has begun.
    pub committed: Option<u32>,
    pub open: Option<u32>,
    /// Rounds whose models are kept.
    pub models: Vec<u32>,
    pub reports: usize,
    pub devices: usize,
    pub updates: usize,
    /// Of the updates, read and compared with their checksums.
    pub bytes: u64,
    pub problems: Vec<String>,
}

/// What going back has changed.
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
}

impl DiskStore {
    /// Reads everything of a directory and changes nothing. What is damaged is listed; an error means that
    /// nothing could be read.
    pub fn verify(dir: &Path) -> Result<Verified, StoreError> {
        let mut found = Verified::default();
        let Some(ledger) = Ledger::open_copy(dir)? else { return Err(StoreError::NotBegun) };
        let spools = dir.join("spool");
        let store = Self::new(ledger, dir, Options::default());
        if let Some(meta) = found.note(store.meta()).flatten() {
            found.committed = Some(meta.next_round.saturating_sub(1));
            found.open = meta.open.map(|round| round.number);
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
    pub fn committed(dir: &Path) -> Result<Option<u32>, StoreError> {
        let Some(ledger) = Ledger::open_copy(dir)? else { return Ok(None) };
        let meta = Self::new(ledger, dir, Options::default()).meta()?;
        Ok(meta.map(|meta| meta.next_round.saturating_sub(1)))
    }

    /// Makes the kept model after round `to` the present one. Later rounds are undone: their reports go to a
    /// file, their updates are dropped, and the strategy starts without memory. Refused while a server runs.
    pub fn rollback(dir: &Path, to: u32) -> Result<RolledBack, StoreError> {
        if !dir.join(ledger::FILE).exists() {
            return Err(StoreError::NotBegun);
        }
        // Only what is gone back to must be sound: damage to the present model, or to updates of the open round, is a
        // reason to go back. Nothing is swept before the ledger has forgotten it.
        if let Some(ledger) = Ledger::open_copy(dir)? {
            Self::new(ledger, dir, Options::default()).indexed_rounds()?;
        }
        let store = Self::new(Ledger::open(dir)?, dir, Options::default());
        let meta = store.begun()?;
        // What devices still do for rounds that are undone has another name.
        let attempt = meta.attempt.wrapping_add(1);
        let from = meta.next_round.saturating_sub(1);
        let kept = store.model_rounds()?;
        if !kept.contains(&to) {
            return Err(StoreError::NoModel { round: to, kept });
        }
        // Read before anything is undone: a damaged model is no place to go back to.
        let parameters = store.parameters(to)?.ok_or(StoreError::NoModel { round: to, kept })?;
        meta.run.model.expect_len(&parameters)?;
        let mut kept = store.all_reports()?.reports;
        let undone = kept.split_off(&to.saturating_add(1));
        let reports = (!undone.is_empty()).then(|| set_aside(dir, from, to, &undone)).transpose()?;
        store.ledger.write(|txn| {
            let mut meta = txn.open_table(META)?;
            meta.insert("next", ledger::encode("next", &to.saturating_add(1))?.as_slice())?;
            meta.insert("attempt", ledger::encode("attempt", &attempt)?.as_slice())?;
            meta.insert("open", ledger::encode("open", &None::<RoundRecord>)?.as_slice())?;
            if from != to {
                meta.insert("strategy", ledger::seal("strategy", &[]).as_slice())?;
            }
            txn.open_table(MODELS)?.retain(|round, _| round <= to)?;
            txn.open_table(REPORTS)?.retain(|round, _| round <= to)?;
            txn.open_table(UPDATES)?.retain(|(round, _, _), _| round <= to)?;
            Ok(())
        })?;
        let needed: BTreeSet<u32> = store.indexed_rounds()?.into_iter().collect();
        spool::sweep(&store.spools, |round| needed.contains(&round))?;
        store.models.sweep(|round| round <= to)?;
        store.catch_up(to)?;
        Ok(RolledBack { from, to, reports, last: kept.remove(&to), parameters })
    }

    /// Rounds whose models are kept, ascending.
    pub(super) fn model_rounds(&self) -> Result<Vec<u32>, StoreError> {
        self.ledger.read(|txn| {
            let table = txn.open_table(MODELS)?;
            let mut rounds = Vec::new();
            for item in table.iter()? {
                let (round, value) = item?;
                let round = round.value();
                ledger::decode::<ModelRecord>(&ledger::tag("model", round, ""), value.value())?;
                rounds.push(round);
            }
            complete("the table of models", rounds.len(), table.len()?)?;
            Ok(rounds)
        })
    }
}

impl Verified {
    /// The result, or a problem more.
    fn note<T>(&mut self, result: Result<T, StoreError>) -> Option<T> {
        result.map_err(|error| self.problems.push(error.to_string())).ok()
    }

    fn read_reports(&mut self, store: &DiskStore) {
        let Some(Reports { reports, damaged }) = self.note(store.all_reports()) else { return };
        self.reports = reports.len();
        for (round, report) in &reports {
            if let Err(wrong) = serde_json::from_str::<serde_json::Value>(report) {
                self.problems.push(format!("the report of round {round} is no JSON: {wrong}"));
            }
        }
        self.problems.extend(damaged.iter().map(|line| format!("line {line} of history.jsonl is no report")));
        let missing: Vec<u32> =
            (1..=self.committed.unwrap_or(0)).filter(|round| !reports.contains_key(round)).collect();
        if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
            let count = missing.len();
            self.problems
                .push(format!("{count} reports of rounds {first} to {last} are missing in history.jsonl"));
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

/// Durable before the ledger forgets them; a file that is there already is never overwritten.
fn set_aside(dir: &Path, from: u32, to: u32, reports: &BTreeMap<u32, String>) -> Result<PathBuf, StoreError> {
    let name = |number: u32| dir.join(format!("undone-{from:06}-to-{to:06}.{number}.jsonl"));
    let path = (0..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(u32::MAX));
    let wrap = |source| StoreError::Io { path: path.clone(), source };
    let mut file = common::files::private().write(true).create_new(true).open(&path).map_err(wrap)?;
    for report in reports.values() {
        writeln!(file, "{report}").map_err(wrap)?;
    }
    file.sync_all().map_err(wrap)?;
    spool::sync_dir(dir)?;
    Ok(path)
}
