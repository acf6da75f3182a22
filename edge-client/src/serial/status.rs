//! The status of a board, for the host at its cable: a ping and its answer, not sealed.

use common::{Code, DeviceId, Tier, wire};
use heapless::String;
use serde::{Deserialize, Serialize};

/// First byte of a packet that asks for a [`Status`]; it is the whole packet.
pub const PING: u8 = 0x10;
/// First byte of the answer; a control frame with the [`Status`] follows.
pub const STATUS: u8 = 0x11;

/// The status of a board.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The name in its board identity.
    pub device: DeviceId,
    /// The kind of board its firmware was built for.
    pub board: String<24>,
    /// Version of its firmware.
    pub version: String<16>,
    /// Milliseconds since its start.
    pub uptime_ms: u64,
    /// There is a session with the aggregator.
    pub open: bool,
    /// The tier that the board is assigned to.
    pub tier: Option<Tier>,
    /// Round of the present or last assignment.
    pub round: u32,
    /// Batches computed for it.
    pub batches: u32,
    /// It is computing.
    pub working: bool,
    /// Updates and evaluations that were accepted.
    pub accepted: u32,
    /// Code of the last refusal since it joined, or since its last try to join.
    pub refused: Option<Code>,
    /// Bytes of the arena.
    pub arena: u32,
    /// Samples for training.
    pub train_samples: u32,
    /// Most bytes of stack that were in use so far; 0 = not measured.
    pub stack: u32,
    /// Packets with a wrong checksum.
    pub damaged: u32,
    /// Packets with a valid checksum that were forged, repeated or of another session.
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
