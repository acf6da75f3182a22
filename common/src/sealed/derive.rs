//! Every key is derived from the device's key in steps of `HChaCha20(key, block)`.
//!
//! ```text
//! device's key -> purpose -> nonce d -> nonce a -> use     frames or samples; up, down or salt
//! device's key -> nonces  -> seed and count                the device's nonces
//! ```
//! Each purpose and use has its own block ([`label`]). An intermediate key is used for such steps only, and a final key for
//! one cipher only.

use chacha20::{R20, hchacha};

use super::{Key, NONCE, Nonce, Purpose};

/// Prefix of a label block. Version 1 has the device's nonce in this place, so its nonces must not begin like this.
pub(super) const LABEL: &[u8; NONCE - 1] = b"FairTier seal 2";

/// What a derived key is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Use {
    Frames = b'f',
    Samples = b's',
    Nonces = b'n',
    /// Packets of the device.
    Up = b'u',
    /// Packets to the device.
    Down = b'd',
    Salt = b'x',
}

impl From<Purpose> for Use {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Frames => Self::Frames,
            Purpose::Samples => Self::Samples,
        }
    }
}

fn label(what: Use) -> Nonce {
    let mut block = [what as u8; NONCE];
    if let Some(place) = block.first_chunk_mut() {
        *place = *LABEL;
    }
    block
}

#[inline(never)]
pub(super) fn step(key: &Key, block: &Nonce) -> Key {
    hchacha::<R20>(&(*key).into(), &(*block).into()).into()
}

pub(super) fn step_to(key: &Key, what: Use) -> Key {
    step(key, &label(what))
}

/// The key of one session, from which the keys of its directions are derived.
pub(super) fn session_key(key: &Key, purpose: Purpose, device: &Nonce, other: &Nonce) -> Key {
    step(&step(&step_to(key, purpose.into()), device), other)
}

/// The device's nonces: a pseudo-random function of a seed and a number.
///
/// They do not repeat as long as no two starts of a board have the same seed and the same count. A board with a random number
/// generator draws the seed at every start. One without takes the seed from its board identity and keeps the count in memory
/// that survives a reset. The identity of an emulated board is written anew at every start.
#[derive(Clone, Debug)]
pub struct Nonces {
    seed: Nonce,
    count: u64,
}

impl Nonces {
    /// Nonces from number `count` on.
    pub fn new(seed: Nonce, count: u64) -> Self {
        Self { seed, count }
    }

    pub(super) fn draw(&mut self, key: &Key) -> Nonce {
        let mut block = self.seed;
        for (byte, count) in block.iter_mut().zip(self.count.to_le_bytes()) {
            *byte ^= count;
        }
        self.count += 1;
        let whole = step(&step_to(key, Use::Nonces), &block);
        let [first, ..] = whole.as_chunks::<NONCE>().0 else { return block };
        *first
    }
}
