//! A device, a responder, and a hostile bridge between them.

use proptest::prelude::*;

use super::*;
use crate::{
    id::DeviceId,
    privacy::{Policy, Privacy, Secret},
};

mod golden;
mod power_cuts;

const KEY: Key = [7; 32];

fn initiator() -> Initiator {
    Initiator::new("board-1".parse().unwrap(), KEY, Nonces::new([3; 16], 0))
}

fn key_of(device: &DeviceId) -> Option<Key> {
    (device.as_str() == "board-1").then_some(KEY)
}

fn hail(initiator: &mut Initiator) -> Vec<u8> {
    let mut packet = [0; MAX_PLAIN];
    let len = initiator.hail(&mut packet);
    packet[..len].to_vec()
}

fn answer(responder: &mut Responder, packet: &[u8], nonce: u8) -> Vec<u8> {
    let mut reply = [0; MAX_PLAIN];
    match responder.handle(&mut packet.to_vec(), &mut reply, key_of, || [nonce; 16]) {
        ResponderEvent::Reply(len) => reply[..len].to_vec(),
        other => panic!("{other:?}"),
    }
}

fn connect(nonce: u8) -> (Initiator, Responder) {
    let (mut initiator, mut responder) = (initiator(), Responder::default());
    let mut challenge = answer(&mut responder, &hail(&mut initiator), nonce);
    assert_eq!(initiator.handle(&mut challenge), InitiatorEvent::Connected);
    (initiator, responder)
}

fn sealed(frame: &[u8], seal: impl FnOnce(&mut [u8], usize) -> Option<usize>) -> Vec<u8> {
    let mut packet = vec![0; frame.len() + SEAL_OVERHEAD];
    packet[SEAL_HEAD..SEAL_HEAD + frame.len()].copy_from_slice(frame);
    let len = seal(&mut packet, frame.len()).unwrap();
    packet.truncate(len);
    packet
}

fn receive(responder: &mut Responder, packet: &[u8]) -> Result<(bool, Vec<u8>), SealError> {
    let mut reply = [0; MAX_PLAIN];
    match responder.handle(&mut packet.to_vec(), &mut reply, key_of, || unreachable!()) {
        ResponderEvent::Frame { fresh, frame, .. } => Ok((fresh, frame.to_vec())),
        ResponderEvent::Rejected(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_pass_both_ways_once_and_in_order() {
    let (mut initiator, mut responder) = connect(9);
    let first = sealed(b"first", |p, n| initiator.seal(p, n));
    let second = sealed(b"second", |p, n| initiator.seal(p, n));
    assert!(!first.windows(5).any(|part| part == b"first"));
    assert_eq!(receive(&mut responder, &first), Ok((true, b"first".to_vec())));
    assert_eq!(receive(&mut responder, &first), Err(SealError::Replayed));
    assert_eq!(receive(&mut responder, &second), Ok((false, b"second".to_vec())));
    assert_eq!(receive(&mut responder, &first), Err(SealError::Replayed));
    let mut back = sealed(b"back", |p, n| responder.seal(p, n));
    assert_eq!(initiator.handle(&mut back.clone()), InitiatorEvent::Frame(b"back"));
    assert_eq!(initiator.handle(&mut back), InitiatorEvent::Rejected(SealError::Replayed));
}

#[test]
fn an_earlier_session_cannot_be_played_again() {
    let (mut initiator, mut responder) = connect(9);
    let old = sealed(b"update", |p, n| initiator.seal(p, n));
    receive(&mut responder, &old).unwrap();
    // The device restarts, and the responder uses an unpredictable nonce.
    let mut challenge = answer(&mut responder, &hail(&mut initiator), 10);
    assert_eq!(initiator.handle(&mut challenge), InitiatorEvent::Connected);
    let new = sealed(b"hello", |p, n| initiator.seal(p, n));
    assert_eq!(receive(&mut responder, &new), Ok((true, b"hello".to_vec())));
    assert!(receive(&mut responder, &old).is_err());
    // An old conversation cannot be replayed to a new responder either: the challenge differs.
    let mut responder = Responder::default();
    assert_eq!(answer(&mut responder, &old, 1), [STRANGER]);
}

#[test]
fn a_repeated_hail_has_another_challenge_and_the_device_may_take_either() {
    for taken in 0..2 {
        let (mut initiator, mut responder) = (initiator(), Responder::default());
        let first_hail = hail(&mut initiator);
        let mut challenges = [9, 10].map(|nonce| answer(&mut responder, &first_hail, nonce));
        assert_ne!(challenges[0], challenges[1]);
        assert_eq!(initiator.handle(&mut challenges[taken]), InitiatorEvent::Connected);
        // The other one crosses its first packet.
        assert_eq!(initiator.handle(&mut challenges[1 - taken]), InitiatorEvent::Nothing);
        let packet = sealed(b"a", |p, n| initiator.seal(p, n));
        assert_eq!(receive(&mut responder, &packet), Ok((true, b"a".to_vec())));
        let packet = sealed(b"b", |p, n| initiator.seal(p, n));
        assert_eq!(receive(&mut responder, &packet), Ok((false, b"b".to_vec())));
    }
}

#[test]
fn an_open_session_outlives_the_hails_of_strangers() {
    let (mut initiator, mut responder) = connect(9);
    receive(&mut responder, &sealed(b"a", |p, n| initiator.seal(p, n))).unwrap();
    let mut stranger = Initiator::new("board-1".parse().unwrap(), [1; 32], Nonces::new([0; 16], 0));
    for nonce in 0..20 {
        let mut challenge = answer(&mut responder, &hail(&mut stranger), nonce);
        // Without the key the challenge is useless, and the session of the real device goes on.
        assert_eq!(stranger.handle(&mut challenge), InitiatorEvent::Rejected(SealError::Forged));
    }
    assert_eq!(
        receive(&mut responder, &sealed(b"b", |p, n| initiator.seal(p, n))),
        Ok((false, b"b".to_vec()))
    );
}

/// A frame that one end has sealed does not open at the same end.
#[test]
fn packets_cannot_be_reflected_to_their_sender() {
    let (mut initiator, mut responder) = connect(9);
    let mut up = sealed(b"up", |p, n| initiator.seal(p, n));
    receive(&mut responder, &up).unwrap();
    let down = sealed(b"down", |p, n| responder.seal(p, n));
    assert_eq!(initiator.handle(&mut up), InitiatorEvent::Rejected(SealError::Forged));
    assert_eq!(
        receive(&mut responder, &sealed(b"next", |p, n| initiator.seal(p, n))),
        Ok((false, b"next".to_vec()))
    );
    assert!(receive(&mut responder, &down).is_err());
}

#[test]
fn a_device_takes_samples_only_from_a_holder_of_its_board_identity() {
    let mut initiator = initiator();
    let (mut aggregator, mut holder) = (Responder::default(), Responder::for_samples());
    let first_hail = hail(&mut initiator);
    // A CHALLENGE of the aggregator is not valid as a PROVISION, although it is made with the same key, and the reverse.
    let mut challenge = answer(&mut aggregator, &first_hail, 9);
    challenge[0] = PROVISION;
    assert_eq!(initiator.handle(&mut challenge), InitiatorEvent::Rejected(SealError::Forged));
    let mut provision = answer(&mut holder, &first_hail, 9);
    assert_eq!(provision[0], PROVISION);
    provision[0] = CHALLENGE;
    assert_eq!(initiator.handle(&mut provision), InitiatorEvent::Rejected(SealError::Forged));
    provision[0] = PROVISION;
    assert_eq!(initiator.handle(&mut provision), InitiatorEvent::Provisioning);
    assert!(initiator.is_provisioning() && !initiator.is_open());
    receive(&mut holder, &sealed(b"ready", |p, n| initiator.seal(p, n))).unwrap();
    let mut piece = sealed(b"piece", |p, n| holder.seal(p, n));
    assert_eq!(initiator.handle(&mut piece), InitiatorEvent::Piece(b"piece"));
}

#[test]
fn a_bridge_carries_only_packets_between_device_and_aggregator() {
    let kinds = |goes: fn(&[u8]) -> bool| (0..=255).filter(|&kind| goes(&[kind, 0])).collect::<Vec<u8>>();
    assert_eq!(kinds(goes_up), [HAIL, SEALED]);
    assert_eq!(kinds(goes_down), [CHALLENGE, SEALED, STRANGER, REFUSED]);
    assert!(!goes_up(&[]) && !goes_down(&[]));
}

#[test]
fn a_responder_ignores_all_but_hails_and_sealed_packets() {
    let (mut responder, mut reply) = (Responder::default(), [0; MAX_PLAIN]);
    for kind in (0..=255).filter(|kind| ![HAIL, SEALED].contains(kind)) {
        let mut packet = [kind, 1, 2, 3];
        let event = responder.handle(&mut packet, &mut reply, |_| unreachable!(), || unreachable!());
        assert_eq!(event, ResponderEvent::Nothing, "{kind}");
    }
}

#[test]
fn a_lost_session_is_noticed_and_the_next_hail_is_another() {
    let (mut initiator, _) = connect(9);
    let packet = sealed(b"a", |p, n| initiator.seal(p, n));
    let mut answer = answer(&mut Responder::default(), &packet, 1);
    assert_eq!(initiator.handle(&mut answer), InitiatorEvent::Lost);
    let first = hail(&mut initiator);
    assert_eq!(first, hail(&mut initiator), "repeated until it is answered");
    initiator.hang_up();
    assert_ne!(first, hail(&mut initiator));
}

#[test]
fn board_identities_round_trip_and_damage_is_detected() {
    let device: DeviceId = "board-1".parse().unwrap();
    let secret = Some(Secret::simulated(1));
    let policy = Some(Policy { max_epsilon: 2.0, max_answers: None });
    let capped = Some(Policy { max_epsilon: 0.5, max_answers: Some(7) });
    for (secret, policy, len, magic) in [
        (None, None, 92, b"FTP1"),
        (secret, None, 132, b"FTP2"),
        (None, policy, 132, b"FTP2"),
        (secret, capped, 132, b"FTP2"),
    ] {
        let identity = BoardIdentity {
            device: device.clone(),
            key: KEY,
            seed: [5; 16],
            privacy: Privacy { secret, policy },
        };
        let bytes = identity.encode();
        assert!(bytes.len() == len && bytes.starts_with(magic));
        assert_eq!(BoardIdentity::decode(&bytes), Ok(identity.clone()));
        let flash = [&bytes, &[0xff; 300][..]].concat();
        assert_eq!(BoardIdentity::decode(&flash), Ok(identity), "as it lies in flash");
        assert_eq!(BoardIdentity::decode(&[0xff; 128]), Err(BoardIdentityError::Missing));
        assert_eq!(BoardIdentity::decode(&bytes[..len - 1]), Err(BoardIdentityError::Missing));
        for at in 4..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert_eq!(BoardIdentity::decode(&bytes), Err(BoardIdentityError::Damaged), "{at}");
        }
    }
}

/// The format that earlier gateways wrote.
#[test]
fn a_board_identity_of_the_first_format_is_read() {
    let mut bytes = b"FTP1\x02m4".to_vec();
    bytes.resize(40, 0);
    bytes.extend([7; 32]);
    bytes.extend([5; 16]);
    bytes.extend(crate::wire::crc32(&bytes).to_le_bytes());
    let identity = BoardIdentity::decode(&bytes).unwrap();
    assert_eq!((identity.device.as_str(), identity.key, identity.seed), ("m4", [7; 32], [5; 16]));
    assert_eq!(identity.privacy, Privacy::default());
    assert_eq!(identity.encode().as_slice(), bytes);
}

proptest! {
    #[test]
    fn a_changed_bit_is_never_accepted(frame: Vec<u8>, at: prop::sample::Index, bit in 0u8..8) {
        let (mut initiator, mut responder) = connect(9);
        let good = sealed(&frame, |p, n| initiator.seal(p, n));
        let mut packet = good.clone();
        packet[at.index(good.len())] ^= 1 << bit;
        let mut reply = [0; MAX_PLAIN];
        let event = responder.handle(&mut packet, &mut reply, key_of, || [1; 16]);
        let taken = matches!(event, ResponderEvent::Frame { .. });
        prop_assert!(!taken);
        prop_assert_eq!(receive(&mut responder, &good), Ok((true, frame)));
    }

    #[test]
    fn garbage_never_panics(mut packet: Vec<u8>, kind in 0u8..8) {
        let (mut initiator, mut responder) = connect(9);
        if let Some(first) = packet.first_mut() {
            *first = kind;
        }
        let mut reply = [0; MAX_PLAIN];
        let _ = responder.handle(&mut packet.clone(), &mut reply, key_of, || [1; 16]);
        let _ = initiator.handle(&mut packet.clone());
        initiator.hang_up();
        hail(&mut initiator);
        let _ = initiator.handle(&mut packet);
    }
}
