//! The Coordinator message by message; whole fleets over bad links are in the `tests` package.

use common::{
    Budget, Codec, Duration,
    message::{Blob, DataSummary, Hello, Offer, ToAggregator},
    wire::{self, Frame},
};
use models::{plan::PlanOptions, tiers::TierSpec, zoo};

use super::*;

mod floods;
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
        patience: Patience { deadline_s: 60.0.into(), quorum: 0.5.into(), give_up_s: 0.0 },
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
    }
}

/// The model of the default configuration, and its parameters.
fn model() -> (TieredModel, Vec<f32>) {
    let (graph, parameters) = zoo::by_name("digits-mlp").unwrap().build(0);
    let mask = |rate| TierSpec::rate(rate, false).mask(&graph).unwrap();
    let masks = [1.0, 0.7, 0.5, 0.25, 0.125].map(mask).to_vec();
    let options = PlanOptions { fused: true, ..PlanOptions::train(16) };
    (TieredModel::new(graph, masks, &options).unwrap(), parameters)
}

/// A coordinator and what it has to say.
struct Gateway {
    coordinator: Coordinator,
    now: Instant,
}

impl Gateway {
    fn new(settings: Settings) -> Self {
        Self::reopened(settings, None)
    }

    /// With a round that was open when the aggregator stopped.
    fn reopened(settings: Settings, open: Option<OpenRound>) -> Self {
        let (model, parameters) = model();
        let start =
            Start { run: RunId(1), committed: 0, attempt: 0, devices: vec![], fixed: BTreeMap::new(), open };
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
        let data = DataSummary {
            train_samples: 10,
            test_samples: 2,
            inputs: 64,
            classes: 10,
            ..DataSummary::default()
        };
        let budget = Budget { ram, ..Budget::UNLIMITED };
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

    /// Opens the round and says who was asked.
    fn open_some(&mut self) -> Vec<(DeviceId, Tier)> {
        let seats = self.actions().into_iter().find_map(|action| match action {
            Action::OpenRound { seats, .. } => Some(seats),
            _ => None,
        });
        let train = |(device, tier): &(DeviceId, Tier)| {
            (device.clone(), *tier, Task::Train(Brief::sgd(1, 16, 0.1, 1)))
        };
        let seats = seats.unwrap();
        let asked = seats.iter().map(train).collect();
        let exchange =
            Announcement { round: 1, number: 0, kind: Kind::Train, lr: 0.1, seats: asked, guide: vec![] };
        self.coordinator.handle_opened(exchange, self.now);
        seats
    }

    /// Opens the round and gives every device's assignment.
    fn open(&mut self, conns: std::ops::Range<u64>) -> Vec<common::message::Assignment> {
        let opened = self.actions().into_iter().find_map(|action| match action {
            Action::OpenRound { number, seats, .. } => Some((number, seats)),
            _ => None,
        });
        let (round, seats) = opened.unwrap();
        let train = |(device, tier)| (device, tier, Task::Train(Brief::sgd(1, 16, 0.1, 1)));
        let seats = seats.into_iter().map(train).collect();
        let exchange = Announcement { round, number: 0, kind: Kind::Train, lr: 0.1, seats, guide: vec![] };
        self.coordinator.handle_opened(exchange, self.now);
        let assigned = |said: Vec<ToDevice>| {
            said.into_iter().find_map(|message| match message {
                ToDevice::Assignment(assignment) => Some(assignment),
                _ => None,
            })
        };
        conns.map(|conn| assigned(self.say(conn)).unwrap()).collect()
    }
}

/// Only the process that closes a round can send receipts that were lost, so it closes none before a device is back.
#[test]
fn a_round_that_was_complete_at_a_restart_closes_once_a_device_is_there() {
    let tier = Tier::new(0).unwrap();
    let seats = vec![(id("d0"), tier, Task::Train(Brief::sgd(1, 16, 0.1, 1)))];
    let exchange = Announcement { round: 1, number: 0, kind: Kind::Train, lr: 0.1, seats, guide: vec![] };
    let delivered = vec![(id("d0"), Scalars { samples: 10, loss_before: 2.3, ..Scalars::default() })];
    let open = OpenRound { exchange, wanted: vec![], delivered };
    let mut gateway = Gateway::reopened(settings(1), Some(open));
    gateway.coordinator.heed_silence(gateway.now);
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
    let update = Blob { transfer: assignment.ticket.round, bytes, check: 0 };
    Offer { ticket: assignment.ticket, update, model_check: assignment.model.check, scalars }
}

#[test]
fn a_device_gets_the_widest_tier_that_fits_or_learns_what_is_missing() {
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

#[test]
fn a_round_opens_when_the_fleet_is_there_and_closes_late_with_a_quorum_only() {
    let mut gateway = Gateway::new(settings(3));
    for conn in 0..3 {
        assert!(gateway.coordinator.round().is_none());
        gateway.join(conn, u64::MAX).unwrap();
    }
    let assignments = gateway.open(0..3);
    assert_eq!(assignments[0].ticket.round, 1);
    // One of three is no quorum.
    let bytes = assignments[0].model.bytes;
    gateway.hear(0, &ToAggregator::Offer(offer(&assignments[0], bytes))).unwrap();
    gateway.coordinator.set_delivered(&id("d0"), gateway.now);
    gateway.wait(MINUTE);
    assert!(gateway.coordinator.round().is_some_and(|round| round.overdue));
    assert_eq!(gateway.coordinator.poll_timeout(), None, "nothing to wait for but devices");
    gateway.coordinator.set_delivered(&id("d1"), gateway.now);
    gateway.wait(Duration::from_millis(1));
    match gateway.actions().as_slice() {
        [Action::Close(closed)] => {
            assert_eq!(closed.delivered.len(), 2);
            assert_eq!(closed.silent, [(id("d2"), Tier::new(0).unwrap())]);
        }
        other => panic!("{other:?}"),
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
fn every_tier_has_its_own_deadline_and_slow_hardware_is_not_dropped() {
    let mut settings = settings(5);
    settings.patience.deadline_s = strategies::strategy::PerTier::Each(vec![10.0, 60.0, 1.0, 1.0, 1.0]);
    let mut gateway = unequal(settings);
    gateway.open(0..5);
    ["d0", "d1"].iter().for_each(|name| gateway.coordinator.set_delivered(&id(name), gateway.now));
    // Tiers that nobody belongs to are not waited for.
    assert_eq!(gateway.coordinator.poll_timeout(), Some(Instant::ZERO + Duration::from_secs(10)));
    gateway.wait(Duration::from_secs(10));
    assert!(closed(&mut gateway).is_none(), "the wide tier is complete, the narrow one has time");
    assert_eq!(gateway.coordinator.poll_timeout(), Some(Instant::ZERO + MINUTE));
    gateway.coordinator.set_delivered(&id("d2"), gateway.now);
    gateway.wait(Duration::from_secs(50));
    assert!(closed(&mut gateway).is_none(), "one of three is no quorum, though three of five would be");
    assert_eq!(gateway.coordinator.poll_timeout(), None);
    gateway.coordinator.handle_disconnected(ConnId(4), gateway.now);
    gateway.coordinator.set_storing(&id("d3"));
    gateway.now = gateway.now + SECOND;
    let ticket = Ticket { run: RunId(1), round: 1, exchange: 0, attempt: 0 };
    gateway.coordinator.handle_stored(&id("d3"), ticket, Ok(()), gateway.now);
    let closed = closed(&mut gateway).unwrap();
    let narrow = Tier::new(1).unwrap();
    assert_eq!((closed.delivered.len(), &closed.silent[..]), (4, &[(id("d4"), narrow)][..]));
    assert_eq!((&closed.gone[..], &closed.late[..]), (&[(id("d4"), narrow)][..], &[(id("d3"), narrow)][..]));
}

#[test]
fn a_tier_without_quorum_is_given_up_in_the_end() {
    for delivered in [0, 2] {
        let mut settings = settings(5);
        settings.patience.give_up_s = 240.0;
        let mut gateway = unequal(settings);
        gateway.open(0..5);
        (0..delivered).for_each(|at| gateway.coordinator.set_delivered(&id(&format!("d{at}")), gateway.now));
        gateway.wait(MINUTE);
        assert!(closed(&mut gateway).is_none());
        assert_eq!(gateway.coordinator.poll_timeout(), Some(Instant::ZERO + Duration::from_secs(240)));
        gateway.wait(Duration::from_secs(179));
        assert!(closed(&mut gateway).is_none());
        gateway.wait(SECOND);
        let closed = closed(&mut gateway).unwrap();
        assert_eq!((closed.delivered.len(), closed.silent.len()), (delivered, 5 - delivered));
        // The next round does not ask who is gone.
        (2..5).for_each(|conn| gateway.coordinator.handle_disconnected(ConnId(conn), gateway.now));
    }
}

#[test]
fn more_are_asked_than_wanted_and_the_first_of_each_tier_are_enough() {
    let mut settings = settings(5);
    (settings.participation, settings.over_selection) = (0.6, 1.4);
    let mut gateway = unequal(settings);
    let seats = gateway.open_some();
    let of = |tier: usize| -> Vec<DeviceId> {
        seats.iter().filter(|(_, own)| own.index() == tier).map(|(device, _)| device.clone()).collect()
    };
    let wanted = gateway.coordinator.round().unwrap().wanted.clone();
    assert_eq!(wanted.iter().sum::<usize>(), 3);
    assert!(seats.len() > 3, "{seats:?}");
    for (tier, &wanted) in wanted.iter().enumerate().filter(|(_, wanted)| **wanted > 0) {
        let own = of(tier);
        assert!(own.len() >= wanted && own.len() <= wanted + 2);
        assert!(closed(&mut gateway).is_none());
        own.iter().take(wanted).for_each(|device| gateway.coordinator.set_delivered(device, gateway.now));
        gateway.wait(SECOND);
    }
    let closed = closed(&mut gateway).unwrap();
    assert_eq!((closed.delivered.len(), closed.silent.len()), (3, seats.len() - 3));
}

#[test]
fn devices_without_work_are_told_different_times() {
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
fn what_does_not_fit_the_assignment_is_refused_before_a_byte_is_fetched() {
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
    assert!(gateway.coordinator.round().is_some(), "an answer to another round says nothing about this one");
    let wrong_model = Offer { model_check: !good.model_check, ..good };
    gateway.hear(0, &ToAggregator::Offer(wrong_model)).unwrap();
    assert_eq!(refused(gateway.say(0)), Some(Code::WrongModel));
}

#[test]
fn an_update_makes_room_once_it_is_written_and_is_acknowledged_once_it_is_durable() {
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
    wire::encode_chunk(1, 0, data.len(), &mut frame, |to| to.copy_from_slice(&data)).unwrap();
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
    /// As if the device's update had arrived and were on its way to the disk.
    fn set_storing(&mut self, device: &DeviceId) {
        if let Phase::Collecting(round) = &mut self.phase {
            round.seats.set(device, Seat::Storing(Scalars::default()));
        }
    }

    /// As if the device's update had arrived and were durable.
    fn set_delivered(&mut self, device: &DeviceId, now: Instant) {
        self.hear(device, now);
        let scalars = Scalars {
            samples: 1,
            loss_before: 1.0,
            loss_after: None,
            test: None,
            steps: 1,
            ..Scalars::default()
        };
        if let Phase::Collecting(round) = &mut self.phase {
            round.seats.set(device, Seat::Delivered(scalars));
        }
        self.note_answer(device, true, now);
    }
}
