//! A parameter that is one number for all tiers, or a list with one per tier.

use common::Tier;
use serde::{Deserialize, Serialize};

use super::StrategyError;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a list with one number per tier")]
pub enum PerTier {
    All(f64),
    Each(Vec<f64>),
}

impl From<f64> for PerTier {
    fn from(value: f64) -> Self {
        Self::All(value)
    }
}

impl PerTier {
    /// The value of a tier; `None` beyond the end of the list.
    pub fn of(&self, tier: Tier) -> Option<f64> {
        match self {
            Self::All(value) => Some(*value),
            Self::Each(values) => values.get(tier.index()).copied(),
        }
    }

    pub fn values(&self) -> &[f64] {
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
