//! Devices that never answer, that leave, or that are slow.

use common::message::Progress;

use super::*;
use crate::pacing::NEW_DEVICE_SILENCE;

/// Deadlines of an hour, so that only silence ends a wait.
fn watched(devices: usize) -> Settings {
    let mut settings = Settings { rounds: 10_000, ..settings(devices) };
    settings.deadlines.deadline_s = 3600.0.into();
    settings
}

fn detecting(mut gateway: Gateway) -> Gateway {
    gateway.coordinator.detect_silence(gateway.now);
    gateway
}

impl Gateway {
    fn progress(&mut self, conn: u64) {
        let Some(exchange) = self.coordinator.open_exchange() else { return };
        let ticket = self.coordinator.ticket(exchange);
        self.hear(conn, &ToAggregator::Progress(Progress { ticket, step: 1, steps: 2 })).unwrap();
    }

    fn deliver(&mut self, conn: u64) {
        self.coordinator.set_delivered(&id(&format!("d{conn}")), self.now);
        self.coordinator.handle_timeout(self.now);
    }

    fn commit(&mut self) {
        let published = self.coordinator.published.clone();
        self.coordinator.handle_committed(published, self.now);
    }

    /// Lets time pass in steps until the round closes; `every` is called at each step with the time passed.
    fn wait_closed(&mut self, mut every: impl FnMut(&mut Self, Duration)) -> (Duration, ClosedExchange) {
        let begun = self.now;
        for _ in 0..1_000_000 {
            if let Some(closed) = closed(self) {
                return (self.now - begun, closed);
            }
            self.wait(Duration::from_millis(100));
            let since = self.now - begun;
            every(self, since);
        }
        panic!("the round is still open");
    }

    /// A round in which all but these deliver after `time`.
    fn round_without(
        &mut self,
        devices: std::ops::Range<u64>,
        silent: &[u64],
        time: Duration,
    ) -> (Duration, ClosedExchange) {
        self.open_for(devices.clone());
        self.wait(time);
        // Devices that are not always waited for come first.
        devices.rev().filter(|conn| !silent.contains(conn)).for_each(|conn| self.deliver(conn));
        let (waited, closed) = self.wait_closed(|_, _| {});
        self.commit();
        (time.plus(waited), closed)
    }

    /// Opens the round and drops its messages.
    fn open_for(&mut self, devices: std::ops::Range<u64>) {
        self.open_some();
        devices.for_each(|conn| _ = self.say(conn));
    }
}

const FAST: Duration = Duration::from_millis(100);

/// A gateway whose devices have answered eight rounds fast.
fn experienced(devices: u64, settings: Settings) -> Gateway {
    let mut gateway = detecting(Gateway::new(settings));
    (0..devices).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    for _ in 0..8 {
        assert_eq!(gateway.round_without(0..devices, &[], FAST).0, FAST);
    }
    gateway
}

#[test]
fn a_killed_device_delays_one_round_by_seconds_and_later_ones_not_at_all() {
    let mut gateway = experienced(3, watched(3));
    let (took, closed) = gateway.round_without(0..3, &[2], FAST);
    assert!(took >= SECOND && took <= Duration::from_secs(3), "{took:?}");
    assert_eq!(closed.silent.len(), 1, "it is reported as silent");
    for _ in 0..20 {
        assert_eq!(gateway.round_without(0..3, &[2], FAST).0, FAST);
    }
}

/// All devices of the narrow tier fall silent or lose their link.
#[test]
fn a_tier_that_vanishes_does_not_delay_the_others() {
    for link_lost in [false, true] {
        let mut gateway = detecting(unequal(watched(5)));
        (0..8).for_each(|_| _ = gateway.round_without(0..5, &[], FAST));
        gateway.open_for(0..5);
        [0, 1].iter().for_each(|&conn| gateway.deliver(conn));
        if link_lost {
            (2..5).for_each(|conn| gateway.coordinator.handle_disconnected(ConnId(conn), gateway.now));
        }
        let (took, closed) = gateway.wait_closed(|_, _| {});
        assert!(took <= Duration::from_secs(3), "{took:?}");
        assert_eq!((closed.delivered.len(), closed.silent.len()), (2, 3));
    }
}

#[test]
fn a_device_that_said_hello_and_left_delays_the_first_round_by_seconds() {
    let mut gateway = detecting(Gateway::new(watched(3)));
    (0..3).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    gateway.open_for(0..3);
    gateway.coordinator.handle_disconnected(ConnId(2), gateway.now);
    [0, 1].iter().for_each(|&conn| gateway.deliver(conn));
    let (took, closed) = gateway.wait_closed(|_, _| {});
    assert!(took <= Duration::from_secs(3), "{took:?}");
    assert_eq!((closed.delivered.len(), closed.gone.len()), (2, 1));
}

/// All devices of the first round leave; one that connects later does not wait for them.
#[test]
fn a_round_whose_devices_have_all_left_ends_when_another_device_connects() {
    let mut gateway = detecting(Gateway::new(watched(2)));
    (0..2).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    gateway.open_for(0..2);
    (0..2).for_each(|conn| gateway.coordinator.handle_disconnected(ConnId(conn), gateway.now));
    gateway.wait(MINUTE);
    assert!(closed(&mut gateway).is_none(), "no device is left for a next round");
    gateway.join(2, u64::MAX).unwrap();
    assert_eq!(closed(&mut gateway).map(|closed| closed.silent.len()), Some(2));
}

#[test]
fn a_new_silent_device_delays_the_round_by_the_allowance_for_new_devices() {
    let mut gateway = detecting(Gateway::new(watched(2)));
    (0..2).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    let (took, _) = gateway.round_without(0..2, &[1], FAST);
    assert!(took >= NEW_DEVICE_SILENCE && took <= NEW_DEVICE_SILENCE.plus(SECOND), "{took:?}");
    // Later rounds do not wait for it, whether it comes back or not.
    gateway.progress(1);
    assert_eq!(gateway.round_without(0..2, &[1], FAST).0, FAST);
}

/// One device is twenty times slower than the others, from its first round on.
#[test]
fn slow_hardware_takes_part_in_every_round_from_its_first_one() {
    let (slow, rounds) = (FAST.times(200), 30);
    let mut gateway = detecting(unequal(watched(5)));
    for _ in 0..rounds {
        gateway.open_for(0..5);
        gateway.wait(FAST.times(10));
        (0..4).for_each(|conn| gateway.deliver(conn));
        let (took, closed) = gateway.wait_closed(|gateway, since| {
            // As often as a training Session.
            if since.as_millis().is_multiple_of(5000) {
                gateway.progress(4);
            }
            if since == slow {
                gateway.deliver(4);
            }
        });
        assert_eq!((took, closed.delivered.len()), (slow, 5));
        gateway.commit();
    }
}

/// A board whose batches take so long that it is silent meanwhile: its allowance doubles until it delivers.
#[test]
fn hardware_that_is_silent_while_it_works_gets_enough_time_eventually() {
    let (batch, others) = (Duration::from_secs(40), Duration::from_secs(5));
    let mut gateway = detecting(Gateway::new(watched(2)));
    (0..2).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    let (mut delivered, mut lost, begun) = (vec![], Duration::ZERO, gateway.now);
    for _ in 0..200 {
        gateway.open_for(0..2);
        // It fetches the model.
        gateway.progress(1);
        gateway.wait(others);
        gateway.deliver(0);
        let (took, closed) = gateway.wait_closed(|gateway, since| {
            if since.plus(others) == batch {
                gateway.deliver(1);
            }
        });
        delivered.push(closed.delivered.len() == 2);
        if closed.delivered.len() < 2 {
            lost = lost.plus(took);
        }
        gateway.commit();
    }
    let first = delivered.iter().position(|delivered| *delivered).unwrap();
    assert!(first < 80 && delivered[first..].iter().all(|delivered| *delivered), "{delivered:?}");
    assert!(lost.times(8) <= (gateway.now - begun), "{lost:?} are lost");
}

/// Stopped and continued again and again, as with SIGSTOP and SIGCONT.
#[test]
fn a_device_that_answers_now_and_then_costs_a_small_share_of_the_time() {
    for (runs, stops) in [(10_000, 10_000), (1000, 1000), (700, 1900), (500, 5000)] {
        let mut gateway = experienced(3, watched(3));
        let (begun, mut rounds) = (gateway.now, 0);
        while gateway.now - begun < Duration::from_secs(300) {
            gateway.open_for(0..3);
            gateway.wait(FAST);
            [0, 1].iter().for_each(|&conn| gateway.deliver(conn));
            let awake = |gateway: &Gateway| (gateway.now - begun).as_millis() % (runs + stops) < runs;
            if awake(&gateway) {
                gateway.deliver(2);
            }
            gateway.wait_closed(|gateway, _| {
                if awake(gateway) {
                    gateway.deliver(2);
                }
            });
            gateway.commit();
            rounds += 1;
        }
        // Without the device, 3000. A ninth may be lost; delays up to twice the usual silence are not charged.
        assert!(rounds >= 3000 * 5 / 6, "{rounds} rounds with {runs} ms of work and {stops} ms of silence");
    }
}

#[test]
fn a_revoked_device_is_not_waited_for() {
    let mut gateway = detecting(unequal(watched(5)));
    gateway.open_for(0..5);
    [0, 1, 2, 3].iter().for_each(|&conn| gateway.deliver(conn));
    assert!(closed(&mut gateway).is_none());
    gateway.coordinator.handle_revoked(&id("d4"), gateway.now);
    let closed = closed(&mut gateway).unwrap();
    let refused = &closed.refused[0];
    assert_eq!((closed.refused.len(), refused.device.as_str(), refused.tier.index()), (1, "d4", 1));
    assert_eq!(refused.code, Code::UnknownDevice);
    assert!(gateway.coordinator.fleet().get(&id("d4")).is_none());
}

/// With a quorum of 1 and one device less, the next round begins with the remaining devices.
#[test]
fn a_revoked_device_does_not_count_for_the_next_round() {
    let mut settings = watched(3);
    settings.deadlines.quorum = 1.0.into();
    let mut gateway = detecting(Gateway::new(settings));
    (0..3).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    gateway.open_for(0..3);
    (0..3).for_each(|conn| gateway.deliver(conn));
    assert!(closed(&mut gateway).is_some());
    // While the round is being committed: no exchange is open.
    gateway.coordinator.handle_revoked(&id("d2"), gateway.now);
    gateway.coordinator.handle_disconnected(ConnId(2), gateway.now);
    gateway.commit();
    assert_eq!(gateway.open_some().len(), 2);
}

/// The first round waits for it until it is given up, later rounds do not.
#[test]
fn with_a_quorum_of_one_a_silent_device_is_waited_for_once() {
    let mut settings = watched(3);
    settings.deadlines.quorum = 1.0.into();
    settings.deadlines.deadline_s = 60.0.into();
    settings.deadlines.give_up_s = 900.0;
    let mut gateway = experienced(3, settings);
    assert_eq!(gateway.round_without(0..3, &[2], FAST).0, Duration::from_secs(900));
    assert_eq!(gateway.round_without(0..3, &[2], FAST).0, FAST);
    // Once it answers, it is waited for again.
    assert_eq!(gateway.round_without(0..3, &[], FAST).1.silent.len(), 0);
    assert_eq!(gateway.round_without(0..3, &[2], FAST).0, Duration::from_secs(900));
}

#[test]
fn after_a_restart_devices_have_time_to_reconnect() {
    let mut gateway = experienced(3, watched(3));
    gateway.open_for(0..3);
    let exchange = gateway.coordinator.open_exchange().unwrap();
    let asked: Vec<_> = exchange.roster.iter().map(|(device, _)| in_tier(device.as_str(), 0)).collect();
    let reopened = ReopenedExchange {
        announcement: training(exchange.id.round, &asked),
        wanted: vec![],
        delivered: [(id("d0"), Scalars::default())].into(),
    };
    let devices = gateway.coordinator.fleet().devices().map(|device| device.record.clone()).collect();
    let start = Start {
        run: RunId(1),
        committed: gateway.coordinator.committed(),
        attempt: 0,
        devices,
        fixed: BTreeMap::new(),
        reopened: Some(reopened),
    };
    let (model, parameters) = model();
    let now = gateway.now;
    let mut again =
        detecting(Gateway { coordinator: Coordinator::new(watched(3), model, &parameters, start, now), now });
    again.wait(Duration::from_secs(50));
    assert!(closed(&mut again).is_none());
    // One device reconnects and delivers; the other one never does.
    again.join(1, u64::MAX).unwrap();
    again.deliver(1);
    let (took, closed) = again.wait_closed(|_, _| {});
    assert!(took <= Duration::from_secs(12), "{took:?}");
    assert_eq!((closed.delivered.len(), closed.silent.len()), (2, 1));
}

/// One of three slow devices is in time: the others of its tier are waited for until the quorum.
#[test]
fn a_tier_that_answers_is_waited_for_until_it_has_its_quorum() {
    let mut gateway = unequal(Settings { rounds: 9, ..settings(5) });
    for _ in 0..3 {
        gateway.open(0..5);
        [0, 1, 2].iter().for_each(|&conn| gateway.deliver(conn));
        gateway.wait(MINUTE);
        assert!(closed(&mut gateway).is_none(), "one of three is no quorum");
        gateway.deliver(3);
        assert!(closed(&mut gateway).is_some());
        gateway.commit();
    }
}

#[test]
fn without_any_answer_all_devices_are_waited_for() {
    let mut settings = watched(3);
    settings.deadlines.give_up_s = 3600.0;
    let mut gateway = experienced(3, settings);
    for _ in 0..4 {
        assert_eq!(gateway.round_without(0..3, &[0, 1, 2], FAST).0, Duration::from_secs(3600));
    }
}

/// It gives signs of life and never delivers: one long wait, then a penalty.
#[test]
fn a_device_that_only_pretends_to_work_delays_few_rounds() {
    let mut settings = watched(3);
    settings.deadlines.deadline_s = 60.0.into();
    let mut gateway = experienced(3, settings);
    let long = (0..60).filter(|_| {
        gateway.open_for(0..3);
        gateway.wait(SECOND);
        [0, 1].iter().for_each(|&conn| gateway.deliver(conn));
        let (took, _) = gateway.wait_closed(|gateway, _| gateway.progress(2));
        gateway.commit();
        took > SECOND
    });
    assert_eq!(long.count(), 1);
}

#[test]
fn a_device_that_says_goodbye_is_not_waited_for() {
    let mut gateway = experienced(3, watched(3));
    gateway.open_for(0..3);
    [0, 1].iter().for_each(|&conn| gateway.deliver(conn));
    gateway.hear(2, &ToAggregator::Goodbye).unwrap();
    assert!(closed(&mut gateway).is_some());
}

#[test]
fn an_earlier_connection_of_a_device_is_displaced_by_its_next_hello() {
    let mut gateway = Gateway::new(watched(9));
    gateway.join(1, u64::MAX).unwrap();
    gateway.coordinator.handle_connected(ConnId(7), id("d1"));
    let displaced = |gateway: &mut Gateway| {
        let displaced = |action: Action| match action {
            Action::Displace(conn) => Some(conn.0),
            _ => None,
        };
        gateway.actions().into_iter().filter_map(displaced).collect::<Vec<_>>()
    };
    assert!(displaced(&mut gateway).is_empty(), "a connection without Hello displaces none");
    // A repeated Hello on the same connection, as after a lost answer.
    gateway.hello(1, u64::MAX).unwrap();
    assert!(displaced(&mut gateway).is_empty());
    let data = DataSummary { train_samples: 10, inputs: 64, classes: 10, ..DataSummary::default() };
    let hello =
        Hello { device: id("d1"), budget: Budget::UNLIMITED, data, max_chunk: 1 << 16, max_nodes: 64 };
    gateway.hear(7, &ToAggregator::Hello(hello)).unwrap();
    assert_eq!(displaced(&mut gateway), [1]);
    // The end of the old connection does not end the new one.
    gateway.coordinator.handle_disconnected(ConnId(1), gateway.now);
    assert!(gateway.coordinator.fleet().is_connected(&id("d1")));
}

#[test]
fn the_devices_that_are_waited_for_are_reported_with_their_limits() {
    let mut gateway = experienced(3, watched(3));
    gateway.open_for(0..3);
    gateway.deliver(0);
    let seen = |gateway: &Gateway| gateway.coordinator.waiting(gateway.now).unwrap();
    assert!(!seen(&gateway).is_long);
    gateway.progress(1);
    gateway.wait(SECOND);
    gateway.progress(2);
    let waiting = seen(&gateway);
    let opened = waiting.opened.unwrap();
    let until: Vec<_> = waiting.devices.iter().map(|line| line.until.map(|until| until - opened)).collect();
    // One of three is no quorum, and the round is never given up: only silence ends the wait for d1.
    assert_eq!(waiting.devices.iter().map(|line| line.silent.is_some()).collect::<Vec<_>>(), [true, false]);
    assert_eq!(until, [Some(Duration::from_millis(2200)), None]);
}

/// Where every device is required, also one that has left properly.
#[test]
fn with_a_quorum_of_one_a_goodbye_does_not_close_the_round() {
    let mut settings = watched(3);
    settings.deadlines.quorum = 1.0.into();
    let mut gateway = experienced(3, settings);
    gateway.open_for(0..3);
    [0, 1].iter().for_each(|&conn| gateway.deliver(conn));
    gateway.hear(2, &ToAggregator::Goodbye).unwrap();
    gateway.wait(MINUTE);
    assert!(closed(&mut gateway).is_none());
}
