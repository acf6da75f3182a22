//! A store that forgets, for simulations and tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    ops::Range,
};

use common::DeviceId;

use super::{
    Commit, Entry, Header, Kept, ModelMark, OpenRound, RoundRecord, RunRecord, Saved, Store, StoreError,
    UpdateRecord,
    shelf::{Place, Shelf},
};
use strategies::device::DeviceRecord;

/// Round, exchange and device.
type Key = (u32, u8, DeviceId);

/// Same behaviour as [`super::DiskStore`], without a disk: loading it again is coming back after a crash.
#[derive(Debug, Default)]
pub struct MemoryStore {
    run: Option<RunRecord>,
    next_round: u32,
    attempt: u16,
    models: BTreeMap<u32, Vec<f32>>,
    strategy_state: Vec<u8>,
    devices: BTreeMap<DeviceId, DeviceRecord>,
    open: Option<RoundRecord>,
    /// By round, exchange and device.
    updates: BTreeMap<Key, (Entry, Place)>,
    /// Of these, those that a crash would lose.
    unsettled: BTreeSet<Key>,
    payloads: Shelf,
    reports: BTreeMap<u32, String>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps payloads beyond `limit` bytes in a file, which nobody needs afterwards: memory then does not grow with
    /// the number of devices.
    pub fn with_overflow(file: File, limit: usize) -> Self {
        Self { payloads: Shelf::with_overflow(file, limit), ..Self::default() }
    }

    fn run(&self) -> Result<&RunRecord, StoreError> {
        self.run.as_ref().ok_or(StoreError::NotBegun)
    }

    /// Where the payload of an update is.
    fn place(&self, entry: &Entry) -> Result<&Place, StoreError> {
        let ticket = entry.header.ticket;
        let open = self.open.as_ref().map(|round| round.number);
        let kept = self.updates.get(&key(&entry.header)).filter(|(kept, _)| kept.header.ticket == ticket);
        kept.map(|(_, place)| place).ok_or(StoreError::WrongRound { open, got: ticket.round })
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
        Ok(())
    }

    fn load(&mut self, model: &ModelMark) -> Result<Option<Saved>, StoreError> {
        let Some(run) = self.run.clone() else { return Ok(None) };
        run.model.expect(model)?;
        for key in std::mem::take(&mut self.unsettled) {
            if let Some((_, place)) = self.updates.remove(&key) {
                self.payloads.remove(place);
            }
        }
        Ok(Some(Saved {
            run,
            next_round: self.next_round,
            attempt: self.attempt,
            parameters: self.models.values().next_back().cloned().unwrap_or_default(),
            strategy_state: self.strategy_state.clone(),
            devices: self.devices.values().cloned().collect(),
            open: match self.open.clone() {
                Some(record) => {
                    Some(OpenRound { updates: self.updates(record.number, record.exchange())?, record })
                }
                None => None,
            },
        }))
    }

    fn register(&mut self, device: &DeviceRecord) -> Result<(), StoreError> {
        self.devices.insert(device.device.clone(), device.clone());
        Ok(())
    }

    fn open_round(&mut self, round: &RoundRecord) -> Result<(), StoreError> {
        self.run()?;
        if round.number != self.next_round {
            return Err(StoreError::NotNext { next: self.next_round, got: round.number });
        }
        self.attempt = round.attempt;
        self.open = Some(round.clone());
        Ok(())
    }

    fn put(&mut self, update: &UpdateRecord<'_>) -> Result<Kept, StoreError> {
        let run = self.run()?.run;
        update.check(run, self.open.as_ref().map(|round| round.number))?;
        let key = key(&update.header);
        if self.updates.contains_key(&key) {
            return Ok(Kept::Known);
        }
        let len = u32::try_from(update.payload.len()).map_err(|_| StoreError::TooLong)?;
        let entry = Entry { header: update.header.clone(), offset: 0, len, crc: 0 };
        self.updates.insert(key.clone(), (entry, self.payloads.put(update.payload)?));
        self.unsettled.insert(key);
        Ok(Kept::New)
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        self.unsettled.clear();
        Ok(())
    }

    fn updates(&self, round: u32, exchange: u8) -> Result<Vec<Entry>, StoreError> {
        let of_stage = self.updates.iter().filter(|((of, at, _), _)| (*of, *at) == (round, exchange));
        let settled = of_stage.filter(|(key, _)| !self.unsettled.contains(*key));
        Ok(settled.map(|(_, (entry, _))| entry.clone()).collect())
    }

    fn past(&self, before: u32) -> Result<Vec<Entry>, StoreError> {
        let old = self.updates.iter().filter(|((round, ..), _)| *round < before);
        let mut entries: Vec<Entry> = old.map(|(_, (entry, _))| entry.clone()).collect();
        let newest = super::kept(&entries, usize::MAX);
        entries.retain(|Entry { header, .. }| newest.contains(&(header.ticket, header.device.clone())));
        entries.sort_by(|a, b| a.header.device.cmp(&b.header.device));
        Ok(entries)
    }

    fn read_into(&mut self, entry: &Entry, payload: &mut [u8]) -> Result<(), StoreError> {
        self.payloads.fill(self.place(entry)?, 0, payload)
    }

    fn read_part(
        &mut self,
        entry: &Entry,
        range: Range<usize>,
        payload: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let end = range.end.min(entry.payload_len());
        payload.resize(end.saturating_sub(range.start), 0);
        self.payloads.fill(self.place(entry)?, range.start, payload)
    }

    fn commit_round(&mut self, commit: &Commit<'_>) -> Result<(), StoreError> {
        self.run()?.model.expect_len(commit.parameters)?;
        let open = self.open.as_ref().map(|round| round.number);
        if open != Some(commit.round) {
            return Err(StoreError::WrongRound { open, got: commit.round });
        }
        self.models.insert(commit.round, commit.parameters.to_vec());
        while self.models.len() > super::disk::DEFAULT_KEEP_MODELS {
            self.models.pop_first();
        }
        self.strategy_state = commit.strategy_state.to_vec();
        self.reports.insert(commit.round, commit.report.to_owned());
        let entries: Vec<Entry> = self.updates.values().map(|(entry, _)| entry.clone()).collect();
        let kept = super::kept(&entries, commit.history);
        let over = |_: &_, (entry, _): &mut (Entry, Place)| {
            !kept.contains(&(entry.header.ticket, entry.header.device.clone()))
        };
        for (_, (_, place)) in self.updates.extract_if(.., over) {
            self.payloads.remove(place);
        }
        self.open = None;
        self.next_round = commit.round + 1;
        Ok(())
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

fn key(header: &Header) -> Key {
    (header.ticket.round, header.ticket.exchange, header.device.clone())
}
