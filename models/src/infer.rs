//! Inference with tract, on the ONNX file itself. Host devices and the aggregator evaluate models with it, and it is an
//! independent check of our own forward pass.
//!
//! The logits are read before a softmax or sigmoid at the end of the file, so a loss stays exact where probabilities would be
//! rounded to 0.

use std::sync::Arc;

use common::{
    message::Score,
    plan::{Activation, Loss},
};
use tract_onnx::prelude::*;

use crate::{
    Graph,
    graph::Op,
    onnx::{ImportError, import},
    plan::default_loss,
};

/// Samples per run where the file does not fix the batch size: fast, and memory does not grow with the data.
const BATCH: usize = 256;

/// The same for recurrent models, whose runs are padded to it.
const RECURRENT_BATCH: usize = 16;

/// A model that is ready to run.
#[derive(Clone, Debug)]
pub struct TractModel {
    plan: Arc<TypedRunnableModel>,
    /// Per sample.
    input: Vec<usize>,
    outputs: usize,
    /// Rows per run.
    batch: usize,
    /// The file needs exactly `batch` rows.
    fixed: bool,
    /// Inputs are whole numbers.
    words: bool,
    /// Logits per target; 1 where every output is a binary one.
    classes: usize,
}

/// Why a model cannot be run, or samples do not fit it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum InferError {
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error("tract refuses the model: {0:#}")]
    Tract(TractError),
    #[error(
        "tract leaves out the factor alpha of Celu, which is {alpha} in node '{node}'; it is no reference for this model, use the built-in forward pass"
    )]
    Celu { node: String, alpha: f32 },
    #[error("{got} numbers are not a multiple of the {sample} numbers per sample")]
    Inputs { sample: usize, got: usize },
    #[error("{samples} samples, but {labels} labels")]
    Labels { samples: usize, labels: usize },
    #[error("label {label} of sample {sample} is none of the model's {outputs} outputs")]
    Label { sample: usize, label: u32, outputs: usize },
}

impl From<TractError> for InferError {
    fn from(error: TractError) -> Self {
        Self::Tract(error)
    }
}

impl TractModel {
    /// Reads the bytes of an ONNX file.
    pub fn load(bytes: &[u8]) -> Result<Self, InferError> {
        let import = import(bytes)?;
        let graph = &import.graph;
        computed_right(graph)?;
        let input: Vec<usize> = graph.input().shape.dims.iter().map(|dim| dim.size(graph.full())).collect();
        let mut model = tract_onnx::onnx().model_for_read(&mut &bytes[..])?;
        // tract needs the batch size of a recurrent layer's state.
        let recurrent = graph.nodes().iter().any(|node| node.op.is_recurrent());
        let fixed = import.batch.or(recurrent.then_some(RECURRENT_BATCH));
        let rows = match fixed {
            Some(batch) => batch.to_dim(),
            None => model.symbols.sym("N").to_dim(),
        };
        let shape: TVec<TDim> = std::iter::once(rows).chain(input.iter().map(|size| size.to_dim())).collect();
        // Samples are f32, whatever type the file casts from; tokens are whole numbers.
        let words = graph.tokens().is_some();
        let kind = if words { i64::datum_type() } else { f32::datum_type() };
        model.set_input_fact(0, InferenceFact::dt_shape(kind, shape))?;
        let model = model.with_outputs_by_name([&import.logits])?;
        let plan = model.eliminate_dead_branches()?.into_optimized()?.into_runnable()?;
        let batch = fixed.unwrap_or(BATCH);
        let classes = match default_loss(graph) {
            Loss::Softmax { classes } => classes as usize,
            Loss::Sigmoid | Loss::Squared => 1,
        };
        Ok(Self { plan, input, outputs: graph.outputs(), batch, fixed: fixed.is_some(), words, classes })
    }

    /// Numbers per sample.
    pub fn inputs(&self) -> usize {
        self.input.iter().product()
    }

    /// Logits per sample.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The logits of any number of samples, row by row.
    pub fn logits(&self, samples: &[f32]) -> Result<Vec<f32>, InferError> {
        let sample = self.inputs();
        if !samples.len().is_multiple_of(sample) {
            return Err(InferError::Inputs { sample, got: samples.len() });
        }
        let mut logits = Vec::with_capacity(samples.len() / sample * self.outputs);
        for chunk in samples.chunks(self.batch * sample) {
            self.run(chunk, &mut logits)?;
        }
        Ok(logits)
    }

    /// Loss and accuracy, with one label per sample or per token; where outputs are binary, one label of 0 or 1
    /// per output. No samples score 0.
    pub fn score<L: Copy + Into<u32>>(&self, samples: &[f32], labels: &[L]) -> Result<Score, InferError> {
        let logits = self.logits(samples)?;
        let count = logits.len() / self.classes;
        if count != labels.len() {
            return Err(InferError::Labels { samples: count, labels: labels.len() });
        }
        let (mut loss, mut correct) = (0.0, 0);
        for (sample, (row, &label)) in logits.chunks(self.classes).zip(labels).enumerate() {
            let label: u32 = label.into();
            if let ([logit], 0 | 1) = (row, label) {
                let wanted = label == 1;
                // ln(1 + exp(-z)) for a 1, the same of -z for a 0.
                let margin = f64::from(if wanted { *logit } else { -*logit });
                loss += (-margin.abs()).exp().ln_1p() + (-margin).max(0.0);
                correct += u32::from((*logit > 0.0) == wanted);
                continue;
            }
            let wrong = InferError::Label { sample, label, outputs: self.classes };
            let at = *row.get(label as usize).filter(|_| self.classes > 1).ok_or(wrong)?;
            loss += log_sum_exp(row) - f64::from(at);
            // Of equal logits, the first is the prediction.
            let first = row.iter().position(|&x| row.iter().all(|&y| y <= x));
            correct += u32::from(first == Some(label as usize));
        }
        Ok(Score { samples: count as u32, correct, loss: loss / count.max(1) as f64 })
    }

    fn run(&self, samples: &[f32], logits: &mut Vec<f32>) -> Result<(), InferError> {
        let rows = samples.len() / self.inputs();
        let padded: Vec<f32>;
        let (samples, run_rows) = if self.fixed && rows < self.batch {
            let missing = (self.batch - rows) * self.inputs();
            padded = samples.iter().copied().chain(std::iter::repeat_n(0.0, missing)).collect();
            (padded.as_slice(), self.batch)
        } else {
            (samples, rows)
        };
        let shape: Vec<usize> = std::iter::once(run_rows).chain(self.input.iter().copied()).collect();
        let input = match self.words {
            true => Tensor::from_shape(&shape, &samples.iter().map(|&x| x as i64).collect::<Vec<_>>())?,
            false => Tensor::from_shape(&shape, samples)?,
        };
        let output = self.plan.run(tvec!(input.into_tvalue()))?;
        let values = output.first().map(|values| values.to_plain_array_view::<f32>()).transpose()?;
        logits.extend(values.iter().flatten().copied().take(rows * self.outputs));
        Ok(())
    }
}

/// Refuses what tract 0.23 computes wrongly without a word.
fn computed_right(graph: &Graph) -> Result<(), InferError> {
    for node in graph.nodes() {
        if let Op::Activate(Activation::Celu { alpha }) = node.op
            && alpha != 1.0
        {
            return Err(InferError::Celu { node: node.name.clone(), alpha });
        }
    }
    Ok(())
}

/// `ln(sum(exp(x)))` without overflow.
fn log_sum_exp(row: &[f32]) -> f64 {
    let largest = row.iter().fold(f64::NEG_INFINITY, |max, &x| max.max(x.into()));
    largest + row.iter().map(|&x| (f64::from(x) - largest).exp()).sum::<f64>().ln()
}
