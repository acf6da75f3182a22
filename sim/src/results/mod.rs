//! Results of experiments, one [`UnitResult`] for every (experiment, profile, setting, seed).
//!
//! Files under `--out` (default `results/`):
//! ```text
//! <experiment>/<profile>/experiment.json      ExperimentRecord: settings, checks
//! <experiment>/<profile>/<setting>-s<seed>.json   UnitResult
//! <experiment>/<profile>/<setting>-s<seed>.csv    its rounds, one line each
//! ```
//! Results that are [kept](crate::keep) with the source are one file, `<experiment>.<profile>.jsonl`: the record on
//! the first line, and one line per unit. Readers accept both forms.
//!
//! Losses are cross-entropies in nats, accuracies are shares in [0, 1], variances have divisor N.

mod check;
pub(crate) mod figure;
mod files;
mod lookup;
mod target;

use std::path::{Path, PathBuf};

use common::metrics::Spread;
use serde::{Deserialize, Serialize};

pub use check::{Check, Measure, Take, Want};
use files::KEPT;
pub use files::{ResultsError, write};
pub(crate) use files::{RECORD, is_experiment, read, read_all, read_experiment, read_units};
pub use target::{KnobPoint, TargetFigures, TargetResult};

/// Version of these files; units of another version are run again.
pub const FORMAT: u32 = 1;

/// Description of an experiment, written beside its units.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExperimentRecord {
    pub format: u32,
    pub experiment: String,
    pub profile: String,
    pub title: String,
    /// Remarks on data, substitutes and decisions.
    pub notes: String,
    /// The experiment with profile and `--set` applied, as TOML.
    pub toml: String,
    pub settings: Vec<SettingRecord>,
    /// Checks of the experiment itself; those of the papers are in [`claims`](crate::claims).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// One line of an experiment: a strategy with parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SettingRecord {
    /// Unique in the experiment; part of file names.
    pub id: String,
    pub label: String,
    pub strategy: String,
    pub params: serde_json::Map<String, serde_json::Value>,
    pub role: Role,
    /// Seeds whose results belong to this setting.
    pub seeds: Vec<u64>,
    /// Id of the same setting with the driven parameter at its neutral end, if it was run too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<String>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Ours,
    #[default]
    Baseline,
}

/// One setting with one seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UnitResult {
    pub format: u32,
    /// Hash of everything that the result depends on. A unit with another fingerprint is run again.
    pub fingerprint: String,
    pub unit: UnitId,
    pub label: String,
    pub strategy: String,
    /// Parameters in use; those that validation has chosen, if any.
    pub params: serde_json::Map<String, serde_json::Value>,
    /// Candidates and their validation scores, if parameters were chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choice: Vec<Candidate>,
    pub rounds: Vec<RoundScores>,
    #[serde(rename = "final")]
    pub last: FinalScores,
    /// The knobs of a fairness target after the last round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fairness: Vec<TargetResult>,
    pub account: RunCost,
    /// Wall time of the unit in seconds, including the choice of parameters.
    pub seconds: f64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct UnitId {
    pub experiment: String,
    pub profile: String,
    /// Id of the setting.
    pub setting: String,
    pub seed: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    pub params: serde_json::Map<String, serde_json::Value>,
    /// The figure that decides, on validation data.
    pub score: f64,
    /// Mean validation loss over devices.
    pub mean_loss: f64,
    pub chosen: bool,
}

/// One round. Scores are those of the received model on the devices' own test data, over devices that took part.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RoundScores {
    pub round: u32,
    /// Virtual seconds that the round took.
    pub seconds: f64,
    /// Devices that delivered.
    pub devices: usize,
    pub loss: Distribution,
    pub accuracy: Distribution,
    pub tiers: Vec<TierScores>,
    /// Variance of the tiers' mean losses.
    pub inter: f64,
    pub bytes_up: u64,
    pub bytes_down: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictCounts>,
    /// Effective number of weights, 1 / sum w^2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<f64>,
    /// The knobs of a fairness target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fairness: Vec<KnobPoint>,
}

/// A distribution over devices.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Distribution {
    pub mean: f64,
    pub variance: f64,
    pub worst10: f64,
    pub best10: f64,
    pub worst5: f64,
    pub best5: f64,
    /// Radians.
    pub angle: f64,
    pub jain: f64,
    pub max_min: f64,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TierScores {
    pub devices: usize,
    pub loss: f64,
    pub loss_variance: f64,
    pub accuracy: f64,
    pub accuracy_variance: f64,
    /// Number of devices that were asked and that delivered.
    pub asked: usize,
    pub delivered: usize,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ConflictCounts {
    /// Number of devices whose loss the step raises.
    pub model: f64,
    /// The same by tensor group.
    pub layers: Vec<f64>,
}

/// Scores after the last round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FinalScores {
    pub devices: Vec<DeviceScore>,
    pub loss: Distribution,
    pub accuracy: Distribution,
    pub tiers: Vec<TierScores>,
    pub within: f64,
    pub inter: f64,
    /// The same for personal models (Ditto).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personal: Option<PersonalFigures>,
    /// Scores on the set's own test part: of the whole model, then of every tier's slice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<GlobalScore>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapFigures>,
    /// The same on validation samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps_valid: Option<GapFigures>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupFigures>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<MeanWeights>,
    /// Mean over rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictCounts>,
    /// Mean over devices on validation samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Standard deviation over mean of the tiers' mean losses on validation samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_cv: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceScore {
    pub device: String,
    pub tier: usize,
    pub train_samples: u32,
    pub test_samples: u32,
    pub loss: f64,
    pub accuracy: f64,
    /// Test loss of the device's own model, trained alone, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<f64>,
    /// Test loss of its personal model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personal_loss: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personal_accuracy: Option<f64>,
    /// Rounds in which it delivered.
    pub rounds: u32,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PersonalFigures {
    pub loss: Distribution,
    pub accuracy: Distribution,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GlobalScore {
    pub samples: u64,
    pub loss: f64,
    pub accuracy: f64,
}

/// Gaps r_k: test loss of the global model minus that of the device's own model.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GapFigures {
    pub max: f64,
    pub min: f64,
    pub mean: f64,
    /// Variance with divisor K - 1.
    pub variance: f64,
    /// Largest minus smallest gap (agent awareness).
    pub faa: f64,
}

/// Figures of pooled test predictions.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GroupFigures {
    pub accuracy: f64,
    /// Accuracy of the constant predictor of the majority.
    pub constant: f64,
    pub dp: f64,
    pub eo: f64,
    pub eodds: f64,
    /// Largest pairwise difference of rates.
    pub spd: f64,
    /// Share of positive predictions.
    pub positive: f64,
}

/// Mean weights over rounds.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MeanWeights {
    pub entropy: f64,
    pub chi2: f64,
    pub effective: f64,
}

/// Cost of the run by tier.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RunCost {
    /// Virtual seconds from the first round to the last.
    pub seconds: f64,
    pub tiers: Vec<TierCost>,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TierCost {
    pub bytes_down: u64,
    pub bytes_up: u64,
    /// Sum over devices of the time in which they worked and sent, in seconds.
    pub busy_s: f64,
    pub joules: f64,
    /// Exchanges for which devices of the tier were asked, and those they answered.
    pub asked: u64,
    pub answered: u64,
}

impl UnitResult {
    /// Number of rounds of the run, even if not every round has a line.
    pub fn round_count(&self) -> usize {
        self.rounds.last().map_or(0, |line| line.round as usize)
    }
}

impl ExperimentRecord {
    /// Name of the file in which it is kept with its units.
    pub fn kept_file(&self) -> String {
        format!("{}.{}.{KEPT}", self.experiment, self.profile)
    }
}

impl UnitId {
    /// Path of the unit's JSON file below the directory of results.
    pub fn file(&self) -> PathBuf {
        self.dir().join(format!("{}-s{}.json", self.setting, self.seed))
    }

    /// Path of all units of the experiment.
    fn dir(&self) -> PathBuf {
        Path::new(&self.experiment).join(&self.profile)
    }
}

/// One experiment in one profile with its finished units, setting by setting, seed by seed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ExperimentResults {
    pub record: ExperimentRecord,
    pub units: Vec<UnitResult>,
}

impl ExperimentResults {
    /// Finished runs of a setting, by seed.
    pub fn units<'a>(&'a self, setting: &'a str) -> impl Iterator<Item = &'a UnitResult> + Clone {
        self.units.iter().filter(move |unit| unit.unit.setting == setting)
    }

    /// The setting with this id.
    pub fn setting(&self, id: &str) -> Option<&SettingRecord> {
        self.record.settings.iter().find(|setting| setting.id == id)
    }

    /// The label of a setting; its id if it has none.
    pub fn label<'a>(&'a self, id: &'a str) -> &'a str {
        self.setting(id).map_or(id, |setting| &setting.label)
    }

    /// Spread over the seeds that have the figure.
    pub fn spread(&self, setting: &str, name: &str) -> Option<Spread> {
        let values: Vec<f64> = self.units(setting).filter_map(|unit| unit.figure(name)).collect();
        (!values.is_empty()).then(|| Spread::of(&values))
    }

    /// Requested seeds of a setting that are missing.
    pub fn missing(&self, setting: &SettingRecord) -> Vec<u64> {
        let done = |seed: &u64| self.units(&setting.id).any(|unit| unit.unit.seed == *seed);
        setting.seeds.iter().copied().filter(|seed| !done(seed)).collect()
    }
}
