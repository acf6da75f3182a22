//! A store in memory, for simulations and tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    ops::Range,
};

use common::{DeviceId, message::Ticket};

use super::{
    BestModel, Commit, Entry, KeptModel, ModelFingerprint, OpenRound, PutOutcome, RoundRecord, RunRecord,
    SavedRun, Store, StoreError, UpdateHeader, UpdateName, UpdateRecord,
    payload_pool::{PayloadPool, PayloadSlot},
};
use strategies::device::DeviceRecord;

/// What identifies an update in the index.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct IndexKey {
    round: u32,
    exchange: u8,
    device: DeviceId,
}

#[derive(Debug)]
struct HeldUpdate {
    entry: Entry,
    slot: PayloadSlot,
}

/// Behaves like [`super::DiskStore`], without a disk: loading it again is a restart after a crash.
#[derive(Debug, Default)]
pub struct MemoryStore {
    run: Option<RunRecord>,
    next_round: u32,
    attempt: u16,
    models: BTreeMap<u32, Vec<f32>>,
    strategy_state: Vec<u8>,
    devices: BTreeMap<DeviceId, DeviceRecord>,
    open: Option<RoundRecord>,
    updates: BTreeMap<IndexKey, HeldUpdate>,
    /// Updates that a crash would lose.
    unsettled: BTreeSet<IndexKey>,
    payloads: PayloadPool,
    reports: BTreeMap<u32, String>,
    best: Option<BestModel>,
    config: Option<String>,
    weights: Option<u32>,
}

impl MemoryStore {
    /// Without a run, and with all payloads in memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps payloads beyond `limit` bytes in a temporary file, so that memory does not grow with the number of devices.
    pub fn with_overflow(file: File, limit: usize) -> Self {
        Self { payloads: PayloadPool::with_overflow(file, limit), ..Self::default() }
    }

    fn run(&self) -> Result<&RunRecord, StoreError> {
        self.run.as_ref().ok_or(StoreError::NotBegun)
    }

    /// Keeps the last models, the best one and one that is spared.
    fn forget_models(&mut self, committed: u32, spared: Option<u32>) {
        let oldest = committed.saturating_add(1).saturating_sub(super::disk::DEFAULT_KEEP_MODELS as u32);
        let kept = [self.best.as_ref().map(|best| best.round), spared];
        self.models.retain(|&round, _| round >= oldest || kept.contains(&Some(round)));
    }

    /// Where the payload of an update is.
    fn slot(&self, entry: &Entry) -> Result<&PayloadSlot, StoreError> {
        let ticket = entry.header.ticket;
        let open = self.open.as_ref().map(|open| open.round);
        let kept = self.updates.get(&key(&entry.header)).filter(|kept| kept.entry.header.ticket == ticket);
        kept.map(|kept| &kept.slot).ok_or(StoreError::WrongRound { open, got: ticket.round })
    }
}

impl Store for MemoryStore {
    fn begin_run(&mut self, run: &RunRecord, parameters: &[f32]) -> Result<(), StoreError> {
        if self.run.is_some() {
            return Err(StoreError::AlreadyBegun);
        }
        run.model.expect_len(parameters)?;
        self.run = Some(run.clone());
        self.next_round = 1;
        self.models.insert(0, parameters.to_vec());
        self.weights = Some(super::weights_digest(parameters));
        Ok(())
    }

    fn load(&mut self, model: &ModelFingerprint) -> Result<Option<SavedRun>, StoreError> {
        let Some(run) = self.run.clone() else { return Ok(None) };
        run.model.expect(model)?;
        for key in std::mem::take(&mut self.unsettled) {
            if let Some(lost) = self.updates.remove(&key) {
                self.payloads.remove(lost.slot);
            }
        }
        Ok(Some(SavedRun {
            run,
            next_round: self.next_round,
            attempt: self.attempt,
            parameters: self.models.values().next_back().cloned().ok_or(StoreError::NotBegun)?,
            strategy_state: self.strategy_state.clone(),
            devices: self.devices.values().cloned().collect(),
            open: match self.open.clone() {
                Some(record) => Some(OpenRound {
                    updates: self.updates(record.round, record.open_exchange().exchange)?,
                    record,
                }),
                None => None,
            },
            best: self.best.clone(),
            config: self.config.clone(),
            weights: self.weights,
        }))
    }

    fn register(&mut self, devices: &[DeviceRecord]) -> Result<(), StoreError> {
        self.devices.extend(devices.iter().map(|device| (device.device.clone(), device.clone())));
        Ok(())
    }

    fn open_round(&mut self, open: &RoundRecord) -> Result<(), StoreError> {
        self.run()?;
        if open.round != self.next_round {
            return Err(StoreError::NotNext { next: self.next_round, got: open.round });
        }
        self.attempt = open.attempt;
        self.open = Some(open.clone());
        Ok(())
    }

    fn put(&mut self, update: &UpdateRecord<'_>) -> Result<PutOutcome, StoreError> {
        let run = self.run()?.run;
        update.check(run, self.open.as_ref().map(|open| open.round))?;
        let key = key(&update.header);
        if self.updates.contains_key(&key) {
            return Ok(PutOutcome::Duplicate);
        }
        let len = u32::try_from(update.payload.len()).map_err(|_| StoreError::TooLong)?;
        let entry = Entry { header: update.header.clone(), offset: 0, len, crc: 0 };
        let slot = self.payloads.put(update.payload)?;
        self.updates.insert(key.clone(), HeldUpdate { entry, slot });
        self.unsettled.insert(key);
        Ok(PutOutcome::New)
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        self.unsettled.clear();
        Ok(())
    }

    fn updates(&self, round: u32, exchange: u8) -> Result<Vec<Entry>, StoreError> {
        let of_exchange =
            self.updates.iter().filter(|(key, _)| (key.round, key.exchange) == (round, exchange));
        let settled = of_exchange.filter(|(key, _)| !self.unsettled.contains(*key));
        Ok(settled.map(|(_, held)| held.entry.clone()).collect())
    }

    fn past(&self, before: u32) -> Result<Vec<Entry>, StoreError> {
        let old = self.updates.iter().filter(|(key, _)| key.round < before);
        let mut entries: Vec<Entry> = old.map(|(_, held)| held.entry.clone()).collect();
        let newest = super::kept(&entries, usize::MAX);
        entries.retain(|entry| newest.contains(&UpdateName::of(entry)));
        entries.sort_by(|a, b| a.header.device.cmp(&b.header.device));
        Ok(entries)
    }

    fn read_into(&mut self, entry: &Entry, payload: &mut [u8]) -> Result<(), StoreError> {
        self.payloads.fill(self.slot(entry)?, 0, payload)
    }

    fn read_part(
        &mut self,
        entry: &Entry,
        range: Range<usize>,
        payload: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let end = range.end.min(entry.payload_len());
        payload.resize(end.saturating_sub(range.start), 0);
        self.payloads.fill(self.slot(entry)?, range.start, payload)
    }

    fn commit_round(&mut self, commit: &Commit<'_>) -> Result<(), StoreError> {
        self.run()?.model.expect_len(commit.parameters)?;
        let open = self.open.as_ref().map(|open| open.round);
        if open != Some(commit.round) {
            return Err(StoreError::WrongRound { open, got: commit.round });
        }
        self.models.insert(commit.round, commit.parameters.to_vec());
        self.best = commit.best.cloned();
        self.forget_models(commit.round, commit.spared);
        if let Some(config) = commit.config {
            self.config = Some(config.to_owned());
        }
        self.strategy_state = commit.strategy_state.to_vec();
        self.reports.insert(commit.round, commit.report.to_owned());
        let entries: Vec<Entry> = self.updates.values().map(|held| held.entry.clone()).collect();
        let kept = super::kept(&entries, commit.history);
        let over = |_: &_, held: &mut HeldUpdate| !kept.contains(&UpdateName::of(&held.entry));
        for (_, dropped) in self.updates.extract_if(.., over) {
            self.payloads.remove(dropped.slot);
        }
        self.open = None;
        self.next_round = commit.round + 1;
        Ok(())
    }

    fn set_best(&mut self, best: &BestModel) -> Result<(), StoreError> {
        self.run()?;
        self.best = Some(best.clone());
        self.forget_models(self.next_round.saturating_sub(1), None);
        Ok(())
    }

    fn kept_models(&self) -> Result<Vec<KeptModel>, StoreError> {
        let kept = |(&round, parameters): (&u32, &Vec<f32>)| KeptModel {
            round,
            crc: super::weights_digest(parameters),
        };
        Ok(self.models.iter().map(kept).collect())
    }

    fn parameters(&self, round: u32) -> Result<Option<Vec<f32>>, StoreError> {
        Ok(self.models.get(&round).cloned())
    }

    fn report(&self, round: u32) -> Result<Option<String>, StoreError> {
        Ok(self.reports.get(&round).cloned())
    }

    fn history(&self) -> Result<Vec<(u32, String)>, StoreError> {
        Ok(self.reports.iter().map(|(&round, report)| (round, report.clone())).collect())
    }
}

fn key(header: &UpdateHeader) -> IndexKey {
    let Ticket { round, exchange, .. } = header.ticket;
    IndexKey { round, exchange, device: header.device.clone() }
}
