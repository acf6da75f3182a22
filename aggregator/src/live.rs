//! What happens in a run right now, for pages and metrics: a snapshot of the Coordinator, made when someone looks.
//!
//! Readers share a snapshot for [`FRESH`], so the Coordinator's lock is held for a copy of its names a few times a second at
//! most, however many look. Without a viewer, nothing is done.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant as Monotonic},
};

use common::{Code, DeviceId, Instant};
use coordinator::{
    Coordinator, Gathering, PhaseName, RefusedBy,
    exchange::{AnswerState, OpenExchange, Purpose},
};
use strategies::{strategy::Kind, tiered::TieredModel};

use crate::{clock::since_1970, driver::Driver, phases::PhaseTimes};

/// How long a snapshot counts as the present state.
pub const FRESH: Duration = Duration::from_millis(400);
/// Devices waited for that are listed; the others are counted.
const LISTED: usize = 20;

/// The state of a run at one moment. Times are seconds since 1970.
#[derive(Clone, Debug)]
pub struct LiveView {
    /// When it was made.
    pub at: f64,
    /// The id of the run.
    pub run: String,
    /// Where the run stands between two commits.
    pub phase: PhaseName,
    /// When this phase began.
    pub since: f64,
    /// No further round begins.
    pub paused: bool,
    /// Rounds whose model is stored.
    pub committed: u32,
    /// Of the whole run.
    pub rounds: u32,
    /// Absent between exchanges.
    pub exchange: Option<LiveExchange>,
    /// While a round cannot begin.
    pub gathering: Option<Gathering>,
    /// The wait is noticeably longer than usual.
    pub waits_long: bool,
    /// The first of the devices that are waited for.
    pub waiting: Vec<LiveWait>,
    /// Devices waited for, listed or not.
    pub waiting_count: usize,
    /// Widest first.
    pub tiers: Vec<LiveTier>,
    /// In DeviceId order.
    pub devices: Vec<LiveDevice>,
    /// In DeviceId order.
    pub refusals: Vec<LiveRefusal>,
}

/// The exchange that collects answers.
#[derive(Clone, PartialEq, Debug)]
pub struct LiveExchange {
    /// The round that it belongs to.
    pub round: u32,
    /// From 0.
    pub number: u32,
    /// What it asks for, as in `train`.
    pub kind: &'static str,
    /// Collects the final scores.
    pub evaluates: bool,
    /// When devices were asked.
    pub opened: f64,
    /// The latest deadline of its tiers.
    pub until: f64,
    /// Every deadline has passed without a quorum.
    pub overdue: bool,
}

/// A device that has not answered and is waited for.
#[derive(Clone, PartialEq, Debug)]
pub struct LiveWait {
    /// The device that is waited for.
    pub device: DeviceId,
    /// Its tier.
    pub tier: usize,
    /// When it was last heard, if its link seems lost.
    pub silent_since: Option<f64>,
    /// When it is given up.
    pub until: Option<f64>,
}

/// What a tier holds of the model.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TierShape {
    /// Units of all hidden layers.
    pub units: u64,
    /// Parameters of its slice.
    pub parameters: u64,
}

impl TierShape {
    /// Of all tiers, widest first.
    pub fn of(model: &TieredModel) -> Vec<Self> {
        let tiers = model.plans.iter().zip(&model.masks).map(|(plan, mask)| Self {
            units: mask.widths().iter().map(|&width| u64::from(width)).sum(),
            parameters: plan.info.params.into(),
        });
        tiers.collect()
    }
}

/// A tier, with its part in the open exchange.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LiveTier {
    /// What it holds.
    pub shape: TierShape,
    /// Devices of the run.
    pub devices: usize,
    /// Devices that have a connection now.
    pub connected: usize,
    /// Devices that the open exchange asks.
    pub asked: usize,
    /// Devices whose answer is stored.
    pub delivered: usize,
    /// Delivered after the deadline.
    pub late: usize,
    /// Devices that do not take part, with a code.
    pub refused: usize,
    /// Neither answered nor waited for any more.
    pub absent: usize,
    /// Share of the eligible devices that a late exchange needs.
    pub quorum: f64,
    /// Enough of them have delivered.
    pub has_quorum: bool,
    /// The deadline of its devices.
    pub until: Option<f64>,
}

/// A device of the run.
#[derive(Clone, PartialEq, Debug)]
pub struct LiveDevice {
    /// Its name.
    pub device: DeviceId,
    /// Its tier.
    pub tier: usize,
    /// It has a connection now.
    pub connected: bool,
    /// Since the gateway was started.
    pub last_seen: Option<f64>,
    /// In the open exchange.
    pub answer: Answer,
    /// Its answer came after the deadline.
    pub late: bool,
}

/// How far a device has come in the open exchange.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The exchange goes on without it.
    NotAsked,
    /// It has not begun to answer.
    Works,
    /// Its answer waits for a place among the uploads.
    Queued,
    /// Its answer is on its way, or being stored.
    Uploads,
    /// Its answer is stored.
    Delivered,
    /// It does not take part.
    Refused(Code),
    /// Has not answered, and is no longer waited for.
    Absent,
}

/// A refusal since the gateway was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveRefusal {
    /// Who is refused, or refuses.
    pub device: DeviceId,
    /// The device refuses, not the gateway.
    pub by_device: bool,
    /// Why.
    pub code: Code,
}

/// Makes snapshots of a running gateway.
#[derive(Debug)]
pub struct LiveSource {
    driver: Arc<Driver>,
    last: Mutex<Option<(Monotonic, Arc<LiveView>)>>,
}

impl LiveSource {
    pub(crate) fn new(driver: Arc<Driver>) -> Self {
        Self { driver, last: Mutex::default() }
    }

    /// The present state, at most [`FRESH`] old.
    pub fn view(&self) -> Arc<LiveView> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, view)) = &*last
            && made.elapsed() < FRESH
        {
            return view.clone();
        }
        let unix = since_1970().as_secs_f64();
        let since = self.driver.phase_began();
        let view = Arc::new(self.driver.look(|coordinator, now| LiveView::of(coordinator, since, now, unix)));
        *last = Some((Monotonic::now(), view.clone()));
        view
    }

    /// How long the last rounds took, phase by phase.
    pub fn phases(&self) -> Vec<PhaseTimes> {
        self.driver.phase_times()
    }

    /// Begins no further round, or begins rounds again.
    pub fn pause(&self, paused: bool) {
        self.driver
            .with(|coordinator, now| if paused { coordinator.pause() } else { coordinator.resume(now) });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Resolves when the run is over.
    pub async fn finished(&self) {
        self.driver.finished().await;
    }
}

impl LiveView {
    /// `since`: when the present phase began. `unix`: the present time in seconds since 1970.
    pub fn of(coordinator: &Coordinator, since: Instant, now: Instant, unix: f64) -> Self {
        let at = |instant: Instant| unix + (instant.as_millis() as f64 - now.as_millis() as f64) / 1000.0;
        let exchange = coordinator.open_exchange();
        let waiting = coordinator.waiting(now);
        let (waiting_count, waits_long, gathering) = waiting
            .as_ref()
            .map_or((0, false, None), |wait| (wait.devices.len(), wait.is_long, wait.gathering));
        let listed = waiting.iter().flat_map(|wait| &wait.devices).take(LISTED);
        let waiting = listed.map(|line| LiveWait {
            device: line.device.clone(),
            tier: line.tier.index(),
            silent_since: line.silent.map(at),
            until: line.until.map(at),
        });
        Self {
            at: unix,
            run: coordinator.run().to_string(),
            phase: coordinator.phase(),
            since: at(since),
            paused: coordinator.is_paused(),
            committed: coordinator.committed(),
            rounds: coordinator.settings().rounds,
            exchange: exchange.map(|exchange| LiveExchange::of(exchange, coordinator, &at)),
            gathering,
            waits_long,
            waiting: waiting.collect(),
            waiting_count,
            tiers: tiers(coordinator, &at),
            devices: devices(coordinator, &at),
            refusals: coordinator
                .refusals()
                .map(|(device, by, code)| LiveRefusal {
                    device: device.clone(),
                    by_device: by == RefusedBy::Device,
                    code,
                })
                .collect(),
        }
    }

    /// A device of the run.
    pub fn device(&self, name: &str) -> Option<&LiveDevice> {
        let at = self.devices.binary_search_by(|device| device.device.as_str().cmp(name)).ok()?;
        self.devices.get(at)
    }

    /// Devices that are connected and have joined the run.
    pub fn connected(&self) -> usize {
        self.tiers.iter().map(|tier| tier.connected).sum()
    }
}

impl LiveExchange {
    fn of(exchange: &OpenExchange, coordinator: &Coordinator, at: &impl Fn(Instant) -> f64) -> Self {
        let deadlines = &coordinator.settings().deadlines;
        let last = exchange.roster.iter().map(|(_, entry)| deadlines.deadline(entry.tier)).max();
        Self {
            round: exchange.id.round,
            number: exchange.id.exchange.into(),
            kind: kind_name(exchange.kind),
            evaluates: exchange.purpose == Purpose::Evaluate,
            opened: at(exchange.opened),
            until: at(last.map_or(exchange.opened, |last| exchange.opened + last)),
            overdue: exchange.overdue,
        }
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Alone => "train alone",
        Kind::Losses => "losses",
        Kind::Gradients => "gradients",
        Kind::Train => "train",
        Kind::Try => "try steps",
    }
}

fn tiers(coordinator: &Coordinator, at: &impl Fn(Instant) -> f64) -> Vec<LiveTier> {
    let deadlines = &coordinator.settings().deadlines;
    let shapes = (0..).map_while(common::Tier::new).zip(TierShape::of(coordinator.model()));
    let mut tiers: Vec<LiveTier> = shapes
        .map(|(tier, shape)| LiveTier {
            shape,
            quorum: deadlines.quorum_of(tier),
            has_quorum: true,
            ..LiveTier::default()
        })
        .collect();
    for device in coordinator.fleet().devices() {
        if let Some(tier) = tiers.get_mut(device.record.tier.index()) {
            tier.devices += 1;
            tier.connected += usize::from(device.conn.is_some());
        }
    }
    let Some(exchange) = coordinator.open_exchange() else { return tiers };
    let counts = (0..).map_while(common::Tier::new).zip(exchange.roster.tier_counts());
    for ((number, counts), tier) in counts.zip(&mut tiers) {
        tier.asked = counts.asked;
        tier.delivered = counts.delivered;
        tier.refused = counts.refused;
        tier.absent = counts.absent;
        tier.has_quorum = deadlines.has_quorum(number, counts);
        tier.until = (counts.asked > 0).then(|| at(exchange.opened + deadlines.deadline(number)));
    }
    for device in &exchange.late {
        if let Some(entry) = exchange.roster.get(device)
            && let Some(tier) = tiers.get_mut(entry.tier.index())
        {
            tier.late += 1;
        }
    }
    tiers
}

fn devices(coordinator: &Coordinator, at: &impl Fn(Instant) -> f64) -> Vec<LiveDevice> {
    let exchange = coordinator.open_exchange();
    let answer = |device: &DeviceId| {
        let Some((exchange, entry)) = exchange.and_then(|open| Some((open, open.roster.get(device)?))) else {
            return Answer::NotAsked;
        };
        match entry.state {
            AnswerState::Delivered(_) => Answer::Delivered,
            AnswerState::Refused(code) => Answer::Refused(code),
            AnswerState::Storing(_) | AnswerState::Written(_) => Answer::Uploads,
            _ if exchange.roster.absent_since(device).is_some() => Answer::Absent,
            AnswerState::Assigned => Answer::Works,
            AnswerState::Queued(_) => Answer::Queued,
            AnswerState::Uploading(_) => Answer::Uploads,
        }
    };
    let view = |device: &coordinator::fleet::RegisteredDevice| LiveDevice {
        answer: answer(&device.record.device),
        late: exchange.is_some_and(|open| open.late.contains(&device.record.device)),
        device: device.record.device.clone(),
        tier: device.record.tier.index(),
        connected: device.conn.is_some(),
        last_seen: device.liveness.last_heard().map(at),
    };
    coordinator.fleet().devices().map(view).collect()
}
