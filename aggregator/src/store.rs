//! What must survive `kill -9`: the run, its devices, the open round with its updates, the model.
//!
//! A [`Store`] records facts in the order they happen and returns them after a restart. When a method returns, its facts are
//! durable; only updates wait for [`Store::settle`].
//!
//! ```text
//! load / begin_run -> [ open_round -> append .. -> updates, read .. -> commit_round ] .. -> history
//!                       (open_round .. append once for every exchange of the round)
//! ```
//! [`DiskStore`] keeps everything in one directory; [`MemoryStore`] is for simulations and keeps nothing on disk. With the
//! feature `cluster`, `PostgresStore` keeps a run in PostgreSQL and an object store, for gateways that replace each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use common::{Code, DeviceId, RunId, message::Ticket, wire::crc32};
use serde::{Deserialize, Serialize};

pub use coordinator::record::{BestModel, DeviceInTier, ExchangeRecord, RoundRecord, UpdateHeader};
use strategies::{device::DeviceRecord, strategy::Kind};

mod cow_file;
mod disk;
mod entry;
mod error;
mod extras;
mod history;
mod ledger;
mod memory;
mod migrate;
mod model;
mod payload_pool;
#[cfg(feature = "cluster")]
mod postgres;
mod snapshot;
mod spool;
mod spooled_updates;
mod verify;

pub use disk::{DiskStore, Options};
pub use entry::Entry;
pub use error::StoreError;
pub(crate) use error::is_full;
pub use history::Reports;
pub(crate) use history::write_history;
pub(crate) use history::{LineFaults, Report, ReportReader};
pub(crate) use ledger::FILE as LEDGER;
pub use memory::MemoryStore;
#[cfg(feature = "cluster")]
pub use postgres::{Candidate, ClusterDatabase, ClusterStatus, Lead, PostgresOptions, PostgresStore};
pub use snapshot::{RunInSnapshot, Snapshot, SnapshotFile};
pub(crate) use spooled_updates::SpooledUpdates;
pub(crate) use verify::RolledBack;
pub use verify::{KeptList, VerifyReport};

/// The state of one run.
pub trait Store: Send {
    /// Starts a run whose next round is 1. Fails if the store already holds a run.
    fn begin_run(&mut self, run: &RunRecord, parameters: &[f32]) -> Result<(), StoreError>;

    /// The stored run; `None` if no run has begun. Fails if `model` is not the model of the run.
    fn load(&mut self, model: &ModelFingerprint) -> Result<Option<SavedRun>, StoreError>;

    /// Adds or replaces devices, in one commit: all of them or none.
    fn register(&mut self, devices: &[DeviceRecord]) -> Result<(), StoreError>;

    /// Opens the next round, or the next exchange of the open one; its updates stay.
    fn open_round(&mut self, round: &RoundRecord) -> Result<(), StoreError>;

    /// Takes an update of the open round. It counts, and is durable, after the next [`Store::settle`]. Returns whether it is
    /// new: the first update of a device in an exchange stays, a repeated one is ignored.
    fn put(&mut self, update: &UpdateRecord<'_>) -> Result<PutOutcome, StoreError>;

    /// Makes all updates durable that were put since the last call, in one commit. On an error none of them counts.
    fn settle(&mut self) -> Result<(), StoreError>;

    /// The updates of an exchange, in DeviceId order.
    fn updates(&self, round: u32, exchange: u8) -> Result<Vec<Entry>, StoreError>;

    /// The last update of every device from rounds before this one, as far as commits have kept them; in
    /// DeviceId order.
    fn past(&self, before: u32) -> Result<Vec<Entry>, StoreError>;

    /// Reads the payload of an update into a buffer of its length; fails if it does not match its checksum.
    fn read_into(&mut self, entry: &Entry, payload: &mut [u8]) -> Result<(), StoreError>;

    /// The same, replacing `payload`.
    fn read(&mut self, entry: &Entry, payload: &mut Vec<u8>) -> Result<(), StoreError> {
        payload.resize(entry.payload_len(), 0);
        self.read_into(entry, payload)
    }

    /// Reads only these bytes of the payload, replacing `payload`. Bytes beyond its end are left out. They are not checked:
    /// read the whole update once before.
    fn read_part(
        &mut self,
        entry: &Entry,
        bytes: Range<usize>,
        payload: &mut Vec<u8>,
    ) -> Result<(), StoreError>;

    /// Closes the open round with its result, as a whole or not at all.
    fn commit_round(&mut self, commit: &Commit<'_>) -> Result<(), StoreError>;

    /// Another model is the best one, without a commit: the final one, once it has its scores.
    fn set_best(&mut self, best: &BestModel) -> Result<(), StoreError>;

    /// Rounds whose models are kept, ascending, with the checksums of their files.
    fn kept_models(&self) -> Result<Vec<KeptModel>, StoreError>;

    /// The model after a round (0: the initial one), if it is still kept.
    fn parameters(&self, round: u32) -> Result<Option<Vec<f32>>, StoreError>;

    /// The report of a closed round, if the store still has it; it has the last one.
    fn report(&self, round: u32) -> Result<Option<String>, StoreError>;

    /// The reports of all closed rounds, ascending, in memory. `fairtier gateway history` reads one after another.
    fn history(&self) -> Result<Vec<(u32, String)>, StoreError>;

    /// A view of the present state that stays the same. `None` for stores that keep nothing on disk.
    fn snapshot(&self) -> Result<Option<Snapshot>, StoreError> {
        Ok(None)
    }
}

/// What identifies a model and its tiers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModelFingerprint {
    /// Checksum of the model's structure.
    pub digest: u32,
    /// Parameters of the whole model.
    pub parameters: u64,
    /// Parameters of each tier's slice.
    pub tiers: Vec<u64>,
}

/// What is stored once, when a run begins.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// Drawn at random. Tickets of another run are refused.
    pub run: RunId,
    /// Loading fails with [`StoreError::OtherModel`] if the configuration now describes another model.
    pub model: ModelFingerprint,
    /// The configuration at the start of the run, for users and for checks on restart.
    pub config: String,
}

/// A model that the store keeps.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptModel {
    /// The round that it is the result of; 0 is the initial model.
    pub round: u32,
    /// Of its parameters as little-endian `f32`.
    pub crc: u32,
}

/// The checksum that tells models of one structure apart.
pub fn weights_digest(parameters: &[f32]) -> u32 {
    crc32(&model::encode(parameters))
}

/// An update to be stored.
#[derive(Clone, PartialEq, Debug)]
pub struct UpdateRecord<'a> {
    /// Its name, sender and scalars.
    pub header: UpdateHeader,
    /// As received, encoded.
    pub payload: &'a [u8],
}

/// The result of [`Store::put`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// Stored; durable after [`Store::settle`].
    New,
    /// The round already has an update of this device; this one was not stored.
    Duplicate,
}

/// The result of a round.
#[derive(Copy, Clone, Debug, Default)]
pub struct Commit<'a> {
    /// The open round; any other one is refused.
    pub round: u32,
    /// The model after the round, whole.
    pub parameters: &'a [f32],
    /// Bytes of strategy and guard, which the next round starts with.
    pub strategy_state: &'a [u8],
    /// JSON.
    pub report: &'a str,
    /// Number of devices whose last update is kept after the round, the latest first.
    pub history: usize,
    /// The best model so far, which stays kept. It may be that of the round before, not this round's.
    pub best: Option<&'a BestModel>,
    /// The configuration of the round as TOML, if it is not that of the round before.
    pub config: Option<&'a str>,
    /// The round of an older model that is not dropped with this commit, if it is still kept.
    pub spared: Option<u32>,
}

/// The stored state of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct SavedRun {
    /// As [`Store::begin_run`] was given it.
    pub run: RunRecord,
    /// The round that is open, or the one to open next.
    pub next_round: u32,
    /// The last attempt that was used in tickets.
    pub attempt: u16,
    /// The model before that round.
    pub parameters: Vec<f32>,
    /// Of the last commit; empty before the first one and after a rollback.
    pub strategy_state: Vec<u8>,
    /// In DeviceId order.
    pub devices: Vec<DeviceRecord>,
    /// The round that was open, with its stored updates.
    pub open: Option<OpenRound>,
    /// The best model so far.
    pub best: Option<BestModel>,
    /// The configuration of the last committed round, if it is known.
    pub config: Option<String>,
    /// [`weights_digest`] of the parameters that the run began with, if it is known.
    pub weights: Option<u32>,
}

/// A round that was interrupted.
#[derive(Clone, PartialEq, Debug)]
pub struct OpenRound {
    /// Its last exchange, as devices were told.
    pub record: RoundRecord,
    /// Of the exchange that is open, in DeviceId order.
    pub updates: Vec<Entry>,
}

/// What identifies an update in a run.
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

/// The updates that stay after a commit: the latest of each device, of at most `history` devices.
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
    /// Checks that an update belongs to the open round of the run.
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

    /// Fails if a model is not the one the run began with.
    fn expect(&self, given: &Self) -> Result<(), StoreError> {
        if self == given {
            Ok(())
        } else {
            Err(StoreError::OtherModel { stored: self.clone(), given: given.clone() })
        }
    }
}

impl StoreError {
    /// The code that a peer is sent.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Damaged { .. } => Code::StoreDamaged,
            Self::WrongRound { .. } => Code::WrongRound,
            Self::OtherModel { .. } => Code::WrongModel,
            Self::Fenced | Self::Away { .. } => Code::NotReady,
            _ => Code::StoreFailed,
        }
    }
}

#[cfg(test)]
mod tests;
