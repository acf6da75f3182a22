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
    plan::TaskKind,
    transfer::LinkLimits,
};
use models::{plan::PlanOptions, tiers::TierSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use coordinator::{
    Settings,
    best::{BestBy, BestSettings},
    pacing::Deadlines,
};
use strategies::{
    fairness::FairnessSettings,
    guard::{Bonus, GuardConfig, Mode},
    method::Method,
    strategy::{Needs, PerTier},
};

use trainer::data::schema::{Schema, SchemaText, Task, TextError};

mod advice;
mod check;
mod edit;
mod keys;
mod schema;

pub(crate) use advice::Advice;
pub(crate) use edit::{replace_config, with_target};
pub use keys::{Key, keys};
pub use schema::{schema, schema_text};

/// The documented configuration, as `fairtier gateway init` writes it.
pub const DEFAULT: &str = include_str!("default.toml");

/// Why a configuration cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
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

/// The whole of `fairtier.toml`. An absent table has its defaults; an unknown key is an error.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `[model]`: what is trained, and the slice of each tier.
    pub model: ModelConfig,
    /// `[strategy]`: how updates become the next model.
    pub strategy: StrategyConfig,
    /// `[fairness]`: a target for the disparity, which drives a parameter of the strategy.
    pub fairness: FairnessSettings,
    /// `[run]`: length, start and seed.
    pub run: RunConfig,
    /// `[round]`: which devices are asked, and how long they are waited for.
    pub round: RoundConfig,
    /// `[guard]`: bounds on the influence of one device.
    #[schemars(with = "schema::GuardText")]
    pub guard: GuardConfig,
    /// `[training]`: what devices do with their samples.
    pub training: TrainingConfig,
    /// `[wire]`: how models and updates are encoded.
    pub wire: WireConfig,
    /// `[server]`: address, and limits on connections and memory.
    pub server: ServerConfig,
    /// `[store]`: what is kept beyond the present model.
    pub store: StoreConfig,
    /// `[report]`: figures that cost additional time.
    pub report: ReportConfig,
    /// `[dashboard]`: pages for browsers.
    pub dashboard: DashboardConfig,
    /// `[log]`: how much is logged.
    pub log: LogConfig,
    /// `[devices]`: devices whose tier is fixed instead of the widest that fits.
    #[schemars(with = "schema::DevicesText")]
    pub devices: BTreeMap<DeviceId, Tier>,
    /// What the columns of the devices' files mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "schema::DataText")]
    pub data: Option<SchemaText>,
}

/// The table `[model]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// An ONNX file, a name of the zoo, or a description such as `mlp:64-32-10`. The default is `digits-mlp`.
    pub source: String,
    /// Seed of the initial weights of a zoo model; an ONNX file has its own.
    pub seed: u64,
    /// Initial weights of a new run.
    pub start: Start,
    /// What the model predicts; derived from its tail and `[data]` by default.
    pub task: TaskName,
    /// Slices, widest first: five by default, from all units of every hidden layer to an eighth.
    #[schemars(with = "Vec<schema::TierText>")]
    pub tiers: Vec<TierSpec>,
}

/// What the model predicts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskName {
    /// As `[data]` says, or else as the model ends.
    #[default]
    Auto,
    /// One of several classes per sample.
    Classification,
    /// One of two classes, by one output.
    Binary,
    /// Numbers.
    Regression,
    /// One class for every token of a sample.
    PerToken,
}

impl TaskName {
    fn kind(self) -> Option<TaskKind> {
        match self {
            Self::Auto => None,
            Self::Classification => Some(TaskKind::Classification),
            Self::Binary => Some(TaskKind::Binary),
            Self::Regression => Some(TaskKind::Regression),
            Self::PerToken => Some(TaskKind::PerToken),
        }
    }
}

/// The weights that a run begins with.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// Those drawn from the seed, or stored in the file.
    #[default]
    Model,
    /// All zero, so that the first predictions are the same for every device. For models of one layer; others would not learn.
    Zero,
}

/// The table `[strategy]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StrategyConfig {
    /// Name in the registry; `fairheterofl` by default.
    pub name: String,
    /// Parameters that differ from the defaults of the strategy. The strategy refuses unknown ones.
    pub params: serde_json::Map<String, serde_json::Value>,
}

/// The table `[run]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// Rounds of training, 100 by default. One more collects the scores of the final model.
    pub rounds: u32,
    /// Connected devices that the first round waits for; 1 by default.
    pub min_devices: usize,
    /// Seed of the order of samples, the selection of devices and rounding.
    pub seed: u64,
    /// What makes a model the best one.
    #[schemars(with = "schema::BestText")]
    pub best: BestBy,
    /// Training ends after this many models in a row that were not better; 0: never.
    pub stop_after: u32,
    /// A round is suspected of divergence above this many times the first losses; 0: never.
    pub divergence: f64,
}

/// The table `[round]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoundConfig {
    /// Share of the connected devices that is asked in a round, in (0, 1].
    pub participation: f64,
    /// Seconds that a tier is waited for while its devices give signs of life; 300 by default.
    pub deadline_s: PerTier,
    /// Share of a tier's devices without which a late round stays open; 0.5 by default.
    pub quorum: PerTier,
    /// Seconds after which a round closes with what has arrived; 1200 by default, 0 means never.
    pub give_up_s: f64,
    /// Factor, 1 to 10, on the devices that are asked. The round closes once the wanted number has delivered.
    pub over_selection: f64,
    /// Devices that may ask for work or reconnect in one second; their waits are spread to keep to it.
    pub arrivals_per_s: f64,
}

/// The table `[training]`. A strategy may change what a device is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Passes over the samples per round; 1 by default.
    pub epochs: u16,
    /// Samples per step; 16 by default. The Plan of a tier reserves memory for them.
    pub batch: u16,
    /// Learning rate of the first round; 0.1 by default.
    pub lr: f64,
    /// Factor on the learning rate after every round; 0.999 by default.
    pub lr_decay: f64,
    /// What a step does with the gradient. It decides how many copies of the slice a device holds.
    pub optimizer: OptimizerName,
    /// Momentum of SGD, in [0, 1). Any value above 0 costs a copy of the slice. Adam ignores it.
    pub momentum: f32,
    /// Takes the gradient where the momentum leads. Adam ignores it.
    pub nesterov: bool,
    /// Share of a weight that is added to its gradient; 0 by default. Adam applies it apart from its moments.
    pub weight_decay: f32,
    /// Largest norm of a gradient; 0 (the default) means no limit.
    pub clip: f32,
    /// The loss before training that devices report.
    pub loss: LossBefore,
}

/// Which loss before training devices report.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossBefore {
    /// Of the received model on all training samples, in a separate pass.
    #[default]
    Received,
    /// Mean over the first epoch while it is trained: cheaper, lower, and noisier.
    Running,
}

/// What a device does with its gradients, as `training.optimizer` names it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerName {
    /// Plain SGD, with `momentum` and `nesterov` if they are set.
    #[default]
    Sgd,
    /// Adam with its usual constants; two more copies of the slice on every device.
    Adam,
}

/// The table `[wire]`: one codec, or one per tier.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WireConfig {
    /// Codec of models on their way to devices; f32 by default.
    #[schemars(with = "PerTier<schema::CodecText>")]
    pub down: PerTier<Codec>,
    /// Codec of updates; f32 by default.
    #[schemars(with = "PerTier<schema::CodecText>")]
    pub up: PerTier<Codec>,
    /// Devices add the rounding error of int8 to their next update, for one more slice of memory.
    pub error_feedback: bool,
}

/// The table `[server]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// UDP address; `127.0.0.1:4433` by default. Port 0 takes any free one.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Devices that may be connected at once; 4096 by default.
    pub max_connections: usize,
    /// Connections from one address, or one IPv6 network of 64 bits; 4096 by default.
    pub max_per_address: usize,
    /// Handshakes per second from all addresses; 1000 by default.
    pub max_handshakes_per_s: usize,
    /// Updates that are held in memory at once; 32 by default. The others wait their turn.
    pub max_uploads: usize,
    /// Devices that are sent a model at once; 64 by default.
    pub max_downloads: usize,
    /// Bytes of the largest model or update, 256 MiB by default. A model that needs more is refused at the start.
    pub max_message: u32,
}

/// The table `[store]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Models that are kept, the present one included; 2 by default. A rollback can go back to them.
    pub keep_models: usize,
    /// Keeps the updates of finished rounds on disk.
    pub keep_spool: bool,
    /// Reports that stay in the database; 100 by default. The history files have all of them.
    pub keep_reports: usize,
    /// Rounds in one file of the history; 10,000 by default.
    pub history_rounds: u32,
    /// Writes every round as a round file, which costs the bytes of all its updates.
    pub record: bool,
}

/// The table `[report]`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReportConfig {
    /// Counts the devices whose loss a step raises. It reads all updates of the round once more.
    pub conflicts: bool,
}

/// `[dashboard]`: pages for browsers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DashboardConfig {
    /// Address of the pages; empty: there are none.
    pub listen: String,
    /// Operators can change the run on the pages.
    pub actions: bool,
    /// Further names of the gateway for its certificate.
    pub names: Vec<String>,
}

impl DashboardConfig {
    /// The address, if there is a dashboard.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

/// Events with this target are logged at every level: who has logged in to the dashboard, and what operators have done there.
pub const OPERATOR_LOG: &str = "fairtier::operator";

/// The table `[log]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// A level such as `info`, or a filter of tracing; `--log` takes precedence.
    pub level: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".into() }
    }
}

impl Default for ModelConfig {
    fn default() -> Self {
        let tiers = [1.0, 0.7, 0.5, 0.25, 0.125].map(TierSpec::Rate).to_vec();
        Self { source: "digits-mlp".into(), seed: 0, start: Start::default(), task: TaskName::Auto, tiers }
    }
}

impl Default for StrategyConfig {
    fn default() -> Self {
        Self { name: "fairheterofl".into(), params: serde_json::Map::new() }
    }
}

impl Default for RunConfig {
    fn default() -> Self {
        Self { rounds: 100, min_devices: 1, seed: 0, best: BestBy::Mean, stop_after: 0, divergence: 10.0 }
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
    /// The optimizer with its constants, as a brief tells it to devices.
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
    /// Reads and checks a file. The paths of a model and of a probe are then relative to its directory.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = files::read_text(path, MAX_CONFIG)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let mut config = Self::parse(&text)?;
        // The path of a model file is relative to the configuration that names it.
        let beside = path.parent().map(|dir| dir.join(&config.model.source));
        let is_path = config.model.source.ends_with(".onnx");
        if let Some(file) = beside.filter(|file| is_path || file.is_file()) {
            config.model.source = file.to_string_lossy().into_owned();
        }
        if let (Some(dir), false) = (path.parent(), config.guard.probe.as_os_str().is_empty()) {
            config.guard.probe = dir.join(&config.guard.probe);
        }
        Ok(config)
    }

    /// Reads and checks a text. Fails at an unknown key, and at a value outside its range.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    /// The checked schema of `[data]`.
    pub fn schema(&self) -> Result<Option<Schema>, ConfigError> {
        Ok(self.data.clone().map(SchemaText::schema).transpose()?)
    }

    /// The task that `[data]` or `model.task` states, if any.
    pub fn task(&self) -> Result<Option<TaskKind>, ConfigError> {
        let columns = self.schema()?.map(|schema| match schema.task {
            Task::Classification => TaskKind::Classification,
            Task::Binary => TaskKind::Binary,
            Task::Regression => TaskKind::Regression,
        });
        match (self.model.task.kind(), columns) {
            (Some(stated), Some(columns)) if stated != columns => Err(ConfigError::Value {
                key: "model.task",
                value: format!("\"{}\", and data.task = \"{}\"", stated.name(), columns.name()),
                why: "both must state the same task; remove model.task",
            }),
            (stated, columns) => Ok(stated.or(columns)),
        }
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
        if method.strategy.rolls() && self.wire.error_feedback {
            return Err(ConfigError::Value {
                key: "wire.error_feedback",
                value: format!("true with strategy {strategy}"),
                why: "devices hold other units in every round, so a rounding error cannot be made up for",
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

    /// What the Coordinator is told, with the limits of QUIC.
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
            best: BestSettings { by: self.run.best, stop_after: self.run.stop_after },
            divergence: self.run.divergence,
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
