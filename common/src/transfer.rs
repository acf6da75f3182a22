//! Transfers of tensors in acknowledged chunks.
//!
//! Sans-io: both ends handle messages and return what to send next. The bytes stay with the caller. Chunks arrive in order
//! or are requested again (go-back-N), so a receiver keeps nothing but its offset. The receiver speaks first ([`Fetch`]),
//! so resuming after a lost connection is the ordinary case.

use core::ops::Range;

use crate::{
    id::TransferId,
    message::{Ack, Fetch},
    time::{Duration, Instant},
};

/// Limits of a link. The chunk size belongs to the link, not to the transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkLimits {
    /// Longest chunk in bytes, without the frame around it.
    pub chunk: u32,
    /// Bytes in flight without an acknowledgement.
    pub window: u32,
    /// Time after which an unanswered request is repeated.
    pub timeout: Duration,
}

impl LinkLimits {
    /// QUIC retransmits by itself: long chunks, a window that covers the path, a long timeout.
    pub const QUIC: Self = Self { chunk: 64 << 10, window: 1 << 20, timeout: Duration::from_secs(10) };

    /// Longest chunk in the buffers of a microcontroller's serial line.
    const SMALL: u32 = 1024;

    /// The limits for a peer that takes chunks up to this length. A peer that takes only small ones is on a lossy serial line:
    /// its window is two chunks, and its timeout is short.
    #[must_use]
    pub fn for_peer(self, chunk: u32) -> Self {
        let chunk = chunk.min(self.chunk);
        if chunk > Self::SMALL {
            return Self { chunk, ..self };
        }
        let timeout = self.timeout.min(Duration::from_millis(1500));
        Self { chunk, window: self.window.min(chunk.saturating_mul(2)), timeout }
    }
}

/// The sending side.
#[derive(Clone, Debug)]
pub struct Outgoing {
    transfer: TransferId,
    len: u32,
    align: u32,
    chunk: u32,
    window: u32,
    timeout: Duration,
    started: bool,
    acked: u32,
    next: u32,
    deadline: Option<Instant>,
}

impl Outgoing {
    /// `align`: the block length of the codec in bytes. All chunks but the last end between two blocks.
    pub fn new(transfer: TransferId, len: u32, align: u32, limits: LinkLimits) -> Self {
        let align = align.max(1);
        let chunk = (limits.chunk / align * align).max(align);
        let window = limits.window.max(chunk);
        let timeout = limits.timeout;
        Self {
            transfer,
            len,
            align,
            chunk,
            window,
            timeout,
            started: false,
            acked: 0,
            next: 0,
            deadline: None,
        }
    }

    /// The transfer that is sent.
    pub fn transfer(&self) -> TransferId {
        self.transfer
    }

    /// All bytes are acknowledged.
    pub fn is_done(&self) -> bool {
        self.acked >= self.len
    }

    /// The peer has fetched the transfer, and has not acknowledged all bytes.
    pub fn is_running(&self) -> bool {
        self.started && !self.is_done()
    }

    /// Starts, resumes or rewinds the transfer. An offset inside a block of the codec is ignored.
    pub fn handle_fetch(&mut self, fetch: Fetch, now: Instant) {
        if fetch.transfer == self.transfer && self.is_boundary(fetch.offset) {
            self.started = true;
            self.acked = fetch.offset;
            self.next = fetch.offset;
            self.deadline = (!self.is_done()).then_some(now + self.timeout);
        }
    }

    /// Notes that bytes have arrived. After a rewind (a repeated [`Fetch`], a timeout) the receiver may be ahead of what was
    /// sent since; its acknowledgement then ends the repetition.
    pub fn handle_ack(&mut self, ack: Ack, now: Instant) {
        let ahead = ack.next > self.acked && self.is_boundary(ack.next);
        if self.started && ack.transfer == self.transfer && ahead {
            self.acked = ack.next;
            self.next = self.next.max(ack.next);
            self.deadline = (!self.is_done()).then_some(now + self.timeout);
        }
    }

    /// Sends again from the last acknowledged byte if the timeout has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.next = self.acked;
            self.deadline = Some(now + self.timeout);
        }
    }

    /// When to call [`Outgoing::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// The offset is between two blocks of the codec, or at the end.
    fn is_boundary(&self, offset: u32) -> bool {
        offset == self.len || offset < self.len && offset.is_multiple_of(self.align)
    }

    /// The next chunk to send, as a range of bytes.
    pub fn poll_chunk(&mut self) -> Option<Range<u32>> {
        let end = self.next.saturating_add(self.chunk).min(self.len);
        if !self.started || self.next >= self.len || end - self.acked > self.window {
            return None;
        }
        let range = self.next..end;
        self.next = end;
        Some(range)
    }
}

/// How a chunk relates to what has arrived.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The next bytes: store them, then acknowledge.
    Fresh,
    /// Received before; acknowledge, so that the sender moves on.
    Known,
    /// Bytes before it are missing; request them.
    Gap,
    /// Belongs to another transfer, or reaches beyond the end.
    Foreign,
}

/// The receiving side.
#[derive(Clone, Debug)]
pub struct Incoming {
    transfer: TransferId,
    len: u32,
    next: u32,
    /// The gap that was requested last, so that a burst of late chunks causes one request.
    asked: Option<u32>,
    /// The last acknowledgement, and when it was sent.
    acked: u32,
    acked_at: Instant,
}

impl Incoming {
    /// A transfer of `len` bytes, none of which has arrived.
    pub fn new(transfer: TransferId, len: u32) -> Self {
        Self { transfer, len, next: 0, asked: None, acked: 0, acked_at: Instant::ZERO }
    }

    /// The transfer that is received.
    pub fn transfer(&self) -> TransferId {
        self.transfer
    }

    /// All bytes of the transfer.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The transfer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that have arrived.
    pub fn received(&self) -> u32 {
        self.next
    }

    /// All bytes have arrived.
    pub fn is_done(&self) -> bool {
        self.next >= self.len
    }

    /// The request that starts or resumes the transfer.
    pub fn fetch(&mut self) -> Fetch {
        self.asked = None;
        self.acked = self.next;
        Fetch { transfer: self.transfer, offset: self.next }
    }

    /// Acknowledges what has arrived.
    pub fn ack(&self) -> Ack {
        Ack { transfer: self.transfer, next: self.next }
    }

    /// After [`Arrival::Fresh`]: the acknowledgement to send now, if any. Four per window keep the sender going; more are sent
    /// only before its timeout.
    pub fn poll_ack(&mut self, limits: LinkLimits, now: Instant) -> Option<Ack> {
        let longest = Duration::from_millis(limits.timeout.as_millis() / 8);
        let far = self.next.saturating_sub(self.acked) >= limits.window / 4;
        if !(far || self.is_done() || now >= self.acked_at + longest) {
            return None;
        }
        (self.acked, self.acked_at) = (self.next, now);
        Some(self.ack())
    }

    /// After [`Arrival::Gap`]: the request for the missing bytes, once per gap.
    pub fn refetch(&mut self) -> Option<Fetch> {
        if self.asked.replace(self.next) == Some(self.next) {
            None
        } else {
            Some(Fetch { transfer: self.transfer, offset: self.next })
        }
    }

    /// A chunk has arrived; says what to do with it.
    pub fn handle_chunk(&mut self, transfer: TransferId, offset: u32, len: usize) -> Arrival {
        let Some(end) = u32::try_from(len).ok().and_then(|len| offset.checked_add(len)) else {
            return Arrival::Foreign;
        };
        if transfer != self.transfer || end > self.len || len == 0 {
            return Arrival::Foreign;
        }
        if offset == self.next {
            self.next = end;
            self.asked = None;
            Arrival::Fresh
        } else if offset < self.next {
            Arrival::Known
        } else {
            Arrival::Gap
        }
    }
}

/// The stream that a frame takes on a link with several streams, so that long transfers do not delay short messages.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Messages.
    Control,
    /// Chunks of this transfer.
    Transfer(TransferId),
}
