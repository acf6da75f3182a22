//! Who was turned away, and why: counted, and said once a minute, because whoever floods the gateway must not flood its log.

use std::time::{Duration, Instant};

const BETWEEN: Duration = Duration::from_secs(60);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Too many handshakes in this second, in all or from this address.
    Handshakes,
    /// Too many that have not proved who they are, in all or from this address.
    Strangers,
    Connections,
    PerAddress,
    /// It was not ended, or not in time.
    Handshake,
    /// Not enrolled, or not any more.
    Unknown,
    /// Whether it is enrolled could not be found out.
    Unclear,
    /// No certificate was given.
    Enrolment,
    /// A packet of a board that its seal does not allow.
    Seal,
}

impl Reason {
    const ALL: [Self; 9] = [
        Self::Handshakes,
        Self::Strangers,
        Self::Connections,
        Self::PerAddress,
        Self::Handshake,
        Self::Unknown,
        Self::Unclear,
        Self::Enrolment,
        Self::Seal,
    ];

    pub fn text(self) -> &'static str {
        match self {
            Self::Handshakes => "too many handshakes in one second (server.max_handshakes_per_s)",
            Self::Strangers => "too many at a time that have not proved who they are",
            Self::Connections => "connections full: raise server.max_connections",
            Self::PerAddress => "too many connections from one address (server.max_per_address)",
            Self::Handshake => "handshake failed",
            Self::Unknown => "not enrolled",
            Self::Unclear => "identity files can not be read",
            Self::Enrolment => "no certificate was given",
            Self::Seal => "packets of boards that are not theirs",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Refusals {
    counts: [u64; Reason::ALL.len()],
    /// What is known of the last one.
    last: [Option<String>; Reason::ALL.len()],
    said: Option<Instant>,
}

impl Refusals {
    pub fn note(&mut self, reason: Reason) {
        self.counts[reason as usize] += 1;
    }

    pub fn note_last(&mut self, reason: Reason, last: String) {
        self.note(reason);
        self.last[reason as usize] = Some(last);
    }

    /// What the operator has to hear now.
    pub fn poll(&mut self, now: Instant) -> Option<String> {
        let soon = self.said.is_some_and(|said| now.duration_since(said) < BETWEEN);
        if soon || self.counts.iter().all(|count| *count == 0) {
            return None;
        }
        let Self { counts, last, .. } = std::mem::take(self);
        self.said = Some(now);
        let all = Reason::ALL.iter().zip(counts).zip(last).filter(|((_, count), _)| *count > 0);
        let line = |((reason, count), last): ((&Reason, u64), Option<String>)| {
            let last = last.map_or(String::new(), |last| format!(" (last: {last})"));
            format!("{count}: {}{last}", reason.text())
        };
        Some(all.map(line).collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_said_once_a_minute() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        assert_eq!(refusals.poll(start), None);
        (0..904).for_each(|_| refusals.note(Reason::Connections));
        refusals.note(Reason::Handshakes);
        let said = refusals.poll(start).unwrap();
        assert!(said.contains("904: connections full: raise server.max_connections"), "{said}");
        assert!(said.starts_with("1: too many handshakes"), "{said}");
        refusals.note(Reason::PerAddress);
        assert_eq!(refusals.poll(start + Duration::from_secs(59)), None);
        assert!(refusals.poll(start + BETWEEN).unwrap().starts_with("1: "));
        assert_eq!(refusals.poll(start + 2 * BETWEEN), None);
    }

    #[test]
    fn the_last_one_is_told_more_of() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        refusals.note_last(Reason::Unknown, "a".into());
        refusals.note_last(Reason::Unknown, "b".into());
        refusals.note(Reason::Seal);
        let said = refusals.poll(start).unwrap();
        assert_eq!(said, "2: not enrolled (last: b); 1: packets of boards that are not theirs");
        refusals.note(Reason::Unknown);
        assert_eq!(refusals.poll(start + BETWEEN).unwrap(), "1: not enrolled");
    }

    #[test]
    fn every_reason_is_counted_in_its_own_place() {
        assert!(Reason::ALL.iter().enumerate().all(|(at, reason)| *reason as usize == at));
    }
}
