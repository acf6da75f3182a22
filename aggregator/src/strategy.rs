//! How updates become the next global model: one small trait, one file per strategy.
//!
//! An averaging strategy says how much every device counts ([`Strategy::weigh`]); the region-wise
//! weighted mean is provided. One that controls its step also says how the sums of the tiers mix
//! ([`Strategy::mix`]). A strategy sees scalars and norms only; updates pass it by.
//!
//! To add one: a file here, with its parameters as a `serde` struct, and one line in [`ALL`].

use std::fmt;

use common::region::RegionMap;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::combine::{Cohort, TierSums};

mod fairheterofl;
mod fedavg;
mod heterofl;
mod mix;
mod per_tier;
mod weights;

pub use fairheterofl::{FairHeteroFl, FairHeteroFlParams, GroupWeight, Hessian, Norm, Step};
pub use fedavg::{AverageParams, FedAvg};
pub use heterofl::HeteroFl;
pub use mix::Mix;
pub use per_tier::PerTier;
pub use weights::{Weight, Weights};

/// Every strategy, by name.
pub const ALL: &[Entry] = &[
    Entry { name: "fedavg", build: build::<FedAvg> },
    Entry { name: "heterofl", build: build::<HeteroFl> },
    Entry { name: "fairheterofl", build: build::<FairHeteroFl> },
];

/// Turns the numbers of a round into weights, and the weighted sums into a step per region.
///
/// Per round [`crate::combine::combine`] calls `fits`, `save`, `weigh`, `mix` in this order, and `restore`
/// with what was saved if the result can not be used.
pub trait Strategy: fmt::Debug + Send {
    fn name(&self) -> &'static str;

    /// What devices are asked for beyond the update, the samples and the loss before training.
    fn hints(&self) -> Hints {
        Hints::default()
    }

    /// Whether parameters given per tier fit the tiers of the run.
    fn fits(&self, _regions: &RegionMap) -> Result<(), StrategyError> {
        Ok(())
    }

    /// How much each participant counts.
    fn weigh(&mut self, cohort: &Cohort<'_>) -> Weights;

    /// How the sums of the tiers form the step of each region. Default: the weighted mean.
    fn mix(&mut self, cohort: &Cohort<'_>, sums: &TierSums) -> Mix {
        Mix::mean(cohort.regions(), sums)
    }

    /// The server's learning rate, where the strategy's parameters state one.
    fn eta(&self) -> Option<f64> {
        None
    }

    /// What must survive a restart.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes up what [`Strategy::save`] gave.
    fn restore(&mut self, state: &[u8]) -> Result<(), StrategyError> {
        if state.is_empty() { Ok(()) } else { Err(StrategyError::State { strategy: self.name() }) }
    }
}

/// What a strategy wants devices to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// Report the loss after training too.
    pub loss_after: bool,
    /// Multiply the outputs of sliced layers by 1/r_m during training.
    pub scaler: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    #[error("there is no strategy `{name}`; known are {known}")]
    Unknown { name: String, known: String },
    #[error("parameters of strategy `{strategy}`: {why}")]
    Parameters { strategy: &'static str, why: String },
    #[error("`{key}` lists {got} values, but there are {tiers} tiers; give one number or one per tier")]
    Tiers { key: &'static str, got: usize, tiers: usize },
    #[error(
        "stored state of strategy `{strategy}` does not decode; it was saved by another strategy or version"
    )]
    State { strategy: &'static str },
}

type Built = Result<Box<dyn Strategy>, StrategyError>;

/// One line of [`ALL`].
#[derive(Copy, Clone, Debug)]
pub struct Entry {
    pub name: &'static str,
    build: fn(&'static str, Value) -> Built,
}

/// Builds a strategy from its name and parameters (an object; null = all defaults).
pub fn by_name(name: &str, params: Value) -> Result<Box<dyn Strategy>, StrategyError> {
    match ALL.iter().find(|entry| entry.name == name) {
        Some(entry) => (entry.build)(entry.name, params),
        None => {
            let known = ALL.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
            Err(StrategyError::Unknown { name: name.to_owned(), known })
        }
    }
}

/// A strategy that is made from parameters.
trait Build: Strategy + Sized + 'static {
    type Params: DeserializeOwned;

    /// The error says which value is not possible and what would be.
    fn build(params: Self::Params) -> Result<Self, String>;
}

fn build<S: Build>(strategy: &'static str, params: Value) -> Built {
    let params = if params.is_null() { Value::Object(serde_json::Map::new()) } else { params };
    if !params.is_object() {
        // A list would be taken as values without keys.
        return Err(StrategyError::Parameters {
            strategy,
            why: format!("expected keys and values, not {params}"),
        });
    }
    let params = serde_json::from_value(params)
        .map_err(|error| StrategyError::Parameters { strategy, why: error.to_string() })?;
    match S::build(params) {
        Ok(built) => Ok(Box::new(built)),
        Err(why) => Err(StrategyError::Parameters { strategy, why }),
    }
}

/// A parameter that must be finite and not negative.
fn not_negative(key: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(format!("`{key}` must be 0 or more, not {value}"))
    }
}

/// A parameter that must be finite and above 0.
fn positive(key: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(format!("`{key}` must be above 0, not {value}"))
    }
}

#[cfg(test)]
mod contract;
#[cfg(test)]
mod fleet;
