//! The shape of a model's parameters and the hidden axes along which they can be cut.
//!
//! A tensor is row-major. Each of its dimensions is `blocks x width x inner` indices, where `width` is
//! the size of one hidden axis of the model (or 1 where the dimension is never cut):
//!
//! | dimension | blocks | axis | inner |
//! |---|---|---|---|
//! | inputs of the model, classes, kernel sizes | 1 | none | n |
//! | units of a dense layer, channels of a convolution | 1 | h | 1 |
//! | inputs of a dense layer after a channel-major flatten | 1 | c | H*W |
//! | inputs of a dense layer after a channel-last flatten | H*W | c | 1 |
//! | the gates of a GRU (of an LSTM), stacked | 3 (4) | u | 1 |
//!
//! A tier keeps the first `width` units of an axis in every block.

use heapless::Vec;
use serde::{Deserialize, Serialize};

use crate::mask::{AxisId, WidthMask};

/// Most dimensions of a tensor; convolution kernels have the most.
pub const MAX_RANK: usize = 4;

/// One dimension of a tensor: `blocks x width(axis) x inner` indices.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Dim {
    /// Number of blocks, each with all units of the axis.
    pub blocks: u32,
    /// The hidden axis; `None` where the dimension is never cut.
    pub axis: Option<AxisId>,
    /// Consecutive indices per unit.
    pub inner: u32,
}

impl Dim {
    /// A dimension that no tier cuts.
    pub fn fixed(size: u32) -> Self {
        Self { blocks: 1, axis: None, inner: size }
    }

    /// The units of a hidden axis.
    pub fn units(axis: AxisId) -> Self {
        Self { blocks: 1, axis: Some(axis), inner: 1 }
    }

    /// Number of indices when the axes have the given widths.
    pub fn size(&self, widths: &WidthMask) -> usize {
        self.blocks as usize * self.block_size(widths)
    }

    /// Number of indices of one block.
    pub(crate) fn block_size(&self, widths: &WidthMask) -> usize {
        widths.of(self.axis) * self.inner as usize
    }
}

/// The dimensions of one parameter tensor.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TensorShape {
    /// Outermost dimension first.
    pub dims: Vec<Dim, MAX_RANK>,
}

impl TensorShape {
    /// `None` if there are more than [`MAX_RANK`] dimensions.
    pub fn new(dims: &[Dim]) -> Option<Self> {
        Vec::from_slice(dims).ok().map(|dims| Self { dims })
    }

    /// Number of parameters when the axes have the given widths.
    pub fn len(&self, widths: &WidthMask) -> usize {
        self.dims.iter().map(|dim| dim.size(widths)).product()
    }
}

/// All parameter tensors of a model, in the order of the flat parameter vector.
#[derive(Copy, Clone, Debug)]
pub struct Layout<'a> {
    /// Widths of the whole model.
    pub full: &'a WidthMask,
    /// The tensors, in order.
    pub tensors: &'a [TensorShape],
}

impl Layout<'_> {
    /// Number of parameters of the whole model.
    pub fn len(&self) -> usize {
        self.slice_len(self.full)
    }

    /// True if the model has no parameters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of parameters of a slice.
    pub fn slice_len(&self, mask: &WidthMask) -> usize {
        self.tensors.iter().map(|tensor| tensor.len(mask)).sum()
    }
}
