//! A parameter of a strategy that a fairness target may drive.
//!
//! ```text
//! linear   a + u (b - a)
//! log      exp(ln a + u (ln b - ln a))                          a, b > 0
//! log1p    expm1(ln(1+a) + u (ln(1+b) - ln(1+a)))               a, b > -1
//! ```
//! `a` is the neutral value (u = 0, no fairness), `b` the strongest (u = 1). Both ends are exact. A knob may go down: its
//! direction is in the pair.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Knob {
    /// Key among the strategy's parameters.
    pub parameter: &'static str,
    /// There is one for each tier; it acts on the devices of that tier.
    pub per_tier: bool,
    /// The value without fairness.
    pub neutral: f64,
    /// The value of the strongest fairness.
    pub most: f64,
    /// How positions become values.
    pub scale: Scale,
    /// What it makes equal, unless the configuration says otherwise.
    pub scope: FairnessScope,
    /// It works on gaps (r_k) in place of losses. Gaps may be negative, so only their spread is measured.
    pub gap: bool,
    /// Why it cannot be driven as the strategy is configured, with the key to change.
    pub unusable: Option<&'static str>,
}

/// How a position in [0, 1] becomes a value.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// In equal steps.
    #[default]
    Linear,
    /// In equal steps of the logarithm; ends are above 0.
    Log,
    /// In equal steps of `ln(1 + value)`; ends are above -1.
    Log1p,
}

/// Between whom a disparity is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FairnessScope {
    /// The means of the tiers.
    Tiers,
    /// All devices.
    #[default]
    Devices,
    /// The devices of one tier.
    Inside,
}

impl Knob {
    /// A knob that makes devices equal.
    pub fn new(parameter: &'static str, neutral: f64, most: f64, scale: Scale) -> Self {
        let scope = FairnessScope::Devices;
        Self { parameter, per_tier: false, neutral, most, scale, scope, gap: false, unusable: None }
    }

    /// It makes tiers equal.
    #[must_use]
    pub fn between_tiers(self) -> Self {
        Self { scope: FairnessScope::Tiers, ..self }
    }

    /// There is one for each tier, which makes the devices of that tier equal.
    #[must_use]
    pub fn per_tier(self) -> Self {
        Self { per_tier: true, scope: FairnessScope::Inside, ..self }
    }

    /// It works on gaps in place of losses.
    #[must_use]
    pub fn of_gaps(self) -> Self {
        Self { gap: true, ..self }
    }

    /// It cannot be driven, and why.
    #[must_use]
    pub fn unusable(self, why: &'static str) -> Self {
        Self { unusable: Some(why), ..self }
    }

    /// The value at a position; positions outside [0, 1] count as the nearest end.
    pub fn value(&self, position: f64) -> f64 {
        let (a, b) = (self.neutral, self.most);
        if position <= 0.0 {
            return a;
        }
        if position >= 1.0 {
            return b;
        }
        match self.scale {
            Scale::Linear => a + position * (b - a),
            Scale::Log => (a.ln() + position * (b.ln() - a.ln())).exp(),
            Scale::Log1p => (a.ln_1p() + position * (b.ln_1p() - a.ln_1p())).exp_m1(),
        }
    }

    /// Whether both ends are numbers of the scale and differ.
    pub fn is_sound(&self) -> bool {
        let least = match self.scale {
            Scale::Linear => f64::NEG_INFINITY,
            Scale::Log => 0.0,
            Scale::Log1p => -1.0,
        };
        let sound = |end: f64| end.is_finite() && end > least;
        sound(self.neutral) && sound(self.most) && self.neutral != self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_give_no_range() {
        assert!(Knob::new("x", 0.0, 1.0, Scale::Linear).is_sound());
        assert!(!Knob::new("x", 1.0, 1.0, Scale::Linear).is_sound());
        assert!(!Knob::new("x", 0.0, 1.0, Scale::Log).is_sound());
        assert!(!Knob::new("x", -1.0, 1.0, Scale::Log1p).is_sound());
        assert!(!Knob::new("x", 0.0, f64::NAN, Scale::Linear).is_sound());
        let linear = Knob::new("x", 2.0, 6.0, Scale::Linear);
        assert_eq!([-1.0, 0.25, 2.0].map(|u| linear.value(u)), [2.0, 3.0, 6.0]);
    }
}
