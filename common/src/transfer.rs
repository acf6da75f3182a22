//! A tensor on its way, in acknowledged chunks.
//!
//! Sans-io: both ends handle messages and say what to send next; bytes stay with the caller, who
//! reads them from or writes them to where they belong. Chunks arrive in order or are asked for again
//! (go-back-N), so a receiver needs no memory beyond its place. Whoever receives speaks first
//! ([`Fetch`]), which makes resuming after a lost connection the ordinary case.

use core::ops::Range;

use crate::{
    message::{Ack, Fetch},
    time::{Duration, Instant},
};

/// How a link wants to be used. The chunk size belongs to the link, not to the transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkLimits {
    /// Longest chunk in bytes, without the frame around it.
    pub chunk: u32,
    /// Bytes that may be on their way without an acknowledgement.
    pub window: u32,
    /// When to repeat what was not answered.
    pub timeout: Duration,
}

impl LinkLimits {
    /// QUIC retransmits by itself: long chunks, a window that covers the path, a patient timer.
    pub const QUIC: Self = Self { chunk: 64 << 10, window: 1 << 20, timeout: Duration::from_secs(10) };

    /// Chunks longer than this need more memory than a microcontroller gives its line.
    const SMALL: u32 = 1024;

    /// For a peer that takes chunks up to this length. One that takes only small ones sits on a line that
    /// may lose bytes and has room for two chunks, so it gets these two and a short timer.
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
    transfer: u32,
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
    /// `align` is the codec's: chunks end between its blocks, except the last.
    pub fn new(transfer: u32, len: u32, align: u32, limits: LinkLimits) -> Self {
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

    pub fn transfer(&self) -> u32 {
        self.transfer
    }

    pub fn is_done(&self) -> bool {
        self.acked >= self.len
    }

    /// Was asked for, and is not there yet.
    pub fn is_running(&self) -> bool {
        self.started && !self.is_done()
    }

    /// Starts, resumes, or goes back. An offset inside a block of the codec is ignored.
    pub fn handle_fetch(&mut self, fetch: Fetch, now: Instant) {
        if fetch.transfer == self.transfer && self.is_boundary(fetch.offset) {
            self.started = true;
            self.acked = fetch.offset;
            self.next = fetch.offset;
            self.deadline = (!self.is_done()).then_some(now + self.timeout);
        }
    }

    /// After going back (a repeated [`Fetch`], a timeout) the receiver may be ahead of what was sent
    /// since; believing it is what ends the repetition.
    pub fn handle_ack(&mut self, ack: Ack, now: Instant) {
        let ahead = ack.next > self.acked && self.is_boundary(ack.next);
        if self.started && ack.transfer == self.transfer && ahead {
            self.acked = ack.next;
            self.next = self.next.max(ack.next);
            self.deadline = (!self.is_done()).then_some(now + self.timeout);
        }
    }

    /// Nothing was acknowledged for too long: sends again from the last acknowledged byte.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.next = self.acked;
            self.deadline = Some(now + self.timeout);
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Between two blocks of the codec, or at the end.
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

/// What the receiving side makes of a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The next bytes: store them, then answer.
    Fresh,
    /// Known already; answer, so that the sender moves on.
    Known,
    /// Something before it is missing; ask for that.
    Gap,
    /// Of another transfer, or beyond its end.
    Foreign,
}

/// The receiving side.
#[derive(Clone, Debug)]
pub struct Incoming {
    transfer: u32,
    len: u32,
    next: u32,
    /// The gap that was last asked for, so that a burst of late chunks causes one request.
    asked: Option<u32>,
    /// What the sender was last told, and when.
    acked: u32,
    acked_at: Instant,
}

impl Incoming {
    pub fn new(transfer: u32, len: u32) -> Self {
        Self { transfer, len, next: 0, asked: None, acked: 0, acked_at: Instant::ZERO }
    }

    pub fn transfer(&self) -> u32 {
        self.transfer
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that have arrived.
    pub fn received(&self) -> u32 {
        self.next
    }

    pub fn is_done(&self) -> bool {
        self.next >= self.len
    }

    /// Starts, or resumes where it was.
    pub fn fetch(&mut self) -> Fetch {
        self.asked = None;
        self.acked = self.next;
        Fetch { transfer: self.transfer, offset: self.next }
    }

    pub fn ack(&self) -> Ack {
        Ack { transfer: self.transfer, next: self.next }
    }

    /// After [`Arrival::Fresh`]: what the sender has to hear now. Four times per window is often enough to keep it going,
    /// and sooner only if its timer would run out.
    pub fn poll_ack(&mut self, limits: LinkLimits, now: Instant) -> Option<Ack> {
        let patience = Duration::from_millis(limits.timeout.as_millis() / 8);
        let far = self.next.saturating_sub(self.acked) >= limits.window / 4;
        if !(far || self.is_done() || now >= self.acked_at + patience) {
            return None;
        }
        (self.acked, self.acked_at) = (self.next, now);
        Some(self.ack())
    }

    /// After [`Arrival::Gap`]: what to ask for, once per gap.
    pub fn refetch(&mut self) -> Option<Fetch> {
        if self.asked.replace(self.next) == Some(self.next) {
            None
        } else {
            Some(Fetch { transfer: self.transfer, offset: self.next })
        }
    }

    pub fn handle_chunk(&mut self, transfer: u32, offset: u32, len: usize) -> Arrival {
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

/// Which of a link's ways a frame takes, where the link has more than one: long transfers do not
/// hold up short messages.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    Control,
    /// The way of this transfer.
    Transfer(u32),
}
