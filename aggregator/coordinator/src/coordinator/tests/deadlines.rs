//! When a round opens, and when it closes before all devices have answered.

use super::*;

#[test]
fn a_round_opens_once_the_fleet_is_connected_and_closes_late_only_with_a_quorum() {
    let mut gateway = Gateway::new(settings(3));
    for conn in 0..3 {
        assert!(gateway.coordinator.open_exchange().is_none());
        gateway.join(conn, u64::MAX).unwrap();
    }
    let assignments = gateway.open(0..3);
    assert_eq!(assignments[0].ticket.round, 1);
    // One of three is no quorum.
    let bytes = assignments[0].model.bytes;
    gateway.hear(0, &ToAggregator::Offer(offer(&assignments[0], bytes))).unwrap();
    gateway.coordinator.set_delivered(&id("d0"), gateway.now);
    gateway.wait(MINUTE);
    assert!(gateway.coordinator.open_exchange().is_some_and(|exchange| exchange.overdue));
    assert_eq!(gateway.coordinator.poll_timeout(), None, "no deadline is left");
    gateway.coordinator.set_delivered(&id("d1"), gateway.now);
    gateway.wait(Duration::from_millis(1));
    match gateway.actions().as_slice() {
        [Action::Close(closed)] => {
            assert_eq!(closed.delivered.len(), 2);
            assert_eq!(closed.silent, [in_tier("d2", 0)]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_tier_has_its_own_deadline_and_slow_hardware_is_not_dropped() {
    let mut settings = settings(5);
    settings.deadlines.deadline_s = strategies::strategy::PerTier::Each(vec![10.0, 60.0, 1.0, 1.0, 1.0]);
    let mut gateway = unequal(settings);
    gateway.open(0..5);
    ["d0", "d1"].iter().for_each(|name| gateway.coordinator.set_delivered(&id(name), gateway.now));
    // Tiers without devices are not waited for.
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
    assert_eq!((closed.delivered.len(), &closed.silent[..]), (4, &[in_tier("d4", 1)][..]));
    assert_eq!((&closed.gone[..], &closed.late[..]), (&[in_tier("d4", 1)][..], &[in_tier("d3", 1)][..]));
}

#[test]
fn a_tier_without_quorum_is_given_up_after_the_limit() {
    for delivered in [0, 2] {
        let mut settings = settings(5);
        settings.deadlines.give_up_s = 240.0;
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
        // The next round does not ask devices that have left.
        (2..5).for_each(|conn| gateway.coordinator.handle_disconnected(ConnId(conn), gateway.now));
    }
}

#[test]
fn over_selection_closes_with_the_first_wanted_devices_of_each_tier() {
    let mut settings = settings(5);
    (settings.participation, settings.over_selection) = (0.6, 1.4);
    let mut gateway = unequal(settings);
    let selected = gateway.open_some();
    let of = |tier: usize| -> Vec<DeviceId> {
        let own = selected.iter().filter(|selected| selected.tier.index() == tier);
        own.map(|selected| selected.device.clone()).collect()
    };
    let wanted = gateway.coordinator.open_exchange().unwrap().wanted.clone();
    assert_eq!(wanted.iter().sum::<usize>(), 3);
    assert!(selected.len() > 3, "{selected:?}");
    for (tier, &wanted) in wanted.iter().enumerate().filter(|(_, wanted)| **wanted > 0) {
        let own = of(tier);
        assert!(own.len() >= wanted && own.len() <= wanted + 2);
        assert!(closed(&mut gateway).is_none());
        own.iter().take(wanted).for_each(|device| gateway.coordinator.set_delivered(device, gateway.now));
        gateway.wait(SECOND);
    }
    let closed = closed(&mut gateway).unwrap();
    assert_eq!((closed.delivered.len(), closed.silent.len()), (3, selected.len() - 3));
}
