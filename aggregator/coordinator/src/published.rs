//! Bytes that many devices fetch: encoded once, cut into frames once, shared by all that are sent them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use common::{Codec, Tier, TransferId, transfer::LinkLimits, wire};

use crate::per_tier::value_of;
use strategies::{kernel, strategy::PerTier, tiered::TieredModel};

/// Frames of shorter chunks are formed each time: they go to single boards, and keeping them would cost more.
const MIN_SHARED_CHUNK: u32 = 8 << 10;

/// Bytes that can be fetched: the slice of a tier, a guide, or a file.
#[derive(Clone, Debug)]
pub struct Published {
    bytes: Bytes,
    check: u32,
    frames: Arc<Mutex<FrameCache>>,
}

/// Frames that were formed already. A peer decides where chunks begin, so their total length is bounded: twice that of all
/// frames of devices that fetch in order.
#[derive(Debug, Default)]
struct FrameCache {
    formed: BTreeMap<ChunkKey, Bytes>,
    bytes: usize,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ChunkKey {
    transfer: TransferId,
    start: u32,
    end: u32,
}

impl FrameCache {
    fn keep(&mut self, key: ChunkKey, frame: Bytes, most: usize) {
        if self.bytes + frame.len() > most {
            *self = Self::default();
        }
        self.bytes += frame.len();
        self.formed.insert(key, frame);
    }
}

impl PartialEq for Published {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

/// Every tier's slice of `parameters`, encoded once and shared by all its devices.
pub fn publish(model: &TieredModel, parameters: &[f32], codecs: &PerTier<Codec>) -> Vec<Published> {
    let mut slice = Vec::new();
    (0..model.plans.len())
        .filter_map(Tier::new)
        .map(|tier| {
            model.gather(tier, parameters, &mut slice);
            Published::encode(&slice, value_of(codecs, tier))
        })
        .collect()
}

impl Published {
    /// Bytes that can be fetched as they are.
    pub fn new(bytes: Bytes) -> Self {
        let check = wire::crc32(&bytes);
        Self { bytes, check, frames: Arc::default() }
    }

    fn encode(slice: &[f32], codec: Codec) -> Self {
        let len = codec.encoded_len(slice.len()).expect("a run starts only if every slice fits a transfer");
        let mut bytes = vec![0; len as usize];
        kernel::int8::encode(codec, slice, 0, &mut bytes).expect("the buffer has the encoded length");
        Self::new(bytes.into())
    }

    /// All bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// CRC-32 of all bytes.
    pub fn check(&self) -> u32 {
        self.check
    }

    /// The frame of a chunk.
    pub fn frame(&self, transfer: TransferId, range: Range<u32>) -> Option<Bytes> {
        if range.end.saturating_sub(range.start) < MIN_SHARED_CHUNK {
            return self.form(transfer, range);
        }
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let key = ChunkKey { transfer, start: range.start, end: range.end };
        if let Some(frame) = frames.formed.get(&key) {
            return Some(frame.clone());
        }
        let frame = self.form(transfer, range)?;
        frames.keep(key, frame.clone(), 2 * (self.bytes.len() + LinkLimits::QUIC.chunk as usize));
        Some(frame)
    }

    fn form(&self, transfer: TransferId, range: Range<u32>) -> Option<Bytes> {
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
    fn frames_are_formed_once_and_decode_to_their_chunk() {
        let published = Published::new((0..40_000u32).map(|x| x as u8).collect());
        let frame = published.frame(TransferId(7), 0..20_000).unwrap();
        let again = published.clone().frame(TransferId(7), 0..20_000).unwrap();
        assert_eq!(frame.as_ptr(), again.as_ptr());
        let data = &published.bytes()[..20_000];
        assert_eq!(Frame::decode(&frame), Ok(Frame::Chunk { transfer: TransferId(7), offset: 0, data }));
        // Another transfer, and short chunks.
        assert_ne!(published.frame(TransferId(8), 0..20_000).unwrap(), frame);
        assert_ne!(
            published.frame(TransferId(7), 0..100).unwrap().as_ptr(),
            published.frame(TransferId(7), 0..100).unwrap().as_ptr()
        );
        assert_eq!(published.frame(TransferId(7), 30_000..50_000), None);
    }

    #[test]
    fn fetching_from_every_offset_does_not_grow_the_frame_cache() {
        let published = Published::new(vec![1; 40_000].into());
        for start in 0..3000 {
            assert!(published.frame(TransferId(7), start..start + 30_000).is_some());
            let frames = published.frames.lock().unwrap();
            let kept: usize = frames.formed.values().map(Bytes::len).sum();
            assert_eq!(kept, frames.bytes);
            assert!(kept <= 2 * (40_000 + (64 << 10)), "{kept} bytes after {start} fetches");
        }
    }
}
