//! Settings that are a word or numbers.

use std::fmt;

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// The strongest value of a knob.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub enum Most {
    /// As the strategy declares it.
    #[default]
    Default,
    /// This value.
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
