//! A fleet that returns after a restart of the aggregator: how many devices the next round needs.

use strategies::{device::DeviceRecord, strategy::PerTier};

use super::*;

/// One round is committed. The devices `d0`, `d1` and so on, none of them connected, have these tiers.
fn returning(tiers: &[usize], quorum: PerTier) -> Gateway {
    let mut settings = settings(tiers.len());
    settings.deadlines.quorum = quorum;
    let tier = |(number, &tier)| (id(&format!("d{number}")), Tier::new(tier).unwrap());
    let tiers: BTreeMap<DeviceId, Tier> = tiers.iter().enumerate().map(tier).collect();
    let budget = Budget { ram: u64::MAX, ..Budget::UNLIMITED };
    let record =
        |(device, &tier): (&DeviceId, _)| DeviceRecord { device: device.clone(), tier, budget, data: data() };
    let devices = tiers.iter().map(record).collect();
    let fixed = BTreeMap::new();
    let start = Start { run: RunId(1), committed: 1, attempt: 0, devices, fixed, reopened: None };
    let (model, parameters) = model();
    Gateway {
        coordinator: Coordinator::new(settings, model, &parameters, start, Instant::ZERO),
        now: Instant::ZERO,
    }
}

/// Memory for the narrowest tier alone.
fn narrow(gateway: &Gateway) -> u64 {
    gateway.coordinator.model.plans[4].info.arena_bytes()
}

/// Devices of the round that has begun, if one has.
fn begun(gateway: &mut Gateway) -> Option<usize> {
    gateway.actions().into_iter().find_map(|action| match action {
        Action::OpenRound { selected, .. } => Some(selected.len()),
        _ => None,
    })
}

#[test]
fn a_changed_quorum_counts_at_once() {
    let mut gateway = returning(&[0; 4], 1.0.into());
    for conn in 0..2 {
        gateway.join(conn, u64::MAX).unwrap();
    }
    assert_eq!(begun(&mut gateway), None);
    let mut conduct = gateway.coordinator.settings().conduct();
    conduct.deadlines.quorum = 0.5.into();
    gateway.coordinator.adopt(conduct, gateway.now);
    assert_eq!(begun(&mut gateway), Some(2));
}

#[test]
fn a_revoked_device_takes_the_quorum_of_its_tier_with_it() {
    let quorum = PerTier::Each(vec![1.0, 1.0, 1.0, 1.0, 0.25]);
    let mut gateway = returning(&[4, 4, 4, 0], quorum);
    gateway.join(0, narrow(&gateway)).unwrap();
    assert_eq!(begun(&mut gateway), None, "4 x the mean of 0.25, 0.25, 0.25 and 1 is more than one device");
    gateway.coordinator.handle_revoked(&id("d3"), gateway.now);
    assert_eq!(begun(&mut gateway), Some(1));
}

#[test]
fn a_device_in_another_tier_counts_with_the_quorum_of_that_tier() {
    let mut gateway = returning(&[0, 0], PerTier::Each(vec![1.0, 1.0, 1.0, 1.0, 0.0]));
    gateway.join(0, u64::MAX).unwrap();
    assert_eq!(begun(&mut gateway), None);
    // Its memory is now that of the narrowest tier.
    gateway.hello(0, narrow(&gateway)).unwrap();
    assert_eq!(begun(&mut gateway), Some(1), "2 x the mean of 0 and 1 is one device");
}
