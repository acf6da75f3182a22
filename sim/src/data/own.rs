//! Files of one's own as a data set: the formats and the schema of devices, with the same readers and errors.

use std::path::{Path, PathBuf};

use trainer::data::{
    DataError, Samples,
    load::{self, LoadError},
    schema::{self, Column, Kind, Proposal, ProposeError, ProposeOptions, Schema, Targets, Task},
};

use super::{DataSet, Features, Records, SetError};

/// The format of the files.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OwnFormat {
    Csv,
    Npz,
    Npy,
    Idx,
    Folder,
}

/// Samples of one part: a file, and the file of its labels where the format needs one.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnFile {
    pub path: PathBuf,
    pub labels: Option<PathBuf>,
}

/// Files to read as one data set.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnData {
    pub format: OwnFormat,
    pub train: OwnFile,
    pub test: Option<OwnFile>,
    /// What columns mean; `None` proposes it from the training file.
    pub schema: Option<Schema>,
    /// Column of the label, for CSV without a schema.
    pub label: Option<String>,
    /// Column whose values are natural clients.
    pub clients: Option<String>,
}

/// Why files of one's own cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum OwnError {
    #[error("{}: {source}", path.display())]
    Propose { path: PathBuf, source: ProposeError },
    #[error("a CSV file needs `label`, the name of the column to predict, or `schema`")]
    NoLabel,
    #[error("`label` is for CSV files without a schema; remove it")]
    Label,
    #[error("`labels` names the labels of an .npy or IDX file; set it for these formats, and for no other")]
    Labels,
    #[error("IDX files take no schema; remove `schema`")]
    IdxSchema,
    #[error("{}: its targets are classes, and those of {} are numbers; write both alike", other.display(), numbers.display())]
    Targets { other: PathBuf, numbers: PathBuf },
    #[error("`{0}` cannot be scaled by the fleet: all its values are equal; set `scaling = \"none\"`")]
    Scale(String),
    #[error("partition `column:{0}` needs a CSV or .npz file; other formats have no columns")]
    NoColumns(String),
    #[error("{}: {problem}", path.display())]
    Clients { path: PathBuf, problem: String },
    #[error("an attribute has at most 256 levels, not {0}")]
    Groups(usize),
}

/// The samples of one file, with the value of the column of clients.
#[derive(Default)]
struct Part {
    features: Vec<f32>,
    labels: Vec<u32>,
    /// Numbers to predict; empty where targets are labels.
    values: Vec<f32>,
    attributes: Vec<u32>,
    inputs: usize,
    targets: usize,
    clients: Vec<String>,
}

impl OwnData {
    pub fn load(&self) -> Result<DataSet, SetError> {
        self.check()?;
        let (schema, notes) = self.resolved()?;
        let train = self.read(&self.train, schema.as_ref())?;
        let test = self.test.as_ref().map(|test| self.read(test, schema.as_ref())).transpose()?;
        let test = test.unwrap_or_default();
        if let Some(OwnFile { path, .. }) = &self.test
            && train.values.is_empty() != test.values.is_empty()
        {
            let (mut other, mut numbers) = (path.clone(), self.train.path.clone());
            if train.values.is_empty() {
                std::mem::swap(&mut other, &mut numbers);
            }
            return Err(OwnError::Targets { other, numbers }.into());
        }
        let largest = train.labels.iter().chain(&test.labels).max().map_or(0, |label| label + 1);
        let classes = schema.as_ref().map_or(largest, |schema| schema.classes().len() as u32);
        let shape = shape(schema.as_ref(), train.inputs);
        let names = self.client_names(&train, &test)?;
        let path = &self.train.path;
        let fault = |source| LoadError::Data { path: path.clone(), source };
        let groups = schema.as_ref().and_then(Schema::attribute).unwrap_or_default();
        let (train, test) = (records(train, &names, groups)?, records(test, &names, groups)?);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut set = DataSet::new(&name, shape, classes, train, test).map_err(fault)?;
        if let Some(schema) = &schema {
            set.class_names = schema.classes().to_vec();
            set.units = schema.targets().map(|(_, scaling)| scaling.unit()).collect();
        }
        set.group_names = groups.to_vec();
        set.client_names = names;
        set.notes = notes;
        Ok(set)
    }

    fn check(&self) -> Result<(), OwnError> {
        let files = [Some(&self.train), self.test.as_ref()];
        let pair = matches!(self.format, OwnFormat::Npy | OwnFormat::Idx);
        let csv = self.format == OwnFormat::Csv;
        if files.into_iter().flatten().any(|file| file.labels.is_some() != pair) {
            return Err(OwnError::Labels);
        }
        match (&self.clients, &self.schema, &self.label) {
            (Some(column), ..) if !csv && self.format != OwnFormat::Npz => {
                Err(OwnError::NoColumns(column.clone()))
            }
            (_, Some(_), _) if self.format == OwnFormat::Idx => Err(OwnError::IdxSchema),
            (_, None, None) if csv => Err(OwnError::NoLabel),
            (_, Some(_), Some(_)) => Err(OwnError::Label),
            (_, None, Some(_)) if !csv => Err(OwnError::Label),
            _ => Ok(()),
        }
    }

    /// The schema with the column of clients and with the scale of the fleet; `None` if the format needs none. And a line for each
    /// column that a proposed schema does not use.
    fn resolved(&self) -> Result<(Option<Schema>, Vec<String>), SetError> {
        let path = &self.train.path;
        let (proposed, mut notes) = (self.schema.is_none(), Vec::new());
        let mut schema = match &self.schema {
            Some(schema) => schema.clone(),
            None if self.format == OwnFormat::Csv => {
                let options = ProposeOptions { label: self.label.clone(), ..ProposeOptions::default() };
                let fault = |source| OwnError::Propose { path: path.clone(), source };
                let Proposal { schema, remarks, .. } = Schema::propose(path, &options).map_err(fault)?;
                let columns = schema.columns.iter().zip(&remarks);
                let unused = columns.filter(|(column, _)| {
                    column.kind == Kind::Ignored && self.clients.as_ref() != Some(&column.name)
                });
                notes.extend(unused.map(|(Column { name, .. }, remark)| {
                    format!(
                        "{}: column `{name}` is no input: {remark}; a schema may say otherwise",
                        path.display()
                    )
                }));
                schema
            }
            None => return Ok((None, notes)),
        };
        if let Some(name) = &self.clients {
            let known = schema.columns.iter_mut().find(|column| column.name == *name);
            match known {
                // A person who writes a schema decides whether the column is also an input.
                Some(column) if proposed && !matches!(column.kind, Kind::Label { .. }) => {
                    column.kind = Kind::Ignored;
                }
                Some(_) => {}
                None if proposed => {
                    let columns: Vec<&str> = schema.columns.iter().map(|column| &*column.name).collect();
                    let problem = format!(
                        "there is no column `{name}` to divide by; its columns are {}",
                        columns.join(", ")
                    );
                    return Err(OwnError::Clients { path: path.clone(), problem }.into());
                }
                None => schema.columns.push(Column { name: name.clone(), kind: Kind::Ignored }),
            }
        }
        let fleet: Vec<String> = schema.fleet_columns().map(str::to_owned).collect();
        if fleet.is_empty() {
            return Ok((Some(schema), notes));
        }
        let moments = schema::fleet_moments(path, &schema)?;
        let flat = fleet.iter().zip(&moments).find(|(_, (_, deviation))| *deviation <= 0.0);
        match (flat, schema.with_scales(&moments)) {
            (None, Some(scaled)) => Ok((Some(scaled), notes)),
            (flat, _) => {
                let name = flat.map_or(&fleet[0], |(name, _)| name);
                Err(OwnError::Scale(name.clone()).into())
            }
        }
    }

    fn read(&self, file: &OwnFile, schema: Option<&Schema>) -> Result<Part, SetError> {
        let OwnFile { path, labels } = file;
        let labels = || labels.as_deref().ok_or(OwnError::Labels);
        let Some(schema) = schema else {
            let samples = match self.format {
                OwnFormat::Csv => return Err(OwnError::NoLabel.into()),
                OwnFormat::Npz => load::npz(path)?,
                OwnFormat::Npy => load::npy(path, labels()?)?,
                OwnFormat::Idx => load::idx(path, labels()?, 1.0 / 255.0)?,
                OwnFormat::Folder => load::folder(path)?,
            };
            return Ok(Part { clients: self.array_clients(path)?, ..Part::of(&samples) });
        };
        let (table, clients) = match (self.format, &self.clients) {
            (OwnFormat::Csv, Some(column)) => schema::read_with_column(path, schema, column)?,
            (OwnFormat::Csv, None) => (schema::read(path, schema, Targets::Needed)?, vec![]),
            (OwnFormat::Npy, _) => (schema::read_pair(path, labels()?, schema)?, vec![]),
            _ => (schema::read_any(path, schema, Targets::Needed)?, self.array_clients(path)?),
        };
        let targets = if schema.task == Task::Regression { schema.outputs() } else { 1 };
        let schema::Table { inputs, features, labels, values, attributes, .. } = table;
        Ok(Part { features, labels, values, attributes, inputs, targets, clients })
    }

    /// The values of the array of clients in an `.npz` file.
    fn array_clients(&self, path: &Path) -> Result<Vec<String>, SetError> {
        let Some(name) = self.clients.as_ref().filter(|_| self.format == OwnFormat::Npz) else {
            return Ok(vec![]);
        };
        let wrong = |problem: String| OwnError::Clients { path: path.into(), problem };
        let arrays = load::npz_arrays(path)?;
        let found = arrays.iter().find(|(known, _)| known == name);
        let (_, array) = found.ok_or_else(|| {
            wrong(format!("has no array `{name}` to divide by; save it with numpy.savez(path, {name}=..)"))
        })?;
        let numbers = array.data.to_i64();
        let numbers = numbers
            .ok_or_else(|| wrong(format!("array `{name}` holds no whole numbers; use .astype(int)")))?;
        Ok(numbers.iter().map(i64::to_string).collect())
    }

    /// The values of the column of clients in training, in order: numbers by size, words by the alphabet.
    fn client_names(&self, train: &Part, test: &Part) -> Result<Vec<String>, OwnError> {
        let mut names = train.clients.clone();
        names.sort_unstable();
        names.dedup();
        if names.iter().all(|name| name.parse::<f64>().is_ok()) {
            let number = |name: &String| name.parse::<f64>().unwrap_or(f64::INFINITY);
            names.sort_by(|a, b| number(a).total_cmp(&number(b)));
        }
        let unknown = test.clients.iter().enumerate().find(|(_, name)| !names.contains(name));
        match (unknown, &self.test) {
            (Some((at, name)), Some(file)) => {
                let at = at + 1;
                let problem = format!(
                    "sample {at} is of `{name}`, which has no training samples; remove it, or train on it"
                );
                Err(OwnError::Clients { path: file.path.clone(), problem })
            }
            _ => Ok(names),
        }
    }
}

impl Part {
    fn of(samples: &Samples) -> Self {
        Self {
            features: samples.features().to_vec(),
            labels: samples.labels().to_vec(),
            values: samples.values().to_vec(),
            inputs: samples.inputs(),
            targets: samples.targets(),
            ..Self::default()
        }
    }
}

fn shape(schema: Option<&Schema>, inputs: usize) -> Vec<usize> {
    let sizes = schema.into_iter().flat_map(|schema| &schema.columns).find_map(|column| match &column.kind {
        Kind::Array { shape, .. } if column.kind.inputs() == inputs => Some(shape),
        _ => None,
    });
    sizes.map_or_else(|| vec![inputs], |shape| shape.iter().map(|&size| size as usize).collect())
}

fn records(part: Part, names: &[String], groups: &[String]) -> Result<Records, SetError> {
    if part.labels.is_empty() && part.values.is_empty() {
        return Ok(Records::default());
    }
    let fault = |source: DataError| SetError::Data { name: "own data".into(), source };
    let features = Features::Floats(part.features);
    let records = match part.values.is_empty() {
        true => Records::new(features, part.labels, part.inputs, part.targets),
        false => Records::with_values(features, part.values, part.inputs, part.targets),
    };
    let mut records = records.map_err(fault)?;
    if !groups.is_empty() {
        let group = |&group: &u32| u8::try_from(group).map_err(|_| OwnError::Groups(groups.len()));
        let groups = part.attributes.iter().map(group).collect::<Result<_, _>>()?;
        records = records.with_groups(groups).map_err(fault)?;
    }
    if !part.clients.is_empty() {
        let index: std::collections::HashMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
        // `client_names` has refused values that are not among the names.
        let clients = part.clients.iter().filter_map(|name| index.get(name.as_str()).copied()).collect();
        records = records.with_clients(clients).map_err(fault)?;
    }
    Ok(records)
}
