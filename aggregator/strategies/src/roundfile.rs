//! One round as an open file format. `fairtier round combine` replays it with any strategy, and a run with `record = true`
//! writes one per round.
//!
//! ```text
//! round-000007.json       { "format": "fairtier-round", "version": 1, "parameters": .., "devices": [..], .. }
//! round-000007/*.npy      large arrays, named in the JSON as {"npy": "round-000007/device-a.npy"}
//! ```
//! Everything is `f64` here. [`RoundFile::open`] reads and checks, [`replay()`] computes, [`record()`] writes.

use std::{io, ops::Range, path::PathBuf};

use common::{DeviceId, Tier, region::RegionMap};
use serde_json::Value;

use crate::{
    cohort::Bounds,
    error::{CombineError, StrategyError},
    fairness::FairnessSettings,
};

mod cohort;
mod file_updates;
mod json;
mod read;
mod record;
mod replay;
mod result;

pub use record::{RecordError, RoundDump, record};
pub use replay::{Overrides, replay, replay_with};
pub use result::ReplayResult;

/// The required values of the first two keys.
pub const FORMAT: &str = "fairtier-round";
/// The format's version.
pub const VERSION: u64 = 1;

/// A file that has been read and checked: all vectors have the length of their tier's slice.
#[derive(Clone, PartialEq, Debug)]
pub struct RoundFile {
    /// From 1.
    pub round: u32,
    /// N; absent: as many as there are devices.
    pub clients: Option<usize>,
    /// Of the devices.
    pub lr: Option<f64>,
    /// Multiplies the step of a strategy without `eta`.
    pub server_lr: f64,
    /// The whole model before the round.
    pub parameters: Vec<f64>,
    /// In model order; empty = one layer.
    pub layers: Vec<Range<usize>>,
    /// Which tiers hold which parameters.
    pub regions: RegionMap,
    /// g_m, by tier.
    pub tier_weights: Vec<Option<f64>>,
    /// The participants.
    pub devices: Vec<RecordedDevice>,
    /// The last gradients of absent devices.
    pub history: Vec<PastGradient>,
    /// What the strategy had saved; null = first round.
    pub state: Value,
    /// How much a device can count at most and at least; absent: the round had no guard.
    pub bounds: Option<Bounds>,
    /// N_m, by tier; absent: as many as there are devices.
    pub enrolled: Vec<Option<usize>>,
    /// The fairness target of the run; its state is `fairness` in `state`.
    pub fairness: Option<FairnessSettings>,
    /// The strategy of the run that wrote the file, and its parameters.
    pub strategy: Option<(String, Value)>,
}

/// A device that took part. Vectors are packed in the order of its tier's indices.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedDevice {
    /// Its name.
    pub id: DeviceId,
    /// The tier whose slice it trained.
    pub tier: Tier,
    /// n_i
    pub samples: u32,
    /// p of the strategies that use such a weight.
    pub weight: Option<f64>,
    /// F_i
    pub loss_before: Option<f64>,
    /// FK_i
    pub loss_after: Option<f64>,
    /// x_i: the received model on samples that the device does not train on.
    pub validation_loss: Option<f64>,
    /// v_i: squared standard error of x_i; absent: 0.
    pub validation_error: Option<f64>,
    /// theta_i - theta
    pub update: Option<Vec<f64>>,
    /// The same after the first step.
    pub first_update: Option<Vec<f64>>,
    /// The gradient of the loss at theta.
    pub gradient: Option<Vec<f64>>,
    /// r_k
    pub gap: Option<f64>,
    /// `(step, loss)`
    pub trial_losses: Option<Vec<(f64, f64)>>,
    /// Label x attributes + attribute.
    pub group_loss_sums: Vec<f64>,
    /// Samples by group, in the same order.
    pub group_counts: Vec<u32>,
    /// V_i
    pub sample_mass: Option<f64>,
}

/// The last gradient of an absent device.
#[derive(Clone, PartialEq, Debug)]
pub struct PastGradient {
    /// Its name.
    pub id: DeviceId,
    /// The tier whose slice it trained.
    pub tier: Tier,
    /// The round that it took part in last.
    pub round: u32,
    /// If it differs from that of this round.
    pub lr: Option<f64>,
    /// theta - theta_i: minus the update.
    pub gradient: Vec<f64>,
}

/// Why a round file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum RoundFileError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the file is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// `key` is the place in the file, such as `devices[2].update`.
    #[error("{key}: {why}")]
    Key { key: String, why: String },
    #[error(transparent)]
    Strategy(#[from] StrategyError),
}

impl RoundFileError {
    fn key(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Key { key: key.into(), why: why.into() }
    }
}

impl From<CombineError<Self>> for RoundFileError {
    fn from(error: CombineError<Self>) -> Self {
        match error {
            CombineError::Read(error) => error,
            CombineError::Strategy(error) => Self::Strategy(error),
            CombineError::Model { .. } => Self::key("parameters", error.to_string()),
            CombineError::Update { .. } => Self::key("devices", error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
