//! How updates become the next global model: one small trait, one file per strategy.
//!
//! A strategy sees numbers, never updates:
//! - an averaging strategy says how much every device counts ([`Strategy::weigh`]); the region-wise weighted
//!   mean is provided. One that controls its step also says how the sums of the tiers mix
//!   ([`Strategy::mix`]).
//! - a strategy that looks for a direction asks for inner products ([`Strategy::scope`]) and answers with
//!   coefficients ([`Strategy::direct`]).
//!
//! It tells devices what to do ([`Strategy::brief`]), may ask for more than one exchange per round
//! ([`Strategy::next`]), and changes its state only in [`Strategy::learn`], after a round has succeeded.
//!
//! To add one: a file here, with its parameters as a `serde` struct, and one line in [`ALL`].

use std::{collections::BTreeMap, fmt};

use common::{
    DeviceId,
    brief::{Brief, Product},
    region::RegionMap,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::combine::{Cohort, Grams, Scope, TierSums};

mod afl;
mod algebra;
mod direction;
mod ditto;
mod eagle;
mod entropy;
mod exchange;
mod fairfed;
mod fairheterofl;
mod fedavg;
mod fedeba;
mod fedeba_plus;
pub mod fedfb;
mod fedfv;
mod fedlf;
mod fedmdfg;
mod fedmgda_plus;
mod fedprox;
mod fedsgd;
mod heterofl;
mod method;
mod minnorm;
mod mix;
mod per_tier;
mod prac_fedeba;
mod propfair;
mod qffl;
mod simplex;
pub(crate) mod softmax;
mod term;
mod weights;

pub use afl::{Afl, AflParams};
pub use algebra::Products;
pub use direction::Direction;
pub use ditto::{Ditto, DittoParams};
pub use eagle::{Eagle, EagleNorm, EagleParams};
pub use entropy::{Anneal, EbaParams, Prior};
pub use exchange::{Ask, Exchange, Kind, Member};
pub use fairfed::{FairFed, FairFedParams, GroupGap};
pub use fairheterofl::{FairHeteroFl, FairHeteroFlParams, GroupWeight, Hessian, Norm, Step};
pub use fedavg::{AverageParams, FedAvg};
pub use fedeba::FedEba;
pub use fedeba_plus::{Align, FedEbaPlus, FedEbaPlusParams};
pub use fedfb::{FedFb, FedFbParams};
pub use fedfv::{FedFv, FedFvParams};
pub use fedlf::{FedLf, FedLfParams};
pub use fedmdfg::{FedMdfg, FedMdfgParams};
pub use fedmgda_plus::{FedMgdaPlus, FedMgdaPlusParams, Lambda0};
pub use fedprox::{FedProx, FedProxParams};
pub use fedsgd::{FedSgd, FedSgdParams};
pub use heterofl::HeteroFl;
pub use method::{Method, Momentum, Varp, by_name};
pub use minnorm::{min_norm, min_norm_in_box, project, residual};
pub use mix::Mix;
pub use per_tier::PerTier;
pub use prac_fedeba::{PracFedEba, PracFedEbaParams};
pub use propfair::{PropFair, PropFairParams};
pub use qffl::{Qffl, QfflParams, Weighting};
pub use term::{Term, TermParams};
pub use weights::{Weight, Weights};

/// Every strategy, by name.
pub const ALL: &[Entry] = &[
    Entry { name: "fedavg", build: build::<FedAvg> },
    Entry { name: "heterofl", build: build::<HeteroFl> },
    Entry { name: "fedsgd", build: build::<FedSgd> },
    Entry { name: "fedprox", build: build::<FedProx> },
    Entry { name: "qffl", build: build::<Qffl> },
    Entry { name: "fairheterofl", build: build::<FairHeteroFl> },
    Entry { name: "afl", build: build::<Afl> },
    Entry { name: "term", build: build::<Term> },
    Entry { name: "propfair", build: build::<PropFair> },
    Entry { name: "ditto", build: build::<Ditto> },
    Entry { name: "fedeba", build: build::<FedEba> },
    Entry { name: "prac_fedeba", build: build::<PracFedEba> },
    Entry { name: "fedeba_plus", build: build::<FedEbaPlus> },
    Entry { name: "eagle", build: build::<Eagle> },
    Entry { name: "fedfb", build: build::<FedFb> },
    Entry { name: "fairfed", build: build::<FairFed> },
    Entry { name: "fedfv", build: build::<FedFv> },
    Entry { name: "fedmgda_plus", build: build::<FedMgdaPlus> },
    Entry { name: "fedmdfg", build: build::<FedMdfg> },
    Entry { name: "fedlf", build: build::<FedLf> },
];

/// See the module for its parts. All methods but `begin`, `learn` and `restore` only look.
pub trait Strategy: fmt::Debug + Send {
    fn name(&self) -> &'static str;

    /// What devices must have room and data for.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Whether parameters given per tier fit the tiers of the run.
    fn fits(&self, _regions: &RegionMap) -> Result<(), StrategyError> {
        Ok(())
    }

    /// The fleet as it is when the first round opens. Not called again after a restart.
    fn begin(&mut self, _fleet: &[Member<'_>]) {}

    /// What to ask the selected devices after the exchanges made so far; `None`: the round can be combined.
    fn next(&self, made: &[Exchange<'_>], _selected: &[DeviceId]) -> Option<Ask> {
        made.is_empty().then(Ask::train)
    }

    /// Changes what a device is told in the next exchange of training.
    fn brief(&self, _device: &DeviceId, _made: &[Exchange<'_>], _brief: &mut Brief) {}

    /// How much each participant counts. Default: as many times as it has samples.
    fn weigh(&self, cohort: &Cohort<'_>) -> Weights {
        Weights::per_device(cohort.data_shares())
    }

    /// How much each participant would count if all losses were equal; only ratios matter. Default: as many times as it
    /// has samples. The guard measures by it what fairness adds.
    fn plain(&self, cohort: &Cohort<'_>) -> Vec<f64> {
        cohort.data_shares()
    }

    /// How the sums of the tiers form the step of each region. Default: the weighted mean. Between the tiers of a region the
    /// coefficients must not depend on the norms of the sums.
    fn mix(&self, cohort: &Cohort<'_>, sums: &TierSums) -> Mix {
        Mix::mean(cohort.regions(), sums)
    }

    /// How much each participant's first step counts, and the share of their mean in the step; only with
    /// [`Product::Both`].
    fn first(&self, _cohort: &Cohort<'_>) -> Option<(Weights, f64)> {
        None
    }

    /// Over which parts of the model inner products are needed. With a scope, [`Strategy::direct`] is called
    /// instead of `weigh`, `mix` and `first`.
    fn scope(&self) -> Option<Scope> {
        None
    }

    /// The step as a combination of updates, from their inner products alone.
    fn direct(&self, _cohort: &Cohort<'_>, grams: &Grams) -> Direction {
        Direction::none(grams)
    }

    /// The server's learning rate, where the strategy's parameters state one.
    fn eta(&self) -> Option<f64> {
        None
    }

    /// Keeps the factors by which devices weigh their own training between `floor` and `share` times the plain one; for
    /// strategies that weigh on the device.
    fn bound(&mut self, _floor: f64, _share: f64) {}

    /// The round has given a new model: what follows for the next one. `earlier` are the exchanges before
    /// the one that gave the updates.
    fn learn(&mut self, _cohort: &Cohort<'_>, _earlier: &[Exchange<'_>]) {}

    /// What devices will be told in the next round, for reports and round files.
    fn outlook(&self) -> Outlook {
        Outlook::default()
    }

    /// What must survive a restart, as in a round file; null = nothing.
    fn save(&self) -> Value {
        Value::Null
    }

    /// Takes up what [`Strategy::save`] gave, or what a round file says. Null is the state of a first round.
    fn restore(&mut self, state: Value) -> Result<(), StrategyError> {
        let empty = state.is_null() || state.as_object().is_some_and(serde_json::Map::is_empty);
        if empty {
            Ok(())
        } else {
            Err(StrategyError::State { strategy: self.name(), why: "it keeps none".into() })
        }
    }
}

/// What a strategy wants of devices.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// What an exchange of training delivers.
    pub product: Product,
    /// The loss after training too.
    pub loss_after: bool,
    /// Multiply the outputs of sliced layers by 1/r_m during training.
    pub scaler: bool,
    /// Room for a second vector: a guide, a direction to try, or a first step.
    pub guide: bool,
    /// Room for a personal model.
    pub personal: bool,
    /// Room for gradients even with plain SGD.
    pub gradients: bool,
    /// Samples that can be kept for validation.
    pub validation: bool,
    /// Samples with an attribute.
    pub groups: bool,
    /// Labels 0 and 1 only.
    pub binary: bool,
    /// Local SGD; the strategy means nothing with another optimiser.
    pub sgd: bool,
    /// The last updates of this many absent devices.
    pub history: usize,
    /// Of those seen in so many rounds before; 0 = whenever that was.
    pub recent: u32,
}

/// What follows from a round for the next one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outlook {
    /// Weight of each device.
    pub devices: BTreeMap<DeviceId, f64>,
    /// Weight of each sample by label and attribute.
    pub sample_weights: Vec<Vec<f64>>,
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
    #[error("`{key}` works with one tier only; there are {tiers}")]
    OneTier { key: &'static str, tiers: usize },
    #[error("state of strategy `{strategy}`: {why}")]
    State { strategy: &'static str, why: String },
}

type Built = Result<Box<dyn Strategy>, StrategyError>;

/// One line of [`ALL`].
#[derive(Copy, Clone, Debug)]
pub struct Entry {
    pub name: &'static str,
    build: fn(&'static str, Value) -> Built,
}

/// A strategy that is made from parameters.
trait Build: Strategy + Sized + 'static {
    type Params: DeserializeOwned;

    /// The error says which value is not possible and what would be.
    fn build(params: Self::Params) -> Result<Self, String>;
}

fn build<S: Build>(strategy: &'static str, params: Value) -> Built {
    let params = serde_json::from_value(params)
        .map_err(|error| StrategyError::Parameters { strategy, why: error.to_string() })?;
    match S::build(params) {
        Ok(built) => Ok(Box::new(built)),
        Err(why) => Err(StrategyError::Parameters { strategy, why }),
    }
}

/// Decodes a state; `None` if there is none.
fn state<T: DeserializeOwned>(strategy: &'static str, state: Value) -> Result<Option<T>, StrategyError> {
    let decode = |error: serde_json::Error| StrategyError::State { strategy, why: error.to_string() };
    if state.is_null() { Ok(None) } else { serde_json::from_value(state).map(Some).map_err(decode) }
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

/// A parameter that is a share.
fn share(key: &str, value: f64) -> Result<f64, String> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(format!("`{key}` must lie in [0, 1], not {value}"))
    }
}

#[cfg(test)]
mod averaging;
#[cfg(test)]
mod contract;
#[cfg(test)]
pub(crate) mod fleet;
#[cfg(test)]
mod secure;
