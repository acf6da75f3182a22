//! What hostile devices do.

use serde::Serialize;

use super::AttackOptions;

/// What a hostile device sends.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lie {
    Honest,
    Flipped,
    Tenfold,
}

impl Lie {
    pub const ALL: [Self; 3] = [Self::Honest, Self::Flipped, Self::Tenfold];

    pub(super) fn factor(self) -> f32 {
        match self {
            Self::Honest => 1.0,
            Self::Flipped => -1.0,
            Self::Tenfold => 10.0,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::Flipped => "flipped",
            Self::Tenfold => "x10",
        }
    }
}

/// How a hostile device wants to be believed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tactic {
    /// Not at all.
    Loud,
    /// Its losses grow in steps that its own past allows.
    Ramp,
    /// It is honest for a quarter of the rounds.
    Turncoat,
    /// All hostile devices claim so little memory that they are in a tier of their own.
    OwnTier,
}

impl Tactic {
    pub const QUIET: [Self; 3] = [Self::Ramp, Self::Turncoat, Self::OwnTier];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Loud => "",
            Self::Ramp => "ramp",
            Self::Turncoat => "turncoat",
            Self::OwnTier => "own tier",
        }
    }

    /// The loudest that goes with it.
    fn case(self) -> Case {
        let (samples, updates) = match self {
            Self::Loud | Self::Ramp => (1, Lie::Honest),
            Self::Turncoat => (1, Lie::Flipped),
            Self::OwnTier => (100, Lie::Tenfold),
        };
        Case { inflation: 1e6, samples, updates, tactic: self }
    }
}

/// What all hostile devices do.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Case {
    /// Factor of losses.
    pub inflation: f64,
    /// Factor of sample counts.
    pub samples: u32,
    pub updates: Lie,
    pub tactic: Tactic,
}

/// More than a device's own past allows at once, and less than it takes to be noticed by it.
const STEP: f64 = 3.9;

impl Case {
    pub(super) const HONEST: Self =
        Self { inflation: 1.0, samples: 1, updates: Lie::Honest, tactic: Tactic::Loud };

    pub(super) fn all(options: &AttackOptions) -> Vec<Self> {
        let claims = options.inflations.iter().map(|&inflation| (inflation, 1));
        let claims = claims.chain(options.boasts.iter().map(|&samples| (1.0, samples)));
        let loud = |(inflation, samples)| {
            let case = move |&updates| Self { inflation, samples, updates, tactic: Tactic::Loud };
            options.lies.iter().map(case)
        };
        claims.flat_map(loud).chain(options.tactics.iter().map(|tactic| tactic.case())).collect()
    }

    /// What is done in a round, counted from 1, of a run of so many.
    pub(super) fn in_round(self, round: u32, rounds: u32) -> Self {
        match self.tactic {
            Tactic::Turncoat if round <= rounds / 4 => Self { samples: self.samples, ..Self::HONEST },
            Tactic::Ramp => {
                let climbed = STEP.powf(f64::from(round.saturating_sub(1)));
                Self { inflation: climbed.min(self.inflation), ..self }
            }
            _ => self,
        }
    }
}
