//! Expands an experiment file to its settings: profile, overridden keys, variants times strategies.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::{
    ALL, ExperimentError,
    spec::{Base, Experiment, Reach, StrategySpec},
    text,
};
use crate::results::{ExperimentRecord, FORMAT, SettingRecord};
use trainer::data::schema::nearest::hint;

/// Names of profiles.
pub const PROFILES: [&str; 2] = ["quick", "full"];

/// An experiment, ready to run.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadedExperiment {
    pub(crate) name: String,
    pub(crate) profile: String,
    /// The experiment with profile and keys applied.
    pub table: Table,
    pub(crate) experiment: Experiment,
    pub(crate) settings: Vec<Setting>,
    /// The directory to which paths are relative; empty for the current one.
    pub(crate) dir: PathBuf,
}

/// A strategy with its base configuration.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Setting {
    pub id: String,
    pub label: String,
    /// Id of its variant; empty if the experiment has none.
    pub variant: String,
    pub base: Base,
    pub strategy: StrategySpec,
    /// The strategy that validation compares with, if any.
    pub reference: Option<StrategySpec>,
    /// The settings that `reach` of the strategy names: `from`, then `to`.
    pub ends: Vec<Setting>,
    /// Id of the same setting with the driven parameter at its neutral end, if it is run too.
    pub twin: Option<String>,
}

impl LoadedExperiment {
    /// Opens an embedded experiment by name, or a file whose path ends in `.toml`.
    pub fn open(name: &str, profile: &str, keys: &[String]) -> Result<Self, ExperimentError> {
        let mut dir = PathBuf::new();
        let (name, text) = if name.ends_with(".toml") {
            let path = Path::new(name);
            let text = std::fs::read_to_string(path)
                .map_err(|source| ExperimentError::Read { path: path.into(), source })?;
            dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
            (path.file_stem().map_or_else(|| name.into(), |stem| stem.to_string_lossy().into_owned()), text)
        } else {
            let unknown = || {
                let known = || ALL.iter().map(|(name, _)| *name);
                let (hint, known) = (hint(name, known()), known().collect::<Vec<_>>().join(", "));
                ExperimentError::Unknown { name: name.into(), hint, known }
            };
            let (name, text) = ALL.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
            ((*name).to_owned(), (*text).to_owned())
        };
        Self::parse(&name, &text, profile, keys)?.with_dir(dir)
    }

    /// Reads an experiment from text. `keys` are `KEY=VALUE` and override keys of the file and of the profile.
    pub fn parse(name: &str, text: &str, profile: &str, keys: &[String]) -> Result<Self, ExperimentError> {
        let fault = |source| ExperimentError::Parse { name: name.into(), source: Box::new(source) };
        if !PROFILES.contains(&profile) {
            return Err(ExperimentError::Profile(profile.into()));
        }
        let mut table: Table = text.parse().map_err(fault)?;
        let mut profiles = PROFILES.map(|name| (name, table.remove(name)));
        for (known, over) in &mut profiles {
            if let Some(Value::Table(over)) = over.take().filter(|_| *known == profile) {
                text::merge(&mut table, &over);
            }
        }
        let mut filed = profile.to_owned();
        for assigned in keys {
            let (key, value) = text::assignment(assigned)?;
            filed += &suffix(&key, &value);
            text::set(&mut table, &key, value)?;
        }
        Self::of(name, &short(filed), table)
    }

    /// Checks a table to which profile and keys are already applied.
    pub fn of(name: &str, profile: &str, table: Table) -> Result<Self, ExperimentError> {
        let fault = |source| ExperimentError::Parse { name: name.into(), source: Box::new(source) };
        let experiment: Experiment = table.clone().try_into().map_err(fault)?;
        let settings = settings(name, &table, &experiment)?;
        let dir = PathBuf::new();
        Ok(Self { name: name.into(), profile: profile.into(), table, experiment, settings, dir })
    }

    /// Most rounds of a setting.
    pub(crate) fn rounds(&self) -> usize {
        self.settings.iter().map(|setting| setting.base.rounds as usize).max().unwrap_or(0)
    }

    pub(crate) fn seed_count(&self) -> usize {
        self.experiment.seeds.len()
    }

    pub(crate) fn setting_count(&self) -> usize {
        self.settings.len()
    }

    /// Title, notes, settings and checks, as they are written beside the results.
    pub fn record(&self) -> ExperimentRecord {
        let setting = |setting: &Setting| SettingRecord {
            id: setting.id.clone(),
            label: setting.label.clone(),
            strategy: setting.strategy.name.clone(),
            params: setting.strategy.params.clone(),
            role: setting.strategy.role,
            seeds: self.experiment.seeds.clone(),
            twin: setting.twin.clone(),
        };
        ExperimentRecord {
            format: FORMAT,
            experiment: self.name.clone(),
            profile: self.profile.clone(),
            title: self.experiment.title.clone(),
            notes: self.experiment.notes.clone(),
            toml: self.table.to_string(),
            settings: self.settings.iter().map(setting).collect(),
            checks: self.experiment.checks.clone(),
        }
    }
}

/// What a key adds to the name of a profile: its results are others than those of the profile. Keys that only select runs add
/// nothing.
fn suffix(key: &str, value: &Value) -> String {
    match key {
        "seeds" | "only" | "title" | "notes" => String::new(),
        _ => format!("+{key}={}", text::plain(value)),
    }
}

/// A name that fits a directory.
fn short(name: String) -> String {
    const MOST: usize = 100;
    if name.len() <= MOST {
        return name;
    }
    let digest: String =
        Sha256::digest(name.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let start: String = name.chars().take(MOST - 9).collect();
    format!("{start}-{digest}")
}

impl Setting {
    /// A hash of everything that the result depends on.
    pub fn fingerprint(&self, seed: u64) -> String {
        let mut all = vec![
            serde_json::json!(FORMAT),
            serde_json::json!(self.base),
            serde_json::json!(self.strategy),
            serde_json::json!(self.reference),
            serde_json::json!(seed),
        ];
        all.extend(self.ends.iter().map(|end| serde_json::json!(end.fingerprint(seed))));
        let all = serde_json::Value::Array(all).to_string();
        Sha256::digest(all.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

fn settings(name: &str, table: &Table, experiment: &Experiment) -> Result<Vec<Setting>, ExperimentError> {
    let fault = |source| ExperimentError::Parse { name: name.into(), source: Box::new(source) };
    let mut settings: Vec<Setting> = Vec::new();
    let none = [super::spec::Variant { id: String::new(), label: String::new(), with: Table::new() }];
    let variants = if experiment.variants.is_empty() { &none[..] } else { &experiment.variants };
    if let Some(unknown) =
        experiment.only.iter().find(|id| experiment.strategies.iter().all(|strategy| strategy.id != **id))
    {
        return Err(no_strategy(unknown, experiment));
    }
    let wanted =
        |strategy: &&StrategySpec| experiment.only.is_empty() || experiment.only.contains(&strategy.id);
    let known = |id: &String| variants.iter().any(|variant| variant.id == *id);
    if let Some(unknown) =
        experiment.strategies.iter().flat_map(|strategy| &strategy.variants).find(|id| !known(id))
    {
        return Err(ExperimentError::NoVariant(unknown.clone()));
    }
    for variant in variants {
        let with = |strategy: &&StrategySpec| {
            strategy.variants.is_empty() || strategy.variants.contains(&variant.id)
        };
        for strategy in experiment.strategies.iter().filter(wanted).filter(with) {
            let mut own = table.clone();
            text::merge(&mut own, &variant.with);
            text::merge(&mut own, &strategy.with);
            if !strategy.fairness.is_empty() {
                let fairness = Table::from_iter([("fairness".into(), strategy.fairness.clone().into())]);
                text::merge(&mut own, &fairness);
            }
            // Parses again with all keys, so that unknown ones in `with` are refused.
            let base = Experiment::deserialize_all(own).map_err(fault)?.base;
            let label = strategy.label.clone().unwrap_or_else(|| strategy.id.clone());
            let (id, label) = match variant {
                variant if variant.id.is_empty() => (strategy.id.clone(), label),
                variant => {
                    let about = if variant.label.is_empty() { &variant.id } else { &variant.label };
                    (format!("{}-{}", variant.id, strategy.id), format!("{about}: {label}"))
                }
            };
            if !id.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter)) {
                return Err(ExperimentError::Id(id));
            }
            if strategy.choose.is_some() && !base.data.has_validation() {
                return Err(ExperimentError::NoValidation(id));
            }
            if settings.iter().any(|other| other.id == id) {
                return Err(ExperimentError::Twice(id));
            }
            let reference = strategy.choose.as_ref().and_then(|choose| choose.reference.as_ref());
            let reference = reference
                .map(|id| {
                    let found = experiment.strategies.iter().find(|strategy| strategy.id == *id);
                    found.cloned().ok_or_else(|| no_strategy(id, experiment))
                })
                .transpose()?;
            let prefix = id.strip_suffix(&strategy.id).unwrap_or_default();
            let ends = ends(strategy.reach.as_ref(), prefix, &settings)?;
            let strategy = strategy.clone();
            let variant = variant.id.clone();
            settings.push(Setting { id, label, variant, base, strategy, reference, ends, twin: None });
        }
    }
    Ok(settings)
}

fn no_strategy(id: &str, experiment: &Experiment) -> ExperimentError {
    let known = || experiment.strategies.iter().map(|strategy| strategy.id.as_str());
    let (hint, known) = (hint(id, known()), known().collect::<Vec<_>>().join(", "));
    ExperimentError::NoStrategy { id: id.into(), hint, known }
}

/// The settings of the same variant that a `reach` names.
fn ends(reach: Option<&Reach>, prefix: &str, earlier: &[Setting]) -> Result<Vec<Setting>, ExperimentError> {
    let Some(Reach { from, to, .. }) = reach else { return Ok(vec![]) };
    let find = |(key, id): (&'static str, &String)| {
        let wanted = format!("{prefix}{id}");
        let found = earlier.iter().find(|setting| setting.id == wanted);
        found.cloned().ok_or_else(|| ExperimentError::Reach { key, id: id.clone() })
    };
    [("from", from), ("to", to)].into_iter().map(find).collect()
}

impl Experiment {
    fn deserialize_all(table: Table) -> Result<Self, toml::de::Error> {
        table.try_into()
    }
}
