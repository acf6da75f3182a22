//! A run in PostgreSQL and an object store, for a cluster of gateways of which one leads.
//!
//! ```text
//! PostgreSQL   who leads, run, devices, open round, receipts, reports, names and checksums of models
//! objects      segments/000007/..   updates of round 7, in the format of a spool
//!              models/000006-..     the model that round 6 gave
//! DIR          history.jsonl        reports, for commands that read them; segments/ is a cache
//! ```
//! Bytes come first, then the row that names them: an object that no row names is garbage. Every write is one statement that
//! shares the row of the lease and compares its epoch, so a gateway that leads no more cannot write. `commit` and all other
//! statements can be repeated after a lost answer ([`database`]).
//!
//! Only the leader has a `PostgresStore`, so it keeps the index in memory, as it read it when it took the lead.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{DeviceId, files, message::Ticket};
use ring::rand::{SecureRandom, SystemRandom};

use super::{
    BestModel, Entry, Options, RoundRecord, RunRecord, StoreError, UpdateHeader, history::History, model,
    spool::Spool,
};
use strategies::device::DeviceRecord;

mod admin;
mod database;
mod lease;
mod load;
mod objects;
mod options;
mod run;
mod schema;
mod sweep;

pub use admin::{ClusterDatabase, ClusterStatus};
use database::Database;
pub use lease::{Candidate, Lead};
use objects::Objects;
pub use options::PostgresOptions;

/// Bytes after which a segment is full, so that few updates are held in memory.
const SEGMENT: usize = 8 << 20;

/// What the database says of the run.
#[derive(Clone, Debug)]
struct Held {
    run: RunRecord,
    next_round: u32,
    attempt: u16,
    open: Option<RoundRecord>,
    strategy_state: Vec<u8>,
    best: Option<BestModel>,
    config: Option<String>,
    weights: u32,
    devices: BTreeMap<DeviceId, DeviceRecord>,
    models: BTreeMap<u32, HeldModel>,
    updates: BTreeMap<IndexKey, HeldUpdate>,
}

#[derive(Clone, Debug)]
struct HeldModel {
    object: String,
    bytes: u64,
    crc: u32,
    sha256: Vec<u8>,
}

/// An update, with the object that holds its record.
#[derive(Clone, Debug)]
struct HeldUpdate {
    entry: Entry,
    segment: String,
}

/// What identifies an update in the index.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct IndexKey {
    round: u32,
    exchange: u8,
    device: DeviceId,
}

impl IndexKey {
    fn of(header: &UpdateHeader) -> Self {
        let Ticket { round, exchange, .. } = header.ticket;
        Self { round, exchange, device: header.device.clone() }
    }
}

/// Updates that were put and are not settled.
#[derive(Debug, Default)]
struct Unsettled {
    updates: BTreeMap<IndexKey, HeldUpdate>,
    /// The segment that grows, and its bytes.
    growing: Option<(String, Vec<u8>)>,
    /// Segments that are in the object store, with their lengths.
    written: Vec<(String, usize)>,
}

/// See the module.
#[derive(Debug)]
pub struct PostgresStore {
    database: Database,
    objects: Objects,
    epoch: i64,
    options: Options,
    keep_dropped: Duration,
    /// Copies of segments.
    cache: PathBuf,
    history: History,
    held: Option<Held>,
    unsettled: Unsettled,
    swept: Option<Instant>,
}

impl PostgresStore {
    /// Opens the run of a cluster as its leader. `dir` is for the cache and the history of this gateway.
    pub fn open(
        lead: &Lead,
        cluster: &PostgresOptions,
        dir: &Path,
        options: Options,
    ) -> Result<Self, StoreError> {
        let cache = dir.join("segments");
        let failed = |source| StoreError::Io { path: cache.clone(), source };
        match fs::remove_dir_all(&cache) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        files::make_private_dir(&cache).map_err(failed)?;
        let patience = cluster.patience();
        let objects = Objects::open(lead.executor(), &cluster.objects, patience)?;
        let database = Database::new(lead.executor(), cluster.access(), patience, lead.ending());
        let mut store = Self {
            database,
            objects,
            epoch: lead.epoch(),
            options,
            keep_dropped: cluster.keep_dropped,
            cache,
            history: History::of(dir),
            held: None,
            unsettled: Unsettled::default(),
            swept: None,
        };
        store.reload()?;
        store.write_history()?;
        Ok(store)
    }

    fn held(&self) -> Result<&Held, StoreError> {
        self.held.as_ref().ok_or(StoreError::NotBegun)
    }

    fn held_mut(&mut self) -> Result<&mut Held, StoreError> {
        self.held.as_mut().ok_or(StoreError::NotBegun)
    }

    /// Puts the growing segment into the object store.
    fn finish_segment(&mut self) -> Result<(), StoreError> {
        let Some((name, bytes)) = self.unsettled.growing.take() else { return Ok(()) };
        let bytes = Bytes::from(bytes);
        self.objects.put(&name, &bytes)?;
        // The fold reads it soon. Without the copy it is fetched.
        let _ = fs::write(self.cached(&name), &bytes);
        self.unsettled.written.push((name, bytes.len()));
        Ok(())
    }

    /// The copy of a segment.
    fn cached(&self, segment: &str) -> PathBuf {
        self.cache.join(segment.rsplit('/').next().unwrap_or(segment))
    }

    /// Reads from the segment of an update. A copy that is damaged is fetched again.
    fn read_segment(
        &self,
        entry: &Entry,
        mut read: impl FnMut(&mut Spool) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let ticket = entry.header.ticket;
        let held = self.held()?;
        let update = held.updates.get(&IndexKey::of(&entry.header)).filter(|held| held.entry == *entry);
        let open = held.open.as_ref().map(|open| open.round);
        let HeldUpdate { segment, .. } = update.ok_or(StoreError::WrongRound { open, got: ticket.round })?;
        let path = self.cached(segment);
        if let Ok(mut copy) = Spool::of_file(path.clone(), ticket.round)
            && read(&mut copy).is_ok()
        {
            return Ok(());
        }
        let failed = |source| StoreError::Io { path: path.clone(), source };
        let bytes = self.objects.get(segment)?;
        files::AtomicFile::create(&path, files::Secrecy::Secret)
            .and_then(|file| file.commit_unsynced(&bytes))
            .map_err(failed)?;
        let mut copy = Spool::of_file(path.clone(), ticket.round).map_err(failed)?;
        read(&mut copy).map_err(|error| match error {
            StoreError::Damaged { what, .. } => {
                StoreError::Cluster { what: format!("{}: {what}", self.objects.describe(segment)) }
            }
            other => other,
        })
    }

    /// Writes a model under a new name.
    fn write_model(&self, round: u32, parameters: &[f32]) -> Result<HeldModel, StoreError> {
        let bytes = Bytes::from(model::encode(parameters));
        let object = format!("models/{round:06}-{}", unique()?);
        self.objects.put(&object, &bytes)?;
        let sha256 = ring::digest::digest(&ring::digest::SHA256, &bytes).as_ref().to_vec();
        Ok(HeldModel { object, bytes: bytes.len() as u64, crc: common::wire::crc32(&bytes), sha256 })
    }

    fn read_model(&self, held: &HeldModel) -> Result<Vec<f32>, StoreError> {
        let bytes = self.objects.get(&held.object)?;
        let sha256 = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let whole = bytes.len() as u64 == held.bytes && sha256.as_ref() == held.sha256;
        let parameters = if whole { model::decode(&bytes) } else { None };
        parameters.ok_or_else(|| StoreError::Cluster {
            what: format!("{} is not the model that the database names", self.objects.describe(&held.object)),
        })
    }

    /// Writes the reports for commands that read files.
    fn write_history(&self) -> Result<(), StoreError> {
        let reports = self.reports(0)?;
        // Lines of a run that has gone, or of rounds that another gateway has led.
        match fs::remove_file(self.history.live()) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::Io { path: self.history.live(), source });
            }
            _ => {}
        }
        self.history.rewrite(1, 0, reports.into_iter().map(|(_, report)| Some(report)))
    }
}

/// A name that no other object has.
fn unique() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| StoreError::Cluster { what: "the system gives no random numbers".to_owned() })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
