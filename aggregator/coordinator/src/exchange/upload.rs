//! An update on its way in, and how fast it comes.

use common::{Duration, Instant, message::Offer, transfer::Incoming};

/// An upload of which nothing arrives for so long gives up its place to one that waits. Pace is measured over such spans.
const SPAN: Duration = Duration::from_secs(15);
/// Bytes per second below which an upload gives up its place to one that waits.
const MIN_PACE: u64 = 8 << 10;
/// Times that a turn gets twice as long.
const MAX_DOUBLINGS: u32 = 6;

#[derive(Clone, Debug)]
pub struct Upload {
    pub offer: Offer,
    pub incoming: Incoming,
    pub bytes: Vec<u8>,
    /// When it was given its place.
    started: Instant,
    /// When bytes arrived last.
    moved: Instant,
    /// When the present span began, and how many bytes were there.
    since: Instant,
    before: u32,
    /// Bytes per second in the last whole span.
    pace: Option<u64>,
}

impl Upload {
    /// `bytes` is a buffer to be used again.
    pub fn new(offer: Offer, mut bytes: Vec<u8>, now: Instant) -> Self {
        let incoming = Incoming::new(offer.update.transfer, offer.update.bytes);
        bytes.clear();
        Self { offer, incoming, bytes, started: now, moved: now, since: now, before: 0, pace: None }
            .again(now)
    }

    /// The same with a place of its own once more.
    #[must_use]
    pub fn again(mut self, now: Instant) -> Self {
        self.bytes.reserve_exact((self.incoming.len() as usize).saturating_sub(self.bytes.len()));
        let before = self.incoming.received();
        Self { started: now, moved: now, since: now, before, pace: None, ..self }
    }

    /// The next bytes are there.
    pub fn take(&mut self, data: &[u8], now: Instant) {
        self.bytes.extend_from_slice(data);
        self.moved = now;
        if now - self.since >= SPAN {
            self.pace = Some(self.pace_since(now));
            (self.since, self.before) = (now, self.incoming.received());
        }
    }

    /// Its pace, if that is too slow to hold up others after a turn that was doubled so often.
    pub fn is_slow(&self, now: Instant, doublings: u32) -> Option<u64> {
        if now - self.moved >= SPAN {
            return Some(0);
        }
        let turn = Duration::from_millis(SPAN.as_millis() << doublings.min(MAX_DOUBLINGS));
        let pace = if now - self.since >= SPAN { Some(self.pace_since(now)) } else { self.pace };
        pace.filter(|&pace| pace < MIN_PACE && now - self.started >= turn)
    }

    fn pace_since(&self, now: Instant) -> u64 {
        let bytes = u64::from(self.incoming.received().saturating_sub(self.before));
        bytes * 1000 / (now - self.since).as_millis().max(1)
    }
}
