//! Where an experiment's samples come from: a set by name, or files of one's own. Paths are relative to the experiment file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use common::files::{MAX_CONFIG, read_text};
use serde::{Deserialize, Serialize};
use trainer::data::schema::{Schema, SchemaText};

use super::{ExperimentError, LoadedExperiment, spec::DataSpec};
use crate::{
    data::{DataDirs, DataSet, OwnData, OwnFile, OwnFormat, known},
    partition::Partition,
    results::ExperimentRecord,
};

/// What columns mean: a file with a table `[data]`, as `fairtier data schema` writes it, or the table itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
#[serde(try_from = "toml::Value")]
pub enum SchemaSpec {
    File(PathBuf),
    Inline(Box<SchemaText>),
}

impl TryFrom<toml::Value> for SchemaSpec {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::String(path) => Ok(Self::File(path.into())),
            toml::Value::Table(table) => {
                table.try_into().map(Self::Inline).map_err(|error| format!("`schema`: {}", error.message()))
            }
            _ => Err("`schema` must be the path of a file, or a table with `task` and `columns`".into()),
        }
    }
}

impl SchemaSpec {
    fn read(&self, dir: &Path) -> Result<Schema, ExperimentError> {
        let (path, schema) = match self {
            Self::Inline(text) => (PathBuf::from("data.schema"), text.as_ref().clone().schema()),
            Self::File(path) => {
                let path = dir.join(path);
                let failed = |source| ExperimentError::Read { path: path.clone(), source };
                let text = read_text(&path, MAX_CONFIG).map_err(failed)?;
                (path, Schema::from_toml(&text))
            }
        };
        schema.map_err(|source| ExperimentError::Schema { path, source: Box::new(source) })
    }
}

/// Most rounds of training of a setting, by the text of a record; `None` if it is no experiment of this version.
pub(crate) fn rounds_of(record: &ExperimentRecord) -> Option<usize> {
    let table = record.toml.parse::<toml::Table>().ok()?;
    let loaded = LoadedExperiment::of(&record.experiment, &record.profile, table).ok()?;
    loaded.settings.iter().map(|setting| setting.base.rounds as usize).max()
}

/// What each setting of a record is trained and tested on, by its id; empty if its text is no experiment of this version.
pub(crate) fn data_of(record: &ExperimentRecord) -> BTreeMap<String, String> {
    let table = record.toml.parse::<toml::Table>().ok();
    let loaded =
        table.and_then(|table| LoadedExperiment::of(&record.experiment, &record.profile, table).ok());
    let settings = loaded.iter().flat_map(|loaded| &loaded.settings);
    let mut all: BTreeMap<String, String> =
        settings.map(|setting| (setting.id.clone(), setting.base.data.about())).collect();
    // Settings without fairness that were added for a comparison.
    for setting in &record.settings {
        if let (Some(twin), Some(data)) = (&setting.twin, all.get(&setting.id).cloned()) {
            all.entry(twin.clone()).or_insert(data);
        }
    }
    all
}

impl DataSpec {
    /// Source, partition, and whatever else makes scores comparable, in one line.
    pub fn about(&self) -> String {
        let source = match self.file() {
            Ok(Some((_, path))) => path.display().to_string(),
            _ => self.set.clone(),
        };
        let mut parts = vec![source, self.partition.to_string()];
        let mut add =
            |name: &str, value: Option<String>| parts.extend(value.map(|value| format!("{name} {value}")));
        add("clients", self.clients.map(|clients| clients.to_string()));
        add("testing", self.testing.map(|testing| serde_json::json!(testing).to_string()));
        add("test", self.test.as_ref().map(|path| path.display().to_string()));
        add("noise", (self.noise > 0.0).then(|| self.noise.to_string()));
        add("samples", self.samples.map(|samples| samples.to_string()));
        add("test samples", self.test_samples.map(|samples| samples.to_string()));
        add("pool", (self.pool != 1).then(|| self.pool.to_string()));
        parts.join(", ")
    }

    /// Loads or generates the set.
    pub fn load_set(&self, dir: &Path, places: &DataDirs, seed: u64) -> Result<DataSet, ExperimentError> {
        let set = match self.own(dir)? {
            Some(own) => own.load()?,
            None => known::load(&self.set, places, seed)?,
        };
        Ok(match &self.partition {
            Partition::File { path } => set.with_owners(&dir.join(path))?,
            _ => set,
        })
    }

    /// The file of samples and its format; `None` for a set by name.
    pub fn file(&self) -> Result<Option<(OwnFormat, &Path)>, ExperimentError> {
        let files = [
            (OwnFormat::Csv, &self.csv),
            (OwnFormat::Npz, &self.npz),
            (OwnFormat::Npy, &self.npy),
            (OwnFormat::Idx, &self.idx),
            (OwnFormat::Folder, &self.folder),
        ];
        let mut given = files.iter().filter_map(|(format, path)| Some((*format, path.as_deref()?)));
        match (given.next(), given.next(), self.set.is_empty()) {
            (Some(file), None, true) => Ok(Some(file)),
            (None, _, false) => match self.stray() {
                Some(key) => Err(ExperimentError::OwnKey(key)),
                None => Ok(None),
            },
            _ => Err(ExperimentError::Source),
        }
    }

    /// A key that only files of one's own have.
    fn stray(&self) -> Option<&'static str> {
        let keys = [
            ("labels", self.labels.is_some()),
            ("label", self.label.is_some()),
            ("schema", self.schema.is_some()),
            ("test", self.test.is_some()),
            ("test_labels", self.test_labels.is_some()),
        ];
        keys.iter().find(|(_, given)| *given).map(|(key, _)| *key)
    }

    fn own(&self, dir: &Path) -> Result<Option<OwnData>, ExperimentError> {
        let Some((format, path)) = self.file()? else { return Ok(None) };
        let file = |path: &Path, labels: &Option<PathBuf>| OwnFile {
            path: dir.join(path),
            labels: labels.as_ref().map(|labels| dir.join(labels)),
        };
        Ok(Some(OwnData {
            format,
            train: file(path, &self.labels),
            test: self.test.as_ref().map(|test| file(test, &self.test_labels)),
            schema: self.schema.as_ref().map(|schema| schema.read(dir)).transpose()?,
            label: self.label.clone(),
            clients: match &self.partition {
                Partition::Column { name } => Some(name.clone()),
                _ => None,
            },
        }))
    }

    /// Every file that the samples and their division depend on.
    pub fn files(&self) -> Vec<&Path> {
        let schema = match &self.schema {
            Some(SchemaSpec::File(path)) => Some(path),
            _ => None,
        };
        let owners = match &self.partition {
            Partition::File { path } => Some(path),
            _ => None,
        };
        let samples = [&self.csv, &self.npz, &self.npy, &self.idx, &self.folder, &self.labels];
        let tests = [&self.test, &self.test_labels];
        let named = samples.into_iter().chain(tests).filter_map(Option::as_deref);
        named.chain([schema, owners].into_iter().flatten().map(PathBuf::as_path)).collect()
    }
}
