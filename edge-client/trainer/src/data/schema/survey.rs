//! What a file holds, and all that does not fit the schema.

use std::path::Path;

use serde::Serialize;

use super::{
    Column, Kind, Scaling, Schema, Table, Targets,
    arrays::read_any,
    cell::Cell,
    read::{SchemaRows, read},
};
use crate::data::load::{Format, LoadError};

/// Most lines that are listed one by one.
const LISTED: usize = 20;

/// The content of one file.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Survey {
    /// Lines with samples, including those that do not fit.
    pub rows: usize,
    /// Lines that do not fit.
    pub misfits: usize,
    /// Samples that the file yields; none while a line does not fit.
    pub samples: usize,
    /// Rows that are too few for another window.
    pub left_over: usize,
    /// The first lines that do not fit.
    pub findings: Vec<Finding>,
    /// In the order of the schema.
    pub columns: Vec<ColumnSurvey>,
}

/// A line that does not fit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, and the remedy.
    pub problem: String,
}

/// The content of one column, in lines that fit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ColumnSurvey {
    /// Its name.
    pub name: String,
    /// The type in the schema.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Values that are missing and replaced.
    pub missing: usize,
    /// How often each level or class occurs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<(String, usize)>,
    /// Smallest number, largest number, mean and deviation before scaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<NumberRange>,
}

/// The spread of the numbers of a column.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct NumberRange {
    /// The smallest number.
    pub min: f64,
    /// The largest number.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
}

/// Reads a whole file and lists what does not fit. A file that cannot be read, or whose header does not fit, is an error.
pub fn survey(path: &Path, schema: &Schema, targets: Targets) -> Result<Survey, LoadError> {
    let mut rows = SchemaRows::open(path, schema, targets)?;
    let mut found = Survey {
        rows: 0,
        misfits: 0,
        samples: 0,
        left_over: 0,
        findings: Vec::new(),
        columns: schema.columns.iter().map(|column| ColumnSurvey::new(&column.name, &column.kind)).collect(),
    };
    let mut moments = vec![Moments::default(); schema.columns.len()];
    while let Some((line, cells, _)) = rows.next()? {
        found.rows += 1;
        match cells {
            Err(error) => {
                found.misfits += 1;
                if found.findings.len() < LISTED {
                    found.findings.push(Finding { line, problem: error.to_string() });
                }
            }
            Ok(cells) => {
                for ((column, moments), cell) in found.columns.iter_mut().zip(&mut moments).zip(cells) {
                    match cell {
                        Cell::Number(value) => moments.add(f64::from(*value)),
                        Cell::Level(at) => {
                            column
                                .counts
                                .get_mut(*at as usize)
                                .into_iter()
                                .for_each(|(_, count)| *count += 1);
                        }
                        Cell::Missing => column.missing += 1,
                        Cell::Unused => {}
                    }
                }
            }
        }
    }
    for (column, moments) in found.columns.iter_mut().zip(moments) {
        column.range = moments.range();
    }
    if found.misfits == 0 {
        let table = read(path, schema, targets)?;
        (found.samples, found.left_over) = (table.len(), table.left_over);
    }
    Ok(found)
}

/// As [`survey`], of a file in any format. Arrays and images are only counted.
pub fn survey_any(path: &Path, schema: &Schema, targets: Targets) -> Result<Survey, LoadError> {
    if Format::of(path)? == Format::Csv {
        return survey(path, schema, targets);
    }
    let table = read_any(path, schema, targets)?;
    let mut columns = Vec::new();
    for column in &schema.columns {
        let mut found = ColumnSurvey::new(&column.name, &column.kind);
        let levels: &[u32] = match column.kind {
            Kind::Label { .. } => &table.labels,
            Kind::Attribute { .. } => &table.attributes,
            _ => &[],
        };
        for level in levels {
            found.counts.get_mut(*level as usize).into_iter().for_each(|(_, count)| *count += 1);
        }
        columns.push(found);
    }
    let (rows, samples) = (table.len(), table.len());
    Ok(Survey { rows, misfits: 0, samples, left_over: 0, findings: Vec::new(), columns })
}

/// Mean and deviation of the columns whose scale the fleet agrees on, in the order of the schema.
pub fn fleet_moments(path: &Path, schema: &Schema) -> Result<Vec<(f32, f32)>, LoadError> {
    // Refuses what does not fit.
    let table = read_any(path, schema, Targets::Needed)?;
    let ranges: Vec<Option<NumberRange>> = match Format::of(path)? {
        Format::Csv => {
            let found = survey(path, schema, Targets::Needed)?;
            found.columns.into_iter().map(|column| column.range).collect()
        }
        _ => array_ranges(&table, schema),
    };
    let fleet = |kind: &Kind| kind.scaling() == Some(Scaling::Fleet);
    let columns = schema.columns.iter().zip(ranges).filter(|(column, _)| fleet(&column.kind));
    let moments = |(column, range): (&Column, Option<NumberRange>)| match range {
        Some(range) => Ok((range.mean as f32, range.deviation as f32)),
        None => {
            let problem = format!("column `{}` has no value at all, so it has no mean", column.name);
            Err(LoadError::Format { path: path.into(), problem })
        }
    };
    columns.map(moments).collect()
}

/// The ranges of columns in a table without windows.
fn array_ranges(table: &Table, schema: &Schema) -> Vec<Option<NumberRange>> {
    let (mut input, mut target) = (0, 0);
    let range = |column: &Column| {
        let mut moments = Moments::default();
        let inputs = input..input + column.kind.inputs();
        input = inputs.end;
        for sample in table.features.chunks(table.inputs.max(1)) {
            sample.get(inputs.clone()).into_iter().flatten().for_each(|value| moments.add(f64::from(*value)));
        }
        if matches!(column.kind, Kind::Target { .. }) {
            let values = table.values.iter().skip(target).step_by(schema.outputs().max(1));
            values.for_each(|value| moments.add(f64::from(*value)));
            target += 1;
        }
        moments.range()
    };
    schema.columns.iter().map(range).collect()
}

impl ColumnSurvey {
    fn new(name: &str, kind: &Kind) -> Self {
        let levels = match kind {
            Kind::Category { levels, .. } | Kind::Attribute { levels } => levels.as_slice(),
            Kind::Label { classes } => classes.as_slice(),
            Kind::Number { .. } | Kind::Target { .. } | Kind::Array { .. } | Kind::Ignored => &[],
        };
        let counts = levels.iter().map(|level| (level.clone(), 0)).collect();
        Self { name: name.to_owned(), kind: kind.word(), missing: 0, counts, range: None }
    }
}

/// Mean and spread in one pass (Welford).
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Moments {
    pub(super) count: u64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Moments {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        let from_mean = value - self.mean;
        self.mean += from_mean / self.count as f64;
        self.squares += from_mean * (value - self.mean);
        (self.min, self.max) = match self.count {
            1 => (value, value),
            _ => (self.min.min(value), self.max.max(value)),
        };
    }

    /// `None` without values.
    pub(super) fn range(&self) -> Option<NumberRange> {
        (self.count > 0).then(|| NumberRange {
            min: self.min,
            max: self.max,
            mean: self.mean,
            deviation: (self.squares / self.count as f64).max(0.0).sqrt(),
        })
    }
}
