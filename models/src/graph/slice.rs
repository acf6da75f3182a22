//! The part of a Graph that a tier keeps: the same nodes with narrower hidden axes.

use common::{Dim, Layout, Part, TensorShape, WidthMask, slice};

use super::{Graph, Groups, Op, Reason, SliceError, UncutAxis};

impl Graph {
    /// The widths of a tier that keeps this share of every hidden axis. An error if an axis cannot be cut and may not stay whole,
    /// or if no axis would be cut.
    pub fn mask_at(&self, rate: f64, keep_whole: bool) -> Result<WidthMask, SliceError> {
        let mask = self.in_groups(&self.full.at_rate(rate)?)?;
        if rate < 1.0 {
            if mask == self.full {
                let why = self.uncut.iter().find(|axis| axis.reason != Reason::Output).cloned();
                return Err(SliceError::Nothing { rate, why });
            }
            let contradicts = |axis: &&UncutAxis| !axis.reason.is_by_design() && axis.width > 1;
            if let Some(axis) = self.uncut.iter().find(contradicts).filter(|_| !keep_whole) {
                return Err(SliceError::Uncut(axis.clone()));
            }
        }
        Ok(mask)
    }

    /// Channels that a normalisation divides into groups: as many as fall into them, at most those of the mask.
    fn in_groups(&self, mask: &WidthMask) -> Result<WidthMask, SliceError> {
        let mut widths = mask.widths().to_vec();
        for node in &self.nodes {
            let Op::GroupNorm { groups: Groups::Count(groups), .. } = node.op else { continue };
            let units = node.shape.dims.first().filter(|dim| dim.blocks() == 1).map(Dim::parts);
            if let Some(&[Part { axis: Some(axis), inner: 1 }]) = units
                && let Some(width) = widths.get_mut(usize::from(axis.0))
                && groups > 0
            {
                *width = (*width / groups).max(1) * groups;
            }
        }
        Ok(self.full.at_widths(&widths)?)
    }

    /// Checks the widths that a tier keeps.
    pub fn check_mask(&self, mask: &WidthMask) -> Result<(), SliceError> {
        self.full.at_widths(mask.widths())?;
        for node in &self.nodes {
            if let Op::GroupNorm { groups: Groups::Count(groups), .. } = node.op {
                let width = node.channels(mask) as u32;
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
        let (stats, constants) = (self.gather_stats(mask), self.gather_constants(mask));
        Ok(Self { full: mask.clone(), stats, constants, ..self.clone() })
    }

    /// [`Graph::stats`] of a slice.
    pub fn gather_stats(&self, mask: &WidthMask) -> Vec<f32> {
        let mut rest = self.stats.as_slice();
        let mut packed = Vec::new();
        for node in self.nodes.iter().filter(|node| matches!(node.op, Op::BatchNorm { .. })) {
            let (all, kept) = (node.channels(&self.full), node.channels(mask));
            let channels = TensorShape { dims: node.shape.dims.iter().take(1).copied().collect() };
            let layout = Layout { full: &self.full, tensors: std::slice::from_ref(&channels) };
            for _ in 0..2 {
                let (these, others) = rest.split_at(all);
                let mut slice = vec![0.0; kept];
                // Both lengths are those of the layout.
                let gathered = slice::gather(layout, mask, these, &mut slice);
                debug_assert_eq!(gathered, Ok(()));
                packed.extend(slice);
                rest = others;
            }
        }
        packed
    }

    /// The packed parameters of a slice.
    pub fn gather(&self, mask: &WidthMask, parameters: &[f32]) -> Result<Vec<f32>, slice::WrongLength> {
        let mut packed = vec![0.0; self.layout().slice_len(mask)];
        slice::gather(self.layout(), mask, parameters, &mut packed)?;
        Ok(packed)
    }
}
