//! What the store keeps of an open round and of the updates in it.

use common::{
    Code, Codec, DeviceId, ExchangeId, Tier,
    message::{Scalars, Ticket},
};
use serde::{Deserialize, Serialize};
use strategies::strategy::Kind;

pub use crate::best::BestModel;
use crate::wall::WallTime;

/// An open round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoundRecord {
    /// From 1.
    pub round: u32,
    /// Part of its tickets; see [`common::message::Ticket`].
    pub attempt: u16,
    /// Devices that the round may ask, in DeviceId order.
    pub selected: Vec<DeviceInTier>,
    /// Updates of each tier that are enough; empty: all.
    pub wanted: Vec<usize>,
    /// The exchanges so far; the last one is open.
    pub exchanges: Vec<ExchangeRecord>,
    /// When it began, if the driver has a clock. A store keeps it beside the record, whose bytes are those of format 4.
    #[serde(skip)]
    pub began: Option<WallTime>,
}

/// One exchange of a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExchangeRecord {
    /// What it asks for.
    pub kind: Kind,
    /// Checksum of everything that devices are told in it.
    pub digest: u32,
    /// In DeviceId order.
    pub asked: Vec<DeviceId>,
}

/// A device and the tier that it has in a round.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DeviceInTier {
    /// Its name.
    pub device: DeviceId,
    /// The tier that it has in the round.
    pub tier: Tier,
}

/// A device whose answer was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedDevice {
    /// Its name.
    pub device: DeviceId,
    /// The tier that it has in the round.
    pub tier: Tier,
    /// The reason.
    pub code: Code,
}

impl RoundRecord {
    /// The exchange that is open; the first one if the round has none yet.
    pub fn open_exchange(&self) -> ExchangeId {
        ExchangeId { round: self.round, exchange: self.exchanges.len().saturating_sub(1) as u8 }
    }
}

/// Everything about an update except its bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UpdateHeader {
    /// Of the offer.
    pub ticket: Ticket,
    /// The device that sent it.
    pub device: DeviceId,
    /// The tier that the device has in the round.
    pub tier: Tier,
    /// The kind of exchange that asked for it.
    pub kind: Kind,
    /// Vectors of the slice's length in the payload.
    pub vectors: u8,
    /// Learning rate of the round.
    pub lr: f32,
    /// Encoding of the payload.
    pub codec: Codec,
    /// The numbers beside the payload.
    pub scalars: Scalars,
    /// Squared norm per region, from the check on arrival.
    pub norms: Vec<f64>,
}
