//! What must survive `kill -9`: the run, its devices, the open round with its updates, the model.
//!
//! A [`Store`] is told facts in the order they happen and gives them back after a restart. When a method
//! returns, what it was told is durable.
//!
//! ```text
//! load / begin_run -> [ open_round -> append .. -> updates, read .. -> commit_round ] .. -> history
//!                       (open_round .. append once for every exchange of the round)
//! ```
//! [`DiskStore`] keeps everything in one directory; [`MemoryStore`] is for simulations and forgets.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use common::{Code, DeviceId, RunId, message::Ticket};
use serde::{Deserialize, Serialize};

pub use coordinator::record::{DeviceInTier, ExchangeRecord, RoundRecord, UpdateHeader};
use strategies::{device::DeviceRecord, strategy::Kind};

mod cow_file;
mod disk;
mod entry;
mod error;
mod history;
mod ledger;
mod memory;
mod migrate;
mod model;
mod payload_pool;
mod spool;
mod spooled_updates;
mod verify;

pub use disk::{DiskStore, Options};
pub use entry::Entry;
pub use error::StoreError;
pub(crate) use error::is_full;
pub use history::{FaultReason, LineFault, LineFaults, Report, ReportReader, Reports};
pub use memory::MemoryStore;
pub use spooled_updates::SpooledUpdates;
pub use verify::{RolledBack, VerifyReport};

/// The state of one run.
pub trait Store: Send {
    /// Starts a run with round 1 to come. Refused if the store already holds one.
    fn begin_run(&mut self, run: &RunRecord, parameters: &[f32]) -> Result<(), StoreError>;

    /// What a run left behind; `None` if no run has begun. Refused if `model` is another one.
    fn load(&mut self, model: &ModelFingerprint) -> Result<Option<SavedRun>, StoreError>;

    /// Adds or replaces a device.
    fn register(&mut self, device: &DeviceRecord) -> Result<(), StoreError>;

    /// Opens the next round, or the next exchange of the open one; its updates stay.
    fn open_round(&mut self, round: &RoundRecord) -> Result<(), StoreError>;

    /// Takes an update of the open round. It counts, and is durable, after the next [`Store::settle`]. Says whether it
    /// is new: the first update of a device in an exchange stays, so a repeated one does no harm.
    fn put(&mut self, update: &UpdateRecord<'_>) -> Result<PutOutcome, StoreError>;

    /// Makes everything durable that was put since, in one commit. On an error none of it counts.
    fn settle(&mut self) -> Result<(), StoreError>;

    /// The updates of an exchange, in DeviceId order.
    fn updates(&self, round: u32, exchange: u8) -> Result<Vec<Entry>, StoreError>;

    /// The last update of every device from rounds before this one, as far as commits have kept them; in
    /// DeviceId order.
    fn past(&self, before: u32) -> Result<Vec<Entry>, StoreError>;

    /// Reads the payload of an update into room of its length; fails unless it is what was put.
    fn read_into(&mut self, entry: &Entry, payload: &mut [u8]) -> Result<(), StoreError>;

    /// The same, replacing `payload`.
    fn read(&mut self, entry: &Entry, payload: &mut Vec<u8>) -> Result<(), StoreError> {
        payload.resize(entry.payload_len(), 0);
        self.read_into(entry, payload)
    }

    /// Reads these bytes of the payload alone, replacing `payload`. What lies beyond its end is left
    /// out. They are not checked: read the whole update once before.
    fn read_part(
        &mut self,
        entry: &Entry,
        bytes: Range<usize>,
        payload: &mut Vec<u8>,
    ) -> Result<(), StoreError>;

    /// Closes the open round with its result, all or nothing.
    fn commit_round(&mut self, commit: &Commit<'_>) -> Result<(), StoreError>;

    /// The model after a round (0: the initial one), if it is still kept.
    fn parameters(&self, round: u32) -> Result<Option<Vec<f32>>, StoreError>;

    /// The report of a closed round, if it is at hand; that of the last one is.
    fn report(&self, round: u32) -> Result<Option<String>, StoreError>;

    /// Report of every closed round, ascending; all of them in memory. [`ReportReader`] reads one after another.
    fn history(&self) -> Result<Vec<(u32, String)>, StoreError>;
}

/// What tells one model under its tiers from another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModelFingerprint {
    /// Checksum of the model's structure.
    pub digest: u32,
    /// Parameters of the whole model.
    pub parameters: u64,
    /// Parameters of each tier's slice.
    pub tiers: Vec<u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    pub run: RunId,
    pub model: ModelFingerprint,
    /// The configuration as it was, for people and for checks on restart.
    pub config: String,
}

/// An update on its way into the store.
#[derive(Clone, PartialEq, Debug)]
pub struct UpdateRecord<'a> {
    pub header: UpdateHeader,
    /// As received, encoded.
    pub payload: &'a [u8],
}

/// What became of an update that was put.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    New,
    /// The round already has an update of this device; this one was not stored.
    Duplicate,
}

/// The result of a round.
#[derive(Copy, Clone, Debug)]
pub struct Commit<'a> {
    pub round: u32,
    pub parameters: &'a [f32],
    pub strategy_state: &'a [u8],
    /// JSON.
    pub report: &'a str,
    /// Of how many devices the last update is kept beyond the round, the latest first.
    pub history: usize,
}

/// What a run left behind.
#[derive(Clone, PartialEq, Debug)]
pub struct SavedRun {
    pub run: RunRecord,
    /// The round that is open, or the one to open next.
    pub next_round: u32,
    /// The last one that was used in tickets.
    pub attempt: u16,
    /// The model before that round.
    pub parameters: Vec<f32>,
    pub strategy_state: Vec<u8>,
    /// In DeviceId order.
    pub devices: Vec<DeviceRecord>,
    pub open: Option<OpenRound>,
}

/// A round that was interrupted.
#[derive(Clone, PartialEq, Debug)]
pub struct OpenRound {
    pub record: RoundRecord,
    /// Of the exchange that is open, in DeviceId order.
    pub updates: Vec<Entry>,
}

/// What tells an update from all others of a run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct UpdateName {
    ticket: Ticket,
    device: DeviceId,
}

impl UpdateName {
    fn of(entry: &Entry) -> Self {
        Self { ticket: entry.header.ticket, device: entry.header.device.clone() }
    }
}

/// Those whose updates stay after a commit: the latest of each device, of at most `history` devices.
fn kept(entries: &[Entry], history: usize) -> BTreeSet<UpdateName> {
    let mut last = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.header.kind == Kind::Train) {
        let UpdateHeader { ticket, device, .. } = &entry.header;
        let newest = last.entry(device).or_insert(*ticket);
        *newest = (*newest).max(*ticket);
    }
    let mut kept: Vec<_> = last.into_iter().map(|(device, ticket)| (ticket.round, device, ticket)).collect();
    kept.sort_unstable_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
    kept.truncate(history);
    kept.into_iter().map(|(_, device, ticket)| UpdateName { ticket, device: device.clone() }).collect()
}

impl UpdateRecord<'_> {
    /// An update may only go into the open round of the run.
    fn check(&self, run: RunId, open: Option<u32>) -> Result<(), StoreError> {
        let ticket = self.header.ticket;
        if ticket.run != run || open != Some(ticket.round) {
            return Err(StoreError::WrongRound { open, got: ticket.round });
        }
        Ok(())
    }
}

impl ModelFingerprint {
    fn expect_len(&self, parameters: &[f32]) -> Result<(), StoreError> {
        match parameters.len() {
            got if got as u64 == self.parameters => Ok(()),
            got => Err(StoreError::WrongLength { expected: self.parameters, got }),
        }
    }

    /// Refuses another model than the one a run began with.
    fn expect(&self, given: &Self) -> Result<(), StoreError> {
        if self == given {
            Ok(())
        } else {
            Err(StoreError::OtherModel { stored: self.clone(), given: given.clone() })
        }
    }
}

impl StoreError {
    /// What a peer is told.
    pub fn code(&self) -> Code {
        match self {
            Self::Damaged { .. } => Code::StoreDamaged,
            Self::WrongRound { .. } => Code::WrongRound,
            Self::OtherModel { .. } => Code::WrongModel,
            _ => Code::StoreFailed,
        }
    }
}

#[cfg(test)]
mod tests;
