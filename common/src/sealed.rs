//! Encrypted and authenticated frames between a device and the aggregator, through an untrusted bridge.
//!
//! A device behind a bridge has no certificate: it shares a key of 32 bytes with the aggregator. For every session both
//! choose a nonce. Every frame is sealed with ChaCha20-Poly1305; its keys are derived from the shared key and both nonces.
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
//! | reads, forges, alters | ChaCha20-Poly1305 with a separate key for each direction ([`derive`]) |
//! | repeats a packet | a counter in the AEAD nonce, which only increases; a lost packet is a gap |
//! | replays an old session to the aggregator | `a` is random, new for every HAIL, and part of both keys |
//! | replays an old session to the device | `d` is part of both keys and does not repeat: see [`Nonces`] |
//! | makes a device reuse a key, where `d` does repeat | the salt ([`Channel`]): different frames have different AEAD nonces |
//! | gives a device other samples | samples need a session of another purpose, see below |
//! | asks whether a name is enrolled | the aggregator answers every HAIL in the same way |
//!
//! **Limits.** HAIL, STRANGER and REFUSED are not authenticated: a bridge can interrupt a session and delay the next one. It
//! could also just drop packets. A device that has neither a random number generator nor memory repeats `d` after a power
//! cut. Such a device cannot tell a complete recording of an earlier session from a new one, so a bridge can make it repeat
//! earlier work. The aggregator accepts none of that work, and nothing leaks. A bridge sees names, sizes and times.
//!
//! **Samples** by cable need the device's key as well. The holder of the board identity answers a HAIL with PROVISION
//! instead of CHALLENGE (same layout, keys of another purpose). Pieces of samples are then sent as sealed frames.
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

/// The secret that a device shares with the aggregator.
pub type Key = [u8; 32];
/// What each end contributes to the keys of a session.
pub type Nonce = [u8; 16];

/// First byte of a packet: a device asks for a session. Kinds from 0x10 on are between a board and the host at its cable.
pub const HAIL: u8 = 1;
/// First byte of a packet: the aggregator answers a HAIL.
pub const CHALLENGE: u8 = 2;
/// First byte of a packet that holds a sealed frame.
pub const SEALED: u8 = 3;
/// First byte of a packet: the aggregator has no such session.
pub const STRANGER: u8 = 4;
/// First byte of a packet: the aggregator opens no session now; a code follows.
pub const REFUSED: u8 = 5;
/// First byte of a packet: opens a session in which the holder of the board identity sends samples.
pub const PROVISION: u8 = 0x14;

/// Version of this module's packets; the frames inside have their own.
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

/// A REFUSED packet with its reason.
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

/// A key that `Debug` does not print.
#[derive(Clone)]
struct Secret(Key);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}
