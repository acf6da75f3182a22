//! Admission: which handshakes go on, and which connections stay open.
//!
//! 1. **Two budgets.** One bounds the handshakes in any second (`server.max_handshakes_per_s`). The other bounds the connections
//!    that have not proved who they are (25 % of `server.max_connections`, at least 256). Devices have places of their own.
//! 2. **Shares.** Of each budget, 25 % are for addresses that have not answered a QUIC Retry. One address that has answered
//!    gets at most 25 %. The last 25 % are for recent addresses, from which a device came in; one of them gets at most 20 %.
//!    In all, one address gets at most 50 %, a recent one 70 %.
//! 3. **Caps.** Devices have `server.max_connections` in all, and `server.max_per_address` from one address. One device has 2
//!    connections; a third closes the oldest. It gets one certificate in 2 s.
//!
//! A handshake without a share is sent a Retry if an answer would give it one; otherwise it is refused. An IPv6 address counts
//! as its network of 64 bits. Recent addresses are kept in memory: after a restart they are new again.
//!
//! Sources. Budget: a token bucket whose tokens come back one second after they were taken (Turner 1986). Retry: RFC 9000,
//! section 8.1.2. Recent addresses: history-based IP filtering (Peng, Leckie, Ramamohanarao 2003). IPv6 networks: RFC 7421.

use std::{
    collections::VecDeque,
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tracing::debug;

mod budget;
mod device_connections;
mod recent_addresses;
mod refusals;
mod renewals;

use budget::{Budget, BudgetPart, Counts, Slot};
pub use device_connections::DeviceConnections;
pub(crate) use device_connections::{AddedConnection, ConnectionKey};
use recent_addresses::RecentAddresses;
pub(crate) use refusals::Refusal;
use refusals::Refusals;
pub(crate) use renewals::Renewals;

/// The constants of rules 1 and 2.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Policy {
    unvalidated: usize,
    one_address: usize,
    reserved: usize,
    one_recent_address: usize,
    unproven: usize,
    min_unproven: usize,
}

const POLICY: Policy = Policy {
    unvalidated: 25, // % of a budget, for all addresses that have not answered a Retry: they may be forged
    one_address: 25, // % of a budget, for one address that has answered
    reserved: 25,    // % of a budget, for recent addresses that have answered
    one_recent_address: 20, // % of a budget, of that for one recent address
    unproven: 25,    // % of `max_connections`, the second budget
    min_unproven: 256, // connections, the least of it
};
// One address must leave as much for another one.
const _: () = assert!(POLICY.unvalidated + POLICY.reserved + 2 * POLICY.one_address <= 100);
const _: () = assert!(POLICY.one_recent_address < POLICY.reserved);
/// How long a handshake takes up its share.
const HANDSHAKE_WINDOW: Duration = Duration::from_secs(1);
/// Connections of one device that may be open at once.
const PER_DEVICE: usize = 2;
/// Time between two certificates for one device.
pub(crate) const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two lines of the log about refusals.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The configuration's `server.max_connections`, `max_per_address` and `max_handshakes_per_s`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Devices that may be connected at once. A quarter of it, at least 256, is open to peers that have not proved who they are.
    pub connections: usize,
    /// Connections from one IPv4 address or one IPv6 network of 64 bits, proven or not.
    pub per_address: usize,
    /// Handshakes per second, from all addresses together.
    pub handshakes: usize,
}

/// What to do with a handshake.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Go on. The permit gives its place back when it is dropped, at the end of the connection.
    Accept(Permit),
    /// Ask the address to answer first. A QUIC Retry keeps no state.
    Retry,
    Refuse(Refusal),
}

/// The state of the three rules. All connections of one endpoint share it.
#[derive(Clone, Debug)]
pub struct Admission {
    state: Arc<Mutex<State>>,
    pub(crate) renewals: Arc<Renewals>,
}

#[derive(Debug)]
struct State {
    limits: Limits,
    handshakes: Budget,
    /// The handshakes that take up a slot of `handshakes`, oldest first.
    started: VecDeque<StartedHandshake>,
    unproven: Budget,
    /// Connections of devices.
    devices: usize,
    /// Connections by address, proven or not.
    by_address: Counts<IpAddr>,
    recent: RecentAddresses,
    refusals: Refusals,
}

#[derive(Copy, Clone, Debug)]
struct StartedHandshake {
    at: Instant,
    slot: Slot,
}

/// What a connection takes up until its peer has proved who it is.
#[derive(Copy, Clone, Debug)]
struct Slots {
    handshake: Slot,
    unproven: Slot,
}

/// A place for one connection: first among the unproven, then among the devices.
#[derive(Debug)]
pub(crate) struct Permit {
    address: IpAddr,
    /// Until the peer has proved who it is.
    unproven: Option<Slot>,
    state: Arc<Mutex<State>>,
}

impl Admission {
    /// Starts without open connections and without recent addresses.
    pub fn new(limits: Limits) -> Self {
        Self::with_policy(limits, POLICY)
    }

    fn with_policy(limits: Limits, policy: Policy) -> Self {
        let unproven = budget::percent(limits.connections, policy.unproven).max(policy.min_unproven);
        let state = State {
            limits,
            handshakes: Budget::new(limits.handshakes, policy),
            started: VecDeque::new(),
            unproven: Budget::new(unproven, policy),
            devices: 0,
            by_address: Counts::new(),
            recent: RecentAddresses::new(limits.connections.max(policy.min_unproven)),
            refusals: Refusals::default(),
        };
        Self { state: Arc::new(Mutex::new(state)), renewals: Arc::default() }
    }

    /// Changes the limits. Open connections stay, also beyond them.
    pub fn limit(&self, limits: Limits) {
        let mut state = lock(&self.state);
        let unproven = budget::percent(limits.connections, POLICY.unproven).max(POLICY.min_unproven);
        state.handshakes.resize(limits.handshakes);
        state.unproven.resize(unproven);
        state.limits = limits;
    }

    /// Refusals by reason since the start.
    pub fn refused(&self) -> Vec<(Refusal, u64)> {
        lock(&self.state).refusals.totals().collect()
    }

    /// Decides about a handshake. `validated`: the address has answered a Retry.
    pub(crate) fn decide(&self, address: IpAddr, validated: bool, now: Instant) -> Decision {
        let address = network(address);
        let mut state = lock(&self.state);
        state.expire_handshakes(now);
        match state.find_slots(address, validated) {
            Err(refusal) => {
                state.refusals.count(refusal, None);
                Decision::Refuse(refusal)
            }
            Ok(None) => Decision::Retry,
            Ok(Some(Slots { handshake, unproven })) => {
                state.handshakes.take(handshake);
                state.started.push_back(StartedHandshake { at: now, slot: handshake });
                state.unproven.take(unproven);
                budget::add(&mut state.by_address, address);
                let unproven = Some(unproven);
                Decision::Accept(Permit { address, unproven, state: self.state.clone() })
            }
        }
    }

    /// Counts a peer that is refused after its handshake. The log names the last one.
    pub(crate) fn count_refusal(&self, refusal: Refusal, peer: &dyn fmt::Display) {
        let last = peer.to_string();
        debug!("refused: {}: {last}", refusal.text());
        lock(&self.state).refusals.count(refusal, Some(last));
    }

    /// The line of the log about refusals, at most once a minute.
    pub(crate) fn poll_refusals(&self, now: Instant) -> Option<String> {
        lock(&self.state).refusals.poll(now)
    }
}

impl State {
    fn expire_handshakes(&mut self, now: Instant) {
        let is_over =
            |started: &mut StartedHandshake| now.saturating_duration_since(started.at) >= HANDSHAKE_WINDOW;
        while let Some(started) = self.started.pop_front_if(is_over) {
            self.handshakes.give_back(started.slot);
        }
    }

    /// Slots in both budgets. `None` if the address gets them only after it has answered a Retry.
    fn find_slots(&self, address: IpAddr, validated: bool) -> Result<Option<Slots>, Refusal> {
        if self.devices >= self.limits.connections {
            return Err(Refusal::Connections);
        }
        if budget::count(&self.by_address, &address) >= self.limits.per_address {
            return Err(Refusal::PerAddress);
        }
        let unvalidated = |budget: &Budget| budget.find(BudgetPart::Unvalidated, address);
        if !validated
            && let (Some(handshake), Some(unproven)) =
                (unvalidated(&self.handshakes), unvalidated(&self.unproven))
        {
            return Ok(Some(Slots { handshake, unproven }));
        }
        let is_recent = self.recent.contains(address);
        let find = |budget: &Budget| {
            let reserved = || budget.find(BudgetPart::Reserved, address).filter(|_| is_recent);
            budget.find(BudgetPart::Shared, address).or_else(reserved)
        };
        let handshake = find(&self.handshakes).ok_or(Refusal::Handshakes)?;
        let unproven = find(&self.unproven).ok_or(Refusal::Unproven)?;
        Ok(validated.then_some(Slots { handshake, unproven }))
    }
}

impl Permit {
    /// The peer has proved who it is. Returns false if all places for devices are taken.
    pub(crate) fn admit(&mut self) -> bool {
        let mut state = lock(&self.state);
        let Some(slot) = self.unproven else { return true };
        if state.devices >= state.limits.connections {
            state.refusals.count(Refusal::Connections, None);
            return false;
        }
        self.unproven = None;
        state.unproven.give_back(slot);
        state.devices += 1;
        state.recent.note(self.address);
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        budget::remove(&mut state.by_address, self.address);
        match self.unproven {
            Some(slot) => state.unproven.give_back(slot),
            None => state.devices -= 1,
        }
    }
}

/// What counts as one address. One host usually has a whole IPv6 network of 64 bits.
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
mod tests;
