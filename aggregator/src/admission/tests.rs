use super::*;

mod documents;
mod simulation;

const A: IpAddr = address(1);
const B: IpAddr = address(2);
const SECOND: Duration = Duration::from_secs(1);

const fn address(last: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, last))
}

fn admission(connections: usize, per_address: usize, handshakes: usize) -> Admission {
    Admission::new(Limits { connections, per_address, handshakes })
}

/// A handshake of a peer that answers a Retry.
fn come(admission: &Admission, address: IpAddr, now: Instant) -> Option<Permit> {
    let decision = match admission.decide(address, false, now) {
        Decision::Retry => admission.decide(address, true, now),
        decision => decision,
    };
    match decision {
        Decision::Accept(permit) => Some(permit),
        Decision::Retry => panic!("it has answered"),
        Decision::Refuse(_) => None,
    }
}

#[test]
fn too_many_handshakes_must_prove_their_address_and_are_then_refused() {
    use Decision::{Accept, Refuse, Retry};
    let (admission, now) = (admission(100, 100, 12), Instant::now());
    let decisions: Vec<_> = (0..4).map(|_| admission.decide(A, false, now)).collect();
    assert!(matches!(decisions[..], [Accept(_), Accept(_), Accept(_), Retry]), "{decisions:?}");
    let decisions: Vec<_> = (0..4).map(|_| admission.decide(A, true, now)).collect();
    let refused = matches!(decisions[3], Refuse(Refusal::Handshakes));
    assert!(refused && decisions[..3].iter().all(|decision| matches!(decision, Accept(_))), "{decisions:?}");
    assert!(matches!(admission.decide(A, false, now + SECOND), Accept(_)));
}

#[test]
fn a_flood_from_one_address_keeps_no_other_address_out() {
    let (admission, start) = (admission(4096, 4096, 1000), Instant::now());
    for second in 0..5 {
        let now = start + SECOND * second;
        let flood = (0..5000).filter(|_| come(&admission, A, now).is_some()).count();
        let others = (0..250).filter(|_| come(&admission, B, now).is_some()).count();
        assert_eq!((flood, others), (500, 250));
    }
    assert!(admission.poll_refusals(start).unwrap().contains("too many handshakes"));
}

#[test]
fn a_flood_from_many_addresses_keeps_no_recent_address_out() {
    let (admission, start) = (admission(4096, 4096, 1000), Instant::now());
    let recent = address(200);
    assert!(come(&admission, recent, start).is_some_and(|mut permit| permit.admit()));
    let mut stalled = vec![];
    for second in 1..20 {
        let now = start + SECOND * second;
        for last in 0..100 {
            stalled.extend((0..50).filter_map(|_| come(&admission, address(last), now)));
        }
        // A new address gets nothing of what is reserved, neither of the handshakes nor of the connections.
        assert!(come(&admission, address(201), now).is_none());
        let mut again: Vec<_> = (0..200).filter_map(|_| come(&admission, recent, now)).collect();
        assert_eq!(again.len(), 200, "in second {second}");
        assert!(again.iter_mut().all(Permit::admit));
    }
    assert_eq!(stalled.len(), 768);
}

#[test]
fn the_reserved_share_is_not_given_to_a_forged_address() {
    let (admission, now) = (admission(4096, 4096, 100), Instant::now());
    let recent = address(200);
    assert!(come(&admission, recent, now).is_some_and(|mut permit| permit.admit()));
    let flood = (0..100).filter(|last| come(&admission, address(*last), now).is_some()).count();
    assert_eq!(flood, 74);
    assert!(matches!(admission.decide(recent, false, now), Decision::Retry));
    assert!(matches!(admission.decide(recent, true, now), Decision::Accept(_)));
}

#[test]
fn a_fleet_behind_one_address_comes_in() {
    let (admission, start) = (admission(2064, 2064, 1000), Instant::now());
    let mut inside = vec![];
    for tick in 0..300 {
        // Seven devices in ten milliseconds, which prove themselves at once.
        let now = start + Duration::from_millis(10) * tick;
        for _ in 0..7 {
            inside.extend(come(&admission, A, now).and_then(|mut permit| permit.admit().then_some(permit)));
        }
    }
    assert!(inside.len() >= 2000, "{} came in", inside.len());
}

#[test]
fn unproven_connections_take_no_place_of_a_device() {
    let (admission, start) = (admission(8, 1000, 1000), Instant::now());
    let mut unproven = vec![];
    for second in 0..20 {
        unproven.extend((0..100).filter_map(|_| come(&admission, A, start + SECOND * second)));
    }
    assert_eq!(unproven.len(), 128, "half of what there is for them");
    let now = start + SECOND * 20;
    let mut devices: Vec<_> = (0..8).filter_map(|_| come(&admission, B, now)).collect();
    assert!(devices.len() == 8 && devices.iter_mut().all(Permit::admit));
    // All places of devices are taken: a ninth is refused, even after its handshake was accepted.
    assert!(!unproven[0].admit());
    assert!(matches!(admission.decide(B, true, now), Decision::Refuse(Refusal::Connections)));
    devices.truncate(7);
    assert!(unproven[0].admit() && unproven[0].admit());
    drop((unproven, devices));
    let state = lock(&admission.state);
    assert_eq!((state.unproven.parts.len(), state.devices), (0, 0));
}

#[test]
fn addresses_that_do_not_answer_leave_room_for_those_that_do() {
    let (admission, now) = (admission(4096, 4096, 100), Instant::now());
    let forged = (0..=255).map(|last| admission.decide(address(last), false, now));
    let accepted: Vec<_> = forged.filter(|decision| matches!(decision, Decision::Accept(_))).collect();
    assert_eq!(accepted.len(), 25);
    let answered = (0..=255).filter(|&last| come(&admission, address(last), now).is_some()).count();
    assert_eq!(answered, 50);
}

#[test]
fn places_are_given_back() {
    let (admission, now) = (admission(2, 1, 1000), Instant::now());
    let first = come(&admission, A, now);
    assert!(first.is_some());
    let refused = admission.decide(A, true, now);
    assert!(matches!(refused, Decision::Refuse(Refusal::PerAddress)), "one per address");
    let second = come(&admission, B, now);
    assert!(second.is_some());
    drop(first);
    assert!(come(&admission, A, now).is_some());
}

#[test]
fn the_smallest_limits_still_let_one_in_per_second() {
    for handshakes in 1..8 {
        let (admission, start) = (admission(1, 1, handshakes), Instant::now());
        for second in 0..3 {
            let permit = come(&admission, A, start + SECOND * second);
            assert!(permit.is_some_and(|mut permit| permit.admit()), "{handshakes} in a second");
        }
    }
}

#[test]
fn a_network_of_ipv6_is_one_address() {
    let [one, same, other, mapped] =
        ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1", "::ffff:10.0.0.1"]
            .map(|text| network(text.parse().unwrap()));
    assert!(one == same && one != other && mapped == A);
}
