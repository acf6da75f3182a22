//! Version 1 of the seal, the aggregator's end: for devices with older firmware.
//!
//! ```text
//! S = HChaCha20(HChaCha20(key, d), a)        for both directions
//! AEAD nonce: direction (1 byte), seven zeros, counter (4 bytes, little-endian)
//! 0      1         5                     n-16  n
//! | kind | counter | frame, encrypted    | tag |
//! ```
//! A device that repeats its nonce after a power cut may reuse a key and an AEAD nonce; version 2 prevents that.

use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit, Tag};

use super::{Key, Nonce, SEAL_HEAD, SEALED, SealError, TAG, channel::counter_of, derive::step};

pub(super) const VERSION: u8 = 1;

const FROM_DEVICE: u8 = 0;
const FROM_AGGREGATOR: u8 = 1;

/// An open session.
#[derive(Clone)]
pub(super) struct Channel {
    cipher: ChaCha20Poly1305,
    sent: u32,
    received: u32,
}

impl core::fmt::Debug for Channel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "first::Channel({} sent, {} received)", self.sent, self.received)
    }
}

impl Channel {
    pub fn new(key: &Key, device: &Nonce, aggregator: &Nonce) -> Self {
        let key = step(&step(key, device), aggregator);
        Self { cipher: ChaCha20Poly1305::new(&key.into()), sent: 0, received: 0 }
    }

    pub fn vouch(&self, hail: &[u8]) -> [u8; TAG] {
        let nonce = nonce(FROM_AGGREGATOR, 0).into();
        let tag = self.cipher.encrypt_inout_detached(&nonce, hail, (&mut [][..]).into());
        tag.map_or([0; TAG], Into::into)
    }

    pub fn seal(&mut self, packet: &mut [u8], len: usize) -> Option<usize> {
        let total = len.checked_add(SEAL_HEAD + TAG)?;
        let (head, rest) = packet.get_mut(..total)?.split_first_chunk_mut::<SEAL_HEAD>()?;
        let (frame, tag) = rest.split_last_chunk_mut::<TAG>()?;
        let counter = self.sent.checked_add(1)?;
        self.sent = counter;
        let [a, b, c, d] = counter.to_le_bytes();
        *head = [SEALED, a, b, c, d];
        let nonce = nonce(FROM_AGGREGATOR, counter).into();
        *tag = self.cipher.encrypt_inout_detached(&nonce, &[], frame.into()).ok()?.into();
        Some(total)
    }

    pub fn open<'a>(&mut self, packet: &'a mut [u8]) -> Result<&'a [u8], SealError> {
        let counter = counter_of(packet)?;
        if counter <= self.received {
            return Err(SealError::Replayed);
        }
        let (head, tag) = packet.split_last_chunk_mut::<TAG>().ok_or(SealError::Short)?;
        let frame = head.get_mut(SEAL_HEAD..).ok_or(SealError::Short)?;
        let nonce = nonce(FROM_DEVICE, counter).into();
        let opened = self.cipher.decrypt_inout_detached(&nonce, &[], (&mut *frame).into(), &Tag::from(*tag));
        opened.map_err(|_| SealError::Forged)?;
        self.received = counter;
        Ok(frame)
    }
}

fn nonce(direction: u8, counter: u32) -> [u8; 12] {
    let [a, b, c, d] = counter.to_le_bytes();
    [direction, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
}
