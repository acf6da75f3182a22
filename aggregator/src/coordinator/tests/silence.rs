//! Devices that are there and never answer.

use super::*;

/// Everybody but these delivers in a round; says how long it took.
fn round(gateway: &mut Gateway, devices: std::ops::Range<u64>, silent: &[u64]) -> (Duration, ClosedRound) {
    let begun = gateway.now;
    gateway.open(devices.clone());
    for conn in devices.filter(|conn| !silent.contains(conn)) {
        gateway.coordinator.set_delivered(&id(&format!("d{conn}")));
    }
    gateway.wait(SECOND);
    let closed = closed(gateway).unwrap_or_else(|| {
        gateway.wait(MINUTE);
        closed(gateway)
            .or_else(|| {
                gateway.wait(Duration::from_secs(1000));
                closed(gateway)
            })
            .unwrap()
    });
    let took = gateway.now - begun;
    let published = gateway.coordinator.published.clone();
    gateway.coordinator.handle_committed(published, gateway.now);
    (took, closed)
}

#[test]
fn who_never_answers_is_asked_but_holds_up_nobody_for_long() {
    let mut gateway = Gateway::new(Settings { rounds: 9, ..settings(3) });
    (0..3).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    for _ in 0..2 {
        assert!(round(&mut gateway, 0..3, &[2]).0 >= MINUTE);
    }
    let (took, closed) = round(&mut gateway, 0..3, &[2]);
    assert_eq!(took, SECOND);
    assert_eq!(closed.silent.len(), 1, "it was asked, and the report says that it did not answer");
    // Once it answers it is waited for like everybody else.
    assert_eq!(round(&mut gateway, 0..3, &[]).0, SECOND);
    assert!(round(&mut gateway, 0..3, &[2]).0 >= MINUTE);
}

#[test]
fn a_tier_of_its_own_does_not_help() {
    let mut settings = Settings { rounds: 9, ..settings(5) };
    settings.patience.give_up_s = 900.0;
    let mut gateway = unequal(settings);
    // All of the narrow tier.
    let silent = [2, 3, 4];
    for _ in 0..2 {
        assert!(round(&mut gateway, 0..5, &silent).0 >= Duration::from_secs(900));
    }
    assert_eq!(round(&mut gateway, 0..5, &silent).0, SECOND);
}

/// One of three slow ones is fast enough now and then: the others of its tier are waited for as its quorum demands.
#[test]
fn a_tier_that_answers_is_waited_for_until_it_has_its_quorum() {
    let mut gateway = unequal(Settings { rounds: 9, ..settings(5) });
    for _ in 0..3 {
        gateway.open(0..5);
        ["d0", "d1", "d2"].iter().for_each(|name| gateway.coordinator.set_delivered(&id(name)));
        gateway.wait(MINUTE);
        assert!(closed(&mut gateway).is_none(), "one of three is no quorum, whatever was before");
        gateway.coordinator.set_delivered(&id("d3"));
        gateway.wait(SECOND);
        assert!(closed(&mut gateway).is_some());
        let published = gateway.coordinator.published.clone();
        gateway.coordinator.handle_committed(published, gateway.now);
    }
}

#[test]
fn if_nobody_answers_everybody_is_waited_for() {
    let mut settings = Settings { rounds: 9, ..settings(3) };
    settings.patience.give_up_s = 900.0;
    let mut gateway = Gateway::new(settings);
    (0..3).for_each(|conn| gateway.join(conn, u64::MAX).unwrap());
    for _ in 0..4 {
        assert!(round(&mut gateway, 0..3, &[0, 1, 2]).0 >= Duration::from_secs(900));
    }
}
