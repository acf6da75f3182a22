//! A step as a combination of updates.

use serde_json::{Map, Value};

use crate::{
    cohort::Cohort,
    gram::{Gram, Grams},
    table::Table,
};

mod conflicts;
#[cfg(test)]
pub(crate) mod gradients;

/// How many rows of a block are participants; these come first.
pub(crate) fn participants(cohort: &Cohort, gram: &Gram) -> usize {
    gram.rows.partition_point(|&row| row < cohort.participants().len())
}

/// Losses of the participants that hold a block, in the order of its rows.
pub(crate) fn losses(cohort: &Cohort, gram: &Gram) -> Vec<f64> {
    let all = cohort.participants();
    gram.rows[..participants(cohort, gram)].iter().map(|&row| all[row].loss()).collect()
}

/// Coefficients `c[row][block]`: the step of a block is `sum_rows c * D`.
///
/// Rows are the participants in DeviceId order, then the absent devices of the cohort. Blocks are those of
/// the [`crate::blocks::Blocks`] that the inner products were taken over.
#[derive(Clone, PartialEq, Debug)]
pub struct Direction {
    /// `rows x blocks`
    coefficients: Table,
    /// Notes for the report.
    pub notes: Map<String, Value>,
}

impl Direction {
    /// A step of 0.
    pub fn none(grams: &Grams) -> Self {
        Self { coefficients: Table::zeros(grams.rows(), grams.blocks().len()), notes: Map::new() }
    }

    /// Whether it was made from these inner products.
    pub(crate) fn fits(&self, grams: &Grams) -> bool {
        self.coefficients.shape() == (grams.rows(), grams.blocks().len())
    }

    /// Sets `c[row][block]`.
    pub fn set(&mut self, row: usize, block: usize, coefficient: f64) {
        *self.coefficients.at_mut(row, block) = coefficient;
    }

    /// `c[row][block]`
    pub fn at(&self, row: usize, block: usize) -> f64 {
        self.coefficients.at(row, block)
    }

    /// Coefficients of one row, by block.
    pub fn row(&self, row: usize) -> &[f64] {
        self.coefficients.row(row)
    }

    /// Coefficients of the rows that hold a block, each multiplied by `factor`.
    pub fn set_block(&mut self, block: usize, gram: &Gram, coefficients: &[f64], factor: f64) {
        for (&row, coefficient) in gram.rows.iter().zip(coefficients) {
            self.set(row, block, coefficient * factor);
        }
    }

    /// Multiplies the whole step.
    pub fn scale(&mut self, factor: f64) {
        self.coefficients.values_mut().iter_mut().for_each(|coefficient| *coefficient *= factor);
    }

    /// Adds a figure to the round's report.
    pub fn note(&mut self, key: &str, value: impl Into<Value>) {
        self.notes.insert(key.to_owned(), value.into());
    }
}
