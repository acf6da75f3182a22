//! The min-norm problem of one block.
//!
//! Rows that are exactly zero are left out, and so is g_P where it is nothing but rounding. With `normalize`
//! all rows have the mean length of the clients' rows; without, absent clients count at the learning rate
//! of now.

use crate::{
    algebra::{NOTHING, Products, add_scaled},
    methods::minnorm::min_norm,
};

/// Relative to its terms, a g_P this short has too few digits left to say where it points.
const CANCELLED: f64 = 1e-5;

/// Which rows a region has.
#[derive(Clone, PartialEq, Debug)]
pub struct Rows {
    /// The first rows are those of clients.
    pub clients: usize,
    /// g_P as a combination of the clients' rows; empty: without.
    pub q: Vec<f64>,
    /// Absent clients: place among the rows, and learning rate now / then.
    pub past: Vec<(usize, f64)>,
    pub normalize: bool,
    pub ztol: f64,
}

/// The nearest point of a block.
#[derive(Clone, PartialEq, Debug)]
pub struct Solved {
    /// Of all rows.
    pub coefficients: Vec<f64>,
    pub norm: f64,
    pub is_zero: bool,
}

pub fn solve(products: &Products, rows: &Rows) -> Solved {
    let nothing = Solved { coefficients: vec![0.0; products.len()], norm: 0.0, is_zero: true };
    let clients: Vec<usize> = (0..rows.clients).filter(|&i| products.length(i) > 0.0).collect();
    if clients.is_empty() {
        return nothing;
    }
    let past = rows.past.iter().filter(|(place, _)| products.length(*place) > 0.0);
    let (members, ratios): (Vec<usize>, Vec<f64>) =
        clients.iter().map(|&i| (i, 1.0)).chain(past.copied()).unzip();
    let lengths: Vec<f64> =
        members.iter().zip(&ratios).map(|(&i, ratio)| products.length(i) * ratio).collect();
    let mean = lengths[..clients.len()].iter().sum::<f64>() / clients.len() as f64;
    // Everything below is in this unit.
    let unit = if rows.normalize { mean } else { lengths.iter().copied().fold(0.0, f64::max) };
    let factor = |(length, ratio): (&f64, &f64)| if rows.normalize { ratio / length } else { ratio / unit };
    let factors: Vec<f64> = lengths.iter().zip(&ratios).map(factor).collect();
    let base = products.select(&members, &factors);
    let pull = pull(&base, rows, &clients, &factors, mean);
    let whole = pull.as_ref().map_or_else(|| base.clone(), |pull| base.extended(pull));
    let mut weights = min_norm(&whole);
    let norm = whole.norm(&weights);
    if let Some(pull) = &pull {
        let own = weights.pop().unwrap_or(0.0);
        add_scaled(&mut weights, own, pull);
    }
    let mut coefficients = nothing.coefficients;
    for ((&member, weight), factor) in members.iter().zip(&weights).zip(&factors) {
        coefficients[member] = weight * factor * unit;
    }
    // Where the terms of g_P cancel, its products are known less well, and so is the length of the point.
    let noise = pull.as_ref().map_or(0.0, |pull| NOTHING * terms(&base, pull));
    let is_zero = norm <= noise.max(rows.ztol * whole.longest());
    Solved { coefficients, norm: norm * unit, is_zero }
}

/// g_P as a combination of the base rows, in their unit; `None` where it is 0.
fn pull(base: &Products, rows: &Rows, clients: &[usize], factors: &[f64], mean: f64) -> Option<Vec<f64>> {
    // The true rows are the base rows divided by their factors.
    let q = |(&client, factor): (&usize, &f64)| rows.q.get(client).copied().unwrap_or(0.0) / factor;
    let mut pull: Vec<f64> = clients.iter().zip(factors).map(q).collect();
    pull.resize(base.len(), 0.0);
    let length = base.norm(&pull);
    if length <= 1e-12 * mean || length <= CANCELLED * terms(base, &pull) {
        return None;
    }
    let unit = if rows.normalize { length } else { factors.first().map_or(1.0, |factor| 1.0 / factor) };
    pull.iter_mut().for_each(|pull| *pull /= unit);
    Some(pull)
}

/// Sum of the lengths of a combination's terms.
fn terms(products: &Products, coefficients: &[f64]) -> f64 {
    coefficients.iter().enumerate().map(|(i, coefficient)| coefficient.abs() * products.length(i)).sum()
}
