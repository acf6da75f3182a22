//! Devices that speak other protocol versions.

use common::{
    Versions,
    message::{Refusal, Validation},
    plan::Activation,
};
use models::graph::{Builder, Param, ValueId};

use super::*;

/// Says Hello as `d1` with these versions; returns the tail of the Welcome.
fn greet(gateway: &mut Gateway, versions: Versions) -> Result<Option<u8>, Code> {
    let data = DataSummary { train_samples: 10, inputs: 64, classes: 10, ..DataSummary::default() };
    let (device, budget) = (id("d1"), Budget::UNLIMITED);
    let hello = Hello { device, budget, data, max_chunk: 1 << 16, max_nodes: 64 };
    let (mut frame, mut out) = ([0; wire::MAX_CONTROL], vec![]);
    let len = wire::encode_control(&(ToAggregator::Hello(hello), versions), &mut frame).unwrap();
    gateway.coordinator.handle_frame(ConnId(1), &frame[..len], gateway.now)?;
    gateway.coordinator.poll_transmit(ConnId(1), &mut out).unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&out) else { panic!("no message") };
    let (message, tail) = wire::control::<ToDevice>(body).unwrap();
    assert!(matches!(message, ToDevice::Welcome(_)));
    Ok(wire::tail(tail))
}

#[test]
fn a_common_version_is_chosen_or_both_ranges_are_reported() {
    let mut gateway = Gateway::new(settings(1));
    gateway.coordinator.handle_connected(ConnId(1), id("d1"));
    assert_eq!(greet(&mut gateway, Versions { oldest: 4, newest: 9 }), Ok(Some(8)));
    assert_eq!(greet(&mut gateway, Versions { oldest: 2, newest: 4 }), Ok(Some(4)));
    gateway.coordinator.handle_connected(ConnId(1), id("d1"));
    assert_eq!(greet(&mut gateway, Versions { oldest: 9, newest: 9 }), Err(Code::WrongVersion));
    let refusal = Refusal { code: Code::WrongVersion, need: 4, have: 9 };
    assert_eq!(gateway.say(1), [ToDevice::Refusal(refusal)]);
}

#[test]
fn a_device_that_names_no_versions_is_answered_without_a_tail() {
    let mut gateway = Gateway::new(settings(1));
    gateway.join(1, u64::MAX).unwrap();
    let mut out = vec![];
    gateway.coordinator.poll_transmit(ConnId(1), &mut out).unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&out) else { panic!("no message") };
    // Strict, as protocol 4 was: left-over bytes are an error.
    assert!(matches!(wire::message(body), Ok(ToDevice::Welcome(_))));
}

/// A round that asks for validation losses, with a device of this version; gives what is stored of an offer that reports
/// one, or the code by which it is refused.
fn stored_validation(
    version: u8,
    asks: bool,
    reported: Validation,
) -> (bool, Result<Option<Validation>, Option<Code>>) {
    let mut gateway = Gateway::new(settings(1));
    gateway.coordinator.handle_connected(ConnId(1), id("d1"));
    assert_eq!(greet(&mut gateway, Versions { oldest: 4, newest: version }), Ok(Some(version)));
    let (round, selected) = gateway.actions().into_iter().find_map(round_to_open).unwrap();
    let mut announcement = training(round, &selected);
    announcement.asked[0].task.set_validate(asks);
    gateway.coordinator.handle_opened(announcement, gateway.now);
    let mut out = vec![];
    gateway.coordinator.poll_transmit(ConnId(1), &mut out).unwrap();
    let Ok(Frame::Control(body)) = Frame::decode(&out) else { panic!("no message") };
    let (mut message, tail) = wire::control::<ToDevice>(body).unwrap();
    message.read_tail(tail, 6);
    let ToDevice::Assignment(assignment) = message else { panic!("{message:?}") };

    let bytes = assignment.model.bytes;
    let mut offer = offer(&assignment, bytes);
    offer.scalars.validation = Some(reported);
    let (mut frame, update) = ([0; wire::MAX_CONTROL], offer.update);
    let len = ToAggregator::Offer(offer).encode(&mut frame).unwrap();
    gateway.coordinator.handle_frame(ConnId(1), &frame[..len], gateway.now).unwrap();
    match gateway.say(1).as_slice() {
        [ToDevice::Fetch(_)] => {}
        [ToDevice::Receipt(receipt)] => return (assignment.task.validates(), Err(receipt.refused)),
        other => panic!("{other:?}"),
    }
    let mut chunk = vec![0; bytes as usize + wire::CHUNK_OVERHEAD];
    let len = wire::encode_chunk(update.transfer, 0, bytes as usize, &mut chunk, |_| {}).unwrap();
    gateway.coordinator.handle_frame(ConnId(1), &chunk[..len], gateway.now).unwrap();
    let stored = gateway.actions().into_iter().find_map(|action| match action {
        Action::Store(update) => Some(update.scalars.validation),
        _ => None,
    });
    (assignment.task.validates(), Ok(stored.unwrap()))
}

#[test]
fn validation_is_asked_of_devices_that_know_it_and_ignored_where_it_was_not_asked_for() {
    let reported = Validation { loss: 2.5, error: 0.125 };
    assert_eq!(stored_validation(6, true, reported), (true, Ok(Some(reported))));
    assert_eq!(stored_validation(6, false, reported), (false, Ok(None)));
    assert_eq!(stored_validation(5, true, reported), (false, Ok(None)));
    assert_eq!(stored_validation(4, true, reported), (false, Ok(None)));
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        let refused = Err(Some(Code::NonFiniteLoss));
        assert_eq!(stored_validation(6, true, Validation { loss: wrong, ..reported }), (true, refused));
        assert_eq!(stored_validation(6, true, Validation { error: wrong, ..reported }), (true, refused));
        // A value that was not asked for is ignored.
        assert_eq!(stored_validation(6, false, Validation { loss: wrong, ..reported }), (false, Ok(None)));
    }
}

#[test]
fn asking_for_validation_is_another_question_and_not_asking_is_the_old_one() {
    let selected = [in_tier("d0", 0), in_tier("d1", 1)];
    let plain = training(1, &selected);
    let digests: Vec<u32> = (0..4)
        .map(|which| {
            let mut announcement = plain.clone();
            announcement.asked[0].task.set_validate(which & 1 != 0);
            announcement.asked[1].task.set_validate(which & 2 != 0);
            announcement.digest()
        })
        .collect();
    assert_eq!(digests[0], plain.digest());
    let told = (1u32, 0u8, 0.1f32, &plain.asked, Vec::<u32>::new());
    assert_eq!(digests[0], wire::crc32(&postcard::to_allocvec(&told).unwrap()), "as before version 6");
    assert_eq!(std::collections::BTreeSet::from_iter(&digests).len(), 4);
}

/// A model with an activation after its first layer.
fn activated(kind: Activation) -> (TieredModel, Vec<f32>) {
    let mut builder = Builder::new("mlp", "x", &[64]).unwrap();
    let hidden = builder.dense("a", ValueId::INPUT, 64, 8, Param::plain("a"), None).unwrap();
    let active = builder.activate("active", hidden, kind);
    let logits = builder.dense("b", active, 8, 10, Param::plain("b"), None).unwrap();
    let graph = builder.finish("y", logits, None).unwrap();
    let (masks, parameters) = (vec![graph.full().clone()], vec![0.1; graph.layout().len()]);
    (TieredModel::new(graph, masks, &PlanOptions::train(16)).unwrap(), parameters)
}

#[test]
fn a_device_is_refused_if_the_model_has_an_operation_that_it_does_not_know() {
    for (kind, newest, admitted) in [
        (Activation::Gelu, 7, true),
        (Activation::Gelu, 6, false),
        (Activation::Gelu, 4, false),
        (Activation::Tanh, 6, true),
        (Activation::Tanh, 4, true),
    ] {
        let mut gateway = Gateway::serving(activated(kind), settings(1), None);
        gateway.coordinator.handle_connected(ConnId(1), id("d1"));
        let greeted = greet(&mut gateway, Versions { oldest: 4, newest });
        if admitted {
            assert_eq!(greeted, Ok(Some(newest)), "{kind:?}");
            continue;
        }
        assert_eq!(greeted, Err(Code::TooOld), "{kind:?}");
        // The code that such a device knows.
        let refusal = Refusal { code: Code::LeftOut, need: 7, have: newest.into() };
        assert_eq!(gateway.say(1), [ToDevice::Refusal(refusal)]);
        let registers = |action: &Action| matches!(action, Action::Register(_));
        assert!(!gateway.actions().iter().any(registers));
        let notice = gateway.coordinator.poll_notice().unwrap().to_string();
        let text = format!(
            "d1 is refused: E47 device's program is older than an operation of the model (needs protocol 7, \
             speaks {newest}); update its program"
        );
        assert_eq!(notice, text);
    }
}
