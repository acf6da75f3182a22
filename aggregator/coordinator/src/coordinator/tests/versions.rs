//! Devices that speak other protocol versions.

use common::{Versions, message::Refusal};

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
    assert_eq!(greet(&mut gateway, Versions { oldest: 4, newest: 9 }), Ok(Some(5)));
    assert_eq!(greet(&mut gateway, Versions { oldest: 2, newest: 4 }), Ok(Some(4)));
    gateway.coordinator.handle_connected(ConnId(1), id("d1"));
    assert_eq!(greet(&mut gateway, Versions { oldest: 8, newest: 9 }), Err(Code::WrongVersion));
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
