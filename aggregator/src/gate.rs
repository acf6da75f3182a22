//! What a stranger may cost before it has proved who it is, and how many connections a device may have.
//!
//! | bound | what happens beyond it |
//! |---|---|
//! | handshakes per second, half of the limit | the address must prove itself first (a QUIC retry, which keeps no state) |
//! | handshakes per second | refused |
//! | connections, in all and from one address | refused |
//! | connections of one device | the oldest is closed: a device that comes back has lost it |
//!
//! Streams and bytes per connection are bounded by the transport's own limits.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use common::DeviceId;

/// Connections of one device that may be open at once.
const PER_DEVICE: usize = 2;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    pub connections: usize,
    pub per_address: usize,
    /// Handshakes per second.
    pub handshakes: usize,
}

/// What to do with a handshake.
#[derive(Debug)]
pub enum Verdict {
    /// The pass is given back when it is dropped, at the end of the connection.
    Accept(Pass),
    Retry,
    Refuse,
}

#[derive(Debug)]
pub struct Gate<C> {
    limits: Limits,
    state: Arc<Mutex<State>>,
    devices: Mutex<HashMap<DeviceId, VecDeque<(u64, C)>>>,
}

#[derive(Debug, Default)]
struct State {
    /// The second that is counted.
    since: Option<Instant>,
    handshakes: usize,
    connections: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// A place among the connections.
#[derive(Debug)]
pub struct Pass {
    address: IpAddr,
    state: Arc<Mutex<State>>,
}

impl<C> Gate<C> {
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: Arc::default(), devices: Mutex::default() }
    }

    /// `proved`: the address has answered to a retry already.
    pub fn knock(&self, address: IpAddr, proved: bool, now: Instant) -> Verdict {
        let mut state = lock(&self.state);
        if state.since.is_none_or(|since| now.duration_since(since).as_secs() >= 1) {
            state.since = Some(now);
            state.handshakes = 0;
        }
        state.handshakes += 1;
        let from_there = state.addresses.get(&address).copied().unwrap_or(0);
        let full = state.connections >= self.limits.connections || from_there >= self.limits.per_address;
        if full || state.handshakes > self.limits.handshakes {
            return Verdict::Refuse;
        }
        if !proved && state.handshakes > self.limits.handshakes / 2 {
            return Verdict::Retry;
        }
        state.connections += 1;
        *state.addresses.entry(address).or_default() += 1;
        Verdict::Accept(Pass { address, state: self.state.clone() })
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

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.connections = state.connections.saturating_sub(1);
        if let Some(count) = state.addresses.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                state.addresses.remove(&self.address);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn too_many_handshakes_must_prove_their_address_and_are_then_refused() {
        let gate = Gate::<()>::new(Limits { connections: 100, per_address: 100, handshakes: 4 });
        let now = Instant::now();
        let verdicts: Vec<_> = (0..5).map(|_| gate.knock(A, false, now)).collect();
        assert!(matches!(
            verdicts[..],
            [Verdict::Accept(_), Verdict::Accept(_), Verdict::Retry, Verdict::Retry, Verdict::Refuse]
        ));
        let later = now + Duration::from_secs(1);
        assert!(matches!(gate.knock(A, false, later), Verdict::Accept(_)));
    }

    #[test]
    fn places_are_given_back() {
        let gate = Gate::<()>::new(Limits { connections: 2, per_address: 1, handshakes: 1000 });
        let now = Instant::now();
        let Verdict::Accept(first) = gate.knock(A, true, now) else { panic!("there is room") };
        assert!(matches!(gate.knock(A, true, now), Verdict::Refuse), "one per address");
        let Verdict::Accept(_second) = gate.knock(B, true, now) else { panic!("there is room") };
        drop(first);
        assert!(matches!(gate.knock(A, true, now), Verdict::Accept(_)));
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
