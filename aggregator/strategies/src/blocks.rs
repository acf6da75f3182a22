//! The parts of the model over which inner products are taken: regions, or layers inside regions.

use std::ops::Range;

use common::{RegionId, Tier, region::RegionMap};

/// How fine the parts are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Each region is one block.
    Region,
    /// Each layer inside each region.
    Layer,
}

/// One part of the model.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Block {
    /// The region that it lies in.
    pub region: RegionId,
    /// Position of the layer in the model; 0 with [`Scope::Region`].
    pub layer: usize,
}

/// A stretch of a tier's slice that lies in one block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlockPiece {
    /// Where it starts in the packed slice.
    pub packed: usize,
    /// Where it starts in the whole model.
    pub full: usize,
    /// Number of parameters.
    pub len: usize,
    /// Index of the block.
    pub block: usize,
}

/// All blocks of a model, ordered by region and then by layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Blocks {
    list: Vec<Block>,
    /// By tier.
    pieces: Vec<Vec<BlockPiece>>,
}

impl Blocks {
    /// `layers` are half-open ranges in model order; parameters between them belong to the layer before.
    pub fn new(regions: &RegionMap, layers: &[Range<usize>], scope: Scope) -> Self {
        let starts: Vec<usize> = match scope {
            Scope::Region => vec![0],
            Scope::Layer => {
                std::iter::once(0).chain(layers.iter().skip(1).map(|layer| layer.start)).collect()
            }
        };
        let layer_of = |at: usize| starts.partition_point(|&start| start <= at).max(1) - 1;
        // Pieces with their block, cut at the starts of layers.
        let cut = |tier: Tier| {
            let mut cut = Vec::new();
            for piece in regions.pieces(tier) {
                let mut at = piece.full;
                while at < piece.full + piece.len {
                    let layer = layer_of(at);
                    let end =
                        starts.get(layer + 1).copied().unwrap_or(usize::MAX).min(piece.full + piece.len);
                    let block = Block { region: piece.region, layer };
                    cut.push((piece.packed + (at - piece.full), at, end - at, block));
                    at = end;
                }
            }
            cut
        };
        let by_tier: Vec<_> = (0..regions.tiers()).map_while(Tier::new).map(cut).collect();
        let mut list: Vec<Block> = by_tier.iter().flatten().map(|&(_, _, _, block)| block).collect();
        list.sort_unstable();
        list.dedup();
        let number = |&(packed, full, len, ref block): &(usize, usize, usize, Block)| {
            // Every block is in the list, so the number of blocks before it is its number.
            let block = list.partition_point(|other| other < block);
            BlockPiece { packed, full, len, block }
        };
        let pieces = by_tier.iter().map(|tier| tier.iter().map(number).collect()).collect();
        Self { list, pieces }
    }

    /// All blocks, in the order of their indices.
    pub fn list(&self) -> &[Block] {
        &self.list
    }

    /// The pieces of a tier's slice, ascending.
    pub fn pieces(&self, tier: Tier) -> &[BlockPiece] {
        self.pieces.get(tier.index()).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use common::TierSet;

    use super::*;

    #[test]
    fn layers_are_cut_inside_regions() {
        let (zero, one) = (Tier::new(0).unwrap(), Tier::new(1).unwrap());
        let (both, wide) = (TierSet::EMPTY.with(zero).with(one), TierSet::EMPTY.with(zero));
        let regions = RegionMap::from_spans(10, 2, [(0, 3, both), (3, 2, wide), (5, 5, both)]);
        let blocks = Blocks::new(&regions, &[0..4, 4..7, 7..10], Scope::Layer);
        let block = |region, layer| Block { region: RegionId(region), layer };
        assert_eq!(blocks.list(), [block(0, 0), block(0, 1), block(0, 2), block(1, 0), block(1, 1)]);
        let piece = |packed, full, len, block| BlockPiece { packed, full, len, block };
        assert_eq!(blocks.pieces(one), [piece(0, 0, 3, 0), piece(3, 5, 2, 1), piece(5, 7, 3, 2)]);
        let widest =
            [piece(0, 0, 3, 0), piece(3, 3, 1, 3), piece(4, 4, 1, 4), piece(5, 5, 2, 1), piece(7, 7, 3, 2)];
        assert_eq!(blocks.pieces(zero), widest);
        assert_eq!(Blocks::new(&regions, &[0..4, 4..10], Scope::Region).list(), [block(0, 0), block(1, 0)]);
    }
}
