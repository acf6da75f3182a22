//! From a CSV file to samples, by a schema.

use std::{ops::Range, path::Path};

use super::{
    FieldError, HeaderError, Kind, Missing, Scaling, Schema, Task,
    cell::Cell,
    header::Places,
    window::{Window, majority},
};
use crate::data::{
    Samples,
    load::{BoundedFile, CsvRow, CsvRows, LIMIT, LoadError},
};

/// Whether a file must hold what the model predicts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Targets {
    /// Yes: it is used for training or for scores.
    Needed,
    /// A file without these columns is accepted, for predictions.
    Optional,
}

/// The numbers of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    /// Numbers per sample.
    pub inputs: usize,
    /// Sample after sample.
    pub features: Vec<f32>,
    /// One class per sample; empty for a regression, and where the file has none.
    pub labels: Vec<u32>,
    /// The numbers to predict, sample after sample; empty except for a regression.
    pub values: Vec<f32>,
    /// One per sample, or empty.
    pub attributes: Vec<u32>,
    /// Rows at the end of a stretch that are too few for a window.
    pub left_over: usize,
}

impl Table {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.features.len() / self.inputs.max(1)
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Samples to train on.
    pub fn samples(self, schema: &Schema, path: &Path) -> Result<Samples, LoadError> {
        let samples = match schema.task {
            Task::Regression => {
                let units = schema.targets().map(|(_, scaling)| scaling.unit()).collect();
                Samples::with_values(self.features, self.values, self.inputs, schema.outputs())
                    .map(|samples| samples.with_units(units))
            }
            Task::Classification | Task::Binary => Samples::new(self.features, self.labels, self.inputs),
        };
        let samples = match schema.attribute() {
            Some(levels) => samples.and_then(|samples| {
                samples.with_attributes_of(
                    &self.attributes,
                    levels.len() as u32,
                    schema.classes().len() as u32,
                )
            }),
            None => samples,
        };
        samples.map_err(|source| LoadError::Data { path: path.into(), source })
    }
}

/// Reads all samples of a CSV file. Columns with scaling `fleet` are not scaled.
pub fn read(path: &Path, schema: &Schema, targets: Targets) -> Result<Table, LoadError> {
    read_from(BoundedFile::open(path, LIMIT)?, schema, targets)
}

/// As [`read`], from an open file or standard input.
pub fn read_from(source: BoundedFile, schema: &Schema, targets: Targets) -> Result<Table, LoadError> {
    let path = &source.path().to_owned();
    let mut rows = SchemaRows::over(source, schema, targets)?;
    let mut builder = Builder::new(schema);
    while let Some((line, cells, key)) = rows.next()? {
        let cells = cells.map_err(|error| LoadError::Line {
            path: path.clone(),
            line,
            problem: error.to_string(),
        })?;
        builder.add(cells, key);
    }
    builder.finish().map_err(|problem| LoadError::Format { path: path.clone(), problem })
}

/// As [`read`], and the text that a column has in each sample. The column must be in the schema; windows stay within its values.
pub fn read_with_column(
    path: &Path,
    schema: &Schema,
    column: &str,
) -> Result<(Table, Vec<String>), LoadError> {
    let wrong = |problem: String| LoadError::Format { path: path.into(), problem };
    let at = schema.columns.iter().position(|known| known.name == column);
    let at = at.ok_or_else(|| wrong(format!("column `{column}` is not in the schema; add it to [data]")))?;
    let mut rows = SchemaRows { column: Some(at), ..SchemaRows::open(path, schema, Targets::Needed)? };
    let mut builder = Builder::new(schema);
    let mut texts = Vec::new();
    while let Some((line, cells, key)) = rows.next()? {
        let line_error = |problem| LoadError::Line { path: path.into(), line, problem };
        let cells = cells.map_err(|error| line_error(error.to_string()))?;
        builder.add(cells, key);
        if rows.text.is_empty() {
            return Err(line_error(format!("has no value in column `{column}`; every sample needs one")));
        }
        texts.push(rows.text.clone());
    }
    let firsts = builder.first_rows();
    let table = builder.finish().map_err(wrong)?;
    Ok((table, firsts.into_iter().map(|row| texts[row].clone()).collect()))
}

/// Why a line does not fit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum RowError {
    #[error("has {got} columns where the first line has {expected}; correct the line")]
    Fields { got: usize, expected: usize },
    #[error("column {number} (`{name}`) {error}")]
    Field { number: usize, name: String, error: FieldError },
    #[error(transparent)]
    Header(#[from] HeaderError),
}

/// The lines of a file as cells, one per column of the schema.
pub(super) struct SchemaRows<'a> {
    schema: &'a Schema,
    targets: Targets,
    rows: CsvRows,
    /// Known after the first line.
    places: Option<Places>,
    cells: Vec<Cell>,
    /// The text of the columns that windows stay within.
    key: String,
    /// A column whose text is kept.
    column: Option<usize>,
    /// Its text in the last line; empty if it is missing.
    text: String,
}

/// Line, cells, and the text of the columns that windows stay within.
pub(super) type CellRow<'a> = (usize, Result<&'a [Cell], RowError>, &'a str);

impl<'a> SchemaRows<'a> {
    pub(super) fn open(path: &Path, schema: &'a Schema, targets: Targets) -> Result<Self, LoadError> {
        Self::over(BoundedFile::open(path, LIMIT)?, schema, targets)
    }

    fn over(source: BoundedFile, schema: &'a Schema, targets: Targets) -> Result<Self, LoadError> {
        let path = &source.path().to_owned();
        let rows = CsvRows::detect(source)?;
        let (cells, key, text) = (Vec::new(), String::new(), String::new());
        let mut rows = Self { schema, targets, rows, places: None, cells, key, column: None, text };
        if schema.header
            && let Some((line, header)) = rows.rows.read()?
        {
            let wrong =
                |error: HeaderError| LoadError::Line { path: path.into(), line, problem: error.to_string() };
            rows.places = Some(Places::named(schema, header, targets).map_err(wrong)?);
        }
        Ok(rows)
    }

    /// The next line; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<CellRow<'_>>, LoadError> {
        let Some((line, row)) = self.rows.read()? else { return Ok(None) };
        let places = match &self.places {
            Some(places) => places,
            None => match Places::ordered(self.schema, row, self.targets) {
                Ok(places) => self.places.insert(places),
                Err(error) => return Ok(Some((line, Err(error.into()), ""))),
            },
        };
        let result = cells(self.schema, places, row, self.targets, &mut self.cells);
        let text = |column: usize| places.at[column].and_then(|place| row.get(place)).unwrap_or_default();
        self.key.clear();
        if let Some(Window { within: Some(name), .. }) = &self.schema.window {
            let column = self.schema.columns.iter().position(|column| column.name == *name);
            self.key.push_str(column.map_or("", text));
        }
        if let Some(column) = self.column {
            self.text.clear();
            self.text.push_str(Some(text(column)).filter(|text| !self.schema.is_missing(text)).unwrap_or(""));
            self.key.push('\0');
            self.key.push_str(&self.text);
        }
        Ok(Some((line, result.map(|()| self.cells.as_slice()), &self.key)))
    }
}

fn cells(
    schema: &Schema,
    places: &Places,
    row: &CsvRow,
    targets: Targets,
    cells: &mut Vec<Cell>,
) -> Result<(), RowError> {
    cells.clear();
    if row.len() != places.fields {
        return Err(RowError::Fields { got: row.len(), expected: places.fields });
    }
    for (column, place) in schema.columns.iter().zip(&places.at) {
        let cell = match place {
            // A row to predict may leave open what is predicted.
            Some(place)
                if targets == Targets::Optional
                    && column.kind.inputs() == 0
                    && schema.is_missing(row.get(*place).unwrap_or_default()) =>
            {
                Cell::Unused
            }
            Some(place) => {
                let field = row.get(*place).unwrap_or_default();
                schema.cell(column, field).map_err(|error| RowError::Field {
                    number: place + 1,
                    name: column.name.clone(),
                    error,
                })?
            }
            None => Cell::Unused,
        };
        cells.push(cell);
    }
    Ok(())
}

/// Collects rows, then fills in means and forms windows.
struct Builder<'a> {
    schema: &'a Schema,
    table: Table,
    /// Per column: sum and number of the values that are there.
    sums: Vec<(f64, u64)>,
    /// Features that get the mean of their column.
    holes: Vec<(usize, usize)>,
    /// First row of each stretch that windows stay within.
    stretches: Vec<usize>,
    key: String,
}

impl<'a> Builder<'a> {
    fn new(schema: &'a Schema) -> Self {
        Self {
            schema,
            table: Table { inputs: schema.row_inputs(), ..Table::default() },
            sums: vec![(0.0, 0); schema.columns.len()],
            holes: Vec::new(),
            stretches: Vec::new(),
            key: String::new(),
        }
    }

    fn add(&mut self, cells: &[Cell], key: &str) {
        let table = &mut self.table;
        if self.stretches.is_empty() || self.key != key {
            self.stretches.push(table.len());
            key.clone_into(&mut self.key);
        }
        for (at, (column, cell)) in self.schema.columns.iter().zip(cells).enumerate() {
            match (&column.kind, *cell) {
                (Kind::Number { scaling, .. }, Cell::Number(value)) => {
                    self.sums[at] = (self.sums[at].0 + f64::from(value), self.sums[at].1 + 1);
                    table.features.push(scaling.apply(value));
                }
                (Kind::Number { missing, scaling }, _) => match (missing, scaling.mean()) {
                    (Missing::Constant(value), _) => table.features.push(scaling.apply(*value)),
                    (_, Some(mean)) => table.features.push(scaling.apply(mean)),
                    (_, None) => {
                        self.holes.push((table.features.len(), at));
                        table.features.push(0.0);
                    }
                },
                (Kind::Category { levels, missing }, cell) => {
                    let level = match (cell, *missing) {
                        (Cell::Level(level), _) | (_, Missing::Constant(level)) => Some(level as usize),
                        _ => None,
                    };
                    table.features.extend((0..levels.len()).map(|at| f32::from(Some(at) == level)));
                }
                (Kind::Label { .. }, Cell::Level(class)) => table.labels.push(class),
                (Kind::Target { scaling }, Cell::Number(value)) => table.values.push(scaling.apply(value)),
                (Kind::Attribute { .. }, Cell::Level(level)) => table.attributes.push(level),
                _ => {}
            }
        }
    }

    /// The first row of every sample.
    fn first_rows(&self) -> Vec<usize> {
        let rows = self.table.len();
        let Some(window) = &self.schema.window else { return (0..rows).collect() };
        self.stretches(rows).flat_map(|stretch| window.starts(stretch)).map(|part| part.start).collect()
    }

    /// The rows of each stretch.
    fn stretches(&self, rows: usize) -> impl Iterator<Item = Range<usize>> {
        let ends = self.stretches.iter().skip(1).copied().chain([rows]);
        self.stretches.iter().copied().zip(ends).map(|(start, end)| start..end)
    }

    fn finish(mut self) -> Result<Table, String> {
        if self.table.is_empty() {
            return Err("holds no samples".into());
        }
        let (rows, targets) = (self.table.len(), self.schema.targets().count());
        for (have, all) in [(self.table.labels.len(), rows), (self.table.values.len(), rows * targets)] {
            if have != 0 && have != all {
                return Err(format!("has {have} labels for {all} rows; fill in the others, or remove all"));
            }
        }
        for (feature, column) in std::mem::take(&mut self.holes) {
            let (sum, count) = self.sums[column];
            let column = &self.schema.columns[column];
            if count == 0 {
                return Err(format!(
                    "column `{}` has no value at all, so it has no mean; set `missing = {{ constant = .. }}` in [data]",
                    column.name
                ));
            }
            let scaling = column.kind.scaling().unwrap_or(Scaling::None);
            self.table.features[feature] = scaling.apply((sum / count as f64) as f32);
        }
        if let Some(at) = self.table.features.iter().position(|value| !value.is_finite()) {
            let row = at / self.table.inputs.max(1) + 1;
            return Err(format!("sample {row} is not finite after scaling; correct `scaling` in [data]"));
        }
        match &self.schema.window {
            Some(window) => self.windows(window),
            None => Ok(self.table),
        }
    }

    fn windows(&self, window: &Window) -> Result<Table, String> {
        let rows = &self.table;
        let mut table = Table { inputs: self.schema.inputs(), ..Table::default() };
        let mut used = 0;
        for stretch in self.stretches(rows.len()) {
            let start = stretch.start;
            let mut last = start;
            for part in window.starts(stretch) {
                let numbers = part.start * rows.inputs..part.end * rows.inputs;
                window.push(&rows.features[numbers], rows.inputs, &mut table.features);
                table.labels.extend(rows.labels.get(part.clone()).and_then(majority));
                table.attributes.extend(rows.attributes.get(part.clone()).and_then(majority));
                last = part.end;
            }
            used += last - start;
        }
        if table.is_empty() {
            let (have, need) = (rows.len(), window.rows);
            return Err(format!("holds {have} rows, and no {need} in a row that form a window; record more"));
        }
        table.left_over = rows.len() - used;
        Ok(table)
    }
}
