//! A sliced model compiled for execution: a list of nodes with offsets into one arena of `f32`.
//!
//! The compiler in `models` writes a Plan, the trainer in `edge-client` executes it, and
//! [`Plan::check`] stands between them: after it, no node reaches outside the arena or into
//! parameters, whatever the bytes came from.
//!
//! ```text
//! arena   0        P        2P       3P        [4P]                     arena
//!         | weights | anchor | grads | residual | input, activations, gradients |
//! ```
//! `weights` are trained in place; `anchor` holds the received model and later the update; `grads`
//! and `residual` (error feedback of a lossy codec) exist where the Plan says so. Everything after
//! is placed by lifetime. An inference Plan has weights and activations only.

use heapless::Vec;
use serde::{Deserialize, Serialize};

/// Nodes that a device stores unless its firmware says otherwise.
pub const MAX_NODES: usize = 64;

/// Offsets and lengths are in `f32` elements, not bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlanInfo {
    /// Of the sliced graph; two ends with the same digest execute the same model.
    pub digest: u32,
    /// Numbers per input sample.
    pub inputs: u32,
    /// Logits per sample.
    pub outputs: u32,
    /// Samples per batch that the arena has room for.
    pub batch: u16,
    /// Parameters of the slice.
    pub params: u32,
    /// Received model, later the update. Absent in an inference Plan.
    pub anchor: Option<u32>,
    pub grads: Option<u32>,
    /// What a lossy codec has not sent yet.
    pub residual: Option<u32>,
    pub input: u32,
    pub logits: u32,
    /// Length of the whole arena.
    pub arena: u32,
    /// Number of nodes that follow.
    pub nodes: u16,
}

impl PlanInfo {
    /// RAM the arena takes.
    pub fn arena_bytes(&self) -> u64 {
        u64::from(self.arena) * 4
    }

    /// Flash a device needs to keep its slice over a reset.
    pub fn flash_bytes(&self) -> u64 {
        u64::from(self.params) * 4
    }
}

/// One operation of a Plan. Activations are `[batch][...]`, row-major.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    pub op: Op,
    pub input: u32,
    pub output: u32,
    /// Gradient of the loss by the input; absent where nobody needs it (first layer, inference).
    pub input_grad: Option<u32>,
    /// Gradient of the loss by the output; absent in an inference Plan.
    pub output_grad: Option<u32>,
}

/// What a node computes. Parameter offsets are relative to the start of the slice.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// `y = x W^T + b` with `W[outputs][inputs]`.
    Dense { inputs: u32, outputs: u32, weight: u32, bias: Option<u32> },
    /// `y = max(x, 0)` on `len` numbers per sample; may work in place.
    Relu { len: u32 },
}

impl Op {
    /// Numbers per sample read and written.
    pub fn sizes(&self) -> (u32, u32) {
        match *self {
            Self::Dense { inputs, outputs, .. } => (inputs, outputs),
            Self::Relu { len } => (len, len),
        }
    }

    /// Multiply-accumulates per sample of the forward pass.
    pub fn macs(&self) -> u64 {
        match *self {
            Self::Dense { inputs, outputs, .. } => u64::from(inputs) * u64::from(outputs),
            Self::Relu { .. } => 0,
        }
    }

    /// Parameter stretches as `(offset, length)`.
    fn parameters(&self) -> [Option<(u32, u64)>; 2] {
        match *self {
            Self::Dense { inputs, outputs, weight, bias } => [
                Some((weight, u64::from(inputs) * u64::from(outputs))),
                bias.map(|bias| (bias, u64::from(outputs))),
            ],
            Self::Relu { .. } => [None, None],
        }
    }

    fn may_work_in_place(&self) -> bool {
        matches!(self, Self::Relu { .. })
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("the plan has {nodes} nodes, this device stores {room}")]
    TooManyNodes { nodes: usize, room: usize },
    #[error("the plan announces {announced} nodes, {got} arrived")]
    Incomplete { announced: usize, got: usize },
    #[error("node {0} reaches outside the arena or into parameters")]
    OutOfBounds(usize),
    #[error("node {0} would overwrite what it reads")]
    Overlap(usize),
    #[error("the plan is empty or its sizes contradict each other")]
    Inconsistent,
}

/// A Plan that owns its nodes without a heap.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanStore<const NODES: usize = MAX_NODES> {
    info: PlanInfo,
    nodes: Vec<Node, NODES>,
}

impl<const NODES: usize> PlanStore<NODES> {
    pub fn new(info: PlanInfo) -> Result<Self, PlanError> {
        let nodes = usize::from(info.nodes);
        if nodes > NODES {
            return Err(PlanError::TooManyNodes { nodes, room: NODES });
        }
        Ok(Self { info, nodes: Vec::new() })
    }

    pub fn info(&self) -> &PlanInfo {
        &self.info
    }

    /// How many nodes have arrived; the next one has this index.
    pub fn received(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_complete(&self) -> bool {
        self.nodes.len() == usize::from(self.info.nodes)
    }

    /// Adds the next node; nodes beyond the announced number are ignored.
    pub fn push(&mut self, node: Node) {
        if !self.is_complete() {
            let _ = self.nodes.push(node);
        }
    }

    /// The checked Plan.
    pub fn plan(&self) -> Result<Plan<'_>, PlanError> {
        Plan::check(&self.info, &self.nodes)
    }
}

/// A Plan that has been checked: every offset is in bounds.
#[derive(Copy, Clone, Debug)]
pub struct Plan<'a> {
    pub info: &'a PlanInfo,
    pub nodes: &'a [Node],
}

impl<'a> Plan<'a> {
    pub fn check(info: &'a PlanInfo, nodes: &'a [Node]) -> Result<Self, PlanError> {
        if nodes.len() != usize::from(info.nodes) {
            return Err(PlanError::Incomplete { announced: info.nodes.into(), got: nodes.len() });
        }
        let batch = u64::from(info.batch);
        let workspace = info.workspace().ok_or(PlanError::Inconsistent)?;
        let fits = |at: u32, len: u64| u64::from(at) >= workspace && u64::from(at) + len <= info.arena.into();
        let first = nodes.first().ok_or(PlanError::Inconsistent)?;
        let last = nodes.last().ok_or(PlanError::Inconsistent)?;
        if info.batch == 0
            || info.outputs == 0
            || first.input != info.input
            || first.op.sizes().0 != info.inputs
            || last.output != info.logits
            || last.op.sizes().1 != info.outputs
        {
            return Err(PlanError::Inconsistent);
        }
        for (index, node) in nodes.iter().enumerate() {
            let (reads, writes) = node.op.sizes();
            let (reads, writes) = (u64::from(reads) * batch, u64::from(writes) * batch);
            let optional = |at: Option<u32>, len| at.is_none_or(|at| fits(at, len));
            let parameters = node.op.parameters();
            let held = |&(at, len): &(u32, u64)| u64::from(at) + len <= info.params.into();
            if !fits(node.input, reads)
                || !fits(node.output, writes)
                || !optional(node.input_grad, reads)
                || !optional(node.output_grad, writes)
                || !parameters.iter().flatten().all(held)
            {
                return Err(PlanError::OutOfBounds(index));
            }
            let in_place = node.op.may_work_in_place();
            let clash = |a: u32, a_len, b: u32, b_len| overlap(a, a_len, b, b_len) && !(in_place && a == b);
            let gradients_clash = match (node.input_grad, node.output_grad) {
                (Some(input), Some(output)) => {
                    clash(input, reads, output, writes) || overlap(input, reads, node.input, reads)
                }
                _ => false,
            };
            if clash(node.input, reads, node.output, writes) || gradients_clash {
                return Err(PlanError::Overlap(index));
            }
        }
        Ok(Self { info, nodes })
    }

    /// Multiply-accumulates per sample of the forward pass.
    pub fn macs(&self) -> u64 {
        self.nodes.iter().map(|node| node.op.macs()).sum()
    }
}

impl PlanInfo {
    /// Where the part after the parameter segments begins; `None` if a segment is out of place.
    fn workspace(&self) -> Option<u64> {
        let mut end = u64::from(self.params);
        for at in [self.anchor, self.grads, self.residual].into_iter().flatten() {
            if u64::from(at) != end {
                return None;
            }
            end += u64::from(self.params);
        }
        Some(end)
    }
}

fn overlap(a: u32, a_len: u64, b: u32, b_len: u64) -> bool {
    let (a, b) = (u64::from(a), u64::from(b));
    a < b + b_len && b < a + a_len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> (PlanInfo, [Node; 2]) {
        let info = PlanInfo {
            digest: 1,
            inputs: 3,
            outputs: 2,
            batch: 4,
            params: 8,
            anchor: Some(8),
            grads: Some(16),
            residual: None,
            input: 24,
            logits: 36,
            arena: 52,
            nodes: 2,
        };
        let dense = Op::Dense { inputs: 3, outputs: 2, weight: 0, bias: Some(6) };
        let node = Node { op: dense, input: 24, output: 36, input_grad: None, output_grad: Some(44) };
        (info, [node, Node { op: Op::Relu { len: 2 }, input: 36, input_grad: Some(44), ..node }])
    }

    #[test]
    fn a_good_plan_passes() {
        let (info, nodes) = plan();
        assert_eq!(Plan::check(&info, &nodes).unwrap().macs(), 6);
        assert_eq!(info.arena_bytes(), 208);
    }

    #[test]
    fn every_way_out_of_the_arena_is_refused() {
        let (info, nodes) = plan();
        let broken = |change: &dyn Fn(&mut PlanInfo, &mut [Node; 2])| {
            let (mut info, mut nodes) = (info, nodes);
            change(&mut info, &mut nodes);
            Plan::check(&info, &nodes).unwrap_err()
        };
        assert_eq!(broken(&|i, _| i.arena = 51), PlanError::OutOfBounds(0));
        assert_eq!(broken(&|i, _| i.batch = u16::MAX), PlanError::OutOfBounds(0));
        assert_eq!(broken(&|i, _| i.params = 7), PlanError::Inconsistent);
        assert_eq!(broken(&|_, n| n[1].output_grad = Some(u32::MAX)), PlanError::OutOfBounds(1));
        assert_eq!(broken(&|_, n| n[0].input_grad = Some(3)), PlanError::OutOfBounds(0));
        assert_eq!(broken(&|_, n| n[0].input_grad = Some(24)), PlanError::Overlap(0));
        assert_eq!(broken(&|_, n| n[1].input = 37), PlanError::Overlap(1));
        let huge = Op::Dense { inputs: 3, outputs: u32::MAX, weight: u32::MAX, bias: None };
        assert_eq!(broken(&|_, n| n[0].op = huge), PlanError::OutOfBounds(0));
        assert_eq!(broken(&|i, _| i.nodes = 3), PlanError::Incomplete { announced: 3, got: 2 });
        assert_eq!(broken(&|i, _| i.batch = 0), PlanError::Inconsistent);
    }

    #[test]
    fn a_store_refuses_more_nodes_than_it_has_room_for() {
        let (info, _) = plan();
        let refused = PlanStore::<1>::new(info).unwrap_err();
        assert_eq!(refused, PlanError::TooManyNodes { nodes: 2, room: 1 });
    }
}
