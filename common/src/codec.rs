//! How numbers become bytes.
//!
//! | codec | bytes per number | error of one number | use |
//! |---|---|---|---|
//! | `f32` | 4 | none | default; the only one that is bit-exact |
//! | `f16` | 2 | 2^-11 relative (2^-25 absolute near 0); beyond 65,504 becomes infinite and is refused | models |
//! | `int8` | 1 + 4/64 | below (largest of its block of 64)/127, zero on average | updates |
//!
//! `int8` rounds stochastically. The random number of an element depends on the seed and the
//! element's index only, so a chunk that is sent again has the same bytes, whatever the chunk size.
//! Non-finite numbers stay non-finite in every codec, so the receiver can detect them.

use serde::{Deserialize, Serialize};

pub mod int8;

/// Numbers per `int8` block.
pub const BLOCK: usize = 64;
/// Bytes of a whole `int8` block: scale and numbers.
const BLOCK_BYTES: usize = 4 + BLOCK;

/// An encoding of `f32` numbers.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// The bytes of the number itself, little-endian.
    #[default]
    F32,
    /// Half precision.
    F16,
    /// Blocks of 64 numbers with one scale.
    Int8,
}

/// A buffer of bytes does not have the encoded length of the buffer of numbers.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("bytes and numbers do not match in length")]
pub struct LengthError;

impl Codec {
    /// Every codec.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Int8];

    /// The name in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
        }
    }

    /// Bytes of `count` numbers; `None` if they do not fit a transfer.
    pub fn encoded_len(self, count: usize) -> Option<u32> {
        let bytes = match self {
            Self::F32 => count.checked_mul(4)?,
            Self::F16 => count.checked_mul(2)?,
            Self::Int8 => count.checked_add(count.div_ceil(BLOCK).checked_mul(4)?)?,
        };
        u32::try_from(bytes).ok()
    }

    /// Chunks are a multiple of this many bytes, except the last.
    pub fn align(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Int8 => BLOCK_BYTES as u32,
        }
    }

    /// The index of the number that starts at a byte offset; `None` inside a block.
    pub fn index_at(self, offset: u32) -> Option<usize> {
        let (blocks, rest) = (offset / self.align(), offset % self.align());
        let per_block = if self == Self::Int8 { BLOCK } else { 1 };
        (rest == 0).then_some(blocks as usize * per_block)
    }

    /// Number of values in `bytes` bytes that start at a block boundary; `None` if they end inside a value or a scale.
    pub fn count_in(self, bytes: usize) -> Option<usize> {
        match self {
            Self::F32 => bytes.is_multiple_of(4).then_some(bytes / 4),
            Self::F16 => bytes.is_multiple_of(2).then_some(bytes / 2),
            Self::Int8 => match bytes % BLOCK_BYTES {
                0 => Some(bytes / BLOCK_BYTES * BLOCK),
                1..=4 => None,
                rest => Some(bytes / BLOCK_BYTES * BLOCK + rest - 4),
            },
        }
    }

    /// Encodes `values`, the first of which has the given index in its tensor.
    pub fn encode(self, values: &[f32], first: usize, seed: u64, out: &mut [u8]) -> Result<(), LengthError> {
        if self.encoded_len(values.len()).map(|len| len as usize) != Some(out.len()) {
            return Err(LengthError);
        }
        match self {
            Self::F32 => {
                for (bytes, value) in out.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                    *bytes = value.to_le_bytes();
                }
            }
            Self::F16 => {
                for (bytes, &value) in out.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                    *bytes = half::f16::from_f32(value).to_le_bytes();
                }
            }
            Self::Int8 => int8::encode(values, first, seed, out),
        }
        Ok(())
    }

    /// Decodes bytes that start at a block boundary. Fills `values` exactly.
    pub fn decode(self, bytes: &[u8], values: &mut [f32]) -> Result<(), LengthError> {
        if self.encoded_len(values.len()).map(|len| len as usize) != Some(bytes.len()) {
            return Err(LengthError);
        }
        match self {
            Self::F32 => {
                for (bytes, value) in bytes.as_chunks::<4>().0.iter().zip(values) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            Self::F16 => {
                for (bytes, value) in bytes.as_chunks::<2>().0.iter().zip(values) {
                    *value = half::f16::from_le_bytes(*bytes).to_f32();
                }
            }
            Self::Int8 => int8::decode(bytes, values),
        }
        Ok(())
    }

    /// Error feedback, kept by the sender: what `encode` with the same arguments leaves unsent.
    pub fn residual(self, values: &[f32], seed: u64, residual: &mut [f32]) {
        for (block, (values, residual)) in values.chunks(BLOCK).zip(residual.chunks_mut(BLOCK)).enumerate() {
            let mut bytes = [0; 4 * BLOCK];
            let len = self.encoded_len(values.len()).unwrap_or(0) as usize;
            let bytes = &mut bytes[..len];
            let sent =
                self.encode(values, block * BLOCK, seed, bytes).and_then(|()| self.decode(bytes, residual));
            debug_assert!(sent.is_ok(), "a block fits the buffer");
            for (left, &value) in residual.iter_mut().zip(values) {
                let rest = value - *left;
                *left = if sent.is_ok() && rest.is_finite() { rest } else { 0.0 };
            }
        }
    }
}
