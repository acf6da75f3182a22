//! Inner products of all updates, block by block, from one pass over stretches of their numbers.
//!
//! Rows are the participants in DeviceId order, then the absent devices of the cohort. Memory is
//! `rows x stretch` numbers and one square matrix per block, not `rows x model`.

use common::region::RegionMap;

use super::{
    CombineError, Row, Updates,
    blocks::{Block, Blocks},
    cohort::Cohort,
    kernel::Scalar,
};

/// Inner products of the rows that hold each block.
#[derive(Clone, PartialEq, Debug)]
pub struct Grams {
    rows: usize,
    blocks: Vec<Gram>,
}

/// Inner products of the updates inside one block.
#[derive(Clone, PartialEq, Debug)]
pub struct Gram {
    pub block: Block,
    /// The rows that hold the block, ascending.
    pub rows: Vec<usize>,
    /// `rows x rows`
    products: Vec<f64>,
}

impl Gram {
    pub fn new(block: Block, rows: Vec<usize>) -> Self {
        let products = vec![0.0; rows.len() * rows.len()];
        Self { block, rows, products }
    }

    /// `D_i . D_j` inside the block; i and j are positions in `rows`.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.products.get(i * self.rows.len() + j).copied().unwrap_or(0.0)
    }

    /// The whole matrix, row-major.
    pub fn products(&self) -> &[f64] {
        &self.products
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

/// Reads every update and multiplies it with every other.
pub(super) fn grams<U: Updates>(
    cohort: &Cohort<'_>,
    blocks: &Blocks,
    updates: &mut U,
) -> Result<Grams, CombineError<U::Error>> {
    let regions = cohort.regions();
    let rows = cohort.rows();
    let held = |block: &Block| {
        let set = regions.sets().get(block.region).copied().unwrap_or_default();
        let rows = (0..rows).filter(|&row| cohort.row_tier(row).is_some_and(|tier| set.contains(tier)));
        Gram::new(*block, rows.collect())
    };
    let mut grams = Grams { rows, blocks: blocks.list().iter().map(held).collect() };
    let mut values = Vec::with_capacity(rows);
    for row in 0..rows {
        values.push(read(cohort, regions, updates, row)?);
    }
    for (number, gram) in grams.blocks.iter_mut().enumerate() {
        let packed: Vec<Vec<f64>> = gram
            .rows
            .iter()
            .map(|&row| {
                let pieces = cohort.row_tier(row).map_or(&[][..], |tier| blocks.pieces(tier));
                let pieces = pieces.iter().filter(|piece| piece.block == number);
                pieces
                    .flat_map(|piece| values[row][piece.packed..piece.packed + piece.len].iter().copied())
                    .collect()
            })
            .collect();
        for i in 0..packed.len() {
            for j in 0..=i {
                let product: f64 = packed[i].iter().zip(&packed[j]).map(|(a, b)| a * b).sum();
                gram.products[i * packed.len() + j] = product;
                gram.products[j * packed.len() + i] = product;
            }
        }
    }
    Ok(grams)
}

fn read<U: Updates>(
    cohort: &Cohort<'_>,
    regions: &RegionMap,
    updates: &mut U,
    row: usize,
) -> Result<Vec<f64>, CombineError<U::Error>> {
    let Some((row, tier, device)) = Row::of(cohort, row) else { return Ok(vec![]) };
    let mut buffer = Vec::new();
    let update = updates.read(row, &mut buffer).map_err(CombineError::Read)?;
    let (expected, got) = (regions.slice_len(tier), update.len());
    if expected != got {
        return Err(CombineError::Update { device: device.clone(), expected, got });
    }
    Ok(update.iter().map(|value| value.wide()).collect())
}
