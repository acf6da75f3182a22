//! What devices send: messages on one stream, updates on streams of their own.
//!
//! Room for a frame is made when it has been announced, and given back with it, so that a connection on which
//! nothing happens costs no buffer.

use std::time::Duration;

use common::{transfer::LinkLimits, wire};
use quinn::{Connection, RecvStream};

use super::End;
use crate::{fleet::ConnId, hub::Hub};

/// The control stream, until it ends.
pub(super) async fn messages(stream: RecvStream, hub: &Hub, conn: ConnId) -> Result<(), End> {
    frames(stream, wire::MAX_CONTROL, hub, conn).await
}

/// Streams with chunks, one after the other: a device sends one update at a time, and a stream that was given up
/// ends with its reset.
pub(super) async fn transfers(connection: &Connection, hub: &Hub, conn: ConnId) -> Result<(), End> {
    let limit = LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD;
    loop {
        let stream = connection.accept_uni().await?;
        match frames(stream, limit, hub, conn).await {
            Err(End::Refused(code)) => return Err(End::Refused(code)),
            Err(End::Link(_)) | Ok(()) => {}
        }
    }
}

async fn frames(mut stream: RecvStream, limit: usize, hub: &Hub, conn: ConnId) -> Result<(), End> {
    loop {
        let mut prefix = [0; 4];
        stream.read_exact(&mut prefix).await?;
        // The Coordinator answers to what is no frame as to any bad one.
        let frame = match wire::frame_len(prefix, limit) {
            Ok(len) => read(&mut stream, len).await?,
            Err(_) => vec![],
        };
        if let Err(code) = hub.with(|coordinator, now| coordinator.handle_frame(conn, &frame, now)) {
            // The writer still has to deliver the refusal.
            tokio::time::sleep(Duration::from_millis(200)).await;
            return Err(End::Refused(code));
        }
    }
}

/// A whole frame; empty if the stream ends before it does.
async fn read(stream: &mut RecvStream, len: usize) -> Result<Vec<u8>, End> {
    let mut frame = Vec::with_capacity(len);
    while frame.len() < len {
        match stream.read_chunk(len - frame.len(), true).await? {
            Some(chunk) => frame.extend_from_slice(&chunk.bytes),
            None => return Ok(vec![]),
        }
    }
    Ok(frame)
}
