//! `[fairness]` of a configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    error::FairnessError,
    parameter::{self, Parameter},
    strategy::{FairnessScope, PerTier},
};

mod values;

pub use values::{GainSetting, Most};

/// How equal the fleet shall be. All zero: no target.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FairnessSettings {
    /// Disparity at most this; 0: off. With 0.3, losses deviate by 30 % of their mean.
    pub target: f64,
    /// The same inside every tier, for strategies with a parameter per tier; a number, or a list with one per tier. 0: off.
    pub inside: PerTier,
    /// Between whom `target` is measured; `default`: as the strategy's parameter acts.
    pub scope: ScopeSetting,
    /// The figure that is compared with the target.
    pub measure: Measure,
    /// The losses that are compared.
    pub signal: Signal,
    /// Strongest value of the parameter that `target` drives; without `target`, of the one that `inside` drives.
    pub most: Most,
    /// The mean loss may lie at most this share above its best; 0: no limit.
    pub budget: f64,
    /// Rounds that are only measured.
    pub warmup: u32,
    /// Gains [ki, kp] of the controller; `auto`: from participation.
    pub gains: GainSetting,
    /// False: the plain disparity of each round, without smoothing and without correction for sampling. For experiments only.
    #[serde(skip)]
    pub correct: bool,
}

/// Between whom the target is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScopeSetting {
    /// As the strategy's parameter acts.
    #[default]
    Default,
    /// The means of the tiers.
    Tiers,
    /// All devices.
    Devices,
}

/// The figure that is compared with the target.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Standard deviation over mean.
    #[default]
    Cv,
    /// Standard deviation, in nats.
    Spread,
}

/// The losses that are compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// Of the received model on samples that a device does not train on.
    #[default]
    Validation,
    /// Of the received model on the training samples; needs `measure = "spread"`.
    Training,
}

impl Default for FairnessSettings {
    fn default() -> Self {
        Self {
            target: 0.0,
            inside: PerTier::default(),
            scope: ScopeSetting::default(),
            measure: Measure::default(),
            signal: Signal::default(),
            most: Most::default(),
            budget: 0.0,
            warmup: 0,
            gains: GainSetting::default(),
            correct: true,
        }
    }
}

impl FairnessSettings {
    /// Keys, defaults and meaning, for documentation.
    pub fn describe() -> Result<Vec<Parameter>, serde_json::Error> {
        parameter::describe::<Self>()
    }

    /// Whether no target is set. A number that is no possible target counts as one, so that it is refused later.
    pub fn is_off(&self) -> bool {
        self.target == 0.0 && self.inside.values().iter().all(|&inside| inside == 0.0)
    }

    /// Whether all numbers are possible.
    pub(super) fn check(&self) -> Result<(), FairnessError> {
        let possible = |number: f64| number.is_finite() && number >= 0.0;
        let wrong = |key, must, value: String| FairnessError::Value { key, must, value };
        let inside = self.inside.values().iter().map(|&inside| ("inside", inside));
        let numbers = [("target", self.target), ("budget", self.budget)].into_iter().chain(inside);
        let mut numbers = numbers.filter(|&(_, number)| !possible(number));
        if let Some((key, number)) = numbers.next() {
            return Err(wrong(key, "above 0, or 0 for none", number.to_string()));
        }
        if let GainSetting::Given([ki, kp]) = self.gains
            && !(possible(ki) && possible(kp) && ki > 0.0)
        {
            return Err(wrong("gains", "[ki, kp] with ki above 0 and kp 0 or more", format!("[{ki}, {kp}]")));
        }
        if self.measure == Measure::Cv && self.signal == Signal::Training {
            return Err(FairnessError::TrainingCv);
        }
        Ok(())
    }

    /// The scope of a knob.
    pub(super) fn scope_of(&self, declared: FairnessScope) -> FairnessScope {
        match self.scope {
            ScopeSetting::Default => declared,
            ScopeSetting::Tiers => FairnessScope::Tiers,
            ScopeSetting::Devices => FairnessScope::Devices,
        }
    }
}
