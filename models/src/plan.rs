//! Compiles a Graph and a WidthMask to a Plan: an op list over one arena, known to the byte.
//!
//! Time runs in steps. With `n` nodes, node `i` computes forward in step `i`, the loss and its gradient
//! in step `n`, and node `i` computes backward in step `2n - i`. Every buffer is live in a closed range
//! of steps ([`arena`]); buffers that are never live together may share memory:
//!
//! | buffer | from | to |
//! |---|---|---|
//! | value, inference | its producer | its consumer |
//! | value, training | its producer | backward of its consumer (dense needs its input, relu its output) |
//! | logits, and their gradient in the same place | the last node | backward of the last node |
//! | gradient of a value | backward of its consumer | backward of its producer |
//!
//! Relu works in place on values and gradients, and Flatten is no node at all.

use common::{
    TensorShape, WidthMask,
    mask::MaskError,
    plan::{Activation, Grad, Loss, Node, Op, Plan, PlanError, PlanInfo, Port, Segments},
};

use crate::graph::{self, Graph, ParamId, ValueId};

pub mod arena;
use arena::{Buffer, Buffers};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Weights and activations only.
    Infer,
    /// Also the received model, and gradients of parameters and activations.
    Train,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PlanOptions {
    /// Samples per batch.
    pub batch: u16,
    pub mode: Mode,
    /// Room for what a lossy codec has not sent yet (training only).
    pub error_feedback: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct CompiledPlan {
    pub info: PlanInfo,
    pub nodes: Vec<Node>,
}

impl CompiledPlan {
    pub fn plan(&self) -> Result<Plan<'_>, PlanError> {
        Plan::check(&self.info, &self.nodes, &[])
    }
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    #[error(transparent)]
    Mask(#[from] MaskError),
    #[error("a batch has at least one sample")]
    EmptyBatch,
    #[error("the plan needs {0} numbers of memory, more than 32 bits address; take a smaller tier or batch")]
    TooLarge(u64),
    #[error(
        "'{0}' reads a value that another node reads, too, and plans have no operation that adds their gradients"
    )]
    FanOut(String),
    #[error("the compiled plan is refused: {0}")]
    Refused(#[from] PlanError),
}

/// The Plan of one tier.
pub fn compile(graph: &Graph, mask: &WidthMask, options: &PlanOptions) -> Result<CompiledPlan, CompileError> {
    graph.check_mask(mask)?;
    if options.batch == 0 {
        return Err(CompileError::EmptyBatch);
    }
    let steps = steps(graph)?;
    let (buffers, places) = live_ranges(graph, mask, options, &steps);
    let params = graph.layout().slice_len(mask) as u64;
    let segments = match (options.mode, options.error_feedback) {
        (Mode::Infer, _) => 1,
        (Mode::Train, false) => 3,
        (Mode::Train, true) => 4,
    };
    let placed = buffers.place();
    let workspace = params * segments;
    let arena = workspace.saturating_add(placed.len);
    let addressable = |len: u64| u32::try_from(len).map_err(|_| CompileError::TooLarge(len));
    let arena = addressable(arena)?;
    // Every other length and offset is below that of the arena, which fits.
    let at = |buffer: Buffer| (workspace + placed.offset(buffer)) as u32;
    let segment = |number: u64| (number < segments).then_some((params * number) as u32);
    let offsets: Vec<u32> = graph.offsets(mask).into_iter().map(|offset| offset as u32).collect();
    let nodes: Vec<Node> = steps
        .iter()
        .map(|step| Node {
            op: step.op(graph, mask, &offsets),
            input: Port {
                at: at(places.value(step.input)),
                grad: places.grad(step.input).map(|buffer| Grad { at: at(buffer), add: false }),
            },
            second: None,
            output: at(places.value(step.output)),
            output_grad: places.grad(step.output).map(at),
            keep: None,
            scratch: None,
        })
        .collect();
    let count = u16::try_from(nodes.len())
        .map_err(|_| PlanError::TooManyNodes { nodes: nodes.len(), room: u16::MAX.into() })?;
    let outputs = len(graph.shape(graph.output().value), mask) as u32;
    let compiled = CompiledPlan {
        info: PlanInfo {
            digest: graph.digest(mask),
            inputs: len(&graph.input().shape, mask) as u32,
            outputs,
            loss: Loss::Softmax { classes: outputs },
            batch: options.batch,
            params: params as u32,
            stats: 0,
            segments: Segments {
                anchor: segment(1),
                grads: segment(2),
                residual: segment(3),
                ..Segments::default()
            },
            input: at(places.value(ValueId::INPUT)),
            logits: at(places.value(resolve(graph, graph.output().value))),
            arena,
            nodes: count,
            forward: count,
            schedule: 0,
        },
        nodes,
    };
    compiled.plan()?;
    Ok(compiled)
}

/// A node that computes something, between values that own memory.
struct Step<'a> {
    node: &'a graph::Node,
    input: ValueId,
    output: ValueId,
}

impl Step<'_> {
    fn op(&self, graph: &Graph, mask: &WidthMask, offsets: &[u32]) -> Op {
        let offset = |param: ParamId| offsets.get(param.index()).copied().unwrap_or(u32::MAX);
        let inputs = len(graph.shape(self.input), mask) as u32;
        match self.node.op {
            graph::Op::Dense { weight, bias } => Op::Dense {
                rows: 1,
                inputs,
                outputs: len(&self.node.shape, mask) as u32,
                weight: offset(weight),
                bias: bias.map(offset),
            },
            graph::Op::Relu | graph::Op::Flatten => Op::Activate { kind: Activation::Relu, len: inputs },
        }
    }

    fn trains(&self) -> bool {
        self.node.op.params().next().is_some()
    }
}

/// The nodes without those that only rename a value.
fn steps(graph: &Graph) -> Result<Vec<Step<'_>>, CompileError> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        if node.op == graph::Op::Flatten {
            continue;
        }
        let input = node.inputs.first().map_or(ValueId::INPUT, |&value| resolve(graph, value));
        if steps.iter().any(|step| step.input == input) {
            return Err(CompileError::FanOut(node.name.clone()));
        }
        steps.push(Step { node, input, output: ValueId(index as u32 + 1) });
    }
    Ok(steps)
}

/// The value whose memory this value is: a flattened value has the numbers of the original.
fn resolve(graph: &Graph, value: ValueId) -> ValueId {
    let producer = value.index().checked_sub(1).and_then(|node| graph.nodes().get(node));
    match producer {
        Some(node) if node.op == graph::Op::Flatten => {
            node.inputs.first().map_or(value, |&input| resolve(graph, input))
        }
        _ => value,
    }
}

/// Which buffer holds a value and which its gradient, by [`ValueId`].
struct Places {
    values: Vec<Buffer>,
    grads: Vec<Option<Buffer>>,
}

impl Places {
    fn value(&self, value: ValueId) -> Buffer {
        self.values.get(value.index()).copied().unwrap_or_default()
    }

    fn grad(&self, value: ValueId) -> Option<Buffer> {
        self.grads.get(value.index()).copied().flatten()
    }
}

fn live_ranges(
    graph: &Graph,
    mask: &WidthMask,
    options: &PlanOptions,
    steps: &[Step<'_>],
) -> (Buffers, Places) {
    let train = options.mode == Mode::Train;
    let count = steps.len();
    let size = |value| len(graph.shape(value), mask) * u64::from(options.batch);
    let backward = |step: usize| 2 * count - step;
    let mut buffers = Buffers::default();
    let input = buffers.add(size(ValueId::INPUT), 0, 0);
    let slots = graph.nodes().len() + 1;
    let mut places = Places { values: vec![input; slots], grads: vec![None; slots] };

    for (index, step) in steps.iter().enumerate() {
        let from = places.value(step.input);
        buffers.extend(from, index);
        let in_place = matches!(step.node.op, graph::Op::Relu);
        let to = if in_place { from } else { buffers.add(size(step.output), index, index) };
        places.values[step.output.index()] = to;
        if train {
            // A dense layer computes the gradient of its weights from its input, a relu works from
            // its output, which is the same buffer.
            buffers.extend(from, backward(index));
        }
    }
    let Some((last, logits)) = steps.last().map(|step| (step, places.value(step.output))) else {
        return (buffers, places);
    };
    buffers.extend(logits, count);
    if !train {
        return (buffers, places);
    }

    // Gradients stop where nothing upstream has parameters.
    let first_trained = steps.iter().position(Step::trains).unwrap_or(count);
    for (index, step) in steps.iter().enumerate().skip(first_trained).rev() {
        let output_grad = places.grad(step.output).unwrap_or_else(|| match step.node.op {
            // The loss turns logits into their gradient; a relu would still need them.
            graph::Op::Dense { .. } => logits,
            graph::Op::Relu | graph::Op::Flatten => buffers.add(size(last.output), count, count),
        });
        buffers.extend(output_grad, backward(index));
        places.grads[step.output.index()] = Some(output_grad);
        if index > first_trained {
            let in_place = matches!(step.node.op, graph::Op::Relu);
            let input_grad = if in_place {
                output_grad
            } else {
                buffers.add(size(step.input), backward(index), backward(index))
            };
            places.grads[step.input.index()] = Some(input_grad);
        }
    }
    (buffers, places)
}

/// Numbers per sample.
fn len(shape: &TensorShape, mask: &WidthMask) -> u64 {
    shape.len(mask) as u64
}

#[cfg(test)]
mod tests;
