//! `[fairness]` of a configuration.

use std::fmt;

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

use crate::{
    error::FairnessError,
    parameter::{self, Parameter},
    strategy::{FairnessScope, PerTier},
};

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
    pub measure: Measure,
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

/// The strongest value of a knob.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub enum Most {
    /// As the strategy declares it.
    #[default]
    Default,
    Value(f64),
}

/// The gains of the controller.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub enum GainSetting {
    /// From participation.
    #[default]
    Auto,
    /// ki and kp.
    Given([f64; 2]),
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
        for (key, number) in numbers.filter(|&(_, number)| !possible(number)) {
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

impl Serialize for Most {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Default => serializer.serialize_str("default"),
            Self::Value(value) => serializer.serialize_f64(*value),
        }
    }
}

impl<'de> Deserialize<'de> for Most {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = Most;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or \"default\"")
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Most, E> {
                Ok(Most::Value(value))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Most, E> {
                Ok(Most::Value(value as f64))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Most, E> {
                Ok(Most::Value(value as f64))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Most, E> {
                match value {
                    "default" => Ok(Most::Default),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

impl Serialize for GainSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Given(gains) => gains.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for GainSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = GainSetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[ki, kp] or \"auto\"")
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<GainSetting, E> {
                match value {
                    "auto" => Ok(GainSetting::Auto),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(value), &self)),
                }
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, list: A) -> Result<GainSetting, A::Error> {
                let list = serde::de::value::SeqAccessDeserializer::new(list);
                <[f64; 2]>::deserialize(list).map(GainSetting::Given)
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

impl JsonSchema for Most {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Most".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [{ "const": "default" }, { "type": "number" }] })
    }
}

impl JsonSchema for GainSetting {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GainSetting".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let pair = schemars::json_schema!({
            "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2
        });
        schemars::json_schema!({ "anyOf": [{ "const": "auto" }, pair] })
    }
}
