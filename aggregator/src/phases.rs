//! How long each round spent in each phase, since the gateway was started.

use std::collections::VecDeque;

use common::{Duration, Instant};
use coordinator::PhaseName;

/// Rounds that are kept.
const ROUNDS: usize = 512;

/// The time of one round by phase.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PhaseTimes {
    /// The round whose times these are.
    pub round: u32,
    /// Until enough devices were connected.
    pub gathering: Duration,
    /// Until the first exchange was recorded.
    pub opening: Duration,
    /// While devices worked, over all exchanges.
    pub collecting: Duration,
    /// While updates were combined, or a further exchange was recorded.
    pub closing: Duration,
}

/// Follows the phases of a run.
#[derive(Debug)]
pub struct PhaseClock {
    phase: PhaseName,
    since: Instant,
    times: VecDeque<PhaseTimes>,
}

impl PhaseClock {
    /// Begins with this phase; what was before is not known.
    pub fn new(phase: PhaseName, round: u32, now: Instant) -> Self {
        Self { phase, since: now, times: [PhaseTimes::of(round)].into() }
    }

    /// The phase, and the round that is open or comes next.
    pub fn note(&mut self, phase: PhaseName, round: u32, now: Instant) {
        let same_round = self.times.back().is_some_and(|last| last.round == round);
        if phase == self.phase && same_round {
            return;
        }
        let took = now - self.since;
        if let Some(last) = self.times.back_mut() {
            let part = match self.phase {
                PhaseName::Gathering => Some(&mut last.gathering),
                PhaseName::Opening => Some(&mut last.opening),
                PhaseName::Collecting => Some(&mut last.collecting),
                PhaseName::Closing => Some(&mut last.closing),
                PhaseName::Finished => None,
            };
            if let Some(part) = part {
                *part = Duration::from_millis(part.as_millis() + took.as_millis());
            }
        }
        (self.phase, self.since) = (phase, now);
        if !same_round {
            self.times.push_back(PhaseTimes::of(round));
            if self.times.len() > ROUNDS {
                self.times.pop_front();
            }
        }
    }

    /// When the present phase began.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// The rounds that have ended, and the present one up to its last change of phase.
    pub fn times(&self) -> impl Iterator<Item = &PhaseTimes> {
        self.times.iter()
    }
}

impl PhaseTimes {
    fn of(round: u32) -> Self {
        let zero = Duration::ZERO;
        Self { round, gathering: zero, opening: zero, collecting: zero, closing: zero }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_of_a_round_add_up_over_its_exchanges() {
        let at = Instant::from_millis;
        let mut clock = PhaseClock::new(PhaseName::Gathering, 1, at(0));
        for (phase, round, millis) in [
            (PhaseName::Opening, 1, 100),
            (PhaseName::Collecting, 1, 110),
            (PhaseName::Collecting, 1, 300),
            (PhaseName::Closing, 1, 510),
            (PhaseName::Collecting, 1, 530),
            (PhaseName::Closing, 1, 630),
            (PhaseName::Gathering, 2, 650),
        ] {
            clock.note(phase, round, at(millis));
        }
        let first = clock.times().next().unwrap();
        let parts =
            [first.gathering, first.opening, first.collecting, first.closing].map(Duration::as_millis);
        assert_eq!(parts, [100, 10, 500, 40]);
        assert_eq!(clock.times().count(), 2);
        assert_eq!(clock.since(), at(650));
    }
}
