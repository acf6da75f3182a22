//! Addresses from which devices came in, the last ones of them: what is kept for them is safe from strangers.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

#[derive(Debug)]
pub(super) struct Lately {
    room: usize,
    /// Counts admissions, so that the oldest address is known.
    next: u64,
    stamps: HashMap<IpAddr, u64>,
    oldest: BTreeMap<u64, IpAddr>,
}

impl Lately {
    pub fn new(room: usize) -> Self {
        Self { room, next: 0, stamps: HashMap::new(), oldest: BTreeMap::new() }
    }

    /// A device from this address has proved who it is.
    pub fn note(&mut self, address: IpAddr) {
        if let Some(before) = self.stamps.insert(address, self.next) {
            self.oldest.remove(&before);
        }
        self.oldest.insert(self.next, address);
        self.next += 1;
        if self.stamps.len() > self.room
            && let Some((_, oldest)) = self.oldest.pop_first()
        {
            self.stamps.remove(&oldest);
        }
    }

    pub fn has(&self, address: IpAddr) -> bool {
        self.stamps.contains_key(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_was_longest_away_is_forgotten() {
        let [a, b, c] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut lately = Lately::new(2);
        for address in [a, b, a, c] {
            lately.note(address);
        }
        assert_eq!([a, b, c].map(|address| lately.has(address)), [true, false, true]);
        assert_eq!((lately.stamps.len(), lately.oldest.len()), (2, 2));
    }
}
