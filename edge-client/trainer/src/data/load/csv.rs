//! Numbers in text: one sample per line, columns separated by comma, semicolon or tab, whichever the first line has.
//!
//! A first line of names alone is a header; one with some numbers or gaps is neither header nor sample, and refused. One column is the label, a whole number from 0 on. One may be an
//! attribute (such as sex or site), a whole number below a given count. All others are features. Names of classes are
//! refused, because devices could not agree on their numbers.

use std::{path::Path, str::FromStr};

use super::{BoundedFile, CsvRow, CsvRows, LIMIT, LoadError, MAX_CLASSES};
use crate::data::{Samples, schema::MISSING};

/// What helps against a column that holds no numbers.
const WORDS: &str = "; correct it, or describe words and gaps in a schema (--schema)";

/// How columns become samples.
#[derive(Clone, PartialEq, Debug)]
pub struct CsvOptions {
    /// Column of the label.
    pub label: CsvColumn,
    /// `feature = scale * number`.
    pub scale: f32,
    /// Column of the attribute, which is not used as a feature, and the number of its values in the fleet.
    pub attribute: Option<(CsvColumn, u32)>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { label: CsvColumn::Last, scale: 1.0, attribute: None }
    }
}

/// A column: `first`, `last`, a number (from 1 on) or a name of the header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CsvColumn {
    /// The first column.
    First,
    /// The last column.
    Last,
    /// Counted from 1, as in spreadsheets.
    Number(usize),
    /// A name of the header.
    Named(String),
}

/// A text is not a column.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a column is `first`, `last`, a number from 1 on, or a name of the header")]
pub struct BadColumn;

impl FromStr for CsvColumn {
    type Err = BadColumn;

    fn from_str(text: &str) -> Result<Self, BadColumn> {
        match (text, text.parse()) {
            ("" | "0", _) => Err(BadColumn),
            ("first", _) => Ok(Self::First),
            ("last", _) => Ok(Self::Last),
            (_, Ok(number)) => Ok(Self::Number(number)),
            (name, Err(_)) => Ok(Self::Named(name.to_owned())),
        }
    }
}

/// Reads all samples of a CSV file.
pub fn csv(path: &Path, options: &CsvOptions) -> Result<Samples, LoadError> {
    let (table, columns) = CsvTable::read(BoundedFile::open(path, LIMIT)?, options, None)?;
    let samples = Samples::new(table.features, table.labels, columns.features());
    let samples = match &options.attribute {
        Some((_, count)) => samples.and_then(|samples| samples.with_attributes(&table.attributes, *count)),
        None => samples,
    };
    samples.map_err(|source| LoadError::Data { path: path.into(), source })
}

/// Rows that a model predicts for.
#[derive(Clone, PartialEq, Debug)]
pub struct CsvRowsToPredict {
    /// Row after row.
    pub features: Vec<f32>,
    /// One per row; empty if the file has no labels.
    pub labels: Vec<u32>,
}

/// Reads rows for a model that takes `inputs` numbers. A file with exactly as many columns (besides the attribute) has no labels.
pub fn csv_to_predict(
    source: BoundedFile,
    options: &CsvOptions,
    inputs: usize,
) -> Result<CsvRowsToPredict, LoadError> {
    let (table, _) = CsvTable::read(source, options, Some(inputs))?;
    Ok(CsvRowsToPredict { features: table.features, labels: table.labels })
}

struct CsvTable<'a> {
    options: &'a CsvOptions,
    /// Numbers that the model takes, if rows need no label.
    inputs: Option<usize>,
    /// Known after the first line.
    columns: Option<Columns>,
    features: Vec<f32>,
    labels: Vec<u32>,
    attributes: Vec<u32>,
}

#[derive(Copy, Clone)]
struct Columns {
    count: usize,
    label: Option<usize>,
    attribute: Option<usize>,
}

impl Columns {
    fn features(&self) -> usize {
        self.count - usize::from(self.label.is_some()) - usize::from(self.attribute.is_some())
    }
}

impl<'a> CsvTable<'a> {
    fn read(
        source: BoundedFile,
        options: &'a CsvOptions,
        inputs: Option<usize>,
    ) -> Result<(Self, Columns), LoadError> {
        let path = source.path().to_owned();
        let mut rows = CsvRows::detect(source)?;
        let (features, labels, attributes) = Default::default();
        let mut table = Self { options, inputs, columns: None, features, labels, attributes };
        while let Some((line, row)) = rows.read()? {
            table.add(row).map_err(|problem| LoadError::Line { path: path.clone(), line, problem })?;
        }
        match table.columns.filter(|_| !table.features.is_empty()) {
            Some(columns) => Ok((table, columns)),
            None => Err(LoadError::Format { path, problem: "holds no samples".into() }),
        }
    }

    fn add(&mut self, row: &CsvRow) -> Result<(), String> {
        let columns = match self.columns {
            Some(columns) => columns,
            None => {
                let header = is_header(row)?;
                let columns = self.locate(row.len(), header.then_some(row))?;
                self.columns = Some(columns);
                if header {
                    return Ok(());
                }
                columns
            }
        };
        if row.len() != columns.count {
            return Err(format!("has {} columns where the first line has {}", row.len(), columns.count));
        }
        for (column, field) in row.iter().enumerate() {
            let value: f64 = field
                .parse()
                .map_err(|_| format!("column {} is `{}`, not a number{WORDS}", column + 1, excerpt(field)))?;
            if columns.label == Some(column) {
                self.labels.push(whole("label", value)?);
            } else if columns.attribute == Some(column) {
                self.attributes.push(whole("attribute", value)?);
            } else {
                let feature = self.options.scale * value as f32;
                if !feature.is_finite() {
                    return Err(format!("column {} is `{}`, not finite", column + 1, excerpt(field)));
                }
                self.features.push(feature);
            }
        }
        Ok(())
    }

    fn locate(&self, count: usize, header: Option<&CsvRow>) -> Result<Columns, String> {
        let named = &self.options.attribute;
        let others = usize::from(named.is_some());
        if let Some(inputs) = self.inputs {
            return self.locate_inputs(count, header, inputs);
        }
        if count < 2 + others {
            return Err("needs at least one feature and a label, separated by comma, semicolon or tab".into());
        }
        let label = place(&self.options.label, count, header)?;
        let attribute = named.as_ref().map(|(column, _)| place(column, count, header)).transpose()?;
        if attribute == Some(label) {
            return Err(format!("column {} cannot be both label and attribute", label + 1));
        }
        Ok(Columns { count, label: Some(label), attribute })
    }

    /// Whether there is a label follows from the number of columns.
    fn locate_inputs(&self, count: usize, header: Option<&CsvRow>, inputs: usize) -> Result<Columns, String> {
        let named = self.options.attribute.as_ref();
        let attribute = named.map(|(column, _)| place(column, count, header)).transpose()?;
        let label = match count.checked_sub(inputs + usize::from(attribute.is_some())) {
            Some(0) => None,
            Some(1) => Some(place(&self.options.label, count, header)?),
            _ => {
                return Err(format!(
                    "has {count} columns, and the model takes {inputs} numbers; give exactly these columns, or these and a label"
                ));
            }
        };
        match attribute {
            Some(at) if label == Some(at) => {
                Err(format!("column {} cannot be both label and attribute", at + 1))
            }
            _ => Ok(Columns { count, label, attribute }),
        }
    }
}

/// A sample with a gap or a word must not pass for a header, because it would be dropped.
fn is_header(row: &CsvRow) -> Result<bool, String> {
    let is_number = |field: &str| field.parse::<f64>().is_ok();
    let is_gap = |field: &str| MISSING.iter().any(|gap| gap.eq_ignore_ascii_case(field));
    let numbers = row.iter().filter(|field| is_number(field)).count();
    let odd = row.iter().position(|field| !is_number(field) && (numbers > 0 || is_gap(field)));
    match odd {
        Some(at) => Err(format!(
            "column {} is `{}`, not a number; a header has no numbers and no gaps. For files with words or gaps write a schema: \
             fairtier data schema --from FILE",
            at + 1,
            excerpt(&row[at])
        )),
        None => Ok(numbers == 0),
    }
}

fn place(column: &CsvColumn, count: usize, header: Option<&CsvRow>) -> Result<usize, String> {
    let at = match column {
        CsvColumn::First => 0,
        CsvColumn::Last => count - 1,
        CsvColumn::Number(number) => number.wrapping_sub(1),
        CsvColumn::Named(name) => header
            .ok_or_else(|| format!("has no header, so there is no column `{name}`; give its number"))?
            .iter()
            .position(|field| field == name)
            .ok_or_else(|| format!("has no column `{name}`"))?,
    };
    if at >= count {
        return Err(format!("has {count} columns, so there is no column {}", at.wrapping_add(1)));
    }
    Ok(at)
}

fn whole(what: &str, value: f64) -> Result<u32, String> {
    let whole = value as u32;
    if f64::from(whole) == value && whole < MAX_CLASSES {
        Ok(whole)
    } else {
        Err(format!(
            "{what} {value} is not a whole number from 0 to {}; check that it is the right column",
            MAX_CLASSES - 1
        ))
    }
}

/// Shortens a field, because a damaged file may be one very long line.
fn excerpt(field: &str) -> String {
    field.chars().take(20).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::{Shard, VecShard};

    fn load(text: &str, label: &str, scale: f32) -> Result<Samples, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.csv");
        fs::write(&path, text).unwrap();
        let options = CsvOptions { label: label.parse().unwrap(), scale, attribute: None };
        read(&dir, &path, &options)
    }

    fn read(dir: &tempfile::TempDir, path: &Path, options: &CsvOptions) -> Result<Samples, String> {
        csv(path, options).map_err(|error| {
            error.to_string().replace(&*dir.path().to_string_lossy(), "").trim_start_matches('/').to_owned()
        })
    }

    #[test]
    fn label_columns() {
        let expect = |text: &str, label: &str, features: &[f32], labels: &[u32]| {
            let samples = load(text, label, 1.0).unwrap();
            let rows: Vec<f32> =
                (0..samples.len()).flat_map(|row| samples.row(row).unwrap().to_vec()).collect();
            assert_eq!((&*rows, samples.labels()), (features, labels), "{text:?} {label}");
        };
        expect("1.5,2,0\n3,-4,1\n", "last", &[1.5, 2.0, 3.0, -4.0], &[0, 1]);
        expect("7;2\r\n\r\n1;4\r\n", "first", &[2.0, 4.0], &[7, 1]);
        expect("1\t2.0\t3\n", "2", &[1.0, 3.0], &[2]);
        expect("\u{feff}a,\"class\",b\n1,2,3", "class", &[1.0, 3.0], &[2]);
        expect("a,b\n1,2\n", "last", &[1.0], &[2]);
        expect("\n \n1;2\n", "last", &[1.0], &[2]);
    }

    #[test]
    fn quoted_fields_and_one_separator() {
        let samples =
            load("\"x;y\",\"say \"\"z\"\"\",label\r\n\"1\", 2 ,\"0\"\r\n", "say \"z\"", 1.0).unwrap();
        assert_eq!((samples.features(), samples.labels()), (&[1.0, 0.0][..], &[2][..]));
        // A blank before a quote, and a byte order mark before it, made the quote a part of the field.
        for text in ["\"x, y\", \"label\"\n \"1\", \"0\"\n", "\u{feff}\"x, y\",label\n1, 0\n"] {
            let samples = load(text, "label", 1.0).unwrap();
            assert_eq!((samples.features(), samples.labels()), (&[1.0][..], &[0][..]), "{text:?}");
        }
        let text = |text: &str| load(text, "last", 1.0).unwrap_err();
        assert_eq!(text("1;2\n1,5;0\n"), format!("data.csv:2: column 1 is `1,5`, not a number{WORDS}"));
        assert_eq!(text("1,2\n3,\"4\n5,6\n"), "data.csv:2: has a quote that is not closed");
        assert_eq!(text("1,2\r\n\r\n3,x"), format!("data.csv:3: column 2 is `x`, not a number{WORDS}"));
    }

    #[test]
    fn other_encodings_are_named_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.csv");
        let latin: &[u8] = b"1,2,0\n1,\xe4,0\n";
        let utf_16: &[u8] = b"\xff\xfe1\0,\0";
        for (bytes, place) in [(latin, ":2: column 2"), (utf_16, ":1: column 1")] {
            fs::write(&path, bytes).unwrap();
            let error = read(&dir, &path, &CsvOptions::default()).unwrap_err();
            assert!(error.contains(place) && error.contains("save the file as UTF-8"), "{error}");
        }
    }

    #[test]
    fn an_attribute_is_not_a_feature() {
        let load = |text: &str, attribute: &str, count: u32| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("data.csv");
            fs::write(&path, text).unwrap();
            let attribute = Some((attribute.parse().unwrap(), count));
            read(&dir, &path, &CsvOptions { attribute, ..CsvOptions::default() })
        };
        let samples = load("x,sex,y\n5,1,0\n6,0,1\n7,1,1\n", "sex", 2).unwrap();
        assert_eq!((samples.features(), samples.labels()), (&[5.0, 6.0, 7.0][..], &[0, 1, 1][..]));
        let shard = VecShard::new(samples, Samples::default()).unwrap();
        assert_eq!(shard.summary().groups, [0, 1, 1, 1]);
        assert!(load("1,2,0\n", "2", 2).unwrap_err().contains("attribute 2, but there are only 2"));
        assert!(load("1,0.5,0\n", "2", 2).unwrap_err().contains("attribute 0.5 is not a whole number"));
        assert!(load("1,2,0\n", "last", 2).unwrap_err().contains("both label and attribute"));
        assert!(load("2,0\n", "first", 2).unwrap_err().contains("at least one feature"));
    }

    #[test]
    fn features_are_scaled_and_labels_are_not() {
        let samples = load("16,8,3\n", "last", 1.0 / 16.0).unwrap();
        assert_eq!((samples.row(0), samples.labels()), (Some(&[1.0, 0.5][..]), &[3][..]));
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let text = |text: &str, label: &str| load(text, label, 1.0).unwrap_err();
        assert_eq!(
            text("1,2,0\n1,x,0\n", "last"),
            format!("data.csv:2: column 2 is `x`, not a number{WORDS}")
        );
        assert_eq!(text("1,2,0\n\n1,2\n", "last"), "data.csv:3: has 2 columns where the first line has 3");
        assert_eq!(text("1,nan,0\n", "last"), "data.csv:1: column 2 is `nan`, not finite");
        assert_eq!(text("1,1e99,0\n", "last"), "data.csv:1: column 2 is `1e99`, not finite");
        assert!(text("1,2,0.5\n", "last").starts_with("data.csv:1: label 0.5 is not a whole number"));
        assert!(text("1,2,-1\n", "last").contains("label -1 is not"));
        assert!(text("1,65536\n", "last").contains("label 65536 is not"));
        assert!(text("1,NaN\n", "last").contains("label NaN is not"));
        assert!(text("1,2\n", "class").contains("no header, so there is no column `class`"));
        assert!(text("a,b\n1,2\n", "class").contains("has no column `class`"));
        assert!(text("1,2\n", "3").contains("has 2 columns, so there is no column 3"));
        assert!(text("12\n", "last").contains("at least one feature and a label"));
        assert_eq!(text("a,b\n", "last"), "data.csv: holds no samples");
        assert_eq!(text("", "last"), "data.csv: holds no samples");
    }

    #[test]
    fn a_first_sample_with_a_gap_or_a_word_is_no_header() {
        let text = |text: &str| load(text, "last", 1.0).unwrap_err();
        for (line, named) in [
            ("1,?,0\n", "column 2 is `?`"),
            ("?,a,b\n", "column 1 is `?`"),
            ("1,2,idle\n", "column 3 is `idle`"),
        ] {
            let error = text(&format!("{line}1,2,0\n"));
            assert!(error.starts_with("data.csv:1: ") && error.contains(named), "{error}");
            assert!(error.contains("fairtier data schema"), "{error}");
        }
        assert!(text("a,,b\n1,2,3\n").contains("column 2 is ``"));
    }

    #[test]
    fn bad_columns_are_refused() {
        assert_eq!("0".parse::<CsvColumn>(), Err(BadColumn));
        assert_eq!("".parse::<CsvColumn>(), Err(BadColumn));
        assert_eq!("4".parse(), Ok(CsvColumn::Number(4)));
    }
}
