//! How far lambda moves in a round: `alpha_t = alpha/sqrt(t)`, t from 1.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::sum;

/// A shorter mu is only rounding.
const SHORTEST: f64 = 1e-12;

/// The length of the steps of lambda.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct StepSize {
    /// Length of the first step.
    pub alpha: f64,
    /// How steps shorten over the rounds.
    pub decay: Decay,
    /// Steps are as long as `alpha_t`, however small the gap; as published.
    pub normalize: bool,
}

/// How steps shorten over the rounds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// By `1/sqrt(t)`.
    #[default]
    #[serde(alias = "1/sqrt t", alias = "1/sqrt(t)")]
    Sqrt,
    /// Not at all.
    None,
}

impl StepSize {
    /// `alpha_t`
    pub fn length(self, t: u32) -> f64 {
        match self.decay {
            Decay::Sqrt => self.alpha / f64::from(t.max(1)).sqrt(),
            Decay::None => self.alpha,
        }
    }
}

/// `lambda + alpha_t * mu`; `None` if there is no step.
pub(super) fn move_by(lambda: &[f64], mu: &[f64], step_size: StepSize, t: u32) -> Option<Vec<f64>> {
    let norm = sum(mu.iter().map(|mu| mu * mu)).sqrt();
    if !(norm.is_finite() && norm > SHORTEST) {
        return None;
    }
    let length = step_size.length(t) / if step_size.normalize { norm } else { 1.0 };
    Some(lambda.iter().zip(mu).map(|(lambda, mu)| lambda + length * mu).collect())
}
