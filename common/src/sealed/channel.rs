//! One session: two directions, each with a key and a counter.
//!
//! ```text
//! 0      1         5                     n-24   n-16  n
//! | kind | counter | frame, encrypted    | salt | tag |     from the device
//! | kind | counter | frame, encrypted           | tag |     to the device
//! ```
//! AEAD nonce: salt (8 bytes; zeros to the device), counter (4 bytes, little-endian). Counter 0 to the device is used for the
//! tag of the CHALLENGE. A session ends before its counter overflows.
//!
//! The other end draws a random nonce for every session, so its key is always new. A device without memory may repeat a key,
//! see [`super::Nonces`]. Its salt is a pseudo-random function of counter and frame. So two frames under one key and counter
//! still have two AEAD nonces, and neither a key stream nor a tag key is reused. The same frame gives the same packet, which
//! reveals only that it is the same.

use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit, Tag};

use super::{
    Key, NONCE, Nonce, Purpose, SEALED, TAG,
    derive::{Use, session_key, step, step_to},
};

const SALT: usize = 8;
/// Bytes before the frame.
pub const SEAL_HEAD: usize = 5;
/// Most bytes around the frame.
pub const SEAL_OVERHEAD: usize = SEAL_HEAD + SALT + TAG;

/// Why a packet is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum SealError {
    #[error("packet is too short")]
    Short,
    #[error("packet was seen before")]
    Replayed,
    #[error("packet is forged, altered or of another session")]
    Forged,
}

/// An open session.
#[derive(Clone)]
pub struct Channel {
    key: Key,
    mine: Use,
    /// Counters of the last packet sent and of the last one received.
    sent: u32,
    received: u32,
}

impl core::fmt::Debug for Channel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Channel({} sent, {} received)", self.sent, self.received)
    }
}

impl Channel {
    pub(super) fn of_device(key: &Key, purpose: Purpose, ours: &Nonce, theirs: &Nonce) -> Self {
        Self { key: session_key(key, purpose, ours, theirs), mine: Use::Up, sent: 0, received: 0 }
    }

    #[cfg(any(feature = "std", test))]
    pub(super) fn to_device(key: &Key, purpose: Purpose, theirs: &Nonce, ours: &Nonce) -> Self {
        Self { mine: Use::Down, ..Self::of_device(key, purpose, theirs, ours) }
    }

    fn cipher(&self, direction: Use) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new(&step_to(&self.key, direction).into())
    }

    /// The tag by which the other end proves to the device that sent `hail` that it has the key.
    #[cfg(any(feature = "std", test))]
    pub(super) fn vouch(&self, hail: &[u8]) -> [u8; TAG] {
        let nonce = nonce(&[0; SALT], 0).into();
        let tag = self.cipher(Use::Down).encrypt_inout_detached(&nonce, hail, (&mut [][..]).into());
        tag.map_or([0; TAG], Into::into)
    }

    /// Checks the tag of `vouch`.
    #[inline(never)]
    pub(super) fn confirm(&self, hail: &[u8], tag: &[u8]) -> Result<(), SealError> {
        let tag: [u8; TAG] = tag.try_into().map_err(|_| SealError::Short)?;
        let (nonce, nothing) = (nonce(&[0; SALT], 0).into(), &mut [][..]);
        let opened =
            self.cipher(Use::Down).decrypt_inout_detached(&nonce, hail, nothing.into(), &Tag::from(tag));
        opened.map_err(|_| SealError::Forged)
    }

    /// Seals the frame at `packet[SEAL_HEAD..][..len]` and returns the packet's length; `None` if there is no room or the counter
    /// is exhausted.
    #[inline(never)]
    pub fn seal(&mut self, packet: &mut [u8], len: usize) -> Option<usize> {
        let total = len.checked_add(SEAL_HEAD + salt_len(self.mine) + TAG)?;
        let (head, rest) = packet.get_mut(..total)?.split_first_chunk_mut::<SEAL_HEAD>()?;
        let (rest, tag) = rest.split_last_chunk_mut::<TAG>()?;
        let (frame, place) = rest.split_at_mut_checked(len)?;
        let counter = self.sent.checked_add(1)?;
        self.sent = counter;
        let [a, b, c, d] = counter.to_le_bytes();
        *head = [SEALED, a, b, c, d];
        let mut salt = [0; SALT];
        if let Ok(place) = <&mut [u8; SALT]>::try_from(place) {
            salt = self.salt(counter, frame);
            *place = salt;
        }
        let nonce = nonce(&salt, counter).into();
        *tag = self.cipher(self.mine).encrypt_inout_detached(&nonce, &[], frame.into()).ok()?.into();
        Some(total)
    }

    /// A cascade of HChaCha20 over the counter, the length and the frame. The length comes first, so that no input is a prefix of
    /// another and the cascade is a pseudo-random function.
    #[inline(never)]
    fn salt(&self, counter: u32, frame: &[u8]) -> [u8; SALT] {
        let mut block: Nonce = [0; NONCE];
        for (place, byte) in
            block.iter_mut().zip([counter, frame.len() as u32].map(u32::to_le_bytes).as_flattened())
        {
            *place = *byte;
        }
        let mut key = step(&step_to(&self.key, Use::Salt), &block);
        for piece in frame.chunks(NONCE) {
            block = [0; NONCE];
            for (place, byte) in block.iter_mut().zip(piece) {
                *place = *byte;
            }
            key = step(&key, &block);
        }
        let [a, b, c, d, e, f, g, h, ..] = key;
        [a, b, c, d, e, f, g, h]
    }

    /// Checks a packet and returns its frame, decrypted in place.
    #[inline(never)]
    pub fn open<'a>(&mut self, packet: &'a mut [u8]) -> Result<&'a [u8], SealError> {
        let counter = counter_of(packet)?;
        if counter <= self.received {
            return Err(SealError::Replayed);
        }
        let theirs = if self.mine == Use::Up { Use::Down } else { Use::Up };
        let (rest, tag) = packet.split_last_chunk_mut::<TAG>().ok_or(SealError::Short)?;
        let rest = rest.get_mut(SEAL_HEAD..).ok_or(SealError::Short)?;
        let len = rest.len().checked_sub(salt_len(theirs)).ok_or(SealError::Short)?;
        let (frame, salt) = rest.split_at_mut_checked(len).ok_or(SealError::Short)?;
        let nonce = nonce(salt.first_chunk().unwrap_or(&[0; SALT]), counter).into();
        let opened =
            self.cipher(theirs).decrypt_inout_detached(&nonce, &[], (&mut *frame).into(), &Tag::from(*tag));
        opened.map_err(|_| SealError::Forged)?;
        self.received = counter;
        Ok(frame)
    }
}

/// Only the device's packets have a salt.
fn salt_len(direction: Use) -> usize {
    if direction == Use::Up { SALT } else { 0 }
}

pub(super) fn counter_of(packet: &[u8]) -> Result<u32, SealError> {
    match packet {
        [SEALED, a, b, c, d, ..] => Ok(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => Err(SealError::Short),
    }
}

fn nonce(salt: &[u8; SALT], counter: u32) -> [u8; 12] {
    let mut nonce = [0; 12];
    for (place, byte) in nonce.iter_mut().zip(salt.iter().copied().chain(counter.to_le_bytes())) {
        *place = byte;
    }
    nonce
}
