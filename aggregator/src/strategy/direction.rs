//! A step as a combination of updates.

use serde_json::{Map, Value};

use crate::combine::Grams;

/// Coefficients `c[row][block]`: the step of a block is `sum_rows c * D`.
///
/// Rows are the participants in DeviceId order, then the absent devices of the cohort. Blocks are those of
/// the [`crate::combine::Blocks`] that the inner products were taken over.
#[derive(Clone, PartialEq, Debug)]
pub struct Direction {
    blocks: usize,
    coefficients: Vec<f64>,
    /// What is worth reporting.
    pub notes: Map<String, Value>,
}

impl Direction {
    /// Nothing moves.
    pub fn none(grams: &Grams) -> Self {
        let (rows, blocks) = (grams.rows(), grams.blocks().len());
        Self { blocks, coefficients: vec![0.0; rows * blocks], notes: Map::new() }
    }

    pub fn set(&mut self, row: usize, block: usize, coefficient: f64) {
        if block < self.blocks
            && let Some(slot) = self.coefficients.get_mut(row * self.blocks + block)
        {
            *slot = coefficient;
        }
    }

    pub fn at(&self, row: usize, block: usize) -> f64 {
        let slot = (block < self.blocks).then(|| self.coefficients.get(row * self.blocks + block));
        slot.flatten().copied().unwrap_or(0.0)
    }

    /// Coefficients of one row, by block.
    pub fn row(&self, row: usize) -> &[f64] {
        self.coefficients.get(row * self.blocks..(row + 1) * self.blocks).unwrap_or(&[])
    }

    /// Multiplies the step of a block.
    pub fn scale_block(&mut self, block: usize, factor: f64) {
        for row in self.coefficients.chunks_mut(self.blocks.max(1)) {
            if let Some(slot) = row.get_mut(block) {
                *slot *= factor;
            }
        }
    }
}
