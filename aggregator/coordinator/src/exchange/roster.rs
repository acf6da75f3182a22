//! Where every device of an exchange stands, with running counts: a round of thousands is looked at after every
//! message, and counting anew each time would cost more than the messages.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    Code, DeviceId, Instant, Tier,
    message::{Offer, Scalars},
};

use super::{Queue, Upload};
use crate::patience::Tally;

/// Where one device stands in the round.
#[derive(Clone, Debug)]
pub enum Seat {
    /// Was told, or will be when it connects.
    Assigned,
    /// Has offered an update that waits for a place among the uploads.
    Queued(Box<Offer>),
    Uploading(Box<Upload>),
    /// Complete, not yet durable.
    Storing(Scalars),
    /// The same, but handed over to the disk and no longer in memory.
    Written(Scalars),
    Delivered(Scalars),
    Refused(Code),
}

impl Seat {
    /// The device still has something to do.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Assigned | Self::Queued(_) | Self::Uploading(_))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Roster {
    seats: BTreeMap<DeviceId, (Tier, Seat)>,
    /// By tier, as far as anybody was asked.
    tallies: Vec<Tally>,
    /// Updates that are in memory, whole or in part.
    held: usize,
    uploading: BTreeSet<DeviceId>,
    /// Devices that are not waited for any more, and since when.
    absent: BTreeMap<DeviceId, Instant>,
    pub queue: Queue,
}

impl Roster {
    /// Everybody was asked, nobody has answered.
    pub fn new(devices: impl Iterator<Item = (DeviceId, Tier)>) -> Self {
        let seats: BTreeMap<_, _> = devices.map(|(device, tier)| (device, (tier, Seat::Assigned))).collect();
        let tiers = seats.values().map(|(tier, _)| tier.index() + 1).max().unwrap_or(0);
        let mut tallies = vec![Tally::default(); tiers];
        for (tier, _) in seats.values() {
            tallies[tier.index()].asked += 1;
        }
        Self { seats, tallies, ..Self::default() }
    }

    /// Waits no longer for a device that has not answered.
    pub fn let_go(&mut self, device: &DeviceId, now: Instant) {
        if let Some((tier, seat)) = self.seats.get(device)
            && seat.is_open()
            && !self.absent.contains_key(device)
        {
            self.absent.insert(device.clone(), now);
            self.tallies[tier.index()].absent += 1;
        }
    }

    /// Waits for a device again.
    pub fn expect(&mut self, device: &DeviceId) {
        if self.absent.remove(device).is_some()
            && let Some((tier, seat)) = self.seats.get(device)
            && seat.is_open()
        {
            self.tallies[tier.index()].absent -= 1;
        }
    }

    /// Since when a device is not waited for any more.
    pub fn absent_since(&self, device: &DeviceId) -> Option<Instant> {
        self.absent.get(device).copied()
    }

    /// Devices that have not answered and are waited for.
    pub fn expected(&self) -> impl Iterator<Item = (&DeviceId, Tier)> {
        let open = self.seats.iter().filter(|(_, (_, seat))| seat.is_open());
        open.filter(|(device, _)| !self.absent.contains_key(*device))
            .map(|(device, (tier, _))| (device, *tier))
    }

    pub fn get(&self, device: &DeviceId) -> Option<&(Tier, Seat)> {
        self.seats.get(device)
    }

    /// Gives the seat that the device had; nothing happens if it has none.
    pub fn set(&mut self, device: &DeviceId, new: Seat) -> Option<Seat> {
        let (tier, seat) = self.seats.get_mut(device)?;
        let tier = *tier;
        let after = Self::counted(&new);
        let old = std::mem::replace(seat, new);
        let before = Self::counted(&old);
        if let Some(tally) = self.tallies.get_mut(tier.index()) {
            let change = |count: &mut usize, kinds: &[Counted]| {
                *count = *count + usize::from(kinds.contains(&after)) - usize::from(kinds.contains(&before));
            };
            change(&mut tally.delivered, &[Counted::Delivered]);
            change(&mut tally.refused, &[Counted::Refused]);
            change(&mut tally.storing, &[Counted::Storing, Counted::Written]);
            if self.absent.contains_key(device) {
                change(&mut tally.absent, &[Counted::Assigned, Counted::Queued, Counted::Uploading]);
            }
        }
        let held = |counted| usize::from(matches!(counted, Counted::Uploading | Counted::Storing));
        self.held = self.held + held(after) - held(before);
        match after {
            Counted::Queued => self.queue.join(device),
            _ => self.queue.leave(device),
        }
        match after {
            Counted::Uploading => _ = self.uploading.insert(device.clone()),
            _ => _ = self.uploading.remove(device),
        }
        Some(old)
    }

    /// The update of a device that is being received.
    pub fn upload(&mut self, device: &DeviceId) -> Option<&mut Upload> {
        match self.seats.get_mut(device) {
            Some((_, Seat::Uploading(upload))) => Some(upload),
            _ => None,
        }
    }

    /// Everybody whose update is being received.
    pub fn uploads(&self) -> impl Iterator<Item = (&DeviceId, &Upload)> {
        self.uploading.iter().filter_map(|device| match self.seats.get(device) {
            Some((_, Seat::Uploading(upload))) => Some((device, &**upload)),
            _ => None,
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&DeviceId, Tier, &Seat)> {
        self.seats.iter().map(|(device, (tier, seat))| (device, *tier, seat))
    }

    pub fn len(&self) -> usize {
        self.seats.len()
    }

    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Updates that are in memory, whole or in part.
    pub fn held(&self) -> usize {
        self.held
    }

    /// No other device is waited for.
    pub fn all_answered(&self) -> bool {
        self.tallies.iter().all(|tally| tally.delivered + tally.storing >= tally.able())
    }

    fn counted(seat: &Seat) -> Counted {
        match seat {
            Seat::Assigned => Counted::Assigned,
            Seat::Queued(_) => Counted::Queued,
            Seat::Uploading(_) => Counted::Uploading,
            Seat::Storing(_) => Counted::Storing,
            Seat::Written(_) => Counted::Written,
            Seat::Delivered(_) => Counted::Delivered,
            Seat::Refused(_) => Counted::Refused,
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Counted {
    Assigned,
    Queued,
    Uploading,
    Storing,
    Written,
    Delivered,
    Refused,
}

#[cfg(test)]
mod tests {
    use common::{
        Instant, RunId,
        message::{Blob, Ticket},
        rng::Rng,
    };

    use super::*;

    fn seat(kind: u64) -> Seat {
        let ticket = Ticket { run: RunId(1), round: 1, exchange: 0, attempt: 0 };
        let update = Blob { transfer: 1, bytes: 8, check: 0 };
        let offer = Offer { ticket, update, model_check: 0, scalars: Scalars::default() };
        match kind {
            0 => Seat::Assigned,
            1 => Seat::Queued(Box::new(offer)),
            2 => Seat::Uploading(Box::new(Upload::new(offer, vec![], Instant::ZERO))),
            3 => Seat::Storing(Scalars::default()),
            4 => Seat::Delivered(Scalars::default()),
            5 => Seat::Written(Scalars::default()),
            _ => Seat::Refused(Code::WrongRound),
        }
    }

    #[test]
    fn running_counts_are_those_of_counting_anew() {
        let named = |index: u64| -> DeviceId { format!("d{index}").parse().unwrap() };
        let tier = |index: u64| Tier::new(index as usize % 3).unwrap();
        let mut seats = Roster::new((0..20).map(|index| (named(index), tier(index))));
        let mut rng = Rng::new(7);
        for _ in 0..4000 {
            let device = named(rng.below(20));
            match rng.below(4) {
                0 => seats.let_go(&device, Instant::ZERO),
                1 => seats.expect(&device),
                _ => assert!(seats.set(&device, seat(rng.below(7))).is_some()),
            }
            let mut tallies = [Tally::default(); 3];
            let (mut held, mut queued, mut uploading) = (0, BTreeSet::new(), vec![]);
            for (device, tier, seat) in seats.iter() {
                let tally = &mut tallies[tier.index()];
                tally.asked += 1;
                tally.absent += usize::from(seat.is_open() && seats.absent_since(device).is_some());
                match seat {
                    Seat::Delivered(_) => tally.delivered += 1,
                    Seat::Refused(_) => tally.refused += 1,
                    Seat::Storing(_) => {
                        tally.storing += 1;
                        held += 1;
                    }
                    Seat::Written(_) => tally.storing += 1,
                    Seat::Uploading(_) => {
                        uploading.push(device);
                        held += 1;
                    }
                    Seat::Queued(_) => _ = queued.insert(device),
                    Seat::Assigned => {}
                }
            }
            assert_eq!((seats.tallies(), seats.held()), (&tallies[..], held));
            assert_eq!(seats.uploads().map(|(device, _)| device).collect::<Vec<_>>(), uploading);
            let mut queue = seats.queue.clone();
            while let Some(first) = queue.first().cloned() {
                assert!(queued.remove(&first));
                queue.leave(&first);
            }
            assert!(queued.is_empty(), "{queued:?} wait without being in the queue");
        }
        assert!(seats.set(&"stranger".parse().unwrap(), Seat::Assigned).is_none());
    }
}
