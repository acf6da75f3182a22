//! Reads the frames of a stream one at a time. All readers are cancellation safe.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use common::{
    TransferId,
    message::ToDevice,
    transfer::LinkLimits,
    wire::{self, Frame},
};
use quinn::RecvStream;

/// Packets that are taken from a stream at a time.
pub(super) const PACKETS: usize = 32;

#[derive(Debug)]
pub(super) struct FrameReader {
    stream: RecvStream,
    buffer: BytesMut,
}

impl FrameReader {
    pub fn new(stream: RecvStream) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// The next frame; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Bytes>, String> {
        let limit = LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD;
        loop {
            if let Some(prefix) = self.buffer.first_chunk::<4>() {
                let len = wire::frame_len(*prefix, limit).map_err(|error| error.to_string())?;
                if self.buffer.len() >= 4 + len {
                    let mut frame = self.buffer.split_to(4 + len).freeze();
                    return Ok(Some(frame.split_off(4)));
                }
                self.buffer.reserve(4 + len - self.buffer.len());
            }
            // Takes all available packets at once, like a real device's reader.
            let mut chunks = [const { Bytes::new() }; PACKETS];
            match self.stream.read_chunks(&mut chunks).await {
                Ok(Some(count)) => {
                    chunks[..count].iter().for_each(|chunk| self.buffer.extend_from_slice(chunk));
                }
                Ok(None) => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// The next message.
    pub async fn message(&mut self) -> Result<ToDevice, String> {
        let frame = self.next().await?.ok_or("the aggregator closed the stream")?;
        match Frame::decode(&frame).map_err(|error| error.to_string())? {
            Frame::Control(body) => match wire::control(body) {
                Ok((message, _)) => Ok(message),
                Err(error) => Err(error.to_string()),
            },
            Frame::Chunk { .. } => Err("a chunk arrived on the control stream".into()),
        }
    }
}

/// Reads chunks as the packets they arrived in. Joining them would take processor time from the aggregator.
/// Cancellation safe.
#[derive(Debug)]
pub(super) struct ChunkReader {
    stream: RecvStream,
    pieces: VecDeque<Bytes>,
    /// Total bytes of all pieces.
    held: usize,
}

/// A chunk. Only the checksum of the whole model is verified, not that of the frame.
#[derive(Debug)]
pub(super) struct Chunk {
    pub transfer: TransferId,
    pub offset: u32,
    pub len: usize,
    pub data: Vec<Bytes>,
}

/// Bytes of length, version, kind, transfer and offset.
const HEAD: usize = 4 + 2 + 8;

impl ChunkReader {
    pub fn new(stream: RecvStream) -> Self {
        Self { stream, pieces: VecDeque::new(), held: 0 }
    }

    /// The next chunk; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Chunk>, String> {
        let limit = LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD;
        loop {
            if let Some(head) = self.head() {
                let [a, b, c, d, ..] = head;
                let len = wire::frame_len([a, b, c, d], limit).map_err(|error| error.to_string())?;
                let len = len.checked_sub(wire::CHUNK_OVERHEAD).ok_or("the frame is not a chunk")?;
                if self.held >= HEAD + len + 4 {
                    let word =
                        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
                    self.take(HEAD);
                    let data = self.take(len);
                    self.take(4);
                    return Ok(Some(Chunk { transfer: TransferId(word(6)), offset: word(10), len, data }));
                }
            }
            let mut chunks = [const { Bytes::new() }; PACKETS];
            match self.stream.read_chunks(&mut chunks).await {
                Ok(Some(count)) => {
                    for piece in chunks.into_iter().take(count) {
                        self.held += piece.len();
                        self.pieces.push_back(piece);
                    }
                }
                Ok(None) => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn head(&self) -> Option<[u8; HEAD]> {
        let mut head = [0; HEAD];
        let bytes = self.pieces.iter().flat_map(|piece| piece.iter().take(HEAD));
        let filled = head.iter_mut().zip(bytes).map(|(to, byte)| *to = *byte).count();
        (filled == HEAD).then_some(head)
    }

    /// Takes this many of the held bytes.
    fn take(&mut self, mut len: usize) -> Vec<Bytes> {
        let mut taken = Vec::new();
        self.held -= len;
        while len > 0 {
            let Some(first) = self.pieces.front_mut() else { break };
            let piece = first.split_to(len.min(first.len()));
            len -= piece.len();
            if first.is_empty() {
                self.pieces.pop_front();
            }
            taken.push(piece);
        }
        taken
    }
}
