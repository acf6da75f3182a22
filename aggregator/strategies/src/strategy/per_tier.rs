//! A parameter that is one value for all tiers, or a list with one per tier.

use std::{fmt, marker::PhantomData};

use common::Tier;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IntoDeserializer, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use crate::error::StrategyError;

/// One value for all tiers, or one per tier.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum PerTier<T = f64> {
    /// The same for all tiers.
    All(T),
    /// One per tier, widest first.
    Each(Vec<T>),
}

impl<T> From<T> for PerTier<T> {
    fn from(value: T) -> Self {
        Self::All(value)
    }
}

impl<T: Default> Default for PerTier<T> {
    fn default() -> Self {
        Self::All(T::default())
    }
}

impl<T: Copy> PerTier<T> {
    /// The value of a tier; `None` beyond the end of the list.
    pub fn of(&self, tier: Tier) -> Option<T> {
        match self {
            Self::All(value) => Some(*value),
            Self::Each(values) => values.get(tier.index()).copied(),
        }
    }

    /// The values that are given.
    pub fn values(&self) -> &[T] {
        match self {
            Self::All(value) => std::slice::from_ref(value),
            Self::Each(values) => values,
        }
    }

    /// Whether there is a value for each of `tiers` tiers.
    pub fn fits(&self, key: &'static str, tiers: usize) -> Result<(), StrategyError> {
        match self {
            Self::Each(values) if values.len() != tiers => {
                Err(StrategyError::Tiers { key, got: values.len(), tiers })
            }
            _ => Ok(()),
        }
    }
}

/// Implemented by hand instead of as an untagged enum, so that an error names the expected type.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for PerTier<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values(PhantomData))
    }
}

struct Values<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Values<T> {
    type Value = PerTier<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value, or a list with one value per tier")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(PerTier::Each)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        one(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        one(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        one(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        one(value)
    }
}

fn one<'de, T: Deserialize<'de>, E: Error>(value: impl IntoDeserializer<'de, E>) -> Result<PerTier<T>, E> {
    let wrong = |error: E| E::custom(format_args!("{error}, or a list with one value per tier"));
    T::deserialize(value.into_deserializer()).map(PerTier::All).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use common::Codec;

    use super::PerTier;

    #[test]
    fn one_value_or_a_list_and_mistakes_are_named() {
        let numbers = |text: &str| serde_json::from_str::<PerTier>(text);
        assert_eq!(numbers("2").unwrap(), PerTier::All(2.0));
        assert_eq!(numbers("[0.5, 1]").unwrap(), PerTier::Each(vec![0.5, 1.0]));
        assert!(numbers("{}").unwrap_err().to_string().contains("one value per tier"));
        let codecs = |text: &str| serde_json::from_str::<PerTier<Codec>>(text);
        assert_eq!(codecs("\"int8\"").unwrap(), PerTier::All(Codec::Int8));
        assert_eq!(codecs("[\"f32\", \"f16\"]").unwrap(), PerTier::Each(vec![Codec::F32, Codec::F16]));
        for text in ["\"int4\"", "[\"int4\"]"] {
            assert!(codecs(text).unwrap_err().to_string().contains("expected one of `f32`, `f16`, `int8`"));
        }
    }
}
