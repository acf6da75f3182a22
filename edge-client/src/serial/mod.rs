//! A device at the end of a serial line. `no_std`; the same code in firmware, bridge and tests.
//!
//! | layer | does | where |
//! |---|---|---|
//! | Session | protocol and training | [`crate::session`] |
//! | seal | encrypts and authenticates frames between device and aggregator | [`common::sealed`] |
//! | line | finds packets among the bytes, and detects noise | [`mod@line`] |
//!
//! [`SerialDevice`] combines all three for a board, and a driver moves its bytes. A bridge uses only the line.

mod device;
#[cfg(feature = "health")]
mod health;
mod intake;
pub mod line;
#[cfg(feature = "ask")]
mod question;
mod status;
#[cfg(test)]
mod tests;

use common::{
    Duration,
    sealed::SEAL_OVERHEAD,
    transfer::LinkLimits,
    wire::{CHUNK_OVERHEAD, MAX_CONTROL},
};

pub use device::SerialDevice;
#[cfg(feature = "health")]
pub use health::{Crash, HEALTH, Health, Kept, MOST_CRASHES, ResetCause};
pub use intake::{PIECE, SAMPLES, TAKEN, Taken};
#[cfg(feature = "host")]
pub use question::BoardAnswer;
#[cfg(feature = "ask")]
pub use question::{ANSWER, QUESTION, QUESTION_PIECE};
pub use status::{PING, STATUS, Status};

/// Longest packet in bytes: a sealed control frame, or a chunk that is no longer.
pub const MAX_PACKET: usize = MAX_CONTROL + SEAL_OVERHEAD;
/// Longest chunk in bytes that fits such a packet, in whole `int8` blocks and whole numbers.
pub const MAX_CHUNK: u32 = 476;
const _: () = assert!(MAX_CHUNK as usize + CHUNK_OVERHEAD + SEAL_OVERHEAD <= MAX_PACKET);

/// The limits of a serial line. Two chunks may be in flight: the second is sent while the first is stored. A board's receive
/// buffer needs room for no more than these.
pub const fn limits(chunk: u32) -> LinkLimits {
    LinkLimits { chunk, window: 2 * chunk, timeout: Duration::from_millis(1500) }
}
