//! What is waiting to be sent on one connection.

use std::collections::VecDeque;

use bytes::Bytes;
use common::{
    DeviceId, Instant, TierSet, TransferId, Versions,
    message::{Ack, Blob, Fetch, ToDevice},
    transfer::{Lane, LinkLimits, Outgoing},
    wire,
};

use super::Coordinator;
use crate::{fleet::ConnId, published::Published};

/// Messages queued for a device that does not read. Beyond this, the oldest one is dropped, and the device will ask again.
const MAX_QUEUED: usize = 16;

#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) device: DeviceId,
    /// Hello was accepted on this connection.
    pub(super) joined: bool,
    /// Tiers that its certificate allows.
    pub(super) allowed: TierSet,
    /// The protocol version that the device speaks.
    version: u8,
    /// The device has named versions, so it understands tails.
    negotiates: bool,
    messages: VecDeque<ToDevice>,
    /// At most one of each [kind](common::id::TransferKind).
    transfers: Vec<PublishedTransfer>,
}

/// Bytes that the device can fetch, and how far it has come.
#[derive(Debug)]
struct PublishedTransfer {
    outgoing: Outgoing,
    source: Published,
}

impl Outbox {
    pub(super) fn new(device: DeviceId) -> Self {
        Self {
            device,
            joined: false,
            allowed: TierSet::ALL,
            version: Versions::FOUR.newest,
            negotiates: false,
            messages: VecDeque::new(),
            transfers: vec![],
        }
    }

    /// Sets the negotiated version.
    pub(super) fn speak(&mut self, version: u8, negotiates: bool) {
        (self.version, self.negotiates) = (version, negotiates);
    }

    /// The negotiated version.
    pub(super) fn version(&self) -> u8 {
        self.version
    }

    pub(super) fn say(&mut self, message: ToDevice) {
        if self.messages.len() >= MAX_QUEUED {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
    }

    /// Whether a transfer can be fetched.
    pub(super) fn offers(&self, transfer: TransferId) -> bool {
        self.transfers.iter().any(|published| published.outgoing.transfer() == transfer)
    }

    /// Makes bytes fetchable, unless they already are. They replace an older transfer of the same kind.
    pub(super) fn publish(
        &mut self,
        transfer: TransferId,
        source: Published,
        align: u32,
        limits: LinkLimits,
    ) -> Blob {
        let (bytes, check) = (source.bytes().len() as u32, source.check());
        if !self.offers(transfer) {
            let outgoing = Outgoing::new(transfer, bytes, align, limits);
            self.transfers.retain(|other| other.outgoing.transfer().kind() != transfer.kind());
            self.transfers.push(PublishedTransfer { outgoing, source });
        }
        Blob { transfer, bytes, check }
    }

    pub(super) fn handle_fetch(&mut self, fetch: Fetch, now: Instant) {
        for PublishedTransfer { outgoing, .. } in &mut self.transfers {
            outgoing.handle_fetch(fetch, now);
        }
    }

    pub(super) fn handle_ack(&mut self, ack: Ack, now: Instant) {
        for PublishedTransfer { outgoing, .. } in &mut self.transfers {
            outgoing.handle_ack(ack, now);
        }
    }

    /// Sends again what was not acknowledged in time.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for PublishedTransfer { outgoing, .. } in &mut self.transfers {
            outgoing.handle_timeout(now);
        }
    }

    /// When to call [`Outbox::handle_timeout`].
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.transfers.iter().filter_map(|published| published.outgoing.poll_timeout()).min()
    }

    /// Whether a transfer is under way.
    fn is_sending(&self) -> bool {
        self.transfers.iter().any(|published| published.outgoing.is_running())
    }

    /// Welcome says which version both use, if the device asked; other messages bring their own tail.
    fn encode(&self, message: &ToDevice, out: &mut [u8]) -> Result<usize, wire::WireError> {
        match message {
            ToDevice::Welcome(_) if self.negotiates => wire::encode_control(&(message, self.version), out),
            message => message.encode(out),
        }
    }

    fn poll_frame(&mut self, chunks: bool) -> Option<(Lane, Bytes)> {
        let mut out = [0; wire::MAX_CONTROL];
        while let Some(message) = self.messages.pop_front() {
            let Some(message) = message.for_version(self.version) else { continue };
            let encoded = self.encode(&message, &mut out);
            debug_assert!(encoded.is_ok(), "does not fit a control frame: {message:?}");
            // Without an answer, the device asks again.
            if let Ok(len) = encoded {
                return Some((Lane::Control, Bytes::copy_from_slice(&out[..len])));
            }
        }
        if !chunks {
            return None;
        }
        let next = |PublishedTransfer { outgoing, source }: &mut PublishedTransfer| {
            let range = outgoing.poll_chunk()?;
            Some((Lane::Transfer(outgoing.transfer()), source.frame(outgoing.transfer(), range)?))
        };
        self.transfers.iter_mut().find_map(next)
    }
}

impl Coordinator {
    /// The next frame for a connection; without `chunks`, the next message.
    pub fn poll_frame(&mut self, conn: ConnId, chunks: bool) -> Option<(Lane, Bytes)> {
        self.conns.change(conn, |outbox| outbox.poll_frame(chunks))?
    }

    /// Whether a connection has a transfer under way: fetched, and not acknowledged to its end.
    pub fn is_sending(&self, conn: ConnId) -> bool {
        self.conns.get(conn).is_some_and(Outbox::is_sending)
    }

    /// Writes the next frame for a connection into `out`.
    pub fn poll_transmit(&mut self, conn: ConnId, out: &mut Vec<u8>) -> Option<Lane> {
        let (lane, frame) = self.poll_frame(conn, true)?;
        out.clear();
        out.extend_from_slice(&frame);
        Some(lane)
    }
}
