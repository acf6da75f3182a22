//! A whole fleet in one thread: the real Coordinator, RoundWorker and Sessions, a store in memory, virtual
//! time, and a [link](crate::link) that may be bad. The same seed gives the same run.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use aggregator::{
    config::Config,
    run::{Run, Surroundings},
    store::Store,
    worker::Observer,
};
use client::{
    Profile, Session,
    data::{Part, Samples, Shard, VecShard, digits},
    session::HeapArena,
};
use common::{
    Budget, Code, DeviceId, Instant,
    privacy::Privacy,
    rng::{Rng, derive},
    transfer::LinkLimits,
};
use coordinator::{fleet::ConnId, report::RoundReport};
use strategies::tiered::TieredModel;

use crate::link::Faults;

mod disk;
mod world;

pub use world::{Side, World};

/// What happens to a fleet besides its link, at a time in milliseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Accident {
    /// The aggregator is killed and started again.
    Crash,
    /// It is killed when devices may have heard of a new model and the disk has not.
    CrashUncommitted,
    /// It is killed when updates are written and not durable.
    CrashUnsettled,
    /// A device is reset, and comes back with the memory of a tier.
    Reboot { device: usize, tier: usize },
    /// A device loses its link and is never heard of again.
    Vanish { device: usize },
    /// A device does nothing any more, and its link stays open: as with SIGSTOP, or killed.
    Stop { device: usize },
    /// It goes on where it was.
    Continue { device: usize },
    /// The operator revokes a device.
    Revoke { device: usize },
}

/// What a run is made of. The model depends on `config`, `devices` and `samples` only, as long as all
/// devices take part in all rounds.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: Config,
    pub devices: usize,
    /// Per device, a quarter of them for tests.
    pub samples: usize,
    pub limits: LinkLimits,
    pub faults: Faults,
    pub accidents: Vec<(u64, Accident)>,
    /// Milliseconds that a batch takes on each device; a few where none are given.
    pub batch_ms: Vec<u64>,
    /// Devices may fail, because they are told nonsense.
    pub may_fail: bool,
    /// Of the link's behaviour.
    pub seed: u64,
}

impl Setup {
    /// Five devices, one per tier, who all take part in every round.
    pub fn new(config: &str) -> Self {
        let mut config = Config::parse(config).unwrap();
        config.run.min_devices = 5;
        config.round.quorum = 1.0.into();
        config.round.deadline_s = 86_400.0.into();
        let limits = LinkLimits { chunk: 200, window: 800, timeout: common::Duration::from_millis(50) };
        Self {
            config,
            devices: 5,
            samples: 32,
            limits,
            faults: Faults::NONE,
            accidents: vec![],
            batch_ms: vec![],
            may_fail: false,
            seed: 0,
        }
    }

    /// The same run over a link that a seed makes bad.
    pub fn disturbed(&self, seed: u64) -> Self {
        let faults = Faults::drawn(&mut Rng::new(derive(seed, 1)));
        Self { faults, seed, ..self.clone() }
    }

    /// Runs to the end.
    pub fn run(&self) -> Outcome {
        let mut world = World::new(self);
        world.run();
        world.outcome()
    }
}

/// What a run leaves behind.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub parameters: Vec<f32>,
    pub reports: Vec<RoundReport>,
    /// What devices were told about their updates, in order, by device and round.
    pub answers: BTreeMap<(DeviceId, u32), Vec<Option<Code>>>,
    /// Complete updates that reached the aggregator, by device and round.
    pub arrived: BTreeMap<(DeviceId, u32, u8), u32>,
    /// What every device holds at the end.
    pub slices: Vec<Vec<f32>>,
    /// How long all of it took.
    pub millis: u64,
    pub losses: Losses,
}

/// What crashes of the aggregator have cost, and so have put to the test.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Crashes after devices may have heard of a new model and before the disk had.
    pub uncommitted: u32,
    /// Crashes after updates were written and before they were durable.
    pub unsettled: u32,
    /// Crashes with other work left to do for the worker.
    pub undone: u32,
}

impl std::ops::AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.uncommitted += other.uncommitted;
        self.unsettled += other.unsettled;
        self.undone += other.undone;
    }
}

struct Member {
    device: DeviceId,
    session: Session<HeapArena>,
    shard: VecShard,
    conn: Option<ConnId>,
    working: bool,
    done: bool,
    gone: bool,
    /// What waits until it goes on, if it is stopped.
    stopped: Option<Vec<world::Happening>>,
}

fn open(setup: &Setup, store: Box<dyn Store>, reports: &Arc<Mutex<Vec<RoundReport>>>, now: u64) -> Run {
    let seen = reports.clone();
    let observer: Observer = Box::new(move |report| seen.lock().unwrap().push(report.clone()));
    let (limits, now) = (setup.limits, Instant::from_millis(now));
    let around = Surroundings { store, limits, dir: None, observer: Some(observer), now };
    let mut run = Run::open(&strategies::Registry::standard(), &setup.config, around).unwrap();
    // As the server does: Sessions give signs of life.
    run.coordinator.heed_silence(now);
    run
}

/// A device whose memory holds exactly its tier.
fn member(setup: &Setup, model: &TieredModel, index: usize, tier: usize) -> Member {
    let device: DeviceId = format!("device-{index:02}").parse().unwrap();
    let shard = shard(index, setup.samples);
    let need = model.plans[tier % model.plans.len()].info.arena_bytes();
    let budget = Budget { ram: need, ..Budget::UNLIMITED };
    let profile = Profile {
        device: device.clone(),
        budget,
        data: shard.summary(),
        privacy: Privacy::simulated(index as u64),
    };
    let session = Session::new(profile, HeapArena::new(budget.ram));
    let (conn, working, done, gone, stopped) = (None, false, false, false, None);
    Member { device, session, shard, conn, working, done, gone, stopped }
}

/// Some of the built-in digits, others for every device.
pub fn shard(index: usize, samples: usize) -> VecShard {
    static DIGITS: OnceLock<Samples> = OnceLock::new();
    let digits = DIGITS.get_or_init(|| Samples::of(&digits::all(), Part::Train).unwrap());
    let first = index * samples;
    let chosen: Vec<u32> = (first..first + samples).map(|at| (at % digits.len()) as u32).collect();
    digits.select(&chosen).unwrap().split(0.25, index as u64).unwrap()
}
