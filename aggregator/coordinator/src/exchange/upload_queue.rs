//! Devices that wait to upload: first come, first served. A device that lost its turn because it was slow stands behind all
//! devices that did not, however often it comes back.

use std::collections::{BTreeMap, BTreeSet};

use common::DeviceId;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct UploadQueue {
    waiting: BTreeSet<(QueuePosition, DeviceId)>,
    positions: BTreeMap<DeviceId, QueuePosition>,
    /// Turns that each device has lost.
    lost_turns: BTreeMap<DeviceId, u32>,
    arrivals: u64,
}

/// The smallest is the first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct QueuePosition {
    lost_turns: u32,
    arrival: u64,
}

impl UploadQueue {
    /// A device that waits already keeps its position.
    pub fn join(&mut self, device: &DeviceId) {
        if self.positions.contains_key(device) {
            return;
        }
        let position = QueuePosition { lost_turns: self.lost_turns(device), arrival: self.arrivals };
        self.arrivals += 1;
        self.positions.insert(device.clone(), position);
        self.waiting.insert((position, device.clone()));
    }

    /// Removes a device.
    pub fn leave(&mut self, device: &DeviceId) {
        if let Some(position) = self.positions.remove(device) {
            self.waiting.remove(&(position, device.clone()));
        }
    }

    /// The device that uploads next.
    pub fn first(&self) -> Option<&DeviceId> {
        self.waiting.first().map(|(_, device)| device)
    }

    /// How often a device has lost its turn.
    pub fn lost_turns(&self, device: &DeviceId) -> u32 {
        self.lost_turns.get(device).copied().unwrap_or(0)
    }

    /// A device loses its turn.
    pub fn note_lost_turn(&mut self, device: &DeviceId) {
        *self.lost_turns.entry(device.clone()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_but_the_slow_come_last() {
        let [a, b, c]: [DeviceId; 3] = ["a", "b", "c"].map(|name| name.parse().unwrap());
        let mut queue = UploadQueue::default();
        queue.note_lost_turn(&a);
        for device in [&a, &c, &b, &c] {
            queue.join(device);
        }
        let mut order = vec![];
        while let Some(first) = queue.first().cloned() {
            queue.leave(&first);
            order.push(first);
        }
        assert_eq!(order, [c, b, a]);
    }
}
