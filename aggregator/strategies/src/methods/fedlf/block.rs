//! The min-norm problem of one block.
//!
//! Rows that are exactly zero are left out, and so is g_P if it is only rounding. With `normalize` all rows have the mean
//! length of the clients' rows. Without it, absent clients count at the present learning rate.

use crate::{
    algebra::{NEGLIGIBLE, Products, add_scaled},
    methods::minnorm::min_norm,
};

/// A g_P this short, relative to its terms, has too few digits left to give a direction.
const CANCELLED: f64 = 1e-5;

/// The rows of a region, and how they are scaled.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// The first rows are those of clients.
    pub clients: usize,
    /// g_P as a combination of the clients' rows; `None`: without it.
    pub q: Option<Vec<f64>>,
    /// Absent clients: place among the rows, and learning rate now / then.
    pub past: Vec<(usize, f64)>,
    pub normalize: bool,
    pub ztol: f64,
}

/// The nearest point of a block.
#[derive(Clone, PartialEq, Debug)]
pub struct Solution {
    /// Of all rows.
    pub coefficients: Vec<f64>,
    pub norm: f64,
    pub is_zero: bool,
}

pub fn solve(products: &Products, problem: &Problem) -> Solution {
    let nothing = Solution { coefficients: vec![0.0; products.len()], norm: 0.0, is_zero: true };
    let clients: Vec<usize> = (0..problem.clients).filter(|&i| products.length(i) > 0.0).collect();
    if clients.is_empty() {
        return nothing;
    }
    let past = problem.past.iter().filter(|(place, _)| products.length(*place) > 0.0);
    let (members, ratios): (Vec<usize>, Vec<f64>) =
        clients.iter().map(|&i| (i, 1.0)).chain(past.copied()).unzip();
    let lengths: Vec<f64> =
        members.iter().zip(&ratios).map(|(&i, ratio)| products.length(i) * ratio).collect();
    let mean = lengths[..clients.len()].iter().sum::<f64>() / clients.len() as f64;
    // The unit of all values below.
    let unit = if problem.normalize { mean } else { lengths.iter().copied().fold(0.0, f64::max) };
    let factor =
        |(length, ratio): (&f64, &f64)| if problem.normalize { ratio / length } else { ratio / unit };
    let factors: Vec<f64> = lengths.iter().zip(&ratios).map(factor).collect();
    let base = products.select(&members, &factors);
    let guide = guide(&base, problem, &clients, &factors, mean);
    let whole = guide.as_ref().map_or_else(|| base.clone(), |guide| base.extended(guide));
    let mut weights = min_norm(&whole);
    let norm = whole.norm(&weights);
    if let Some(guide) = &guide {
        let own = weights[base.len()];
        weights.truncate(base.len());
        add_scaled(&mut weights, own, guide);
    }
    let mut coefficients = nothing.coefficients;
    for ((&member, weight), factor) in members.iter().zip(&weights).zip(&factors) {
        coefficients[member] = weight * factor * unit;
    }
    // If the terms of g_P cancel, its products are less precise, and so is the length of the point.
    let noise = guide.as_ref().map_or(0.0, |guide| NEGLIGIBLE * terms(&base, guide));
    let is_zero = norm <= noise.max(problem.ztol * whole.longest());
    Solution { coefficients, norm: norm * unit, is_zero }
}

/// g_P as a combination of the base rows, in their unit; `None` if it is 0.
fn guide(
    base: &Products,
    problem: &Problem,
    clients: &[usize],
    factors: &[f64],
    mean: f64,
) -> Option<Vec<f64>> {
    let q = problem.q.as_ref()?;
    // The true rows are the base rows divided by their factors.
    let mut guide: Vec<f64> =
        clients.iter().zip(factors).map(|(&client, factor)| q[client] / factor).collect();
    guide.resize(base.len(), 0.0);
    let length = base.norm(&guide);
    if length <= 1e-12 * mean || length <= CANCELLED * terms(base, &guide) {
        return None;
    }
    let unit = if problem.normalize { length } else { factors.first().map_or(1.0, |factor| 1.0 / factor) };
    guide.iter_mut().for_each(|coefficient| *coefficient /= unit);
    Some(guide)
}

/// Sum of the lengths of a combination's terms.
fn terms(products: &Products, coefficients: &[f64]) -> f64 {
    coefficients.iter().enumerate().map(|(i, coefficient)| coefficient.abs() * products.length(i)).sum()
}
