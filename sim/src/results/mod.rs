//! Results of experiments, one [`UnitResult`] for every (experiment, profile, setting, seed).
//!
//! Files under `--out` (default `results/`):
//! ```text
//! <experiment>/<profile>/experiment.json      ExperimentRecord: settings, checks
//! <experiment>/<profile>/<setting>-s<seed>.json   UnitResult
//! <experiment>/<profile>/<setting>-s<seed>.csv    its rounds, one line each
//! ```
//! Results that are kept with the source are one file, `<experiment>.<profile>.jsonl`: the record on
//! the first line, and one line per unit, in which lists of objects are tables (`pack`). Readers accept all forms.
//!
//! Losses are cross-entropies in nats, or squared errors of scaled numbers; accuracies are shares in [0, 1],
//! variances have divisor N. A figure that does not exist is left out.

mod check;
pub(crate) mod figure;
mod files;
mod lookup;
mod pack;
mod target;

use std::path::{Path, PathBuf};

use common::metrics::Spread;
use serde::{Deserialize, Deserializer, Serialize};

pub use check::{Check, Form, Measure, Take, Want};
use files::KEPT;
pub(crate) use files::{RECORD, is_experiment, read, read_all, read_experiment, read_units};
pub use files::{ResultsError, write};
pub(crate) use lookup::EVALUATIONS;
pub(crate) use pack::pack;
pub use target::{KnobPoint, TargetFigures, TargetResult};

/// Version of these files; units of another version are run again.
pub const FORMAT: u32 = 1;

/// JSON has no numbers that are not finite and writes null; a diverged run has many.
fn nan_if_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Description of an experiment, written beside its units.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExperimentRecord {
    /// [`FORMAT`] at the time of writing.
    pub format: u32,
    /// File name of the experiment without `.toml`.
    pub experiment: String,
    /// `quick` or `full`.
    pub profile: String,
    /// One line for tables and reports.
    pub title: String,
    /// Remarks on data, substitutes and decisions.
    pub notes: String,
    /// The experiment with profile and `--set` applied, as TOML.
    pub toml: String,
    /// Variants x strategies, in the order of the file.
    pub settings: Vec<SettingRecord>,
    /// Checks of the experiment itself; those of the papers are in `sim/experiments/claims`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// One line of an experiment: a strategy with parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SettingRecord {
    /// Unique in the experiment; part of file names.
    pub id: String,
    /// Text for tables and plots.
    pub label: String,
    /// Name of the strategy in the registry, or of a baseline.
    pub strategy: String,
    /// Parameters of the strategy as the experiment states them.
    pub params: serde_json::Map<String, serde_json::Value>,
    /// Side of the comparison on which it stands.
    pub role: Role,
    /// Seeds whose results belong to this setting.
    pub seeds: Vec<u64>,
    /// Id of the same setting with the driven parameter at its neutral end, if it was run too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<String>,
}

/// Side of a comparison in reports.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The method that the experiment is about.
    Ours,
    /// A method to compare with.
    #[default]
    Baseline,
}

/// One setting with one seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UnitResult {
    /// [`FORMAT`] at the time of writing.
    pub format: u32,
    /// Hash of everything that the result depends on. A unit with another fingerprint is run again.
    pub fingerprint: String,
    /// Experiment, profile, setting and seed.
    pub unit: UnitId,
    /// Label of the setting.
    pub label: String,
    /// Name of the strategy in the registry, or of a baseline.
    pub strategy: String,
    /// Parameters in use; those that validation has chosen, if any.
    pub params: serde_json::Map<String, serde_json::Value>,
    /// Candidates and their validation scores, if parameters were chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choice: Vec<Candidate>,
    /// The limit of the mean validation loss, if no candidate was within it. Then the one with the lowest mean loss is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_limit: Option<f64>,
    /// Scores by round; kept results have only some of the rounds.
    pub rounds: Vec<RoundScores>,
    /// Scores of all devices after the last round; `final` in files.
    #[serde(rename = "final")]
    pub last: FinalScores,
    /// The knobs of a fairness target after the last round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fairness: Vec<TargetResult>,
    /// Bytes, virtual time and energy of the run.
    pub account: RunCost,
    /// Wall time of the unit in seconds, including the choice of parameters.
    #[serde(deserialize_with = "nan_if_null")]
    pub seconds: f64,
}

/// The name of a unit, which is also its path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct UnitId {
    /// File name of the experiment without `.toml`.
    pub experiment: String,
    /// `quick` or `full`.
    pub profile: String,
    /// Id of the setting.
    pub setting: String,
    /// Determines data, partition, initial model and the choice of devices.
    pub seed: u64,
}

/// One combination of parameters that validation has tried.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// The parameters that were tried.
    pub params: serde_json::Map<String, serde_json::Value>,
    /// The figure that decides, on validation data.
    #[serde(deserialize_with = "nan_if_null")]
    pub score: f64,
    /// Mean validation loss over devices.
    #[serde(deserialize_with = "nan_if_null")]
    pub mean_loss: f64,
    /// Whether the unit was run with these parameters.
    pub chosen: bool,
}

/// One round. Scores are those of the received model on the devices' own test data, over devices that took part.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RoundScores {
    /// Number of the round, from 1.
    pub round: u32,
    /// Virtual seconds that the round took.
    #[serde(deserialize_with = "nan_if_null")]
    pub seconds: f64,
    /// Devices that delivered.
    pub devices: usize,
    /// Test losses of the devices.
    pub loss: Distribution,
    /// Test accuracies of the devices; none of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Distribution>,
    /// Mean absolute errors of the devices, in the unit of the targets. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mae: Option<Distribution>,
    /// R2 over the test samples of all devices together. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Scores by tier, widest first.
    pub tiers: Vec<TierScores>,
    /// Variance of the tiers' mean losses.
    #[serde(deserialize_with = "nan_if_null")]
    pub inter: f64,
    /// Bytes of updates from devices in the round.
    pub bytes_up: u64,
    /// Bytes of models and guides to devices in the round.
    pub bytes_down: u64,
    /// Conflicts of the round, if the experiment counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictCounts>,
    /// Effective number of weights, 1 / sum w^2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<f64>,
    /// The knobs of a fairness target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fairness: Vec<KnobPoint>,
}

impl RoundScores {
    /// Whether any device was scored. Without, loss and accuracy are 0, but no figures.
    pub fn is_heard(&self) -> bool {
        self.devices > 0 || self.loss.mean != 0.0
    }
}

/// A distribution over devices.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Distribution {
    /// Arithmetic mean over devices.
    #[serde(deserialize_with = "nan_if_null")]
    pub mean: f64,
    /// Variance with divisor N.
    #[serde(deserialize_with = "nan_if_null")]
    pub variance: f64,
    /// Mean of the worst 10 % of devices, at least one.
    #[serde(deserialize_with = "nan_if_null")]
    pub worst10: f64,
    /// Mean of the best 10 % of devices, at least one.
    #[serde(deserialize_with = "nan_if_null")]
    pub best10: f64,
    /// Mean of the worst 5 % of devices, at least one.
    #[serde(deserialize_with = "nan_if_null")]
    pub worst5: f64,
    /// Mean of the best 5 % of devices, at least one.
    #[serde(deserialize_with = "nan_if_null")]
    pub best5: f64,
    /// Radians.
    #[serde(deserialize_with = "nan_if_null")]
    pub angle: f64,
    /// Jain's index, from 1/N to 1; 1 means that all devices are equal.
    #[serde(deserialize_with = "nan_if_null")]
    pub jain: f64,
    /// Largest difference between two devices.
    #[serde(deserialize_with = "nan_if_null")]
    pub max_min: f64,
}

/// Test scores of the devices of one tier.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TierScores {
    /// Number of devices that were scored.
    pub devices: usize,
    /// Mean loss over the devices.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// Variance of their losses.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss_variance: f64,
    /// Mean accuracy over the devices; none of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Variance of their accuracies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy_variance: Option<f64>,
    /// Mean over the devices of their mean absolute errors. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// R2 over the test samples of the devices together. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Number of devices that were asked.
    pub asked: usize,
    /// Number of asked devices whose update arrived in time.
    pub delivered: usize,
}

/// Devices that a step of the model harms.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ConflictCounts {
    /// Number of devices whose loss the step raises.
    #[serde(deserialize_with = "nan_if_null")]
    pub model: f64,
    /// The same by tensor group.
    pub layers: Vec<f64>,
}

/// Scores after the last round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FinalScores {
    /// One entry per device, in the order of the partition.
    pub devices: Vec<DeviceScore>,
    /// Test losses of the devices.
    pub loss: Distribution,
    /// Test accuracies of the devices; none of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Distribution>,
    /// Mean absolute errors of the devices, in the unit of the targets. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mae: Option<Distribution>,
    /// R2 over the test samples of all devices together. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Scores by tier, widest first.
    pub tiers: Vec<TierScores>,
    /// Mean of the variances of loss inside tiers, weighted by devices.
    #[serde(deserialize_with = "nan_if_null")]
    pub within: f64,
    /// Variance of the tiers' mean losses.
    #[serde(deserialize_with = "nan_if_null")]
    pub inter: f64,
    /// The same for personal models (Ditto).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personal: Option<PersonalFigures>,
    /// Scores on the set's own test part: of the whole model, then of every tier's slice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<GlobalScore>,
    /// Loss gaps on test samples, if devices are also trained alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapFigures>,
    /// The same on validation samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps_valid: Option<GapFigures>,
    /// Group fairness, if samples have a sensitive attribute and two classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupFigures>,
    /// Figures of the devices' weights; absent if no round has weights.
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

/// Scores of one device after the last round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceScore {
    /// Name of the device.
    pub device: String,
    /// Number of its tier; 0 is the widest.
    pub tier: usize,
    /// Number of its training samples.
    pub train_samples: u32,
    /// Number of its test samples.
    pub test_samples: u32,
    /// Test loss of its slice of the global model.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// Test accuracy of its slice of the global model; none of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Mean absolute error in the unit of the targets. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// R2 over all test samples. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Test loss of the device's own model, trained alone, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<f64>,
    /// Test loss of its personal model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personal_loss: Option<f64>,
    /// Test accuracy of its personal model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personal_accuracy: Option<f64>,
    /// Rounds in which it delivered.
    pub rounds: u32,
}

/// Test scores of personal models over devices.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PersonalFigures {
    /// Losses of the personal models.
    pub loss: Distribution,
    /// Accuracies of the personal models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Distribution>,
}

/// Scores of one model on the common test samples.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GlobalScore {
    /// Number of test samples.
    pub samples: u64,
    /// Mean loss per sample.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// Share of correct predictions; none of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Mean absolute error in the unit of the targets. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// R2 over all test samples. Only of predicted numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
}

/// Gaps r_k: test loss of the global model minus that of the device's own model.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GapFigures {
    /// The largest gap.
    #[serde(deserialize_with = "nan_if_null")]
    pub max: f64,
    /// The smallest gap.
    #[serde(deserialize_with = "nan_if_null")]
    pub min: f64,
    /// Mean gap over devices.
    #[serde(deserialize_with = "nan_if_null")]
    pub mean: f64,
    /// Variance with divisor K - 1.
    #[serde(deserialize_with = "nan_if_null")]
    pub variance: f64,
    /// Largest minus smallest gap (agent awareness).
    #[serde(deserialize_with = "nan_if_null")]
    pub faa: f64,
}

/// Figures of pooled test predictions.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GroupFigures {
    /// Share of correct predictions.
    #[serde(deserialize_with = "nan_if_null")]
    pub accuracy: f64,
    /// Accuracy of the constant predictor of the majority.
    #[serde(deserialize_with = "nan_if_null")]
    pub constant: f64,
    /// Demographic parity: largest distance of a group's rate of positive predictions from the overall rate.
    #[serde(deserialize_with = "nan_if_null")]
    pub dp: f64,
    /// Equal opportunity: the same among samples of class 1.
    #[serde(deserialize_with = "nan_if_null")]
    pub eo: f64,
    /// Equalized odds: the larger of the disparities among samples of class 0 and of class 1.
    #[serde(deserialize_with = "nan_if_null")]
    pub eodds: f64,
    /// Largest pairwise difference of rates.
    #[serde(deserialize_with = "nan_if_null")]
    pub spd: f64,
    /// Share of positive predictions.
    #[serde(deserialize_with = "nan_if_null")]
    pub positive: f64,
}

/// Mean weights over rounds.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MeanWeights {
    /// Entropy of the weights, with the natural logarithm.
    #[serde(deserialize_with = "nan_if_null")]
    pub entropy: f64,
    /// Chi-square distance between the weights and the shares of the data.
    #[serde(deserialize_with = "nan_if_null")]
    pub chi2: f64,
    /// Effective number of devices, 1 / sum w^2.
    #[serde(deserialize_with = "nan_if_null")]
    pub effective: f64,
}

/// Cost of the run by tier.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RunCost {
    /// Virtual seconds from the first round to the last.
    #[serde(deserialize_with = "nan_if_null")]
    pub seconds: f64,
    /// Costs by tier, widest first.
    pub tiers: Vec<TierCost>,
}

/// Cost of the devices of one tier over the run.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TierCost {
    /// Bytes of models and guides to devices, without framing.
    pub bytes_down: u64,
    /// Bytes of updates from devices, without framing.
    pub bytes_up: u64,
    /// Sum over devices of the time in which they worked and sent, in seconds.
    #[serde(deserialize_with = "nan_if_null")]
    pub busy_s: f64,
    /// Energy of computing and of the link, in joules.
    #[serde(deserialize_with = "nan_if_null")]
    pub joules: f64,
    /// Exchanges for which devices of the tier were asked, summed over devices.
    pub asked: u64,
    /// Exchanges that they answered in time.
    pub answered: u64,
}

impl UnitResult {
    /// Number of rounds of the run, even if not every round has a line.
    pub(crate) fn round_count(&self) -> usize {
        self.rounds.last().map_or(0, |line| line.round as usize)
    }
}

impl ExperimentRecord {
    /// Name of the file in which it is kept with its units.
    pub(crate) fn kept_file(&self) -> String {
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
    pub(crate) record: ExperimentRecord,
    pub(crate) units: Vec<UnitResult>,
}

impl ExperimentResults {
    /// Finished runs of a setting, by seed.
    pub(crate) fn units<'a>(&'a self, setting: &'a str) -> impl Iterator<Item = &'a UnitResult> + Clone {
        self.units.iter().filter(move |unit| unit.unit.setting == setting)
    }

    /// The setting with this id.
    pub(crate) fn setting(&self, id: &str) -> Option<&SettingRecord> {
        self.record.settings.iter().find(|setting| setting.id == id)
    }

    /// The label of a setting; its id if it has none.
    pub(crate) fn label<'a>(&'a self, id: &'a str) -> &'a str {
        self.setting(id).map_or(id, |setting| &setting.label)
    }

    /// Spread over the seeds that have the figure.
    pub(crate) fn spread(&self, setting: &str, name: &str) -> Option<Spread> {
        let values: Vec<f64> = self.units(setting).filter_map(|unit| unit.figure(name)).collect();
        (!values.is_empty()).then(|| Spread::of(&values))
    }

    /// Requested seeds of a setting that are missing.
    pub(crate) fn missing(&self, setting: &SettingRecord) -> Vec<u64> {
        let done = |seed: &u64| self.units(&setting.id).any(|unit| unit.unit.seed == *seed);
        setting.seeds.iter().copied().filter(|seed| !done(seed)).collect()
    }
}
