//! Packets as `tests/golden/seal.py` computes them.

use super::*;

fn golden(name: &str) -> Vec<u8> {
    let text = include_str!("../../../tests/golden/seal.txt");
    let hex = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

const FRAME: &[u8] = b"twenty-one bytes here";

#[test]
fn packets_are_those_of_an_independent_program() {
    let (mut initiator, mut responder, mut holder) =
        (initiator(), Responder::default(), Responder::for_samples());
    let first_hail = hail(&mut initiator);
    assert_eq!(first_hail, golden("hail"));
    assert_eq!(answer(&mut holder, &first_hail, 9), golden("provision"));
    let mut challenge = answer(&mut responder, &first_hail, 9);
    assert_eq!(challenge, golden("challenge"));
    assert_eq!(initiator.handle(&mut challenge), InitiatorEvent::Connected);
    assert_eq!(sealed(FRAME, |p, n| initiator.seal(p, n)), golden("up-1"));
    assert_eq!(sealed(b"", |p, n| initiator.seal(p, n)), golden("up-2"));
    assert_eq!(receive(&mut responder, &golden("up-1")), Ok((true, FRAME.to_vec())));
    assert_eq!(receive(&mut responder, &golden("up-2")), Ok((false, vec![])));
    assert_eq!(responder.version(), Some(2));
    assert_eq!(sealed(FRAME, |p, n| responder.seal(p, n)), golden("down-1"));
    assert_eq!(initiator.handle(&mut golden("down-1")), InitiatorEvent::Frame(FRAME));
}

/// Version 1, as earlier firmware speaks it.
#[test]
fn an_older_device_is_answered_in_its_version() {
    let mut responder = Responder::default();
    assert_eq!(answer(&mut responder, &golden("first-hail"), 9), golden("first-challenge"));
    assert_eq!(receive(&mut responder, &golden("first-up-1")), Ok((true, FRAME.to_vec())));
    assert_eq!(responder.version(), Some(1));
    assert_eq!(sealed(FRAME, |p, n| responder.seal(p, n)), golden("first-down-1"));
    assert_eq!(receive(&mut responder, &golden("first-up-1")), Err(SealError::Replayed));
}

#[test]
fn a_bridge_cannot_choose_the_version() {
    // A newer device ignores the answer to an older hail.
    let mut initiator = initiator();
    let mut older = hail(&mut initiator);
    older[1] = 1;
    let mut challenge = answer(&mut Responder::default(), &older, 9);
    assert_eq!(initiator.handle(&mut challenge), InitiatorEvent::Rejected(SealError::Forged));
    // An older hail whose nonce is a label would give a key of this version.
    older[2..18].copy_from_slice(b"FairTier seal 2f");
    assert_eq!(Hail::decode(&older), None);
    // The holder of a board identity sends no samples to an older device.
    let (mut packet, mut reply) = (golden("first-hail"), [0; MAX_PLAIN]);
    let event = Responder::for_samples().handle(&mut packet, &mut reply, key_of, || [9; 16]);
    assert_eq!(event, ResponderEvent::Nothing);
}
