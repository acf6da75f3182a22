//! Rounds of the aggregator and of bare streams in turns, so that both see the same machine in the same state: on a
//! shared one, its speed changes by a quarter within a minute.

use tokio::sync::Mutex;

use super::{LoadError, bare::Streams};

/// Rounds of one kind in a row. With fewer, what the aggregator does while devices are at work (files for people) would
/// fall into the other's time.
const IN_A_ROW: u32 = 5;

#[derive(Debug)]
pub(super) struct Turns(Mutex<State>);

#[derive(Debug)]
struct State {
    streams: Option<Streams>,
    /// The last round of the aggregator that was let through.
    passed: u32,
    /// How many of them there will be.
    rounds: u32,
    seconds: Vec<f64>,
}

impl Turns {
    /// Without streams, nobody waits.
    pub fn new(streams: Option<Streams>, rounds: u32) -> Self {
        Self(Mutex::new(State { streams, passed: 0, rounds, seconds: vec![] }))
    }

    /// Waits until a round of the aggregator may begin. The first of all devices to ask lets the streams have their turn,
    /// while the others wait for it.
    pub async fn before(&self, round: u32) -> Result<(), LoadError> {
        let state = &mut *self.0.lock().await;
        if round <= state.passed || round > state.rounds {
            return Ok(());
        }
        state.passed = round;
        if let Some(streams) = &mut state.streams
            && (round - 1).is_multiple_of(IN_A_ROW)
        {
            if round == 1 {
                // The aggregator's connections have been used for their Plans.
                streams.round().await?;
            }
            for _ in 0..IN_A_ROW.min(state.rounds + 1 - round) {
                state.seconds.push(streams.round().await?);
            }
        }
        Ok(())
    }

    /// Seconds of each round of bare streams.
    pub async fn end(&self) -> Vec<f64> {
        let state = &mut *self.0.lock().await;
        if let Some(streams) = state.streams.take() {
            streams.close().await;
        }
        std::mem::take(&mut state.seconds)
    }
}
