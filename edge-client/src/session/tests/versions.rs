//! Which protocol versions a device offers and accepts.

use super::*;

/// Connects on a link that allows these versions; returns the tail of Hello.
fn greet(device: &mut Device<'_>, versions: Versions) -> Option<Versions> {
    device.session.handle_connected(LIMITS, versions, device.now);
    let mut out = [0; wire::MAX_CONTROL];
    let (_, len) = device.session.poll_transmit(&mut out).unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&out[..len]) else { panic!("no message") };
    let (message, tail) = wire::control::<ToAggregator>(body).unwrap();
    assert!(matches!(message, ToAggregator::Hello(_)));
    wire::tail(tail)
}

fn welcome(device: &mut Device<'_>, version: u8) -> Result<(), Code> {
    let welcome = Welcome { run: TICKET.run, tier: Tier::new(3).unwrap(), plan: device.plan };
    let mut frame = [0; wire::MAX_CONTROL];
    let len = wire::encode_control(&(ToDevice::Welcome(welcome), version, "more"), &mut frame).unwrap();
    device.session.handle_frame(&frame[..len], device.now)
}

#[test]
fn hello_names_versions_only_where_the_other_end_reads_them() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    assert_eq!(greet(&mut device, Versions::FOUR), None);
    assert_eq!(greet(&mut device, Versions::OURS), Some(Versions::OURS));
}

#[test]
fn the_version_of_a_welcome_must_be_one_that_was_offered() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    for version in [3, Versions::OURS.newest + 1] {
        greet(&mut device, Versions::OURS);
        assert_eq!(welcome(&mut device, version), Err(Code::WrongVersion));
        assert_eq!(device.session.poll_event(), Some(Event::Refused(Code::WrongVersion.into())));
        assert!(device.session.tier().is_none());
    }
    for version in [4, 5] {
        greet(&mut device, Versions::OURS);
        assert_eq!(welcome(&mut device, version), Ok(()));
        assert_eq!((device.session.version, device.session.tier()), (version, Tier::new(3)));
    }
}
