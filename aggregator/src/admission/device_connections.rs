//! Open connections of devices.

use std::{collections::BTreeMap, sync::Mutex};

use common::DeviceId;

use super::{PER_DEVICE, lock};

/// One connection of a device. Later connections have higher numbers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConnectionKey {
    device: DeviceId,
    number: u64,
}

/// The open connections of every device, at most two each. `C` is what closes one.
#[derive(Debug)]
pub struct DeviceConnections<C>(Mutex<OpenConnections<C>>);

#[derive(Debug)]
struct OpenConnections<C> {
    next_number: u64,
    by_key: BTreeMap<ConnectionKey, C>,
}

/// A connection that was added.
#[derive(Debug)]
pub struct AddedConnection<C> {
    pub key: ConnectionKey,
    /// The oldest connection of the device, if there are too many: close it.
    pub displaced: Option<C>,
}

impl<C> Default for DeviceConnections<C> {
    fn default() -> Self {
        Self(Mutex::new(OpenConnections { next_number: 0, by_key: BTreeMap::new() }))
    }
}

impl<C: Clone> DeviceConnections<C> {
    /// Adds a connection of a device that has proved who it is.
    #[must_use]
    pub(crate) fn add(&self, device: &DeviceId, connection: C) -> AddedConnection<C> {
        let OpenConnections { next_number, by_key } = &mut *lock(&self.0);
        let key = ConnectionKey { device: device.clone(), number: *next_number };
        *next_number += 1;
        by_key.insert(key.clone(), connection);
        let first = ConnectionKey { device: device.clone(), number: 0 };
        let mut own = by_key.range(first..).map(|(key, _)| key).take_while(|key| key.device == *device);
        let oldest = own.next().cloned();
        let too_many = own.count() >= PER_DEVICE;
        let displaced = oldest.filter(|_| too_many).and_then(|oldest| by_key.remove(&oldest));
        AddedConnection { key, displaced }
    }

    pub(crate) fn remove(&self, key: &ConnectionKey) {
        lock(&self.0).by_key.remove(key);
    }

    /// Every connection, with its device.
    pub(crate) fn all(&self) -> Vec<(DeviceId, C)> {
        lock(&self.0).by_key.iter().map(|(key, open)| (key.device.clone(), open.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_comes_back_loses_its_oldest_connection() {
        let devices = DeviceConnections::default();
        let [device, other]: [DeviceId; 2] = ["cam-1", "cam-2"].map(|name| name.parse().unwrap());
        let other = devices.add(&other, "other");
        let first = devices.add(&device, "one");
        let second = devices.add(&device, "two");
        assert_eq!((first.displaced, second.displaced), (None, None));
        let third = devices.add(&device, "three");
        assert_eq!(third.displaced, Some("one"));
        devices.remove(&first.key);
        devices.remove(&second.key);
        devices.remove(&other.key);
        assert_eq!(devices.all(), [(device.clone(), "three")]);
        devices.remove(&third.key);
        assert_eq!(devices.all(), []);
    }
}
