//! The output of `fairtier round combine`: only the keys that apply.

use std::collections::BTreeMap;

use common::{DeviceId, Tier, region::RegionMap};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    combine::{Outcome, RegionNote},
    fairness::FairnessLine,
    strategy::TrainingWeights,
};

/// The result of a replayed round, or what devices must be told before it can be combined.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ReplayResult {
    /// The next model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<f64>,
    /// Over all participants; absent for directions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<DeviceId, f64>,
    /// What happened in each region.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionResult>,
    /// What devices are told.
    #[serde(skip_serializing_if = "BriefResult::is_empty")]
    pub brief: BriefResult,
    /// The state that the strategy saves.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub state: Value,
    /// The knobs of a fairness target, with their next values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fairness: Vec<FairnessLine>,
    /// Devices that do not count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedDevice>,
    /// Notes of the strategy.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub diagnostics: Map<String, Value>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RegionResult {
    pub tiers: Vec<usize>,
    /// Parameters of the whole model.
    pub indices: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rho: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct BriefResult {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<DeviceId, DeviceBrief>,
    /// By label and attribute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sample_weights: Vec<Vec<f64>>,
    /// The fair gradient, over the whole model; 0 where no tier holds a parameter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gfair: Vec<f64>,
    /// d: a step leads to `theta - step * d`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub direction: Vec<f64>,
    /// The steps to try along it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<f64>,
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct DeviceBrief {
    pub weight: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RefusedDevice {
    pub id: DeviceId,
    pub code: u16,
    pub why: &'static str,
}

impl ReplayResult {
    pub(super) fn refusals(outcome: &[crate::cohort::Refused]) -> Vec<RefusedDevice> {
        let line = |refused: &crate::cohort::Refused| RefusedDevice {
            id: refused.device.clone(),
            code: refused.code.number(),
            why: refused.code.text(),
        };
        outcome.iter().map(line).collect()
    }

    pub(super) fn regions(outcome: &Outcome, regions: &RegionMap) -> Vec<RegionResult> {
        let line = |(number, note): (usize, &RegionNote)| {
            let holder = note.tiers.iter().next();
            let pieces = holder.map_or(&[][..], |tier| regions.pieces(tier)).iter();
            let own = pieces.filter(|piece| piece.region.index() == number);
            RegionResult {
                tiers: note.tiers.iter().map(Tier::index).collect(),
                indices: own.flat_map(|piece| piece.full..piece.full + piece.len).collect(),
                rho: note.rho,
            }
        };
        outcome.regions.iter().enumerate().map(line).collect()
    }
}

impl BriefResult {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<TrainingWeights> for BriefResult {
    fn from(training_weights: TrainingWeights) -> Self {
        let weight = |(device, weight)| (device, DeviceBrief { weight });
        Self {
            devices: training_weights.devices.into_iter().map(weight).collect(),
            sample_weights: training_weights.samples,
            ..Self::default()
        }
    }
}
