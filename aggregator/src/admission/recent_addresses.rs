//! The most recent addresses from which devices came in.

use std::{collections::HashSet, mem, net::IpAddr};

/// Two generations: when the younger one is full, the older one is forgotten. So the last `room` addresses are always known.
#[derive(Debug)]
pub(super) struct RecentAddresses {
    room: usize,
    younger: HashSet<IpAddr>,
    older: HashSet<IpAddr>,
}

impl RecentAddresses {
    pub fn new(room: usize) -> Self {
        Self { room, younger: HashSet::new(), older: HashSet::new() }
    }

    /// A device came in from this address.
    pub fn note(&mut self, address: IpAddr) {
        self.younger.insert(address);
        if self.younger.len() >= self.room {
            self.older = mem::take(&mut self.younger);
        }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.younger.contains(&address) || self.older.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_address_is_forgotten() {
        let [a, b, c] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut recent = RecentAddresses::new(2);
        for address in [a, b, a, c] {
            recent.note(address);
        }
        assert_eq!([a, b, c].map(|address| recent.contains(address)), [true, false, true]);
        assert_eq!((recent.younger.len(), recent.older.len()), (0, 2));
    }
}
