//! A sliced model compiled for execution: a list of nodes with offsets into one arena of `f32`.
//!
//! The compiler in `models` writes a Plan, the trainer in `edge-client` executes it, and
//! [`Plan::check`] stands between them: after it, no node reaches outside the arena or into
//! parameters, whatever the bytes came from.
//!
//! ```text
//! arena   0         P                                          workspace                arena
//!         | weights | anchor guide grads residual moment1 moment2 personal stats | buffers by lifetime |
//! ```
//! `weights` are trained in place; the segments that follow exist where [`Segments`] says so, in this
//! order. Everything after is placed by lifetime. An inference Plan has weights, statistics and
//! activations only.
//!
//! A Plan may train the last layers only. Nodes without a gradient are then a frozen prefix, and the segments are
//! as long as what is trained ([`Plan::trained`]): they begin with the first parameter of a node that has one.
//!
//! # Execution
//! Forward: nodes `0..forward` in order. Loss: the gradient of the loss by the logits is written to
//! the last forward node's `output_grad`, which may be the logits' own place. Backward: the schedule;
//! an empty one means all forward nodes in reverse. A schedule names nodes, and nodes from `forward`
//! on are copies of earlier ones whose forward pass is run again in the middle of the backward pass, where
//! an activation was given up to save memory.

use heapless::Vec;
use serde::{Deserialize, Serialize};

mod check;
mod op;
#[cfg(test)]
mod tests;

pub use check::PlanError;
pub use op::{Activation, Conv, Gru, Norm, Op, Pool, PoolKind, Window};

/// Nodes that a device stores unless its firmware says otherwise.
pub const MAX_NODES: usize = 64;

/// Offsets and lengths are in `f32` elements, not bytes.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlanInfo {
    /// Of the sliced graph; two ends with the same digest execute the same model.
    pub digest: u32,
    /// Numbers per input sample.
    pub inputs: u32,
    /// Logits (or predicted numbers) per sample.
    pub outputs: u32,
    /// How outputs become a loss.
    pub loss: Loss,
    /// Samples per pass that the arena has room for.
    pub batch: u16,
    /// Parameters of the slice.
    pub params: u32,
    /// Numbers of normalisation statistics; see [`Op::BatchNorm`].
    pub stats: u32,
    pub segments: Segments,
    pub input: u32,
    pub logits: u32,
    /// Length of the whole arena.
    pub arena: u32,
    /// Number of nodes that follow; the first `forward` of them are the model.
    pub nodes: u16,
    pub forward: u16,
    /// Number of steps in the backward schedule; 0 = the forward nodes in reverse.
    pub schedule: u16,
}

/// Where each segment starts; all are as long as what is trained, but for the last. Segments that exist follow each other in this order.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Segments {
    /// Received model, later the update. Absent in an inference Plan.
    pub anchor: Option<u32>,
    /// A second vector on its way: one that the aggregator has sent along, such as a fair gradient, or the
    /// first step that is sent back behind the update, which is why it follows the anchor.
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
    /// The segments as long as what is trained, in order.
    pub fn of_params(&self) -> [Option<u32>; 7] {
        [self.anchor, self.guide, self.grads, self.residual, self.moment1, self.moment2, self.personal]
    }
}

/// How outputs and targets become a loss. Always a mean over the targets of a batch.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Loss {
    /// Softmax cross-entropy from logits. One class label for every `classes` outputs, so that a
    /// sequence model has one per token.
    Softmax { classes: u32 },
    /// Binary cross-entropy from logits; the target of each output is 0 or 1 (or between).
    Sigmoid,
    /// Mean squared error.
    Squared,
}

impl PlanInfo {
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

    /// Where the part after all segments of `trained` numbers begins; `None` if a segment is out of place.
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
    pub op: Op,
    pub input: Operand,
    /// The second operand of [`Op::Add`].
    pub second: Option<Operand>,
    pub output: u32,
    /// Gradient of the loss by the output; absent in an inference Plan and where nobody needs it.
    pub output_grad: Option<u32>,
    /// What forward leaves for backward: [`Op::keep`] numbers per sample. In inference it is needed
    /// during the node only.
    pub keep: Option<u32>,
    /// Room that backward needs while it runs: [`Op::scratch`] numbers per sample.
    pub scratch: Option<u32>,
}

/// A value that a node reads, and where its gradient goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operand {
    pub at: u32,
    pub grad: Option<Grad>,
}

/// Where a node puts the gradient of what it has read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grad {
    pub at: u32,
    /// Another reader of the same value has written there before: add instead of replacing.
    pub add: bool,
}

/// One step of the backward pass.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BackwardStep {
    pub node: u16,
    pub pass: Pass,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Pass {
    /// Compute an activation again.
    Forward,
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
    pub fn new(info: PlanInfo) -> Result<Self, PlanError> {
        let nodes = usize::from(info.nodes.max(info.schedule));
        if nodes > NODES {
            return Err(PlanError::TooManyNodes { nodes, room: NODES });
        }
        Ok(Self { info, nodes: Vec::new(), schedule: Vec::new() })
    }

    pub fn info(&self) -> &PlanInfo {
        &self.info
    }

    /// How many nodes and steps have arrived.
    pub fn received(&self) -> (usize, usize) {
        (self.nodes.len(), self.schedule.len())
    }

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
    pub fn info(&self) -> &'a PlanInfo {
        self.info
    }

    /// Parameters before those that are trained.
    pub fn frozen(&self) -> u32 {
        self.frozen
    }

    /// Number of parameters that are trained, and of every segment.
    pub fn trained(&self) -> usize {
        self.info.params.saturating_sub(self.frozen) as usize
    }

    /// All nodes, with the copies that the backward pass computes again.
    pub fn nodes(&self) -> &'a [Node] {
        self.nodes
    }

    /// The backward pass as it was compiled; empty: the model in reverse.
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
