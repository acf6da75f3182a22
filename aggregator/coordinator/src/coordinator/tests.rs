//! The Coordinator message by message; whole fleets over bad links are in the `tests` package.

use std::collections::BTreeMap;

use common::{
    Budget, Codec, Duration, TransferId,
    message::{Blob, DataSummary, Hello, Offer, ToAggregator},
    wire::{self, Frame},
};
use models::{plan::PlanOptions, tiers::TierSpec, zoo};

use super::*;
use crate::{
    announcement::AskedDevice, best::BestSettings, exchange::ClosedExchange, pacing::Deadlines,
    record::DeviceInTier,
};
use common::{
    Code, ExchangeId, Tier,
    brief::Brief,
    message::{Scalars, Task},
    transfer::LinkLimits,
};
use strategies::strategy::{Kind, Needs};

mod deadlines;
mod floods;
mod returning;
mod silence;
mod versions;

const MINUTE: Duration = Duration::from_secs(60);

fn id(name: &str) -> DeviceId {
    name.parse().unwrap()
}

fn settings(devices: usize) -> Settings {
    Settings {
        rounds: 3,
        min_devices: devices,
        participation: 1.0,
        deadlines: Deadlines { deadline_s: 60.0.into(), quorum: 0.5.into(), give_up_s: 0.0 },
        over_selection: 1.0,
        arrivals_per_s: 100.0,
        brief: Brief::sgd(1, 16, 0.1, 1),
        lr: 0.1,
        lr_decay: 0.5,
        seed: 1,
        down: Codec::F32.into(),
        up: Codec::F32.into(),
        max_uploads: 8,
        limits: LinkLimits::QUIC,
        needs: Needs::default(),
        validate: false,
        best: BestSettings::default(),
        divergence: 10.0,
    }
}

/// The samples of every device.
fn data() -> DataSummary {
    DataSummary { train_samples: 10, test_samples: 2, inputs: 64, classes: 10, ..DataSummary::default() }
}

/// The model of the default configuration, and its parameters.
fn model() -> (TieredModel, Vec<f32>) {
    let (graph, parameters) = zoo::by_name("digits-mlp").unwrap().build(0);
    let mask = |rate| TierSpec::rate(rate, false).mask(&graph).unwrap();
    let masks = [1.0, 0.7, 0.5, 0.25, 0.125].map(mask).to_vec();
    let options = PlanOptions { fused: true, ..PlanOptions::train(16) };
    (TieredModel::new(graph, masks, &options).unwrap(), parameters)
}

/// A coordinator and the time.
struct Gateway {
    coordinator: Coordinator,
    now: Instant,
}

impl Gateway {
    fn new(settings: Settings) -> Self {
        Self::reopened(settings, None)
    }

    /// With an exchange that was open when the aggregator stopped.
    fn reopened(settings: Settings, reopened: Option<ReopenedExchange>) -> Self {
        Self::serving(model(), settings, reopened)
    }

    /// With this model.
    fn serving(
        (model, parameters): (TieredModel, Vec<f32>),
        settings: Settings,
        reopened: Option<ReopenedExchange>,
    ) -> Self {
        let start = Start {
            run: RunId(1),
            committed: 0,
            attempt: 0,
            devices: vec![],
            fixed: BTreeMap::new(),
            reopened,
        };
        Self {
            coordinator: Coordinator::new(settings, model, &parameters, start, Instant::ZERO),
            now: Instant::ZERO,
        }
    }

    fn hear(&mut self, conn: u64, message: &ToAggregator) -> Result<(), Code> {
        let mut frame = [0; wire::MAX_CONTROL];
        let len = wire::encode_control(message, &mut frame).unwrap();
        self.coordinator.handle_frame(ConnId(conn), &frame[..len], self.now)
    }

    fn say(&mut self, conn: u64) -> Vec<ToDevice> {
        let (mut said, mut out) = (vec![], vec![]);
        while self.coordinator.poll_transmit(ConnId(conn), &mut out).is_some() {
            if let Ok(Frame::Control(body)) = Frame::decode(&out) {
                said.push(wire::control(body).unwrap().0);
            }
        }
        said
    }

    /// Connects `dN` with this much RAM.
    fn join(&mut self, conn: u64, ram: u64) -> Result<(), Code> {
        self.coordinator.handle_connected(ConnId(conn), id(&format!("d{conn}")));
        self.hello(conn, ram)
    }

    fn hello(&mut self, conn: u64, ram: u64) -> Result<(), Code> {
        let device = id(&format!("d{conn}"));
        let (data, budget) = (data(), Budget { ram, ..Budget::UNLIMITED });
        self.hear(
            conn,
            &ToAggregator::Hello(Hello { device, budget, data, max_chunk: 1 << 16, max_nodes: 64 }),
        )
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.coordinator.poll_action()).collect()
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        self.coordinator.handle_timeout(self.now);
    }

    /// Opens the round and returns the devices that were asked.
    fn open_some(&mut self) -> Vec<DeviceInTier> {
        let (round, selected) = self.actions().into_iter().find_map(round_to_open).unwrap();
        self.coordinator.handle_opened(training(round, &selected), self.now);
        selected
    }

    /// Opens the round and returns the assignment of each device.
    fn open(&mut self, conns: std::ops::Range<u64>) -> Vec<common::message::Assignment> {
        self.open_some();
        let assigned = |said: Vec<ToDevice>| {
            said.into_iter().find_map(|message| match message {
                ToDevice::Assignment(assignment) => Some(assignment),
                _ => None,
            })
        };
        conns.map(|conn| assigned(self.say(conn)).unwrap()).collect()
    }
}

/// The round that the driver is asked to open, and its devices.
fn round_to_open(action: Action) -> Option<(u32, Vec<DeviceInTier>)> {
    match action {
        Action::OpenRound { round, selected, .. } => Some((round, selected)),
        _ => None,
    }
}

/// All of them are asked to train.
fn training(round: u32, selected: &[DeviceInTier]) -> Announcement {
    let train = |selected: &DeviceInTier| AskedDevice {
        device: selected.device.clone(),
        tier: selected.tier,
        task: Task::Train(Brief::sgd(1, 16, 0.1, 1)),
    };
    let (id, asked) = (ExchangeId { round, exchange: 0 }, selected.iter().map(train).collect());
    Announcement { id, kind: Kind::Train, lr: 0.1, asked, guide: vec![] }
}

fn in_tier(name: &str, index: usize) -> DeviceInTier {
    DeviceInTier { device: id(name), tier: Tier::new(index).unwrap() }
}

/// Only the process that closes a round can repeat lost receipts, so it closes none before a device is connected.
#[test]
fn a_round_that_was_complete_at_a_restart_closes_once_a_device_is_connected() {
    let scalars = Scalars { samples: 10, loss_before: 2.3, ..Scalars::default() };
    let reopened = ReopenedExchange {
        announcement: training(1, &[in_tier("d0", 0)]),
        wanted: vec![],
        delivered: [(id("d0"), scalars)].into(),
    };
    let mut gateway = Gateway::reopened(settings(1), Some(reopened));
    gateway.coordinator.detect_silence(gateway.now);
    gateway.wait(MINUTE);
    assert!(gateway.actions().is_empty());
    gateway.join(0, u64::MAX).unwrap();
    assert!(gateway.actions().iter().any(|action| matches!(action, Action::Close(_))));
}

fn offer(assignment: &common::message::Assignment, bytes: u32) -> Offer {
    let scalars = Scalars {
        samples: 10,
        loss_before: 2.3,
        loss_after: None,
        test: None,
        steps: 1,
        ..Scalars::default()
    };
    let update = Blob { transfer: TransferId(assignment.ticket.round), bytes, check: 0 };
    Offer { ticket: assignment.ticket, update, model_check: assignment.model.check, scalars }
}

#[test]
fn a_paused_run_ends_its_round_and_begins_no_other_one() {
    let mut gateway = Gateway::new(settings(1));
    gateway.coordinator.pause();
    gateway.join(0, u64::MAX).unwrap();
    assert!(gateway.actions().iter().all(|action| !matches!(action, Action::OpenRound { .. })));
    assert_eq!(
        (gateway.coordinator.phase(), gateway.coordinator.waiting(gateway.now)),
        (PhaseName::Gathering, None)
    );
    gateway.coordinator.resume(gateway.now);
    gateway.open(0..1);
    assert_eq!(gateway.coordinator.phase(), PhaseName::Collecting);
    gateway.coordinator.pause();
    assert_eq!(gateway.coordinator.phase(), PhaseName::Collecting, "the open round goes on");
}

#[test]
fn refusals_stay_known_and_signs_of_life_are_dated() {
    let mut gateway = Gateway::new(settings(9));
    assert_eq!(gateway.join(2, 100), Err(Code::DoesNotFit));
    let known: Vec<_> =
        gateway.coordinator.refusals().map(|(device, by, code)| (device.clone(), by, code)).collect();
    assert_eq!(known, [(id("d2"), RefusedBy::Aggregator, Code::DoesNotFit)]);
    gateway.join(0, u64::MAX).unwrap();
    gateway.now = gateway.now + MINUTE;
    gateway.hear(0, &ToAggregator::Ready).unwrap();
    let heard = gateway.coordinator.fleet().get(&id("d0")).unwrap().liveness.last_heard();
    assert_eq!(heard, Some(gateway.now));
}

#[test]
fn a_device_gets_the_widest_tier_that_fits_or_is_told_what_it_lacks() {
    let mut gateway = Gateway::new(settings(9));
    let tier = |gateway: &mut Gateway, conn| match gateway.say(conn).as_slice() {
        [ToDevice::Welcome(welcome)] => (welcome.tier.index(), welcome.plan.arena_bytes()),
        other => panic!("{other:?}"),
    };
    gateway.join(0, u64::MAX).unwrap();
    let (widest, need) = tier(&mut gateway, 0);
    assert_eq!(widest, 0);
    gateway.join(1, need - 1).unwrap();
    assert_eq!(tier(&mut gateway, 1).0, 1);
    assert_eq!(gateway.join(2, 100), Err(Code::DoesNotFit));
    match gateway.say(2).as_slice() {
        [ToDevice::Refusal(refusal)] => assert!(refusal.need > 1000 && refusal.have == 100, "{refusal:?}"),
        other => panic!("{other:?}"),
    }
    assert!(gateway.actions().iter().any(|action| matches!(action, Action::Disconnect(ConnId(2)))));
}

/// What `fairtier model plan --ram` promises is assigned: fewer samples per pass instead of a refusal.
#[test]
fn a_device_for_which_no_tier_fits_gets_a_sparing_plan() {
    let (graph, parameters) = zoo::by_name("digits-cnn").unwrap().build(1);
    let mask = |rate| TierSpec::rate(rate, false).mask(&graph).unwrap();
    let masks: Vec<_> = [1.0, 0.5].map(mask).to_vec();
    for fused in [true, false] {
        let options = PlanOptions { fused, ..PlanOptions::train(16) };
        let model = TieredModel::new(graph.clone(), masks.clone(), &options).unwrap();
        let most = model.plans[1].info.arena_bytes();
        let smallest = model.sparing(Tier::new(1).unwrap(), 0).unwrap_err();
        assert!(smallest < most, "{smallest} {most}");
        for ram in [most - 1, smallest] {
            let mut gateway = Gateway::serving((model.clone(), parameters.clone()), settings(9), None);
            gateway.join(0, ram).unwrap();
            let (tier, info) = match gateway.say(0).as_slice() {
                [ToDevice::Welcome(welcome)] => (welcome.tier, welcome.plan),
                other => panic!("{other:?}"),
            };
            assert!(info.arena_bytes() <= ram && info.batch < 16, "{info:?}");
            // Gradients are clipped in some runs, which needs them kept.
            assert!(info.segments.grads.is_some());
            assert_eq!(info.params, model.plans[tier.index()].info.params);
            // All of the Plan arrives, and it is valid.
            let (mut nodes, mut steps) = (vec![], vec![]);
            while nodes.len() < info.nodes.into() || steps.len() < info.schedule.into() {
                let request =
                    ToAggregator::PlanRequest { node: nodes.len() as u16, step: steps.len() as u16 };
                gateway.hear(0, &request).unwrap();
                match gateway.say(0).into_iter().next() {
                    Some(ToDevice::PlanPart(part)) if part.digest == info.digest => {
                        assert!(!part.nodes.is_empty() || !part.steps.is_empty());
                        nodes.extend(part.nodes);
                        steps.extend(part.steps);
                    }
                    other => panic!("{other:?}"),
                }
            }
            common::plan::Plan::check(&info, &nodes, &steps).unwrap();
        }
        let mut gateway = Gateway::serving((model, parameters.clone()), settings(9), None);
        assert_eq!(gateway.join(0, smallest - 1), Err(Code::DoesNotFit));
        match gateway.say(0).as_slice() {
            [ToDevice::Refusal(refusal)] => {
                assert_eq!((refusal.need, refusal.have), (smallest, smallest - 1));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Two wide devices and three that only hold a narrower tier.
fn unequal(settings: Settings) -> Gateway {
    let mut gateway = Gateway::new(settings);
    gateway.join(0, u64::MAX).unwrap();
    let wide = match gateway.say(0).as_slice() {
        [ToDevice::Welcome(welcome)] => welcome.plan.arena_bytes(),
        other => panic!("{other:?}"),
    };
    for conn in 1..5 {
        gateway.join(conn, if conn < 2 { wide } else { wide - 1 }).unwrap();
        gateway.say(conn);
    }
    gateway
}

fn closed(gateway: &mut Gateway) -> Option<ClosedExchange> {
    gateway.actions().into_iter().find_map(|action| match action {
        Action::Close(closed) => Some(closed),
        _ => None,
    })
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn devices_without_work_are_told_different_waits() {
    let mut gateway = Gateway::new(settings(100));
    let mut waits = vec![];
    for conn in 0..50 {
        gateway.join(conn, u64::MAX).unwrap();
        gateway.say(conn);
        gateway.hear(conn, &ToAggregator::Ready).unwrap();
        match gateway.say(conn).as_slice() {
            [ToDevice::Wait(span)] => waits.push(span.as_millis()),
            other => panic!("{other:?}"),
        }
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 45 && waits.iter().all(|wait| (10_000..=30_000).contains(wait)));
}

#[test]
fn the_learning_rate_decays_from_the_second_round_on() {
    let settings = settings(1);
    assert_eq!([1, 2, 3].map(|round| settings.lr_of(round)), [0.1, 0.05, 0.025]);
}

#[test]
fn an_offer_that_does_not_match_the_assignment_is_refused_before_a_byte_is_fetched() {
    let mut gateway = Gateway::new(settings(1));
    gateway.join(0, u64::MAX).unwrap();
    let assignment = gateway.open(0..1).remove(0);
    let good = offer(&assignment, assignment.model.bytes);
    let wrong_round = Offer { ticket: Ticket { round: 9, ..good.ticket }, ..good.clone() };
    gateway.hear(0, &ToAggregator::Offer(wrong_round)).unwrap();
    let refused = |said: Vec<ToDevice>| match said.as_slice() {
        [ToDevice::Receipt(receipt)] => receipt.refused,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(gateway.say(0)), Some(Code::WrongRound));
    assert!(
        gateway.coordinator.open_exchange().is_some(),
        "an answer to another round does not count in this one"
    );
    let wrong_model = Offer { model_check: !good.model_check, ..good };
    gateway.hear(0, &ToAggregator::Offer(wrong_model)).unwrap();
    assert_eq!(refused(gateway.say(0)), Some(Code::WrongModel));
}

#[test]
fn a_written_update_frees_its_place_and_a_durable_one_is_acknowledged() {
    let mut gateway = Gateway::new(Settings { max_uploads: 1, ..settings(2) });
    (0..2).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    let assignments = gateway.open(0..2);
    for (conn, assignment) in (0..).zip(&assignments) {
        let offer = offer(assignment, assignment.model.bytes);
        gateway.hear(conn, &ToAggregator::Offer(offer)).unwrap();
    }
    let fetches = |said: Vec<ToDevice>| said.iter().any(|said| matches!(said, ToDevice::Fetch(_)));
    assert!(fetches(gateway.say(0)) && !fetches(gateway.say(1)));
    let data = vec![0; assignments[0].model.bytes as usize];
    let mut frame = vec![0; data.len() + wire::CHUNK_OVERHEAD];
    wire::encode_chunk(TransferId(1), 0, data.len(), &mut frame, |to| to.copy_from_slice(&data)).unwrap();
    gateway.coordinator.handle_frame(ConnId(0), &frame, gateway.now).unwrap();
    let update = gateway.actions().into_iter().find_map(|action| match action {
        Action::Store(update) => Some(update),
        _ => None,
    });
    let StoredUpdate { device, ticket, payload, .. } = update.unwrap();
    assert!(!fetches(gateway.say(1)), "the first one is still in memory");
    let receipts = |said: Vec<ToDevice>| said.iter().any(|said| matches!(said, ToDevice::Receipt(_)));
    gateway.coordinator.handle_written(&device, ticket, payload, gateway.now);
    assert!(fetches(gateway.say(1)) && !receipts(gateway.say(0)));
    gateway.coordinator.handle_stored(&device, ticket, Ok(()), gateway.now);
    assert!(receipts(gateway.say(0)));
}

impl Coordinator {
    /// As if the device's update were complete and being stored.
    fn set_storing(&mut self, device: &DeviceId) {
        if let Phase::Collecting(exchange) = &mut self.phase {
            exchange.roster.set(device, AnswerState::Storing(Scalars::default()));
        }
    }

    /// As if the device's update were durable.
    fn set_delivered(&mut self, device: &DeviceId, now: Instant) {
        self.note_heard(device, now);
        let scalars = Scalars {
            samples: 1,
            loss_before: 1.0,
            loss_after: None,
            test: None,
            steps: 1,
            ..Scalars::default()
        };
        if let Phase::Collecting(exchange) = &mut self.phase {
            exchange.roster.set(device, AnswerState::Delivered(scalars));
        }
        self.note_answer(device, true, now);
    }
}
