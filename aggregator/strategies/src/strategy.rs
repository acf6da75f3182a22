//! The trait [`Strategy`]: how updates become the next global model.
//!
//! A strategy sees numbers, never updates:
//! - An averaging strategy states how much every device counts ([`Strategy::weigh`]); the region-wise weighted
//!   mean is provided. A strategy that controls its step also states how the sums of the tiers mix
//!   ([`Strategy::mix`]).
//! - A strategy that looks for a direction asks for inner products ([`Strategy::scope`]) and returns
//!   coefficients ([`Strategy::direct`]).
//!
//! It tells devices what to do ([`Strategy::brief`]), may ask for more than one exchange per round
//! ([`Strategy::next`]), and changes its state only in [`Strategy::learn`], after a round has succeeded.
//!
//! To add one here: a file in `methods/`, with its parameters as a `serde` struct, and one line in
//! [`Registry::standard`](crate::Registry::standard). To add one elsewhere: implement [`Build`](crate::Build) and
//! [register](crate::Registry::with) it.

use std::{collections::BTreeMap, fmt};

use common::{
    DeviceId, Tier,
    brief::{Brief, Product},
    region::RegionMap,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{blocks::Scope, cohort::Cohort, error::StrategyError, gram::Grams};

pub(crate) mod direction;
mod exchange;
mod knob;
mod mix;
mod per_tier;
mod sums;
mod weights;

pub use direction::Direction;
pub use exchange::{Ask, Exchange, FleetDevice, Kind};
pub use knob::{FairnessScope, Knob, Scale};
pub use mix::Mix;
pub use per_tier::PerTier;
pub use sums::TierSums;
pub use weights::{Weight, Weights};

/// See the module for its parts. Only `begin`, `bound`, `turn`, `learn` and `restore` change the strategy.
pub trait Strategy: fmt::Debug + Send {
    /// As in `strategy.name` of a configuration.
    fn name(&self) -> &'static str;

    /// What devices must have memory and data for.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Checks that parameters given per tier fit the tiers of the run.
    fn fits(&self, _regions: &RegionMap) -> Result<(), StrategyError> {
        Ok(())
    }

    /// The fleet as it is when the first round opens. Not called again after a restart.
    fn begin(&mut self, _fleet: &[FleetDevice<'_>]) {}

    /// What to ask the selected devices after the exchanges made so far; `None`: the round can be combined.
    fn next(&self, made: &[Exchange], _selected: &[DeviceId]) -> Option<Ask> {
        made.is_empty().then(Ask::train)
    }

    /// Changes what a device is told in the next exchange of training.
    fn brief(&self, _device: &DeviceId, _made: &[Exchange], _brief: &mut Brief) {}

    /// How much each participant counts. Default: its number of samples.
    fn weigh(&self, cohort: &Cohort) -> Weights {
        Weights::per_device(cohort.data_shares())
    }

    /// How much each participant would count if all losses were equal; only ratios matter. Default: its number of samples. The
    /// guard compares the weights with these.
    fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        cohort.data_shares()
    }

    /// How the sums of the tiers form the step of each region. Default: the weighted mean. Between the tiers of a region the
    /// coefficients must not depend on the norms of the sums.
    fn mix(&self, cohort: &Cohort, sums: &TierSums) -> Mix {
        Mix::mean(cohort.regions(), sums)
    }

    /// How much each participant's first step counts, and the share of their mean in the step. Only used with
    /// [`Product::Both`].
    fn first_step(&self, _cohort: &Cohort) -> Option<(Weights, f64)> {
        None
    }

    /// Over which parts of the model inner products are needed. With a scope, [`Strategy::direct`] is called
    /// instead of `weigh`, `mix` and `first_step`.
    fn scope(&self) -> Option<Scope> {
        None
    }

    /// The step as a combination of updates, from their inner products alone.
    fn direct(&self, _cohort: &Cohort, grams: &Grams) -> Direction {
        Direction::none(grams)
    }

    /// Whether the loss before training is used, before (`trained` false) or after updates have arrived. A round file may leave
    /// out losses that are not used.
    fn uses_loss(&self, _trained: bool) -> bool {
        true
    }

    /// Whether this is the method as its paper prints it, where devices train with the learning rate `lr`. `None`: there is no
    /// other form, or the parameters leave nothing of the method.
    fn as_published(&self, _lr: f64) -> Option<bool> {
        None
    }

    /// Whether the learning rate of the devices affects the step.
    fn uses_lr(&self) -> bool {
        false
    }

    /// The server's learning rate, if the strategy's parameters state one.
    fn eta(&self) -> Option<f64> {
        None
    }

    /// Whether tiers hold other units in every round: after a round, the units of every hidden axis move on by one, so that
    /// the first ones are others. The model computes the same.
    fn rolls(&self) -> bool {
        false
    }

    /// Keeps the factors by which devices weigh their own training between `floor` and `share` times the plain one; for
    /// strategies that weigh on the device.
    fn bound(&mut self, _floor: f64, _share: f64) {}

    /// Parameters that a fairness target may drive. Default: none, and a target is refused.
    fn knobs(&self) -> Vec<Knob> {
        vec![]
    }

    /// Sets a parameter of [`Strategy::knobs`] for the rounds to come; `tier` for one per tier. The value lies between the
    /// knob's ends.
    fn turn(&mut self, _parameter: &str, _tier: Option<Tier>, _value: f64) {}

    /// Updates the state after a round has given a new model. `earlier` are the exchanges before the one that gave the updates.
    fn learn(&mut self, _cohort: &Cohort, _earlier: &[Exchange]) {}

    /// The weights that devices will be told in the next round, for reports and round files.
    fn training_weights(&self) -> TrainingWeights {
        TrainingWeights::default()
    }

    /// The state for a restart, as in a round file; null: none.
    fn save(&self) -> Value {
        Value::Null
    }

    /// Restores the result of [`Strategy::save`], or the state of a round file. Null is the state of a first round.
    fn restore(&mut self, state: Value) -> Result<(), StrategyError> {
        let empty = state.is_null() || state.as_object().is_some_and(serde_json::Map::is_empty);
        if empty {
            Ok(())
        } else {
            Err(StrategyError::State { strategy: self.name(), why: "it keeps none".into() })
        }
    }
}

/// What a strategy requires of devices.
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
    /// The loss on such samples, from devices that have enough of them; the others train all the same.
    pub signal: bool,
    /// Samples with an attribute.
    pub groups: bool,
    /// Labels 0 and 1 only.
    pub binary: bool,
    /// Local SGD; the strategy does not work with another optimiser.
    pub sgd: bool,
    /// The last updates of this many absent devices.
    pub history: usize,
    /// Only absent devices seen within this many rounds; 0: no limit.
    pub recent: u32,
}

/// Training weights for the next round.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TrainingWeights {
    /// Weight of each device.
    pub devices: BTreeMap<DeviceId, f64>,
    /// Weight of each sample by label and attribute.
    pub samples: Vec<Vec<f64>>,
}

/// Decodes a state for [`Strategy::restore`]. Null is the state of a first round: the type's default.
pub fn decode_state<T: DeserializeOwned + Default>(
    strategy: &'static str,
    state: Value,
) -> Result<T, StrategyError> {
    let decode = |error: serde_json::Error| StrategyError::State { strategy, why: error.to_string() };
    if state.is_null() { Ok(T::default()) } else { serde_json::from_value(state).map_err(decode) }
}
