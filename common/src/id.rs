//! Names of devices, runs, exchanges and transfers.

use core::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Longest device name in bytes; it must fit a certificate and a serial frame.
pub const MAX_DEVICE_ID: usize = 32;

/// A device's name: 1 to 32 bytes of `a-z A-Z 0-9 . _ -`, compared as a byte string.
///
/// Sums over devices run in the order of names, so results do not depend on the order of arrival.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(heapless::String<MAX_DEVICE_ID>);

/// A text is not a valid device name.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a device name is 1 to 32 characters of a-z A-Z 0-9 . _ -")]
pub struct BadDeviceId;

impl DeviceId {
    /// The name as text.
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

/// One training run of one aggregator; random, so that updates of another run are detected.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One exchange of one round of a run.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExchangeId {
    /// From 1.
    pub round: u32,
    /// Within the round, from 0.
    pub exchange: u8,
}

/// One transfer on a connection. The highest two bits of what the aggregator sends are its [`TransferKind`].
///
/// Each direction has its own numbers: the update of a device may have the same number as a model.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransferId(pub u32);

/// What the aggregator sends in a transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TransferKind {
    /// A tier's slice of the model.
    Model,
    /// A vector beside the model; see [`crate::message::Assignment::guide`].
    Guide,
    /// A sub-model as an ONNX file.
    Onnx,
}

impl TransferId {
    const ONNX: u32 = 1 << 31;
    const GUIDE: u32 = 1 << 30;
    const NUMBER: u32 = Self::GUIDE - 1;

    /// The model that a round starts from.
    pub const fn model(round: u32) -> Self {
        Self(round & Self::NUMBER)
    }

    /// The guide of an exchange. Unlike the model, it changes from exchange to exchange.
    pub const fn guide(ExchangeId { round, exchange }: ExchangeId) -> Self {
        Self(Self::GUIDE | (round << 3 | exchange as u32 & 7) & Self::NUMBER)
    }

    /// The ONNX file of the model after `round`.
    pub const fn onnx(round: u32) -> Self {
        Self(Self::ONNX | round & Self::NUMBER)
    }

    /// What a device sends in an exchange.
    pub const fn update(ExchangeId { round, exchange }: ExchangeId) -> Self {
        Self(round ^ (exchange as u32) << 24)
    }

    /// What the aggregator sends in this transfer. Meaningless for an update.
    pub const fn kind(self) -> TransferKind {
        match self.0 {
            id if id & Self::ONNX != 0 => TransferKind::Onnx,
            id if id & Self::GUIDE != 0 => TransferKind::Guide,
            _ => TransferKind::Model,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_transfers_are_those_of_protocol_4() {
        let second = ExchangeId { round: 5, exchange: 1 };
        let ids = [
            (TransferId::model(5), TransferKind::Model, 5),
            (TransferId::guide(second), TransferKind::Guide, 1 << 30 | 5 << 3 | 1),
            (TransferId::onnx(5), TransferKind::Onnx, 1 << 31 | 5),
        ];
        for (id, kind, number) in ids {
            assert_eq!((id.kind(), id.0), (kind, number));
        }
        assert_eq!(TransferId::update(second).0, 5 | 1 << 24);
    }
}
