//! What a stranger may cost before it has proved who it is, and how many connections a device may have.
//!
//! | bound | what happens beyond it |
//! |---|---|
//! | handshakes per second, beyond half of an address's share, or of the limit by addresses that have not answered | the address must prove itself first (a QUIC retry, which keeps no state) |
//! | handshakes per second, in all and from one address | refused |
//! | strangers at a time, in the same way | the same |
//! | connections of devices | refused |
//! | connections from one address | refused |
//! | connections of one device | the oldest is closed: a device that comes back has lost it |
//! | new certificates of one device | refused |
//!
//! An address (of IPv6, a network of 64 bits) has a quarter of what there is for strangers, and half while nobody else comes:
//! whoever floods the gateway from one address keeps nobody else out. The last quarter is for addresses from which a
//! device came in: whoever floods it from many keeps out only those who were never here. A fleet behind one address
//! is known there from its first device on, and then has three quarters. Streams and bytes per connection are bounded by the transport's own limits.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use common::DeviceId;
use tracing::debug;

mod lately;
mod refusals;
mod renewals;
mod usage;

use lately::Lately;
pub use refusals::Reason;
use refusals::Refusals;
pub use renewals::{BETWEEN_RENEWALS, Renewals};
use usage::{Caller, Room, Usage};

/// Connections of one device that may be open at once.
const PER_DEVICE: usize = 2;
/// Strangers at a time, at least.
const STRANGERS: usize = 256;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Of devices.
    pub connections: usize,
    pub per_address: usize,
    /// Handshakes per second.
    pub handshakes: usize,
}

impl Limits {
    /// Connections that have not proved who they are: besides those of devices, so that they can not take their places.
    fn strangers(&self) -> usize {
        (self.connections / 4).max(STRANGERS)
    }
}

/// What to do with a handshake.
#[derive(Debug)]
pub enum Verdict {
    /// The pass is given back when it is dropped, at the end of the connection.
    Accept(Pass),
    Retry,
    Refuse(Reason),
}

#[derive(Debug)]
pub struct Gate<C> {
    state: Arc<Mutex<State>>,
    devices: Mutex<HashMap<DeviceId, VecDeque<(u64, C)>>>,
    renewals: Arc<Renewals>,
}

#[derive(Debug)]
struct State {
    limits: Limits,
    /// When the second began that is counted.
    since: Option<Instant>,
    /// Handshakes of this second and of the one before.
    present: Usage,
    before: Usage,
    strangers: Usage,
    devices: Usage,
    /// Where devices came from.
    lately: Lately,
    refusals: Refusals,
}

/// A place among the strangers, and then among the devices.
#[derive(Debug)]
pub struct Pass {
    address: IpAddr,
    proved: bool,
    known: bool,
    state: Arc<Mutex<State>>,
}

impl<C> Gate<C> {
    pub fn new(limits: Limits) -> Self {
        let state = State {
            limits,
            since: None,
            present: Usage::default(),
            before: Usage::default(),
            strangers: Usage::default(),
            devices: Usage::default(),
            lately: Lately::new(limits.connections.max(STRANGERS)),
            refusals: Refusals::default(),
        };
        Self { state: Arc::new(Mutex::new(state)), devices: Mutex::default(), renewals: Arc::default() }
    }

    /// Who may have a new certificate.
    pub fn renewals(&self) -> Arc<Renewals> {
        self.renewals.clone()
    }

    /// `proved`: the address has answered to a retry already.
    pub fn knock(&self, address: IpAddr, proved: bool, now: Instant) -> Verdict {
        let address = network(address);
        let mut state = lock(&self.state);
        state.look_at(now);
        match state.judge(address, proved) {
            Ok(true) => {}
            Ok(false) => return Verdict::Retry,
            Err(reason) => {
                state.refusals.note(reason);
                return Verdict::Refuse(reason);
            }
        }
        state.present.add(address, proved);
        state.strangers.add(address, proved);
        Verdict::Accept(Pass { address, proved, known: false, state: self.state.clone() })
    }

    /// Somebody was turned away after the handshake; what is known of the last one is said.
    pub fn note(&self, reason: Reason, who: &dyn fmt::Display) {
        let last = who.to_string();
        debug!("refused: {}: {last}", reason.text());
        lock(&self.state).refusals.note_last(reason, last);
    }

    /// Whom the operator has to hear about: those who were turned away, at most once a minute.
    pub fn poll_refusals(&self, now: Instant) -> Option<String> {
        lock(&self.state).refusals.poll(now)
    }

    /// A device has proved who it is. Gives the connection that it has too many.
    pub fn enter(&self, device: &DeviceId, number: u64, connection: C) -> Option<C> {
        let mut devices = lock(&self.devices);
        let open = devices.entry(device.clone()).or_default();
        open.push_back((number, connection));
        if open.len() > PER_DEVICE { open.pop_front().map(|(_, oldest)| oldest) } else { None }
    }

    pub fn leave(&self, device: &DeviceId, number: u64) {
        let mut devices = lock(&self.devices);
        if let Some(open) = devices.get_mut(device) {
            open.retain(|(other, _)| *other != number);
            if open.is_empty() {
                devices.remove(device);
            }
        }
    }
}

impl<C: Clone> Gate<C> {
    /// Every device with a connection of it.
    pub fn inside(&self) -> Vec<(DeviceId, C)> {
        let devices = lock(&self.devices);
        let all = |(device, open): (&DeviceId, &VecDeque<(u64, C)>)| {
            open.iter().map(|(_, connection)| (device.clone(), connection.clone())).collect::<Vec<_>>()
        };
        devices.iter().flat_map(all).collect()
    }
}

impl State {
    fn look_at(&mut self, now: Instant) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        let passed = now.saturating_duration_since(since);
        if passed >= SECOND {
            let last = std::mem::take(&mut self.present);
            self.before = if passed < 2 * SECOND { last } else { Usage::default() };
            self.since = Some(now);
        }
    }

    /// Whether a handshake may go on; false: not before the address has answered.
    fn judge(&self, address: IpAddr, proved: bool) -> Result<bool, Reason> {
        let limits = &self.limits;
        if self.devices.all() >= limits.connections {
            return Err(Reason::Connections);
        }
        if self.strangers.of(address) + self.devices.of(address) >= limits.per_address {
            return Err(Reason::PerAddress);
        }
        let alone = self.present.is_only(address) && self.before.is_only(address);
        let caller = Caller { address, proved, familiar: self.lately.has(address), alone };
        let handshakes = self.present.room(limits.handshakes, caller);
        let strangers = self.strangers.room(limits.strangers(), caller);
        match (handshakes, strangers) {
            (Room::None, _) => Err(Reason::Handshakes),
            (_, Room::None) => Err(Reason::Strangers),
            (Room::Enough, Room::Enough) => Ok(true),
            _ => Ok(false),
        }
    }
}

impl Pass {
    /// The peer has proved that it belongs here. False if there is no place for it.
    pub fn admit(&mut self) -> bool {
        let mut state = lock(&self.state);
        if !self.known && state.devices.all() >= state.limits.connections {
            state.refusals.note(Reason::Connections);
            return false;
        }
        if !self.known {
            self.known = true;
            state.strangers.remove(self.address, self.proved);
            state.devices.add(self.address, self.proved);
            state.lately.note(self.address);
        }
        true
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        let usage = if self.known { &mut state.devices } else { &mut state.strangers };
        usage.remove(self.address, self.proved);
    }
}

/// Whoever has one address of IPv6 usually has a whole network of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = address(1);
    const B: IpAddr = address(2);

    const fn address(last: u8) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, last))
    }

    fn gate(connections: usize, per_address: usize, handshakes: usize) -> Gate<()> {
        Gate::new(Limits { connections, per_address, handshakes })
    }

    /// As a device that answers to a retry.
    fn come(gate: &Gate<()>, address: IpAddr, now: Instant) -> Option<Pass> {
        let first = match gate.knock(address, false, now) {
            Verdict::Retry => gate.knock(address, true, now),
            verdict => verdict,
        };
        match first {
            Verdict::Accept(pass) => Some(pass),
            Verdict::Retry => panic!("it has answered"),
            Verdict::Refuse(_) => None,
        }
    }

    #[test]
    fn too_many_handshakes_must_prove_their_address_and_are_then_refused() {
        let (gate, now) = (gate(100, 100, 12), Instant::now());
        let verdicts: Vec<_> = (0..4).map(|_| gate.knock(A, false, now)).collect();
        use Verdict::{Accept, Refuse, Retry};
        assert!(matches!(verdicts[..], [Accept(_), Accept(_), Accept(_), Retry]), "{verdicts:?}");
        let verdicts: Vec<_> = (0..4).map(|_| gate.knock(A, true, now)).collect();
        let refused = matches!(verdicts[3], Refuse(Reason::Handshakes));
        assert!(refused && verdicts[..3].iter().all(|verdict| matches!(verdict, Accept(_))), "{verdicts:?}");
        let later = now + Duration::from_secs(1);
        assert!(matches!(gate.knock(A, false, later), Accept(_)));
    }

    #[test]
    fn a_flood_from_one_address_keeps_nobody_else_out() {
        let (gate, start) = (gate(4096, 4096, 1000), Instant::now());
        for second in 0..5 {
            let now = start + SECOND * second;
            let flood = (0..5000).filter(|_| come(&gate, A, now).is_some()).count();
            // Before anybody else was there, all but a quarter of what strangers may have is for whoever comes.
            assert_eq!(flood, if second == 0 { 500 } else { 250 });
            let others = (0..250).filter(|_| come(&gate, B, now).is_some()).count();
            assert_eq!(others, 250);
        }
        assert!(gate.poll_refusals(start).unwrap().contains("too many handshakes"));
    }

    #[test]
    fn a_flood_from_many_addresses_keeps_nobody_out_who_was_here() {
        let (gate, start) = (gate(4096, 4096, 1000), Instant::now());
        let familiar = address(200);
        assert!(come(&gate, familiar, start).is_some_and(|mut pass| pass.admit()));
        let mut stalled = vec![];
        for second in 1..20 {
            let now = start + SECOND * second;
            for last in 0..100 {
                stalled.extend((0..50).filter_map(|_| come(&gate, address(last), now)));
            }
            // No stranger has the last quarter, neither of the handshakes nor of the places.
            assert!(come(&gate, address(201), now).is_none());
            let mut again: Vec<_> = (0..200).filter_map(|_| come(&gate, familiar, now)).collect();
            assert_eq!(again.len(), 200, "in second {second}");
            assert!(again.iter_mut().all(Pass::admit));
        }
        assert_eq!(stalled.len(), 768);
    }

    #[test]
    fn what_is_kept_for_familiar_addresses_is_not_given_to_who_only_names_them() {
        let (gate, now) = (gate(4096, 4096, 100), Instant::now());
        let familiar = address(200);
        assert!(come(&gate, familiar, now).is_some_and(|mut pass| pass.admit()));
        let flood = (0..100).filter(|last| come(&gate, address(*last), now).is_some()).count();
        assert_eq!(flood, 74);
        assert!(matches!(gate.knock(familiar, false, now), Verdict::Retry));
        assert!(matches!(gate.knock(familiar, true, now), Verdict::Accept(_)));
    }

    #[test]
    fn a_fleet_behind_one_address_comes_in() {
        let (gate, start) = (gate(2064, 2064, 1000), Instant::now());
        let mut inside = vec![];
        for tick in 0..300 {
            // Ten milliseconds for seven devices, of which all become known at once.
            let now = start + Duration::from_millis(10) * tick;
            for _ in 0..7 {
                inside.extend(come(&gate, A, now).and_then(|mut pass| pass.admit().then_some(pass)));
            }
        }
        assert!(inside.len() >= 2000, "{} came in", inside.len());
    }

    #[test]
    fn who_never_proves_who_it_is_takes_no_place_of_a_device() {
        let (gate, start) = (gate(8, 1000, 1000), Instant::now());
        let mut strangers = vec![];
        for second in 0..20 {
            strangers.extend((0..100).filter_map(|_| come(&gate, A, start + SECOND * second)));
        }
        assert_eq!(strangers.len(), 128, "half of what there is for strangers");
        let now = start + SECOND * 20;
        let mut devices: Vec<_> = (0..8).filter_map(|_| come(&gate, B, now)).collect();
        assert!(devices.len() == 8 && devices.iter_mut().all(Pass::admit));
        // All places of devices are taken: a ninth is refused, also if it knocked in time.
        assert!(!strangers[0].admit());
        assert!(matches!(gate.knock(B, true, now), Verdict::Refuse(Reason::Connections)));
        devices.truncate(7);
        assert!(strangers[0].admit() && strangers[0].admit());
        drop((strangers, devices));
        let state = lock(&gate.state);
        assert_eq!((state.strangers.all(), state.devices.all()), (0, 0));
    }

    #[test]
    fn addresses_that_do_not_answer_leave_room_for_those_that_do() {
        let (gate, now) = (gate(4096, 4096, 100), Instant::now());
        let spoofed = (0..=255).map(|last| gate.knock(address(last), false, now));
        let accepted: Vec<_> = spoofed.filter(|verdict| matches!(verdict, Verdict::Accept(_))).collect();
        assert_eq!(accepted.len(), 50);
        let answered = (0..=255).filter(|&last| come(&gate, address(last), now).is_some()).count();
        assert_eq!(answered, 25);
    }

    #[test]
    fn places_are_given_back() {
        let (gate, now) = (gate(2, 1, 1000), Instant::now());
        let first = come(&gate, A, now);
        assert!(first.is_some());
        assert!(matches!(gate.knock(A, true, now), Verdict::Refuse(Reason::PerAddress)), "one per address");
        let second = come(&gate, B, now);
        assert!(second.is_some());
        drop(first);
        assert!(come(&gate, A, now).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let [one, same, other, mapped] =
            ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1", "::ffff:10.0.0.1"]
                .map(|text| network(text.parse().unwrap()));
        assert!(one == same && one != other && mapped == A);
    }

    #[test]
    fn a_device_that_comes_back_loses_its_oldest_connection() {
        let gate = Gate::new(Limits { connections: 9, per_address: 9, handshakes: 9 });
        let device: DeviceId = "cam-1".parse().unwrap();
        assert_eq!(gate.enter(&device, 1, "one"), None);
        assert_eq!(gate.enter(&device, 2, "two"), None);
        assert_eq!(gate.enter(&device, 3, "three"), Some("one"));
        gate.leave(&device, 1);
        gate.leave(&device, 2);
        assert_eq!(gate.inside(), [(device.clone(), "three")]);
        gate.leave(&device, 3);
        assert_eq!(gate.inside(), []);
    }
}
