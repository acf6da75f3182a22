//! A sliced model compiled for execution: a list of nodes with offsets into one arena of `f32`.
//!
//! The compiler in `models` writes a Plan, and the trainer in `edge-client` executes it. [`Plan::check`] validates it
//! before: no node of a checked Plan reaches outside the arena or writes to parameters, wherever its bytes came from.
//!
//! ```text
//! arena   0         P                                          workspace                arena
//!         | weights | anchor guide grads residual moment1 moment2 personal stats | buffers by lifetime |
//! ```
//! `weights` are trained in place. The segments that follow are optional ([`Segments`]) and in this order. Everything after
//! them is placed by lifetime. An inference Plan has weights, statistics and activations only.
//!
//! `weights` begin with the constants of [`Op::Arithmetic`], which are never trained. A Plan may also train the last layers
//! only: nodes without a gradient are then part of a frozen prefix. Segments cover the trained parameters only
//! ([`Plan::trained`]): they begin with the first parameter of a node that has a gradient.
//!
//! # Execution
//! 1. Forward: nodes `0..forward` in order.
//! 2. Loss: the gradient of the loss by the logits is written to the last forward node's `output_grad`, which may overwrite
//!    the logits.
//! 3. Backward: the schedule; an empty one means all forward nodes in reverse. Nodes from `forward` on are copies of earlier
//!    ones. A schedule runs their forward pass again during the backward pass, where an activation was discarded to save
//!    memory.

use heapless::Vec;
use serde::{Deserialize, Serialize};

mod activation;
mod arrange;
mod check;
mod elementwise;
mod left_out;
mod op;
mod recurrent;
#[cfg(test)]
mod tests;

pub use activation::{Activation, SELU_ALPHA, SELU_GAMMA};
pub use arrange::{Arrange, Gate};
pub use check::PlanError;
pub use elementwise::{Arithmetic, ArithmeticKind, Constant, PRelu, Spread};
pub use left_out::is_without;
pub use op::{Conv, Gru, Norm, Op, Pool, PoolKind, Standardize, Window};
pub use recurrent::{Recurrent, RecurrentKind};

/// Nodes that a device stores by default.
pub const MAX_NODES: usize = 64;

/// Sizes and places of a Plan. Offsets and lengths are in `f32` elements, not bytes.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlanInfo {
    /// Digest of the sliced graph; two ends with the same digest execute the same model.
    pub digest: u32,
    /// Numbers per input sample.
    pub inputs: u32,
    /// Logits (or predicted numbers) per sample.
    pub outputs: u32,
    /// How outputs become a loss.
    pub loss: Loss,
    /// Samples per pass that the arena has room for.
    pub batch: u16,
    /// Numbers of the weights: constants and parameters of the slice.
    pub params: u32,
    /// Numbers of normalisation statistics; see [`Op::BatchNorm`].
    pub stats: u32,
    /// Places of the segments behind the weights.
    pub segments: Segments,
    /// Offset of the input batch.
    pub input: u32,
    /// Offset of the outputs.
    pub logits: u32,
    /// Length of the whole arena.
    pub arena: u32,
    /// Number of nodes that follow; the first `forward` of them are the model.
    pub nodes: u16,
    /// Number of nodes of the forward pass.
    pub forward: u16,
    /// Number of steps in the backward schedule; 0 = the forward nodes in reverse.
    pub schedule: u16,
}

/// Where each segment starts. All but `stats` have one number per trained parameter. Those that exist follow each other in
/// this order.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Segments {
    /// Received model, later the update. Absent in an inference Plan.
    pub anchor: Option<u32>,
    /// A second vector: one that the aggregator has sent, such as a fair gradient, or the first step, which is sent back behind
    /// the update. It follows the anchor so that both can be sent as one transfer.
    pub guide: Option<u32>,
    /// Gradients of parameters. Absent where each is applied as soon as it is known.
    pub grads: Option<u32>,
    /// What a lossy codec has not sent yet.
    pub residual: Option<u32>,
    /// Momentum, or Adam's first moment.
    pub moment1: Option<u32>,
    /// Adam's second moment.
    pub moment2: Option<u32>,
    /// The device's personal model, kept from round to round.
    pub personal: Option<u32>,
    /// Statistics of normalisation layers, `PlanInfo::stats` numbers.
    pub stats: Option<u32>,
}

impl Segments {
    /// The segments with one number per trained parameter, in order.
    pub fn of_params(&self) -> [Option<u32>; 7] {
        [self.anchor, self.guide, self.grads, self.residual, self.moment1, self.moment2, self.personal]
    }
}

/// How outputs and targets become a loss. Always a mean over the targets of a batch.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Loss {
    /// Softmax cross-entropy from logits. One class label for every `classes` outputs, so that a
    /// sequence model has one per token.
    Softmax { classes: u32 },
    /// Binary cross-entropy from logits; the target of each output is 0 or 1 (or between).
    Sigmoid,
    /// Mean squared error.
    Squared,
}

/// What a model predicts.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum TaskKind {
    /// One of several classes.
    Classification,
    /// Yes or no, from one logit for each target.
    Binary,
    /// Numbers.
    Regression,
    /// One of several classes for every token of a sample.
    PerToken,
}

impl TaskKind {
    /// The word in configurations and texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classification => "classification",
            Self::Binary => "binary",
            Self::Regression => "regression",
            Self::PerToken => "per-token",
        }
    }

    /// Whether a prediction is right or wrong, so that there is an accuracy.
    pub const fn has_accuracy(self) -> bool {
        !matches!(self, Self::Regression)
    }
}

impl PlanInfo {
    /// What the model predicts.
    pub fn task(&self) -> TaskKind {
        match self.loss {
            Loss::Softmax { .. } if self.targets() > 1 => TaskKind::PerToken,
            Loss::Softmax { .. } => TaskKind::Classification,
            Loss::Sigmoid => TaskKind::Binary,
            Loss::Squared => TaskKind::Regression,
        }
    }

    /// RAM the arena takes.
    pub fn arena_bytes(&self) -> u64 {
        u64::from(self.arena) * 4
    }

    /// Flash a device needs to keep its slice over a reset.
    pub fn flash_bytes(&self) -> u64 {
        (u64::from(self.params) + u64::from(self.stats)) * 4
    }

    /// Labels or target numbers per sample; 0 for a softmax without classes, which [`Plan::check`] refuses.
    pub fn targets(&self) -> u32 {
        match self.loss {
            Loss::Softmax { classes } => self.outputs.checked_div(classes).unwrap_or(0),
            Loss::Sigmoid | Loss::Squared => self.outputs,
        }
    }

    /// Offset of the part after all segments, which have `trained` numbers each; `None` if a segment is misplaced.
    pub fn workspace(&self, trained: u32) -> Option<u64> {
        let mut end = u64::from(self.params);
        for at in self.segments.of_params().into_iter().flatten() {
            if u64::from(at) != end {
                return None;
            }
            end += u64::from(trained);
        }
        match (self.segments.stats, self.stats) {
            (None, 0) => Some(end),
            (Some(at), stats) if u64::from(at) == end => Some(end + u64::from(stats)),
            _ => None,
        }
    }
}

/// One operation of a Plan. Values are `[batch][numbers per sample]`, row-major.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// What the node computes.
    pub op: Op,
    /// The first operand.
    pub input: Operand,
    /// The second operand, where [`Op::second`] has a size.
    pub second: Option<Operand>,
    /// Offset of the result.
    pub output: u32,
    /// Gradient of the loss by the output; absent in an inference Plan and where no node needs it.
    pub output_grad: Option<u32>,
    /// What forward leaves for backward: [`Op::keep`] numbers per sample. Backward may overwrite them. In inference it is
    /// scratch space of the node.
    pub keep: Option<u32>,
    /// Room that backward needs while it runs: [`Op::scratch`] numbers per sample.
    pub scratch: Option<u32>,
}

/// A value that a node reads, and where its gradient goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operand {
    /// Offset of the value.
    pub at: u32,
    /// Place of its gradient; absent where no node needs it.
    pub grad: Option<Grad>,
}

/// Where a node puts the gradient of what it has read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grad {
    /// Offset of the gradient.
    pub at: u32,
    /// Add instead of replacing, because another reader of the same value has already written there.
    pub add: bool,
}

/// One step of the backward pass.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BackwardStep {
    /// Index of the node.
    pub node: u16,
    /// Which pass of the node to run.
    pub pass: Pass,
}

/// Which pass of a node a step runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Pass {
    /// Compute an activation again.
    Forward,
    /// Compute gradients.
    Backward,
}

/// A Plan that owns its nodes without a heap.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanStore<const NODES: usize = MAX_NODES> {
    info: PlanInfo,
    nodes: Vec<Node, NODES>,
    schedule: Vec<BackwardStep, NODES>,
}

impl<const NODES: usize> PlanStore<NODES> {
    /// An empty store for the announced Plan; an error if it has more nodes than fit.
    pub fn new(info: PlanInfo) -> Result<Self, PlanError> {
        let nodes = usize::from(info.nodes.max(info.schedule));
        if nodes > NODES {
            return Err(PlanError::TooManyNodes { nodes, room: NODES });
        }
        Ok(Self { info, nodes: Vec::new(), schedule: Vec::new() })
    }

    /// Sizes and places of the Plan.
    pub fn info(&self) -> &PlanInfo {
        &self.info
    }

    /// How many nodes and steps have arrived.
    pub fn received(&self) -> (usize, usize) {
        (self.nodes.len(), self.schedule.len())
    }

    /// True if all announced nodes and steps have arrived.
    pub fn is_complete(&self) -> bool {
        self.received() == (usize::from(self.info.nodes), usize::from(self.info.schedule))
    }

    /// Adds the next node; nodes beyond the announced number are ignored.
    pub fn push(&mut self, node: Node) {
        if self.nodes.len() < usize::from(self.info.nodes) {
            let _ = self.nodes.push(node);
        }
    }

    /// Adds the next step of the schedule; steps beyond the announced number are ignored.
    pub fn push_step(&mut self, step: BackwardStep) {
        if self.schedule.len() < usize::from(self.info.schedule) {
            let _ = self.schedule.push(step);
        }
    }

    /// Parameters that are trained.
    pub fn trained(&self) -> usize {
        self.info.params.saturating_sub(frozen(&self.nodes)) as usize
    }

    /// The checked Plan.
    pub fn plan(&self) -> Result<Plan<'_>, PlanError> {
        Plan::check(&self.info, &self.nodes, &self.schedule)
    }
}

/// A Plan that has been checked: every offset is in bounds.
#[derive(Copy, Clone, Debug)]
pub struct Plan<'a> {
    info: &'a PlanInfo,
    nodes: &'a [Node],
    schedule: &'a [BackwardStep],
    frozen: u32,
}

/// Parameters before the first one of a node with a gradient; 0 where there is no such node.
fn frozen(nodes: &[Node]) -> u32 {
    // Loops, because a chain of iterators takes 300 bytes of a board's stack.
    let mut first = None;
    for node in nodes.iter().filter(|node| node.output_grad.is_some()) {
        for part in node.op.parameters() {
            if let Some((at, _)) = part
                && first.is_none_or(|first| at < first)
            {
                first = Some(at);
            }
        }
    }
    first.unwrap_or(0)
}

impl<'a> Plan<'a> {
    /// Sizes and places of the Plan.
    pub fn info(&self) -> &'a PlanInfo {
        self.info
    }

    /// Parameters before those that are trained.
    pub fn frozen(&self) -> u32 {
        self.frozen
    }

    /// Number of trained parameters, which is the length of every segment but `stats`.
    pub fn trained(&self) -> usize {
        self.info.params.saturating_sub(self.frozen) as usize
    }

    /// All nodes, including the copies that the backward pass recomputes.
    pub fn nodes(&self) -> &'a [Node] {
        self.nodes
    }

    /// The backward pass as it was compiled; empty means the model in reverse.
    pub fn schedule(&self) -> &'a [BackwardStep] {
        self.schedule
    }

    /// The model, in order of execution.
    pub fn forward(&self) -> &'a [Node] {
        let forward = self.nodes.get(..usize::from(self.info.forward));
        debug_assert!(forward.is_some(), "`Plan::check` has counted the nodes");
        forward.unwrap_or_default()
    }

    /// The backward pass, in order of execution.
    pub fn backward(&self) -> impl Iterator<Item = (&'a Node, Pass)> + use<'a> {
        let nodes = self.nodes;
        let reverse = if self.schedule.is_empty() { self.forward() } else { &[] };
        let reverse = reverse.iter().rev().map(|node| (node, Pass::Backward));
        let explicit = self.schedule.iter();
        reverse.chain(explicit.filter_map(move |step| Some((nodes.get(usize::from(step.node))?, step.pass))))
    }

    /// Multiply-accumulates per sample of the forward pass.
    pub fn macs(&self) -> u64 {
        self.forward().iter().map(|node| node.op.macs()).sum()
    }
}
