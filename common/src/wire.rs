//! Frames: what a link carries.
//!
//! ```text
//!  0         1        2                          n-4      n
//!  | format  | kind   | body                     | CRC-32 |
//!               0 = control: one message in postcard, and perhaps a tail
//!               1 = chunk: transfer u32, offset u32, bytes      (integers little-endian)
//! ```
//! The checksum (CRC-32/ISO-HDLC) covers everything before it. How a link marks the ends of frames
//! is its own affair: QUIC streams put a `u32` length before each ([`frame_prefix`]), serial lines
//! use COBS.

use serde::{Serialize, de::DeserializeOwned};

use crate::{error::Code, id::TransferId};

/// Raised only when the frame itself changes; what messages mean is negotiated ([`crate::version`]).
pub const FRAME_FORMAT: u8 = 4;
/// How QUIC peers name the protocol from version 5 on, in which Hello names a range of versions.
pub const ALPN: &[u8] = b"fairtier/5";
/// How peers of version 4 name it.
pub const ALPN_4: &[u8] = b"fairtier/1";
/// How a bridge does, whose streams carry packets of serial devices.
pub const BRIDGE_ALPN: &[u8] = b"fairtier-bridge/1";
/// The name in every aggregator's certificate. Trust comes from the fleet's own CA, not from DNS, so
/// a gateway may change its address without new certificates.
pub const SERVER_NAME: &str = "aggregator.fairtier.internal";
/// Version, kind and checksum.
pub const FRAME_OVERHEAD: usize = 6;
/// Transfer and offset before the bytes of a chunk.
pub const CHUNK_OVERHEAD: usize = FRAME_OVERHEAD + 8;
/// No control frame is longer, so that a device can receive it in a static buffer.
pub const MAX_CONTROL: usize = 512;
/// No frame is longer on any link.
pub const MAX_FRAME: usize = 1 << 20;

const CONTROL: u8 = 0;
const CHUNK: u8 = 1;

#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    #[error("frame is too short, too long or of unknown kind")]
    BadFrame,
    #[error("checksum does not match")]
    BadChecksum,
    #[error("peer sends frames of format {0}, this program reads format {FRAME_FORMAT}")]
    WrongVersion(u8),
    #[error("message does not decode")]
    BadMessage,
    #[error("message does not fit the buffer")]
    TooLong,
}

impl WireError {
    pub fn code(self) -> Code {
        match self {
            Self::BadFrame => Code::BadFrame,
            Self::BadChecksum => Code::BadChecksum,
            Self::WrongVersion(_) => Code::WrongVersion,
            Self::BadMessage => Code::BadMessage,
            Self::TooLong => Code::TooLong,
        }
    }
}

/// A frame whose checksum and format are right.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    Control(&'a [u8]),
    Chunk { transfer: TransferId, offset: u32, data: &'a [u8] },
}

impl<'a> Frame<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        if bytes.len() < FRAME_OVERHEAD || bytes.len() > MAX_FRAME {
            return Err(WireError::BadFrame);
        }
        let (covered, checksum) = bytes.split_last_chunk::<4>().ok_or(WireError::BadFrame)?;
        if crc32(covered) != u32::from_le_bytes(*checksum) {
            return Err(WireError::BadChecksum);
        }
        match covered {
            [version, ..] if *version != FRAME_FORMAT => Err(WireError::WrongVersion(*version)),
            [_, CONTROL, body @ ..] => Ok(Self::Control(body)),
            [_, CHUNK, body @ ..] => {
                let (transfer, rest) = body.split_first_chunk::<4>().ok_or(WireError::BadFrame)?;
                let (offset, data) = rest.split_first_chunk::<4>().ok_or(WireError::BadFrame)?;
                let transfer = TransferId(u32::from_le_bytes(*transfer));
                let offset = u32::from_le_bytes(*offset);
                Ok(Self::Chunk { transfer, offset, data })
            }
            _ => Err(WireError::BadFrame),
        }
    }
}

/// Decodes a record that has no tail: left-over bytes are an error.
#[inline(never)]
pub fn message<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(WireError::BadMessage),
    }
}

/// Decodes the message of a control frame and gives its tail: fields that came after protocol 4.
// What decoding needs of the stack is given back before anything is done with the message.
#[inline(never)]
pub fn control<T: DeserializeOwned>(body: &[u8]) -> Result<(T, &[u8]), WireError> {
    postcard::take_from_bytes(body).map_err(|_| WireError::BadMessage)
}

/// Reads a field of a tail. `None` if the tail ends before it; what follows it is left for later versions.
pub fn tail<T: DeserializeOwned>(tail: &[u8]) -> Option<T> {
    postcard::take_from_bytes(tail).ok().map(|(field, _)| field)
}

/// Writes a control frame and returns its length.
pub fn encode_control<T: Serialize>(message: &T, out: &mut [u8]) -> Result<usize, WireError> {
    let limit = out.len().min(MAX_CONTROL);
    let room = out.get_mut(2..limit.saturating_sub(4)).ok_or(WireError::TooLong)?;
    let body = postcard::to_slice(message, room).map_err(|_| WireError::TooLong)?.len();
    finish(out, CONTROL, body)
}

/// Writes a chunk frame whose `len` bytes are written by `fill`, and returns its length.
pub fn encode_chunk(
    transfer: TransferId,
    offset: u32,
    len: usize,
    out: &mut [u8],
    fill: impl FnOnce(&mut [u8]),
) -> Result<usize, WireError> {
    let room = out.get_mut(2..10 + len).ok_or(WireError::TooLong)?;
    room[..4].copy_from_slice(&transfer.0.to_le_bytes());
    room[4..8].copy_from_slice(&offset.to_le_bytes());
    fill(&mut room[8..]);
    finish(out, CHUNK, 8 + len)
}

fn finish(out: &mut [u8], kind: u8, body: usize) -> Result<usize, WireError> {
    let total = body + FRAME_OVERHEAD;
    let frame = out.get_mut(..total).ok_or(WireError::TooLong)?;
    frame[0] = FRAME_FORMAT;
    frame[1] = kind;
    let (covered, checksum) = frame.split_at_mut(total - 4);
    checksum.copy_from_slice(&crc32(covered).to_le_bytes());
    Ok(total)
}

/// The length that a stream link puts before a frame.
pub fn frame_prefix(len: usize) -> [u8; 4] {
    (len as u32).to_le_bytes()
}

/// The length announced by a prefix, refused before anything is allocated for it.
pub fn frame_len(prefix: [u8; 4], limit: usize) -> Result<usize, WireError> {
    match u32::from_le_bytes(prefix) as usize {
        len if (FRAME_OVERHEAD..=limit.min(MAX_FRAME)).contains(&len) => Ok(len),
        _ => Err(WireError::BadFrame),
    }
}

/// CRC-32/ISO-HDLC of a whole.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::default();
    crc.update(bytes);
    crc.finish()
}

/// CRC-32/ISO-HDLC of parts. With `std` it uses the processor's instructions.
#[cfg(feature = "std")]
#[derive(Clone, Default, Debug)]
pub struct Crc32(crc32fast::Hasher);

#[cfg(feature = "std")]
impl Crc32 {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> u32 {
        self.0.finalize()
    }
}

#[cfg(any(not(feature = "std"), test))]
mod small {
    static TABLE: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

    /// CRC-32/ISO-HDLC of parts, with a table of 1 KB.
    #[derive(Clone)]
    pub struct Crc32(crc::Digest<'static, u32>);

    impl Default for Crc32 {
        fn default() -> Self {
            Self(TABLE.digest())
        }
    }

    impl core::fmt::Debug for Crc32 {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("Crc32")
        }
    }

    impl Crc32 {
        pub fn update(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        pub fn finish(self) -> u32 {
            self.0.finalize()
        }
    }
}
#[cfg(not(feature = "std"))]
pub use small::Crc32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_check_value_of_crc32() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let mut small = small::Crc32::default();
        small.update(b"12345");
        small.update(b"6789");
        assert_eq!(small.finish(), 0xcbf4_3926);
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_allocated() {
        assert_eq!(frame_len(u32::MAX.to_le_bytes(), 1 << 16), Err(WireError::BadFrame));
        assert_eq!(frame_len([0; 4], 1 << 16), Err(WireError::BadFrame));
        assert_eq!(frame_len(frame_prefix(100), 1 << 16), Ok(100));
    }

    #[test]
    fn another_format_is_named() {
        let mut out = [0; 32];
        let len = encode_control(&7u8, &mut out).unwrap();
        out[0] = 9;
        let sum = crc32(&out[..len - 4]).to_le_bytes();
        out[len - 4..len].copy_from_slice(&sum);
        assert_eq!(Frame::decode(&out[..len]), Err(WireError::WrongVersion(9)));
    }

    proptest! {
        #[test]
        fn chunks_round_trip(transfer: u32, offset: u32, data: Vec<u8>) {
            let transfer = TransferId(transfer);
            let mut out = vec![0; data.len() + CHUNK_OVERHEAD];
            let len = encode_chunk(transfer, offset, data.len(), &mut out, |to| to.copy_from_slice(&data)).unwrap();
            prop_assert_eq!(len, out.len());
            prop_assert_eq!(Frame::decode(&out), Ok(Frame::Chunk { transfer, offset, data: &data }));
        }

        #[test]
        fn any_flipped_bit_is_noticed(data: Vec<u8>, at: prop::sample::Index, bit in 0u8..8) {
            let mut out = vec![0; data.len() + CHUNK_OVERHEAD];
            encode_chunk(TransferId(1), 2, data.len(), &mut out, |to| to.copy_from_slice(&data)).unwrap();
            let at = at.index(out.len());
            out[at] ^= 1 << bit;
            prop_assert!(Frame::decode(&out).is_err());
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = Frame::decode(&bytes);
            let _ = control::<crate::message::ToAggregator>(&bytes);
            let _ = control::<crate::message::ToDevice>(&bytes);
            let _ = tail::<crate::version::Versions>(&bytes);
        }
    }
}
