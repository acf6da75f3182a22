//! Writes the frames of the Coordinator to the streams of one connection.
//!
//! Frames of models are shared between all devices that get them and never copied here, so a slow reader costs nothing. At most
//! `server.max_downloads` devices are sent a model at once, because a thousand that start together lose most of their packets.
//! A device that takes long gives up its slot and continues without it, so that slow devices do not block others.

use std::time::Duration;

use bytes::Bytes;
use common::{TransferId, transfer::Lane, wire};
use quinn::{Connection, SendStream, WriteError};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::{Context, SessionEnd};
use crate::driver::{ConnectionSignals, Driver};
use coordinator::fleet::ConnId;

/// How long a device keeps its slot.
const HEAD_START: Duration = Duration::from_secs(3);

pub(super) struct Writer<'a> {
    connection: &'a Connection,
    control: SendStream,
    transfer: Option<(TransferId, SendStream)>,
    driver: &'a Driver,
    conn: ConnId,
    signals: &'a ConnectionSignals,
    downloads: &'a Semaphore,
    slot: DownloadSlot<'a>,
}

/// Whether chunks may be sent now.
enum DownloadSlot<'a> {
    None,
    Held {
        _permit: SemaphorePermit<'a>,
        since: Instant,
    },
    /// The download takes long: it continues, and others may start.
    GivenUp,
}

impl<'a> Writer<'a> {
    pub fn new(
        connection: &'a Connection,
        control: SendStream,
        context: &'a Context,
        conn: ConnId,
        signals: &'a ConnectionSignals,
    ) -> Self {
        let Context { driver, downloads, .. } = context;
        Self {
            connection,
            control,
            transfer: None,
            driver,
            conn,
            signals,
            downloads,
            slot: DownloadSlot::None,
        }
    }

    pub async fn run(mut self) -> Result<(), SessionEnd> {
        loop {
            let chunks = !matches!(self.slot, DownloadSlot::None);
            while let Some((lane, frame)) = self.driver.next_frame(self.conn, chunks) {
                match lane {
                    Lane::Control => self.message(frame).await?,
                    Lane::Transfer(transfer) => self.chunk(transfer, frame).await?,
                }
            }
            if self.signals.is_closing() {
                let _ = self.control.finish();
                return std::future::pending().await;
            }
            if !self.driver.is_sending(self.conn) {
                self.slot = DownloadSlot::None;
                self.end_transfer();
                self.signals.woken().await;
                continue;
            }
            match &self.slot {
                DownloadSlot::None => tokio::select! {
                    permit = self.downloads.acquire() => {
                        self.slot = DownloadSlot::Held { _permit: permit?, since: Instant::now() };
                    }
                    () = self.signals.woken() => {}
                },
                DownloadSlot::Held { since, .. } => tokio::select! {
                    () = tokio::time::sleep_until(*since + HEAD_START) => self.slot = DownloadSlot::GivenUp,
                    () = self.signals.woken() => {}
                },
                DownloadSlot::GivenUp => self.signals.woken().await,
            }
        }
    }

    async fn message(&mut self, frame: Bytes) -> Result<(), SessionEnd> {
        self.control.write_all(&wire::frame_prefix(frame.len())).await?;
        self.control.write_chunk(frame).await?;
        Ok(())
    }

    async fn chunk(&mut self, transfer: TransferId, frame: Bytes) -> Result<(), SessionEnd> {
        if self.transfer.as_ref().is_none_or(|(open, _)| *open != transfer) {
            self.end_transfer();
            super::set_windows(self.connection, self.driver.connections());
            let stream = self.connection.open_uni().await?;
            // Short messages go first.
            let _ = stream.set_priority(-1);
            self.transfer = Some((transfer, stream));
        }
        let Some((_, stream)) = &mut self.transfer else { return Ok(()) };
        let prefix = Bytes::copy_from_slice(&wire::frame_prefix(frame.len()));
        match stream.write_all_chunks(&mut [prefix, frame]).await {
            Ok(()) => Ok(()),
            Err(lost @ WriteError::ConnectionLost(_)) => Err(lost.into()),
            // The device stops this stream; if it wants more of the transfer, it asks.
            Err(_) => {
                self.transfer = None;
                Ok(())
            }
        }
    }

    fn end_transfer(&mut self) {
        if let Some((_, mut done)) = self.transfer.take() {
            let _ = done.finish();
        }
    }
}
