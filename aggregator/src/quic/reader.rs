//! What devices send: messages on one stream, updates on streams of their own.
//!
//! Room for a frame is made when it has been announced. Long buffers are lent for one stream and used again, so that a
//! connection on which nothing happens costs none, and nobody fills the heap with holes.

use std::time::Duration;

use common::{
    transfer::LinkLimits,
    wire::{self, Frame},
};
use quinn::{Connection, ReadExactError, RecvStream};

use super::SessionEnd;
use crate::driver::Driver;
use coordinator::fleet::ConnId;

/// The control stream, until it ends.
pub(super) async fn messages(stream: RecvStream, driver: &Driver, conn: ConnId) -> Result<(), SessionEnd> {
    frames(stream, wire::MAX_CONTROL, &mut Vec::new(), driver, conn).await
}

/// Streams with chunks, one after the other: a device sends one update at a time, and a stream that was given up
/// ends with its reset.
pub(super) async fn transfers(
    connection: &Connection,
    driver: &Driver,
    conn: ConnId,
) -> Result<(), SessionEnd> {
    let limit = LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD;
    loop {
        let stream = connection.accept_uni().await?;
        super::set_windows(connection, driver.connections());
        let mut frame = driver.lend_buffer();
        let end = frames(stream, limit, &mut frame, driver, conn).await;
        driver.take_back(frame);
        match end {
            Err(SessionEnd::Refused(code)) => return Err(SessionEnd::Refused(code)),
            Err(SessionEnd::Displaced | SessionEnd::Link(_)) | Ok(()) => {}
        }
    }
}

async fn frames(
    mut stream: RecvStream,
    limit: usize,
    frame: &mut Vec<u8>,
    driver: &Driver,
    conn: ConnId,
) -> Result<(), SessionEnd> {
    loop {
        let mut prefix = [0; 4];
        stream.read_exact(&mut prefix).await?;
        // A length out of bounds reads as an empty frame, which the Coordinator refuses.
        frame.resize(wire::frame_len(prefix, limit).unwrap_or(0), 0);
        read(&mut stream, frame).await?;
        let decoded = Frame::decode(frame);
        if let Err(code) = driver.with(|coordinator, now| coordinator.handle_decoded(conn, decoded, now)) {
            // The writer still has to deliver the refusal.
            tokio::time::sleep(Duration::from_millis(200)).await;
            return Err(SessionEnd::Refused(code));
        }
    }
}

/// Fills a whole frame; empty if the stream ends before it does. Takes all packets that are there at once: the connection is
/// locked for every look.
async fn read(stream: &mut RecvStream, frame: &mut Vec<u8>) -> Result<(), SessionEnd> {
    match stream.read_exact(frame).await {
        Ok(()) => {}
        Err(ReadExactError::FinishedEarly(_)) => frame.clear(),
        Err(ReadExactError::ReadError(lost)) => return Err(lost.into()),
    }
    Ok(())
}
