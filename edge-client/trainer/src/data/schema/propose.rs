//! A schema from a file: a proposal with comments, for a person to read and correct.

use std::path::{Path, PathBuf};

use super::{Column, MISSING, Schema, SchemaError, Task};
use crate::data::load::{BoundedFile, CsvRow, CsvRows, Format, LIMIT, LoadError};

mod content;
mod dates;
mod write;

use content::Content;

/// What the user already knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProposeOptions {
    /// Name or number (from 1) of the label; the last column if not given.
    pub label: Option<String>,
    /// The task; found from the label if not given.
    pub task: Option<Task>,
    /// Whether the first line is a header; found from its content if not given.
    pub header: Option<bool>,
}

/// A proposed schema, and remarks on its columns.
#[derive(Clone, PartialEq, Debug)]
pub struct Proposal {
    /// The schema.
    pub schema: Schema,
    /// One per column; may be empty.
    pub remarks: Vec<String>,
    /// Samples of the file.
    pub rows: usize,
}

/// Why no schema can be proposed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ProposeError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(
        "{}: a schema is proposed for CSV files only; the page \"Your own data\" shows [data] for arrays and images", .0.display()
    )]
    Format(PathBuf),
    #[error("a schema is proposed from one file or more, and none is given")]
    NoFile,
    #[error("there is no column `{0}`; its columns are {1}")]
    NoLabel(String, String),
    #[error("column `{0}` cannot be the label: {1}")]
    Label(String, &'static str),
    #[error(
        "{}:{line}: the first line may be a header or a sample, because `{word}` occurs again in its column; say with --header true or \
         --header false which it is", path.display()
    )]
    Header { path: PathBuf, line: usize, word: String },
    #[error("{}:{line}: column `{column}` has numbers with a decimal comma, such as `{text}`; write points", path.display())]
    DecimalComma { path: PathBuf, line: usize, column: String, text: String },
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl Schema {
    /// Reads a CSV file and proposes what its columns mean.
    pub fn propose(path: &Path, options: &ProposeOptions) -> Result<Proposal, ProposeError> {
        Self::propose_from(&[path], options)
    }

    /// As [`propose`](Self::propose), from several files whose columns may be in different orders. A level of any file is in the
    /// schema.
    pub fn propose_from(
        paths: &[impl AsRef<Path>],
        options: &ProposeOptions,
    ) -> Result<Proposal, ProposeError> {
        let mut found = Found::default();
        for path in paths {
            found.read(path.as_ref(), options)?;
        }
        let Found { columns, rows, header } = found;
        if columns.is_empty() {
            return Err(ProposeError::NoFile);
        }
        let label = label(&columns, options.label.as_deref())?;
        let (task, target) = columns[label].target(options.task)?;
        let mut schema = Self { task, header: header.unwrap_or(true), ..Self::default() };
        let mut remarks = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let (kind, remark) = match at == label {
                true => (target.clone(), column.unlabelled(rows)),
                false => column.kind(rows),
            };
            schema.columns.push(Column { name: column.name.clone(), kind });
            remarks.push(remark);
        }
        schema.check()?;
        Ok(Proposal { schema, remarks, rows })
    }
}

/// What the files hold that were read.
#[derive(Default)]
struct Found {
    /// In the order of the first file.
    columns: Vec<Content>,
    rows: usize,
    /// Whether the first line of the files names the columns; known after the first file.
    header: Option<bool>,
}

impl Found {
    fn read(&mut self, path: &Path, options: &ProposeOptions) -> Result<(), ProposeError> {
        // A name without a known extension may be that of a CSV file.
        if Format::of(path).is_ok_and(|format| format != Format::Csv) {
            return Err(ProposeError::Format(path.to_owned()));
        }
        let mut rows = CsvRows::detect(BoundedFile::open(path, LIMIT)?)?;
        let fault = |line, problem| LoadError::Line { path: path.into(), line, problem };
        let Some((first, row)) = rows.read()? else { return Err(empty(path)) };
        let header = self.header.or(options.header);
        let named = header.unwrap_or_else(|| is_header(row));
        let fields = row.len();
        let places = match self.header {
            Some(false) if options.header.is_none() && is_header(row) => {
                return Err(fault(first, "seems to be a header; the first file has none".into()).into());
            }
            Some(_) => self.places(row, named).map_err(|problem| fault(first, problem))?,
            None => {
                let name = |(at, field): (usize, &str)| match named {
                    true => field.to_owned(),
                    false => format!("column{}", at + 1),
                };
                self.columns = row.iter().enumerate().map(name).map(Content::new).collect();
                (0..fields).collect()
            }
        };
        self.header = Some(named);
        let before = self.rows;
        if !named {
            self.add(first, row, &places);
        }
        while let Some((line, row)) = rows.read()? {
            if row.len() != fields {
                let problem = format!("has {} columns where the first line has {fields}", row.len());
                return Err(fault(line, problem).into());
            }
            self.add(line, row, &places);
        }
        if self.rows == before {
            return Err(empty(path));
        }
        if let Some(column) = self.columns.iter().find(|column| column.is_named_like_a_value())
            && header.is_none()
            && named
        {
            let word = column.name.clone();
            return Err(ProposeError::Header { path: path.to_owned(), line: first, word });
        }
        let decimal = self.columns.iter().find_map(|column| Some((column, column.decimal_comma()?)));
        if let Some((column, (line, text))) = decimal {
            let (path, line, text) = (path.to_owned(), *line, text.clone());
            return Err(ProposeError::DecimalComma { path, line, column: column.name.clone(), text });
        }
        Ok(())
    }

    fn add(&mut self, line: usize, row: &CsvRow, places: &[usize]) {
        self.rows += 1;
        for (column, place) in self.columns.iter_mut().zip(places) {
            column.add(line, row.get(*place).unwrap_or_default());
        }
    }

    /// Where a further file has the columns of the first one.
    fn places(&self, first: &CsvRow, named: bool) -> Result<Vec<usize>, String> {
        if first.len() != self.columns.len() {
            return Err(format!("has {} columns, the first file has {}", first.len(), self.columns.len()));
        }
        let place = |(at, column): (usize, &Content)| match named {
            true => first
                .iter()
                .position(|field| field == column.name)
                .ok_or_else(|| format!("has no column `{}`, which the first file has", column.name)),
            false => Ok(at),
        };
        self.columns.iter().enumerate().map(place).collect()
    }
}

fn empty(path: &Path) -> ProposeError {
    LoadError::Format { path: path.into(), problem: "holds no samples".into() }.into()
}

/// Names are words. An index as column name (pandas writes `,0,1,2`) is a name, too.
fn is_header(row: &CsvRow) -> bool {
    let is_number = |field: &&str| field.parse::<f64>().is_ok() || is_missing(field);
    let numbers: Vec<&str> = row.iter().filter(is_number).filter(|field| !field.is_empty()).collect();
    let counted =
        |from: usize| numbers.iter().enumerate().all(|(at, field)| *field == (at + from).to_string());
    // Consecutive numbers alone may as well be a sample.
    let words = row.iter().filter(|field| !is_number(field)).count();
    words > 0 && (counted(0) || counted(1)) && row.iter().skip(1).all(|field| !field.is_empty())
}

fn is_missing(field: &str) -> bool {
    MISSING.iter().any(|missing| missing.eq_ignore_ascii_case(field))
}

fn label(columns: &[Content], wanted: Option<&str>) -> Result<usize, ProposeError> {
    let Some(wanted) = wanted else { return Ok(columns.len() - 1) };
    let named = columns.iter().position(|column| column.name == wanted);
    let numbered = || wanted.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < columns.len());
    named.or_else(numbered).ok_or_else(|| {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        ProposeError::NoLabel(wanted.to_owned(), names.join(", "))
    })
}
