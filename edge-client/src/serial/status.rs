//! What a board says of itself to whoever holds its cable: a ping and its answer, not sealed.

use common::{Code, DeviceId, Tier, wire};
use heapless::String;
use serde::{Deserialize, Serialize};

/// First byte of a packet that asks for a [`Status`]; it is the whole packet.
pub const PING: u8 = 0x10;
/// First byte of the answer; a control frame with the [`Status`] follows.
pub const STATUS: u8 = 0x11;

/// How a board is doing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    pub device: DeviceId,
    /// The kind of board its firmware was built for.
    pub board: String<24>,
    pub version: String<16>,
    pub uptime_ms: u64,
    /// The aggregator has proved itself and been proved to.
    pub open: bool,
    pub tier: Option<Tier>,
    /// Of the present or last assignment.
    pub round: u32,
    /// Batches computed for it.
    pub batches: u32,
    pub working: bool,
    /// Updates and evaluations that were accepted.
    pub accepted: u32,
    /// What the aggregator last refused.
    pub refused: Option<Code>,
    /// Bytes of the arena.
    pub arena: u32,
    pub train_samples: u32,
    /// Bytes of stack that were in use at some time; 0 = not measured.
    pub stack: u32,
    /// Packets that were noise, and packets that were whole but not from the aggregator.
    pub damaged: u32,
    pub rejected: u32,
}

impl Status {
    /// Writes the packet; 0 if there is no room.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let Some((kind, frame)) = out.split_first_mut() else { return 0 };
        *kind = STATUS;
        wire::encode_control(self, frame).map_or(0, |len| len + 1)
    }

    /// Reads a packet.
    pub fn decode(packet: &[u8]) -> Option<Self> {
        let [STATUS, frame @ ..] = packet else { return None };
        match wire::Frame::decode(frame).ok()? {
            wire::Frame::Control(body) => wire::message(body).ok(),
            wire::Frame::Chunk { .. } => None,
        }
    }
}
