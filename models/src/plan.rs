//! Compiles a Graph and a WidthMask to a Plan: an op list over one arena of exactly known size.
//!
//! 1. `program`: the nodes at the tier's widths, without those that only rename a value.
//! 2. `dataflow`: what works in place, which values have gradients, in which order things are computed.
//! 3. `memory`: every buffer is live in a range of instructions; those that are never live together
//!    may share memory ([`arena`]).
//!
//! | buffer | from | to |
//! |---|---|---|
//! | value, inference | its producer | its last reader |
//! | value, training | its producer | the last backward pass that reads it |
//! | logits, and where possible their gradient in the same place | the last node | its backward pass |
//! | gradient of a value | backward of its last reader | backward of its producer |
//! | what a node keeps for backward | its forward pass | its backward pass |
//!
//! All lengths are multiples of the batch, so a layout for one sample is one for any number.

use common::{
    TensorShape, WidthMask,
    mask::MaskError,
    plan::{BackwardStep, Loss, Node, Pass, Plan, PlanError, PlanInfo, Segments},
};

use crate::graph::{Graph, SliceError, Tail};

pub mod arena;
mod dataflow;
pub mod fit;
mod memory;
mod program;

use dataflow::Dataflow;
use memory::{Contents, MemoryPlan};
use program::Program;

/// What a Plan is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PlanMode {
    /// Weights and activations only.
    Infer,
    /// Also the received model, and gradients of parameters and activations.
    Train,
}

/// What a Plan must have room for. Everything but `batch`, `mode` and `loss` concerns training only.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PlanOptions {
    /// Samples per pass.
    pub batch: u16,
    /// Whether devices train with it.
    pub mode: PlanMode,
    /// Segments that the optimiser needs ([`common::brief::Optimizer::moments`]): 0, 1 or 2.
    pub moments: u8,
    /// Room for the residual of a lossy codec.
    pub error_feedback: bool,
    /// Room for a second vector: one that the aggregator sends, or a first step.
    pub guide: bool,
    /// Room for a personal model that stays on the device.
    pub personal: bool,
    /// No gradient segment: each gradient is applied as soon as it is known (plain SGD).
    pub fused: bool,
    /// Train only this many of the last layers, without memory for gradients of the others. `None`: all.
    pub last: Option<u16>,
    /// HeteroFL's scaler: the output of a layer is divided by the share of its units that the tier keeps.
    pub scaler: bool,
    /// By default softmax cross-entropy over the last axis of the output; binary where that has size 1 or the
    /// model ends with a sigmoid.
    pub loss: Option<Loss>,
    /// Recompute activations in the backward pass instead of keeping them, as long as that saves memory.
    pub recompute: bool,
}

impl PlanOptions {
    /// SGD with a gradient segment.
    pub fn train(batch: u16) -> Self {
        Self { mode: PlanMode::Train, ..Self::infer(batch) }
    }

    /// The forward pass alone.
    pub fn infer(batch: u16) -> Self {
        Self {
            batch,
            mode: PlanMode::Infer,
            moments: 0,
            error_feedback: false,
            guide: false,
            personal: false,
            fused: false,
            last: None,
            scaler: false,
            loss: None,
            recompute: false,
        }
    }
}

/// A Plan that owns its nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct CompiledPlan {
    /// Its sizes.
    pub info: PlanInfo,
    /// The model, then copies of nodes that run again in the backward pass.
    pub nodes: Vec<Node>,
    /// The backward pass; empty: the nodes in reverse.
    pub schedule: Vec<BackwardStep>,
    /// Names and places of all buffers, for display.
    pub buffers: Vec<Allocation>,
}

/// A range of the arena.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// What it holds.
    pub name: String,
    /// In numbers, not bytes.
    pub at: u64,
    /// In numbers, not bytes.
    pub len: u64,
    /// First and last instruction that uses it; `None`: always there.
    pub live: Option<(usize, usize)>,
}

impl CompiledPlan {
    /// Multiply-accumulates per sample of recomputed activations.
    pub fn recomputed_macs(&self) -> u64 {
        let again = self.schedule.iter().filter(|step| step.pass == Pass::Forward);
        again.filter_map(|step| self.nodes.get(usize::from(step.node))).map(|node| node.op.macs()).sum()
    }

    /// Numbers of weights and segments, before the buffers that are placed by lifetime.
    pub fn workspace(&self) -> Result<u64, PlanError> {
        let trained = self.plan()?.trained() as u32;
        self.info.workspace(trained).ok_or(PlanError::Inconsistent)
    }

    /// The Plan, checked.
    pub fn plan(&self) -> Result<Plan<'_>, PlanError> {
        Plan::check(&self.info, &self.nodes, &self.schedule)
    }
}

/// Why a model cannot be compiled for a tier.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum CompileError {
    #[error(transparent)]
    Slice(#[from] SliceError),
    #[error("a batch has at least one sample")]
    EmptyBatch,
    #[error("the plan needs {0} numbers of memory, more than 32 bits address; take a smaller tier or batch")]
    TooLarge(u64),
    #[error("an optimiser has at most 2 moments, not {0}")]
    Moments(u8),
    #[error(
        "without room for gradients only plain SGD can be run: no momentum, no guide, and no weights shared by layers"
    )]
    Fused,
    #[error(
        "the last layers cannot be trained alone: there are none, or their parameters do not follow all others'; \
         train more of them, or all"
    )]
    Last,
    #[error("the loss takes {classes} classes, but the model has {outputs} outputs")]
    Loss { classes: u32, outputs: u32 },
    #[error("the compiled plan is refused: {0}")]
    Refused(#[from] PlanError),
}

impl From<MaskError> for CompileError {
    fn from(error: MaskError) -> Self {
        Self::Slice(error.into())
    }
}

/// The Plan of one tier.
pub fn compile(graph: &Graph, mask: &WidthMask, options: &PlanOptions) -> Result<CompiledPlan, CompileError> {
    let target = if options.recompute { 0 } else { u64::MAX };
    compile_within(graph, mask, options, target)
}

/// Recomputes activations only until the workspace needs at most `target` numbers per sample.
fn compile_within(
    graph: &Graph,
    mask: &WidthMask,
    options: &PlanOptions,
    target: u64,
) -> Result<CompiledPlan, CompileError> {
    check(graph, mask, options)?;
    let train = options.mode == PlanMode::Train;
    let program = Program::new(graph, mask, options.scaler && train, options.last);
    let flow = Dataflow::new(&program, train);
    let memory = MemoryPlan::saving(&flow, target);
    let params = program.constants + graph.layout().slice_len(mask) as u64;
    let frozen = program.frozen().ok_or(CompileError::Last)?;
    let (segments, workspace) = segments(params, params - frozen, program.stats, options);
    let batch = u64::from(options.batch);
    let arena = workspace.saturating_add(memory.len().saturating_mul(batch));
    let arena = u32::try_from(arena).map_err(|_| CompileError::TooLarge(arena))?;
    // Every other length and offset is below that of the arena, which fits.
    let at = |offset: u64| (workspace + offset * batch) as u32;
    let (nodes, schedule) = memory.emit(at);
    let count = |len: usize| {
        u16::try_from(len).map_err(|_| PlanError::TooManyNodes { nodes: len, room: u16::MAX.into() })
    };
    let (Some(first), Some(last)) = (nodes.first(), nodes[..program.nodes.len()].last()) else {
        return Err(PlanError::Inconsistent.into());
    };
    let info = PlanInfo {
        digest: graph.digest(mask),
        inputs: len(&graph.input().shape, mask) as u32,
        outputs: outputs(graph, mask).1,
        loss: loss(graph, mask, options)?,
        batch: options.batch,
        params: params as u32,
        stats: program.stats as u32,
        segments,
        input: first.input.at,
        logits: last.output,
        arena,
        nodes: count(nodes.len())?,
        forward: count(program.nodes.len())?,
        schedule: count(schedule.len())?,
    };
    let buffers = allocations(&info, params - frozen, &program, &memory, at);
    let compiled = CompiledPlan { info, nodes, schedule, buffers };
    compiled.plan()?;
    Ok(compiled)
}

fn check(graph: &Graph, mask: &WidthMask, options: &PlanOptions) -> Result<(), CompileError> {
    graph.check_mask(mask)?;
    if options.batch == 0 {
        return Err(CompileError::EmptyBatch);
    }
    if options.moments > 2 {
        return Err(CompileError::Moments(options.moments));
    }
    match options.mode == PlanMode::Train && options.fused && !can_fuse(graph, options) {
        true => Err(CompileError::Fused),
        false => Ok(()),
    }
}

/// A shared weight must keep its value until its last gradient is known.
fn can_fuse(graph: &Graph, options: &PlanOptions) -> bool {
    let uses = graph.nodes().iter().map(|node| node.op.params().count()).sum::<usize>();
    options.moments == 0 && !options.guide && uses == graph.params().len()
}

/// Where segments start, and where they end.
fn segments(params: u64, trained: u64, stats: u64, options: &PlanOptions) -> (Segments, u64) {
    let mut end = params;
    let mut of_params = |present: bool| {
        let at = (present && options.mode == PlanMode::Train).then_some(end as u32);
        end = end.saturating_add(if at.is_some() { trained } else { 0 });
        at
    };
    let segments = Segments {
        anchor: of_params(true),
        guide: of_params(options.guide),
        grads: of_params(!options.fused),
        residual: of_params(options.error_feedback),
        moment1: of_params(options.moments > 0),
        moment2: of_params(options.moments > 1),
        personal: of_params(options.personal),
        stats: None,
    };
    let stats_at = (stats > 0).then_some(end as u32);
    (Segments { stats: stats_at, ..segments }, end + stats)
}

/// Sizes of the last axis of the output, and of the whole output.
pub(crate) fn outputs(graph: &Graph, mask: &WidthMask) -> (u32, u32) {
    let shape = graph.shape(graph.output().value);
    let last = shape.dims.last().map_or(1, |dim| dim.size(mask));
    (last as u32, len(shape, mask) as u32)
}

/// Softmax cross-entropy over the last axis of the output; binary where that has size 1.
pub fn default_loss(graph: &Graph) -> Loss {
    match (graph.output().tail, outputs(graph, graph.full()).0) {
        (Some(Tail::Sigmoid), _) | (_, 1) => Loss::Sigmoid,
        (_, classes) => Loss::Softmax { classes },
    }
}

fn loss(graph: &Graph, mask: &WidthMask, options: &PlanOptions) -> Result<Loss, CompileError> {
    let outputs = outputs(graph, mask).1;
    match options.loss {
        None => Ok(default_loss(graph)),
        Some(Loss::Softmax { classes }) if classes == 0 || !outputs.is_multiple_of(classes) => {
            Err(CompileError::Loss { classes, outputs })
        }
        Some(loss) => Ok(loss),
    }
}

fn allocations(
    info: &PlanInfo,
    trained: u64,
    program: &Program,
    memory: &MemoryPlan<'_>,
    at: impl Fn(u64) -> u32,
) -> Vec<Allocation> {
    let fixed = |name: &str, at: u32, len: u32| {
        let (at, len) = (at.into(), len.into());
        Allocation { name: name.to_owned(), at, len, live: None }
    };
    let names = ["anchor", "guide", "gradients", "residual", "moment 1", "moment 2", "personal model"];
    let segments = names.iter().zip(info.segments.of_params());
    let mut list = vec![fixed("weights", 0, info.params)];
    list.extend(segments.filter_map(|(name, start)| start.map(|start| fixed(name, start, trained as u32))));
    list.extend(info.segments.stats.map(|start| fixed("statistics", start, info.stats)));
    let name = |value: usize| match value.checked_sub(1).and_then(|index| program.nodes.get(index)) {
        Some(node) => node.name.clone(),
        None => "input".to_owned(),
    };
    let buffers = memory.buffers().map(|(contents, offset, len, first, last)| Allocation {
        name: match contents {
            Contents::Value(value) => name(value),
            Contents::Recomputed(value) => format!("{} (again)", name(value)),
            Contents::Grad(value) => format!("gradient of {}", name(value)),
            Contents::Keep(index) => format!("{} (kept)", name(index + 1)),
            Contents::Scratch(index) => format!("{} (scratch)", name(index + 1)),
        },
        at: at(offset).into(),
        len: len * u64::from(info.batch),
        live: Some((first, last)),
    });
    list.extend(buffers);
    list
}

/// Numbers per sample.
fn len(shape: &TensorShape, mask: &WidthMask) -> u64 {
    shape.len(mask) as u64
}

#[cfg(test)]
mod tests;
