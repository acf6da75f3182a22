//! The structure of a model: a directed acyclic graph of operations over values, without weights.
//!
//! Value 0 is the model's input and value `k` is what node `k - 1` gives, so nodes are in execution
//! order by construction. Shapes are per sample (no batch axis) and symbolic in the hidden axes
//! ([`common::Dim`]): a slice of a model is the same graph with narrower axes.

use std::ops::Range;

use common::{Dim, Layout, TensorShape, WidthMask, mask::MaskError, slice, wire::Crc32};

mod axes;
mod build;
mod layers;
mod norms;
mod op;
mod param;
mod whole;

pub use build::Builder;
pub use op::{Groups, Kernel, Op};
pub use param::{Param, Part, Stored, Which};
pub use whole::{Reason, Whole};

/// A value that flows between nodes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The model's input.
    pub const INPUT: Self = Self(0);

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A parameter tensor, by its place in [`Graph::params`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ParamId(pub u32);

impl ParamId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The structure of a model. Equal graphs have equal names, too; [`Graph::digest`] ignores names.
#[derive(Clone, PartialEq, Debug)]
pub struct Graph {
    name: String,
    input: Input,
    output: Output,
    nodes: Vec<Node>,
    params: Vec<Param>,
    /// Parallel to `params`, because a [`Layout`] borrows them as one slice.
    shapes: Vec<TensorShape>,
    /// Mean and variance of every batch normalisation, in model order.
    stats: Vec<f32>,
    full: WidthMask,
    whole: Vec<Whole>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Input {
    pub name: String,
    /// Per sample; never cut.
    pub shape: TensorShape,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    pub name: String,
    /// The logits: what the loss is computed from.
    pub value: ValueId,
    /// What the ONNX model does with the logits; training leaves it out, export puts it back.
    pub tail: Option<Tail>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Tail {
    Softmax,
    LogSoftmax,
    /// Of every output; the loss is then binary cross-entropy.
    Sigmoid,
}

impl Tail {
    /// The ONNX operation.
    pub fn op_type(self) -> &'static str {
        match self {
            Self::Softmax => "Softmax",
            Self::LogSoftmax => "LogSoftmax",
            Self::Sigmoid => "Sigmoid",
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub name: String,
    pub op: Op,
    pub inputs: Vec<ValueId>,
    /// Per sample.
    pub shape: TensorShape,
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    #[error("the input of the model has {0} dimensions per sample; at most 4 are supported")]
    Rank(usize),
    #[error("a dimension of the input is 0 or above 2^31")]
    InputSize,
    #[error(
        "'{node}' takes {expected} numbers per sample, but its input has shape {got}; put a Flatten before it"
    )]
    DenseInput { node: String, expected: usize, got: String },
    #[error("'{0}' has no outputs, or more than 2^31")]
    DenseOutput(String),
    #[error("the model has {0} parameters; at most 2^31 are supported")]
    TooLarge(u64),
    #[error("the model has no parameters on the way from input to output, so there is nothing to train")]
    NothingToTrain,
    #[error("two layers use parameter '{0}' in different ways; they can not share it")]
    Shared(String),
    #[error("'{node}' {problem}")]
    Layer { node: String, problem: String },
    #[error(transparent)]
    Mask(#[from] MaskError),
}

/// Why a tier can not be cut out of a Graph.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SliceError {
    #[error(transparent)]
    Mask(#[from] MaskError),
    #[error(
        "'{node}' normalises {groups} groups of channels, but the tier keeps {width} channels, which do not divide; give the tier explicit widths"
    )]
    Groups { node: String, groups: u32, width: u32 },
    #[error(
        "{0}; give the tier explicit widths of the other axes, or let such axes stay whole (keep_whole = true, or --keep-whole)"
    )]
    Whole(Whole),
    #[error("no hidden axis can be cut, so a tier of rate {rate} would be the whole model; use rate 1{}", because(.why))]
    Nothing { rate: f64, why: Option<Whole> },
}

fn because(why: &Option<Whole>) -> String {
    why.as_ref().map_or_else(String::new, |whole| format!(" ({whole})"))
}

impl Graph {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn input(&self) -> &Input {
        &self.input
    }

    pub fn output(&self) -> &Output {
        &self.output
    }

    /// In execution order; node `k` gives value `k + 1`.
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
    pub fn whole(&self) -> &[Whole] {
        &self.whole
    }

    /// The widths of a tier that keeps this share of every hidden axis. Refused where an axis contradicts that,
    /// unless it may stay whole, and where nothing would be cut.
    pub fn mask_at(&self, rate: f64, keep_whole: bool) -> Result<WidthMask, SliceError> {
        let mask = self.full.at_rate(rate)?;
        if rate < 1.0 {
            if mask == self.full {
                let why = self.whole.iter().find(|whole| whole.reason != Reason::Output).cloned();
                return Err(SliceError::Nothing { rate, why });
            }
            let contradicts = |whole: &&Whole| !whole.reason.is_by_design() && whole.width > 1;
            if let Some(whole) = self.whole.iter().find(contradicts).filter(|_| !keep_whole) {
                return Err(SliceError::Whole(whole.clone()));
            }
        }
        Ok(mask)
    }

    pub fn layout(&self) -> Layout<'_> {
        Layout { full: &self.full, tensors: &self.shapes }
    }

    /// Per-sample shape of a value.
    pub fn shape(&self, value: ValueId) -> &TensorShape {
        match value.index().checked_sub(1).and_then(|node| self.nodes.get(node)) {
            Some(node) => &node.shape,
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

    /// The stretch of the flat vector that each layer's parameters take, in model order.
    pub fn layers(&self) -> Vec<Range<usize>> {
        self.layers_of(&self.full)
    }

    /// As [`Graph::layers`], for the packed parameters of a slice.
    pub fn layers_of(&self, mask: &WidthMask) -> Vec<Range<usize>> {
        let (mut at, mut seen) = (0, 0);
        let mut layers = Vec::new();
        for node in &self.nodes {
            let start = at;
            // Parameters are numbered in the order of first use; one that is shared belongs to it.
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

    /// Says what is wrong with the widths that a tier keeps, if anything.
    pub fn check_mask(&self, mask: &WidthMask) -> Result<(), SliceError> {
        self.full.at_widths(mask.widths())?;
        for node in &self.nodes {
            if let Op::GroupNorm { groups: Groups::Count(groups), .. } = node.op {
                let width = node.shape.dims.first().map_or(0, |dim| dim.size(mask)) as u32;
                if !width.is_multiple_of(groups) {
                    return Err(SliceError::Groups { node: node.name.clone(), groups, width });
                }
            }
        }
        Ok(())
    }

    /// The same model with narrower hidden axes.
    pub fn slice(&self, mask: &WidthMask) -> Result<Self, SliceError> {
        self.check_mask(mask)?;
        Ok(Self { full: mask.clone(), stats: self.gather_stats(mask), ..self.clone() })
    }

    /// Mean and variance of every batch normalisation, in model order: what the file had, or 0 and 1.
    pub fn stats(&self) -> &[f32] {
        &self.stats
    }

    /// [`Graph::stats`] of a slice.
    pub fn gather_stats(&self, mask: &WidthMask) -> Vec<f32> {
        let mut rest = self.stats.as_slice();
        let mut packed = Vec::new();
        for node in self.nodes.iter().filter(|node| matches!(node.op, Op::BatchNorm { .. })) {
            let channels = |mask| node.shape.dims.first().map_or(0, |dim| dim.size(mask));
            let (all, kept) = (channels(&self.full), channels(mask));
            for _ in 0..2 {
                let (these, others) = rest.split_at(all.min(rest.len()));
                packed.extend(these.iter().take(kept));
                rest = others;
            }
        }
        packed
    }

    /// Entries of the table that input numbers are looked up in, where the model starts with an
    /// embedding; its inputs are whole numbers below.
    pub fn tokens(&self) -> Option<usize> {
        self.nodes.iter().find_map(|node| match node.op {
            Op::Embed { table } => {
                self.shapes.get(table.index())?.dims.first().map(|dim| dim.size(&self.full))
            }
            _ => None,
        })
    }

    /// The packed parameters of a slice.
    pub fn gather(&self, mask: &WidthMask, parameters: &[f32]) -> Result<Vec<f32>, slice::WrongLength> {
        let mut packed = vec![0.0; self.layout().slice_len(mask)];
        slice::gather(self.layout(), mask, parameters, &mut packed)?;
        Ok(packed)
    }

    /// CRC-32 of structure and widths; names do not count. A slice of the graph has the digest that
    /// the whole graph gives for its mask.
    pub fn digest(&self, mask: &WidthMask) -> u32 {
        let mut digest = Digest(Crc32::default());
        digest.shape(&self.input.shape);
        for node in &self.nodes {
            node.op.words().into_iter().for_each(|word| digest.word(word));
            digest.words(node.inputs.iter().map(|value| value.0));
            digest.words(node.op.params().map(|param| param.0));
            digest.shape(&node.shape);
        }
        self.shapes.iter().for_each(|shape| digest.shape(shape));
        digest.word(self.output.value.0);
        digest.words(mask.widths().iter().copied());
        digest.0.finish()
    }

    fn param_len(&self, id: ParamId, mask: &WidthMask) -> usize {
        self.shapes.get(id.index()).map_or(0, |shape| shape.len(mask))
    }
}

struct Digest(Crc32);

impl Digest {
    fn word(&mut self, word: u32) {
        self.0.update(&word.to_le_bytes());
    }

    /// With the length, so that two lists in a row can not be mistaken for others.
    fn words(&mut self, words: impl Iterator<Item = u32>) {
        let words: Vec<u32> = words.collect();
        self.word(words.len() as u32);
        words.into_iter().for_each(|word| self.word(word));
    }

    fn shape(&mut self, shape: &TensorShape) {
        let axis = |dim: &Dim| dim.axis.map_or(u32::MAX, |axis| u32::from(axis.0));
        self.words(shape.dims.iter().flat_map(|dim| [dim.blocks, axis(dim), dim.inner]));
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
        assert!(slice.slice(graph.full()).is_err(), "a slice can not be widened");
    }

    #[test]
    fn names_do_not_change_the_digest() {
        let graph = mlp();
        let mut renamed = graph.clone();
        renamed.nodes[1].name = "other".into();
        renamed.input.name = "other".into();
        assert_eq!(graph.digest(graph.full()), renamed.digest(graph.full()));
    }

    /// Both ends compare digests, so programs of different age must compute the same one.
    #[test]
    fn the_digest_stays_what_it_was() {
        let graph = mlp();
        assert_eq!(graph.digest(graph.full()), 0x51a2f062);
    }
}
