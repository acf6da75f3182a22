//! A budget: slots in three parts, each with a bound for one address.

use std::{collections::HashMap, hash::Hash, net::IpAddr};

use super::Policy;

/// Which handshakes a part of the budget is for.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum BudgetPart {
    Unvalidated,
    Shared,
    Reserved,
}

/// What one handshake or connection takes up.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Slot {
    part: BudgetPart,
    address: IpAddr,
}

#[derive(Debug)]
pub(super) struct Budget {
    size: usize,
    policy: Policy,
    /// Slots in use, by part, and within a part by address.
    pub parts: Counts<BudgetPart>,
    slots: Counts<Slot>,
}

impl Budget {
    pub fn new(size: usize, policy: Policy) -> Self {
        Self { size, policy, parts: Counts::new(), slots: Counts::new() }
    }

    /// Slots in use stay in use.
    pub fn resize(&mut self, size: usize) {
        self.size = size;
    }

    /// A slot for this address, if this part has one left.
    pub fn find(&self, part: BudgetPart, address: IpAddr) -> Option<Slot> {
        let Policy { unvalidated, one_address, reserved, one_recent_address, .. } = self.policy;
        let of_size = |share| percent(self.size, share);
        let (all, one) = match part {
            BudgetPart::Unvalidated => (of_size(unvalidated), self.size),
            BudgetPart::Shared => {
                (self.size - of_size(unvalidated) - of_size(reserved), of_size(one_address))
            }
            BudgetPart::Reserved => (of_size(reserved), of_size(one_recent_address)),
        };
        let slot = Slot { part, address };
        (count(&self.parts, &part) < all && count(&self.slots, &slot) < one.max(1)).then_some(slot)
    }

    pub fn take(&mut self, slot: Slot) {
        add(&mut self.parts, slot.part);
        add(&mut self.slots, slot);
    }

    pub fn give_back(&mut self, slot: Slot) {
        remove(&mut self.parts, slot.part);
        remove(&mut self.slots, slot);
    }
}

pub(super) fn percent(of: usize, percent: usize) -> usize {
    of.saturating_mul(percent) / 100
}

/// How often each key occurs; a key that does not occur has no entry.
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
