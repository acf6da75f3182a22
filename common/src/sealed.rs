//! Frames that only the device and the aggregator can read or write, whatever carries them between.
//!
//! A device behind a bridge has no certificate: it shares a key of 32 bytes with the aggregator. For every session both
//! choose a nonce, and every frame is sealed with ChaCha20-Poly1305 under keys that follow from all three.
//!
//! ```text
//! device                                        aggregator
//! HAIL  version, nonce d, name                ->
//!                                             <- CHALLENGE  nonce a, tag of the HAIL
//! SEALED  counter, frame, salt, tag           ->
//!                                             <- SEALED  counter, frame, tag
//!                                             <- STRANGER: there is no session; hail again
//!                                             <- REFUSED  code: not now; hail again later
//! ```
//! | attack of a bridge | what stops it |
//! |---|---|
//! | reads, forges, alters | ChaCha20-Poly1305 with a key of its own for each direction ([`derive`]) |
//! | repeats a packet | a counter in the AEAD nonce, which only ever grows; a lost packet is a gap |
//! | plays an old session to the aggregator | `a` is random and drawn anew for every HAIL, and is in both keys |
//! | plays an old session to the device | `d` is in both keys and does not repeat: see [`Nonces`] |
//! | makes a device reuse a key, where `d` does repeat | the salt ([`Channel`]): other frames have another AEAD nonce |
//! | gives a device other samples | they come in a session of their own kind, see below |
//! | asks whether a name is enrolled | the aggregator answers every HAIL alike |
//!
//! **What remains.** HAIL, STRANGER and REFUSED are not authenticated: a bridge can interrupt a session and delay the
//! next one, as it can by pulling the plug. A device that has neither a random number generator nor memory repeats `d`
//! after a power cut. Such a device cannot tell a complete recording of an earlier session from a new one: it can be
//! made to do earlier work again. Nothing of that is accepted by the aggregator, and nothing leaks. A bridge sees names,
//! sizes and times.
//!
//! **Samples** by cable need the device's key, too. The holder of the board identity answers a HAIL with PROVISION
//! instead of CHALLENGE (same form, keys of another purpose); pieces of samples then travel as sealed frames.
//!
//! **Version 1** had one key for both directions and no salt. An aggregator still answers it (`first`), for devices with
//! older firmware; a device speaks one version only, so that a bridge cannot choose an older one.

use crate::error::Code;

mod board_identity;
mod channel;
mod derive;
#[cfg(any(feature = "std", test))]
mod first;
mod initiator;
#[cfg(any(feature = "std", test))]
mod responder;
#[cfg(test)]
mod tests;

pub use board_identity::{BoardIdentity, BoardIdentityError};
pub use channel::{Channel, SEAL_HEAD, SEAL_OVERHEAD, SealError};
pub use derive::Nonces;
pub use initiator::{Initiator, InitiatorEvent};
#[cfg(any(feature = "std", test))]
pub use responder::{Hail, Responder, ResponderEvent};

pub type Key = [u8; 32];
pub type Nonce = [u8; 16];

/// First byte of a packet. Kinds from 0x10 on are between a board and the holder of its cable.
pub const HAIL: u8 = 1;
pub const CHALLENGE: u8 = 2;
pub const SEALED: u8 = 3;
pub const STRANGER: u8 = 4;
pub const REFUSED: u8 = 5;
/// Opens a session in which the holder of the board identity gives samples.
pub const PROVISION: u8 = 0x14;

/// Of this module's packets; frames inside have their own.
pub const SEAL_VERSION: u8 = 2;
/// Longest packet that is not a sealed frame.
pub const MAX_PLAIN: usize = 64;

const TAG: usize = 16;
const NONCE: usize = 16;

/// Whether a bridge carries such a packet from a device to the aggregator.
pub fn goes_up(packet: &[u8]) -> bool {
    matches!(packet.first(), Some(&(HAIL | SEALED)))
}

/// Whether a bridge carries such a packet from the aggregator to a device.
pub fn goes_down(packet: &[u8]) -> bool {
    matches!(packet.first(), Some(&(CHALLENGE | SEALED | STRANGER | REFUSED)))
}

/// The packet that says why there is no session now.
pub fn refusal(code: Code) -> [u8; 3] {
    let [a, b] = code.number().to_le_bytes();
    [REFUSED, a, b]
}

/// What a session is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Purpose {
    /// Frames of the protocol, with the aggregator.
    #[default]
    Frames,
    /// Samples, with the holder of the board identity.
    Samples,
}

impl Purpose {
    /// First byte of the packet that opens such a session.
    #[cfg(any(feature = "std", test))]
    fn kind(self) -> u8 {
        match self {
            Self::Frames => CHALLENGE,
            Self::Samples => PROVISION,
        }
    }
}

/// Keeps a key out of logs.
#[derive(Clone)]
struct Secret(Key);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}
