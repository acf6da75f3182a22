//! The open connections, with an index of what must be sent again, and when.

use std::collections::{BTreeMap, BTreeSet};

use common::Instant;

use super::outbox::Outbox;
use crate::fleet::ConnId;

/// Without the index, finding the next deadline would visit every connection.
#[derive(Debug, Default)]
pub(super) struct Connections {
    outboxes: BTreeMap<ConnId, Outbox>,
    /// One entry for every outbox that has a deadline.
    deadlines: BTreeSet<(Instant, ConnId)>,
}

impl Connections {
    pub fn insert(&mut self, conn: ConnId, outbox: Outbox) {
        self.remove(conn);
        self.deadlines.extend(outbox.poll_timeout().map(|deadline| (deadline, conn)));
        self.outboxes.insert(conn, outbox);
    }

    pub fn remove(&mut self, conn: ConnId) -> Option<Outbox> {
        let outbox = self.outboxes.remove(&conn)?;
        self.move_deadline(conn, outbox.poll_timeout(), None);
        Some(outbox)
    }

    pub fn get(&self, conn: ConnId) -> Option<&Outbox> {
        self.outboxes.get(&conn)
    }

    /// The only way to an outbox that can be changed, so that the index follows every change.
    pub fn change<R>(&mut self, conn: ConnId, change: impl FnOnce(&mut Outbox) -> R) -> Option<R> {
        let outbox = self.outboxes.get_mut(&conn)?;
        let before = outbox.poll_timeout();
        let result = change(outbox);
        let after = outbox.poll_timeout();
        self.move_deadline(conn, before, after);
        Some(result)
    }

    pub fn len(&self) -> usize {
        self.outboxes.len()
    }

    /// The earliest deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Passes the time to the connections that are due; returns them.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<ConnId> {
        let due = self.deadlines.iter().take_while(|&&(deadline, _)| deadline <= now);
        let due: Vec<ConnId> = due.map(|&(_, conn)| conn).collect();
        for &conn in &due {
            self.change(conn, |outbox| outbox.handle_timeout(now));
        }
        due
    }

    fn move_deadline(&mut self, conn: ConnId, before: Option<Instant>, after: Option<Instant>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.deadlines.remove(&(before, conn));
        }
        self.deadlines.extend(after.map(|deadline| (deadline, conn)));
    }
}

#[cfg(test)]
mod tests {
    use common::{
        Duration, TransferId,
        message::{Ack, Fetch},
        rng::Rng,
        transfer::LinkLimits,
    };

    use super::*;
    use crate::published::Published;

    /// Walks all connections, as the index must answer.
    fn walked(connections: &Connections) -> Option<Instant> {
        connections.outboxes.values().filter_map(Outbox::poll_timeout).min()
    }

    #[test]
    fn the_index_holds_what_a_walk_over_all_connections_finds() {
        let source = Published::new(vec![7; 4000].into());
        let limits = LinkLimits { chunk: 1000, window: 2000, timeout: Duration::from_secs(10) };
        let (mut rng, mut now, mut connections) = (Rng::new(23), Instant::ZERO, Connections::default());
        let (mut resent, mut idle) = (0, 0);
        for _ in 0..20_000 {
            let (conn, round) = (ConnId(rng.below(30)), 1 + rng.below(2) as u32);
            let (transfer, byte) = (TransferId::model(round), 1000 * rng.below(5) as u32);
            match rng.below(12) {
                0 => connections.insert(conn, Outbox::new("cam-1".parse().unwrap())),
                1 => _ = connections.remove(conn),
                2..4 => {
                    connections.change(conn, |outbox| outbox.publish(transfer, source.clone(), 1, limits));
                }
                4..7 => {
                    let fetch = Fetch { transfer, offset: byte };
                    connections.change(conn, |outbox| outbox.handle_fetch(fetch, now));
                }
                7..10 => {
                    let ack = Ack { transfer, next: byte };
                    connections.change(conn, |outbox| outbox.handle_ack(ack, now));
                }
                _ => {
                    now = now + Duration::from_millis(rng.below(4000));
                    let due = |(&conn, outbox): (&ConnId, &Outbox)| {
                        outbox.poll_timeout().is_some_and(|deadline| deadline <= now).then_some(conn)
                    };
                    let mut expected: Vec<_> = connections.outboxes.iter().filter_map(due).collect();
                    let mut found = connections.handle_timeout(now);
                    expected.sort_unstable();
                    found.sort_unstable();
                    assert_eq!(found, expected);
                    resent += found.len();
                }
            }
            assert_eq!(connections.poll_timeout(), walked(&connections));
            let with = connections.outboxes.values().filter(|outbox| outbox.poll_timeout().is_some());
            assert_eq!(connections.deadlines.len(), with.count());
            idle += usize::from(connections.poll_timeout().is_none());
        }
        assert!(resent > 100 && idle < 10_000, "the sequence does too little: {resent} {idle}");
    }
}
