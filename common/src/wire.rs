//! Frames, the units that a link carries.
//!
//! ```text
//!  0         1        2                          n-4      n
//!  | format  | kind   | body                     | CRC-32 |
//!               0 = control: one message in postcard, and perhaps a tail
//!               1 = chunk: transfer u32, offset u32, bytes      (integers little-endian)
//! ```
//! The checksum (CRC-32/ISO-HDLC) covers everything before it. Each link delimits frames in its own way: QUIC streams put a
//! `u32` length before each frame ([`frame_prefix`]), serial lines use COBS.

use serde::{Serialize, de::DeserializeOwned};

use crate::{error::Code, id::TransferId};

/// Raised only when the layout of frames changes; the version of messages is negotiated ([`crate::version`]).
pub const FRAME_FORMAT: u8 = 4;
/// ALPN of QUIC peers from protocol 5 on, whose Hello has a range of versions.
pub const ALPN: &[u8] = b"fairtier/5";
/// ALPN of QUIC peers of protocol 4.
pub const ALPN_4: &[u8] = b"fairtier/1";
/// ALPN of a bridge, whose streams carry packets of serial devices.
pub const BRIDGE_ALPN: &[u8] = b"fairtier-bridge/1";
/// The name in every aggregator's certificate. Trust comes from the fleet's own CA, not from DNS, so
/// a gateway may change its address without new certificates.
pub const SERVER_NAME: &str = "aggregator.fairtier.internal";
/// Bytes of format, kind and checksum.
pub const FRAME_OVERHEAD: usize = 6;
/// Bytes around the data of a chunk: those of the frame, the transfer and the offset.
pub const CHUNK_OVERHEAD: usize = FRAME_OVERHEAD + 8;
/// Longest control frame in bytes, so that a device can receive it in a static buffer.
pub const MAX_CONTROL: usize = 512;
/// Longest frame in bytes on any link.
pub const MAX_FRAME: usize = 1 << 20;

const CONTROL: u8 = 0;
const CHUNK: u8 = 1;

/// Why a frame or message is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
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
    /// The code that is sent to the peer.
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

/// A frame with a valid checksum and format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Frame<'a> {
    /// One encoded message, and perhaps a tail.
    Control(&'a [u8]),
    /// Bytes of a transfer from `offset` on.
    Chunk { transfer: TransferId, offset: u32, data: &'a [u8] },
}

impl<'a> Frame<'a> {
    /// Checks the format and checksum of a frame.
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

/// Decodes the message of a control frame and returns its tail: fields that came after protocol 4.
// Not inlined, so that the stack of the decoder is free again while the message is handled.
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

/// CRC-32/ISO-HDLC of one slice.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::default();
    crc.update(bytes);
    crc.finish()
}

/// CRC-32/ISO-HDLC of several slices. With `std` it uses the processor's instructions.
#[cfg(feature = "std")]
#[derive(Clone, Default, Debug)]
pub struct Crc32(crc32fast::Hasher);

#[cfg(feature = "std")]
impl Crc32 {
    /// Appends bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes.
    pub fn finish(self) -> u32 {
        self.0.finalize()
    }
}

#[cfg(any(not(feature = "std"), test))]
mod small {
    static TABLE: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

    /// CRC-32/ISO-HDLC of several slices, with a table of 1 KB.
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
        /// Appends bytes.
        pub fn update(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        /// The checksum of all bytes.
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
    fn lengths_are_checked_before_allocation() {
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
