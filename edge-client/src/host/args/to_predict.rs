//! Rows that a model predicts for: as samples, but labels may be absent.

use std::path::Path;

use super::{DataArgs, DataArgsError};
use crate::data::{
    DataSplit, Samples, digits,
    load::{self, BoundedFile, CsvColumn, CsvOptions, Format, LIMIT, LoadError},
    schema::{self, Schema, Table, Targets},
};

impl DataArgs {
    /// All rows of the files or of standard input (`-`), for a model that takes `inputs` numbers.
    pub fn rows_to_predict(&self, schema: Option<&Schema>, inputs: usize) -> Result<Table, DataArgsError> {
        let (path, format) = match (&self.file, &self.csv, &self.images) {
            (Some(file), ..) if file.as_os_str() == "-" => (file, Some(Format::Csv)),
            (Some(file), ..) if file.as_os_str() == "digits" => (file, None),
            (Some(file), ..) => (file, Some(Format::of(file)?)),
            (None, Some(csv), _) => (csv, Some(Format::Csv)),
            (None, None, Some(images)) => (images, Some(Format::Idx)),
            (None, None, None) => return Err(DataArgsError::NoData),
        };
        if let Some(option) = self.column_option() {
            match schema {
                Some(_) => return Err(DataArgsError::SchemaAndOption(option)),
                None if format != Some(Format::Csv) => return Err(DataArgsError::OnlyCsv(option)),
                None => {}
            }
        }
        match (format, schema) {
            (None, Some(_)) => Err(DataArgsError::SchemaAndOption("--data digits")),
            (None, None) => Ok(table(&Samples::of(&digits::all(), DataSplit::Train)?)),
            (Some(Format::Csv), Some(schema)) => {
                Ok(schema::read_from(open(path)?, schema, Targets::Optional)?)
            }
            (Some(Format::Csv), None) => self.plain_csv(path, inputs),
            (Some(Format::Idx), Some(_)) => Err(DataArgsError::SchemaAndIdx),
            (Some(Format::Npy), Some(schema)) => Ok(match &self.labels {
                Some(labels) => schema::read_pair(path, labels, schema)?,
                None => schema::read_array(path, schema)?,
            }),
            (Some(Format::Npz | Format::Folder), Some(schema)) => {
                Ok(schema::read_any(path, schema, Targets::Optional)?)
            }
            (Some(format), None) => self.plain(path, format),
        }
    }

    fn plain_csv(&self, path: &Path, inputs: usize) -> Result<Table, DataArgsError> {
        let attribute = self.attribute.clone().map(|column| (column, self.attributes));
        let label = self.label_column.clone().unwrap_or(CsvColumn::Last);
        let options = CsvOptions { label, scale: self.scale.unwrap_or(1.0), attribute };
        let rows = load::csv_to_predict(open(path)?, &options, inputs)?;
        Ok(Table { inputs, features: rows.features, labels: rows.labels, ..Table::default() })
    }

    /// Arrays and images without a schema.
    fn plain(&self, path: &Path, format: Format) -> Result<Table, DataArgsError> {
        let features = |features: Vec<f32>, inputs: usize| Table { inputs, features, ..Table::default() };
        let of_array = |array: &common::npy::Array| {
            let numbers: Vec<f32> = array.data.to_f64().into_iter().map(|value| value as f32).collect();
            features(numbers, array.shape.iter().skip(1).product())
        };
        match (format, &self.labels) {
            (Format::Npy, Some(labels)) => Ok(table(&load::npy(path, labels)?)),
            (Format::Npy, None) => Ok(of_array(&load::npy_array(path)?)),
            (Format::Idx, Some(labels)) => Ok(table(&load::idx(path, labels, 1.0 / 255.0)?)),
            (Format::Idx, None) => {
                let (pixels, inputs) = load::idx_pixels(path)?;
                Ok(features(pixels.iter().map(|&pixel| f32::from(pixel) / 255.0).collect(), inputs))
            }
            (Format::Npz, _) => {
                let arrays = load::npz_arrays(path)?;
                let find = |name: &str| arrays.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                match (find("x"), find("y")) {
                    (Some((_, x)), None) => Ok(of_array(x)),
                    _ => Ok(table(&load::npz(path)?)),
                }
            }
            (Format::Folder, _) => folder(path).map_err(DataArgsError::from),
            // The caller has read it.
            (Format::Csv, _) => Err(DataArgsError::NoData),
        }
    }
}

fn open(path: &Path) -> Result<BoundedFile, LoadError> {
    if path.as_os_str() == "-" { BoundedFile::stdin(LIMIT) } else { BoundedFile::open(path, LIMIT) }
}

fn table(samples: &Samples) -> Table {
    let rows = (0..samples.len()).filter_map(|row| samples.row(row));
    Table {
        inputs: samples.inputs(),
        features: rows.flatten().copied().collect(),
        labels: samples.labels().to_vec(),
        values: samples.values().to_vec(),
        ..Table::default()
    }
}

#[cfg(feature = "images")]
fn folder(path: &Path) -> Result<Table, LoadError> {
    let class = |name: &str| name.parse().map_err(|_| "is no whole number; give a schema".to_owned());
    let found = load::images_to_predict(path, &class)?;
    let inputs = found.shape.iter().product();
    Ok(Table { inputs, features: found.features, labels: found.labels, ..Table::default() })
}

#[cfg(not(feature = "images"))]
fn folder(path: &Path) -> Result<Table, LoadError> {
    let problem = "is a folder; this program was built without the feature `images`".into();
    Err(LoadError::Format { path: path.into(), problem })
}
