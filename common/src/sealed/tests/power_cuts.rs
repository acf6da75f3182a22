//! A device without a random number generator and without memory: every start repeats the first.

use super::*;

fn ciphertext(packet: &[u8], len: usize) -> &[u8] {
    &packet[SEAL_HEAD..SEAL_HEAD + len]
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// The aggregator's nonce is part of both keys, and differs for the same hail.
#[test]
fn a_hail_that_is_repeated_after_a_power_cut_gives_other_keys() {
    let mut responder = Responder::default();
    let (mut before, mut after) = (initiator(), initiator());
    let first_hail = hail(&mut before);
    assert_eq!(hail(&mut after), first_hail, "it repeats its nonce");
    assert_eq!(before.handle(&mut answer(&mut responder, &first_hail, 1)), InitiatorEvent::Connected);
    let first = sealed(b"secret", |p, n| before.seal(p, n));
    // The power is cut before the packet arrives.
    assert_eq!(after.handle(&mut answer(&mut responder, &first_hail, 2)), InitiatorEvent::Connected);
    let second = sealed(b"secret", |p, n| after.seal(p, n));
    assert_ne!(ciphertext(&first, 6), ciphertext(&second, 6));
    assert_eq!(receive(&mut responder, &second), Ok((true, b"secret".to_vec())));
    assert!(receive(&mut responder, &first).is_err());
    let down = sealed(b"answer", |p, n| responder.seal(p, n));
    assert_eq!(before.handle(&mut down.clone()), InitiatorEvent::Rejected(SealError::Forged));
    assert_eq!(after.handle(&mut down.clone()), InitiatorEvent::Frame(b"answer"));
}

/// A bridge replays an old challenge to the device. The key repeats, but different frames still have different AEAD nonces.
#[test]
fn a_repeated_key_does_not_repeat_the_key_stream() {
    let mut responder = Responder::default();
    let (mut before, mut after) = (initiator(), initiator());
    let mut challenge = answer(&mut responder, &hail(&mut before), 1);
    hail(&mut after);
    assert_eq!(before.handle(&mut challenge.clone()), InitiatorEvent::Connected);
    assert_eq!(after.handle(&mut challenge), InitiatorEvent::Connected);
    let (one, other) = (b"an update of 2 and 4", b"an update of 3 and 5");
    let first = sealed(one, |p, n| before.seal(p, n));
    let second = sealed(other, |p, n| after.seal(p, n));
    assert_eq!(first[..SEAL_HEAD], second[..SEAL_HEAD], "the same counter");
    // With a shared key stream, the difference of the packets would be that of the frames.
    let differs = xor(ciphertext(&first, one.len()), ciphertext(&second, other.len()));
    assert_ne!(differs, xor(one, other));
    assert!(differs.iter().filter(|&&byte| byte == 0).count() < 4, "{differs:?}");
    // The aggregator accepts one of them, once.
    assert_eq!(receive(&mut responder, &first), Ok((true, one.to_vec())));
    assert_eq!(receive(&mut responder, &second), Err(SealError::Replayed));
}

/// The aggregator accepts nothing that a replayed session makes the device send.
#[test]
fn a_session_replayed_to_the_device_gives_no_valid_packets() {
    let mut responder = Responder::default();
    let mut before = initiator();
    let challenge = answer(&mut responder, &hail(&mut before), 1);
    before.handle(&mut challenge.clone());
    receive(&mut responder, &sealed(b"hello", |p, n| before.seal(p, n))).unwrap();
    let work = sealed(b"work", |p, n| responder.seal(p, n));

    let mut after = initiator();
    answer(&mut responder, &hail(&mut after), 2);
    assert_eq!(after.handle(&mut challenge.clone()), InitiatorEvent::Connected);
    assert_eq!(after.handle(&mut work.clone()), InitiatorEvent::Frame(b"work"), "it cannot tell");
    // A new line of the aggregator does not know the session; the old one detects the repetition.
    let again = sealed(b"hello", |p, n| after.seal(p, n));
    assert_eq!(receive(&mut responder, &again), Err(SealError::Replayed));
    assert_eq!(answer(&mut Responder::default(), &again, 3), [STRANGER]);
}
