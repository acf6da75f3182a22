//! Numbers by label (0 or 1) and attribute: counts, loss sums, sample weights.

use crate::kernel::sum;

/// A number for each label y and attribute a, at `y * A + a`.
#[derive(Clone, PartialEq, Debug)]
pub struct Cells {
    values: Vec<f64>,
}

impl Cells {
    /// `None` unless there are two labels, at least one attribute, and all numbers are finite.
    pub fn new(values: Vec<f64>) -> Option<Self> {
        let sound = values.len() >= 2 && values.len().is_multiple_of(2);
        (sound && values.iter().all(|value| value.is_finite())).then_some(Self { values })
    }

    /// From counts of samples; `None` as for [`Cells::new`].
    pub fn counts(counts: &[u32]) -> Option<Self> {
        Self::new(counts.iter().copied().map(f64::from).collect())
    }

    /// From one row per label.
    pub fn from_rows(rows: &[Vec<f64>]) -> Option<Self> {
        match rows {
            [zero, one] if zero.len() == one.len() => Self::new([zero.as_slice(), one].concat()),
            _ => None,
        }
    }

    /// The same number everywhere.
    pub fn filled(attributes: usize, value: f64) -> Self {
        Self { values: vec![value; 2 * attributes] }
    }

    /// A
    pub fn attributes(&self) -> usize {
        self.values.len() / 2
    }

    /// All numbers, those of label 0 first.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// One row per label.
    pub fn rows(&self) -> Vec<Vec<f64>> {
        self.values.chunks(self.attributes().max(1)).map(<[f64]>::to_vec).collect()
    }

    /// The number of a label and an attribute.
    pub fn at(&self, label: usize, attribute: usize) -> f64 {
        self.values[self.index(label, attribute)]
    }

    /// Replaces the number of a label and an attribute.
    pub fn set(&mut self, label: usize, attribute: usize, value: f64) {
        let index = self.index(label, attribute);
        self.values[index] = value;
    }

    /// `x_{*,a}`
    pub fn group(&self, attribute: usize) -> f64 {
        self.at(0, attribute) + self.at(1, attribute)
    }

    /// `x_{y,*}`
    pub fn label(&self, label: usize) -> f64 {
        sum((0..self.attributes()).map(|attribute| self.at(label, attribute)))
    }

    /// The sum of all numbers.
    pub fn total(&self) -> f64 {
        sum(self.values.iter().copied())
    }

    /// Adds cell by cell; the shapes must be the same.
    pub fn add(&mut self, other: &Self) {
        *self = self.zip(other, |value, other| value + other);
    }

    /// Cell by cell; the shapes must be the same.
    pub fn zip(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> Self {
        assert_eq!(self.attributes(), other.attributes(), "cells of different shapes");
        Self { values: self.values.iter().zip(&other.values).map(|(&a, &b)| of(a, b)).collect() }
    }

    /// `sum x * y` over all cells.
    pub fn dot(&self, other: &Self) -> f64 {
        sum(self.values.iter().zip(&other.values).map(|(a, b)| a * b))
    }

    fn index(&self, label: usize, attribute: usize) -> usize {
        assert!(attribute < self.attributes(), "attribute {attribute} of {}", self.attributes());
        label * self.attributes() + attribute
    }
}
