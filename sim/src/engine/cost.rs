//! How long a device takes, and whether it answers at all.
//!
//! ```text
//! span = 2 latency + bytes down / speed + MACs / speed * straggling + bytes up / speed
//! ```
//! A forward pass costs the Plan's MACs per sample, a training pass three times that.

use client::data::Shard;
use common::{
    Codec, DeviceId, Duration, ExchangeId,
    message::Task,
    plan::{Plan, PlanError},
    rng::{Rng, derive},
    wire::crc32,
};
use coordinator::announcement::update_bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strategies::tiered::TierPlan;

/// Speed and energy of a device.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hardware {
    /// Multiply-accumulate operations per second.
    pub macs_per_s: f64,
    /// Bytes per second to the device.
    pub down_bytes_per_s: f64,
    /// Bytes per second from the device.
    pub up_bytes_per_s: f64,
    /// One way, in milliseconds.
    pub latency_ms: f64,
    /// Energy per million MACs, in millijoules.
    pub mj_per_mmac: f64,
    /// Energy per kilobyte on the link, in millijoules.
    pub mj_per_kb: f64,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            macs_per_s: 1e9,
            down_bytes_per_s: 1e6,
            up_bytes_per_s: 1e6,
            latency_ms: 50.0,
            mj_per_mmac: 1.0,
            mj_per_kb: 5.0,
        }
    }
}

/// How often devices drop out or are slow.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Chances {
    /// Probability that a device does not answer an exchange.
    pub dropout: f64,
    /// Probability that a device is slow in an exchange.
    pub straggler: f64,
    /// Factor by which a slow device is slower.
    pub slowdown: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// What one exchange costs one device.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Cost {
    /// Multiply-accumulate operations.
    pub macs: f64,
    /// Bytes to the device.
    pub down: f64,
    /// Bytes from the device.
    pub up: f64,
}

/// Why the cost of a task cannot be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// The plan does not pass its check.
    #[error("its plan cannot be executed: {0}")]
    Plan(#[from] PlanError),
    /// A transfer has at most 4 GiB.
    #[error("its model or update is longer than 4 GiB")]
    TooLong,
}

/// The cost of a task; `guided`: a guide is sent along with the model.
pub fn of(
    task: &Task,
    plan: &TierPlan,
    shard: &dyn Shard,
    codec: Codec,
    guided: bool,
) -> Result<Cost, CostError> {
    let checked = Plan::check(&plan.info, &plan.nodes, &plan.schedule)?;
    let (train, test) = (f64::from(shard.train_len()), f64::from(shard.test_len()));
    let evaluated = train + test;
    let samples = match task {
        Task::Train(brief) => {
            let after = if brief.loss_after { train } else { 0.0 };
            evaluated + 3.0 * train * f64::from(brief.epochs.max(1)) + after
        }
        Task::Alone(task) => 3.0 * train * f64::from(task.brief.epochs),
        Task::Evaluate(_) => evaluated,
        Task::Try(steps) => train * (1.0 + steps.len() as f64),
    };
    let model = codec.encoded_len(plan.info.params as usize).ok_or(CostError::TooLong)?;
    let down = f64::from(model) * if guided { 2.0 } else { 1.0 };
    let up = update_bytes(task, checked.trained()).ok_or(CostError::TooLong)?;
    Ok(Cost { macs: checked.macs() as f64 * samples, down, up: up.into() })
}

impl Chances {
    /// How long the device takes; `None` if it drops out.
    pub(super) fn span(
        &self,
        cost: &Cost,
        hardware: &Hardware,
        exchange: ExchangeId,
        device: &DeviceId,
    ) -> Option<Duration> {
        let name = u64::from(crc32(device.as_str().as_bytes()));
        let exchange = u64::from(exchange.round) << 8 | u64::from(exchange.exchange);
        let mut rng = Rng::new(derive(derive(self.seed, exchange), name));
        if rng.unit_f64() < self.dropout {
            return None;
        }
        let slow = if rng.unit_f64() < self.straggler { self.slowdown.max(1.0) } else { 1.0 };
        let seconds = cost.down / hardware.down_bytes_per_s
            + slow * cost.macs / hardware.macs_per_s
            + cost.up / hardware.up_bytes_per_s
            + 2.0 * hardware.latency_ms / 1000.0;
        Some(Duration::from_millis((seconds * 1000.0).ceil() as u64))
    }
}
