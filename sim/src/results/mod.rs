//! What experiments leave behind, one [`UnitResult`] for every (experiment, profile, setting, seed).
//!
//! Files under `--out` (default `results/`):
//! ```text
//! <experiment>/<profile>/experiment.json      ExperimentRecord: settings, checks
//! <experiment>/<profile>/<setting>-s<seed>.json   UnitResult
//! <experiment>/<profile>/<setting>-s<seed>.csv    its rounds, one line each
//! ```
//! Results that are [kept](crate::keep) with the source are one file, `<experiment>.<profile>.jsonl`: the
//! record on the first line, every unit on one of its own. Readers take both forms.
//!
//! Losses are natural logarithms' cross-entropy, accuracies are shares in [0, 1], variances have divisor N.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::claims::Check;

/// Version of these files; units of another one are run again.
pub const FORMAT: u32 = 1;

/// Name of an experiment's record beside its units.
pub const RECORD: &str = "experiment.json";

/// How names of kept files end.
const KEPT: &str = "jsonl";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultsError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}; delete the file and run the experiment again", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
}

/// What an experiment is: written beside its units.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExperimentRecord {
    pub format: u32,
    pub experiment: String,
    pub profile: String,
    pub title: String,
    /// Remarks on data, stand-ins and decisions.
    pub notes: String,
    /// The experiment with profile and `--set` applied, as TOML.
    pub toml: String,
    pub settings: Vec<SettingRecord>,
    /// What the experiment itself says of its results; what papers say is in [`claims`](crate::claims).
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
    /// Of everything that the result depends on; a unit with another one is run again.
    pub fingerprint: String,
    pub unit: UnitId,
    pub label: String,
    pub strategy: String,
    /// As they were used; where validation has chosen, the choice.
    pub params: serde_json::Map<String, serde_json::Value>,
    /// Candidates and their scores on validation data, where parameters were chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choice: Vec<Candidate>,
    pub rounds: Vec<RoundLine>,
    #[serde(rename = "final")]
    pub last: Final,
    pub account: Cost,
    /// Wall time of the unit, choice included.
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
    /// The figure by which was chosen, on validation data.
    pub score: f64,
    /// Mean validation loss over devices.
    pub mean_loss: f64,
    pub chosen: bool,
}

/// One round. Scores are those of the model that devices received, on their own test data, over devices that
/// took part.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RoundLine {
    pub round: u32,
    /// Virtual seconds that the round took.
    pub seconds: f64,
    /// Devices that delivered.
    pub devices: usize,
    pub loss: Figures,
    pub accuracy: Figures,
    pub tiers: Vec<TierLine>,
    /// Variance of the tiers' mean losses.
    pub inter: f64,
    pub bytes_up: u64,
    pub bytes_down: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictLine>,
    /// Of weights, 1 / sum w^2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<f64>,
}

/// A distribution over devices.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
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
pub struct TierLine {
    pub devices: usize,
    pub loss: f64,
    pub loss_variance: f64,
    pub accuracy: f64,
    pub accuracy_variance: f64,
    /// Devices asked and heard.
    pub asked: usize,
    pub delivered: usize,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ConflictLine {
    /// Devices whose loss the step raises.
    pub model: f64,
    /// The same, tensor group by tensor group.
    pub layers: Vec<f64>,
}

/// After the last round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Final {
    pub devices: Vec<DeviceScore>,
    pub loss: Figures,
    pub accuracy: Figures,
    pub tiers: Vec<TierLine>,
    pub within: f64,
    pub inter: f64,
    /// The same of the models that stay on devices (Ditto).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personal: Option<PersonalFigures>,
    /// On the set's own test part: the whole model, then every tier's slice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<GlobalScore>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapFigures>,
    /// The same on samples that are held out to choose parameters by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps_valid: Option<GapFigures>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupFigures>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightLine>,
    /// Mean over rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictLine>,
    /// Mean over devices, on samples that are held out to choose parameters by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceScore {
    pub device: String,
    pub tier: usize,
    pub train_samples: u32,
    pub test_samples: u32,
    pub loss: f64,
    pub accuracy: f64,
    /// Test loss of the device's own model, trained alone, where asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<f64>,
    /// Of its personal model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personal_loss: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personal_accuracy: Option<f64>,
    /// Rounds in which it was heard.
    pub rounds: u32,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PersonalFigures {
    pub loss: Figures,
    pub accuracy: Figures,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GlobalScore {
    pub samples: u64,
    pub loss: f64,
    pub accuracy: f64,
}

/// r_k = test loss of the global model minus that of the device's own.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GapFigures {
    pub max: f64,
    pub min: f64,
    pub mean: f64,
    /// Divisor K - 1.
    pub variance: f64,
    /// max - min (agent awareness).
    pub faa: f64,
}

/// Pooled test predictions.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GroupFigures {
    pub accuracy: f64,
    /// Of always predicting the majority.
    pub constant: f64,
    pub dp: f64,
    pub eo: f64,
    pub eodds: f64,
    /// Pairwise.
    pub spd: f64,
    /// Share of positive predictions.
    pub positive: f64,
}

/// Means over rounds.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WeightLine {
    pub entropy: f64,
    pub chi2: f64,
    pub effective: f64,
}

/// What the run cost, by tier.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Virtual seconds from the first round to the last.
    pub seconds: f64,
    pub tiers: Vec<TierCost>,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TierCost {
    pub bytes_down: u64,
    pub bytes_up: u64,
    /// Sum over devices of the time they worked and sent.
    pub busy_s: f64,
    pub joules: f64,
    /// Exchanges that devices of the tier were asked to and that they answered.
    pub asked: u64,
    pub answered: u64,
}

impl Final {
    /// A figure by its name; `None` if there is none of this name or the unit has not got it.
    ///
    /// `loss.*` and `accuracy.*` (fields of [`Figures`]), `within`, `inter`, `tier.N.loss|accuracy|
    /// loss_variance|accuracy_variance`, `tiers.ratio` (loss of the narrowest by that of the widest), `device.N.loss|accuracy|gap`, `global.loss|accuracy`, `gaps.*`, `gaps_valid.*`,
    /// `groups.*`, `personal.loss.*`, `personal.accuracy.*`, `conflicts.model`, `conflicts.layers` (their
    /// mean), `weights.*`.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let mut parts = name.splitn(2, '.');
        let (head, rest) = (parts.next()?, parts.next());
        match (head, rest) {
            ("within", None) => Some(self.within),
            ("inter", None) => Some(self.inter),
            ("loss", Some(rest)) => self.loss.figure(rest),
            ("accuracy", Some(rest)) => self.accuracy.figure(rest),
            ("tiers", Some("ratio")) => Some(self.tiers.last()?.loss / self.tiers.first()?.loss),
            ("tier", Some(rest)) => {
                let (tier, rest) = rest.split_once('.')?;
                field(self.tiers.get(tier.parse::<usize>().ok()?)?, rest)
            }
            ("device", Some(rest)) => {
                let (device, rest) = rest.split_once('.')?;
                let score = self.devices.get(device.parse::<usize>().ok()?)?;
                if rest == "gap" { Some(score.loss - score.alone?) } else { field(score, rest) }
            }
            ("global", Some(rest)) => field(self.global.first()?, rest),
            ("gaps", Some(rest)) => field(&self.gaps?, rest),
            ("gaps_valid", Some(rest)) => field(&self.gaps_valid?, rest),
            ("groups", Some(rest)) => field(&self.groups?, rest),
            ("weights", Some(rest)) => field(&self.weights?, rest),
            ("personal", Some(rest)) => {
                let (kind, rest) = rest.split_once('.')?;
                let personal = self.personal?;
                if kind == "loss" { &personal.loss } else { &personal.accuracy }.figure(rest)
            }
            ("conflicts", Some("model")) => Some(self.conflicts.as_ref()?.model),
            ("conflicts", Some("layers")) => {
                let layers = &self.conflicts.as_ref()?.layers;
                Some(layers.iter().sum::<f64>() / layers.len().max(1) as f64)
            }
            _ => None,
        }
    }
}

impl Figures {
    pub fn figure(&self, name: &str) -> Option<f64> {
        field(self, name)
    }
}

impl UnitResult {
    /// Rounds of the run, also where not every one has a line.
    pub fn round_count(&self) -> usize {
        self.rounds.last().map_or(0, |line| line.round as usize)
    }
}

impl ExperimentRecord {
    /// Name of the file that keeps it with its units.
    pub fn kept_file(&self) -> String {
        format!("{}.{}.{KEPT}", self.experiment, self.profile)
    }
}

impl UnitId {
    /// Where the unit's JSON lies under the directory of results.
    pub fn file(&self) -> PathBuf {
        self.dir().join(format!("{}-s{}.json", self.setting, self.seed))
    }

    /// Where all units of the experiment lie.
    fn dir(&self) -> PathBuf {
        Path::new(&self.experiment).join(&self.profile)
    }
}

/// What an experiment in one profile has come to: its units setting by setting, seed by seed.
pub type Finished = (ExperimentRecord, Vec<UnitResult>);

/// All experiments under a directory of results, in the order of names. An experiment that is there in both
/// forms is taken from its directory, which has the longer curves.
pub fn read_all(dir: &Path) -> Result<Vec<Finished>, ResultsError> {
    let (dirs, files): (Vec<_>, Vec<_>) = entries(dir)?.into_iter().partition(|path| path.is_dir());
    let mut paths = dirs.iter().map(|dir| entries(dir)).collect::<Result<Vec<_>, _>>()?.concat();
    paths.extend(files);
    let found = paths.iter().filter(|path| is_experiment(path)).map(|path| read_experiment(path));
    let mut all = found.collect::<Result<Vec<_>, _>>()?;
    let name = |(record, _): &Finished| (record.experiment.clone(), record.profile.clone());
    all.sort_by_key(name);
    all.dedup_by_key(|finished| name(finished));
    Ok(all)
}

/// Whether results of an experiment are there: a directory with a record, or a kept file.
pub fn is_experiment(path: &Path) -> bool {
    path.join(RECORD).is_file() || (path.is_file() && path.extension().is_some_and(|end| end == KEPT))
}

/// One experiment in either form. Units whose setting or seed is no longer part of it are left out.
pub fn read_experiment(path: &Path) -> Result<Finished, ResultsError> {
    if !path.is_file() {
        let record = read(&path.join(RECORD))?;
        let units = read_units(path, &record)?;
        return Ok((record, units));
    }
    let text = text(path)?;
    let json = |source| ResultsError::Json { path: path.into(), source };
    let mut lines = serde_json::Deserializer::from_str(&text);
    let record = ExperimentRecord::deserialize(&mut lines).map_err(json)?;
    let units = lines.into_iter().collect::<Result<_, _>>().map_err(json)?;
    Ok((record, units))
}

/// The finished units of one experiment, whose files lie in `dir`; setting by setting, seed by seed.
pub fn read_units(dir: &Path, record: &ExperimentRecord) -> Result<Vec<UnitResult>, ResultsError> {
    let files = record.settings.iter().flat_map(|setting| {
        setting.seeds.iter().map(|seed| dir.join(format!("{}-s{seed}.json", setting.id)))
    });
    files.filter(|path| path.is_file()).map(|path| read(&path)).collect()
}

/// Reads one file.
pub fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ResultsError> {
    serde_json::from_str(&text(path)?).map_err(|source| ResultsError::Json { path: path.into(), source })
}

fn text(path: &Path) -> Result<String, ResultsError> {
    fs::read_to_string(path).map_err(|source| ResultsError::Io { path: path.into(), source })
}

/// Writes a file so that it is there whole or not at all.
pub fn write(path: &Path, text: &str) -> Result<(), ResultsError> {
    let io = |source| ResultsError::Io { path: path.into(), source };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(io)?;
    }
    let part = path.with_extension("part");
    fs::write(&part, text).map_err(io)?;
    fs::rename(&part, path).map_err(io)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    let io = |source| ResultsError::Io { path: dir.into(), source };
    fs::read_dir(dir).map_err(io)?.map(|entry| Ok(entry.map_err(io)?.path())).collect()
}

/// Names of fields are names of figures.
fn field(value: &impl Serialize, name: &str) -> Option<f64> {
    serde_json::to_value(value).ok()?.get(name)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names() {
        let device = DeviceScore { loss: 0.5, alone: Some(0.2), ..Default::default() };
        let last = Final {
            devices: vec![device],
            loss: Figures { variance: 0.25, ..Default::default() },
            tiers: vec![TierLine { loss: 3.0, ..Default::default() }],
            conflicts: Some(ConflictLine { model: 1.0, layers: vec![2.0, 4.0] }),
            ..Default::default()
        };
        assert_eq!(last.figure("loss.variance"), Some(0.25));
        assert_eq!(last.figure("tier.0.loss"), Some(3.0));
        assert_eq!(last.figure("device.0.gap"), Some(0.3));
        assert_eq!(last.figure("conflicts.layers"), Some(3.0));
        for absent in ["gaps.max", "tier.1.loss", "loss", "loss.median", ""] {
            assert_eq!(last.figure(absent), None, "{absent}");
        }
    }

    #[test]
    fn a_file_is_written_whole_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let unit = UnitId { experiment: "e".into(), profile: "quick".into(), setting: "s".into(), seed: 1 };
        let path = dir.path().join(unit.file());
        write(&path, &serde_json::to_string(&unit).unwrap()).unwrap();
        assert_eq!(read::<UnitId>(&path).unwrap(), unit);
        assert!(read_all(dir.path()).unwrap().is_empty());
        write(&path, "{").unwrap();
        assert!(read::<UnitId>(&path).unwrap_err().to_string().contains("s-s1.json"));
    }
}
