//! The results of `fairtier model grad`, as a table or JSON; the gradients themselves go to a file.

use std::{fmt, path::PathBuf};

use crate::{
    grad::Gradients,
    npy::{Array, Data, NpyError, write_archive},
};
use serde::Serialize;

use super::table::Table;

/// The name of the loss in the archive.
const LOSS: &str = "loss";

#[derive(Debug, Serialize)]
pub struct GradReport {
    pub file: PathBuf,
    pub samples: usize,
    pub widths: Vec<u32>,
    loss: f64,
    gradients: Vec<GradientRow>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct GradientRow {
    name: String,
    shape: Vec<usize>,
    norm: f64,
    largest: f64,
}

impl GradReport {
    pub fn new(file: PathBuf, samples: usize, widths: Vec<u32>, gradients: &Gradients) -> Self {
        let rows = gradients.tensors.iter().map(|tensor| {
            let values = || tensor.values.iter().map(|&x| f64::from(x));
            GradientRow {
                name: tensor.name.clone(),
                shape: tensor.shape.clone(),
                norm: values().map(|x| x * x).sum::<f64>().sqrt(),
                largest: values().fold(0.0, |largest, x| largest.max(x.abs())),
            }
        });
        let (gradients, loss, notes) = (rows.collect(), gradients.loss, gradients.notes.clone());
        Self { file, samples, widths, loss, gradients, notes }
    }
}

/// The bytes of the `.npz` file.
pub fn archive(gradients: &Gradients) -> Result<Vec<u8>, NpyError> {
    let mut arrays = vec![(LOSS.to_owned(), Array::scalar(gradients.loss))];
    for tensor in &gradients.tensors {
        let array = Array::new(&tensor.shape, Data::F32(tensor.values.clone()))?;
        arrays.push((tensor.name.clone(), array));
    }
    write_archive(&arrays)
}

impl fmt::Display for GradReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: loss {:.7} of {} samples", self.file.display(), self.loss, self.samples)?;
        let mut table = Table::new(1, &["gradient", "shape", "norm", "largest"]);
        for row in &self.gradients {
            let cells =
                [format!("{:?}", row.shape), format!("{:.3e}", row.norm), format!("{:.3e}", row.largest)];
            table.row(std::iter::once(row.name.clone()).chain(cells));
        }
        write!(f, "{table}")?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}
