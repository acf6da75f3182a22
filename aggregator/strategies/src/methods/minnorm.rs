//! The point nearest to the origin in the hull of some vectors: `min ||sum x_i v_i||^2, x >= 0, sum x = 1`.
//!
//! Wolfe's algorithm on inner products alone. It keeps a corral S of independent vectors whose nearest point p is inside their
//! hull. It adds the vector with the smallest product with p and moves to the nearest point of the plane through S. On the way
//! it drops vectors that would get a negative weight. At the end `v_i.p >= p.p` for all i. p is unique, x need not be.
//!
//! [`min_norm_in_box`] is the same with limits on each weight.

use crate::algebra::{Products, add_scaled, dot};
use corral::Corral;

mod bounded;
mod corral;

pub use bounded::{min_norm_in_box, project};

/// How far `v_i.p` may stay below `p.p`, relative to the longest vector's square.
const GAP: f64 = 1e-14;
const MAX_ITERATIONS: usize = 10_000;

/// The nearest point as weights of the vectors. Empty for no vectors.
pub fn min_norm(products: &Products) -> Vec<f64> {
    let len = products.len();
    let scale = (0..len).map(|i| products.at(i, i)).fold(0.0, f64::max);
    let shortest = (0..len).min_by(|&i, &j| products.at(i, i).total_cmp(&products.at(j, j)));
    let Some(shortest) = shortest else { return vec![] };
    let mut weights = vec![0.0; len];
    if !(scale > 0.0 && scale.is_finite()) || products.at(shortest, shortest) <= 0.0 {
        weights[shortest] = 1.0;
        return weights;
    }
    let unit = Products::new(len, |i, j| products.at(i, j) / scale);
    let mut corral = Corral::new(&unit, shortest);
    let mut best = f64::INFINITY;
    for _ in 0..MAX_ITERATIONS {
        let now = corral.weights();
        let at = Optimality::of(&unit, &now);
        // Stop when rounding prevents progress: an iteration that gains nothing is discarded.
        if at.square >= best {
            break;
        }
        best = at.square;
        weights = now;
        if at.gap() <= GAP || corral.contains(at.behind) {
            break;
        }
        corral.add(at.behind);
        corral.settle();
    }
    polish(&unit, &mut weights);
    weights
}

/// How far weights are from the best ones: the largest `p.p - v_i.p`, relative to the longest vector's square.
pub fn residual(products: &Products, weights: &[f64]) -> f64 {
    let scale = (0..products.len()).map(|i| products.at(i, i)).fold(0.0, f64::max);
    if scale > 0.0 { Optimality::of(products, weights).gap() / scale } else { 0.0 }
}

/// How far a point is from the nearest one, and the vector that leads nearer.
struct Optimality {
    /// Products of all vectors with the point.
    along: Vec<f64>,
    /// p.p
    square: f64,
    /// The vector with the smallest product: the one that lies furthest behind the point.
    behind: usize,
}

impl Optimality {
    /// There must be a vector.
    fn of(products: &Products, weights: &[f64]) -> Self {
        let along = products.with(weights);
        let square = dot(&along, weights);
        let mut behind = 0;
        for i in 1..along.len() {
            if along[i].total_cmp(&along[behind]).is_lt() {
                behind = i;
            }
        }
        Self { along, square, behind }
    }

    fn gap(&self) -> f64 {
        self.square - self.along[self.behind]
    }
}

/// For vectors too close to each other to be told apart by a factorisation. Moves weight pairwise from the vector furthest
/// ahead to the one furthest behind, as long as that helps.
fn polish(unit: &Products, weights: &mut [f64]) {
    for _ in 0..20 * unit.len() {
        let at = Optimality::of(unit, weights);
        let held = (0..weights.len()).filter(|&i| weights[i] > 0.0);
        let ahead = held.max_by(|&i, &j| at.along[i].total_cmp(&at.along[j]));
        let Some(ahead) = ahead.filter(|&ahead| at.gap() > 1e-12 && ahead != at.behind) else {
            return;
        };
        let (i, j) = (ahead, at.behind);
        let between = (unit.at(i, i) + unit.at(j, j) - 2.0 * unit.at(i, j)).max(f64::EPSILON);
        let step = ((at.along[i] - at.along[j]) / between).min(weights[i]);
        let mut moved = weights.to_vec();
        moved[i] -= step;
        moved[j] += step;
        if dot(&unit.with(&moved), &moved) >= at.square {
            return;
        }
        weights.copy_from_slice(&moved);
    }
}

#[cfg(test)]
mod tests;
