//! Reads what devices send: messages on one stream, updates on streams of their own.
//!
//! Memory for a frame is taken once the frame is announced. Long buffers are lent to one stream and reused. So an idle
//! connection takes none, and the heap does not fragment.

use std::time::Duration;

use common::{
    transfer::LinkLimits,
    wire::{self, Frame},
};
use quinn::{Connection, ReadExactError, RecvStream};

use super::SessionEnd;
use crate::driver::Driver;
use coordinator::fleet::ConnId;

/// Reads the control stream until it ends.
pub(super) async fn messages(stream: RecvStream, driver: &Driver, conn: ConnId) -> Result<(), SessionEnd> {
    frames(stream, wire::MAX_CONTROL, &mut Vec::new(), driver, conn).await
}

/// Reads streams with chunks, one after the other. A device sends one update at a time, and a stream that it gives up ends with
/// a reset.
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

/// Reads a whole frame; empty if the stream ends first. Takes all packets that have arrived at once, because every read locks
/// the connection.
async fn read(stream: &mut RecvStream, frame: &mut Vec<u8>) -> Result<(), SessionEnd> {
    match stream.read_exact(frame).await {
        Ok(()) => {}
        Err(ReadExactError::FinishedEarly(_)) => frame.clear(),
        Err(ReadExactError::ReadError(lost)) => return Err(lost.into()),
    }
    Ok(())
}
