//! Carries serial devices to the aggregator: one QUIC connection, one stream per device.
//!
//! ```text
//! board == COBS packets ==> port -> line -> stream == packets with their length ==> aggregator
//! ```
//! A bridge reads the boundaries and kinds of packets, not their contents: frames are sealed between board and aggregator.
//! The worst it can do is to drop or delay packets. It carries only the kinds that board and aggregator exchange
//! ([`goes_up`], [`goes_down`]). Boards and the aggregator may connect and disconnect at any time, independently.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use common::{
    Code,
    printable::printable,
    sealed::{Hail, STRANGER, goes_down, goes_up},
    wire::{BRIDGE_ALPN, frame_prefix},
};
use quinn::{RecvStream, SendStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{mpsc, watch},
    task::JoinSet,
};
use tracing::{debug, info, warn};

use super::{
    advice::{advice, is_passing},
    client::{ClientError, SILENCE},
    gateways::{GatewayAddresses, Route, Turn},
    identity::Identity,
    quic::{self, LinkError, Sockets},
    refusals::{Next, Refusals},
    renewal::Renewal,
};
use crate::serial::{
    Crash, HEALTH, Health, Kept, MAX_PACKET, PING, ResetCause, Status,
    line::{Decoder, Encoder},
};

pub mod port;

use port::{Port, PortSpec};

const FIRST_PAUSE: Duration = Duration::from_millis(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A gateway refuses an unknown bridge at once, so a connection that lasts longer is accepted.
const ADMITTED: Duration = Duration::from_secs(10);
const ROOM: usize = MAX_PACKET + 4;

/// Carries boards on ports to one gateway of a fleet at a time.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// Addresses of the fleet's gateways.
    pub gateways: GatewayAddresses,
    /// Identity of the bridge.
    pub identity: Identity,
    /// Where boards are plugged in.
    pub ports: Vec<PortSpec>,
    /// Ask every board for its status this often, and log it.
    pub ask: Option<Duration>,
    /// How long the gateway must answer "not enrolled" before the bridge exits; see [`super::refusals`].
    pub leave_after: Duration,
    /// Counts what is carried.
    pub traffic: Traffic,
}

/// What a bridge has carried, by device.
pub type Traffic = Arc<Mutex<BTreeMap<String, BoardTraffic>>>;

/// Bytes on the line of one device, including framing and checksums.
#[derive(Clone, Debug)]
pub struct BoardTraffic {
    /// From the device.
    pub up: u64,
    /// To the device.
    pub down: u64,
    /// Time of the first packet.
    pub first: Instant,
    /// Time of the last packet.
    pub last: Instant,
    /// Stack use in its last [`Status`], in bytes.
    pub stack: Option<u32>,
}

impl BoardTraffic {
    /// Time between the first and the last packet.
    pub fn seconds(&self) -> f64 {
        (self.last - self.first).as_secs_f64()
    }
}

type Uplink = watch::Receiver<Option<quinn::Connection>>;

impl Bridge {
    /// Carries packets until `stop` resolves or the aggregator refuses this bridge for good.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<(), ClientError> {
        let (connected, uplink) = watch::channel(None);
        let mut lines = JoinSet::new();
        let (arrived, mut ports) = mpsc::channel::<Port>(16);
        for spec in self.ports.clone() {
            lines.spawn(port::watch(spec, arrived.clone()));
        }
        let (ask, traffic) = (self.ask, self.traffic.clone());
        let accept = async {
            while let Some(port) = ports.recv().await {
                while lines.try_join_next().is_some() {}
                lines.spawn(carry(port, uplink.clone(), ask, traffic.clone()));
            }
        };
        tokio::select! {
            error = self.keep_connected(&connected) => Err(error),
            () = accept => Ok(()),
            () = stop => Ok(()),
        }
    }

    /// Reconnects whenever the connection is lost. Returns only errors that end a bridge ([`super::refusals`]).
    async fn keep_connected(&self, connected: &watch::Sender<Option<quinn::Connection>>) -> ClientError {
        let mut route = Route::new(&self.gateways, self.identity.name().unwrap_or_default());
        let mut sockets = match Sockets::open(route.addresses()) {
            Ok(sockets) => sockets,
            Err(error) => return ClientError::Socket(error),
        };
        let mut renewal = Renewal::new(self.identity.clone());
        let mut pause = FIRST_PAUSE;
        let mut refusals = Refusals::new(self.leave_after);
        loop {
            let (server, mut admitted) = (route.address(), false);
            let identity = renewal.identity();
            let reason = match quic::connect(&mut sockets, server, identity, &[BRIDGE_ALPN], SILENCE).await {
                Ok(connection) => {
                    info!("connected to {server}");
                    pause = FIRST_PAUSE;
                    let since = Instant::now();
                    connected.send_replace(Some(connection.clone()));
                    let reason = loop {
                        tokio::select! {
                            reason = connection.closed() => break reason.into(),
                            // All streams of the connection belong to boards.
                            () = renewal.due() => renewal.renew_apart_if_due(server).await,
                        }
                    };
                    connected.send_replace(None);
                    admitted = since.elapsed() > ADMITTED;
                    if admitted {
                        refusals.joined();
                        route.note_progress();
                    }
                    reason
                }
                Err(error) => error,
            };
            let refused = matches!(reason, LinkError::Refused(code) if !is_passing(code));
            let turn = route.note_end(reason.is_turned_away(), admitted && !refused);
            let next = route.next_after(server);
            if turn == Turn::AtOnce {
                info!("{server} takes no bridge now ({reason}); trying {next}");
                continue;
            }
            let wait = match reason {
                LinkError::Refused(code) if !is_passing(code) => {
                    let refusal = code.into();
                    match refusals.refused(code, Instant::now()) {
                        Next::End => return ClientError::Refused { refusal },
                        Next::TryAgain(wait) => {
                            warn!("refused: {code}{}; trying again in {wait:.1?}", advice(&refusal));
                            wait
                        }
                    }
                }
                LinkError::Refused(Code::NotReady) => {
                    info!("the aggregator has stopped; trying {next} in {pause:.1?}");
                    pause
                }
                other => {
                    warn!("link lost ({other}); trying {next} in {pause:.1?}");
                    pause
                }
            };
            tokio::time::sleep(wait).await;
            if refused {
                renewal.reload();
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// One board, from the moment it is plugged in until it is unplugged.
async fn carry(port: Port, mut uplink: Uplink, ask: Option<Duration>, traffic: Traffic) {
    let name = port.name;
    info!(line = name, "plugged in");
    let (read, write) = tokio::io::split(port.stream);
    let (sender, packets) = mpsc::channel(16);
    let reader = tokio::spawn(read_line(read, sender));
    let mut line = BoardLine { name: name.clone(), packets, write, ask, device: None, traffic };
    let mut pause = FIRST_PAUSE;
    let end = loop {
        let connection = match uplink.wait_for(Option::is_some).await {
            Ok(connection) => connection.clone(),
            Err(_) => break "bridge stops".into(),
        };
        let Some(connection) = connection else { continue };
        let Ok((send, receive)) = connection.open_bi().await else {
            tokio::time::sleep(FIRST_PAUSE).await;
            continue;
        };
        let since = Instant::now();
        match line.carry(send, receive, pause > FIRST_PAUSE).await {
            CarryEnd::Line(reason) => break reason,
            CarryEnd::Uplink => {
                // The gateway closes the stream of a board that it refuses. Only the board can read why.
                pause = if since.elapsed() > ADMITTED { FIRST_PAUSE } else { pause };
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    };
    reader.abort();
    info!(line = name, "unplugged: {end}");
}

enum CarryEnd {
    Line(String),
    Uplink,
}

struct BoardLine {
    name: String,
    packets: mpsc::Receiver<Vec<u8>>,
    write: WriteHalf<port::Stream>,
    ask: Option<Duration>,
    /// The name that the board states.
    device: Option<String>,
    traffic: Traffic,
}

impl BoardLine {
    fn note(&mut self, change: impl FnOnce(&mut BoardTraffic)) {
        let Some(device) = &self.device else { return };
        let now = Instant::now();
        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        let none = BoardTraffic { up: 0, down: 0, first: now, last: now, stack: None };
        let carried = traffic.entry(device.clone()).or_insert(none);
        carried.last = now;
        change(carried);
    }

    /// `ended`: an earlier stream has ended, so the board is asked for its status, which is logged with the reason.
    async fn carry(&mut self, mut send: SendStream, receive: RecvStream, ended: bool) -> CarryEnd {
        // Makes a board with a session of an earlier stream begin a new one at once.
        if let Err(error) = self.put(&[STRANGER]).await {
            return CarryEnd::Line(error);
        }
        if ended && let Err(error) = self.put(&[PING]).await {
            return CarryEnd::Line(error);
        }
        let (sender, mut answers) = mpsc::channel(4);
        let reader = tokio::spawn(read_stream(receive, sender));
        let mut clock = self.ask.map(tokio::time::interval);
        let ended = loop {
            let tick = async {
                match &mut clock {
                    Some(clock) => _ = clock.tick().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                packet = self.packets.recv() => match packet {
                    None => break CarryEnd::Line("line closed".into()),
                    Some(packet) if packet.first() == Some(&HEALTH) => {
                        if let Some(health) = Health::decode(&packet) {
                            report_health(&self.name, &health);
                        }
                    }
                    Some(packet) => match Status::decode(&packet) {
                        Some(status) => {
                            report(&self.name, &status);
                            self.device = Some(status.device.to_string());
                            self.note(|traffic| traffic.stack = Some(status.stack).filter(|&stack| stack > 0));
                        }
                        None if !goes_up(&packet) => {
                            debug!(line = self.name, "dropped packet of kind {:?} from a board", packet.first());
                        }
                        None => {
                            if let Some(Hail { device, .. }) = Hail::decode(&packet) {
                                self.device = Some(device.to_string());
                            }
                            let len = Encoder::new(&packet).count() as u64;
                            self.note(|traffic| traffic.up += len);
                            let prefix = frame_prefix(packet.len());
                            if send.write_all(&prefix).await.is_err() || send.write_all(&packet).await.is_err() {
                                break CarryEnd::Uplink;
                            }
                        }
                    },
                },
                answer = answers.recv() => match answer {
                    None => break CarryEnd::Uplink,
                    Some(answer) if !goes_down(&answer) => {
                        warn!(line = self.name, "dropped packet of kind {:?} from the aggregator", answer.first());
                    }
                    Some(answer) => if let Err(error) = self.put(&answer).await {
                        break CarryEnd::Line(error);
                    },
                },
                () = tick => if let Err(error) = self.put(&[PING]).await {
                    break CarryEnd::Line(error);
                },
            }
        };
        reader.abort();
        ended
    }

    async fn put(&mut self, packet: &[u8]) -> Result<(), String> {
        let bytes: Vec<u8> = Encoder::new(packet).collect();
        self.note(|traffic| traffic.down += bytes.len() as u64);
        self.write.write_all(&bytes).await.map_err(|error| error.to_string())?;
        self.write.flush().await.map_err(|error| error.to_string())
    }
}

/// Logs the status of a board.
pub fn report(line: &str, status: &Status) {
    let Status { device, board, uptime_ms, open, round, batches, accepted, stack, damaged, rejected, .. } =
        status;
    let tier = status.tier.map_or_else(|| "no tier".into(), |tier| tier.to_string());
    let doing = if status.working { format!("batch {batches}") } else { "waiting".into() };
    let board = printable(board);
    let link = match (open, status.refused) {
        (false, Some(Code::UnknownDevice)) => {
            "not connected: the gateway does not know this board's key; enrol it and flash its new identity"
                .into()
        }
        (true, None) => "connected".into(),
        (false, None) => "not connected".into(),
        (open, Some(code)) => {
            let not = if *open { "" } else { "not " };
            format!("{not}connected, refused: {code}{}", board_advice(code))
        }
    };
    info!(
        line,
        "{device} ({board}): up {} s, {link}, {tier}, round {round}, {doing}, {accepted} accepted, stack {stack}, {damaged} damaged, {rejected} rejected",
        uptime_ms / 1000,
    );
}

/// Logs how a board fares.
pub fn report_health(line: &str, health: &Health) {
    let cause = match health.cause {
        ResetCause::Unknown => "cause unknown",
        ResetCause::Power => "power on",
        ResetCause::External => "reset from outside",
        ResetCause::Panic => "panic",
        ResetCause::Fault => "fault of the core",
        ResetCause::Watchdog => "watchdog",
    };
    let kept = match health.kept {
        Some(Kept { round, writes }) => format!("keeps the model of round {round} ({writes} writes)"),
        None => "keeps no model".into(),
    };
    let crash = match &health.crash {
        None => String::new(),
        Some(Crash { file, line }) if file.is_empty() => format!(", last crash: fault at {line:#010x}"),
        Some(Crash { file, line }) => format!(", last crash: panic at {}:{line}", printable(file)),
    };
    let restarts = match health.restarts {
        Some(1) => "1 restart since power on, the last: ".into(),
        Some(restarts) if restarts > 0 => format!("{restarts} restarts since power on, the last: "),
        _ => "started: ".to_owned(),
    };
    if health.safe {
        let crashes = health.crashes;
        warn!(
            line,
            "safe mode after {crashes} crashes in a row: it does not join until it is reset{crash}; {kept}"
        );
    } else {
        info!(line, "{restarts}{cause}{crash}; {kept}");
    }
}

/// What can be done about a refusal of a board.
fn board_advice(code: Code) -> &'static str {
    match code {
        Code::EmptyShard => "; flash samples, or send some with `fairtier board provision`",
        Code::DoesNotFit => "; the gateway's log has the sizes",
        Code::WrongData => "; write the samples for this model with `fairtier board shard`",
        Code::LeftOut => "; flash an image with `ops = \"all\"`, or train without that feature",
        Code::TooOld | Code::WrongVersion => "; flash a current image",
        Code::TierNotAllowed => "; enrol it with other --tiers",
        Code::Unlisted => "; update this program",
        _ => "; `fairtier codes` explains it",
    }
}

async fn read_line(mut port: ReadHalf<port::Stream>, packets: mpsc::Sender<Vec<u8>>) {
    let mut decoder = Decoder::<ROOM>::default();
    let mut bytes = [0; 1024];
    while let Ok(len @ 1..) = port.read(&mut bytes).await {
        for &byte in bytes.iter().take(len) {
            match decoder.push(byte) {
                None => {}
                Some(Err(error)) => debug!("noise: {error}"),
                Some(Ok(packet)) => {
                    let packet = packet.to_vec();
                    // Without an aggregator, packets of boards are dropped; boards repeat them.
                    if packets.try_send(packet).is_err() && packets.is_closed() {
                        return;
                    }
                }
            }
        }
    }
}

async fn read_stream(mut stream: RecvStream, packets: mpsc::Sender<Vec<u8>>) {
    let mut prefix = [0; 4];
    while stream.read_exact(&mut prefix).await.is_ok() {
        let len = u32::from_le_bytes(prefix) as usize;
        if len == 0 || len > MAX_PACKET {
            warn!("the aggregator sent {len} bytes, more than a serial line takes");
            return;
        }
        let mut packet = vec![0; len];
        if stream.read_exact(&mut packet).await.is_err() || packets.send(packet).await.is_err() {
            return;
        }
    }
}
