//! How a board fares across resets: sent behind its [`Status`](super::Status). Older programs ignore it.

use common::wire;
use heapless::String;
use serde::{Deserialize, Serialize};

/// First byte of a packet with the [`Health`] of a board; a control frame follows.
pub const HEALTH: u8 = 0x16;
/// Crashes in a row after which a board only answers `monitor`.
pub const MOST_CRASHES: u8 = 3;

/// Why a board has started.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ResetCause {
    /// This board's firmware does not find out.
    #[default]
    Unknown,
    /// The power came on.
    Power,
    /// The reset pin, or a debugger.
    External,
    /// The firmware panicked.
    Panic,
    /// The core reported a fault, such as a stack that is too small.
    Fault,
    /// The watchdog was not fed.
    Watchdog,
}

/// Where the firmware crashed last.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Crash {
    /// The end of the source file's name; empty for a fault.
    pub file: String<24>,
    /// Its line; for a fault the program counter.
    pub line: u32,
}

/// The model that is kept in flash.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The round whose model it is.
    pub round: u32,
    /// How often a model was written since the flash was empty.
    pub writes: u32,
}

/// How a board fares.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Health {
    /// Starts since the power came on, without this one, where the firmware counts them.
    pub restarts: Option<u32>,
    /// Why it has started.
    pub cause: ResetCause,
    /// Crashes in a row.
    pub crashes: u8,
    /// The last crash since the power came on.
    pub crash: Option<Crash>,
    /// It only answers `monitor`.
    pub safe: bool,
    /// What it keeps in flash.
    pub kept: Option<Kept>,
}

impl Health {
    /// Writes the packet; 0 if there is no room.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let Some((kind, frame)) = out.split_first_mut() else { return 0 };
        *kind = HEALTH;
        wire::encode_control(self, frame).map_or(0, |len| len + 1)
    }

    /// Reads a packet.
    pub fn decode(packet: &[u8]) -> Option<Self> {
        let [HEALTH, frame @ ..] = packet else { return None };
        match wire::Frame::decode(frame).ok()? {
            wire::Frame::Control(body) => wire::message(body).ok(),
            wire::Frame::Chunk { .. } => None,
        }
    }
}
