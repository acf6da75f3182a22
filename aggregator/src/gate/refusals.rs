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
}

impl Reason {
    const ALL: [Self; 4] = [Self::Handshakes, Self::Strangers, Self::Connections, Self::PerAddress];

    pub fn text(self) -> &'static str {
        match self {
            Self::Handshakes => "too many handshakes in one second (server.max_handshakes_per_s)",
            Self::Strangers => "too many at a time that have not proved who they are",
            Self::Connections => "connections full: raise server.max_connections",
            Self::PerAddress => "too many connections from one address (server.max_per_address)",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Refusals {
    counts: [u64; Reason::ALL.len()],
    said: Option<Instant>,
}

impl Refusals {
    pub fn note(&mut self, reason: Reason) {
        self.counts[reason as usize] += 1;
    }

    /// What the operator has to hear now.
    pub fn poll(&mut self, now: Instant) -> Option<String> {
        let soon = self.said.is_some_and(|said| now.duration_since(said) < BETWEEN);
        if soon || self.counts.iter().all(|count| *count == 0) {
            return None;
        }
        self.said = Some(now);
        let counts = std::mem::take(&mut self.counts);
        let lines = Reason::ALL.iter().zip(counts).filter(|(_, count)| *count > 0);
        let lines: Vec<_> = lines.map(|(reason, count)| format!("{count}: {}", reason.text())).collect();
        Some(lines.join("; "))
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
}
