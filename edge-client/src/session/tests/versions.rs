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
    for version in [4, 5, 6] {
        greet(&mut device, Versions::OURS);
        assert_eq!(welcome(&mut device, version), Ok(()));
        assert_eq!((device.session.version, device.session.tier()), (version, Tier::new(3)));
    }
}

/// Six samples, the fifth of which is kept for validation.
fn six() -> BytesShard<'static> {
    let pixels = &[0, 200, 200, 0, 10, 180, 190, 20, 90, 120, 0, 250];
    let samples = Images::new(pixels, &[0, 1, 0, 1, 1, 0], 2).unwrap();
    BytesShard::new(samples, Images::new(&[0, 255], &[0], 2).unwrap(), 1.0 / 255.0).unwrap()
}

/// A round on a link of this version, with a gateway that asks for the validation loss whatever it has agreed to; gives the
/// offer as its bytes say.
fn validated_round(version: u8) -> Offer {
    let mut arena = [0.0; 26];
    let mut device = Device::with(&mut arena, PLAN, NODE, six());
    greet(&mut device, Versions::OURS);
    welcome(&mut device, version).unwrap();
    let nodes = heapless::Vec::from_slice(&[NODE]).unwrap();
    let steps = heapless::Vec::new();
    device.hear(&ToDevice::PlanPart(PlanPart { digest: PLAN.digest, node: 0, step: 0, nodes, steps }));
    device.say();
    let mut asked = assignment();
    asked.task.set_validate(true);
    let mut frame = [0; wire::MAX_CONTROL];
    let len = ToDevice::Assignment(asked).encode(&mut frame).unwrap();
    device.session.handle_frame(&frame[..len], device.now).unwrap();
    for (number, chunk) in model_bytes().chunks(8).enumerate() {
        device.hear_chunk(number as u32 * 8, chunk);
    }
    device.say();
    while device.session.has_work() {
        device.session.work(&device.shard, &mut Portable::plain(), device.now).unwrap();
    }
    let (_, len) = device.session.poll_transmit(&mut frame).unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&frame[..len]) else { panic!("no message") };
    let (mut message, tail) = wire::control::<ToAggregator>(body).unwrap();
    assert!(version >= 6 || tail.is_empty());
    message.read_tail(tail, 6);
    match message {
        ToAggregator::Offer(offer) => offer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_validation_loss_is_reported_from_version_6_on() {
    let Offer { scalars, .. } = validated_round(6);
    assert_eq!(scalars.samples, 5);
    // Sample 4 is [90, 120] / 255 with label 1.
    let [x, y] = [90.0 / 255.0, 120.0 / 255.0];
    let (zero, one) = (0.5 * x - 0.5 * y + 0.1, 0.25 * x - 0.1);
    let expected = (1.0 + f64::exp(zero - one)).ln();
    let validation = scalars.validation.unwrap();
    assert!(
        (validation.loss - expected).abs() < 1e-6 && validation.error == 0.0,
        "{validation:?} {expected}"
    );
    for version in [4, 5] {
        let Offer { scalars, .. } = validated_round(version);
        assert_eq!((scalars.samples, scalars.validation), (6, None), "nothing is held back on older links");
    }
}
