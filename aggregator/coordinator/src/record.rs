//! What is written down of an open round and of the updates in it.

use common::{
    Codec, DeviceId, Tier,
    message::{Scalars, Ticket},
};
use serde::{Deserialize, Serialize};
use strategies::strategy::Kind;

/// An open round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoundRecord {
    /// From 1.
    pub number: u32,
    /// Part of its tickets; see [`common::message::Ticket`].
    pub attempt: u16,
    pub selected: Vec<Selected>,
    /// Updates of each tier that it is content with; empty: all.
    pub wanted: Vec<usize>,
    /// The exchanges so far; the last one is open.
    pub exchanges: Vec<ExchangeRecord>,
}

/// One exchange of a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExchangeRecord {
    pub kind: Kind,
    /// Of all that devices are told in it.
    pub digest: u32,
    pub asked: Vec<DeviceId>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Selected {
    pub device: DeviceId,
    pub tier: Tier,
}

impl RoundRecord {
    /// The exchange that is open.
    pub fn exchange(&self) -> u8 {
        self.exchanges.len().saturating_sub(1).try_into().unwrap_or(u8::MAX)
    }
}

/// Everything about an update except its bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    pub ticket: Ticket,
    pub device: DeviceId,
    pub tier: Tier,
    /// What it was sent for.
    pub kind: Kind,
    /// Vectors of the slice's length in the payload.
    pub vectors: u8,
    /// Learning rate of the round.
    pub lr: f32,
    pub codec: Codec,
    pub scalars: Scalars,
    /// Squared norm per region, from the check on arrival.
    pub norms: Vec<f64>,
}
