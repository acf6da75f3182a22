//! A device at the end of a serial line. `no_std`; the same code in firmware, bridge and tests.
//!
//! | layer | does | where |
//! |---|---|---|
//! | Session | protocol and training | [`crate::session`] |
//! | seal | only device and aggregator read or write frames | [`common::sealed`] |
//! | line | where packets begin and end among the bytes, and noise is noticed | [`mod@line`] |
//!
//! [`SerialDevice`] is all three of a board; a driver moves bytes. A bridge only knows the line.

mod device;
mod intake;
pub mod line;
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
pub use intake::{PIECE, SAMPLES, TAKEN, Taken};
pub use status::{PING, STATUS, Status};

/// Room for the longest packet: a sealed control frame, or a chunk that is no longer.
pub const MAX_PACKET: usize = MAX_CONTROL + SEAL_OVERHEAD;
/// Longest chunk that fits such a packet, in whole `int8` blocks and whole numbers.
pub const MAX_CHUNK: u32 = 476;
const _: () = assert!(MAX_CHUNK as usize + CHUNK_OVERHEAD + SEAL_OVERHEAD <= MAX_PACKET);

/// Two chunks on their way: the second travels while the first is stored, and a board needs room for no
/// more than these between its interrupt and its program.
pub const fn limits(chunk: u32) -> LinkLimits {
    LinkLimits { chunk, window: 2 * chunk, timeout: Duration::from_millis(1500) }
}
