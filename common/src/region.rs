//! Regions: parameters held by exactly the same set of tiers, the unit of averaging.
//!
//! [`RegionSpans`] walks the flat parameter vector once and cuts it into spans of one tier set. It needs
//! no memory and makes no assumption on nesting. [`RegionMap`] (feature `std`) keeps the result.

use crate::{
    layout::{Dim, Layout, Part},
    mask::WidthMask,
    tier::{MAX_TIERS, Tier, TierSet},
};

#[cfg(feature = "std")]
mod map;
#[cfg(feature = "std")]
pub use map::{Piece, RegionMap};

/// Index of a region in the order of first appearance in the parameter vector.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u16);

impl RegionId {
    /// The index as a number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A maximal span of the flat parameter vector that is held by the same tiers.
///
/// The set may be empty: then no tier holds these parameters.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RegionSpan {
    /// Index of the first parameter.
    pub start: usize,
    /// Number of parameters.
    pub len: usize,
    /// The tiers that hold them.
    pub tiers: TierSet,
}

/// The spans of a model under a list of tiers, ascending, disjoint and covering.
#[derive(Debug)]
pub struct RegionSpans<'a> {
    layout: Layout<'a>,
    masks: &'a [WidthMask],
    tensor: usize,
    /// Index inside the tensor.
    at: usize,
    /// Index of the tensor's first parameter.
    base: usize,
    pending: Option<RegionSpan>,
}

impl<'a> RegionSpans<'a> {
    /// Masks beyond [`MAX_TIERS`] are ignored.
    pub fn new(layout: Layout<'a>, masks: &'a [WidthMask]) -> Self {
        let masks = &masks[..masks.len().min(MAX_TIERS)];
        Self { layout, masks, tensor: 0, at: 0, base: 0, pending: None }
    }

    /// The next span inside one row of one tensor; adjacent ones may have the same set.
    fn fragment(&mut self) -> Option<RegionSpan> {
        loop {
            let tensor = self.layout.tensors.get(self.tensor)?;
            let all = tensor.len(self.layout.full);
            if self.at >= all {
                (self.tensor, self.at, self.base) = (self.tensor + 1, 0, self.base + all);
                continue;
            }
            let mut tiers = TierSet::first(self.masks.len());
            let mut len = 1;
            let mut rest = self.at;
            for (place, dim) in tensor.dims.iter().enumerate().rev() {
                let size = dim.size(self.layout.full);
                let (held, stretch) = self.held(dim, rest % size);
                tiers = tiers.and(held);
                if place + 1 == tensor.dims.len() {
                    len = stretch;
                }
                rest /= size;
            }
            let start = self.base + self.at;
            self.at += len;
            return Some(RegionSpan { start, len, tiers });
        }
    }

    /// The tiers that hold an index of a dimension, and for how many indices from there they stay the same.
    fn held(&self, dim: &Dim, index: usize) -> (TierSet, usize) {
        let mut inside = index % dim.block_size(self.layout.full).max(1);
        for part in dim.parts() {
            let size = part.size(self.layout.full);
            if inside < size {
                return self.held_part(part, inside, size);
            }
            inside -= size;
        }
        debug_assert!(false, "the parts of {dim:?} are shorter than itself");
        (TierSet::EMPTY, 1)
    }

    fn held_part(&self, part: &Part, inside: usize, size: usize) -> (TierSet, usize) {
        let mut tiers = TierSet::EMPTY;
        let mut end = size;
        for (number, mask) in self.masks.iter().enumerate() {
            let kept = part.size(mask).min(size);
            if inside < kept {
                tiers = Tier::new(number).map_or(tiers, |tier| tiers.with(tier));
                end = end.min(kept);
            }
        }
        (tiers, end - inside)
    }
}

impl Iterator for RegionSpans<'_> {
    type Item = RegionSpan;

    fn next(&mut self) -> Option<RegionSpan> {
        loop {
            let Some(next) = self.fragment() else { return self.pending.take() };
            match &mut self.pending {
                Some(span) if span.tiers == next.tiers => span.len += next.len,
                pending => {
                    if let Some(span) = pending.replace(next) {
                        return Some(span);
                    }
                }
            }
        }
    }
}
