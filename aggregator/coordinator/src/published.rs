//! Bytes that many devices fetch: encoded once, cut into frames once, shared by all that are sent them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use common::{Codec, Tier, transfer::LinkLimits, wire};

use strategies::{kernel, strategy::PerTier, tiered::TieredModel};

/// Frames with shorter chunks are for boards, one at a time; keeping them would cost more than forming them.
const SHARED_FROM: u32 = 8 << 10;

/// What can be fetched: the slice of a tier, a guide, or a file.
#[derive(Clone, Debug)]
pub struct Published {
    bytes: Bytes,
    check: u32,
    frames: Arc<Mutex<Frames>>,
}

/// Whoever fetches decides where chunks begin, so only so many are kept: twice what all devices have that fetch in order.
#[derive(Debug, Default)]
struct Frames {
    /// By transfer and range.
    formed: BTreeMap<(u32, u32, u32), Bytes>,
    bytes: usize,
}

impl Frames {
    fn keep(&mut self, key: (u32, u32, u32), frame: Bytes, most: usize) {
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
            Published::encode(&slice, codecs.of(tier).unwrap_or_default())
        })
        .collect()
}

impl Published {
    pub fn new(bytes: Bytes) -> Self {
        let check = wire::crc32(&bytes);
        Self { bytes, check, frames: Arc::default() }
    }

    fn encode(slice: &[f32], codec: Codec) -> Self {
        let mut bytes = vec![0; codec.encoded_len(slice.len()).unwrap_or(0) as usize];
        // The length was just computed for this slice.
        let _ = kernel::int8::encode(codec, slice, 0, &mut bytes);
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
        if let Some(frame) = frames.formed.get(&key) {
            return Some(frame.clone());
        }
        let frame = self.form(transfer, range)?;
        frames.keep(key, frame.clone(), 2 * (self.bytes.len() + LinkLimits::QUIC.chunk as usize));
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

    #[test]
    fn who_fetches_from_everywhere_makes_us_remember_no_more() {
        let published = Published::new(vec![1; 40_000].into());
        for start in 0..3000 {
            assert!(published.frame(7, start..start + 30_000).is_some());
            let frames = published.frames.lock().unwrap();
            let kept: usize = frames.formed.values().map(Bytes::len).sum();
            assert_eq!(kept, frames.bytes);
            assert!(kept <= 2 * (40_000 + (64 << 10)), "{kept} bytes after {start} fetches");
        }
    }
}
