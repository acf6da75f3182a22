//! The regions of a model, computed once and kept.

use std::vec::Vec;

use super::{RegionId, RegionSpans};
use crate::{
    layout::Layout,
    mask::WidthMask,
    tier::{Tier, TierSet},
};

/// A part of a tier's slice that is in one region.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it starts in the flat vector of the whole model.
    pub full: usize,
    /// Where it starts in the packed slice.
    pub packed: usize,
    /// Number of parameters.
    pub len: usize,
    /// The region that it belongs to.
    pub region: RegionId,
}

/// Regions of a model under a list of tiers, and the pieces of every tier's slice.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionMap {
    parameters: usize,
    sets: Vec<TierSet>,
    slices: Vec<Vec<Piece>>,
}

impl RegionMap {
    /// The regions of a model, with one mask per tier.
    pub fn new(layout: Layout<'_>, masks: &[WidthMask]) -> Self {
        let spans = RegionSpans::new(layout, masks).map(|span| (span.start, span.len, span.tiers));
        Self::from_spans(layout.len(), masks.len(), spans)
    }

    /// Regions of trained parameters: tier `m` trains nothing before parameter `starts[m]` of the whole model, so it takes no
    /// part in averaging there. Its slice in this map is what it sends back.
    pub fn trained(layout: Layout<'_>, masks: &[WidthMask], starts: &[usize]) -> Self {
        let mut spans = Vec::new();
        for span in RegionSpans::new(layout, masks) {
            let end = span.start + span.len;
            let mut cuts: Vec<usize> = starts
                .iter()
                .copied()
                .filter(|&at| span.start < at && at < end)
                .chain([span.start, end])
                .collect();
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                let frozen = |tier: &Tier| starts.get(tier.index()).is_some_and(|&start| pair[0] < start);
                let set = span.tiers.iter().filter(|tier| !frozen(tier)).fold(TierSet::EMPTY, TierSet::with);
                spans.push((pair[0], pair[1] - pair[0], set));
            }
        }
        Self::from_spans(layout.len(), masks.len(), spans)
    }

    /// From any ascending, disjoint list of `(start, length, tiers)`.
    pub fn from_spans(
        parameters: usize,
        tiers: usize,
        spans: impl IntoIterator<Item = (usize, usize, TierSet)>,
    ) -> Self {
        let mut sets = Vec::new();
        let mut slices = vec![Vec::<Piece>::new(); tiers];
        let mut packed = vec![0; tiers];
        for (full, len, set) in spans {
            if set.is_empty() {
                continue;
            }
            let known = sets.iter().position(|&other| other == set);
            let region = RegionId(known.unwrap_or_else(|| {
                sets.push(set);
                sets.len() - 1
            }) as u16);
            for tier in set.iter().filter(|tier| tier.index() < tiers) {
                let at = &mut packed[tier.index()];
                slices[tier.index()].push(Piece { full, packed: *at, len, region });
                *at += len;
            }
        }
        Self { parameters, sets, slices }
    }

    /// Number of parameters of the whole model.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Number of tiers.
    pub fn tiers(&self) -> usize {
        self.slices.len()
    }

    /// The tier set of every region, by [`RegionId`].
    pub fn sets(&self) -> &[TierSet] {
        &self.sets
    }

    /// Every region with the tiers that hold it.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = (RegionId, TierSet)> {
        self.sets.iter().enumerate().map(|(number, &tiers)| (RegionId(number as u16), tiers))
    }

    /// The pieces of a tier's slice, ascending. The tier must be one of the map's.
    pub fn pieces(&self, tier: Tier) -> &[Piece] {
        debug_assert!(tier.index() < self.slices.len(), "the map has no {tier}");
        self.slices.get(tier.index()).map_or(&[], Vec::as_slice)
    }

    /// Number of parameters of a tier's slice.
    pub fn slice_len(&self, tier: Tier) -> usize {
        self.pieces(tier).last().map_or(0, |piece| piece.packed + piece.len)
    }

    /// Packs a tier's slice of the whole model into `slice`, replacing what was there.
    pub fn gather(&self, tier: Tier, full: &[f32], slice: &mut Vec<f32>) {
        slice.clear();
        slice.reserve(self.slice_len(tier));
        for piece in self.pieces(tier) {
            slice.extend_from_slice(&full[piece.full..piece.full + piece.len]);
        }
    }
}
