//! Refusals are counted and logged once a minute, so that a flood of handshakes is not a flood of the log.

use std::{collections::BTreeMap, time::Instant};

use super::REPORT_INTERVAL;

/// Why a peer was refused, in the order of the log.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    Handshakes,
    Unproven,
    Connections,
    PerAddress,
    Handshake,
    /// Not enrolled, or not any more.
    Unknown,
    Unclear,
    Enrolment,
    Seal,
}

impl Refusal {
    /// As metrics show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Handshakes => "handshakes",
            Self::Unproven => "unproven",
            Self::Connections => "connections",
            Self::PerAddress => "per_address",
            Self::Handshake => "handshake_failed",
            Self::Unknown => "not_enrolled",
            Self::Unclear => "identity_unreadable",
            Self::Enrolment => "enrolment",
            Self::Seal => "seal",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Handshakes => "too many handshakes in one second (server.max_handshakes_per_s)",
            Self::Unproven => "too many connections that have not proved who they are",
            Self::Connections => "connections full: raise server.max_connections",
            Self::PerAddress => "too many connections from one address (server.max_per_address)",
            Self::Handshake => "handshake failed",
            Self::Unknown => "not enrolled",
            Self::Unclear => "identity files cannot be read",
            Self::Enrolment => "enrolment refused",
            Self::Seal => "packets of boards with an invalid seal",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// How many since the last report, and the last peer if it is known.
    counts: BTreeMap<Refusal, (u64, Option<String>)>,
    /// Since the start.
    totals: BTreeMap<Refusal, u64>,
    reported: Option<Instant>,
}

impl Refusals {
    pub fn count(&mut self, refusal: Refusal, peer: Option<String>) {
        *self.totals.entry(refusal).or_default() += 1;
        let (count, last) = self.counts.entry(refusal).or_default();
        *count += 1;
        *last = peer.or(last.take());
    }

    pub fn totals(&self) -> impl Iterator<Item = (Refusal, u64)> {
        self.totals.iter().map(|(&refusal, &count)| (refusal, count))
    }

    /// The refusals since the last report, if there are any and a minute has passed.
    pub fn poll(&mut self, now: Instant) -> Option<String> {
        let soon = self.reported.is_some_and(|reported| now.duration_since(reported) < REPORT_INTERVAL);
        if soon || self.counts.is_empty() {
            return None;
        }
        self.reported = Some(now);
        let line = |(refusal, (count, last)): (Refusal, (u64, Option<String>))| {
            let last = last.map_or(String::new(), |last| format!(" (last: {last})"));
            format!("{count}: {}{last}", refusal.text())
        };
        Some(std::mem::take(&mut self.counts).into_iter().map(line).collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_reported_once_a_minute() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        assert_eq!(refusals.poll(start), None);
        (0..904).for_each(|_| refusals.count(Refusal::Connections, None));
        refusals.count(Refusal::Handshakes, None);
        let reported = refusals.poll(start).unwrap();
        assert!(reported.contains("904: connections full: raise server.max_connections"), "{reported}");
        assert!(reported.starts_with("1: too many handshakes"), "{reported}");
        refusals.count(Refusal::PerAddress, None);
        assert_eq!(refusals.poll(start + REPORT_INTERVAL * 59 / 60), None);
        assert!(refusals.poll(start + REPORT_INTERVAL).unwrap().starts_with("1: "));
        assert_eq!(refusals.poll(start + 2 * REPORT_INTERVAL), None);
    }

    #[test]
    fn the_last_peer_is_named() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        refusals.count(Refusal::Unknown, Some("a".into()));
        refusals.count(Refusal::Unknown, Some("b".into()));
        refusals.count(Refusal::Seal, None);
        let reported = refusals.poll(start).unwrap();
        assert_eq!(reported, "2: not enrolled (last: b); 1: packets of boards with an invalid seal");
        refusals.count(Refusal::Unknown, None);
        assert_eq!(refusals.poll(start + REPORT_INTERVAL).unwrap(), "1: not enrolled");
    }
}
