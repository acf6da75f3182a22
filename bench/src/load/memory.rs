//! The aggregator's peak memory by phase, and its processor time. The phases cover its whole run.

use std::fs;

use serde::Serialize;

/// Linux counts processor time in units of this, on every architecture.
const TICKS_PER_S: f64 = 100.0;

/// The phase of the run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Connecting,
    Round,
    /// Between two rounds. With a reference, this is the turn of the bare streams.
    Between,
    /// After the last round: scores are collected and devices leave.
    Leaving,
}

/// Peak memory of each phase and of the whole run; `None` if it could not be measured.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Peaks {
    pub connecting: Option<u64>,
    /// Highest peak of all rounds.
    pub round: Option<u64>,
    pub between: Option<u64>,
    pub leaving: Option<u64>,
    pub overall: Option<u64>,
}

impl Peaks {
    fn of(&mut self, phase: Phase) -> &mut Option<u64> {
        match phase {
            Phase::Connecting => &mut self.connecting,
            Phase::Round => &mut self.round,
            Phase::Between => &mut self.between,
            Phase::Leaving => &mut self.leaving,
        }
    }
}

/// A source of peak values.
pub(super) trait Gauge {
    /// The peak since the last reset.
    fn peak_kb(&mut self) -> Option<u64>;
    /// Resets the peak; false if that is not possible.
    fn forget(&mut self) -> bool;
}

/// A process, measured by the kernel.
#[derive(Copy, Clone, Debug)]
pub(super) struct Process(pub Option<u32>);

impl Gauge for Process {
    fn peak_kb(&mut self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    }

    fn forget(&mut self) -> bool {
        self.0.is_some_and(|pid| fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok())
    }
}

/// Processor time of a process and its threads so far, in seconds.
pub(super) fn cpu_seconds(pid: Option<u32>) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid?)).ok()?;
    // The name of the program, in brackets, may hold anything. After it, fields 12 and 13 are user and system time.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
}

#[derive(Debug)]
pub(super) struct Memory<G> {
    gauge: G,
    phase: Phase,
    /// Whether the gauge was reset at the start of this phase.
    alone: bool,
    peaks: Peaks,
}

impl<G: Gauge> Memory<G> {
    pub fn new(gauge: G) -> Self {
        Self { gauge, phase: Phase::Connecting, alone: true, peaks: Peaks::default() }
    }

    /// Measures again; returns the peak of the phase so far.
    pub fn look(&mut self) -> Option<u64> {
        let peak = self.gauge.peak_kb();
        self.peaks.overall = self.peaks.overall.max(peak);
        // Without a reset, the peak of an earlier phase would hide growth.
        let peak = peak.filter(|_| self.alone);
        let highest = self.peaks.of(self.phase);
        *highest = (*highest).max(peak);
        peak
    }

    /// Ends the phase and returns its peak.
    pub fn enter(&mut self, phase: Phase) -> Option<u64> {
        let peak = self.look();
        self.alone = self.gauge.forget();
        self.phase = phase;
        peak
    }

    pub fn peaks(&self) -> Peaks {
        self.peaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in use, and its peak.
    #[derive(Clone, Debug)]
    struct Level {
        now: u64,
        peak: u64,
        forgets: bool,
    }

    impl Gauge for Level {
        fn peak_kb(&mut self) -> Option<u64> {
            Some(self.peak)
        }

        fn forget(&mut self) -> bool {
            if self.forgets {
                self.peak = self.now;
            }
            self.forgets
        }
    }

    /// Every phase reaches its peak and returns to 10.
    fn run(forgets: bool, phases: &[(Phase, u64)]) -> (Vec<Option<u64>>, Peaks) {
        let mut memory = Memory::new(Level { now: 10, peak: 10, forgets });
        let mut ended = vec![];
        for (phase, peak) in phases {
            if *phase != Phase::Connecting {
                ended.push(memory.enter(*phase));
            }
            memory.gauge.peak = memory.gauge.peak.max(*peak);
        }
        ended.push(memory.look());
        (ended, memory.peaks())
    }

    #[test]
    fn the_overall_peak_covers_every_phase() {
        use Phase::{Between, Connecting, Leaving, Round};
        for highest in 0..6 {
            let mut phases =
                [(Connecting, 40), (Round, 20), (Between, 25), (Round, 30), (Between, 15), (Leaving, 35)];
            phases[highest].1 = 99;
            let (ended, peaks) = run(true, &phases);
            assert_eq!(ended, phases.map(|(_, peak)| Some(peak)));
            assert_eq!(peaks.overall, Some(99), "{phases:?}");
            let peak = |wanted| phases.iter().filter(|(phase, _)| *phase == wanted).map(|(_, kb)| *kb).max();
            assert_eq!((peaks.connecting, peaks.round), (peak(Connecting), peak(Round)));
            assert_eq!((peaks.between, peaks.leaving), (peak(Between), peak(Leaving)));
        }
    }

    #[test]
    fn without_resets_only_the_overall_peak_is_known() {
        let (ended, peaks) = run(false, &[(Phase::Connecting, 40), (Phase::Round, 20), (Phase::Leaving, 50)]);
        assert_eq!(ended, [Some(40), None, None]);
        assert_eq!((peaks.connecting, peaks.round, peaks.overall), (Some(40), None, Some(50)));
    }

    #[test]
    fn the_peak_of_a_process_is_read_and_reset() {
        assert!(Process(Some(std::process::id())).peak_kb() > Some(0));
        assert_eq!(Process(None).peak_kb(), None);
        assert!(!Process(None).forget());
    }
}
