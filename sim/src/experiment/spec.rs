//! What an experiment file says. Unknown keys are refused everywhere.
//!
//! ```toml
//! title = "..."
//! model = "mnist-mlp"                 # zoo name, or mlp:in-100-10 with `in` for the data's inputs
//! start = "zero"                      # for models of one layer; absent: as the seed draws it
//! rounds = 300
//! seeds = [1, 2, 3]
//! data = { set = "mnist", partition = "dominant:0.8", clients = 100, testing = 0.1, validation = 0.1 }
//! fleet = { tiers = [1, 0.7, 0.5, 0.25, 0.125], participation = 1.0 }
//! training = { epochs = 1, batch = 50, lr = 0.001, optimizer = "adam" }
//! [[strategies]]
//! id = "fair"
//! name = "fairheterofl"
//! role = "ours"
//! choose = { grid = { q = [1, 10], q_m = [0, 0.1] }, by = "loss.variance" }
//! [[check]]                           # see crate::results::Check
//! [quick]                             # laid over everything above
//! rounds = 40
//! ```
//! A variant or a strategy may lay keys of its own over data, fleet, model and training with `with`.

use aggregator::config::{Start, TrainingConfig, WireConfig};
use models::tiers::TierSpec;
use serde::{Deserialize, Serialize};
use serde_json::Map;
use toml::Table;

use crate::{
    engine::{Chances, Hardware},
    partition::{Partition, Testing},
    results::{Check, Role},
};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    pub title: String,
    /// Stand-ins, decisions, what to look at.
    #[serde(default)]
    pub notes: String,
    pub seeds: Vec<u64>,
    /// Ids of the strategies to run; empty: all.
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

/// What a unit is made of, besides its strategy and seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Base {
    pub data: DataSpec,
    #[serde(default)]
    pub fleet: FleetSpec,
    pub model: String,
    /// Left out of fingerprints where it says nothing new.
    #[serde(default, skip_serializing_if = "is_drawn")]
    pub start: Start,
    pub training: TrainingConfig,
    /// How models and updates are encoded. Left out of fingerprints where it says nothing new.
    #[serde(default, skip_serializing_if = "is_plain")]
    pub wire: WireConfig,
    pub rounds: u32,
    /// All devices are scored before every so manieth round, whoever takes part in it; 0: those who do.
    #[serde(default)]
    pub evaluate_every: u32,
    /// Count update conflicts.
    #[serde(default)]
    pub conflicts: bool,
    /// Train every device alone, too, for loss gaps on test data.
    #[serde(default)]
    pub alone: Option<AloneSpec>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    pub set: String,
    pub partition: Partition,
    /// Absent where the partition knows.
    #[serde(default)]
    pub clients: Option<usize>,
    #[serde(default)]
    pub testing: TestingSpec,
    /// Training samples held out to choose parameters by.
    #[serde(default)]
    pub validation: ValidationSpec,
    /// Share of wrong labels.
    #[serde(default)]
    pub noise: f64,
    /// Training records that are used, drawn by the seed; absent: all.
    #[serde(default)]
    pub samples: Option<usize>,
    #[serde(default)]
    pub test_samples: Option<usize>,
    /// Score the set's own test part as a whole, too.
    #[serde(default = "yes")]
    pub global: bool,
}

fn is_plain(wire: &WireConfig) -> bool {
    *wire == WireConfig::default()
}

fn is_drawn(start: &Start) -> bool {
    *start == Start::Model
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_no(value: &bool) -> bool {
    !*value
}

fn yes() -> bool {
    true
}

/// A share of each client's training samples, or `"fifth"`: those that devices keep from training themselves
/// where a strategy goes by loss gaps. All strategies then train on the same samples.
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
    /// Widest first; clients are divided equally among them after a seeded shuffle.
    pub tiers: Vec<TierSpec>,
    pub participation: f64,
    pub deadline_s: f64,
    pub quorum: f64,
    pub chances: Chances,
    /// One for all tiers, or one for each; empty: all the same.
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
    /// Absent: that of training.
    #[serde(default)]
    pub lr: Option<f64>,
    /// End before that, when the loss is flat, as devices do for EAGLE.
    #[serde(default, skip_serializing_if = "is_no")]
    pub flat: bool,
}

/// A whole set of strategies under other circumstances.
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
    /// Absent: the id.
    #[serde(default)]
    pub label: Option<String>,
    /// A strategy of the aggregator, or `local`, `ufl`, `ffl_fedavg`, `cfl`.
    pub name: String,
    #[serde(default)]
    pub params: Map<String, serde_json::Value>,
    #[serde(default)]
    pub role: Role,
    #[serde(default)]
    pub choose: Option<Choose>,
    #[serde(default)]
    pub with: Table,
}

/// Parameters chosen on validation data, for every seed apart; test data are not looked at.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choose {
    /// All combinations of these values are tried.
    pub grid: Map<String, serde_json::Value>,
    /// A figure by its name; the lowest wins, of accuracies the highest.
    pub by: String,
    /// Only candidates whose mean loss is at most that of the reference, times 1 + slack, can win.
    #[serde(default)]
    pub slack: Option<f64>,
    /// Id of the strategy that is the reference; absent: the candidate with the lowest mean loss.
    #[serde(default)]
    pub reference: Option<String>,
}
