//! The structure of a model: a directed acyclic graph of operations over values, without weights.
//!
//! Value 0 is the model's input and value `k` is the output of node `k - 1`, so nodes are in execution order by construction.
//! Shapes are per sample (no batch axis) and symbolic in the hidden axes ([`common::Dim`]): a slice of a model is the same
//! graph with narrower axes.

use std::ops::Range;

use common::{Layout, TensorShape, WidthMask};

mod axes;
mod build;
mod digest;
mod elementwise;
mod error;
mod labels;
mod layers;
mod metadata;
mod norms;
mod op;
mod param;
mod recurrent;
mod roll;
mod slice;
mod structure;
mod uncut;

pub use build::Builder;
pub use elementwise::Axes;
pub use error::{GraphError, SliceError};
pub use labels::{Classes, Labels};
pub use op::{Constant, Groups, Kernel, Op};
pub use param::{DimPart, Extent, FileLayout, Param};
pub use recurrent::RecurrentParams;
pub use uncut::{Reason, UncutAxis};

/// A value that flows between nodes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The model's input.
    pub const INPUT: Self = Self(0);

    /// The index as a number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A parameter tensor, by its place in [`Graph::params`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ParamId(pub u32);

impl ParamId {
    /// The index as a number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The structure of a model. Equality includes names; [`Graph::digest`] ignores them.
#[derive(Clone, PartialEq, Debug)]
pub struct Graph {
    name: String,
    input: Input,
    pub(crate) output: Output,
    nodes: Vec<Node>,
    params: Vec<Param>,
    /// Parallel to `params`, because a [`Layout`] borrows them as one slice.
    shapes: Vec<TensorShape>,
    /// Mean and variance of every batch normalisation, in model order.
    stats: Vec<f32>,
    /// Those of every node that has one per place of some axes, in model order.
    constants: Vec<f32>,
    full: WidthMask,
    uncut: Vec<UncutAxis>,
    /// Key and value, from the ONNX file.
    metadata: Vec<(String, String)>,
}

/// What the model reads.
#[derive(Clone, PartialEq, Debug)]
pub struct Input {
    /// As in the ONNX file.
    pub name: String,
    /// Per sample; never cut.
    pub shape: TensorShape,
}

/// What the model computes.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// As in the ONNX file.
    pub name: String,
    /// The logits: what the loss is computed from.
    pub value: ValueId,
    /// The operation after the logits in the ONNX model; training leaves it out, export restores it.
    pub tail: Option<Tail>,
    /// What the ONNX model computes from its probabilities; export restores it.
    pub labels: Option<Labels>,
}

/// An operation after the logits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Tail {
    /// Over the last axis.
    Softmax,
    /// Its logarithm.
    LogSoftmax,
    /// Of every output; the loss is then binary cross-entropy.
    Sigmoid,
    /// The probabilities `[1 - p, p]` of two classes, where `p` is the sigmoid of the only output.
    TwoClasses,
}

impl Tail {
    /// The ONNX operation.
    pub fn op_type(self) -> &'static str {
        match self {
            Self::Softmax => "Softmax",
            Self::LogSoftmax => "LogSoftmax",
            Self::Sigmoid | Self::TwoClasses => "Sigmoid",
        }
    }
}

/// One operation.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// As in the ONNX file.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// The values that it reads, in the order of the operation.
    pub inputs: Vec<ValueId>,
    /// Per sample.
    pub shape: TensorShape,
}

impl Node {
    /// Size of the first axis: the channels of the output of a convolution or normalisation.
    fn channels(&self, mask: &WidthMask) -> usize {
        self.shape.dims[0].size(mask)
    }
}

impl Graph {
    /// As in the ONNX file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the model reads.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// What the model computes.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// In execution order; node `k` computes value `k + 1`.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// In the order of the flat parameter vector.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Shapes of [`Graph::params`].
    pub fn param_shapes(&self) -> &[TensorShape] {
        &self.shapes
    }

    /// Widths of all hidden axes.
    pub fn full(&self) -> &WidthMask {
        &self.full
    }

    /// Hidden axes that no tier cuts, in model order.
    pub fn uncut_axes(&self) -> &[UncutAxis] {
        &self.uncut
    }

    /// Shapes of the parameters and the hidden axes.
    pub fn layout(&self) -> Layout<'_> {
        Layout { full: &self.full, tensors: &self.shapes }
    }

    /// Per-sample shape of a value.
    pub fn shape(&self, value: ValueId) -> &TensorShape {
        match value.index().checked_sub(1) {
            Some(node) => &self.nodes[node].shape,
            None => &self.input.shape,
        }
    }

    /// Numbers per input sample.
    pub fn inputs(&self) -> usize {
        self.input.shape.len(&self.full)
    }

    /// Logits per sample.
    pub fn outputs(&self) -> usize {
        self.shape(self.output.value).len(&self.full)
    }

    /// The range of each layer's parameters in the flat vector, in model order.
    pub fn layers(&self) -> Vec<Range<usize>> {
        self.layers_of(&self.full)
    }

    /// As [`Graph::layers`], for the packed parameters of a slice.
    pub fn layers_of(&self, mask: &WidthMask) -> Vec<Range<usize>> {
        let (mut at, mut seen) = (0, 0);
        let mut layers = Vec::new();
        for node in &self.nodes {
            let start = at;
            // Parameters are numbered in the order of first use; a shared one belongs to its first layer.
            for id in node.op.params().filter(|id| id.index() >= seen) {
                at += self.param_len(id, mask);
            }
            seen = node.op.params().map(|id| id.index() + 1).fold(seen, usize::max);
            if at > start {
                layers.push(start..at);
            }
        }
        layers
    }

    /// Where each parameter tensor starts in the packed vector of a slice.
    pub fn offsets(&self, mask: &WidthMask) -> Vec<usize> {
        let lens = self.shapes.iter().map(|shape| shape.len(mask));
        lens.scan(0, |at, len| Some(std::mem::replace(at, *at + len))).collect()
    }

    /// Mean and variance of every batch normalisation, in model order: those of the file, or 0 and 1.
    pub fn stats(&self) -> &[f32] {
        &self.stats
    }

    /// Entries of the table, where the model starts with an embedding. Its inputs are whole numbers below this.
    pub fn tokens(&self) -> Option<usize> {
        self.nodes.iter().find_map(|node| match node.op {
            Op::Embed { table } => {
                self.shapes.get(table.index())?.dims.first().map(|dim| dim.size(&self.full))
            }
            _ => None,
        })
    }

    fn param_len(&self, id: ParamId, mask: &WidthMask) -> usize {
        self.shapes[id.index()].len(mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mlp() -> Graph {
        let mut builder = Builder::new("mlp", "x", &[2, 3]).unwrap();
        let flat = builder.flatten("flat", ValueId::INPUT);
        let (weight, bias) = (Param::plain("a.weight"), Some(Param::plain("a.bias")));
        let hidden = builder.dense("a", flat, 6, 8, weight, bias).unwrap();
        let active = builder.relu("relu", hidden);
        let logits = builder.dense("b", active, 8, 3, Param::plain("b.weight"), None).unwrap();
        builder.finish("y", logits, None).unwrap()
    }

    #[test]
    fn ranges_and_sizes() {
        let graph = mlp();
        assert_eq!(graph.layers(), [0..56, 56..80]);
        assert_eq!(graph.offsets(graph.full()), [0, 48, 56]);
        let half = graph.full().at_rate(0.5).unwrap();
        assert_eq!(graph.layers_of(&half), [0..28, 28..40]);
        assert_eq!((graph.inputs(), graph.outputs(), graph.layout().len()), (6, 3, 80));
    }

    #[test]
    fn a_slice_is_the_same_graph_with_narrower_axes() {
        let graph = mlp();
        let half = graph.full().at_rate(0.5).unwrap();
        let slice = graph.slice(&half).unwrap();
        assert_eq!(slice.layout().len(), graph.layout().slice_len(&half));
        assert_eq!(slice.digest(slice.full()), graph.digest(&half));
        assert_ne!(graph.digest(graph.full()), graph.digest(&half));
        let parameters: Vec<f32> = (0..80).map(|i| i as f32).collect();
        let packed = graph.gather(&half, &parameters).unwrap();
        assert_eq!(packed[..24], parameters[..24]);
        assert_eq!(packed[24..28], parameters[48..52]);
        assert_eq!(packed[28..], [56., 57., 58., 59., 64., 65., 66., 67., 72., 73., 74., 75.]);
        assert!(slice.slice(graph.full()).is_err(), "a slice cannot be widened");
    }

    #[test]
    fn names_do_not_change_the_digest() {
        let graph = mlp();
        let mut renamed = graph.clone();
        renamed.nodes[1].name = "other".into();
        renamed.input.name = "other".into();
        assert_eq!(graph.digest(graph.full()), renamed.digest(graph.full()));
    }

    /// Both ends compare digests, so all versions of the program must compute the same one.
    #[test]
    fn the_digest_does_not_change_between_versions() {
        let graph = mlp();
        assert_eq!(graph.digest(graph.full()), 0x51a2f062);
    }
}
