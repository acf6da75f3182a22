//! The addresses of a fleet's gateways, and the order in which a device tries them.
//!
//! The order is a shuffle that follows from the device's name, so that a fleet spreads over its gateways.
//!
//! | what has ended | the next attempt |
//! |---|---|
//! | a link, after the device has joined | the same address once more, because parts of an update may be there |
//! | the link of that second attempt, without a transfer or a round | the next address |
//! | an attempt | the next address |
//! | a link, because the gateway stops | the next address |
//! | an attempt, because the gateway has no room or is not ready | the next address at once |
//!
//! Attempts wait for the ordinary back-off, except those at once: at most one at each address between two pauses.
//! When a gateway stops, its whole fleet loses its links, so the devices do not come to the next one at once.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
};

use common::{rng::Rng, wire::crc32};
use tracing::warn;

/// No address could be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum AddressError {
    #[error("{name}: {source}; an address is written as HOST:PORT, several as HOST:PORT,HOST:PORT")]
    Resolve { name: String, source: io::Error },
    #[error("{name}: no address")]
    None { name: String },
}

/// The addresses of the gateways of one fleet; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayAddresses(Vec<SocketAddr>);

impl From<SocketAddr> for GatewayAddresses {
    fn from(address: SocketAddr) -> Self {
        Self(vec![address])
    }
}

impl GatewayAddresses {
    /// Finds the addresses of a list such as `gw-1:4433,gw-2:4433`. Of a name, all addresses of the kind that the system
    /// prefers, IPv4 or IPv6. A name that cannot be found is left out, unless none can.
    pub fn resolve(list: &str) -> Result<Self, AddressError> {
        let (mut addresses, mut failed) = (vec![], vec![]);
        for name in list.split(',').map(str::trim) {
            match look_up(name) {
                Ok(found) => addresses.extend(found),
                Err(error) => failed.push(error),
            }
        }
        if addresses.is_empty() {
            return Err(failed.into_iter().next().unwrap_or(AddressError::None { name: list.to_owned() }));
        }
        failed.iter().for_each(|error| warn!("a gateway's address is left out: {error}"));
        let mut known = vec![];
        addresses.retain(|address| {
            let new = !known.contains(address);
            known.push(*address);
            new
        });
        Ok(Self(addresses))
    }

    /// In the order in which a device of this name tries them.
    pub fn order_of(&self, device: &str) -> Vec<SocketAddr> {
        let mut order = self.0.clone();
        Rng::new(u64::from(crc32(device.as_bytes()))).shuffle(&mut order);
        order
    }
}

fn look_up(name: &str) -> Result<Vec<SocketAddr>, AddressError> {
    let found =
        name.to_socket_addrs().map_err(|source| AddressError::Resolve { name: name.into(), source })?;
    let mut found: Vec<SocketAddr> = found.collect();
    let first = *found.first().ok_or_else(|| AddressError::None { name: name.into() })?;
    found.retain(|address| address.is_ipv4() == first.is_ipv4());
    Ok(found)
}

/// When the next attempt begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// At another address.
    AtOnce,
    /// After the ordinary back-off.
    AfterPause,
}

/// The address that a device tries next; see the module.
#[derive(Clone, Debug)]
pub(super) struct Route {
    addresses: Vec<SocketAddr>,
    at: usize,
    /// The present address is tried once more after a lost link.
    again: bool,
    /// Addresses that have refused since the last pause.
    refused: usize,
}

impl Route {
    pub fn new(gateways: &GatewayAddresses, device: &str) -> Self {
        Self { addresses: gateways.order_of(device), at: 0, again: false, refused: 0 }
    }

    /// All addresses, in the order of this device.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The next one to try.
    pub fn address(&self) -> SocketAddr {
        self.addresses[self.at]
    }

    /// The link has carried a transfer, or completed a round.
    pub fn note_progress(&mut self) {
        self.again = false;
    }

    /// An attempt or a link has ended. `turned_away`: the gateway has no room, is not ready or stops; `joined`: it had admitted
    /// the device.
    pub fn note_end(&mut self, turned_away: bool, joined: bool) -> Turn {
        self.again = joined && !turned_away && !self.again;
        if !self.again {
            self.at = (self.at + 1) % self.addresses.len();
        }
        let refused = turned_away && !joined;
        self.refused = if refused { (self.refused + 1) % self.addresses.len() } else { 0 };
        if self.refused > 0 { Turn::AtOnce } else { Turn::AfterPause }
    }

    /// The next address for logs: "again" if it is the last one.
    pub fn next_after(&self, last: SocketAddr) -> String {
        if self.address() == last { "again".to_owned() } else { self.address().to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(addresses: usize) -> Route {
        let addresses = (0..addresses).map(|at| SocketAddr::from(([10, 0, 0, at as u8], 4433)));
        Route { addresses: addresses.collect(), at: 0, again: false, refused: 0 }
    }

    #[test]
    fn lists_are_resolved_without_repetitions() {
        let resolved = |list| GatewayAddresses::resolve(list).map(|found| found.0);
        let expected = ["127.0.0.1:1", "[::1]:2", "127.0.0.1:3"].map(|address| address.parse().unwrap());
        assert_eq!(resolved("127.0.0.1:1,[::1]:2, 127.0.0.1:3,127.0.0.1:1").unwrap(), expected);
        assert_eq!(resolved("127.0.0.1:1,nowhere").unwrap(), expected[..1]);
        for bad in ["", "nowhere", "127.0.0.1", "nowhere,127.0.0.1", ","] {
            assert!(matches!(resolved(bad), Err(AddressError::Resolve { .. })), "{bad}");
        }
    }

    #[test]
    fn devices_spread_over_all_gateways_and_each_keeps_its_order() {
        let gateways = GatewayAddresses::resolve("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").unwrap();
        let mut first = [0; 4];
        for device in 0..300 {
            let name = format!("cam-{device}");
            let order = gateways.order_of(&name);
            assert_eq!(order, gateways.order_of(&name));
            first[usize::from(order[0].port())] += 1;
            let mut sorted = order;
            sorted.sort_unstable();
            assert_eq!(sorted, gateways.0);
        }
        assert!(first[1..].iter().all(|&count| count > 70), "{first:?}");
    }

    #[test]
    fn a_lost_link_is_tried_again_once_and_then_the_next_address() {
        let mut route = route(3);
        let mut lost = |joined| {
            assert_eq!(route.note_end(false, joined), Turn::AfterPause);
            route.at
        };
        // Attempts that fail; a lost link; links that are lost again and again without progress.
        assert_eq!([lost(false), lost(false), lost(false)], [1, 2, 0]);
        assert_eq!([lost(true), lost(false)], [0, 1]);
        assert_eq!([lost(true), lost(true), lost(true), lost(true)], [1, 2, 2, 0]);
        // A link that makes progress is worth another attempt every time.
        for _ in 0..5 {
            route.note_progress();
            assert_eq!((route.note_end(false, true), route.at), (Turn::AfterPause, 0));
        }
    }

    #[test]
    fn each_address_may_refuse_once_before_a_pause() {
        let refused = |route: &mut Route| route.note_end(true, false) == Turn::AtOnce;
        for count in 1..5 {
            let mut route = route(count);
            for step in 0..3 {
                let at_once: Vec<bool> = (0..count).map(|_| refused(&mut route)).collect();
                assert_eq!(at_once.iter().filter(|&&at_once| at_once).count(), count - 1, "step {step}");
                assert!(!at_once[count - 1]);
                assert_eq!(route.at, 0);
            }
        }
        let mut route = route(3);
        // A gateway that stops: the next address, but not at once.
        assert_eq!((route.note_end(true, true), route.at), (Turn::AfterPause, 1));
        // A pause in between begins a new step.
        assert!(refused(&mut route));
        assert_eq!((route.note_end(false, false), route.at), (Turn::AfterPause, 0));
        assert_eq!([(); 3].map(|()| refused(&mut route)), [true, true, false]);
    }
}
