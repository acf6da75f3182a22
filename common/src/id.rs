//! Names of devices and runs.

use core::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Longest device name in bytes; it must fit a certificate and a serial frame.
pub const MAX_DEVICE_ID: usize = 32;

/// A device's name: 1 to 32 bytes of `a-z A-Z 0-9 . _ -`, compared as a byte string.
///
/// Sums over devices run in this order, so that no result depends on arrival.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(heapless::String<MAX_DEVICE_ID>);

#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a device name is 1 to 32 characters of a-z A-Z 0-9 . _ -")]
pub struct BadDeviceId;

impl DeviceId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceId {
    type Err = BadDeviceId;

    fn from_str(text: &str) -> Result<Self, BadDeviceId> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        // A leading dot would make `..` and hidden files where ids become file names.
        if text.is_empty() || text.starts_with('.') || !text.bytes().all(legal) {
            return Err(BadDeviceId);
        }
        heapless::String::try_from(text).map(Self).map_err(|_| BadDeviceId)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Serialize for DeviceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DeviceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        heapless::String::<MAX_DEVICE_ID>::deserialize(deserializer)?
            .parse()
            .map_err(|_| de::Error::custom("illegal device name"))
    }
}

/// One training run of one aggregator; random, so that updates of another run are recognised.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
