//! A step as a combination of updates.

use serde_json::{Map, Value};

use crate::{
    cohort::Cohort,
    gram::{Gram, Grams},
};

mod conflicts;
#[cfg(test)]
pub(crate) mod gradients;

/// How many of the rows of a block are participants: they come first.
pub(crate) fn participants(cohort: &Cohort, gram: &Gram) -> usize {
    gram.rows.partition_point(|&row| row < cohort.participants().len())
}

/// Losses of the participants that hold a block, in the order of its rows.
pub(crate) fn losses(cohort: &Cohort, gram: &Gram) -> Vec<f64> {
    let all = cohort.participants();
    gram.rows.iter().filter_map(|&row| all.get(row)).map(|participant| participant.loss()).collect()
}

/// Coefficients `c[row][block]`: the step of a block is `sum_rows c * D`.
///
/// Rows are the participants in DeviceId order, then the absent devices of the cohort. Blocks are those of
/// the [`crate::blocks::Blocks`] that the inner products were taken over.
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

    /// Coefficients of the rows that hold a block, each multiplied by `factor`.
    pub fn set_block(&mut self, block: usize, gram: &Gram, coefficients: &[f64], factor: f64) {
        for (&row, coefficient) in gram.rows.iter().zip(coefficients) {
            self.set(row, block, coefficient * factor);
        }
    }

    /// Multiplies the whole step.
    pub fn scale(&mut self, factor: f64) {
        self.coefficients.iter_mut().for_each(|coefficient| *coefficient *= factor);
    }

    pub fn note(&mut self, key: &str, value: impl Into<Value>) {
        self.notes.insert(key.to_owned(), value.into());
    }
}
