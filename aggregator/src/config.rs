//! The aggregator's configuration file. `default.toml` documents every key.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use common::{
    Codec, DeviceId, Tier,
    brief::{Brief, Optimizer},
    files::{self, MAX_CONFIG},
    transfer::LinkLimits,
};
use models::{plan::PlanOptions, tiers::TierSpec};
use serde::{Deserialize, Serialize};

use coordinator::{Settings, pacing::Deadlines};
use strategies::{
    fairness::FairnessSettings,
    guard::{Bonus, GuardConfig, Mode},
    method::Method,
    strategy::{Needs, PerTier},
};

use trainer::data::schema::{Schema, SchemaText, TextError};

mod check;
mod edit;
mod keys;

pub use edit::{replace_config, with_target};
pub use keys::{Key, keys};

/// The documented configuration, as `fairtier gateway init` writes it.
pub const DEFAULT: &str = include_str!("default.toml");

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Parse(#[from] toml::de::Error),
    #[error("{0}")]
    Edit(#[from] toml_edit::TomlError),
    #[error("the configuration cannot be written as TOML: {0}")]
    Write(#[from] toml::ser::Error),
    #[error(transparent)]
    Data(#[from] TextError),
    #[error("{key} = {value}: {why}")]
    Value { key: &'static str, value: String, why: &'static str },
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub model: ModelConfig,
    pub strategy: StrategyConfig,
    pub fairness: FairnessSettings,
    pub run: RunConfig,
    pub round: RoundConfig,
    pub guard: GuardConfig,
    pub training: TrainingConfig,
    pub wire: WireConfig,
    pub server: ServerConfig,
    pub store: StoreConfig,
    pub report: ReportConfig,
    pub dashboard: DashboardConfig,
    pub devices: BTreeMap<DeviceId, Tier>,
    /// What the columns of the devices' files mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<SchemaText>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    pub source: String,
    pub seed: u64,
    pub start: Start,
    pub tiers: Vec<TierSpec>,
}

/// The weights that a run begins with.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// Those drawn from the seed, or stored in the file.
    #[default]
    Model,
    /// All zero, so that the first predictions are the same for every device. For models of one layer; others would not learn.
    Zero,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StrategyConfig {
    pub name: String,
    pub params: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    pub rounds: u32,
    pub min_devices: usize,
    pub seed: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoundConfig {
    pub participation: f64,
    pub deadline_s: PerTier,
    pub quorum: PerTier,
    pub give_up_s: f64,
    pub over_selection: f64,
    pub arrivals_per_s: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    pub epochs: u16,
    pub batch: u16,
    pub lr: f64,
    pub lr_decay: f64,
    pub optimizer: OptimizerName,
    pub momentum: f32,
    pub nesterov: bool,
    pub weight_decay: f32,
    pub clip: f32,
    pub loss: LossBefore,
}

/// Which loss before training devices report.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossBefore {
    /// Of the received model on all training samples, in a separate pass.
    #[default]
    Received,
    /// Mean over the first epoch while it is trained: cheaper, lower, and noisier.
    Running,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerName {
    #[default]
    Sgd,
    Adam,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WireConfig {
    pub down: PerTier<Codec>,
    pub up: PerTier<Codec>,
    pub error_feedback: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    pub max_connections: usize,
    pub max_per_address: usize,
    pub max_handshakes_per_s: usize,
    pub max_uploads: usize,
    pub max_downloads: usize,
    pub max_message: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    pub keep_models: usize,
    pub keep_spool: bool,
    pub keep_reports: usize,
    pub history_rounds: u32,
    pub record: bool,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReportConfig {
    pub conflicts: bool,
}

/// Pages for browsers; see `http`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DashboardConfig {
    /// Empty: there is none.
    pub listen: String,
    pub actions: bool,
    pub names: Vec<String>,
}

impl DashboardConfig {
    /// The address, if there is a dashboard.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

impl Default for ModelConfig {
    fn default() -> Self {
        let tiers = [1.0, 0.7, 0.5, 0.25, 0.125].map(TierSpec::Rate).to_vec();
        Self { source: "digits-mlp".into(), seed: 0, start: Start::default(), tiers }
    }
}

impl Default for StrategyConfig {
    fn default() -> Self {
        Self { name: "fairheterofl".into(), params: serde_json::Map::new() }
    }
}

impl Default for RunConfig {
    fn default() -> Self {
        Self { rounds: 100, min_devices: 1, seed: 0 }
    }
}

impl Default for RoundConfig {
    fn default() -> Self {
        Self {
            participation: 1.0,
            deadline_s: 300.0.into(),
            quorum: 0.5.into(),
            give_up_s: 1200.0,
            over_selection: 1.0,
            arrivals_per_s: 100.0,
        }
    }
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            epochs: 1,
            batch: 16,
            lr: 0.1,
            lr_decay: 0.999,
            optimizer: OptimizerName::Sgd,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            clip: 0.0,
            loss: LossBefore::Received,
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 4433)),
            max_connections: 4096,
            max_per_address: 4096,
            max_handshakes_per_s: 1000,
            max_uploads: 32,
            max_downloads: 64,
            max_message: 256 << 20,
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { keep_models: 2, keep_spool: false, keep_reports: 100, history_rounds: 10_000, record: false }
    }
}

impl TrainingConfig {
    pub fn optimizer(&self) -> Optimizer {
        match (self.optimizer, Optimizer::ADAM) {
            (OptimizerName::Adam, Optimizer::Adam { beta1, beta2, epsilon, .. }) => {
                Optimizer::Adam { beta1, beta2, epsilon, decay: self.weight_decay }
            }
            _ => {
                Optimizer::Sgd { momentum: self.momentum, nesterov: self.nesterov, decay: self.weight_decay }
            }
        }
    }
}

impl Config {
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = files::read_text(path, MAX_CONFIG)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let mut config = Self::parse(&text)?;
        // The path of a model file is relative to the configuration that names it.
        let beside = path.parent().map(|dir| dir.join(&config.model.source));
        if let Some(file) = beside.filter(|file| file.is_file()) {
            config.model.source = file.to_string_lossy().into_owned();
        }
        if let (Some(dir), false) = (path.parent(), config.guard.probe.as_os_str().is_empty()) {
            config.guard.probe = dir.join(&config.guard.probe);
        }
        Ok(config)
    }

    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    /// The checked schema of `[data]`.
    pub fn schema(&self) -> Result<Option<Schema>, ConfigError> {
        Ok(self.data.clone().map(SchemaText::schema).transpose()?)
    }

    /// Checks that the strategy supports the optimizer and the guard's `bonus`.
    pub fn suits(&self, method: &Method) -> Result<(), ConfigError> {
        let (strategy, needs, guard) = (method.name(), method.needs(), &self.guard);
        if self.training.optimizer == OptimizerName::Adam && needs.sgd {
            return Err(ConfigError::Value {
                key: "training.optimizer",
                value: format!("adam with strategy {strategy}"),
                why: "this strategy needs local sgd",
            });
        }
        let averages = method.strategy.scope().is_none();
        if guard.mode == Mode::Bound && guard.bonus == Bonus::Agreeing && !averages {
            return Err(ConfigError::Value {
                key: "guard.bonus",
                value: format!("\"agreeing\" with strategy {strategy}"),
                why: "this strategy finds a direction and gives no bonus; use \"all\" or another strategy",
            });
        }
        Ok(())
    }

    /// What the Plan of a device must have room for.
    pub fn plan_options(&self, needs: Needs) -> PlanOptions {
        let optimizer = self.training.optimizer();
        let moments = optimizer.moments() as u8;
        PlanOptions {
            moments,
            // Plain SGD needs no room for gradients, unless their norm is asked for.
            fused: matches!(optimizer, Optimizer::Sgd { .. })
                && moments == 0
                && self.training.clip == 0.0
                && !needs.gradients
                && !needs.guide,
            error_feedback: self.wire.error_feedback,
            guide: needs.guide,
            personal: needs.personal,
            scaler: needs.scaler,
            ..PlanOptions::train(self.training.batch)
        }
    }

    pub fn settings(&self, needs: Needs) -> Settings {
        let training = &self.training;
        let brief = Brief {
            optimizer: training.optimizer(),
            clip: (training.clip > 0.0).then_some(training.clip),
            loss_after: needs.loss_after,
            running: training.loss == LossBefore::Running,
            product: needs.product,
            ..Brief::sgd(training.epochs, training.batch, training.lr as f32, self.run.seed)
        };
        Settings {
            rounds: self.run.rounds,
            min_devices: self.run.min_devices,
            participation: self.round.participation,
            deadlines: Deadlines {
                deadline_s: self.round.deadline_s.clone(),
                quorum: self.round.quorum.clone(),
                give_up_s: self.round.give_up_s,
            },
            over_selection: self.round.over_selection,
            arrivals_per_s: self.round.arrivals_per_s,
            brief,
            lr: self.training.lr,
            lr_decay: self.training.lr_decay,
            seed: self.run.seed,
            down: self.wire.down.clone(),
            up: self.wire.up.clone(),
            max_uploads: self.server.max_uploads,
            limits: LinkLimits::QUIC,
            needs,
            validate: needs.signal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_file_is_the_default_and_names_every_key() {
        let parsed = Config::parse(DEFAULT).unwrap();
        assert_eq!(parsed, Config::default());
        let documented: toml::Table = DEFAULT.parse().unwrap();
        let actual = toml::Table::try_from(Config::default()).unwrap();
        for (section, keys) in &actual {
            for key in keys.as_table().unwrap().keys() {
                assert!(documented[section].as_table().unwrap().contains_key(key), "{section}.{key}");
            }
        }
    }

    #[test]
    fn deadlines_and_quorums_may_differ_between_tiers() {
        let text = "[model]\ntiers = [1.0, 0.5]\n[round]\ndeadline_s = [60, 300]\nquorum = [0.8, 0]";
        let settings = Config::parse(text).unwrap().settings(Needs::default());
        let slow = Tier::new(1).unwrap();
        assert_eq!(settings.deadlines.deadline(slow), common::Duration::from_secs(300));
        assert_eq!(settings.deadlines.quorum.of(slow), Some(0.0));
    }

    #[test]
    fn agreement_is_refused_for_strategies_that_do_not_average() {
        let suits = |bonus: &str, strategy: &str| {
            let config = Config::parse(&format!("[guard]\nbonus = \"{bonus}\"")).unwrap();
            config.suits(&strategies::Registry::standard().method(strategy, serde_json::Value::Null).unwrap())
        };
        for strategy in ["fedfv", "fedmgda_plus", "fedmdfg", "fedlf"] {
            let error = suits("agreeing", strategy).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("guard.bonus = \"agreeing\" with strategy {strategy}: ")),
                "{error}"
            );
            assert!(suits("all", strategy).is_ok());
        }
        assert!(suits("agreeing", "fairheterofl").is_ok());
    }
}
