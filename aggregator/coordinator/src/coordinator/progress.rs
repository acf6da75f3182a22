//! Where the run stands now, for pages and metrics; and the operator's pause.

use common::{Code, DeviceId, Instant};
use strategies::tiered::TieredModel;

use super::{Coordinator, Phase, RefusedBy};

/// What the run does now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PhaseName {
    /// Waits for enough devices.
    Gathering,
    /// Records the first exchange of a round.
    Opening,
    /// Collects answers.
    Collecting,
    /// Combines, or records the next exchange.
    Closing,
    /// All rounds are committed and the final scores are collected.
    Finished,
}

impl PhaseName {
    /// As in `gathering`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gathering => "gathering",
            Self::Opening => "opening",
            Self::Collecting => "collecting",
            Self::Closing => "closing",
            Self::Finished => "finished",
        }
    }
}

impl Coordinator {
    /// What the run does now.
    pub fn phase(&self) -> PhaseName {
        match self.phase {
            Phase::Gathering => PhaseName::Gathering,
            Phase::Opening => PhaseName::Opening,
            Phase::Collecting(_) => PhaseName::Collecting,
            Phase::Closing => PhaseName::Closing,
            Phase::Finished { .. } => PhaseName::Finished,
        }
    }

    /// The model with its tiers.
    pub fn model(&self) -> &TieredModel {
        &self.model
    }

    /// Refusals since the start, one for each reason of each device.
    pub fn refusals(&self) -> impl Iterator<Item = (&DeviceId, RefusedBy, Code)> {
        self.notices.reported()
    }

    /// Lets the open round end, and begins no other one.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Begins rounds again.
    pub fn resume(&mut self, now: Instant) {
        self.paused = false;
        self.advance(now);
    }

    /// Whether the operator has paused the run.
    pub fn is_paused(&self) -> bool {
        self.paused
    }
}
