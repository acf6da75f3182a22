//! A schema from a file: a proposal with comments, for a person to read and correct.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    Column, Kind, MISSING, Missing, Scaling, Schema, SchemaError, Task,
    cell::{excerpt, has_decimal_comma},
    survey::{Moments, NumberRange},
};
use crate::data::load::{BoundedFile, CsvRow, CsvRows, Format, LIMIT, LoadError};

mod write;

/// More words than this are no category.
const MAX_PROPOSED_LEVELS: usize = 64;
/// More different whole numbers than this are no classes.
const MAX_PROPOSED_CLASSES: usize = 20;

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
        // A name without a known extension may be that of a CSV file.
        if Format::of(path).is_ok_and(|format| format != Format::Csv) {
            return Err(ProposeError::Format(path.to_owned()));
        }
        let mut rows = CsvRows::detect(BoundedFile::open(path, LIMIT)?)?;
        let mut columns: Vec<Content> = Vec::new();
        let (mut header, mut first, mut count) = (None, 0, 0);
        while let Some((line, row)) = rows.read()? {
            if header.is_none() {
                let named = options.header.unwrap_or_else(|| is_header(row));
                (header, first) = (Some(named), line);
                let name = |(at, field): (usize, &str)| match named {
                    true => field.to_owned(),
                    false => format!("column{}", at + 1),
                };
                columns = row.iter().enumerate().map(name).map(Content::new).collect();
                if named {
                    continue;
                }
            }
            if row.len() != columns.len() {
                let (got, expected) = (row.len(), columns.len());
                let problem = format!("has {got} columns where the first line has {expected}");
                return Err(LoadError::Line { path: path.into(), line, problem }.into());
            }
            count += 1;
            columns.iter_mut().zip(row).for_each(|(column, field)| column.add(line, field));
        }
        if count == 0 {
            return Err(LoadError::Format { path: path.into(), problem: "holds no samples".into() }.into());
        }
        let path = || path.to_owned();
        if let Some(column) = columns.iter().find(|column| column.is_named_like_a_value())
            && (options.header, header) == (None, Some(true))
        {
            return Err(ProposeError::Header { path: path(), line: first, word: column.name.clone() });
        }
        let decimal = columns.iter().find_map(|column| Some((column, column.decimal_comma()?)));
        if let Some((column, (line, text))) = decimal {
            let (line, column, text) = (*line, column.name.clone(), text.clone());
            return Err(ProposeError::DecimalComma { path: path(), line, column, text });
        }
        let label = label(&columns, options.label.as_deref())?;
        let (task, target) = columns[label].target(options.task)?;
        let mut schema = Self { task, header: header.unwrap_or(true), ..Self::default() };
        let mut remarks = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let (kind, remark) = match at == label {
                true => (target.clone(), String::new()),
                false => column.kind(count),
            };
            schema.columns.push(Column { name: column.name.clone(), kind });
            remarks.push(remark);
        }
        schema.check()?;
        Ok(Proposal { schema, remarks, rows: count })
    }
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

/// What was seen of one column.
struct Content {
    name: String,
    missing: usize,
    numbers: Moments,
    /// Values that are not numbers.
    words: usize,
    /// The first of them, with its line.
    word: Option<(usize, String)>,
    /// How many of them are numbers with a decimal comma.
    commas: usize,
    /// Whether all numbers are whole.
    whole: bool,
    /// The different values, as far as they are counted, in the order of first appearance.
    levels: BTreeMap<String, usize>,
    /// More values than are counted.
    many: bool,
}

impl Content {
    fn new(name: String) -> Self {
        let (numbers, levels) = (Moments::default(), BTreeMap::new());
        let (words, word, commas) = (0, None, 0);
        Self { name, missing: 0, numbers, words, word, commas, whole: true, levels, many: false }
    }

    fn add(&mut self, line: usize, field: &str) {
        if is_missing(field) {
            self.missing += 1;
            return;
        }
        match field.parse::<f64>() {
            Ok(value) if (value as f32).is_finite() => {
                self.numbers.add(value);
                self.whole &= value.fract() == 0.0;
            }
            _ => {
                self.words += 1;
                self.commas += usize::from(has_decimal_comma(field));
                self.word.get_or_insert_with(|| (line, excerpt(field)));
            }
        }
        if self.levels.len() <= MAX_PROPOSED_LEVELS {
            *self.levels.entry(field.to_owned()).or_default() += 1;
        } else {
            self.many |= !self.levels.contains_key(field);
        }
    }

    /// A sample that was taken for a header would be lost. Headers of numbers, as pandas writes them, may be values too.
    fn is_named_like_a_value(&self) -> bool {
        self.name.parse::<f64>().is_err() && self.levels.contains_key(&self.name)
    }

    /// The first value, if all words are numbers with a decimal comma. As a category they would lose their order.
    fn decimal_comma(&self) -> Option<&(usize, String)> {
        self.word.as_ref().filter(|_| self.commas == self.words)
    }

    /// Words in the order of the alphabet, numbers by size.
    fn sorted(&self) -> Vec<String> {
        let mut levels: Vec<String> = self.levels.keys().cloned().collect();
        if self.words == 0 {
            let number = |level: &String| level.parse().unwrap_or(f64::INFINITY);
            levels.sort_by(|a, b| number(a).total_cmp(&number(b)));
            levels.dedup_by(|a, b| number(a) == number(b));
        }
        levels
    }

    /// What the label is.
    fn target(&self, task: Option<Task>) -> Result<(Task, Kind), ProposeError> {
        let wrong = |why| ProposeError::Label(self.name.clone(), why);
        let classes = self.sorted();
        let few = !self.many && classes.len() <= MAX_PROPOSED_LEVELS;
        let task = task.unwrap_or_else(|| {
            let number = self.words == 0 && (!self.whole || classes.len() > MAX_PROPOSED_CLASSES || !few);
            if number { Task::Regression } else { Task::Classification }
        });
        match task {
            Task::Regression if self.words > 0 => Err(wrong("a regression needs numbers")),
            Task::Regression => Ok((task, Kind::Target { scaling: self.scaling().0 })),
            Task::Classification | Task::Binary if !few => Err(wrong("it has more than 64 different values")),
            Task::Classification | Task::Binary => Ok((task, Kind::Label { classes })),
        }
    }

    /// What another column is, and a remark.
    fn kind(&self, rows: usize) -> (Kind, String) {
        let gaps = match self.missing {
            0 => String::new(),
            missing => format!("{missing} of {rows} missing"),
        };
        if self.missing == rows {
            return (Kind::Ignored, "no values".into());
        }
        let name = self.name.to_lowercase();
        let all_different = self.many || self.levels.len() == rows;
        if matches!(&*name, "" | "id" | "index") && all_different && (self.words > 0 || self.whole) {
            return (Kind::Ignored, "numbers the rows".into());
        }
        let many = self.many || self.levels.len() > MAX_PROPOSED_LEVELS;
        // Many numbers and few words are no category.
        if self.words == 0 || many && self.numbers.count > self.words as u64 {
            let (kind, range) = self.number();
            let words = self.word.as_ref().map_or(String::new(), |(line, word)| {
                format!(
                    "{} no number, such as {word:?} in line {line}: correct them, or list them in `missing`",
                    self.words
                )
            });
            return (kind, join(&join(&range, &gaps), &words));
        }
        if many {
            return (Kind::Ignored, "more than 64 different texts".into());
        }
        let mut levels = self.sorted();
        let missing = match self.missing {
            0 => Missing::Refuse,
            _ => {
                let at = levels.iter().position(|level| level == "unknown").unwrap_or_else(|| {
                    levels.push("unknown".into());
                    levels.len() - 1
                });
                Missing::Constant(at as u32)
            }
        };
        let numbers = match self.numbers.count {
            0 => String::new(),
            count => format!("{count} values are numbers: are the words mistakes?"),
        };
        (Kind::Category { levels, missing }, join(&numbers, &gaps))
    }

    /// A number, and its range as a remark. A mean that replaces gaps is written down, so that no file has one of its own.
    fn number(&self) -> (Kind, String) {
        let (scaling, range) = self.scaling();
        let kind = match (self.missing, scaling, self.numbers.range()) {
            (1.., Scaling::None, Some(NumberRange { mean, deviation, .. })) => {
                let (mean, deviation) = (brief(mean), brief(deviation));
                match deviation > 0.0 {
                    true => {
                        let scaling = Scaling::Standard { mean, deviation };
                        Kind::Number { missing: Missing::Mean, scaling }
                    }
                    false => Kind::Number { missing: Missing::Constant(mean), scaling },
                }
            }
            (0, ..) => Kind::Number { missing: Missing::Refuse, scaling },
            _ => Kind::Number { missing: Missing::Mean, scaling },
        };
        (kind, range)
    }

    /// The scaling, and the range as a remark. Numbers of about -3 to 3 are left as they are.
    fn scaling(&self) -> (Scaling, String) {
        let Some(NumberRange { min, max, mean, deviation }) = self.numbers.range() else {
            return (Scaling::None, String::new());
        };
        let remark = format!("{} to {}", brief(min), brief(max));
        let close = mean.abs() <= 3.0 && (0.1..=3.0).contains(&deviation);
        let (mean, deviation) = (brief(mean), brief(deviation));
        let scaling = match close || deviation <= 0.0 {
            true => Scaling::None,
            false => Scaling::Standard { mean, deviation },
        };
        (scaling, remark)
    }
}

/// Four digits, which is enough for a scale and for a remark.
fn brief(value: f64) -> f32 {
    format!("{value:.3e}").parse().unwrap_or(value as f32)
}

fn join(one: &str, other: &str) -> String {
    match (one, other) {
        ("", text) | (text, "") => text.to_owned(),
        _ => format!("{one}; {other}"),
    }
}
