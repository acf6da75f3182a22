//! Alternates rounds of the aggregator with rounds of bare streams, so that both run on the machine in the same
//! state. The speed of a shared machine changes by a quarter within a minute.
//!
//! A turn begins when the first device hears of a round. The aggregator is then still telling the others and
//! committing the previous round, which slows the first bare round. When the streams are done, all devices have their
//! Assignments and nothing is left to commit, which speeds up the aggregator's next round. So the first round of
//! every turn does not count, on either side; additional rounds make up for it.

use serde::Serialize;
use tokio::sync::Mutex;

use super::{LoadError, bare::Streams};

/// Counted rounds of one side in a row. With fewer, background work of the aggregator (writing files for people)
/// would fall into the other side's turn.
const IN_A_ROW: u32 = 5;
/// Rounds of a turn, including the one that does not count.
const TURN: u32 = IN_A_ROW + 1;

/// Number of rounds, and which of them count. Rounds are counted from 1.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Schedule {
    /// Rounds that count.
    pub rounds: u32,
    pub in_turns: bool,
}

impl Schedule {
    /// Number of rounds that the aggregator has to run.
    pub fn total(self) -> u32 {
        let turns = if self.in_turns { self.rounds.div_ceil(IN_A_ROW) } else { 0 };
        self.rounds.saturating_add(turns)
    }

    pub fn counts(self, round: u32) -> bool {
        round <= self.total() && self.turn_from(round).is_none()
    }

    /// Number of rounds of the turn that begins with this round; `None` if no turn begins there.
    fn turn_from(self, round: u32) -> Option<u32> {
        let before = round.checked_sub(1)?;
        let left = self.total().checked_sub(before).filter(|left| *left > 0)?;
        (self.in_turns && before.is_multiple_of(TURN)).then_some(left.min(TURN))
    }
}

/// One round of bare streams.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct BareRound {
    pub seconds: f64,
    /// False for the first round of a turn.
    pub counted: bool,
}

#[derive(Debug)]
pub(super) struct Turns {
    schedule: Schedule,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    streams: Option<Streams>,
    /// The last round of the aggregator that has started.
    passed: u32,
    rounds: Vec<BareRound>,
}

impl Turns {
    /// Without streams, [`Turns::before`] never waits.
    pub fn new(streams: Option<Streams>, schedule: Schedule) -> Self {
        Self { schedule, state: Mutex::new(State { streams, passed: 0, rounds: vec![] }) }
    }

    /// Waits until a round of the aggregator may begin. The first device that calls it runs the turn of the streams;
    /// the others wait for its end.
    pub async fn before(&self, round: u32) -> Result<(), LoadError> {
        let state = &mut *self.state.lock().await;
        if round <= state.passed {
            return Ok(());
        }
        state.passed = round;
        if let (Some(streams), Some(turn)) = (&mut state.streams, self.schedule.turn_from(round)) {
            for bare in 0..turn {
                state.rounds.push(BareRound { seconds: streams.round().await?, counted: bare > 0 });
            }
        }
        Ok(())
    }

    /// All rounds of bare streams.
    pub async fn end(&self) -> Vec<BareRound> {
        let state = &mut *self.state.lock().await;
        if let Some(streams) = state.streams.take() {
            streams.close().await;
        }
        std::mem::take(&mut state.rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requested_number_of_rounds_counts_without_the_first_of_a_turn() {
        for rounds in 1..=21 {
            let schedule = Schedule { rounds, in_turns: true };
            let all = 1..=schedule.total();
            assert_eq!(all.clone().filter(|round| schedule.counts(*round)).count(), rounds as usize);
            // The bare rounds follow the same turns.
            let turns: Vec<_> = all.clone().filter_map(|round| schedule.turn_from(round)).collect();
            assert_eq!(turns.iter().map(|turn| turn - 1).sum::<u32>(), rounds);
            assert!(turns.iter().all(|turn| (2..=TURN).contains(turn)), "{turns:?}");
            // Scores are collected after the last round.
            assert_eq!(schedule.turn_from(schedule.total() + 1), None);
            assert!(!schedule.counts(schedule.total() + 1));
        }
        let schedule = Schedule { rounds: 7, in_turns: true };
        assert_eq!(schedule.total(), 9);
        let left_out: Vec<_> = (1..=9).filter(|round| !schedule.counts(*round)).collect();
        assert_eq!(left_out, [1, 7]);
    }

    #[test]
    fn without_turns_every_round_counts() {
        let schedule = Schedule { rounds: 7, in_turns: false };
        assert_eq!(schedule.total(), 7);
        assert!((1..=7).all(|round| schedule.counts(round)) && !schedule.counts(8));
        assert_eq!(Schedule { rounds: u32::MAX, in_turns: true }.total(), u32::MAX);
    }
}
