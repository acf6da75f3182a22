//! Inputs and targets that fit a model, from NumPy's arrays or drawn at random.

use std::ops::Range;

use common::{plan::Loss, rng::Rng};
use trainer::{
    data::DataError,
    train::{TargetLabels, TargetValues, Truth},
};

use crate::{Graph, npy::Array};

/// Whole numbers up to here are exact in `f32`.
const EXACT: f64 = 16_777_216.0;

/// At least one sample; every number is checked against the model.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelSamples {
    loss: Loss,
    rows: usize,
    /// Numbers per sample.
    sample: usize,
    inputs: Vec<f32>,
    /// Targets per sample.
    per_row: usize,
    targets: Targets,
}

/// The expected outputs.
#[derive(Clone, PartialEq, Debug)]
pub enum Targets {
    /// For a softmax.
    Classes(Vec<u32>),
    /// For binary cross-entropy (in `[0, 1]`) and squared errors.
    Values(Vec<f32>),
}

/// Why samples do not fit a model.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum SamplesError {
    #[error("the inputs have shape {got:?}, but the model takes [N{}]", sizes(.expected))]
    InputShape { expected: Vec<usize>, got: Vec<usize> },
    #[error("the labels have shape {got:?}; {rows} samples with {per_row} targets each need {}", labels(*.rows, *.per_row))]
    LabelShape { rows: usize, per_row: usize, got: Vec<usize> },
    #[error("there are no samples")]
    Empty,
    #[error("more samples than 32 bits count")]
    TooMany,
    #[error("number {position} of sample {row} is NaN, infinite or beyond f32")]
    NonFinite { row: usize, position: usize },
    #[error(
        "number {position} of sample {row} is {value}, but the model looks up whole numbers from 0 to {}",
        .entries.saturating_sub(1)
    )]
    Token { row: usize, position: usize, value: f64, entries: usize },
    #[error("label {label} of sample {row} is none of the model's {classes} classes (0 to {})", .classes.saturating_sub(1))]
    Label { row: usize, label: i64, classes: u32 },
    #[error(
        "classes are whole numbers, but the labels have type '{0}'; use integers, or choose another loss"
    )]
    LabelType(&'static str),
    #[error("label {value} of sample {row} is not in [0, 1], which binary cross-entropy needs")]
    Share { row: usize, value: f64 },
    #[error("the loss takes {classes} classes, but the model has {outputs} outputs")]
    Loss { classes: u32, outputs: usize },
}

impl ModelSamples {
    /// `inputs` is `[N, ...]` with the model's own sizes; `labels` is `[N]`, or `[N, targets]` where a sample
    /// has several.
    pub fn from_arrays(
        graph: &Graph,
        loss: Loss,
        inputs: &Array,
        labels: &Array,
    ) -> Result<Self, SamplesError> {
        let expected: Vec<usize> =
            graph.input().shape.dims.iter().map(|dim| dim.size(graph.full())).collect();
        let rows = match inputs.shape.split_first() {
            Some((&rows, sample)) if sample == expected => rows,
            _ => return Err(SamplesError::InputShape { expected, got: inputs.shape.clone() }),
        };
        let per_row = per_row(graph, loss)?;
        let fits = match labels.shape[..] {
            [count] => count == rows && per_row == 1,
            [count, targets] => count == rows && targets == per_row,
            _ => false,
        };
        if !fits {
            return Err(SamplesError::LabelShape { rows, per_row, got: labels.shape.clone() });
        }
        if rows == 0 {
            return Err(SamplesError::Empty);
        }
        u32::try_from(rows.saturating_mul(per_row)).map_err(|_| SamplesError::TooMany)?;
        let targets = match loss {
            Loss::Softmax { classes } => Targets::Classes(read_classes(labels, classes, per_row)?),
            Loss::Sigmoid => Targets::Values(read_values(labels, per_row, true)?),
            Loss::Squared => Targets::Values(read_values(labels, per_row, false)?),
        };
        let sample = graph.inputs();
        Ok(Self { loss, rows, sample, inputs: read_inputs(graph, inputs)?, per_row, targets })
    }

    /// Normal inputs (or random words), random targets.
    pub fn random(graph: &Graph, loss: Loss, rows: usize, seed: u64) -> Result<Self, SamplesError> {
        let (sample, per_row) = (graph.inputs(), per_row(graph, loss)?);
        let rows = rows.max(1);
        let mut rng = Rng::new(seed);
        let inputs = (0..rows * sample).map(|_| match graph.tokens() {
            Some(entries) => rng.below(entries as u64) as f32,
            None => rng.normal() as f32,
        });
        let inputs = inputs.collect();
        let targets = 0..rows * per_row;
        let targets = match loss {
            Loss::Softmax { classes } => {
                Targets::Classes(targets.map(|_| rng.below(classes.into()) as u32).collect())
            }
            Loss::Sigmoid => Targets::Values(targets.map(|_| rng.below(2) as f32).collect()),
            Loss::Squared => Targets::Values(targets.map(|_| rng.normal() as f32).collect()),
        };
        Ok(Self { loss, rows, sample, inputs, per_row, targets })
    }

    /// Number of samples.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The loss that the targets are for.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Number of targets of all samples.
    pub fn targets(&self) -> usize {
        self.rows * self.per_row
    }

    /// The numbers of some samples.
    pub fn inputs(&self, rows: &Range<usize>) -> &[f32] {
        &self.inputs[rows.start * self.sample..rows.end * self.sample]
    }

    /// Targets from a row on.
    pub(super) fn truth(&self, from: usize) -> impl Truth + '_ {
        TruthFrom { samples: self, from }
    }
}

struct TruthFrom<'a> {
    samples: &'a ModelSamples,
    from: usize,
}

impl Truth for TruthFrom<'_> {
    fn class(&self, row: usize, position: usize) -> Result<u32, DataError> {
        let (row, per_row) = (self.from + row, self.samples.per_row);
        match &self.samples.targets {
            Targets::Classes(labels) => TargetLabels { labels, per_row }.class(row, position),
            Targets::Values(values) => TargetValues { values, per_row }.class(row, position),
        }
    }

    fn value(&self, row: usize, position: usize) -> Result<f32, DataError> {
        let (row, per_row) = (self.from + row, self.samples.per_row);
        match &self.samples.targets {
            Targets::Classes(labels) => TargetLabels { labels, per_row }.value(row, position),
            Targets::Values(values) => TargetValues { values, per_row }.value(row, position),
        }
    }
}

fn per_row(graph: &Graph, loss: Loss) -> Result<usize, SamplesError> {
    let outputs = graph.outputs();
    match loss {
        Loss::Softmax { classes } if classes == 0 || !outputs.is_multiple_of(classes as usize) => {
            Err(SamplesError::Loss { classes, outputs })
        }
        Loss::Softmax { classes } => Ok(outputs / classes as usize),
        Loss::Sigmoid | Loss::Squared => Ok(outputs),
    }
}

fn read_inputs(graph: &Graph, inputs: &Array) -> Result<Vec<f32>, SamplesError> {
    let (sample, tokens) = (graph.inputs().max(1), graph.tokens());
    let read = |(at, value): (usize, f64)| {
        let (row, position) = (at / sample, at % sample);
        let number = value as f32;
        match tokens {
            _ if !number.is_finite() => Err(SamplesError::NonFinite { row, position }),
            Some(entries) if !(value.fract() == 0.0 && value >= 0.0 && value < EXACT.min(entries as f64)) => {
                Err(SamplesError::Token { row, position, value, entries })
            }
            _ => Ok(number),
        }
    };
    inputs.data.to_f64().into_iter().enumerate().map(read).collect()
}

fn read_classes(labels: &Array, classes: u32, per_row: usize) -> Result<Vec<u32>, SamplesError> {
    let read = |(at, label): (usize, i64)| {
        let wrong = SamplesError::Label { row: at / per_row.max(1), label, classes };
        u32::try_from(label).ok().filter(|&label| label < classes).ok_or(wrong)
    };
    let wholes = labels.data.to_i64().ok_or(SamplesError::LabelType(labels.data.descr()))?;
    wholes.into_iter().enumerate().map(read).collect()
}

fn read_values(labels: &Array, per_row: usize, shares: bool) -> Result<Vec<f32>, SamplesError> {
    let read = |(at, value): (usize, f64)| {
        let (row, position) = (at / per_row.max(1), at % per_row.max(1));
        match value as f32 {
            number if !number.is_finite() => Err(SamplesError::NonFinite { row, position }),
            _ if shares && !(0.0..=1.0).contains(&value) => Err(SamplesError::Share { row, value }),
            number => Ok(number),
        }
    };
    labels.data.to_f64().into_iter().enumerate().map(read).collect()
}

fn sizes(sizes: &[usize]) -> String {
    sizes.iter().map(|size| format!(", {size}")).collect()
}

fn labels(rows: usize, per_row: usize) -> String {
    match per_row {
        1 => format!("[{rows}]"),
        _ => format!("[{rows}, {per_row}]"),
    }
}
