//! The shape of a model's parameters and the hidden axes along which they can be cut.
//!
//! A tensor is row-major. Each of its dimensions is `blocks x (part + part + ..)` indices. A [`Part`] is `width x inner` of
//! them, where `width` is the size of one hidden axis of the model (or 1 where the part is never cut):
//!
//! | dimension | blocks | parts (axis x inner) |
//! |---|---|---|
//! | inputs of the model, classes, kernel sizes | 1 | none x n |
//! | units of a dense layer, channels of a convolution | 1 | h x 1 |
//! | inputs of a dense layer after a channel-major flatten | 1 | c x H*W |
//! | inputs of a dense layer after a channel-last flatten | H*W | c x 1 |
//! | the gates of a GRU (of an LSTM), stacked | 3 (4) | u x 1 |
//! | channels of `a` and `b`, concatenated | 1 | a x 1, b x 1 |
//! | the same after a channel-major flatten | 1 | a x H*W, b x H*W |
//!
//! A tier keeps the first `width` units of an axis in every part of every block.

use core::fmt;

use heapless::Vec;

use crate::mask::{AxisId, WidthMask};

/// Most dimensions of a tensor; convolution kernels have the most.
pub const MAX_RANK: usize = 4;

/// Most parts of a dimension. A dense block of a DenseNet has one per layer.
pub const MAX_PARTS: usize = 16;

/// Consecutive indices of a dimension: `width(axis) x inner`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// The hidden axis; `None` where the part is never cut.
    pub axis: Option<AxisId>,
    /// Consecutive indices per unit.
    pub inner: u32,
}

impl Part {
    const NONE: Self = Self { axis: None, inner: 0 };

    /// Number of indices when the axes have the given widths.
    pub fn size(&self, widths: &WidthMask) -> usize {
        widths.of(self.axis) * self.inner as usize
    }
}

/// One dimension of a tensor: `blocks` times the sum of its parts.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Dim {
    blocks: u32,
    count: u8,
    /// Those after `count` are [`Part::NONE`].
    parts: [Part; MAX_PARTS],
}

impl Dim {
    /// A dimension of one part.
    pub const fn new(blocks: u32, axis: Option<AxisId>, inner: u32) -> Self {
        let mut parts = [Part::NONE; MAX_PARTS];
        parts[0] = Part { axis, inner };
        Self { blocks, count: 1, parts }
    }

    /// A dimension that no tier cuts.
    pub const fn fixed(size: u32) -> Self {
        Self::new(1, None, size)
    }

    /// The units of a hidden axis.
    pub const fn units(axis: AxisId) -> Self {
        Self::new(1, Some(axis), 1)
    }

    /// One block of these parts. Empty parts are left out, and neighbours that are never cut become one. `None` if there are
    /// more than [`MAX_PARTS`], or if a size is above 32 bits.
    pub fn of_parts(parts: impl IntoIterator<Item = Part>) -> Option<Self> {
        let mut dim = Self { blocks: 1, count: 0, parts: [Part::NONE; MAX_PARTS] };
        for part in parts.into_iter().filter(|part| part.inner > 0) {
            match (dim.count.checked_sub(1).map(|last| &mut dim.parts[usize::from(last)]), part.axis) {
                (Some(last @ Part { axis: None, .. }), None) => {
                    last.inner = last.inner.checked_add(part.inner)?;
                }
                _ => {
                    *dim.parts.get_mut(usize::from(dim.count))? = part;
                    dim.count += 1;
                }
            }
        }
        Some(dim)
    }

    /// The indices of `self`, then those of `next`. Blocks become parts of their own. `None` as in [`Dim::of_parts`].
    pub fn then(&self, next: &Self) -> Option<Self> {
        Self::of_parts(self.unrolled().chain(next.unrolled()))
    }

    /// The parts of all blocks, in order. A dimension that is never cut is one part.
    pub fn unrolled(&self) -> impl Iterator<Item = Part> + '_ {
        let whole = self.is_fixed().then(|| Part { axis: None, inner: self.fixed_size() });
        let blocks = if whole.is_some() { 0 } else { self.blocks };
        whole.into_iter().chain((0..blocks).flat_map(|_| self.parts().iter().copied()))
    }

    /// Number of blocks, each with all parts.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The parts of one block, in order.
    pub fn parts(&self) -> &[Part] {
        self.parts.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// The hidden axes of the parts, in order; an axis may come more than once.
    pub fn axes(&self) -> impl Iterator<Item = AxisId> + '_ {
        self.parts().iter().filter_map(|part| part.axis)
    }

    /// True if no tier cuts the dimension.
    pub fn is_fixed(&self) -> bool {
        self.axes().next().is_none()
    }

    /// As many times the blocks.
    pub fn repeated(self, times: u32) -> Self {
        Self { blocks: self.blocks.saturating_mul(times), ..self }
    }

    /// As many times the indices per unit.
    pub fn spread(mut self, times: u32) -> Self {
        self.parts.iter_mut().for_each(|part| part.inner = part.inner.saturating_mul(times));
        self
    }

    /// Number of indices when the axes have the given widths.
    pub fn size(&self, widths: &WidthMask) -> usize {
        self.blocks as usize * self.block_size(widths)
    }

    /// Number of indices of one block.
    pub(crate) fn block_size(&self, widths: &WidthMask) -> usize {
        self.parts().iter().map(|part| part.size(widths)).sum()
    }

    /// Number of indices of a dimension without hidden axes.
    fn fixed_size(&self) -> u32 {
        self.parts()
            .iter()
            .fold(0, |sum: u32, part| sum.saturating_add(part.inner))
            .saturating_mul(self.blocks)
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x ", self.blocks)?;
        f.debug_list()
            .entries(self.parts().iter().map(|part| (part.axis.map(|axis| axis.0), part.inner)))
            .finish()
    }
}

/// The dimensions of one parameter tensor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
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
