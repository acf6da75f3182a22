//! Frames of a stream, one at a time. Whoever stops waiting loses nothing.

use bytes::{Bytes, BytesMut};
use common::{
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
            // All packets that are there at once, as with a real device's reader.
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
        let frame = self.next().await?.ok_or("the aggregator says no more")?;
        match Frame::decode(&frame).map_err(|error| error.to_string())? {
            Frame::Control(body) => wire::message(body).map_err(|error| error.to_string()),
            Frame::Chunk { .. } => Err("a chunk among the messages".into()),
        }
    }
}
