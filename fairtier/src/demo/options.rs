//! The options of the demo.
//!
//! The defaults were chosen on seeds 101 to 103, not on the seed that is shown. Rounds and learning rate give the
//! lowest mean loss of HeteroFL (rates 0.3, 0.5 and 0.8 were tried). With them, `q = 1, q_m = 0.1` lowers the
//! variance on all three seeds without raising the mean; `q = 2` raises it on one. `step = reweight`, because the
//! published Hessian bound shortens steps here, to a quarter in early rounds. After the same number of rounds its
//! mean loss is 12 % higher than HeteroFL's.

use std::net::{Ipv4Addr, SocketAddr};

use aggregator::config::{
    Config, ModelConfig, RoundConfig, RunConfig, ServerConfig, StrategyConfig, TrainingConfig,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use strategies::methods::FairHeteroFlParams;

/// Largest number of devices per tier that a laptop and the built-in data support.
const MAX_PER_TIER: usize = 40;
const MAX_ROUNDS: u32 = 100_000;

/// What the demo runs.
#[derive(Clone, PartialEq, Debug)]
pub struct DemoOptions {
    /// Rounds of training per strategy.
    pub rounds: u32,
    /// Seed of the data split, the initial model and the order of samples.
    pub seed: u64,
    /// Devices in each tier.
    pub devices_per_tier: usize,
    /// How devices train in a round.
    pub training: Training,
    /// Parameters of FairHeteroFL.
    pub fair: Map<String, Value>,
}

/// How devices train in a round.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Training {
    /// Passes over the samples.
    pub epochs: u16,
    /// Samples per step.
    pub batch: u16,
    /// Learning rate of the first round.
    pub lr: f64,
    /// Factor of the learning rate from round to round.
    pub lr_decay: f64,
}

/// An option with an invalid value.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadOption {
    #[error("rounds = {0}: must be between 1 and {MAX_ROUNDS}")]
    Rounds(u32),
    #[error("devices per tier = {0}: must be between 1 and {MAX_PER_TIER}")]
    DevicesPerTier(usize),
    #[error(
        "strategy parameters: {0}; give a JSON object as in {{\"q\": 2, \"q_m\": 0.5, \"step\": \"reweight\"}}"
    )]
    StrategyParams(String),
}

/// One of the strategies that are compared.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ComparedStrategy {
    pub name: &'static str,
    pub title: &'static str,
    pub params: Map<String, Value>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            rounds: 400,
            seed: 1,
            devices_per_tier: 4,
            training: Training { epochs: 1, batch: 16, lr: 0.5, lr_decay: 0.99 },
            fair: Self::default_fair(),
        }
    }
}

impl DemoOptions {
    fn default_fair() -> Map<String, Value> {
        match json!({ "q": 1, "q_m": 0.1, "step": "reweight" }) {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    /// Sets parameters of FairHeteroFL from a JSON object. Parameters that are not given keep their value.
    pub fn with_strategy_params(mut self, text: &str) -> Result<Self, BadOption> {
        let bad = |why: String| BadOption::StrategyParams(why);
        let given: Map<String, Value> = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        self.fair.extend(given);
        self.check()?;
        Ok(self)
    }

    /// Checks all options.
    pub fn check(&self) -> Result<(), BadOption> {
        if !(1..=MAX_ROUNDS).contains(&self.rounds) {
            return Err(BadOption::Rounds(self.rounds));
        }
        if !(1..=MAX_PER_TIER).contains(&self.devices_per_tier) {
            return Err(BadOption::DevicesPerTier(self.devices_per_tier));
        }
        let refused = |why: &dyn std::fmt::Display| BadOption::StrategyParams(why.to_string());
        let params = Value::from(self.fair.clone());
        strategies::Registry::standard()
            .method("fairheterofl", params.clone())
            .map_err(|error| refused(&error))?;
        // Checked here rather than after the first run.
        let params: FairHeteroFlParams = serde_json::from_value(params).map_err(|error| refused(&error))?;
        params.q_m.fits("q_m", ModelConfig::default().tiers.len()).map_err(|error| refused(&error))
    }

    /// The compared strategies, the baseline first.
    pub(super) fn strategies(&self) -> [ComparedStrategy; 2] {
        [
            ComparedStrategy { name: "heterofl", title: "HeteroFL", params: Map::new() },
            ComparedStrategy { name: "fairheterofl", title: "FairHeteroFL", params: self.fair.clone() },
        ]
    }

    /// The configuration that an operator would write into `fairtier.toml`.
    pub(super) fn config(&self, strategy: &ComparedStrategy, devices: usize) -> Config {
        let Training { epochs, batch, lr, lr_decay } = self.training;
        Config {
            model: ModelConfig { seed: self.seed, ..ModelConfig::default() },
            strategy: StrategyConfig { name: strategy.name.into(), params: strategy.params.clone() },
            run: RunConfig { rounds: self.rounds, min_devices: devices, seed: self.seed },
            // All devices take part in every round; otherwise results would depend on timing.
            round: RoundConfig { quorum: 1.0.into(), ..RoundConfig::default() },
            training: TrainingConfig { epochs, batch, lr, lr_decay, ..TrainingConfig::default() },
            server: ServerConfig {
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                ..ServerConfig::default()
            },
            ..Config::default()
        }
    }
}
