//! Inner products of all updates, block by block, in one pass over parts of their numbers.
//!
//! Rows are the participants in DeviceId order, then the absent devices of the cohort. Memory is
//! `rows x stretch` numbers and one square matrix per block, not `rows x model`. The products are those of
//! `matrixmultiply`, by way of `ndarray`, which needs no unsafe code here.

use std::ops::Range;

use common::Tier;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, linalg::general_mat_mul};

use crate::{
    blocks::{Block, BlockPiece, Blocks},
    cohort::Cohort,
    error::CombineError,
    table::Table,
    updates::{UpdateRef, Updates},
};

/// Numbers of the model that are gathered at a time.
const STRETCH: usize = 4096;
/// Rows that are multiplied at a time.
const PANEL: usize = 56;
/// Message for a panic that cannot happen: panels and their products have fixed shapes.
const SHAPE: &str = "a panel holds whole rows";

/// Inner products of the rows that hold each block.
#[derive(Clone, PartialEq, Debug)]
pub struct Grams {
    rows: usize,
    blocks: Vec<Gram>,
}

/// Inner products of the updates inside one block.
#[derive(Clone, PartialEq, Debug)]
pub struct Gram {
    /// The block that the products are taken in.
    pub block: Block,
    /// The rows that hold the block, ascending.
    pub rows: Vec<usize>,
    /// `rows x rows`
    products: Table,
}

impl Gram {
    fn new(block: Block, rows: Vec<usize>) -> Self {
        let products = Table::zeros(rows.len(), rows.len());
        Self { block, rows, products }
    }

    /// `D_i . D_j` inside the block; i and j are positions in `rows`.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.products.at(i, j)
    }

    /// The whole matrix, row-major.
    pub fn products(&self) -> &[f64] {
        self.products.values()
    }
}

impl Grams {
    /// Number of participants and absent devices together.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// In the order of [`Blocks::list`].
    pub fn blocks(&self) -> &[Gram] {
        &self.blocks
    }

    /// `D_i . D_j` over the whole model; i and j are rows.
    pub fn whole(&self, i: usize, j: usize) -> f64 {
        let inside = |gram: &Gram| {
            let (i, j) = (gram.rows.binary_search(&i).ok()?, gram.rows.binary_search(&j).ok()?);
            Some(gram.at(i, j))
        };
        self.blocks.iter().filter_map(inside).sum()
    }
}

/// Reads every update in parts and multiplies it with every other one.
pub(crate) fn grams<U: Updates>(
    cohort: &Cohort,
    blocks: &Blocks,
    updates: &mut U,
) -> Result<Grams, CombineError<U::Error>> {
    let regions = cohort.regions();
    let held = |block: &Block| {
        let tiers = regions.sets()[block.region.index()];
        let rows = UpdateRef::rows(cohort).enumerate().filter(|(_, update)| tiers.contains(update.tier()));
        Gram::new(*block, rows.map(|(row, _)| row).collect())
    };
    let mut grams = Grams { rows: cohort.rows(), blocks: blocks.list().iter().map(held).collect() };
    let mut values = Vec::new();
    for start in (0..regions.parameters()).step_by(STRETCH) {
        let stretch = Stretch::new(regions.tiers(), blocks, &grams, start..start + STRETCH);
        values.resize(stretch.room, 0.0);
        stretch.gather(cohort, &grams, updates, &mut values)?;
        for (gram, buffer) in grams.blocks.iter_mut().zip(&stretch.buffers) {
            let end = buffer.start + gram.rows.len() * buffer.width;
            gram.multiply(&values[buffer.start..end], buffer.width);
        }
    }
    grams.blocks.iter_mut().for_each(Gram::mirror);
    Ok(grams)
}

impl Gram {
    /// Adds the products of `rows x width` numbers, panel by panel. Rows of the panel are multiplied with all rows up to its
    /// end, so that little of the upper triangle is computed twice.
    fn multiply(&mut self, values: &[f64], width: usize) {
        let rows = self.rows.len();
        let products = self.products.values_mut().chunks_mut(PANEL * rows.max(1));
        let panels = products.zip(values.chunks(PANEL * width.max(1)));
        for (number, (products, panel)) in panels.enumerate() {
            let end = rows.min((number + 1) * PANEL);
            let height = end - number * PANEL;
            let panel = ArrayView2::from_shape((height, width), panel).expect(SHAPE);
            let left = ArrayView2::from_shape((end, width), &values[..end * width]).expect(SHAPE);
            let mut products = ArrayViewMut2::from_shape((height, rows), products).expect(SHAPE);
            let mut products = products.slice_axis_mut(Axis(1), (..end).into());
            general_mat_mul(1.0, &panel, &left.t(), 1.0, &mut products);
        }
    }

    /// Copies the lower triangle to the upper one.
    fn mirror(&mut self) {
        for i in 0..self.rows.len() {
            for j in 0..i {
                *self.products.at_mut(j, i) = self.products.at(i, j);
            }
        }
    }
}

/// A part of the model, and which of its numbers belong to which block.
struct Stretch {
    /// By tier: the pieces inside the stretch, and the column of the block where each starts.
    pieces: Vec<Vec<(BlockPiece, usize)>>,
    /// By block.
    buffers: Vec<BlockBuffer>,
    room: usize,
}

/// Where the numbers of a block are gathered, `rows x width` from `start` on.
#[derive(Copy, Clone, Default)]
struct BlockBuffer {
    start: usize,
    width: usize,
}

impl Stretch {
    fn new(tiers: usize, blocks: &Blocks, grams: &Grams, range: Range<usize>) -> Self {
        let mut buffers = vec![BlockBuffer::default(); blocks.list().len()];
        let mut columns = vec![0; buffers.len()];
        let mut cut = |tier: Tier| {
            let all = blocks.pieces(tier);
            let first = all.partition_point(|piece| piece.full + piece.len <= range.start);
            let inside = all.iter().skip(first).take_while(|piece| piece.full < range.end);
            columns.fill(0);
            let mut assign = |piece: &BlockPiece| {
                let full = piece.full.max(range.start);
                let len = (piece.full + piece.len).min(range.end) - full;
                let column = columns[piece.block];
                columns[piece.block] += len;
                // All tiers that hold a block hold the same numbers of it, in the same order.
                buffers[piece.block].width = columns[piece.block].max(buffers[piece.block].width);
                (BlockPiece { packed: piece.packed + (full - piece.full), full, len, ..*piece }, column)
            };
            inside.map(&mut assign).collect()
        };
        let pieces = (0..tiers).map_while(Tier::new).map(&mut cut).collect();
        let mut room = 0;
        for (buffer, gram) in buffers.iter_mut().zip(&grams.blocks) {
            buffer.start = room;
            room += buffer.width * gram.rows.len();
        }
        Self { pieces, buffers, room }
    }

    /// Reads this stretch of every update into the buffers of its blocks.
    fn gather<U: Updates>(
        &self,
        cohort: &Cohort,
        grams: &Grams,
        updates: &mut U,
        values: &mut [f64],
    ) -> Result<(), CombineError<U::Error>> {
        let mut room = Vec::new();
        for (row, update) in UpdateRef::rows(cohort).enumerate() {
            let pieces = &self.pieces[update.tier().index()];
            let (Some((first, _)), Some((last, _))) = (pieces.first(), pieces.last()) else { continue };
            let target = |piece: &BlockPiece, column: usize| {
                let buffer = self.buffers[piece.block];
                let holders = &grams.blocks[piece.block].rows;
                // Every row with a piece of the block holds the block, so the number of holders before it is its place.
                let place = holders.partition_point(|&holder| holder < row);
                let start = buffer.start + place * buffer.width + column;
                start..start + piece.len
            };
            let got = if let [(piece, column)] = pieces.as_slice() {
                updates.read_part(update, piece.packed, &mut values[target(piece, *column)])
            } else {
                room.resize(last.packed + last.len - first.packed, 0.0);
                let got = updates.read_part(update, first.packed, &mut room);
                for (piece, column) in pieces {
                    let from = piece.packed - first.packed;
                    values[target(piece, *column)].copy_from_slice(&room[from..from + piece.len]);
                }
                got
            };
            update.check_len(cohort.regions(), got.map_err(CombineError::Read)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use common::{TierSet, message::Scalars, region::RegionMap, rng::Rng};
    use proptest::prelude::*;

    use super::*;
    use crate::blocks::Scope;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        /// Runs of all lengths around the length of a stretch, with three tiers that overlap in every way.
        #[test]
        fn products_are_those_of_the_vectors(seed: u64, devices in 1usize..60) {
            let mut rng = Rng::new(seed);
            let mut runs = Vec::new();
            let mut end = 0;
            for _ in 0..1 + rng.below(12) {
                let most = [9, 900, 2 * STRETCH as u64][rng.below(3) as usize];
                let len = 1 + rng.below(most) as usize;
                let kept = rng.below(8);
                let holds = |tier: &Tier| kept >> tier.index() & 1 == 1;
                let set = (0..3).filter_map(Tier::new).filter(holds).fold(TierSet::EMPTY, TierSet::with);
                runs.push((end, len, set));
                end += len;
            }
            let regions = RegionMap::from_spans(end, 3, runs);
            let layers = [0..end / 3, end / 3..end / 2, end / 2..end];
            let mut cohort = Cohort::new(regions.clone(), 0.1);
            cohort.set_layers(layers.as_slice());
            let mut updates: Vec<Vec<f32>> = Vec::new();
            for device in 0..devices {
                let tier = Tier::new(rng.below(3) as usize).unwrap();
                let scalars = Scalars { samples: 1, loss_before: 1.0, ..Scalars::default() };
                let name = format!("d{device:03}").parse().unwrap();
                cohort.admit(name, tier, scalars, &vec![0.0; regions.sets().len()]).unwrap();
                updates.push((0..regions.slice_len(tier)).map(|_| rng.unit_f32() - 0.4).collect());
            }
            let blocks = Blocks::new(&regions, &layers, Scope::Layer);
            let grams = grams(&cohort, &blocks, &mut updates.as_slice()).unwrap();
            for (number, gram) in grams.blocks().iter().enumerate() {
                let part = |row: usize| {
                    let tier = cohort.participants()[row].tier;
                    let own = blocks.pieces(tier).iter().filter(|piece| piece.block == number);
                    own.flat_map(|piece| &updates[row][piece.packed..piece.packed + piece.len])
                        .map(|&value| f64::from(value))
                        .collect::<Vec<_>>()
                };
                let parts: Vec<_> = gram.rows.iter().map(|&row| part(row)).collect();
                for i in 0..parts.len() {
                    for j in [0, i / 2, i] {
                        let plain: f64 = parts[i].iter().zip(&parts[j]).map(|(a, b)| a * b).sum();
                        let scale = parts[i].len() as f64;
                        prop_assert!((gram.at(i, j) - plain).abs() <= 1e-14 * scale);
                        prop_assert_eq!(gram.at(i, j), gram.at(j, i));
                    }
                }
            }
            if devices > 1 {
                updates[1].push(0.0);
                let longer = super::grams(&cohort, &blocks, &mut updates.as_slice());
                let refused = matches!(longer, Err(CombineError::Update { .. }));
                let held = regions.slice_len(cohort.participants()[1].tier) > 0;
                prop_assert_eq!(refused, held);
            }
        }
    }
}
