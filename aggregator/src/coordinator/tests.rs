//! The Coordinator message by message; whole fleets over bad links are in the `tests` package.

use common::{
    Budget, Codec, Duration,
    message::{Blob, DataSummary, Hello, Offer, ToAggregator},
    wire::{self, Frame},
};
use models::zoo;

use super::*;
use crate::server::open_model;

const MINUTE: Duration = Duration::from_secs(60);

fn id(name: &str) -> DeviceId {
    name.parse().unwrap()
}

fn settings(devices: usize) -> Settings {
    Settings {
        rounds: 3,
        min_devices: devices,
        participation: 1.0,
        patience: Patience { deadline: MINUTE, quorum: 0.5 },
        brief: Brief::sgd(1, 16, 0.1, 1),
        lr: 0.1,
        lr_decay: 0.5,
        seed: 1,
        down: Codec::F32,
        max_uploads: 8,
        limits: LinkLimits::QUIC,
        needs: Needs::default(),
    }
}

/// A coordinator and what it has to say.
struct Gateway {
    coordinator: Coordinator,
    now: Instant,
}

impl Gateway {
    fn new(settings: Settings) -> Self {
        let (model, parameters) =
            open_model(&crate::config::Config::default(), crate::strategy::Needs::default()).unwrap();
        assert_eq!(parameters.len(), zoo::by_name("digits-mlp").unwrap().build(0).1.len());
        let start =
            Start { run: RunId(1), committed: 0, devices: vec![], fixed: BTreeMap::new(), open: None };
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
                said.push(wire::message(body).unwrap());
            }
        }
        said
    }

    /// Connects `dN` with this much RAM.
    fn join(&mut self, conn: u64, ram: u64) -> Result<(), Code> {
        let device = id(&format!("d{conn}"));
        self.coordinator.handle_connected(ConnId(conn), device.clone());
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

    /// Opens the round and gives every device's assignment.
    fn open(&mut self, conns: std::ops::Range<u64>) -> Vec<common::message::Assignment> {
        let opened = self.actions().into_iter().find_map(|action| match action {
            Action::OpenRound { number, seats } => Some((number, seats)),
            _ => None,
        });
        let (round, seats) = opened.unwrap();
        let train = |(device, tier)| (device, tier, Task::Train(Brief::sgd(1, 16, 0.1, 1)));
        let seats = seats.into_iter().map(train).collect();
        let stage = Stage { round, number: 0, kind: Kind::Train, lr: 0.1, seats, guide: vec![] };
        self.coordinator.handle_opened(stage, self.now);
        let assigned = |said: Vec<ToDevice>| {
            said.into_iter().find_map(|message| match message {
                ToDevice::Assignment(assignment) => Some(assignment),
                _ => None,
            })
        };
        conns.map(|conn| assigned(self.say(conn)).unwrap()).collect()
    }
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
    gateway.coordinator.set_delivered(&id("d0"));
    gateway.wait(MINUTE);
    assert!(gateway.coordinator.round().is_some_and(|round| round.overdue));
    assert_eq!(gateway.coordinator.poll_timeout(), None, "nothing to wait for but devices");
    gateway.coordinator.set_delivered(&id("d1"));
    gateway.wait(Duration::from_millis(1));
    match gateway.actions().as_slice() {
        [Action::Close(closed)] => {
            assert_eq!(closed.delivered.len(), 2);
            assert_eq!(closed.silent, [(id("d2"), Tier::new(0).unwrap())]);
        }
        other => panic!("{other:?}"),
    }
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

impl Coordinator {
    /// As if the device's update had arrived and were durable.
    fn set_delivered(&mut self, device: &DeviceId) {
        let scalars = Scalars {
            samples: 1,
            loss_before: 1.0,
            loss_after: None,
            test: None,
            steps: 1,
            ..Scalars::default()
        };
        if let Phase::Collecting(round) = &mut self.phase
            && let Some((_, seat)) = round.seats.get_mut(device)
        {
            *seat = Seat::Delivered(scalars);
        }
    }
}
