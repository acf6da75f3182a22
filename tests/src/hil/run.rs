//! One run: the real aggregator, a real bridge, boards behind it, Linux clients beside it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use aggregator::{ca::Authority, config::Config, server::Server};
use client::{
    Profile,
    data::Shard,
    host::{
        Client, Identity,
        board::Arithmetic,
        bridge::{BoardTraffic, Bridge, Traffic, port::PortSpec},
        provision::{ProvisionError, provision},
    },
    train::Portable,
};
use common::{Budget, privacy::Privacy, sealed::BoardIdentity};
use coordinator::report::RoundReport;
use fairtier::demo::{Fleet, FleetDevice};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

use super::{
    boards::{BenchBoard, Emulated, shard_file},
    faults::{Noise, carry_badly, reset_in_turn},
};
use crate::gateway::parameters;

/// What computes in place of the boards.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Boards {
    /// The boards themselves.
    Real,
    /// Hosts with the same arithmetic, over QUIC.
    StoodInFor,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Reports of all rounds, with the scores of the final model last.
    pub reports: Vec<RoundReport>,
    pub parameters: Vec<f32>,
    pub seconds: f64,
    /// Traffic on the lines of the boards.
    pub carried: BTreeMap<String, BoardTraffic>,
}

impl Outcome {
    pub fn last(&self) -> &RoundReport {
        self.reports.last().unwrap()
    }
}

/// A configuration in which all devices take part in every round.
pub fn config(strategy: &str, rounds: u32, devices: usize, seed: u64, more: &str) -> Config {
    Config::parse(&format!(
        "strategy = {strategy}\n\
         run = {{ rounds = {rounds}, min_devices = {devices}, seed = {seed} }}\n\
         round = {{ participation = 1.0, deadline_s = 600, quorum = 1.0 }}\n\
         server = {{ listen = \"127.0.0.1:0\" }}\n{more}"
    ))
    .unwrap()
}

/// How emulated boards are connected to the bridge.
#[derive(Clone, Debug, Default)]
pub enum Lines {
    #[default]
    Good,
    Bad(Noise),
    /// Boards have no samples and receive them before they connect to the bridge.
    Provisioned,
}

/// Runs to the end.
pub fn run(config: &Config, fleet: &Fleet, boards: &[BenchBoard], who: Boards) -> Outcome {
    run_with(config, fleet, boards, who, &Lines::Good)
}

/// The same with other lines for emulated boards.
pub fn run_with(
    config: &Config,
    fleet: &Fleet,
    boards: &[BenchBoard],
    who: Boards,
    lines: &Lines,
) -> Outcome {
    if let Ok(level) = std::env::var("FAIRTIER_LOG") {
        let filter = tracing_subscriber::EnvFilter::new(level);
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        // In the second run of a process, it is already set.
        let _ = log.try_init();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run_async(config, fleet, boards, who, lines))
}

async fn run_async(
    config: &Config,
    fleet: &Fleet,
    boards: &[BenchBoard],
    who: Boards,
    lines: &Lines,
) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let log = reports.clone();
    let record = move |report: &RoundReport| log.lock().unwrap().push(report.clone());
    let mut config = config.clone();
    for device in &fleet.devices {
        config.devices.insert(device.device.clone(), common::Tier::new(device.tier).unwrap());
    }
    let started = Instant::now();
    let server =
        Server::start(&strategies::Registry::standard(), &config, dir.path(), Some(Box::new(record)))
            .unwrap();
    let mut tasks = JoinSet::new();
    let mut emulated = vec![];
    let mut ports = vec![PortSpec::Unix(dir.path().join("boards.sock"))];
    for device in &fleet.devices {
        let board = boards.iter().find(|board| board.device == device.device.as_str());
        match board {
            Some(bench) if who == Boards::Real => {
                let identity = authority.enroll_serial(&device.device).unwrap();
                if bench.is_emulated() {
                    emulated.push((
                        bench.board(),
                        dir.path().join(device.device.as_str()),
                        identity,
                        shard_file(device),
                    ));
                } else {
                    flash(bench, dir.path(), &identity, device);
                    ports.push(bench.port.parse().unwrap());
                }
            }
            _ => {
                let arithmetic = board.map_or(Arithmetic::Plain, |board| board.board().arithmetic);
                tasks.spawn(stand_in(client(&server, &authority, device), device.clone(), arithmetic));
            }
        }
    }
    let traffic = Traffic::default();
    let bridge = Bridge {
        gateways: server.address().into(),
        identity: identity(&authority, "bridge"),
        ports,
        ask: Some(Duration::from_secs(2)),
        leave_after: client::host::refusals::LEAVE_AFTER,
        traffic: traffic.clone(),
    };
    tasks.spawn(async move { bridge.run(std::future::pending()).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let socket = dir.path().join("boards.sock");
    let mut running = vec![];
    for (number, (board, dir, identity, shard)) in emulated.iter().enumerate() {
        std::fs::create_dir_all(dir).unwrap();
        let own = dir.join("line");
        let listen = || tokio::net::UnixListener::bind(&own).unwrap();
        let (serial, baked) = match lines {
            Lines::Good => (&socket, &shard[..]),
            Lines::Bad(noise) => {
                tasks.spawn(carry_badly(noise.clone(), number as u64, listen(), socket.clone()));
                (&own, &shard[..])
            }
            Lines::Provisioned => {
                tasks.spawn(provision_first(listen(), identity.clone(), shard.clone(), socket.clone()));
                (&own, &[0xff][..])
            }
        };
        running.push(Emulated::start(board, dir, identity, baked, &format!("unix:{}", serial.display())));
    }
    if let Lines::Bad(noise) = lines {
        let monitors = emulated.iter().map(|(_, dir, ..)| dir.join("monitor")).collect();
        tasks.spawn(reset_in_turn(noise.clone(), monitors));
    }
    let finished = tokio::time::timeout(Duration::from_secs(1800), server.finished()).await;
    tasks.shutdown().await;
    server.stop().await.unwrap();
    drop(running);
    finished.expect("the run takes longer than half an hour");
    let reports = std::mem::take(&mut *reports.lock().unwrap());
    let parameters = parameters(&dir.path().join("model.onnx"));
    let carried = std::mem::take(&mut *traffic.lock().unwrap());
    Outcome { reports, parameters, seconds: started.elapsed().as_secs_f64(), carried }
}

/// Gives a board its samples, then connects it to the bridge.
async fn provision_first(board: UnixListener, identity: Vec<u8>, shard: Vec<u8>, bridge: PathBuf) {
    let (mut board, _) = board.accept().await.unwrap();
    let identity = BoardIdentity::decode(&identity).unwrap();
    // Without the board's key, samples are refused.
    let other = BoardIdentity { key: [0; 32], ..identity.clone() };
    let refused = provision(&mut board, &other, &shard, |_| {}).await.unwrap_err();
    assert!(matches!(refused, ProvisionError::OtherKey(_)), "{refused}");
    // More samples than the board can hold are refused with both figures, without harm.
    let refused = provision(&mut board, &identity, &vec![0; 1 << 20], |_| {}).await.unwrap_err();
    assert!(matches!(refused, ProvisionError::Room { need: 0x10_0000, have: 1.. }), "{refused}");
    provision(&mut board, &identity, &shard, |_| {}).await.unwrap();
    let mut bridge = UnixStream::connect(bridge).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut board, &mut bridge).await;
}

fn flash(bench: &BenchBoard, dir: &Path, identity: &[u8], device: &FleetDevice) {
    let board = bench.board();
    let dir = dir.join(&bench.device);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("identity"), identity).unwrap();
    std::fs::write(dir.join("shard"), shard_file(device)).unwrap();
    let image = board.image(&super::boards::images());
    board.download(&image, &dir.join("identity"), &dir.join("shard")).unwrap();
}

fn identity(authority: &Authority, name: &str) -> Identity {
    Identity::parse(authority.enroll(&name.parse().unwrap()).unwrap().as_bytes()).unwrap()
}

fn client(server: &Server, authority: &Authority, device: &FleetDevice) -> Client {
    let profile = Profile {
        device: device.device.clone(),
        budget: Budget::UNLIMITED,
        data: device.shard.summary(),
        privacy: Privacy::default(),
    };
    Client {
        silence: client::host::SILENCE,
        leave_after: client::host::refusals::LEAVE_AFTER,
        gateways: server.address().into(),
        identity: identity(authority, device.device.as_str()),
        profile,
        spent: None,
        save_model: None,
        give_up_after: Some(Duration::from_secs(60)),
    }
}

async fn stand_in(client: Client, device: FleetDevice, arithmetic: Arithmetic) {
    let never = std::future::pending();
    match arithmetic {
        Arithmetic::Plain => client.run(&device.shard, &mut Portable::plain(), never, |_| {}).await,
        Arithmetic::Fused => client.run(&device.shard, &mut Portable::fused(), never, |_| {}).await,
    }
    .unwrap();
}

/// Seed of the comparison. It was not tuned.
pub const SEED: u64 = 1;
/// Enough rounds to see the difference.
pub const ROUNDS: u32 = 16;
pub const TRAINING: &str = "training = { epochs = 1, batch = 16, lr = 0.5, lr_decay = 0.99 }\n";
/// Parameters of FairHeteroFL, as in `STRATEGIES`.
pub const FAIR: &str = r#"{ "q": 1, "q_m": 0.1, "step": "reweight" }"#;
const STRATEGIES: [&str; 2] = [
    "{ name = \"heterofl\" }",
    "{ name = \"fairheterofl\", params = { q = 1, q_m = 0.1, step = \"reweight\" } }",
];

/// HeteroFL and FairHeteroFL on the same fleet from the same start.
pub fn contest(fleet: &Fleet, boards: &[BenchBoard], who: Boards) -> [Outcome; 2] {
    contest_with(fleet, boards, who, SEED, ROUNDS)
}

/// The same with another seed or number of rounds.
pub fn contest_with(
    fleet: &Fleet,
    boards: &[BenchBoard],
    who: Boards,
    seed: u64,
    rounds: u32,
) -> [Outcome; 2] {
    let more = format!("model = {{ seed = {seed} }}\n{TRAINING}");
    STRATEGIES
        .map(|strategy| run(&config(strategy, rounds, fleet.devices.len(), seed, &more), fleet, boards, who))
}
