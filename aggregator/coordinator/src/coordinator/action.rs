//! What the driver of a Coordinator has to do.

use common::{
    Codec, DeviceId, Tier,
    message::{Scalars, Ticket},
};
use strategies::{device::DeviceRecord, strategy::Kind};

use crate::{exchange::ClosedExchange, fleet::ConnId, record::DeviceInTier};

/// What the driver must do, in this order.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "matched at once, never stored in large numbers")]
pub enum Action {
    /// Store the record of a device.
    Register(DeviceRecord),
    /// A round begins: call [`handle_opened`](super::Coordinator::handle_opened) with its first exchange. The exchange must
    /// be recorded before anything of it is stored.
    OpenRound {
        /// From 1.
        round: u32,
        /// In DeviceId order.
        selected: Vec<DeviceInTier>,
        /// Updates of each tier that are enough; empty: all.
        wanted: Vec<usize>,
    },
    /// Check an update and make it durable, then call [`handle_stored`](super::Coordinator::handle_stored).
    Store(StoredUpdate),
    /// An exchange has ended. Either record the next one and call [`handle_opened`](super::Coordinator::handle_opened), or
    /// combine and commit, then call [`handle_committed`](super::Coordinator::handle_committed).
    Close(ClosedExchange),
    /// The scores of the final model have arrived; the run is over.
    Finish(ClosedExchange),
    /// Export a tier's sub-model, then call [`handle_onnx`](super::Coordinator::handle_onnx). Each tier has one export at a
    /// time.
    Export {
        /// Of the sub-model.
        tier: Tier,
    },
    /// Close a connection once everything queued for it is sent.
    Disconnect(ConnId),
    /// Close a connection at once: its device has joined on another one.
    Displace(ConnId),
}

/// A complete update as it arrived.
#[derive(Clone, Debug)]
pub struct StoredUpdate {
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
    /// The encoded vectors.
    pub payload: Vec<u8>,
    /// All devices that were asked have answered: no other update is worth waiting for.
    pub last: bool,
}
