//! When events happen: rounds as seen by the devices, and the aggregator's memory.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use common::message::Ticket;
use serde::Serialize;

use super::{
    Progress,
    memory::{Memory, Peaks, Phase, Process, cpu_seconds},
    turns::Schedule,
};

/// One round, from the first device that receives its assignment to the first that receives the next one. It includes
/// combining and committing.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadRound {
    pub round: u32,
    /// False for the first round of a turn.
    pub counted: bool,
    pub seconds: f64,
    /// Seconds until the last receipt was read; the rest is combining and committing. A receipt may be read after
    /// another device has heard of the next round, so this can exceed `seconds`.
    pub collecting_s: f64,
    /// Exchanges that asked for updates.
    pub exchanges: usize,
    /// Updates with a receipt of this round, even if it was read later.
    pub accepted: u64,
    pub refused: u64,
    pub updates_per_s: f64,
    /// The aggregator's peak memory in this round.
    pub peak_rss_kb: Option<u64>,
}

/// The answer to a delivery.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// An update is stored.
    Update,
    /// Numbers without an update are stored.
    Numbers,
    Refused,
}

pub struct LoadLog {
    pid: Option<u32>,
    schedule: Schedule,
    progress: Progress,
    state: Mutex<State>,
}

struct State {
    memory: Memory<Process>,
    /// Rounds in order; only the last one may be open.
    rounds: Vec<RoundTimes>,
    /// Processor time of the aggregator when the first round begins, and when the last one ended.
    cpu: [Option<f64>; 2],
}

struct RoundTimes {
    round: u32,
    since: Instant,
    end: Option<Instant>,
    last_receipt: Option<Instant>,
    /// Exchanges that asked for updates.
    exchanges: BTreeSet<u8>,
    accepted: u64,
    refused: u64,
    peak_rss_kb: Option<u64>,
}

impl std::fmt::Debug for LoadLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadLog").field("schedule", &self.schedule).finish_non_exhaustive()
    }
}

impl LoadLog {
    pub(super) fn new(pid: Option<u32>, schedule: Schedule, progress: Progress) -> Self {
        let state = State { memory: Memory::new(Process(pid)), rounds: vec![], cpu: [None; 2] };
        Self { pid, schedule, progress, state: Mutex::new(state) }
    }

    /// A device has heard of this round, so the round before is over.
    pub fn heard(&self, round: u32) {
        let State { memory, rounds, cpu } = &mut *self.state();
        if let Some(open) = rounds.last_mut().filter(|last| last.end.is_none() && last.round < round) {
            let end = Instant::now();
            open.end = Some(end);
            cpu[1] = cpu_seconds(self.pid);
            let last = open.round == self.schedule.total();
            open.peak_rss_kb = memory.enter(if last { Phase::Leaving } else { Phase::Between });
            (self.progress)(open.round, (end - open.since).as_secs_f64());
        }
    }

    /// A device starts work for this round.
    pub fn begun(&self, round: u32) {
        let mut state = self.state();
        let known = state.rounds.last().is_some_and(|last| last.end.is_none() || last.round >= round);
        if known || round > self.schedule.total() {
            return;
        }
        state.memory.enter(Phase::Round);
        if state.rounds.is_empty() {
            state.cpu[0] = cpu_seconds(self.pid);
        }
        state.rounds.push(RoundTimes::begin(round));
    }

    /// A device has a receipt. Other devices may already be in the next round.
    pub(super) fn answered(&self, ticket: &Ticket, answer: Answer) {
        let mut state = self.state();
        let Some(seen) = state.rounds.iter_mut().rev().find(|seen| seen.round == ticket.round) else {
            return;
        };
        seen.last_receipt = Some(Instant::now());
        match answer {
            Answer::Update => seen.accepted += 1,
            Answer::Refused => seen.refused += 1,
            Answer::Numbers => return,
        }
        seen.exchanges.insert(ticket.exchange);
    }

    /// Measures the aggregator's memory. The last measurement before the process ends is kept.
    pub fn look(&self) {
        self.state().memory.look();
    }

    /// Processor time of the aggregator per finished round; `None` if it could not be measured.
    pub fn cpu_per_round(&self) -> Option<f64> {
        let state = self.state();
        let rounds = state.rounds.iter().filter(|seen| seen.end.is_some()).count();
        let (first, last) = state.cpu[0].zip(state.cpu[1])?;
        (rounds > 0).then(|| (last - first) / rounds as f64)
    }

    /// The finished rounds, and the memory peaks of all phases.
    pub fn rounds(&self) -> (Vec<LoadRound>, Peaks) {
        let state = self.state();
        let ended = state.rounds.iter().filter_map(|seen| seen.ended(self.schedule.counts(seen.round)));
        (ended.collect(), state.memory.peaks())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RoundTimes {
    fn begin(round: u32) -> Self {
        Self {
            round,
            since: Instant::now(),
            end: None,
            last_receipt: None,
            exchanges: BTreeSet::new(),
            accepted: 0,
            refused: 0,
            peak_rss_kb: None,
        }
    }

    fn ended(&self, counted: bool) -> Option<LoadRound> {
        let seconds = (self.end? - self.since).as_secs_f64();
        Some(LoadRound {
            round: self.round,
            counted,
            seconds,
            collecting_s: self.last_receipt.map_or(seconds, |last| (last - self.since).as_secs_f64()),
            exchanges: self.exchanges.len(),
            accepted: self.accepted,
            refused: self.refused,
            updates_per_s: self.accepted as f64 / seconds,
            peak_rss_kb: self.peak_rss_kb,
        })
    }
}

#[cfg(test)]
mod tests {
    use common::RunId;

    use super::*;

    fn ticket(round: u32, exchange: u8) -> Ticket {
        Ticket { run: RunId(1), round, exchange, attempt: 0 }
    }

    #[test]
    fn a_round_ends_when_a_device_hears_of_the_next() {
        let schedule = Schedule { rounds: 1, in_turns: true };
        let log = LoadLog::new(Some(std::process::id()), schedule, Box::new(|_, _| {}));
        for round in [1, 1] {
            log.heard(round);
            log.begun(round);
            log.answered(&ticket(round, 0), Answer::Update);
        }
        log.heard(2);
        // A finished round does not start again.
        log.begun(1);
        log.begun(2);
        log.heard(1);
        log.answered(&ticket(2, 0), Answer::Refused);
        log.heard(3);
        log.begun(3);
        log.answered(&ticket(3, 0), Answer::Numbers);
        log.heard(3);
        log.look();
        let (rounds, peaks) = log.rounds();
        let counts: Vec<_> = rounds.iter().map(|r| (r.round, r.accepted, r.refused)).collect();
        assert_eq!(counts, [(1, 2, 0), (2, 0, 1)]);
        assert!(!rounds[0].counted && rounds[1].counted);
        let phases = [peaks.connecting, peaks.round, peaks.between, peaks.leaving];
        assert!(phases.iter().all(|peak| *peak > Some(0)), "{peaks:?}");
        assert_eq!(Some(&peaks.overall), phases.iter().max());
        assert_eq!(rounds.iter().map(|round| round.peak_rss_kb).max(), Some(peaks.round));
        assert!(log.cpu_per_round().is_some_and(|seconds| seconds >= 0.0));
    }

    #[test]
    fn a_receipt_that_is_read_late_counts_for_its_round() {
        let log = LoadLog::new(None, Schedule { rounds: 2, in_turns: false }, Box::new(|_, _| {}));
        log.heard(1);
        log.begun(1);
        log.answered(&ticket(1, 0), Answer::Update);
        log.heard(2);
        log.answered(&ticket(1, 0), Answer::Update);
        log.begun(2);
        log.answered(&ticket(1, 0), Answer::Update);
        log.answered(&ticket(2, 0), Answer::Update);
        log.heard(3);
        log.answered(&ticket(2, 0), Answer::Update);
        let (rounds, _) = log.rounds();
        assert_eq!(rounds.iter().map(|round| round.accepted).collect::<Vec<_>>(), [3, 2]);
        let per_s = rounds[0].updates_per_s * rounds[0].seconds;
        assert!((per_s - 3.0).abs() < 1e-9, "{per_s}");
    }

    #[test]
    fn updates_are_expected_only_from_exchanges_that_ask_for_them() {
        let log = LoadLog::new(None, Schedule { rounds: 1, in_turns: false }, Box::new(|_, _| {}));
        log.heard(1);
        log.begun(1);
        for (stage, answer) in [(0, Answer::Numbers), (1, Answer::Update), (1, Answer::Update)] {
            log.answered(&ticket(1, stage), answer);
        }
        // Also if no update was accepted.
        log.answered(&ticket(1, 2), Answer::Refused);
        log.heard(2);
        let (rounds, _) = log.rounds();
        assert_eq!((rounds[0].exchanges, rounds[0].accepted, rounds[0].refused), (2, 2, 1));
    }
}
