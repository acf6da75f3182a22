//! The format of experiment files. Unknown keys are refused everywhere.
//!
//! ```toml
//! title = "..."
//! model = "mnist-mlp"                 # zoo name, or mlp:in-100-10 with `in` for the data's inputs
//! start = "zero"                      # for models of one layer; default: drawn from the seed
//! rounds = 300
//! seeds = [1, 2, 3]
//! data = { set = "mnist", partition = "dominant:0.8", clients = 100, testing = 0.1, validation = 0.1 }
//! fleet = { tiers = [1, 0.7, 0.5, 0.25, 0.125], participation = 1.0 }
//! training = { epochs = 1, batch = 50, lr = 0.001, optimizer = "adam" }
//! fairness = { target = 0.3 }         # of the strategies with a parameter for it; a strategy may have its own
//! [[strategies]]
//! id = "fair"
//! name = "fairheterofl"
//! role = "ours"
//! choose = { grid = { q = [1, 10], q_m = [0, 0.1] }, by = "loss.variance" }
//! [[check]]                           # see crate::results::Check
//! [quick]                             # overrides the keys above
//! rounds = 40
//! ```
//! Data of one's own: `data = { csv = "wine.csv", label = "class", partition = "column:site" }`. Paths are relative to the file.
//!
//! A variant or a strategy may override keys of data, fleet, model and training with `with`.

use std::{collections::BTreeMap, path::PathBuf};

use aggregator::config::{Start, TrainingConfig, WireConfig};
use models::tiers::TierSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Map;
use strategies::{
    fairness::FairnessSettings,
    guard::{GuardConfig, Mode as GuardMode},
};
use toml::Table;

pub use super::source::SchemaSpec;
use crate::{
    engine::{Chances, Hardware},
    partition::{Partition, Testing},
    results::{Check, Role},
};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// One line for tables and reports.
    pub title: String,
    /// Substitutes for data, decisions, and hints for readers.
    #[serde(default)]
    pub notes: String,
    /// Every strategy runs once with each of them.
    pub seeds: Vec<u64>,
    /// Ids of the strategies to run; empty means all.
    #[serde(default)]
    pub only: Vec<String>,
    #[serde(flatten)]
    pub base: Base,
    /// Other keys for all strategies, each variant under its own id.
    #[serde(default)]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub variants: Vec<Variant>,
    /// What is compared.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub strategies: Vec<StrategySpec>,
    /// What should come out; reports show whether it did.
    #[serde(default, rename = "check")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub checks: Vec<Check>,
}

/// The configuration of a unit, except its strategy and seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Base {
    /// Samples and their division.
    #[schemars(with = "serde_json::Value")]
    pub data: DataSpec,
    /// Devices, and how often they fail.
    #[serde(default)]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub fleet: FleetSpec,
    /// A zoo model, an ONNX file beside the experiment, or layers as in `mlp:in-32-out`; `in` and `out` are the sizes of the data.
    pub model: String,
    /// `model` starts with the weights of the file or drawn ones, `zero` with zeros, for models of one layer.
    // Not part of fingerprints if it has the default value.
    #[serde(default, skip_serializing_if = "is_drawn")]
    #[schemars(with = "String")]
    pub start: Start,
    /// Keys of `[training]` of `fairtier.toml`.
    #[schemars(with = "serde_json::Value")]
    pub training: TrainingConfig,
    /// How models and updates are encoded: keys of `[wire]`.
    // Not part of fingerprints if it has the default value.
    #[serde(default, skip_serializing_if = "is_plain")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub wire: WireConfig,
    /// The gateway's guard: `true` as it ships, `false`, or keys of `[guard]`; the papers' algorithms have none.
    // Not part of fingerprints if it is off.
    #[serde(default, skip_serializing_if = "GuardSpec::is_off")]
    #[schemars(with = "bool")]
    pub guard: GuardSpec,
    /// The fairness target: keys of `[fairness]`.
    // Not part of fingerprints if it has the default value.
    #[serde(default, skip_serializing_if = "is_untargeted")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub fairness: FairnessSettings,
    /// Rounds of training.
    pub rounds: u32,
    /// All devices are scored before every n-th round. With 0, only the devices that take part are scored.
    #[serde(default)]
    pub evaluate_every: u32,
    /// Count update conflicts.
    #[serde(default)]
    pub conflicts: bool,
    /// Also train every device alone, to compute loss gaps on test data.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Value>")]
    pub alone: Option<AloneSpec>,
    /// The directory of the experiment file, to which paths are relative.
    #[serde(skip)]
    pub dir: PathBuf,
    /// SHA-256 of the files that the experiment names, by path. Part of fingerprints.
    #[serde(skip_deserializing, skip_serializing_if = "BTreeMap::is_empty")]
    pub digests: BTreeMap<PathBuf, String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// A known set by name, as `fairtier sim data list` prints it. Files of your own take its place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set: String,
    /// A CSV file with a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<PathBuf>,
    /// An `.npz` archive with the arrays `x` and `y`, or those of the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub npz: Option<PathBuf>,
    /// An `.npy` file of inputs; `labels` names its labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub npy: Option<PathBuf>,
    /// An IDX file of images, as MNIST has them; `labels` names its labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idx: Option<PathBuf>,
    /// Images, one folder inside for each class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Labels of an `.npy` or IDX file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<PathBuf>,
    /// Column of the label in a CSV file without a schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What columns mean: a file that `fairtier data schema` wrote, or its table `[data]` itself. Without it, a schema of a CSV file is
    /// proposed from its samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub schema: Option<SchemaSpec>,
    /// Test samples in the same format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<PathBuf>,
    /// Labels of an `.npy` or IDX test file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_labels: Option<PathBuf>,
    /// How samples are divided among devices; see the table of partitions.
    #[serde(default = "iid")]
    #[schemars(with = "String")]
    pub partition: Partition,
    /// Number of devices, unless the partition determines it.
    #[serde(default)]
    pub clients: Option<usize>,
    /// Share of each device's samples for tests, or `"proportional"`: the test part is divided as training is, which is usual with `test`.
    #[serde(default, serialize_with = "stated_testing")]
    #[schemars(with = "serde_json::Value")]
    pub testing: Option<TestingSpec>,
    /// Share of each device's training samples for validation, or `"fifth"`: every fifth, as devices hold out themselves.
    #[serde(default)]
    #[schemars(with = "serde_json::Value")]
    pub validation: ValidationSpec,
    /// Share of wrong labels.
    #[serde(default)]
    pub noise: f64,
    /// Number of training records that are used, drawn by the seed; all if it is absent.
    #[serde(default)]
    pub samples: Option<usize>,
    /// The same for the test part.
    #[serde(default)]
    pub test_samples: Option<usize>,
    /// Side of the squares of pixels that are replaced by their mean; pixels are then scaled to mean 0 and deviation 1. With 1,
    /// images stay as they are.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub pool: usize,
    /// Also score the whole test part of the set.
    #[serde(default = "yes")]
    pub global: bool,
}

impl DataSpec {
    /// Whether devices have validation samples.
    pub fn has_validation(&self) -> bool {
        !matches!(self.validation, ValidationSpec::Share(share) if share <= 0.0)
    }

    pub fn testing(&self) -> Testing {
        let proportional = TestingSpec::Word(ProportionalWord::Proportional);
        let unstated = if self.test.is_some() { proportional } else { TestingSpec::default() };
        self.testing.unwrap_or(unstated).into()
    }
}

/// Fingerprints hold the value that was the default before there were files of one's own.
#[expect(clippy::ref_option, reason = "serde requires this signature")]
fn stated_testing<S: Serializer>(testing: &Option<TestingSpec>, serializer: S) -> Result<S::Ok, S::Error> {
    testing.unwrap_or_default().serialize(serializer)
}

fn iid() -> Partition {
    Partition::Iid
}

/// The guard of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "`guard` must be true, false, or keys of [guard]")]
pub enum GuardSpec {
    /// As the gateway ships it, or none.
    Shipped(bool),
    /// With these keys of `[guard]`; the others are as shipped.
    Keys(GuardConfig),
}

impl Default for GuardSpec {
    fn default() -> Self {
        Self::Shipped(false)
    }
}

impl GuardSpec {
    fn is_off(&self) -> bool {
        *self == Self::default()
    }

    /// As a gateway is configured.
    pub fn config(&self) -> GuardConfig {
        match self {
            Self::Shipped(true) => GuardConfig::default(),
            Self::Shipped(false) => GuardConfig { mode: GuardMode::Off, ..GuardConfig::default() },
            Self::Keys(config) => config.clone(),
        }
    }
}

fn is_plain(wire: &WireConfig) -> bool {
    *wire == WireConfig::default()
}

fn is_untargeted(fairness: &FairnessSettings) -> bool {
    *fairness == FairnessSettings::default()
}

fn is_drawn(start: &Start) -> bool {
    *start == Start::Model
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_no(value: &bool) -> bool {
    !*value
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_one(value: &usize) -> bool {
    *value == 1
}

fn yes() -> bool {
    true
}

/// A share of each client's training samples, or `"fifth"`: the samples that devices hold out themselves under
/// strategies that use loss gaps. All strategies then train on the same samples.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "`validation` must be a share from 0 to 1, or \"fifth\"")]
pub enum ValidationSpec {
    Share(f64),
    Word(FifthWord),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FifthWord {
    Fifth,
}

impl Default for ValidationSpec {
    fn default() -> Self {
        Self::Share(0.0)
    }
}

/// A share of each client's samples, or `"proportional"`: the set's test part, divided like training.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "`testing` must be a share from 0 to 1, or \"proportional\"")]
pub enum TestingSpec {
    HoldOut(f64),
    Word(ProportionalWord),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProportionalWord {
    Proportional,
}

impl Default for TestingSpec {
    fn default() -> Self {
        Self::HoldOut(0.1)
    }
}

impl From<TestingSpec> for Testing {
    fn from(spec: TestingSpec) -> Self {
        match spec {
            TestingSpec::HoldOut(share) => Self::HoldOut(share),
            TestingSpec::Word(ProportionalWord::Proportional) => Self::Proportional,
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FleetSpec {
    /// Widest first. Clients are divided equally among them after a seeded shuffle.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub tiers: Vec<TierSpec>,
    /// Share of devices that a round asks.
    pub participation: f64,
    /// Virtual seconds after which a round no longer waits.
    pub deadline_s: f64,
    /// Share of the asked devices that a round needs.
    pub quorum: f64,
    /// Devices that drop out or are slow.
    #[schemars(with = "serde_json::Value")]
    pub chances: Chances,
    /// One entry for all tiers, or one for each; empty means equal hardware.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub hardware: Vec<Hardware>,
}

impl Default for FleetSpec {
    fn default() -> Self {
        Self {
            tiers: vec![TierSpec::WHOLE],
            participation: 1.0,
            deadline_s: 1e6,
            quorum: 0.5,
            chances: Chances::default(),
            hardware: vec![],
        }
    }
}

/// How a device trains alone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AloneSpec {
    /// Epochs of each device.
    pub epochs: u16,
    /// Learning rate, unless it is that of `training`.
    #[serde(default)]
    pub lr: Option<f64>,
    /// Stop earlier when the loss is flat, as devices do for EAGLE.
    #[serde(default, skip_serializing_if = "is_no")]
    pub flat: bool,
}

/// The same strategies with another base configuration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Unique; part of file names.
    pub id: String,
    /// Text for tables and plots, unless it is the id.
    #[serde(default)]
    pub label: String,
    /// Keys of data, fleet, model and training that differ.
    #[serde(default)]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub with: Table,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StrategySpec {
    /// Unique; part of file names.
    pub id: String,
    /// Text for tables and plots, unless it is the id.
    #[serde(default)]
    pub label: Option<String>,
    /// A strategy of the registry, or `local`, `ufl`, `ffl_fedavg`, `cfl`.
    pub name: String,
    /// Parameters of the strategy.
    #[serde(default)]
    pub params: Map<String, serde_json::Value>,
    /// `ours` or `baseline`: its side in reports.
    #[serde(default)]
    #[schemars(with = "String")]
    pub role: Role,
    /// Ids of the variants with which it is run; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// Chooses parameters on validation samples, separately for every seed.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Value>")]
    pub choose: Option<Choose>,
    /// Keys of data, fleet, model and training that differ.
    #[serde(default)]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub with: Table,
    /// Keys of `fairness` for this strategy alone. A strategy that cannot follow a target of its own is refused.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub fairness: Table,
    /// Sets the target of each seed from the results of two other strategies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub reach: Option<Reach>,
}

/// A target between the disparities that two other strategies end with, on validation samples and with the same seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// Id of a strategy that stands earlier in the file, at the unfair end.
    pub from: String,
    /// The same at the fair end.
    pub to: String,
    /// 0 is the disparity of `from`, 1 that of `to`.
    pub share: f64,
}

/// Parameters chosen on validation data, separately for every seed. Test data is not used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Choose {
    /// Values to try; every combination is tried.
    pub grid: Map<String, serde_json::Value>,
    /// Name of a figure. The lowest value wins; for accuracies the highest.
    pub by: String,
    /// Only candidates whose mean loss is at most that of the reference times 1 + slack can win.
    #[serde(default)]
    pub slack: Option<f64>,
    /// Id of the reference strategy, unless it is the candidate with the lowest mean loss.
    #[serde(default)]
    pub reference: Option<String>,
}
