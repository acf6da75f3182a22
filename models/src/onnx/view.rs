//! The values of an ONNX graph during import.
//!
//! A computed tensor is a value of our Graph with a list of axes. Exporters put the batch second, add axes of size 1 and permute
//! images, while the numbers of a sample stay in place. Integers are folded, with the batch size as a symbol, so shape
//! computations disappear.

use crate::graph::ValueId;

#[derive(Clone, PartialEq, Debug)]
pub enum OnnxValue {
    Tensor(TensorView),
    /// A computed shape or a part of one.
    Sizes(Vec<SymbolicSize>),
    /// Known integers in rows of two, as in a list of pads.
    Pairs(Vec<[SymbolicSize; 2]>),
    /// Views of equal axes, one behind the other along an axis of size 1: the last states of several layers.
    Stack(Vec<TensorView>, usize),
    /// A tensor of one number, such as the initial state of a recurrent layer.
    Filled(f32),
    /// A transposed weight matrix, by the name of its initializer.
    Turned(String),
}

/// A number of a shape computation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SymbolicSize {
    Fixed(i64),
    Batch,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TensorView {
    pub value: ValueId,
    pub axes: Vec<ViewAxis>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ViewAxis {
    Batch,
    /// Of a sample, by number.
    Dim(usize),
    /// Of size 1, which the sample does not have.
    One,
    /// All axes of a sample as one, the first of them last: pixels before channels.
    ChannelLast,
}

impl TensorView {
    /// The batch, then the sample as it is.
    pub fn plain(value: ValueId, rank: usize) -> Self {
        Self { value, axes: std::iter::once(ViewAxis::Batch).chain((0..rank).map(ViewAxis::Dim)).collect() }
    }

    pub fn is_plain(&self, rank: usize) -> bool {
        *self == Self::plain(self.value, rank)
    }
}
