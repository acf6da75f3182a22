//! Finds which hidden axes are identical, and which must not be cut.
//!
//! Every layer starts with its own hidden axis. Where two values are added, their axes become one (union-find). An axis is
//! pinned, so that no tier cuts it, where it must agree with a size that no tier cuts, or where a cut would not be a prefix
//! on both sides. The node and the reason are kept for the user ([`UncutAxis`]).

use std::collections::HashSet;

use common::{
    AxisId, Dim, Part, TensorShape, WidthMask,
    mask::{MAX_AXES, MaskError},
};

use super::uncut::{Reason, UncutAxis};

/// Axes while a Graph is put together, by provisional [`AxisId`].
#[derive(Clone, Debug, Default)]
pub struct Axes {
    axes: Vec<HiddenAxis>,
    /// Pairs of axes that cannot be cut, because their units are at different places; and the node where they are added.
    apart: Vec<(u8, u8, String)>,
}

#[derive(Clone, Debug)]
struct HiddenAxis {
    layer: String,
    width: u32,
    /// Itself, or an earlier axis that is identical.
    parent: u8,
    pin: Option<Pin>,
}

/// Why an axis is not cut, and where.
#[derive(Clone, Debug)]
struct Pin {
    node: String,
    reason: Reason,
}

impl HiddenAxis {
    /// The first of several reasons is kept, but a reason by design takes precedence.
    fn pin(&mut self, pin: &Pin) -> bool {
        let weaker = self.pin.as_ref().is_none_or(|old| !old.reason.is_by_design());
        let changes = self.pin.is_none() || weaker && pin.reason.is_by_design();
        if changes {
            self.pin = Some(pin.clone());
        }
        changes
    }

    fn is_by_design(&self) -> bool {
        self.pin.as_ref().is_some_and(|pin| pin.reason.is_by_design())
    }
}

impl Axes {
    pub fn add(&mut self, layer: &str, width: u32) -> Result<AxisId, MaskError> {
        let id = u8::try_from(self.axes.len()).map_err(|_| MaskError::TooManyAxes)?;
        self.axes.push(HiddenAxis { layer: layer.to_owned(), width, parent: id, pin: None });
        Ok(AxisId(id))
    }

    pub fn size(&self, dim: &Dim) -> usize {
        dim.blocks() as usize * dim.parts().iter().map(|part| self.part_size(part)).sum::<usize>()
    }

    pub fn sizes(&self, dims: &[Dim]) -> Vec<usize> {
        dims.iter().map(|dim| self.size(dim)).collect()
    }

    /// No tier cuts this dimension.
    pub fn pin(&mut self, dim: &Dim, node: &str, reason: Reason) {
        for axis in dim.axes() {
            self.pin_axis(axis.0, node, reason);
        }
    }

    /// Two dimensions of equal size are the same one. Equal lists of parts become one part by part.
    pub fn unify(&mut self, a: &Dim, b: &Dim, node: &str) {
        let sizes = |dim: &Dim| dim.parts().iter().map(|part| self.part_size(part)).collect::<Vec<_>>();
        if a.is_fixed() || b.is_fixed() {
            self.pin(a, node, Reason::Agrees);
            self.pin(b, node, Reason::Agrees);
        } else if a.blocks() == b.blocks() && sizes(a) == sizes(b) {
            a.parts().iter().zip(b.parts()).for_each(|(a, b)| self.unify_parts(a, b, node));
        } else {
            let pairs = a.axes().flat_map(|a| b.axes().map(move |b| (a.0, b.0, node.to_owned())));
            self.apart.extend(pairs);
        }
    }

    fn unify_parts(&mut self, a: &Part, b: &Part, node: &str) {
        match (a.axis, b.axis) {
            (Some(x), Some(y)) if a.inner == b.inner => {
                let (x, y) = (self.root(x.0), self.root(y.0));
                let (first, second) = (x.min(y), x.max(y));
                if first != second {
                    let axis = &mut self.axes[usize::from(second)];
                    axis.parent = first;
                    if let Some(Pin { node, reason }) = axis.pin.take() {
                        self.pin_axis(first, &node, reason);
                    }
                }
            }
            (Some(x), Some(y)) => self.apart.push((x.0, y.0, node.to_owned())),
            (one, other) => {
                for axis in [one, other].into_iter().flatten() {
                    self.pin_axis(axis.0, node, Reason::Agrees);
                }
            }
        }
    }

    /// Merges several dimensions into one. Those before the hidden one become its blocks, those after it its inner part. Of two
    /// hidden ones, at most one is cut.
    pub fn flattened(&mut self, dims: &[Dim], node: &str) -> Dim {
        let mut flat = Dim::fixed(1);
        for dim in dims {
            let size = |dim: &Dim| u32::try_from(self.size(dim)).unwrap_or(u32::MAX);
            flat = match (flat.is_fixed(), dim.is_fixed()) {
                (true, false) => dim.repeated(size(&flat)),
                (false, false) if self.is_pinned(&flat) => dim.repeated(size(&flat)),
                (false, false) => {
                    let size = size(dim);
                    self.pin(dim, node, Reason::Merged);
                    flat.spread(size)
                }
                (_, true) => flat.spread(size(dim)),
            };
        }
        flat
    }

    /// One dimension behind the other. Where that has too many parts, none of them is cut.
    pub fn concat(&mut self, a: &Dim, b: &Dim, node: &str) -> Dim {
        a.then(b).unwrap_or_else(|| {
            self.pin(a, node, Reason::Parts);
            self.pin(b, node, Reason::Parts);
            fixed(self.size(a) + self.size(b))
        })
    }

    /// What is before `start` in a dimension, and the `len` indices from there on. A hidden axis with an end inside is not cut.
    pub fn take(&mut self, dim: &Dim, start: usize, len: usize, node: &str) -> (Dim, Dim) {
        let (mut before, mut taken, mut at) = (Vec::new(), Vec::new(), 0);
        for part in dim.unrolled() {
            let size = self.part_size(&part);
            let cut = |index: usize| index.clamp(at, at + size) - at;
            let (first, last) = (cut(start), cut(start + len));
            if [first, last].iter().all(|&index| index == 0 || index == size) {
                let side =
                    if first == size { Some(&mut before) } else { (last == size).then_some(&mut taken) };
                side.into_iter().for_each(|side| side.push(part));
            } else {
                if let Some(axis) = part.axis {
                    self.pin_axis(axis.0, node, Reason::Split);
                }
                before.push(Part { axis: None, inner: first as u32 });
                taken.push(Part { axis: None, inner: (last - first) as u32 });
            }
            at += size;
        }
        match (Dim::of_parts(before), Dim::of_parts(taken)) {
            (Some(before), Some(taken)) => (before, taken),
            _ => {
                self.pin(dim, node, Reason::Parts);
                (fixed(start), fixed(len))
            }
        }
    }

    fn is_pinned(&self, dim: &Dim) -> bool {
        dim.axes().all(|axis| self.axes[usize::from(self.root(axis.0))].pin.is_some())
    }

    /// Final numbers of the axes that tiers cut, in model order, and their widths; and the axes that no tier
    /// cuts. Axes without a dimension in `live` belong to layers that were left out.
    pub fn resolve<'a>(
        mut self,
        live: impl Iterator<Item = &'a Dim>,
    ) -> Result<(Resolved, WidthMask, Vec<UncutAxis>), MaskError> {
        self.part();
        let live: HashSet<u8> = live.flat_map(Dim::axes).map(|axis| self.root(axis.0)).collect();
        let mut numbers = Vec::with_capacity(self.axes.len());
        let mut widths = Vec::new();
        let mut uncut: Vec<(u8, UncutAxis)> = Vec::new();
        for (id, axis) in self.axes.iter().enumerate() {
            let root = self.root(id as u8);
            let is_root = usize::from(root) == id;
            let pin = self.axes[usize::from(root)].pin.as_ref();
            let is_live = live.contains(&root);
            numbers.push(match (pin, is_root) {
                (None, true) if is_live => {
                    widths.push(axis.width);
                    Number::Axis(AxisId((widths.len() - 1).min(MAX_AXES) as u8))
                }
                (None, false) if is_live => numbers[usize::from(root)],
                _ => Number::Pinned(axis.width),
            });
            let Some(Pin { node, reason }) = pin.filter(|_| is_live) else { continue };
            match uncut.iter_mut().find(|(other, _)| *other == root) {
                Some((_, uncut)) => uncut.layers.push(axis.layer.clone()),
                None => {
                    let (layers, width, node) = (vec![axis.layer.clone()], axis.width, node.clone());
                    uncut.push((root, UncutAxis { layers, width, node, reason: *reason }));
                }
            }
        }
        let uncut = uncut.into_iter().map(|(_, uncut)| uncut).collect();
        Ok((Resolved(numbers), WidthMask::full(&widths)?, uncut))
    }

    /// Pins the axes of incompatible pairs. Where one is whole by design, the other only has to agree with it. A third axis may
    /// then have to agree with that one.
    fn part(&mut self) {
        let apart = std::mem::take(&mut self.apart);
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for (a, b, node) in &apart {
                for (one, other) in [(*a, *b), (*b, *a)] {
                    let fixed = self.axes[usize::from(self.root(one))].is_by_design();
                    changed |= fixed && self.pin_axis(other, node, Reason::Agrees);
                }
            }
        }
        for (a, b, node) in &apart {
            self.pin_axis(*a, node, Reason::Places);
            self.pin_axis(*b, node, Reason::Places);
        }
    }

    fn pin_axis(&mut self, axis: u8, node: &str, reason: Reason) -> bool {
        let pin = Pin { node: node.to_owned(), reason };
        let root = usize::from(self.root(axis));
        self.axes[root].pin(&pin)
    }

    fn part_size(&self, part: &Part) -> usize {
        let width = part.axis.map_or(1, |axis| self.axes[usize::from(axis.0)].width);
        width as usize * part.inner as usize
    }

    fn root(&self, mut id: u8) -> u8 {
        // Parents are never later than their children, so this ends.
        loop {
            let parent = self.axes[usize::from(id)].parent;
            if parent == id {
                return id;
            }
            id = parent;
        }
    }
}

fn fixed(size: usize) -> Dim {
    Dim::fixed(u32::try_from(size).unwrap_or(u32::MAX))
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

    pub fn dim(&self, dim: Dim) -> Dim {
        if let &[Part { axis: Some(axis), inner }] = dim.parts() {
            return match self.0[usize::from(axis.0)] {
                Number::Axis(axis) => Dim::new(dim.blocks(), Some(axis), inner),
                Number::Pinned(width) if inner == 1 => Dim::fixed(dim.blocks() * width),
                // Two numbers instead of their product, as digests have always had them.
                Number::Pinned(width) => Dim::new(dim.blocks() * width, None, inner),
            };
        }
        let parts = dim.parts().iter().map(|part| match part.axis.map(|axis| self.0[usize::from(axis.0)]) {
            Some(Number::Axis(axis)) => Part { axis: Some(axis), ..*part },
            Some(Number::Pinned(width)) => Part { axis: None, inner: width * part.inner },
            None => *part,
        });
        // There are no more parts than before, and a size that fitted still does.
        Dim::of_parts(parts).map_or(dim, |parts| parts.repeated(dim.blocks()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(count: usize, width: u32) -> (Axes, Vec<Dim>) {
        let mut axes = Axes::default();
        let dims = (0..count).map(|at| Dim::units(axes.add(&format!("l{at}"), width).unwrap())).collect();
        (axes, dims)
    }

    #[test]
    fn axes_that_meet_become_one_and_pins_spread() {
        let (mut axes, dims) = axes(5, 6);
        axes.unify(&dims[1], &dims[3], "a");
        axes.unify(&dims[4], &dims[2], "b");
        axes.unify(&dims[2], &Dim::fixed(6), "c");
        let (resolved, full, uncut) = axes.resolve(dims.iter()).unwrap();
        let finals: Vec<Dim> = dims.iter().map(|&dim| resolved.dim(dim)).collect();
        let units = |axis| Dim::units(AxisId(axis));
        assert_eq!(finals, [units(0), units(1), Dim::fixed(6), units(1), Dim::fixed(6)]);
        assert_eq!(full.widths(), [6, 6]);
        let layers = ["l2", "l4"].map(str::to_owned).to_vec();
        assert_eq!(uncut, [UncutAxis { layers, width: 6, node: "c".into(), reason: Reason::Agrees }]);
    }

    #[test]
    fn cuts_that_would_not_agree_are_not_made() {
        let (mut axes, dims) = axes(2, 4);
        let (major, minor) = (dims[0].spread(9), dims[1].repeated(9));
        axes.unify(&major, &minor, "add");
        let (resolved, full, uncut) = axes.resolve([major, minor].iter()).unwrap();
        assert!(full.widths().is_empty());
        assert_eq!(resolved.dim(major), Dim::new(4, None, 9));
        assert_eq!(resolved.dim(minor), Dim::fixed(36));
        let reasons: Vec<Reason> = uncut.iter().map(|uncut| uncut.reason).collect();
        assert_eq!(reasons, [Reason::Places; 2]);
    }

    #[test]
    fn axes_that_are_whole_by_design_are_no_error() {
        let (mut axes, dims) = axes(4, 4);
        let apart = |dim: Dim| (dim.spread(9), dim.repeated(9));
        // 0 and 1 are incompatible, and so are 1 and 2; that 2 is an output is known last. 3 is an output in spite of its groups.
        axes.unify(&apart(dims[0]).0, &apart(dims[1]).1, "first");
        axes.unify(&apart(dims[1]).0, &apart(dims[2]).1, "second");
        axes.pin(&dims[3], "groups", Reason::Groups);
        axes.pin(&dims[3], "end", Reason::Output);
        axes.pin(&dims[2], "end", Reason::Output);
        axes.pin(&dims[2], "groups", Reason::Groups);
        let (_, _, uncut) = axes.resolve(dims.iter()).unwrap();
        let found: Vec<(&str, Reason)> = uncut.iter().map(|w| (w.node.as_str(), w.reason)).collect();
        let agrees = |node| (node, Reason::Agrees);
        let output = ("end", Reason::Output);
        assert_eq!(found, [agrees("first"), agrees("second"), output, output]);
    }

    #[test]
    fn equal_parts_become_one_and_other_parts_are_not_cut() {
        let (mut axes, dims) = axes(6, 4);
        let pair = |a: usize, b: usize| dims[a].then(&dims[b]).unwrap();
        axes.unify(&pair(0, 1), &pair(2, 3), "add");
        axes.unify(&pair(4, 1).then(&Dim::fixed(4)).unwrap(), &dims[5].repeated(3), "apart");
        let (resolved, full, uncut) = axes.resolve(dims.iter()).unwrap();
        assert_eq!(full.widths(), [4], "0 and 2 are one; 1 and 3 are pinned together");
        assert_eq!(resolved.dim(pair(2, 3)), Dim::units(AxisId(0)).then(&Dim::fixed(4)).unwrap());
        assert_eq!(resolved.dim(pair(1, 4)), Dim::fixed(8));
        let found: Vec<(usize, Reason)> =
            uncut.iter().map(|uncut| (uncut.layers.len(), uncut.reason)).collect();
        assert_eq!(found, [(2, Reason::Places), (1, Reason::Places), (1, Reason::Places)]);
    }

    #[test]
    fn flatten_keeps_the_hidden_axis_apart() {
        let (mut axes, dims) = axes(2, 3);
        let four = Dim::fixed(4);
        assert_eq!(axes.flattened(&[dims[0], four, Dim::fixed(5)], "flat"), dims[0].spread(20));
        assert_eq!(axes.flattened(&[four, Dim::fixed(5), dims[0]], "flat"), dims[0].repeated(20));
        assert_eq!(axes.flattened(&[four, Dim::fixed(5)], "flat"), Dim::fixed(20));
        let both = dims[0].then(&dims[1]).unwrap();
        assert_eq!(axes.flattened(&[four, both, four], "flat"), both.repeated(4).spread(4));
        axes.pin(&dims[0], "dense", Reason::Positions);
        assert_eq!(axes.flattened(&[dims[0], dims[1]], "flat"), dims[1].repeated(3));
        assert_eq!(axes.flattened(&[dims[1], dims[0]], "flat"), dims[1].spread(3));
    }

    #[test]
    fn axes_of_removed_layers_are_not_reported() {
        let (mut axes, dims) = axes(2, 4);
        axes.pin(&dims[0], "gone", Reason::Groups);
        let (_, full, uncut) = axes.resolve(dims[1..].iter()).unwrap();
        assert_eq!((full.widths(), uncut), (&[4][..], vec![]));
    }
}
