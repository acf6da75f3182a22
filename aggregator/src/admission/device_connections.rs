//! Open connections of devices.

use std::{collections::BTreeMap, sync::Mutex};

use common::DeviceId;

use super::{PER_DEVICE, lock};

/// A device and one of its connections; later ones have higher numbers.
pub type ConnectionKey = (DeviceId, u64);

#[derive(Debug)]
pub struct DeviceConnections<C>(Mutex<(u64, BTreeMap<ConnectionKey, C>)>);

impl<C> Default for DeviceConnections<C> {
    fn default() -> Self {
        Self(Mutex::new((0, BTreeMap::new())))
    }
}

impl<C: Clone> DeviceConnections<C> {
    /// Adds a connection of a device that has proved who it is. Returns the oldest one if these are too many.
    #[must_use]
    pub fn add(&self, device: &DeviceId, connection: C) -> (ConnectionKey, Option<C>) {
        let (next, open) = &mut *lock(&self.0);
        let key = (device.clone(), *next);
        *next += 1;
        open.insert(key.clone(), connection);
        let mut own = open.range((device.clone(), 0)..).take_while(|((other, _), _)| other == device);
        let oldest = own.next().map(|(oldest, _)| oldest.clone());
        let too_many = own.count() >= PER_DEVICE;
        (key, oldest.filter(|_| too_many).and_then(|oldest| open.remove(&oldest)))
    }

    pub fn remove(&self, key: &ConnectionKey) {
        lock(&self.0).1.remove(key);
    }

    /// Every connection, with its device.
    pub fn all(&self) -> Vec<(DeviceId, C)> {
        lock(&self.0).1.iter().map(|((device, _), open)| (device.clone(), open.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_comes_back_loses_its_oldest_connection() {
        let devices = DeviceConnections::default();
        let [device, other]: [DeviceId; 2] = ["cam-1", "cam-2"].map(|name| name.parse().unwrap());
        let (other, _) = devices.add(&other, "other");
        let (first, none) = devices.add(&device, "one");
        let (second, nor_here) = devices.add(&device, "two");
        assert_eq!((none, nor_here), (None, None));
        let (third, oldest) = devices.add(&device, "three");
        assert_eq!(oldest, Some("one"));
        devices.remove(&first);
        devices.remove(&second);
        devices.remove(&other);
        assert_eq!(devices.all(), [(device.clone(), "three")]);
        devices.remove(&third);
        assert_eq!(devices.all(), []);
    }
}
