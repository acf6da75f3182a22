//! What happens when: rounds as the devices see them, and the aggregator's memory.

use std::{
    fs,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use serde::Serialize;

use super::{Progress, turns::Schedule};

/// One round, from the first device that hears of it to the first that hears of the next: everything is in it,
/// also combining and committing.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadRound {
    pub round: u32,
    /// The first of a turn does not count.
    pub counted: bool,
    pub seconds: f64,
    /// Until the last receipt; the rest is combining and committing.
    pub collecting_s: f64,
    pub accepted: u64,
    pub refused: u64,
    pub updates_per_s: f64,
    /// Of the aggregator in this round (since its start where the kernel does not forget).
    pub peak_rss_kb: Option<u64>,
}

pub struct LoadLog {
    pid: Option<u32>,
    schedule: Schedule,
    progress: Progress,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle_rss_kb: Option<u64>,
    open: Option<Open>,
    done: Vec<LoadRound>,
}

struct Open {
    round: u32,
    since: Instant,
    last_receipt: Option<Instant>,
    accepted: u64,
    refused: u64,
}

impl std::fmt::Debug for LoadLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadLog")
            .field("pid", &self.pid)
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}

impl LoadLog {
    pub(super) fn new(pid: Option<u32>, schedule: Schedule, progress: Progress) -> Self {
        Self { pid, schedule, progress, state: Mutex::default() }
    }

    /// A device has heard of a round: the one before is over.
    pub fn heard(&self, round: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = state.open.take_if(|open| open.round < round) {
            let counted = self.schedule.counts(open.round);
            let ended = open.end(counted, Instant::now(), self.pid.and_then(peak_rss_kb));
            (self.progress)(&ended);
            state.done.push(ended);
        }
    }

    /// A device sets to work.
    pub fn begun(&self, round: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.open.is_some() || state.done.last().is_some_and(|done| done.round >= round);
        if known || round > self.schedule.total() {
            return;
        }
        if state.done.is_empty() {
            state.idle_rss_kb = self.pid.and_then(peak_rss_kb);
        }
        if let Some(pid) = self.pid {
            forget_peak(pid);
        }
        let since = Instant::now();
        state.open = Some(Open { round, since, last_receipt: None, accepted: 0, refused: 0 });
    }

    pub fn answered(&self, round: u32, accepted: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = state.open.as_mut().filter(|open| open.round == round) {
            open.last_receipt = Some(Instant::now());
            if accepted {
                open.accepted += 1;
            } else {
                open.refused += 1;
            }
        }
    }

    /// What was written down, and the aggregator's memory before the first round.
    pub fn rounds(&self) -> (Vec<LoadRound>, Option<u64>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.done.clone(), state.idle_rss_kb)
    }
}

impl Open {
    fn end(self, counted: bool, now: Instant, peak_rss_kb: Option<u64>) -> LoadRound {
        let seconds = (now - self.since).as_secs_f64();
        LoadRound {
            round: self.round,
            counted,
            seconds,
            collecting_s: self.last_receipt.map_or(seconds, |last| (last - self.since).as_secs_f64()),
            accepted: self.accepted,
            refused: self.refused,
            updates_per_s: self.accepted as f64 / seconds,
            peak_rss_kb,
        }
    }
}

/// Lets the kernel count anew. Where it refuses, peaks are those since the process began.
fn forget_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// The most memory that a process has had, as the kernel counts it.
fn peak_rss_kb(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_the_next_one_is_heard_of() {
        let schedule = Schedule { rounds: 1, in_turns: true };
        let log = LoadLog::new(Some(std::process::id()), schedule, Box::new(|_| {}));
        for round in [1, 1] {
            log.heard(round);
            log.begun(round);
            log.answered(round, true);
        }
        log.heard(2);
        // Between two rounds nothing counts, and what is over does not begin again.
        log.answered(1, true);
        log.begun(1);
        log.begun(2);
        log.heard(1);
        log.answered(1, true);
        log.answered(2, false);
        log.heard(3);
        log.begun(3);
        log.heard(3);
        let (rounds, idle) = log.rounds();
        let counts: Vec<_> = rounds.iter().map(|r| (r.round, r.accepted, r.refused)).collect();
        assert_eq!(counts, [(1, 2, 0), (2, 0, 1)]);
        assert!(!rounds[0].counted && rounds[1].counted);
        assert!(idle > Some(0) && rounds[1].peak_rss_kb > Some(0));
    }
}
