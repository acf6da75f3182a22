//! An update that is being received, and its pace.

use common::{Duration, Instant, message::Offer, transfer::Incoming};

/// Pace is measured over spans of this length. An upload that receives nothing for a span gives way to one that waits.
const SPAN: Duration = Duration::from_secs(15);
/// Bytes per second below which an upload gives way to one that waits.
const MIN_PACE: u64 = 8 << 10;
/// How often a turn is doubled at most.
const MAX_DOUBLINGS: u32 = 6;

/// An update that is being received.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The offer that announced it.
    pub offer: Offer,
    /// How far the transfer has come.
    pub incoming: Incoming,
    /// The bytes that have arrived.
    pub bytes: Vec<u8>,
    /// When its turn began.
    started: Instant,
    /// When bytes arrived last.
    last_bytes: Instant,
    /// When the present span began, and how many bytes had arrived then.
    span_started: Instant,
    span_offset: u32,
    /// Bytes per second in the last whole span.
    pace: Option<u64>,
}

impl Upload {
    /// `buffer` is used again.
    pub fn new(offer: Offer, mut buffer: Vec<u8>, now: Instant) -> Self {
        let incoming = Incoming::new(offer.update.transfer, offer.update.bytes);
        buffer.clear();
        let bytes = buffer;
        Self {
            offer,
            incoming,
            bytes,
            started: now,
            last_bytes: now,
            span_started: now,
            span_offset: 0,
            pace: None,
        }
        .resumed(now)
    }

    /// The same upload with a new turn.
    #[must_use]
    pub fn resumed(mut self, now: Instant) -> Self {
        self.bytes.reserve_exact((self.incoming.len() as usize).saturating_sub(self.bytes.len()));
        let span_offset = self.incoming.received();
        Self { started: now, last_bytes: now, span_started: now, span_offset, pace: None, ..self }
    }

    /// The next bytes have arrived.
    pub fn push(&mut self, data: &[u8], now: Instant) {
        self.bytes.extend_from_slice(data);
        self.last_bytes = now;
        if now - self.span_started >= SPAN {
            self.pace = Some(self.pace_of_span(now));
            (self.span_started, self.span_offset) = (now, self.incoming.received());
        }
    }

    /// Its pace, if that is too slow to delay others after a turn that was doubled this often.
    pub fn slow_pace(&self, now: Instant, doublings: u32) -> Option<u64> {
        if now - self.last_bytes >= SPAN {
            return Some(0);
        }
        let turn = Duration::from_millis(SPAN.as_millis() << doublings.min(MAX_DOUBLINGS));
        let pace = if now - self.span_started >= SPAN { Some(self.pace_of_span(now)) } else { self.pace };
        pace.filter(|&pace| pace < MIN_PACE && now - self.started >= turn)
    }

    fn pace_of_span(&self, now: Instant) -> u64 {
        let bytes = u64::from(self.incoming.received().saturating_sub(self.span_offset));
        bytes * 1000 / (now - self.span_started).as_millis().max(1)
    }
}
