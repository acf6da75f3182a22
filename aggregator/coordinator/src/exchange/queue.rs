//! Who waits for a place among the uploads: first come, first served. Whoever has lost a place because it was slow stands
//! behind all who have not, however often it comes back.

use std::collections::{BTreeMap, BTreeSet};

use common::DeviceId;

#[derive(Clone, Debug, Default)]
pub struct Queue {
    waiting: BTreeSet<(u32, u64, DeviceId)>,
    numbers: BTreeMap<DeviceId, (u32, u64)>,
    /// Places that a device has lost.
    lost: BTreeMap<DeviceId, u32>,
    next: u64,
}

impl Queue {
    /// Whoever waits already keeps its position.
    pub fn join(&mut self, device: &DeviceId) {
        if self.numbers.contains_key(device) {
            return;
        }
        let number = (self.lost(device), self.next);
        self.next += 1;
        self.numbers.insert(device.clone(), number);
        self.waiting.insert((number.0, number.1, device.clone()));
    }

    pub fn leave(&mut self, device: &DeviceId) {
        if let Some((lost, number)) = self.numbers.remove(device) {
            self.waiting.remove(&(lost, number, device.clone()));
        }
    }

    pub fn first(&self) -> Option<&DeviceId> {
        self.waiting.first().map(|(.., device)| device)
    }

    pub fn lost(&self, device: &DeviceId) -> u32 {
        self.lost.get(device).copied().unwrap_or(0)
    }

    pub fn note_lost(&mut self, device: &DeviceId) {
        *self.lost.entry(device.clone()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_but_the_slow_come_last() {
        let [a, b, c]: [DeviceId; 3] = ["a", "b", "c"].map(|name| name.parse().unwrap());
        let mut queue = Queue::default();
        queue.note_lost(&a);
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
