//! Boards on bad lines: bytes that are lost, flipped or repeated, packets that are lost or repeated, boards that are
//! reset, and bridges that restart.
//!
//! [`in_process`] is one seeded case with the whole stack (Session, seal, line, Responder, Coordinator, RoundWorker)
//! in virtual time; [`Noise`] is for emulated boards. Both check the same: the run ends, and its model equals that of
//! a run without faults, bit for bit. So nothing hangs, and no wrong update is accepted.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock},
};

use aggregator::{
    config::Config,
    run::{Run, RunEnvironment},
    store::MemoryStore,
    worker::{Reply, RoundWorker},
};
use client::{
    Profile,
    data::{Shard, VecShard},
    serial::{
        self, MAX_PACKET, SerialDevice,
        line::{Decoder, Encoder},
    },
    session::HeapArena,
    train::Portable,
};
use common::{
    Budget, DeviceId, Instant,
    privacy::Privacy,
    rng::{Rng, derive},
    sealed::{
        BoardIdentity, MAX_PLAIN, Nonces, Responder, ResponderEvent, SEAL_HEAD, SEAL_OVERHEAD, STRANGER,
    },
    transfer::LinkLimits,
};
use coordinator::{Action, Coordinator, fleet::ConnId};

use super::{
    boards::BenchBoard,
    run::{self, Boards, Lines},
};
use crate::memory::shard;

/// A case with more events than this does not make progress.
const MAX_EVENTS: u32 = 200_000;
const CONFIG: &str = "run = { rounds = 1 }\nround = { quorum = 1.0, deadline_s = 86400 }\n\
                      model = { tiers = [0.125] }\nstrategy = { name = \"heterofl\" }";

/// Faults of a line: probabilities per byte, and two per packet.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Badness {
    pub bytes: f64,
    pub packets: f64,
    pub resets: f64,
}

impl Badness {
    pub const NONE: Self = Self { bytes: 0.0, packets: 0.0, resets: 0.0 };

    /// Drawn from a seed: from nearly harmless to hardly usable.
    pub fn drawn(rng: &mut Rng) -> Self {
        let mut up_to = |limit: f64| limit * rng.unit_f64();
        Self { bytes: up_to(0.002), packets: up_to(0.15), resets: up_to(0.01) }
    }

    /// The bytes of a packet that arrive.
    pub fn spoil(&self, bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
        let copies = match rng.unit_f64() {
            chance if chance < self.packets / 2.0 => 0,
            chance if chance < self.packets => 2,
            _ => 1,
        };
        (0..copies).flat_map(|_| self.spoil_bytes(bytes, rng)).collect()
    }

    /// The same for bytes alone.
    pub fn spoil_bytes(&self, bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            if rng.unit_f64() >= self.bytes {
                out.push(byte);
                continue;
            }
            match rng.below(4) {
                0 => {}
                1 => out.push(byte ^ 1 << rng.below(8)),
                2 => out.extend([byte, byte]),
                _ => out.extend([byte, rng.below(256) as u8]),
            }
        }
        out
    }
}

/// Runs one case and returns the bits of the model.
pub fn in_process(badness: Badness, seed: u64) -> Vec<u32> {
    let mut case = Case::new(badness, seed);
    for _ in 0..MAX_EVENTS {
        if case.coordinator.is_finished() {
            return case.worker.conductor.run.parameters.iter().map(|value| value.to_bits()).collect();
        }
        case.step();
    }
    panic!("no end after {MAX_EVENTS} events, at {} ms: {:?}", case.now, case.device.status());
}

/// Asserts that the line of a seed does not change the model.
pub fn check(seed: u64, good: &[u32]) {
    let badness = Badness::drawn(&mut Rng::new(seed));
    assert_eq!(in_process(badness, seed), good, "{badness:?}");
}

struct Case {
    badness: Badness,
    rng: Rng,
    now: u64,
    identity: BoardIdentity,
    shard: VecShard,
    device: SerialDevice<HeapArena, 16>,
    starts: u64,
    responder: Responder,
    decoder: Decoder<{ MAX_PACKET + 4 }>,
    conn: Option<ConnId>,
    conns: u64,
    coordinator: Coordinator,
    worker: RoundWorker,
    /// Bytes in flight, with their time of arrival.
    to_device: VecDeque<(u64, Vec<u8>)>,
    to_gate: VecDeque<(u64, Vec<u8>)>,
}

impl Case {
    fn new(badness: Badness, seed: u64) -> Self {
        static CONFIGURED: OnceLock<Config> = OnceLock::new();
        let config = CONFIGURED.get_or_init(|| Config::parse(CONFIG).unwrap());
        let (store, now) = (Box::new(MemoryStore::new()), Instant::ZERO);
        let around = RunEnvironment { store, limits: LinkLimits::QUIC, dir: None, observer: None, now };
        let Run { coordinator, worker } =
            Run::open(&strategies::Registry::standard(), config, around).unwrap();
        let identity = BoardIdentity {
            device: "board".parse().unwrap(),
            key: [9; 32],
            seed: [4; 16],
            privacy: Privacy::default(),
        };
        let shard = shard(0, 8);
        let device = board(&identity, &shard, 0);
        Self {
            badness,
            rng: Rng::new(derive(seed, 2)),
            now: 0,
            identity,
            shard,
            device,
            starts: 0,
            responder: Responder::default(),
            decoder: Decoder::default(),
            conn: None,
            conns: 0,
            coordinator,
            worker,
            to_device: VecDeque::new(),
            to_gate: VecDeque::new(),
        }
    }

    fn time(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    fn step(&mut self) {
        self.serve_device();
        self.serve_aggregator();
        let now = self.time();
        let arrivals =
            [self.to_device.front(), self.to_gate.front()].into_iter().flatten().map(|(at, _)| *at);
        let timers = [self.device.poll_timeout(), self.coordinator.poll_timeout()];
        let work = self.device.has_work().then_some(self.now + 1);
        let timers = timers.into_iter().flatten().map(Instant::as_millis);
        let next = arrivals.chain(timers).chain(work).min().expect("no event is left");
        self.now = self.now.max(next);
        if let Some(bytes) = arrived(&mut self.to_device, self.now) {
            self.device.handle_bytes(&bytes, &mut [], self.time());
        } else if let Some(bytes) = arrived(&mut self.to_gate, self.now) {
            self.hear(&bytes);
        } else if self.device.has_work() {
            self.device.work(&self.shard, &mut Portable::plain(), now).unwrap();
        } else {
            self.device.handle_timeout(self.time());
            self.coordinator.handle_timeout(self.time());
        }
    }

    fn serve_device(&mut self) {
        let now = self.time();
        loop {
            let Some(line) = self.device.poll_transmit(now) else { return };
            let bytes: Vec<u8> = line.collect();
            if self.rng.unit_f64() < self.badness.resets {
                match self.rng.below(3) {
                    0 => self.restart_bridge(),
                    _ => self.reset_device(),
                }
                continue;
            }
            let bytes = self.badness.spoil(&bytes, &mut self.rng);
            self.to_gate.push_back((self.now + 1, bytes));
        }
    }

    /// Resets the board: its state and the bytes on their way to it are lost.
    fn reset_device(&mut self) {
        self.starts += 1;
        self.device = board(&self.identity, &self.shard, self.starts);
        self.to_device.clear();
    }

    fn restart_bridge(&mut self) {
        let now = self.time();
        self.responder = Responder::default();
        self.decoder = Decoder::default();
        self.to_gate.clear();
        if let Some(conn) = self.conn.take() {
            self.coordinator.handle_disconnected(conn, now);
        }
        self.say(&[STRANGER]);
    }

    fn say(&mut self, packet: &[u8]) {
        let bytes: Vec<u8> = Encoder::new(packet).collect();
        let bytes = self.badness.spoil(&bytes, &mut self.rng);
        self.to_device.push_back((self.now + 1, bytes));
    }

    /// The bridge and the responder receive bytes.
    fn hear(&mut self, bytes: &[u8]) {
        let packets: Vec<Vec<u8>> =
            bytes.iter().filter_map(|&byte| Some(self.decoder.push(byte)?.ok()?.to_vec())).collect();
        for mut packet in packets {
            let (mut reply, key, fresh) = ([0; MAX_PLAIN], self.identity.key, self.rng.next_u64());
            let nonce = || {
                let mut nonce = [0; 16];
                nonce[..8].copy_from_slice(&fresh.to_le_bytes());
                nonce
            };
            let key_of = |device: &DeviceId| (device.as_str() == "board").then_some(key);
            match self.responder.handle(&mut packet, &mut reply, key_of, nonce) {
                ResponderEvent::Nothing | ResponderEvent::Rejected(_) => {}
                ResponderEvent::Reply(len) => self.say(&reply[..len]),
                ResponderEvent::Frame { device, fresh, frame } => {
                    let (now, frame) = (Instant::from_millis(self.now), frame.to_vec());
                    if fresh {
                        self.conns += 1;
                        if let Some(old) = self.conn.replace(ConnId(self.conns)) {
                            self.coordinator.handle_disconnected(old, now);
                        }
                        self.coordinator.handle_connected(ConnId(self.conns), device);
                    }
                    let told = self.coordinator.handle_frame(ConnId(self.conns), &frame, now);
                    told.expect("sealed messages are valid");
                }
            }
        }
    }

    fn serve_aggregator(&mut self) {
        let now = self.time();
        while let Some(action) = self.coordinator.poll_action() {
            match action {
                Action::Disconnect(conn) => panic!("the aggregator drops {conn:?}"),
                action => match self.worker.act(action).unwrap() {
                    Some(Reply::Finished) | None => {}
                    Some(reply) => self.worker.tell(reply, &mut self.coordinator, now),
                },
            }
        }
        while self.coordinator.poll_wake().is_some() {}
        let mut frame = vec![];
        while let Some(conn) = self.conn
            && self.coordinator.poll_transmit(conn, &mut frame).is_some()
        {
            let mut packet = vec![0; frame.len() + SEAL_OVERHEAD];
            packet[SEAL_HEAD..SEAL_HEAD + frame.len()].copy_from_slice(&frame);
            let len = self.responder.seal(&mut packet, frame.len()).unwrap();
            self.say(&packet[..len]);
        }
    }
}

fn arrived(line: &mut VecDeque<(u64, Vec<u8>)>, now: u64) -> Option<Vec<u8>> {
    if line.front()?.0 > now {
        return None;
    }
    line.pop_front().map(|(_, bytes)| bytes)
}

fn board(identity: &BoardIdentity, shard: &VecShard, starts: u64) -> SerialDevice<HeapArena, 16> {
    let budget = Budget { ram: 16 << 10, ..Budget::UNLIMITED };
    let profile = Profile {
        device: identity.device.clone(),
        budget,
        data: shard.summary(),
        privacy: Privacy::default(),
    };
    let limits = serial::limits(256);
    let nonces = Nonces::new(identity.seed, starts << 32);
    SerialDevice::new(identity.clone(), profile, "host", HeapArena::new(budget.ram), limits, nonces)
}

/// Faults of emulated boards during a run.
#[derive(Clone, Debug)]
pub struct Noise {
    pub badness: Badness,
    pub seed: u64,
    /// Boards are reset in turn at this interval.
    pub reset_every: std::time::Duration,
    /// Counts of the faults, for the report.
    pub done: Arc<Mutex<Done>>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Done {
    pub bytes: u64,
    pub spoilt: u64,
    pub resets: u64,
}

/// Runs boards of five kinds on bad lines and resets them in turn, until they have completed this many rounds
/// together. The model must equal that of hosts without faults.
pub fn in_qemu(cases: u32) -> Done {
    let boards: Vec<BenchBoard> = ["mps2-an386", "mps2-an385", "lm3s6965evb", "mps2-an505", "microbit"]
        .iter()
        .enumerate()
        .map(|(index, kind)| BenchBoard {
            device: format!("t4-{index:02}"),
            kind: (*kind).into(),
            port: "emulated".into(),
        })
        .collect();
    let mut fleet = super::fleet(7);
    fleet.devices.truncate(boards.len());
    for (device, board) in fleet.devices.iter_mut().zip(&boards) {
        (device.device, device.tier) = (board.device.parse().unwrap(), 4);
        device.shard = shard(usize::from(board.device.as_bytes()[4]), 64);
    }
    let rounds = cases.div_ceil(boards.len() as u32);
    let config = run::config("{ name = \"heterofl\" }", rounds, boards.len(), 7, run::TRAINING);
    let noise = Noise {
        badness: Badness { bytes: 0.0004, ..Badness::NONE },
        seed: 7,
        reset_every: std::time::Duration::from_secs(4),
        done: Arc::default(),
    };
    let hosts = run::run(&config, &fleet, &boards, Boards::StoodInFor);
    let bad = run::run_with(&config, &fleet, &boards, Boards::Real, &Lines::Bad(noise.clone()));
    let bits = |outcome: &run::Outcome| outcome.parameters.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&bad), bits(&hosts));
    let done = *noise.done.lock().unwrap();
    println!("{cases} board rounds in {:.0} s: {done:?}", bad.seconds);
    assert!(done.spoilt > 0 && done.resets > 0, "{done:?}");
    done
}

/// Forwards bytes between an emulated board and the bridge, with faults.
pub async fn carry_badly(
    noise: Noise,
    number: u64,
    board: tokio::net::UnixListener,
    bridge: std::path::PathBuf,
) {
    while let Ok((stream, _)) = board.accept().await {
        let Ok(uplink) = tokio::net::UnixStream::connect(&bridge).await else { continue };
        let ((from_board, to_board), (from_bridge, to_bridge)) = (stream.into_split(), uplink.into_split());
        let (up, down) = (noise.clone(), noise.clone());
        tokio::select! {
            () = copy(up, 2 * number, from_board, to_bridge) => {}
            () = copy(down, 2 * number + 1, from_bridge, to_board) => {}
        }
    }
}

async fn copy(
    noise: Noise,
    number: u64,
    mut from: tokio::net::unix::OwnedReadHalf,
    mut to: tokio::net::unix::OwnedWriteHalf,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut rng = Rng::new(derive(noise.seed, number));
    let mut bytes = [0; 512];
    while let Ok(len @ 1..) = from.read(&mut bytes).await {
        let spoilt = noise.badness.spoil_bytes(&bytes[..len], &mut rng);
        {
            let mut done = noise.done.lock().unwrap();
            done.bytes += len as u64;
            done.spoilt += u64::from(spoilt != bytes[..len]);
        }
        if to.write_all(&spoilt).await.is_err() {
            return;
        }
    }
}

/// Resets boards in turn through QEMU's monitors.
pub async fn reset_in_turn(noise: Noise, monitors: Vec<std::path::PathBuf>) {
    use tokio::io::AsyncWriteExt;
    for monitor in monitors.iter().cycle() {
        tokio::time::sleep(noise.reset_every).await;
        if let Ok(mut monitor) = tokio::net::UnixStream::connect(monitor).await
            && monitor.write_all(b"system_reset\n").await.is_ok()
        {
            noise.done.lock().unwrap().resets += 1;
            // QEMU executes the command before it notices that the answer is not read.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}
