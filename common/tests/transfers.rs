//! Transfers over links that drop, repeat and reorder, and that break in the middle.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;

use fairtier_common::{
    Duration, Instant, TransferId,
    message::{Ack, Fetch},
    rng::Rng,
    transfer::{Arrival, Incoming, LinkLimits, Outgoing},
};
use proptest::prelude::*;

enum Packet {
    Chunk(u32, Vec<u8>),
    Fetch(Fetch),
    Ack(Ack),
}

struct Link {
    rng: Rng,
    loss: f64,
    queue: VecDeque<Packet>,
}

impl Link {
    fn send(&mut self, packet: Packet) {
        if self.rng.unit_f64() < self.loss {
            return;
        }
        if self.rng.unit_f64() < 0.1 {
            self.queue.push_front(packet);
        } else {
            self.queue.push_back(packet);
        }
    }
}

/// Runs a transfer to its end and returns what arrived and how many bytes were sent.
fn run(
    data: &[u8],
    limits: LinkLimits,
    align: u32,
    loss: f64,
    seed: u64,
    break_every: usize,
) -> (Vec<u8>, usize) {
    let mut link = Link { rng: Rng::new(seed), loss, queue: VecDeque::new() };
    let mut outgoing = Outgoing::new(TransferId(7), data.len() as u32, align, limits);
    let mut incoming = Incoming::new(TransferId(7), data.len() as u32);
    let (mut arrived, mut sent, mut now) = (vec![], 0, Instant::ZERO);
    let mut since_answer = 0;
    // With a window of one chunk, every loss costs up to 80 turns. At the highest loss drawn, fewer than three exchanges in
    // eight succeed: some 150 turns per chunk. The rest is a margin for bad luck.
    let end = 20_000 + 1_000 * data.len().div_ceil(limits.chunk as usize);
    for turn in 1.. {
        assert!(turn < end, "the transfer does not end");
        if incoming.is_done() && outgoing.is_done() {
            return (arrived, sent);
        }
        if turn % break_every == 0 {
            // The connection is lost with everything on it; the sender starts anew, the receiver resumes.
            link.queue.clear();
            outgoing = Outgoing::new(TransferId(7), data.len() as u32, align, limits);
            since_answer = usize::MAX;
        }
        now = now + Duration::from_millis(1);
        outgoing.handle_timeout(now);
        while let Some(range) = outgoing.poll_chunk() {
            let bytes = data[range.start as usize..range.end as usize].to_vec();
            sent += bytes.len();
            link.send(Packet::Chunk(range.start, bytes));
        }
        // The receiver's own timer: nothing arrived for a while, so it asks again.
        if since_answer > 50 {
            link.send(Packet::Fetch(incoming.fetch()));
            since_answer = 0;
        }
        since_answer = since_answer.saturating_add(1);
        match link.queue.pop_front() {
            Some(Packet::Fetch(fetch)) => outgoing.handle_fetch(fetch, now),
            Some(Packet::Ack(ack)) => outgoing.handle_ack(ack, now),
            Some(Packet::Chunk(offset, bytes)) => {
                since_answer = 0;
                match incoming.handle_chunk(TransferId(7), offset, bytes.len()) {
                    Arrival::Fresh => {
                        arrived.extend(bytes);
                        if let Some(ack) = incoming.poll_ack(limits, now) {
                            link.send(Packet::Ack(ack));
                        }
                    }
                    Arrival::Known => link.send(Packet::Ack(incoming.ack())),
                    Arrival::Gap => {
                        if let Some(fetch) = incoming.refetch() {
                            link.send(Packet::Fetch(fetch));
                        }
                    }
                    Arrival::Foreign => {}
                }
            }
            None => {}
        }
    }
    unreachable!()
}

fn limits(chunk: u32, window: u32) -> LinkLimits {
    LinkLimits { chunk, window, timeout: Duration::from_millis(80) }
}

proptest! {
    #[test]
    fn everything_arrives_once_and_in_order(
        data in prop::collection::vec(any::<u8>(), 1..4000),
        chunk in 1u32..200, windows in 1u32..10, loss in 0.0f64..0.4, seed: u64,
    ) {
        let (arrived, _) = run(&data, limits(chunk, chunk * windows), 1, loss, seed, usize::MAX);
        prop_assert_eq!(arrived, data);
    }

    #[test]
    fn a_lost_connection_resumes(data in prop::collection::vec(any::<u8>(), 500..4000), seed: u64, every in 60usize..300) {
        let (arrived, _) = run(&data, limits(64, 256), 4, 0.1, seed, every);
        prop_assert_eq!(arrived, data);
    }
}

/// The slowest case of the properties: the most chunks, one at a time, over the worst link.
#[test]
fn one_byte_at_a_time_over_the_worst_link_arrives() {
    let data: Vec<u8> = (0..3999).map(|at| at as u8).collect();
    for seed in 0..20 {
        assert_eq!(run(&data, limits(1, 1), 1, 0.4, seed, usize::MAX).0, data);
    }
}

#[test]
fn a_good_link_carries_every_byte_once() {
    let data: Vec<u8> = (0..10_000).map(|at| at as u8).collect();
    // The receiver's first request comes from its timer; then nothing is repeated.
    let mut clean = Outgoing::new(TransferId(1), 10_000, 4, limits(1000, 100_000));
    let mut incoming = Incoming::new(TransferId(1), 10_000);
    clean.handle_fetch(incoming.fetch(), Instant::ZERO);
    let mut sent = 0;
    while let Some(range) = clean.poll_chunk() {
        sent += range.len();
        assert_eq!(incoming.handle_chunk(TransferId(1), range.start, range.len()), Arrival::Fresh);
    }
    clean.handle_ack(incoming.ack(), Instant::ZERO);
    assert!(clean.is_done() && incoming.is_done() && clean.poll_timeout().is_none());
    assert_eq!(sent, data.len());
}

/// With a long window, four chunks per window and the last one are acknowledged. Every chunk is acknowledged if the sender's
/// timer would expire otherwise, or if the window holds only two.
#[test]
fn acknowledgements_are_few_but_keep_the_sender_going() {
    let acks = |limits: LinkLimits, millis: u64| {
        let mut outgoing = Outgoing::new(TransferId(1), 64_000, 4, limits);
        let mut incoming = Incoming::new(TransferId(1), 64_000);
        let mut now = Instant::from_millis(1_000_000);
        outgoing.handle_fetch(incoming.fetch(), now);
        let mut acks = vec![];
        while let Some(range) = outgoing.poll_chunk() {
            now = now + Duration::from_millis(millis);
            outgoing.handle_timeout(now);
            assert_eq!(incoming.handle_chunk(TransferId(1), range.start, range.len()), Arrival::Fresh);
            if let Some(ack) = incoming.poll_ack(limits, now) {
                outgoing.handle_ack(ack, now);
                acks.push(ack.next / 1000);
            }
        }
        assert!(outgoing.is_done(), "it went on to the end");
        acks
    };
    let limits = |window| LinkLimits { chunk: 1000, window, timeout: Duration::from_secs(8) };
    assert_eq!(acks(limits(100_000), 1), [1, 26, 51, 64]);
    assert_eq!(acks(limits(100_000), 1000), (1..=64).collect::<Vec<_>>());
    assert_eq!(acks(limits(2_000), 1), (1..=64).collect::<Vec<_>>());
}

#[test]
fn a_resumed_transfer_does_not_start_from_zero() {
    let mut incoming = Incoming::new(TransferId(1), 1000);
    assert_eq!(incoming.handle_chunk(TransferId(1), 0, 600), Arrival::Fresh);
    let mut again = Outgoing::new(TransferId(1), 1000, 4, limits(100, 1000));
    assert_eq!(again.poll_chunk(), None, "nothing is sent before it is asked for");
    again.handle_fetch(incoming.fetch(), Instant::ZERO);
    assert_eq!(again.poll_chunk(), Some(600..700));
}

#[test]
fn foreign_and_impossible_chunks_are_ignored() {
    let mut incoming = Incoming::new(TransferId(1), 100);
    assert_eq!(incoming.handle_chunk(TransferId(2), 0, 10), Arrival::Foreign);
    assert_eq!(incoming.handle_chunk(TransferId(1), 0, 101), Arrival::Foreign);
    assert_eq!(incoming.handle_chunk(TransferId(1), u32::MAX, 10), Arrival::Foreign);
    assert_eq!(incoming.handle_chunk(TransferId(1), 0, 0), Arrival::Foreign);
    let mut outgoing = Outgoing::new(TransferId(1), 100, 4, limits(10, 100));
    outgoing.handle_fetch(Fetch { transfer: TransferId(1), offset: 101 }, Instant::ZERO);
    outgoing.handle_fetch(Fetch { transfer: TransferId(1), offset: 3 }, Instant::ZERO);
    outgoing.handle_ack(Ack { transfer: TransferId(1), next: 50 }, Instant::ZERO);
    assert_eq!(outgoing.poll_chunk(), None);
}

/// Regression test. A repeated Fetch that arrives late rewinds the sender; the receiver, which already has those bytes,
/// acknowledges them. The sender ignored that acknowledgement, because it was beyond what it had sent again.
#[test]
fn a_late_fetch_does_not_hold_up_a_transfer() {
    let limits = LinkLimits { chunk: 100, window: 200, timeout: Duration::from_millis(50) };
    let mut outgoing = Outgoing::new(TransferId(1), 1000, 4, limits);
    outgoing.handle_fetch(Fetch { transfer: TransferId(1), offset: 0 }, Instant::ZERO);
    assert_eq!(outgoing.poll_chunk(), Some(0..100));
    assert_eq!(outgoing.poll_chunk(), Some(100..200));
    outgoing.handle_ack(Ack { transfer: TransferId(1), next: 200 }, Instant::ZERO);
    outgoing.handle_fetch(Fetch { transfer: TransferId(1), offset: 0 }, Instant::ZERO);
    assert_eq!(outgoing.poll_chunk(), Some(0..100));
    outgoing.handle_ack(Ack { transfer: TransferId(1), next: 200 }, Instant::ZERO);
    assert_eq!(outgoing.poll_chunk(), Some(200..300));
}
