//! A budget: places in three parts, each with a bound for one address.

use std::{collections::HashMap, hash::Hash, net::IpAddr};

use super::Policy;

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Part {
    Unvalidated,
    Shared,
    Reserved,
}

/// What one handshake or connection takes up.
pub(super) type Place = (Part, IpAddr);

#[derive(Debug)]
pub(super) struct Budget {
    size: usize,
    policy: Policy,
    /// Places that are taken, by part and in part by address.
    pub parts: Counts<Part>,
    places: Counts<Place>,
}

impl Budget {
    pub fn new(size: usize, policy: Policy) -> Self {
        Self { size, policy, parts: Counts::new(), places: Counts::new() }
    }

    /// A place for this address, if this part has one left.
    pub fn find(&self, part: Part, address: IpAddr) -> Option<Place> {
        let Policy { unvalidated, one_address, reserved, one_recent_address, .. } = self.policy;
        let of_size = |share| percent(self.size, share);
        let (all, one) = match part {
            Part::Unvalidated => (of_size(unvalidated), self.size),
            Part::Shared => (self.size - of_size(unvalidated) - of_size(reserved), of_size(one_address)),
            Part::Reserved => (of_size(reserved), of_size(one_recent_address)),
        };
        let place = (part, address);
        (count(&self.parts, &part) < all && count(&self.places, &place) < one.max(1)).then_some(place)
    }

    pub fn take(&mut self, place: Place) {
        add(&mut self.parts, place.0);
        add(&mut self.places, place);
    }

    pub fn give_back(&mut self, place: Place) {
        remove(&mut self.parts, place.0);
        remove(&mut self.places, place);
    }
}

pub(super) fn percent(of: usize, percent: usize) -> usize {
    of.saturating_mul(percent) / 100
}

/// How often each key is there.
pub(super) type Counts<K> = HashMap<K, usize>;

pub(super) fn count<K: Eq + Hash>(counts: &Counts<K>, key: &K) -> usize {
    counts.get(key).map_or(0, |count| *count)
}

pub(super) fn add<K: Eq + Hash>(counts: &mut Counts<K>, key: K) {
    *counts.entry(key).or_default() += 1;
}

pub(super) fn remove<K: Eq + Hash>(counts: &mut Counts<K>, key: K) {
    let left = count(counts, &key).saturating_sub(1);
    if left == 0 {
        counts.remove(&key)
    } else {
        counts.insert(key, left)
    };
}
