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

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    pub title: String,
    /// Substitutes for data, decisions, and hints for readers.
    #[serde(default)]
    pub notes: String,
    pub seeds: Vec<u64>,
    /// Ids of the strategies to run; empty means all.
    #[serde(default)]
    pub only: Vec<String>,
    #[serde(flatten)]
    pub base: Base,
    #[serde(default)]
    pub variants: Vec<Variant>,
    pub strategies: Vec<StrategySpec>,
    #[serde(default, rename = "check")]
    pub checks: Vec<Check>,
}

/// The configuration of a unit, except its strategy and seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Base {
    pub data: DataSpec,
    #[serde(default)]
    pub fleet: FleetSpec,
    pub model: String,
    /// Not part of fingerprints if it has the default value.
    #[serde(default, skip_serializing_if = "is_drawn")]
    pub start: Start,
    pub training: TrainingConfig,
    /// How models and updates are encoded. Not part of fingerprints if it has the default value.
    #[serde(default, skip_serializing_if = "is_plain")]
    pub wire: WireConfig,
    /// The gateway's guard: as it ships, or with these keys of `[guard]`; the papers' algorithms have none. Not part of
    /// fingerprints if it is off.
    #[serde(default, skip_serializing_if = "GuardSpec::is_off")]
    pub guard: GuardSpec,
    /// The fairness target. Not part of fingerprints if it has the default value.
    #[serde(default, skip_serializing_if = "is_untargeted")]
    pub fairness: FairnessSettings,
    pub rounds: u32,
    /// All devices are scored before every n-th round. With 0, only the devices that take part are scored.
    #[serde(default)]
    pub evaluate_every: u32,
    /// Count update conflicts.
    #[serde(default)]
    pub conflicts: bool,
    /// Also train every device alone, to compute loss gaps on test data.
    #[serde(default)]
    pub alone: Option<AloneSpec>,
    /// The directory of the experiment file, to which paths are relative.
    #[serde(skip)]
    pub dir: PathBuf,
    /// SHA-256 of the files that the experiment names, by path. Part of fingerprints.
    #[serde(skip_deserializing, skip_serializing_if = "BTreeMap::is_empty")]
    pub digests: BTreeMap<PathBuf, String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// A set by name; empty for files of one's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub npz: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub npy: Option<PathBuf>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<SchemaSpec>,
    /// Test samples in the same format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_labels: Option<PathBuf>,
    #[serde(default = "iid")]
    pub partition: Partition,
    /// `None` if the partition determines the number.
    #[serde(default)]
    pub clients: Option<usize>,
    /// `None` means a tenth, or `"proportional"` with `test`.
    #[serde(default, serialize_with = "stated_testing")]
    pub testing: Option<TestingSpec>,
    /// Training samples that are held out for validation.
    #[serde(default)]
    pub validation: ValidationSpec,
    /// Share of wrong labels.
    #[serde(default)]
    pub noise: f64,
    /// Number of training records that are used, drawn by the seed; `None` means all.
    #[serde(default)]
    pub samples: Option<usize>,
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

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FleetSpec {
    /// Widest first. Clients are divided equally among them after a seeded shuffle.
    pub tiers: Vec<TierSpec>,
    pub participation: f64,
    pub deadline_s: f64,
    pub quorum: f64,
    pub chances: Chances,
    /// One entry for all tiers, or one for each; empty means equal hardware.
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AloneSpec {
    pub epochs: u16,
    /// Learning rate; `None` means that of `training`.
    #[serde(default)]
    pub lr: Option<f64>,
    /// Stop earlier when the loss is flat, as devices do for EAGLE.
    #[serde(default, skip_serializing_if = "is_no")]
    pub flat: bool,
}

/// The same strategies with another base configuration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub id: String,
    #[serde(default)]
    pub label: String,
    #[serde(default)]
    pub with: Table,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrategySpec {
    pub id: String,
    /// Label in reports; `None` means the id.
    #[serde(default)]
    pub label: Option<String>,
    /// A strategy of the registry, or `local`, `ufl`, `ffl_fedavg`, `cfl`.
    pub name: String,
    #[serde(default)]
    pub params: Map<String, serde_json::Value>,
    #[serde(default)]
    pub role: Role,
    #[serde(default)]
    pub choose: Option<Choose>,
    #[serde(default)]
    pub with: Table,
    /// Keys of `fairness` for this strategy alone. A strategy that cannot follow a target of its own is refused.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub fairness: Table,
    /// Sets the target of each seed from the results of two other strategies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
}

/// A target between the disparities that two other strategies end with, on validation samples and with the same seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choose {
    /// Values to try; every combination is tried.
    pub grid: Map<String, serde_json::Value>,
    /// Name of a figure. The lowest value wins; for accuracies the highest.
    pub by: String,
    /// Only candidates whose mean loss is at most that of the reference times 1 + slack can win.
    #[serde(default)]
    pub slack: Option<f64>,
    /// Id of the reference strategy; `None` means the candidate with the lowest mean loss.
    #[serde(default)]
    pub reference: Option<String>,
}
