//! One session: two directions, a counter each.
//!
//! ```text
//! 0      1         5                     n-16  n
//! | kind | counter | frame, encrypted    | tag |
//! ```
//! AEAD nonce: direction (1 byte), seven zeros, counter (4 bytes, little-endian). Counter 0 of the
//! aggregator's direction is the tag of the CHALLENGE. A session ends before its counter does.

use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit, Tag};

use super::{Key, SEALED, TAG};

/// Bytes before the frame.
pub const SEAL_HEAD: usize = 5;
/// Bytes around the frame.
pub const SEAL_OVERHEAD: usize = SEAL_HEAD + TAG;

const FROM_DEVICE: u8 = 0;
const FROM_AGGREGATOR: u8 = 1;

#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    #[error("packet is too short")]
    Short,
    #[error("packet was seen before")]
    Replayed,
    #[error("packet is forged, altered or of another session")]
    Forged,
}

/// An open session.
pub struct Channel {
    cipher: ChaCha20Poly1305,
    mine: u8,
    /// Of the last packet sent, and of the last one received.
    sent: u32,
    received: u32,
}

impl core::fmt::Debug for Channel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Channel({} sent, {} received)", self.sent, self.received)
    }
}

impl Channel {
    pub(super) fn of_device(key: Key) -> Self {
        Self::new(key, FROM_DEVICE)
    }

    #[cfg(any(feature = "std", test))]
    pub(super) fn of_aggregator(key: Key) -> Self {
        Self::new(key, FROM_AGGREGATOR)
    }

    fn new(key: Key, mine: u8) -> Self {
        Self { cipher: ChaCha20Poly1305::new(&key.into()), mine, sent: 0, received: 0 }
    }

    /// The tag that proves the aggregator's key to whoever sent `hail`.
    #[cfg(any(feature = "std", test))]
    pub(super) fn vouch(&self, hail: &[u8]) -> [u8; TAG] {
        let nonce = nonce(FROM_AGGREGATOR, 0).into();
        let tag = self.cipher.encrypt_inout_detached(&nonce, hail, (&mut [][..]).into());
        tag.map_or([0; TAG], Into::into)
    }

    /// Checks such a tag.
    pub(super) fn confirm(&mut self, hail: &[u8], tag: &[u8]) -> Result<(), SealError> {
        let tag: [u8; TAG] = tag.try_into().map_err(|_| SealError::Short)?;
        let nonce = nonce(FROM_AGGREGATOR, 0).into();
        let opened = self.cipher.decrypt_inout_detached(&nonce, hail, (&mut [][..]).into(), &Tag::from(tag));
        opened.map_err(|_| SealError::Forged)
    }

    /// Seals the frame at `packet[SEAL_HEAD..][..len]` and gives the packet's length; `None` if there is
    /// no room or the session has lasted too long.
    pub fn seal(&mut self, packet: &mut [u8], len: usize) -> Option<usize> {
        let total = len.checked_add(SEAL_OVERHEAD)?;
        let (head, rest) = packet.get_mut(..total)?.split_first_chunk_mut::<SEAL_HEAD>()?;
        let (frame, tag) = rest.split_last_chunk_mut::<TAG>()?;
        let counter = self.sent.checked_add(1)?;
        self.sent = counter;
        let [a, b, c, d] = counter.to_le_bytes();
        *head = [SEALED, a, b, c, d];
        let nonce = nonce(self.mine, counter).into();
        *tag = self.cipher.encrypt_inout_detached(&nonce, &[], frame.into()).ok()?.into();
        Some(total)
    }

    /// The frame of a packet, decrypted in place.
    pub fn open<'a>(&mut self, packet: &'a mut [u8]) -> Result<&'a [u8], SealError> {
        let counter = counter_of(packet)?;
        if counter <= self.received {
            return Err(SealError::Replayed);
        }
        let (head, tag) = packet.split_last_chunk_mut::<TAG>().ok_or(SealError::Short)?;
        let frame = head.get_mut(SEAL_HEAD..).ok_or(SealError::Short)?;
        let nonce = nonce(self.theirs(), counter).into();
        let opened = self.cipher.decrypt_inout_detached(&nonce, &[], (&mut *frame).into(), &Tag::from(*tag));
        opened.map_err(|_| SealError::Forged)?;
        self.received = counter;
        Ok(frame)
    }

    /// Whether [`Self::open`] would succeed; leaves the packet alone.
    #[cfg(any(feature = "std", test))]
    pub(super) fn check(&self, packet: &[u8]) -> Result<(), SealError> {
        let mut copy = std::vec::Vec::from(packet);
        let mut trial =
            Self { cipher: self.cipher.clone(), mine: self.mine, sent: 0, received: self.received };
        trial.open(&mut copy).map(|_| ())
    }

    fn theirs(&self) -> u8 {
        self.mine ^ 1
    }
}

fn counter_of(packet: &[u8]) -> Result<u32, SealError> {
    match packet {
        [SEALED, a, b, c, d, ..] => Ok(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => Err(SealError::Short),
    }
}

fn nonce(direction: u8, counter: u32) -> [u8; 12] {
    let [a, b, c, d] = counter.to_le_bytes();
    [direction, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
}
