//! Valid updates, encoded once and shared by all devices.
//!
//! A frame names its transfer, which is the round, so frames are made once per round and shared.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use common::{
    Codec, TransferId,
    rng::{Rng, derive},
    transfer::{LinkLimits, Outgoing},
    wire,
};

/// Number of different updates that devices send.
const KINDS: usize = 4;

#[derive(Debug)]
pub(super) struct Updates {
    seed: u64,
    kinds: Mutex<PreparedUpdates>,
}

#[derive(Debug, Default)]
struct PreparedUpdates {
    /// By codec and length in numbers.
    payloads: HashMap<(Codec, usize), Vec<Bytes>>,
    frames: HashMap<(TransferId, usize), Arc<Frames>>,
}

/// An update as frames with length prefixes.
#[derive(Debug)]
pub(super) struct Frames {
    pub len: u32,
    pub align: u32,
    /// By offset of the chunk in the update.
    frames: HashMap<u32, Bytes>,
}

impl Frames {
    pub fn at(&self, offset: u32) -> Option<Bytes> {
        self.frames.get(&offset).cloned()
    }
}

impl Updates {
    pub fn new(seed: u64) -> Self {
        Self { seed, kinds: Mutex::default() }
    }

    /// The frames that device number `index` sends as this transfer.
    pub fn frames(
        &self,
        index: usize,
        transfer: TransferId,
        codec: Codec,
        numbers: usize,
    ) -> Result<Arc<Frames>, String> {
        let mut made = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let made = &mut *made;
        let kind = index % KINDS;
        if !made.frames.contains_key(&(transfer, kind)) {
            let payloads = match made.payloads.entry((codec, numbers)) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(room) => {
                    let payloads = (0..KINDS).map(|kind| payload(self.seed, kind, codec, numbers));
                    room.insert(payloads.collect::<Result<_, _>>()?)
                }
            };
            // Frames of earlier rounds are not needed again.
            made.frames.retain(|(other, _), _| *other == transfer);
            for (kind, payload) in payloads.iter().enumerate() {
                made.frames.insert((transfer, kind), Arc::new(cut(transfer, codec, payload)));
            }
        }
        Ok(made.frames[&(transfer, kind)].clone())
    }
}

fn payload(seed: u64, kind: usize, codec: Codec, numbers: usize) -> Result<Bytes, String> {
    let mut rng = Rng::new(derive(seed, kind as u64));
    let values: Vec<f32> = (0..numbers).map(|_| 1e-3 * (rng.unit_f32() - 0.5)).collect();
    let len =
        codec.encoded_len(numbers).ok_or_else(|| format!("an update of {numbers} numbers is too large"))?;
    let mut bytes = vec![0; len as usize];
    codec.encode(&values, 0, seed, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes.into())
}

fn cut(transfer: TransferId, codec: Codec, payload: &Bytes) -> Frames {
    let (len, align) = (payload.len() as u32, codec.align());
    // An unlimited window: all chunks at once.
    let limits = LinkLimits { window: u32::MAX, ..LinkLimits::QUIC };
    let mut outgoing = Outgoing::new(transfer, len, align, limits);
    outgoing.handle_fetch(common::message::Fetch { transfer, offset: 0 }, common::Instant::ZERO);
    let mut frames = HashMap::new();
    while let Some(range) = outgoing.poll_chunk() {
        let data = &payload[range.start as usize..range.end as usize];
        let mut frame = vec![0; 4 + data.len() + wire::CHUNK_OVERHEAD];
        let (prefix, rest) = frame.split_at_mut(4);
        prefix.copy_from_slice(&wire::frame_prefix(rest.len()));
        // The buffer has exactly this capacity.
        let _ = wire::encode_chunk(transfer, range.start, data.len(), rest, |to| to.copy_from_slice(data));
        frames.insert(range.start, frame.into());
    }
    Frames { len, align, frames }
}
