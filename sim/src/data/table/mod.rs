//! Tables of people: CSV with a declared schema, and ARFF.
//!
//! | part | does | file |
//! |---|---|---|
//! | [`Schema`] | which columns are read, and their meaning | here |
//! | schemas | Adult, COMPAS, Bank | `schemas` |
//! | encode | one column per category, numbers to [0, 1], fitted on training rows only | `encode` |
//! | arff | WISDM | `arff` |
//!
//! Only columns that a schema names are read. No schema names personal names, dates of birth or case numbers, so they
//! stay out of memory beyond their line. Error messages quote no field.

mod arff;
mod encode;
mod schemas;

use std::path::{Path, PathBuf};

use common::rng::Rng;
use trainer::data::load::{CsvRow, CsvRows};

pub use arff::wisdm;
pub use schemas::{ADULT, BANK, COMPAS};

use super::{DataSet, Records, SetError, source};
use encode::Column;

/// Share of rows for training; 7:3 as in the source.
const TRAIN: f64 = 0.7;

/// The meaning of the columns of a table.
#[derive(Copy, Clone, Debug)]
pub struct Schema {
    separator: u8,
    /// Names of the columns; empty if the first line contains them.
    names: &'static [&'static str],
    /// Lines that start with this byte are skipped.
    comment: Option<u8>,
    numbers: &'static [&'static str],
    categories: &'static [&'static str],
    label: Label,
    groups: GroupRule,
    clients: ClientRule,
}

/// A column with two values, and their names.
#[derive(Copy, Clone, Debug)]
pub struct Label {
    pub column: &'static str,
    /// Texts that mean class 0, and texts that mean class 1.
    pub texts: [&'static [&'static str]; 2],
    pub names: [&'static str; 2],
}

/// How the sensitive attribute is derived from a row.
#[derive(Copy, Clone, Debug)]
pub enum GroupRule {
    /// One group per value.
    Values(&'static str, &'static [&'static str]),
    /// Two columns that have a given value or not: `2 * first + second`.
    Cross([(&'static str, &'static str); 2]),
    /// This many groups with equally many training rows.
    Quantiles(&'static str, usize),
}

/// How rows are divided that a source gives to its clients in different shares.
#[derive(Copy, Clone, Debug)]
pub enum ClientRule {
    /// Rows with this value, and all others.
    Value(&'static str, &'static str),
    /// Rows with at most this number, and all others.
    AtMost(&'static str, u32),
}

/// Reads all files as one table and divides it anew, as the source does.
pub fn load(name: &str, files: &[PathBuf], schema: &Schema, seed: u64) -> Result<DataSet, SetError> {
    let mut table = Table::new(schema);
    for path in files {
        table.read(path)?;
    }
    let (train, test) = divide(table.labels.len(), seed);
    let columns: Vec<Column> = table.numbers.into_iter().chain(table.categories).collect();
    let encoded = encode::encode(&columns, &train, &test);
    let (groups, group_names) = table.groups.finish(schema, &train);
    let of = |rows: &[u32], features| {
        let pick = |row: &u32| table.labels.get(*row as usize).copied();
        let labels = rows.iter().filter_map(pick).collect();
        let client = |row: &u32| table.clients.get(*row as usize).copied();
        let group = |row: &u32| groups.get(*row as usize).copied();
        Records::new(features, labels, encoded.inputs, 1)?
            .with_groups(rows.iter().filter_map(group).collect())?
            .with_clients(rows.iter().filter_map(client).collect())
    };
    let wrong = |source| SetError::Data { name: name.into(), source };
    let (train, test) = (of(&train, encoded.train).map_err(wrong)?, of(&test, encoded.test).map_err(wrong)?);
    let set = DataSet::new(name, vec![encoded.inputs], 2, train, test)
        .and_then(|set| set.with_group_names(group_names))
        .and_then(|set| set.with_client_names(schema.clients.names()))
        .map_err(wrong)?;
    Ok(set.with_class_names(&schema.label.names))
}

/// Rows to train on and rows for test, in random order.
fn divide(rows: usize, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let mut order: Vec<u32> = (0..rows as u32).collect();
    Rng::new(seed).shuffle(&mut order);
    let test = order.split_off((TRAIN * rows as f64).round() as usize);
    (order, test)
}

/// Columns as they are read.
struct Table<'a> {
    schema: &'a Schema,
    numbers: Vec<Column>,
    categories: Vec<Column>,
    labels: Vec<u32>,
    groups: Groups,
    clients: Vec<u32>,
}

/// Known at once, or numbers whose quantiles are computed later.
enum Groups {
    Known(Vec<u8>),
    Numbers(Vec<f32>),
}

/// The columns of a file, by name.
struct Header<'a>(Vec<&'a str>);

impl<'a> Table<'a> {
    fn new(schema: &'a Schema) -> Self {
        let quantiles = matches!(schema.groups, GroupRule::Quantiles(..));
        Self {
            schema,
            numbers: schema.numbers.iter().map(|_| Column::Numbers(Vec::new())).collect(),
            categories: schema.categories.iter().map(|_| Column::categories()).collect(),
            labels: Vec::new(),
            groups: if quantiles { Groups::Numbers(Vec::new()) } else { Groups::Known(Vec::new()) },
            clients: Vec::new(),
        }
    }

    fn read(&mut self, path: &Path) -> Result<(), SetError> {
        let schema = self.schema;
        let mut rows = CsvRows::new(source::open(path)?, schema.separator, schema.comment);
        let header = if schema.names.is_empty() { rows.read()?.map(|(_, row)| row.clone()) } else { None };
        let names = Header(header.as_ref().map_or(schema.names.to_vec(), |header| header.iter().collect()));
        let before = self.labels.len();
        while let Some((line, row)) = rows.read()? {
            self.add(&names, row).map_err(|problem| SetError::line(path, line, problem))?;
        }
        if self.labels.len() == before {
            return Err(SetError::format(path, "holds no rows"));
        }
        Ok(())
    }

    fn add(&mut self, names: &Header<'_>, fields: &CsvRow) -> Result<(), String> {
        if fields.len() != names.0.len() {
            return Err(format!("has {} columns where {} are expected", fields.len(), names.0.len()));
        }
        let schema = self.schema;
        for (column, name) in self.numbers.iter_mut().zip(schema.numbers) {
            column.push_number(names.number(name, fields)?);
        }
        for (column, name) in self.categories.iter_mut().zip(schema.categories) {
            column
                .push_category(names.text(name, fields)?)
                .map_err(|problem| format!("`{name}` {problem}"))?;
        }
        let text = names.text(schema.label.column, fields)?;
        let label = schema.label.texts.iter().position(|texts| texts.contains(&text));
        let label = label.ok_or_else(|| format!("`{}` is not one of its two values", schema.label.column))?;
        match (&mut self.groups, schema.groups) {
            (Groups::Known(groups), GroupRule::Values(name, values)) => {
                let text = names.text(name, fields)?;
                let group = values.iter().position(|value| *value == text);
                groups.push(group.ok_or_else(|| format!("`{name}` is none of {}", values.join(", ")))? as u8);
            }
            (Groups::Known(groups), GroupRule::Cross([first, second])) => {
                let is = |(name, value)| names.text(name, fields).map(|text| u8::from(text == value));
                groups.push(2 * is(first)? + is(second)?);
            }
            (Groups::Numbers(numbers), GroupRule::Quantiles(name, _)) => {
                numbers.push(names.known_number(name, fields)?);
            }
            // `new` created the variant that the rule needs.
            (Groups::Known(_), GroupRule::Quantiles(..)) | (Groups::Numbers(_), _) => {}
        }
        self.clients.push(match schema.clients {
            ClientRule::Value(name, value) => (names.text(name, fields)? != value).into(),
            ClientRule::AtMost(name, most) => (names.known_number(name, fields)? > most as f32).into(),
        });
        self.labels.push(label as u32);
        Ok(())
    }
}

impl Header<'_> {
    /// The field of a column; the first one if two columns have the same name.
    fn text<'b>(&self, name: &str, fields: &'b CsvRow) -> Result<&'b str, String> {
        let at = self.0.iter().position(|other| *other == name);
        let field = at.and_then(|at| fields.get(at)).ok_or_else(|| format!("there is no column `{name}`"))?;
        Ok(field)
    }

    /// NaN if the value is missing.
    fn number(&self, name: &str, fields: &CsvRow) -> Result<f32, String> {
        let text = self.text(name, fields)?;
        if text.is_empty() || text == "?" {
            return Ok(f32::NAN);
        }
        let number: Option<f32> = text.parse().ok().filter(|number: &f32| number.is_finite());
        number.ok_or_else(|| format!("`{name}` is not a finite number"))
    }

    fn known_number(&self, name: &str, fields: &CsvRow) -> Result<f32, String> {
        let number = self.number(name, fields)?;
        if number.is_nan() { Err(format!("`{name}` is missing")) } else { Ok(number) }
    }
}

impl Groups {
    fn finish(self, schema: &Schema, train: &[u32]) -> (Vec<u8>, Vec<String>) {
        match (self, schema.groups) {
            (Self::Numbers(numbers), GroupRule::Quantiles(name, parts)) => {
                let cuts = encode::quantiles(&numbers, train, parts);
                let group = |number: &f32| cuts.iter().filter(|cut| number >= cut).count() as u8;
                let names = (0..=cuts.len()).map(|part| {
                    match (part.checked_sub(1).and_then(|below| cuts.get(below)), cuts.get(part)) {
                        (None, Some(high)) => format!("{name} below {high}"),
                        (Some(low), None) => format!("{name} from {low}"),
                        (Some(low), Some(high)) => format!("{name} {low} to {}", high - 1.0),
                        (None, None) => name.to_owned(),
                    }
                });
                (numbers.iter().map(group).collect(), names.collect())
            }
            (Self::Known(groups), GroupRule::Values(_, values)) => {
                (groups, values.iter().map(|&value| value.into()).collect())
            }
            (Self::Known(groups), GroupRule::Cross([(_, a), (_, b)])) => {
                let not = |value: &str| format!("not {value}");
                let names = [
                    format!("{}, {}", not(a), not(b)),
                    format!("{}, {b}", not(a)),
                    format!("{a}, {}", not(b)),
                    format!("{a}, {b}"),
                ];
                (groups, names.to_vec())
            }
            (Self::Known(groups), GroupRule::Quantiles(..)) => (groups, Vec::new()),
            (Self::Numbers(_), _) => (Vec::new(), Vec::new()),
        }
    }
}

impl ClientRule {
    fn names(&self) -> Vec<String> {
        match self {
            Self::Value(name, value) => vec![format!("{name} {value}"), format!("{name} other")],
            Self::AtMost(name, most) => vec![format!("{name} to {most}"), format!("{name} above {most}")],
        }
    }
}

#[cfg(test)]
mod tests;
