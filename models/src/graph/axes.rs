//! Which hidden axes are one and the same, and which must not be cut.
//!
//! Every layer starts with a hidden axis of its own. Where two values are added their axes become one
//! (union-find); where an axis meets a size that no tier cuts, or a cut would not be a prefix on both
//! sides, it is pinned and no tier cuts it.

use std::collections::HashSet;

use common::{AxisId, Dim, TensorShape, WidthMask, layout::MAX_AXES, mask::MaskError};

/// Axes while a Graph is put together, by provisional [`AxisId`].
#[derive(Clone, Debug, Default)]
pub struct Axes(Vec<Axis>);

#[derive(Clone, Debug)]
struct Axis {
    width: u32,
    /// Itself, or an earlier axis that is the same.
    parent: u8,
    pinned: bool,
}

impl Axes {
    pub fn add(&mut self, width: u32) -> Result<AxisId, MaskError> {
        let id = u8::try_from(self.0.len()).map_err(|_| MaskError::TooManyAxes)?;
        self.0.push(Axis { width, parent: id, pinned: false });
        Ok(AxisId(id))
    }

    pub fn size(&self, dim: &Dim) -> usize {
        dim.blocks as usize * self.width(dim) as usize * dim.inner as usize
    }

    pub fn sizes(&self, dims: &[Dim]) -> Vec<usize> {
        dims.iter().map(|dim| self.size(dim)).collect()
    }

    /// No tier cuts this dimension.
    pub fn pin(&mut self, dim: &Dim) {
        let root = dim.axis.map(|axis| self.root(axis.0));
        if let Some(axis) = root.and_then(|root| self.0.get_mut(usize::from(root))) {
            axis.pinned = true;
        }
    }

    /// Two dimensions of equal size are the same one.
    pub fn unify(&mut self, a: &Dim, b: &Dim) {
        match (a.axis, b.axis) {
            (Some(x), Some(y)) if (a.blocks, a.inner) == (b.blocks, b.inner) => {
                let (x, y) = (self.root(x.0), self.root(y.0));
                let (first, second) = (x.min(y), x.max(y));
                if first != second {
                    let pinned = self.0.get(usize::from(second)).is_some_and(|axis| axis.pinned);
                    if let Some(axis) = self.0.get_mut(usize::from(second)) {
                        axis.parent = first;
                    }
                    if let Some(axis) = self.0.get_mut(usize::from(first)) {
                        axis.pinned |= pinned;
                    }
                }
            }
            _ => {
                self.pin(a);
                self.pin(b);
            }
        }
    }

    /// Final numbers of the axes that tiers cut, in model order, and their widths. Axes without a
    /// dimension in `live` belong to layers that were left out.
    pub fn resolve<'a>(
        &self,
        live: impl Iterator<Item = &'a Dim>,
    ) -> Result<(Resolved, WidthMask), MaskError> {
        let live: HashSet<u8> = live.filter_map(|dim| dim.axis).map(|axis| self.root(axis.0)).collect();
        let mut numbers = Vec::with_capacity(self.0.len());
        let mut widths = Vec::new();
        for (id, axis) in self.0.iter().enumerate() {
            let root = self.root(id as u8);
            let is_root = usize::from(root) == id;
            let pinned =
                self.0.get(usize::from(root)).is_some_and(|axis| axis.pinned) || !live.contains(&root);
            numbers.push(match (pinned, is_root) {
                (true, _) => Number::Pinned(axis.width),
                (false, true) => {
                    widths.push(axis.width);
                    Number::Axis(AxisId((widths.len() - 1).min(MAX_AXES) as u8))
                }
                (false, false) => {
                    numbers.get(usize::from(root)).copied().unwrap_or(Number::Pinned(axis.width))
                }
            });
        }
        Ok((Resolved(numbers), WidthMask::full(&widths)?))
    }

    fn width(&self, dim: &Dim) -> u32 {
        dim.axis.and_then(|axis| self.0.get(usize::from(axis.0))).map_or(1, |axis| axis.width)
    }

    fn root(&self, mut id: u8) -> u8 {
        // Parents are never later than their children, so this ends.
        while let Some(parent) = self.0.get(usize::from(id)).map(|axis| axis.parent).filter(|&p| p != id) {
            id = parent;
        }
        id
    }
}

#[derive(Copy, Clone, Debug)]
enum Number {
    Axis(AxisId),
    Pinned(u32),
}

/// From provisional to final axes.
#[derive(Debug)]
pub struct Resolved(Vec<Number>);

impl Resolved {
    pub fn shape(&self, shape: &TensorShape) -> TensorShape {
        let mut resolved = shape.clone();
        resolved.dims.iter_mut().for_each(|dim| *dim = self.dim(*dim));
        resolved
    }

    fn dim(&self, dim: Dim) -> Dim {
        match dim.axis.and_then(|axis| self.0.get(usize::from(axis.0))) {
            None => dim,
            Some(&Number::Axis(axis)) => Dim { axis: Some(axis), ..dim },
            Some(&Number::Pinned(width)) if dim.inner == 1 => Dim::fixed(dim.blocks * width),
            // The inner part stays apart, because a file may hold it before the units.
            Some(&Number::Pinned(width)) => Dim { blocks: dim.blocks * width, axis: None, ..dim },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_meet_become_one_and_pins_spread() {
        let mut axes = Axes::default();
        let dims: Vec<Dim> = (0..5).map(|_| Dim::units(axes.add(6).unwrap())).collect();
        axes.unify(&dims[1], &dims[3]);
        axes.unify(&dims[4], &dims[2]);
        axes.unify(&dims[2], &Dim::fixed(6));
        let (resolved, full) = axes.resolve(dims.iter()).unwrap();
        let finals: Vec<Dim> = dims.iter().map(|&dim| resolved.dim(dim)).collect();
        let units = |axis| Dim::units(AxisId(axis));
        assert_eq!(finals, [units(0), units(1), Dim::fixed(6), units(1), Dim::fixed(6)]);
        assert_eq!(full.widths(), [6, 6]);
    }

    #[test]
    fn cuts_that_would_not_agree_are_not_made() {
        let mut axes = Axes::default();
        let (a, b) = (axes.add(4).unwrap(), axes.add(4).unwrap());
        let major = Dim { blocks: 1, axis: Some(a), inner: 9 };
        let minor = Dim { blocks: 9, axis: Some(b), inner: 1 };
        axes.unify(&major, &minor);
        let (resolved, full) = axes.resolve([major, minor].iter()).unwrap();
        assert!(full.widths().is_empty());
        assert_eq!(resolved.dim(major), Dim { blocks: 4, axis: None, inner: 9 });
        assert_eq!(resolved.dim(minor), Dim::fixed(36));
    }
}
