//! What is waiting to be sent on one connection.

use std::collections::VecDeque;

use bytes::Bytes;
use common::{
    DeviceId, Instant,
    message::{Ack, Blob, Fetch, ToDevice},
    transfer::{Lane, LinkLimits, Outgoing},
    wire,
};

use super::{Coordinator, GUIDE_TRANSFER, ONNX_TRANSFER};
use crate::fleet::ConnId;

/// A device that does not read must not make us remember without end: beyond this, the oldest
/// answer goes, and the device will ask again.
const MAX_QUEUED: usize = 16;

#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) device: DeviceId,
    /// Hello was accepted on this connection.
    pub(super) joined: bool,
    messages: VecDeque<ToDevice>,
    /// The model of the round, a guide, and a file that was asked for.
    transfers: Vec<(Outgoing, Bytes)>,
}

impl Outbox {
    pub(super) fn new(device: DeviceId) -> Self {
        Self { device, joined: false, messages: VecDeque::new(), transfers: vec![] }
    }

    pub(super) fn say(&mut self, message: ToDevice) {
        if self.messages.len() >= MAX_QUEUED {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
    }

    /// Whether a transfer can be fetched.
    pub(super) fn offers(&self, transfer: u32) -> bool {
        self.transfers.iter().any(|(outgoing, _)| outgoing.transfer() == transfer)
    }

    /// Makes bytes fetchable, unless they already are. A newer model replaces an older one, a newer
    /// file an older file.
    pub(super) fn publish(
        &mut self,
        transfer: u32,
        bytes: Bytes,
        align: u32,
        limits: LinkLimits,
        check: u32,
    ) -> Blob {
        let len = bytes.len() as u32;
        if !self.offers(transfer) {
            let other_kind = |id: u32| (id ^ transfer) & (ONNX_TRANSFER | GUIDE_TRANSFER) != 0;
            self.transfers.retain(|(outgoing, _)| other_kind(outgoing.transfer()));
            self.transfers.push((Outgoing::new(transfer, len, align, limits), bytes));
        }
        Blob { transfer, bytes: len, check }
    }

    pub(super) fn handle_fetch(&mut self, fetch: Fetch, now: Instant) {
        for (outgoing, _) in &mut self.transfers {
            outgoing.handle_fetch(fetch, now);
        }
    }

    pub(super) fn handle_ack(&mut self, ack: Ack, now: Instant) {
        for (outgoing, _) in &mut self.transfers {
            outgoing.handle_ack(ack, now);
        }
    }

    /// True if something must be sent again.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        let due = self.poll_timeout().is_some_and(|deadline| now >= deadline);
        for (outgoing, _) in &mut self.transfers {
            outgoing.handle_timeout(now);
        }
        due
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.transfers.iter().filter_map(|(outgoing, _)| outgoing.poll_timeout()).min()
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Lane> {
        while let Some(message) = self.messages.pop_front() {
            out.resize(wire::MAX_CONTROL, 0);
            // A message that does not fit a control frame is a defect of ours, caught by the golden
            // tests; sending nothing makes the device ask again.
            if let Ok(len) = wire::encode_control(&message, out) {
                out.truncate(len);
                return Some(Lane::Control);
            }
        }
        let next = |(outgoing, bytes): &mut (Outgoing, Bytes)| {
            outgoing.poll_chunk().map(|range| (outgoing.transfer(), range, bytes.clone()))
        };
        let (transfer, range, bytes) = self.transfers.iter_mut().find_map(next)?;
        let data = bytes.get(range.start as usize..range.end as usize)?;
        out.resize(data.len() + wire::CHUNK_OVERHEAD, 0);
        wire::encode_chunk(transfer, range.start, data.len(), out, |to| to.copy_from_slice(data)).ok()?;
        Some(Lane::Transfer(transfer))
    }
}

impl Coordinator {
    /// Writes the next frame for a connection into `out`.
    pub fn poll_transmit(&mut self, conn: ConnId, out: &mut Vec<u8>) -> Option<Lane> {
        self.conns.get_mut(&conn)?.poll_transmit(out)
    }
}
