//! Bytes that many devices fetch: encoded once, cut into frames once, shared by all that are sent them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use common::{Codec, wire};

/// Frames with shorter chunks are for boards, one at a time; keeping them would cost more than forming them.
const SHARED_FROM: u32 = 8 << 10;

/// What can be fetched: the slice of a tier, a guide, or a file.
#[derive(Clone, Debug)]
pub struct Published {
    bytes: Bytes,
    check: u32,
    frames: Arc<Mutex<Frames>>,
}

/// By transfer and range.
type Frames = BTreeMap<(u32, u32, u32), Bytes>;

impl PartialEq for Published {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Published {
    pub fn new(bytes: Bytes) -> Self {
        let check = wire::crc32(&bytes);
        Self { bytes, check, frames: Arc::default() }
    }

    pub(super) fn encode(slice: &[f32], codec: Codec) -> Self {
        let mut bytes = vec![0; codec.encoded_len(slice.len()).unwrap_or(0) as usize];
        // The length was just computed for this slice.
        let _ = codec.encode(slice, 0, 0, &mut bytes);
        Self::new(bytes.into())
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// CRC-32 of all bytes.
    pub fn check(&self) -> u32 {
        self.check
    }

    /// The frame of a chunk.
    pub fn frame(&self, transfer: u32, range: Range<u32>) -> Option<Bytes> {
        if range.end.saturating_sub(range.start) < SHARED_FROM {
            return self.form(transfer, range);
        }
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (transfer, range.start, range.end);
        if let Some(frame) = frames.get(&key) {
            return Some(frame.clone());
        }
        let frame = self.form(transfer, range)?;
        frames.insert(key, frame.clone());
        Some(frame)
    }

    fn form(&self, transfer: u32, range: Range<u32>) -> Option<Bytes> {
        let data = self.bytes.get(range.start as usize..range.end as usize)?;
        let mut frame = vec![0; data.len() + wire::CHUNK_OVERHEAD];
        wire::encode_chunk(transfer, range.start, data.len(), &mut frame, |to| to.copy_from_slice(data))
            .ok()?;
        Some(frame.into())
    }
}

#[cfg(test)]
mod tests {
    use common::wire::Frame;

    use super::*;

    #[test]
    fn frames_are_formed_once_and_say_what_they_carry() {
        let published = Published::new((0..40_000u32).map(|x| x as u8).collect());
        let frame = published.frame(7, 0..20_000).unwrap();
        let again = published.clone().frame(7, 0..20_000).unwrap();
        assert_eq!(frame.as_ptr(), again.as_ptr());
        let data = &published.bytes()[..20_000];
        assert_eq!(Frame::decode(&frame), Ok(Frame::Chunk { transfer: 7, offset: 0, data }));
        // Another transfer, and short chunks.
        assert_ne!(published.frame(8, 0..20_000).unwrap(), frame);
        assert_ne!(
            published.frame(7, 0..100).unwrap().as_ptr(),
            published.frame(7, 0..100).unwrap().as_ptr()
        );
        assert_eq!(published.frame(7, 30_000..50_000), None);
    }
}
