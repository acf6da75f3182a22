//! The state of every device of an exchange, with running counts. An exchange of thousands of devices is checked after every
//! message, and counting anew each time would cost more than the messages.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    Code, DeviceId, Instant, Tier,
    message::{Offer, Scalars, Task},
};

use super::{Upload, UploadQueue};
use crate::{announcement::AskedDevice, pacing::TierCounts};

/// How far a device has come with its answer.
#[derive(Clone, Debug)]
pub enum AnswerState {
    /// Was asked, or will be when it connects.
    Assigned,
    /// Has offered an update that waits to be uploaded.
    Queued(Box<Offer>),
    /// The update is being received.
    Uploading(Box<Upload>),
    /// The update is complete, not yet durable.
    Storing(Scalars),
    /// The same, but written to the disk and no longer in memory.
    Written(Scalars),
    /// The update is durable.
    Delivered(Scalars),
    /// The answer was refused.
    Refused(Code),
}

impl AnswerState {
    /// The device has not answered yet.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Assigned | Self::Queued(_) | Self::Uploading(_))
    }
}

/// A device in the roster of an exchange.
#[derive(Clone, Debug)]
pub struct RosterEntry {
    /// The tier that it has in the round.
    pub tier: Tier,
    /// What it is asked to do.
    pub task: Task,
    /// Changed by [`Roster::set`] alone, which keeps the counts.
    pub state: AnswerState,
}

/// The devices that an exchange asks, in DeviceId order.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    entries: BTreeMap<DeviceId, RosterEntry>,
    /// By tier, up to the last one that has a device.
    tier_counts: Vec<TierCounts>,
    /// Updates that are in memory, whole or in part.
    in_memory: usize,
    uploading: BTreeSet<DeviceId>,
    /// Devices that are not waited for any more, and since when.
    absent: BTreeMap<DeviceId, Instant>,
    /// Devices in state [`AnswerState::Queued`].
    pub queue: UploadQueue,
}

impl Roster {
    /// All devices are asked, none has answered.
    pub fn new(asked: Vec<AskedDevice>) -> Self {
        let tiers = asked.iter().map(|asked| asked.tier.index() + 1).max().unwrap_or(0);
        let mut tier_counts = vec![TierCounts::default(); tiers];
        let mut entries = BTreeMap::new();
        for AskedDevice { device, tier, task } in asked {
            tier_counts[tier.index()].asked += 1;
            entries.insert(device, RosterEntry { tier, task, state: AnswerState::Assigned });
        }
        Self { entries, tier_counts, ..Self::default() }
    }

    /// Stops waiting for a device that has not answered.
    pub fn set_absent(&mut self, device: &DeviceId, now: Instant) {
        if let Some(RosterEntry { tier, state, .. }) = self.entries.get(device)
            && state.is_open()
            && !self.absent.contains_key(device)
        {
            self.absent.insert(device.clone(), now);
            self.tier_counts[tier.index()].absent += 1;
        }
    }

    /// Waits for a device again.
    pub fn set_expected(&mut self, device: &DeviceId) {
        if self.absent.remove(device).is_some()
            && let Some(RosterEntry { tier, state, .. }) = self.entries.get(device)
            && state.is_open()
        {
            self.tier_counts[tier.index()].absent -= 1;
        }
    }

    /// Since when a device is not waited for any more.
    pub fn absent_since(&self, device: &DeviceId) -> Option<Instant> {
        self.absent.get(device).copied()
    }

    /// Devices that have not answered and are waited for.
    pub fn expected(&self) -> impl Iterator<Item = (&DeviceId, &RosterEntry)> {
        let open = self.entries.iter().filter(|(_, entry)| entry.state.is_open());
        open.filter(|(device, _)| !self.absent.contains_key(*device))
    }

    /// The entry of a device that is asked.
    pub fn get(&self, device: &DeviceId) -> Option<&RosterEntry> {
        self.entries.get(device)
    }

    /// The state of a device that is asked.
    pub fn state(&self, device: &DeviceId) -> Option<&AnswerState> {
        self.entries.get(device).map(|entry| &entry.state)
    }

    /// Returns the state that the device had; nothing happens if it is not asked.
    pub fn set(&mut self, device: &DeviceId, new: AnswerState) -> Option<AnswerState> {
        let RosterEntry { tier, state, .. } = self.entries.get_mut(device)?;
        let counts = &mut self.tier_counts[tier.index()];
        let after = StateKind::of(&new);
        let old = std::mem::replace(state, new);
        let before = StateKind::of(&old);
        let change = |count: &mut usize, kinds: &[StateKind]| {
            *count = *count + usize::from(kinds.contains(&after)) - usize::from(kinds.contains(&before));
        };
        change(&mut counts.delivered, &[StateKind::Delivered]);
        change(&mut counts.refused, &[StateKind::Refused]);
        change(&mut counts.storing, &[StateKind::Storing, StateKind::Written]);
        if self.absent.contains_key(device) {
            change(&mut counts.absent, &[StateKind::Assigned, StateKind::Queued, StateKind::Uploading]);
        }
        change(&mut self.in_memory, &[StateKind::Uploading, StateKind::Storing]);
        match after {
            StateKind::Queued => self.queue.join(device),
            _ => self.queue.leave(device),
        }
        match after {
            StateKind::Uploading => _ = self.uploading.insert(device.clone()),
            _ => _ = self.uploading.remove(device),
        }
        Some(old)
    }

    /// The update of a device that is being received.
    pub fn upload_mut(&mut self, device: &DeviceId) -> Option<&mut Upload> {
        match &mut self.entries.get_mut(device)?.state {
            AnswerState::Uploading(upload) => Some(upload),
            _ => None,
        }
    }

    /// The updates that are being received.
    pub fn uploads(&self) -> impl Iterator<Item = (&DeviceId, &Upload)> {
        self.uploading.iter().filter_map(|device| match self.state(device)? {
            AnswerState::Uploading(upload) => Some((device, &**upload)),
            _ => None,
        })
    }

    /// All entries, in DeviceId order.
    pub fn iter(&self) -> impl Iterator<Item = (&DeviceId, &RosterEntry)> {
        self.entries.iter()
    }

    /// Number of devices that are asked.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No device is asked.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// By tier, up to the last one that has a device.
    pub fn tier_counts(&self) -> &[TierCounts] {
        &self.tier_counts
    }

    /// Updates that are in memory, whole or in part.
    pub fn in_memory(&self) -> usize {
        self.in_memory
    }

    /// No other device is waited for.
    pub fn all_answered(&self) -> bool {
        self.tier_counts.iter().all(|counts| counts.delivered + counts.storing >= counts.eligible())
    }
}

/// An [`AnswerState`] without its contents.
#[derive(Copy, Clone, PartialEq, Eq)]
enum StateKind {
    Assigned,
    Queued,
    Uploading,
    Storing,
    Written,
    Delivered,
    Refused,
}

impl StateKind {
    fn of(state: &AnswerState) -> Self {
        match state {
            AnswerState::Assigned => Self::Assigned,
            AnswerState::Queued(_) => Self::Queued,
            AnswerState::Uploading(_) => Self::Uploading,
            AnswerState::Storing(_) => Self::Storing,
            AnswerState::Written(_) => Self::Written,
            AnswerState::Delivered(_) => Self::Delivered,
            AnswerState::Refused(_) => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use common::{
        RunId, TransferId,
        message::{Blob, Ticket},
        rng::Rng,
    };

    use super::*;

    fn state(kind: u64) -> AnswerState {
        let ticket = Ticket { run: RunId(1), round: 1, exchange: 0, attempt: 0 };
        let update = Blob { transfer: TransferId(1), bytes: 8, check: 0 };
        let offer = Offer { ticket, update, model_check: 0, scalars: Scalars::default() };
        match kind {
            0 => AnswerState::Assigned,
            1 => AnswerState::Queued(Box::new(offer)),
            2 => AnswerState::Uploading(Box::new(Upload::new(offer, vec![], Instant::ZERO))),
            3 => AnswerState::Storing(Scalars::default()),
            4 => AnswerState::Delivered(Scalars::default()),
            5 => AnswerState::Written(Scalars::default()),
            _ => AnswerState::Refused(Code::WrongRound),
        }
    }

    #[test]
    fn running_counts_equal_a_full_count() {
        let named = |index: u64| -> DeviceId { format!("d{index}").parse().unwrap() };
        let asked = |index: u64| AskedDevice {
            device: named(index),
            tier: Tier::new(index as usize % 3).unwrap(),
            task: Task::Evaluate(None),
        };
        let mut roster = Roster::new((0..20).map(asked).collect());
        let mut rng = Rng::new(7);
        for _ in 0..4000 {
            let device = named(rng.below(20));
            match rng.below(4) {
                0 => roster.set_absent(&device, Instant::ZERO),
                1 => roster.set_expected(&device),
                _ => assert!(roster.set(&device, state(rng.below(7))).is_some()),
            }
            let mut tier_counts = [TierCounts::default(); 3];
            let (mut in_memory, mut queued, mut uploading) = (0, BTreeSet::new(), vec![]);
            for (device, RosterEntry { tier, state, .. }) in roster.iter() {
                let counts = &mut tier_counts[tier.index()];
                counts.asked += 1;
                counts.absent += usize::from(state.is_open() && roster.absent_since(device).is_some());
                match state {
                    AnswerState::Delivered(_) => counts.delivered += 1,
                    AnswerState::Refused(_) => counts.refused += 1,
                    AnswerState::Storing(_) => {
                        counts.storing += 1;
                        in_memory += 1;
                    }
                    AnswerState::Written(_) => counts.storing += 1,
                    AnswerState::Uploading(_) => {
                        uploading.push(device);
                        in_memory += 1;
                    }
                    AnswerState::Queued(_) => _ = queued.insert(device),
                    AnswerState::Assigned => {}
                }
            }
            assert_eq!((roster.tier_counts(), roster.in_memory()), (&tier_counts[..], in_memory));
            assert_eq!(roster.uploads().map(|(device, _)| device).collect::<Vec<_>>(), uploading);
            let mut queue = roster.queue.clone();
            while let Some(first) = queue.first().cloned() {
                assert!(queued.remove(&first));
                queue.leave(&first);
            }
            assert!(queued.is_empty(), "{queued:?} wait without being in the queue");
        }
        assert!(roster.set(&"stranger".parse().unwrap(), AnswerState::Assigned).is_none());
    }
}
