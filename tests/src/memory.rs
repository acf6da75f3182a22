//! A whole fleet in one thread: the real Coordinator, RoundWorker and Sessions, a store in memory, virtual
//! time, and a [link](crate::link) with faults. The same seed gives the same run.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use aggregator::{
    config::Config,
    run::{Run, RunEnvironment},
    store::Store,
    worker::Observer,
};
use client::{
    Profile, Session,
    data::{DataSplit, Samples, Shard, VecShard, digits},
    session::HeapArena,
};
use common::{
    Budget, Code, DeviceId, ExchangeId, Instant,
    privacy::Privacy,
    rng::{Rng, derive},
    transfer::LinkLimits,
};
use coordinator::{fleet::ConnId, report::RoundReport};
use strategies::tiered::TieredModel;

use crate::link::Faults;

mod disk;
mod world;

pub use world::{Recipient, World};

/// What happens to a fleet besides faults of its link.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Accident {
    /// The aggregator is killed and started again.
    Crash,
    /// It is killed after devices may have been sent a new model, and before its commit is durable.
    CrashUncommitted,
    /// It is killed when updates are written but not durable.
    CrashUnsettled,
    /// A device is reset, and reconnects with the memory of a tier.
    Reboot { device: usize, tier: usize },
    /// A device loses its link and never reconnects.
    Vanish { device: usize },
    /// A device stops working while its link stays open, as after SIGSTOP.
    Stop { device: usize },
    /// A stopped device continues where it was.
    Continue { device: usize },
    /// The operator revokes a device.
    Revoke { device: usize },
}

/// The configuration of a run. The model depends on `config`, `devices` and `samples` only, as long as all
/// devices take part in all rounds.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: Config,
    pub devices: usize,
    /// Samples per device, a quarter of them for tests.
    pub samples: usize,
    pub limits: LinkLimits,
    pub faults: Faults,
    /// With their times in milliseconds.
    pub accidents: Vec<(u64, Accident)>,
    /// Milliseconds of a batch on each device; 1 to 5 if the list is empty.
    pub batch_ms: Vec<u64>,
    /// Devices may fail, because they receive garbage.
    pub may_fail: bool,
    /// Seed of the link's faults and of all delays.
    pub seed: u64,
}

impl Setup {
    /// Five devices, one per tier, which all take part in every round.
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

    /// The same run over a link whose faults are drawn from a seed.
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

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub parameters: Vec<f32>,
    pub reports: Vec<RoundReport>,
    /// The receipts of updates in order, by device and round.
    pub answers: BTreeMap<(DeviceId, u32), Vec<Option<Code>>>,
    /// Complete updates that reached the aggregator, by device and exchange.
    pub arrived: BTreeMap<(DeviceId, ExchangeId), u32>,
    /// The parameters on every device at the end.
    pub slices: Vec<Vec<f32>>,
    /// Virtual time that the run took.
    pub millis: u64,
    pub crashes: CrashCounts,
}

/// How many crashes of the aggregator have hit which state.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CrashCounts {
    /// Crashes after devices may have been sent a new model and before its commit was durable.
    pub uncommitted: u32,
    /// Crashes after updates were written and before they were durable.
    pub unsettled: u32,
    /// Crashes with other work left for the worker.
    pub undone: u32,
}

impl std::ops::AddAssign for CrashCounts {
    fn add_assign(&mut self, other: Self) {
        self.uncommitted += other.uncommitted;
        self.unsettled += other.unsettled;
        self.undone += other.undone;
    }
}

struct TestDevice {
    device: DeviceId,
    session: Session<HeapArena>,
    shard: VecShard,
    conn: Option<ConnId>,
    working: bool,
    done: bool,
    gone: bool,
    /// Events of a stopped device, delivered when it continues.
    stopped: Option<Vec<world::WorldEvent>>,
}

fn open(setup: &Setup, store: Box<dyn Store>, reports: &Arc<Mutex<Vec<RoundReport>>>, now: u64) -> Run {
    let seen = reports.clone();
    let observer: Observer = Box::new(move |report| seen.lock().unwrap().push(report.clone()));
    let (limits, now) = (setup.limits, Instant::from_millis(now));
    let around = RunEnvironment { store, limits, dir: None, observer: Some(observer), now };
    let mut run = Run::open(&strategies::Registry::standard(), &setup.config, around).unwrap();
    // As in the server, Sessions send keep-alives.
    run.coordinator.detect_silence(now);
    run
}

/// A device whose memory just holds a tier.
fn test_device(setup: &Setup, model: &TieredModel, index: usize, tier: usize) -> TestDevice {
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
    TestDevice { device, session, shard, conn, working, done, gone, stopped }
}

/// Some of the built-in digits, different ones for every device.
pub fn shard(index: usize, samples: usize) -> VecShard {
    static DIGITS: OnceLock<Samples> = OnceLock::new();
    let digits = DIGITS.get_or_init(|| Samples::of(&digits::all(), DataSplit::Train).unwrap());
    let first = index * samples;
    let chosen: Vec<u32> = (first..first + samples).map(|at| (at % digits.len()) as u32).collect();
    digits.select(&chosen).unwrap().split(0.25, index as u64).unwrap()
}
