//! Inference with the trainer of the devices: the forward pass of a Plan, without a further engine.
//!
//! ```text
//! ONNX --import--> Graph + parameters --compile (inference)--> Plan --forward--> logits
//! ```

use common::{
    plan::{Loss, PlanError},
    rng::Rng,
};
use trainer::train::{Fast, PassMode, TrainError, forward};

use crate::{
    Graph,
    onnx::{ImportError, import},
    plan::{CompileError, CompiledPlan, PlanOptions, compile},
    zoo,
};

/// Most samples of one pass.
const BATCH: u64 = 256;
/// Numbers that the buffers of a pass may have before it takes fewer samples: 64 MB.
const ROOM: u64 = 1 << 24;

/// A model that is ready to run.
#[derive(Debug)]
pub struct ForwardModel {
    graph: Graph,
    compiled: CompiledPlan,
    arena: Vec<f32>,
    backend: Fast,
}

/// Why a model cannot be run, or samples do not fit it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ForwardError {
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error(transparent)]
    Parameters(#[from] common::slice::WrongLength),
    #[error("{got} numbers are not a multiple of the {sample} numbers per sample")]
    Inputs { sample: usize, got: usize },
}

impl ForwardModel {
    /// Reads the bytes of an ONNX file.
    pub fn load(bytes: &[u8]) -> Result<Self, ForwardError> {
        let import = import(bytes)?;
        Self::new(import.graph, &import.parameters)
    }

    /// A model that is in memory already.
    pub fn new(graph: Graph, parameters: &[f32]) -> Result<Self, ForwardError> {
        let mask = graph.full().clone();
        let weights = graph.weights(&mask, parameters)?;
        let one = compile(&graph, &mask, &PlanOptions::infer(1))?;
        let per_sample = u64::from(one.info.arena).saturating_sub(one.workspace()?).max(1);
        let batch = (ROOM / per_sample).clamp(1, BATCH) as u16;
        let compiled = compile(&graph, &mask, &PlanOptions::infer(batch))?;
        let mut arena = vec![0.0; compiled.info.arena as usize];
        put(&mut arena, 0, &weights);
        if let Some(at) = compiled.info.segments.stats {
            put(&mut arena, at, graph.stats());
        }
        Ok(Self { graph, compiled, arena, backend: Fast::new() })
    }

    /// The structure of the model.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What the logits mean: classes of a softmax, or yes and no for every output.
    pub fn loss(&self) -> Loss {
        self.compiled.info.loss
    }

    /// The logits of any number of samples, row by row.
    pub fn logits(&mut self, samples: &[f32]) -> Result<Vec<f32>, ForwardError> {
        let info = &self.compiled.info;
        let (sample, outputs) = (info.inputs as usize, info.outputs as usize);
        if sample == 0 || !samples.len().is_multiple_of(sample) {
            return Err(ForwardError::Inputs { sample, got: samples.len() });
        }
        let plan = self.compiled.plan()?;
        let mut logits = Vec::with_capacity(samples.len() / sample * outputs);
        for chunk in samples.chunks(usize::from(info.batch) * sample) {
            let rows = chunk.len() / sample;
            put(&mut self.arena, info.input, chunk);
            forward(plan, &mut self.arena, rows, PassMode::Evaluate, &mut self.backend)?;
            let at = info.logits as usize;
            logits.extend_from_slice(&self.arena[at..at + rows * outputs]);
        }
        Ok(logits)
    }
}

/// Whether a model computes the same after [`Graph::rolled`], on drawn parameters and inputs. It does unless something that no
/// parameter states, such as constants of single channels, is tied to the place of a hidden unit.
pub fn computes_the_same_when_rolled(graph: &Graph) -> Result<bool, ForwardError> {
    const SAMPLES: usize = 2;
    const TOLERANCE: f32 = 1e-3;
    let mut rng = Rng::new(1);
    // Scales and shifts are drawn too, so that no two units are alike.
    let mut parameters = zoo::initial(graph, 1);
    parameters.iter_mut().for_each(|value| *value += 0.1 * rng.normal() as f32);
    let inputs = (0..SAMPLES * graph.inputs()).map(|_| match graph.tokens() {
        Some(tokens) => rng.below(tokens as u64) as f32,
        None => rng.normal() as f32,
    });
    let inputs: Vec<f32> = inputs.collect();
    let logits = |parameters: &[f32]| ForwardModel::new(graph.clone(), parameters)?.logits(&inputs);
    let (before, after) = (logits(&parameters)?, logits(&graph.rolled(&parameters))?);
    let scale = before.iter().fold(1.0f32, |scale, value| scale.max(value.abs()));
    Ok(before.iter().zip(&after).all(|(before, after)| (before - after).abs() <= TOLERANCE * scale))
}

/// `Plan::check` has placed every buffer inside the arena.
fn put(arena: &mut [f32], at: u32, values: &[f32]) {
    arena[at as usize..at as usize + values.len()].copy_from_slice(values);
}
