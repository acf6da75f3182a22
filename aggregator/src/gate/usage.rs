//! How much of a limit is used, and by which addresses.

use std::{collections::HashMap, net::IpAddr};

#[derive(Debug, Default)]
pub(super) struct Usage {
    all: usize,
    /// From addresses that did not have to answer.
    unproved: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Whether one more may come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Enough,
    /// For an address that has answered.
    Proved,
    None,
}

/// Who asks for room.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Caller {
    pub address: IpAddr,
    /// It has answered to a retry.
    pub proved: bool,
    /// A device came in from there.
    pub familiar: bool,
    /// Nobody comes from elsewhere.
    pub alone: bool,
}

impl Usage {
    /// The last quarter of the limit is for familiar addresses that have answered. Of what it may have a part in, an address
    /// has a quarter of the limit; if it is alone, all but a quarter, so that there is always room for another one. Half of
    /// each is for addresses that have answered, which nobody can do in another one's name.
    pub fn room(&self, limit: usize, caller: Caller) -> Room {
        let quarter = limit / 4;
        let strangers = limit - quarter;
        let open = if caller.familiar { limit } else { strangers };
        let share = if caller.alone { open - quarter } else { quarter.max(1) };
        let own = self.of(caller.address);
        if self.all >= open || own >= share {
            return Room::None;
        }
        let doubtful =
            self.unproved >= limit.div_ceil(2) || own >= share.div_ceil(2) || self.all >= strangers;
        if doubtful && !caller.proved { Room::Proved } else { Room::Enough }
    }

    pub fn add(&mut self, address: IpAddr, proved: bool) {
        self.all += 1;
        self.unproved += usize::from(!proved);
        *self.by_address.entry(address).or_default() += 1;
    }

    pub fn remove(&mut self, address: IpAddr, proved: bool) {
        let Some(own) = self.by_address.get_mut(&address) else { return };
        *own -= 1;
        if *own == 0 {
            self.by_address.remove(&address);
        }
        self.all = self.all.saturating_sub(1);
        self.unproved = self.unproved.saturating_sub(usize::from(!proved));
    }

    pub fn of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    pub fn all(&self) -> usize {
        self.all
    }

    /// Nobody but this address has a part in it.
    pub fn is_only(&self, address: IpAddr) -> bool {
        self.by_address.keys().all(|other| *other == address)
    }
}
