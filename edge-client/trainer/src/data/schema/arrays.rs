//! From NumPy arrays and folders of images to samples, by a schema.
//!
//! The arrays of an `.npz` file are found by the names of columns. Images fill the only column of type `array`, and their
//! folders are the classes of the label.

use std::path::Path;

use common::npy::Array;

use super::{Column, Kind, Schema, Table, Targets, nearest::hint, read};
use crate::data::load::{self, Format, LoadError};

/// Reads a file of any format that the columns of the schema can be found in.
pub fn read_any(path: &Path, schema: &Schema, targets: Targets) -> Result<Table, LoadError> {
    let wrong = |problem: String| LoadError::Format { path: path.into(), problem };
    match Format::of(path)? {
        Format::Csv => read(path, schema, targets),
        Format::Npz => {
            let arrays = load::npz_arrays(path)?;
            let known = |name: &str| schema.columns.iter().any(|column| column.name == name);
            match arrays.iter().find(|(name, _)| !schema.ignore_extra && !known(name)) {
                Some((name, _)) => {
                    let hint = hint(name, schema.columns.iter().map(|column| column.name.as_str()));
                    Err(wrong(format!(
                        "array `{name}` is not in the schema{hint}; add it to [data], or remove it"
                    )))
                }
                None => schema.arrays(&arrays, targets).map_err(wrong),
            }
        }
        Format::Folder => images(path, schema, targets),
        Format::Npy | Format::Idx => {
            Err(wrong("holds one array; a schema needs names: write an .npz file".into()))
        }
    }
}

/// Reads a pair of `.npy` files: the only column of type `array`, and the label or target.
pub fn read_pair(x: &Path, y: &Path, schema: &Schema) -> Result<Table, LoadError> {
    let wrong = |problem: String| LoadError::Format { path: x.into(), problem };
    let is_target = |column: &&Column| matches!(column.kind, Kind::Label { .. } | Kind::Target { .. });
    let target =
        schema.columns.iter().find(is_target).ok_or_else(|| wrong("has no label in [data]".into()))?;
    let array = schema.only_array().map_err(wrong)?;
    let arrays = [(array.name.clone(), load::npy_array(x)?), (target.name.clone(), load::npy_array(y)?)];
    schema.arrays(&arrays, Targets::Needed).map_err(wrong)
}

/// Reads an `.npy` file without labels: the only column of type `array`.
pub fn read_array(x: &Path, schema: &Schema) -> Result<Table, LoadError> {
    let wrong = |problem: String| LoadError::Format { path: x.into(), problem };
    let array = schema.only_array().map_err(wrong)?;
    schema.arrays(&[(array.name.clone(), load::npy_array(x)?)], Targets::Optional).map_err(wrong)
}

#[cfg(feature = "images")]
fn images(path: &Path, schema: &Schema, targets: Targets) -> Result<Table, LoadError> {
    let wrong = |problem: String| LoadError::Format { path: path.into(), problem };
    let column = schema.only_array().map_err(wrong)?;
    let Kind::Array { shape, scaling } = &column.kind else { return Err(wrong("needs an array".into())) };
    let classes = schema.classes();
    let class = |name: &str| {
        let at = classes.iter().position(|class| class == name);
        at.map(|at| at as u32).ok_or_else(|| {
            let hint = hint(name, classes.iter().map(String::as_str));
            format!(
                "is none of the {} classes in the schema{hint}; rename it, or add it to [data]",
                classes.len()
            )
        })
    };
    let found = match targets {
        Targets::Needed => load::folder_images(path, &class)?,
        Targets::Optional => load::images_to_predict(path, &class)?,
    };
    if !found.shape.iter().copied().eq(shape.iter().map(|&size| size as usize)) {
        return Err(wrong(format!(
            "holds images of shape {:?} (channels, height, width), the schema says {shape:?}; bring them to that size",
            found.shape
        )));
    }
    let features = found.features.into_iter().map(|value| scaling.apply(value)).collect();
    Ok(Table { inputs: schema.inputs(), features, labels: found.labels, ..Table::default() })
}

#[cfg(not(feature = "images"))]
fn images(path: &Path, _: &Schema, _: Targets) -> Result<Table, LoadError> {
    let problem = "is a folder; this program was built without the feature `images`".into();
    Err(LoadError::Format { path: path.into(), problem })
}

impl Schema {
    fn only_array(&self) -> Result<&Column, String> {
        let mut inputs = self.columns.iter().filter(|column| column.kind.inputs() > 0);
        match (inputs.next(), inputs.next()) {
            (Some(column), None) if matches!(column.kind, Kind::Array { .. }) => Ok(column),
            _ => Err("needs a schema with one input, of type `array`; see the page \"Your own data\"".into()),
        }
    }

    /// Samples of named arrays.
    fn arrays(&self, arrays: &[(String, Array)], targets: Targets) -> Result<Table, String> {
        let mut table = Table { inputs: self.inputs(), ..Table::default() };
        let mut count = None;
        // The numbers of each column that is an input, and how many belong to one sample.
        let mut inputs = Vec::new();
        for column in &self.columns {
            let name = &column.name;
            let Some((_, array)) = arrays.iter().find(|(key, _)| key == name) else {
                let optional = targets == Targets::Optional && column.kind.inputs() == 0;
                if optional || column.kind == Kind::Ignored {
                    continue;
                }
                let hint = hint(name, arrays.iter().map(|(key, _)| key.as_str()));
                return Err(format!(
                    "has no array `{name}`{hint}; save it with numpy.savez(path, {name}=..)"
                ));
            };
            let samples = *array.shape.first().ok_or_else(|| format!("array `{name}` has no samples"))?;
            if *count.get_or_insert(samples) != samples {
                return Err(format!("array `{name}` has {samples} samples, others have another number"));
            }
            // The sizes of an array without samples are not bounded by its length.
            if samples == 0 {
                return Err("holds no samples".into());
            }
            let per_sample = array.data.len() / samples;
            let expected = match &column.kind {
                Kind::Array { .. } => column.kind.inputs(),
                _ => 1,
            };
            if per_sample != expected && column.kind != Kind::Ignored {
                return Err(format!(
                    "array `{name}` has {per_sample} numbers per sample, the schema says {expected}"
                ));
            }
            match &column.kind {
                Kind::Array { scaling, .. } | Kind::Number { scaling, .. } => {
                    let numbers = finite(name, array)?.into_iter().map(|value| scaling.apply(value));
                    inputs.push((numbers.collect::<Vec<f32>>(), per_sample));
                }
                Kind::Category { .. } => {
                    return Err(format!("column `{name}` is a category, and arrays hold numbers; write CSV"));
                }
                Kind::Label { classes } => table.labels = whole(name, array, classes.len())?,
                Kind::Attribute { levels } => table.attributes = whole(name, array, levels.len())?,
                Kind::Target { scaling } => {
                    table.values.extend(finite(name, array)?.into_iter().map(|value| scaling.apply(value)));
                }
                Kind::Ignored => {}
            }
        }
        for sample in 0..count.unwrap_or(0) {
            for (numbers, size) in &inputs {
                table.features.extend_from_slice(&numbers[sample * size..(sample + 1) * size]);
            }
        }
        // Several targets were appended one after the other.
        let outputs = self.outputs();
        if outputs > 1 && !table.values.is_empty() {
            let samples = table.values.len() / outputs;
            let value = |at: usize| table.values[at % outputs * samples + at / outputs];
            table.values = (0..table.values.len()).map(value).collect();
        }
        Ok(table)
    }
}

fn finite(name: &str, array: &Array) -> Result<Vec<f32>, String> {
    let numbers: Vec<f32> = array.data.to_f64().into_iter().map(|value| value as f32).collect();
    match numbers.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(format!("array `{name}` is not finite at {at}; correct it before you save it")),
        None => Ok(numbers),
    }
}

/// Numbers of levels or classes.
fn whole(name: &str, array: &Array, count: usize) -> Result<Vec<u32>, String> {
    let numbers = array
        .data
        .to_i64()
        .ok_or_else(|| format!("array `{name}` holds no whole numbers; use .astype(int)"))?;
    let number = |(at, value): (usize, &i64)| {
        let fits = u32::try_from(*value).ok().filter(|value| (*value as usize) < count);
        fits.ok_or_else(|| format!("array `{name}` has {value} at {at}, the schema lists {count} from 0"))
    };
    numbers.iter().enumerate().map(number).collect()
}
