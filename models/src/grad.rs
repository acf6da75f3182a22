//! Loss and gradients of a model on given samples, computed by the trainer of the devices.
//!
//! ```text
//! Graph + mask --compile (gradient segment)--> Plan --forward, loss, backward--> gradients per initializer
//! ```
//! The loss is a mean over all targets. Passes are those of training, so batch normalisation uses the statistics of the batch.
//! But there is no dropout, so the result depends only on the samples. Batches that are too large for memory are summed over
//! several passes, with the same result up to rounding. Models with batch normalisation are then refused.

use std::ops::Range;

use common::{
    TensorShape, WidthMask,
    plan::{Loss, Op, PlanError, PlanInfo},
    slice::WrongLength,
};
use trainer::train::{
    Backend, Float, GradTarget, PassMode, Portable, TrainError, backward, forward, loss_and_gradient, score,
};

use crate::{
    Graph,
    graph::{Param, SliceError},
    plan::{CompileError, CompiledPlan, PlanOptions, compile},
};

mod samples;
pub use samples::{ModelSamples, SamplesError, Targets};

/// Numbers that an arena may have before a batch is split: 512 MB of `f32`.
const ROOM: u64 = 1 << 27;
const TRAIN: PassMode = PassMode::Train { seed: 0, step: 0 };

/// Loss and gradients. Each gradient has the name and layout of its initializer, whose numbers import may have multiplied by a
/// constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Gradients<T = f32> {
    /// Mean over the samples.
    pub loss: f64,
    /// In model order.
    pub tensors: Vec<Gradient<T>>,
    /// What differs from real training, one sentence each.
    pub notes: Vec<String>,
}

/// The gradient of one parameter tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Gradient<T = f32> {
    /// Name of the initialiser in the file.
    pub name: String,
    /// As in the file.
    pub shape: Vec<usize>,
    /// Row-major.
    pub values: Vec<T>,
}

/// Why gradients cannot be computed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum GradError {
    #[error(transparent)]
    Samples(#[from] SamplesError),
    #[error(transparent)]
    Slice(#[from] SliceError),
    #[error(transparent)]
    Parameters(#[from] WrongLength),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(
        "batch normalisation needs all {rows} samples in one pass, but memory has room for {room}; give fewer samples"
    )]
    BatchNorm { rows: usize, room: usize },
    #[error("the loss or a gradient is not a finite number; scale the inputs or the weights down")]
    NonFinite,
}

/// Loss and gradients of a slice (by default of the whole model), with the arithmetic of a device.
pub fn gradients(
    graph: &Graph,
    parameters: &[f32],
    mask: Option<&WidthMask>,
    samples: &ModelSamples,
) -> Result<Gradients, GradError> {
    let mask = mask.unwrap_or(graph.full());
    Runner::new(graph, parameters, mask, samples.loss(), samples.rows(), Portable::plain())?
        .gradients(samples)
}

/// A slice of a model, ready to run. `f32` with [`Portable`] is what a device computes, `f64` is for checks.
#[derive(Clone, Debug)]
pub struct Runner<T, B> {
    slice: Graph,
    compiled: CompiledPlan,
    arena: Vec<T>,
    backend: B,
    notes: Vec<String>,
}

impl<T: Float, B: Backend<T>> Runner<T, B> {
    /// `rows` is the number of samples per pass, if memory allows.
    pub fn new(
        graph: &Graph,
        parameters: &[f32],
        mask: &WidthMask,
        loss: Loss,
        rows: usize,
        backend: B,
    ) -> Result<Self, GradError> {
        let slice = graph.slice(mask)?;
        let packed = graph.weights(mask, parameters)?;
        let options = PlanOptions { loss: Some(loss), ..PlanOptions::train(1) };
        let one = compile(graph, mask, &options)?;
        let fixed = one.workspace()?;
        let per_row = u64::from(one.info.arena).saturating_sub(fixed).max(1);
        let most = (ROOM.saturating_sub(fixed) / per_row).clamp(1, u16::MAX.into());
        let batch = most.min(rows.max(1) as u64) as u16;
        let mut compiled = compile(graph, mask, &PlanOptions { batch, ..options })?;
        let is_normed = compiled.nodes.iter().any(|node| matches!(node.op, Op::BatchNorm { .. }));
        if is_normed && rows > usize::from(batch) {
            return Err(GradError::BatchNorm { rows, room: batch.into() });
        }
        let mut notes = Vec::new();
        for node in &mut compiled.nodes {
            if let Op::Dropout { rate, .. } = &mut node.op {
                notes.push(format!("a dropout of rate {rate} is left out"));
                *rate = 0.0;
            }
        }
        let mut arena = vec![T::ZERO; compiled.info.arena as usize];
        fill(&mut arena, 0, packed.iter().copied());
        if let Some(at) = compiled.info.segments.stats {
            fill(&mut arena, at, slice.stats().iter().copied());
        }
        Ok(Self { slice, compiled, arena, backend, notes })
    }

    /// Sizes of the Plan.
    pub fn info(&self) -> &PlanInfo {
        &self.compiled.info
    }

    /// The parameters in our order.
    pub fn weights(&mut self) -> &mut [T] {
        let len = self.compiled.info.params as usize;
        &mut self.arena[self.slice.constants().len()..len]
    }

    /// Range of each parameter in [`Runner::weights`], by the name of its initializer.
    pub fn params(&self) -> Vec<(String, Range<usize>)> {
        let full = self.slice.full();
        let params = self.slice.params().iter().zip(self.slice.param_shapes());
        let places = params.zip(self.slice.offsets(full));
        places.map(|((param, shape), at)| (param.name.clone(), at..at + shape.len(full))).collect()
    }

    /// Logits in evaluation: batch normalisation uses the statistics of the model.
    pub fn logits(&mut self, samples: &ModelSamples) -> Result<Vec<T>, GradError> {
        let mut logits = Vec::new();
        for rows in self.passes(samples) {
            self.load(samples, &rows);
            let plan = self.compiled.plan()?;
            forward(plan, &mut self.arena, rows.len(), PassMode::Evaluate, &mut self.backend)?;
            let at = self.compiled.info.logits as usize;
            let len = rows.len() * self.compiled.info.outputs as usize;
            logits.extend_from_slice(&self.arena[at..at + len]);
        }
        Ok(logits)
    }

    /// The loss of [`Runner::gradients`] alone.
    pub fn loss(&mut self, samples: &ModelSamples) -> Result<f64, GradError> {
        let mut sum = 0.0;
        for rows in self.passes(samples) {
            self.load(samples, &rows);
            let plan = self.compiled.plan()?;
            forward(plan, &mut self.arena, rows.len(), TRAIN, &mut self.backend)?;
            sum += score(plan, &self.arena, rows.len(), &samples.truth(rows.start))?.loss;
        }
        finite(sum / samples.targets() as f64)
    }

    /// Loss, and the gradient of all parameters in our order.
    pub fn flat_gradients(&mut self, samples: &ModelSamples) -> Result<(f64, Vec<T>), GradError> {
        let targets = samples.targets() as u32;
        let (mut sum, mut target) = (0.0, GradTarget::Grads);
        for rows in self.passes(samples) {
            self.load(samples, &rows);
            let plan = self.compiled.plan()?;
            let (arena, backend) = (&mut self.arena, &mut self.backend);
            forward(plan, arena, rows.len(), TRAIN, backend)?;
            sum += loss_and_gradient(plan, arena, rows.len(), targets, &samples.truth(rows.start))?.loss;
            backward(plan, arena, rows.len(), TRAIN, target, backend)?;
            target = GradTarget::MoreGrads;
        }
        let missing = TrainError::Segment { what: "gradients", segment: "gradient" };
        let at = self.compiled.info.segments.grads.ok_or(missing)? as usize;
        let grads = self.arena[at..at + self.compiled.plan()?.trained()].to_vec();
        match grads.iter().all(|grad| grad.to_f64().is_finite()) {
            true => Ok((finite(sum / f64::from(targets))?, grads)),
            false => Err(GradError::NonFinite),
        }
    }

    /// Loss, and the gradients in the layout of the model's file.
    pub fn gradients(&mut self, samples: &ModelSamples) -> Result<Gradients<T>, GradError> {
        let (loss, flat) = self.flat_gradients(samples)?;
        let (full, params) = (self.slice.full(), self.slice.params().iter().zip(self.slice.param_shapes()));
        let tensors = params.zip(self.slice.offsets(full)).map(|((param, shape), at)| {
            let ours = &flat[at..at + shape.len(full)];
            Gradient {
                name: param.name.clone(),
                shape: param.dims(shape, full),
                values: of_initializer(param, shape, full, ours),
            }
        });
        Ok(Gradients { loss, tensors: tensors.collect(), notes: self.notes.clone() })
    }

    /// Rows of each pass.
    fn passes(&self, samples: &ModelSamples) -> Vec<Range<usize>> {
        let (all, batch) = (samples.rows(), usize::from(self.compiled.info.batch));
        (0..all).step_by(batch).map(|start| start..all.min(start + batch)).collect()
    }

    fn load(&mut self, samples: &ModelSamples, rows: &Range<usize>) {
        fill(&mut self.arena, self.compiled.info.input, samples.inputs(rows).iter().copied());
    }
}

/// The chain rule from our parameter back to the numbers of the file.
fn of_initializer<T: Float>(param: &Param, shape: &TensorShape, mask: &WidthMask, ours: &[T]) -> Vec<T> {
    let mut gradient = match param.spread {
        Some(_) => vec![ours.iter().fold(T::ZERO, |sum, &x| sum + x)],
        None => param.layout.to_file(shape, mask, ours),
    };
    if param.factor != 1.0 {
        gradient.iter_mut().for_each(|x| *x *= T::from_f32(param.factor));
    }
    gradient
}

fn fill<T: Float>(arena: &mut [T], at: u32, values: impl Iterator<Item = f32>) {
    arena[at as usize..].iter_mut().zip(values).for_each(|(place, value)| *place = T::from_f32(value));
}

fn finite(loss: f64) -> Result<f64, GradError> {
    if loss.is_finite() { Ok(loss) } else { Err(GradError::NonFinite) }
}

#[cfg(test)]
mod tests;
