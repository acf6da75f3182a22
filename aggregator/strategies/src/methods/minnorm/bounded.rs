//! The nearest point with limits: `min ||sum x_i v_i||^2, sum x = 1, lo <= x <= hi`.
//!
//! Accelerated projected gradient, restarted when it overshoots, finds the weights that are at a limit. The others then follow
//! exactly from linear equations, as for a corral.

use crate::methods::minnorm::{Products, dot};

/// Enough even for many vectors whose nearest point is almost zero.
const STEPS: usize = 20_000;
/// Steps between two checks of the gap.
const LOOK: usize = 20;
const GAP: f64 = 1e-14;
/// Added to the factor's diagonal, so that it always exists; the refinement steps correct the error.
const RIDGE: f64 = 1e-11;
const REFINEMENTS: usize = 3;

/// Weights of the vectors. The limits must leave room for a sum of 1.
pub fn min_norm_in_box(products: &Products, lo: &[f64], hi: &[f64]) -> Vec<f64> {
    let len = products.len();
    let middle: Vec<f64> = lo.iter().zip(hi).map(|(lo, hi)| 0.5 * (lo + hi)).collect();
    let mut x = project(&middle, lo, hi);
    let scale = (0..len).map(|i| products.at(i, i)).fold(0.0, f64::max);
    if !(scale > 0.0 && scale.is_finite()) {
        return x;
    }
    let unit = Products::new(len, |i, j| products.at(i, j) / scale);
    // No eigenvalue is above the largest sum of a row.
    let steepest = (0..len).map(|i| unit.row(i).iter().map(|v| v.abs()).sum()).fold(f64::EPSILON, f64::max);
    let (mut ahead, mut speed) = (x.clone(), 1.0f64);
    for step in 1..=STEPS {
        let slope = unit.with(&ahead);
        let down: Vec<f64> = ahead.iter().zip(&slope).map(|(x, slope)| x - slope / steepest).collect();
        let next = project(&down, lo, hi);
        let change: Vec<f64> = next.iter().zip(&x).map(|(next, x)| next - x).collect();
        let back: Vec<f64> = ahead.iter().zip(&next).map(|(ahead, next)| ahead - next).collect();
        let faster =
            if dot(&back, &change) > 0.0 { 1.0 } else { 0.5 * (1.0 + (1.0 + 4.0 * speed * speed).sqrt()) };
        let push = if faster == 1.0 { 0.0 } else { (speed - 1.0) / faster };
        ahead = next.iter().zip(&change).map(|(next, change)| next + push * change).collect();
        (x, speed) = (next, faster);
        if step % LOOK == 0 {
            if let Some(exact) = refine(&unit, &x, lo, hi)
                && gap(&unit, &exact, lo, hi) <= GAP
            {
                return exact;
            }
            if gap(&unit, &x, lo, hi) <= GAP {
                break;
            }
        }
    }
    x
}

/// The nearest `x` to `v` with `sum x = 1` and `lo <= x <= hi`: `clip(v - shift)`, the shift by bisection.
pub fn project(v: &[f64], lo: &[f64], hi: &[f64]) -> Vec<f64> {
    let clip = |shift: f64| {
        v.iter().zip(lo.iter().zip(hi)).map(move |(v, (lo, hi))| (v - shift).clamp(*lo, lo.max(*hi)))
    };
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for (v, (lo, hi)) in v.iter().zip(lo.iter().zip(hi)) {
        (low, high) = (low.min(v - hi), high.max(v - lo));
    }
    for _ in 0..100 {
        let shift = 0.5 * (low + high);
        if shift <= low || shift >= high {
            break;
        }
        if clip(shift).sum::<f64>() > 1.0 { low = shift } else { high = shift }
    }
    // The shift is exact once the weights inside the limits are known.
    let shift = 0.5 * (low + high);
    let (mut inside, mut free) = (0.0, 0.0);
    for ((x, v), (lo, hi)) in clip(shift).zip(v).zip(lo.iter().zip(hi)) {
        let is_free = x > *lo && x < *hi;
        inside += if is_free { *v } else { x };
        free += f64::from(u8::from(is_free));
    }
    let exact = (inside - 1.0) / free;
    let near = free > 0.0 && (exact - shift).abs() <= 1e-9 * (1.0 + shift.abs());
    clip(if near { exact } else { shift }).collect()
}

/// How much lower the best corner along the slope is.
pub(super) fn gap(products: &Products, x: &[f64], lo: &[f64], hi: &[f64]) -> f64 {
    let slope = products.with(x);
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&i, &j| slope[i].total_cmp(&slope[j]));
    let mut left = 1.0 - lo.iter().sum::<f64>();
    let mut corner = dot(lo, &slope);
    for i in order {
        let more = left.clamp(0.0, hi[i] - lo[i]);
        corner += more * slope[i];
        left -= more;
    }
    dot(x, &slope) - corner
}

/// Keeps weights at their limits and solves for the others: `(G_FF + 1 1^T) d = t 1 - slope_F` for the remaining step `d`, with
/// `t` so that all sum to 1. `None` if a weight would leave its limits.
fn refine(unit: &Products, x: &[f64], lo: &[f64], hi: &[f64]) -> Option<Vec<f64>> {
    let is_free = |i: &usize| x[*i] > lo[*i] + 1e-9 && x[*i] < hi[*i] - 1e-9;
    let free: Vec<usize> = (0..x.len()).filter(is_free).collect();
    let nearest = |i: usize| if x[i] - lo[i] <= hi[i] - x[i] { lo[i] } else { hi[i] };
    let mut exact: Vec<f64> = (0..x.len()).map(|i| if is_free(&i) { x[i] } else { nearest(i) }).collect();
    if free.is_empty() {
        return ((1.0 - exact.iter().sum::<f64>()).abs() <= 1e-14).then_some(exact);
    }
    let factor = factor(&free, unit);
    let ones = solve(&factor, vec![1.0; free.len()]);
    for _ in 0..REFINEMENTS {
        let slope = unit.with(&exact);
        let back = solve(&factor, free.iter().map(|&i| slope[i]).collect());
        let rest = 1.0 - exact.iter().sum::<f64>();
        let t = (rest + back.iter().sum::<f64>()) / ones.iter().sum::<f64>();
        for ((&i, one), back) in free.iter().zip(&ones).zip(&back) {
            exact[i] += t * one - back;
        }
    }
    free.iter().all(|&i| (lo[i]..=hi[i]).contains(&exact[i])).then_some(exact)
}

/// Lower triangle of `G_FF + 1 1^T` with [`RIDGE`] added to the diagonal. If more vectors than dimensions allow many best
/// weights, the step goes to the nearest ones.
fn factor(free: &[usize], unit: &Products) -> Vec<Vec<f64>> {
    let mut factor: Vec<Vec<f64>> = Vec::with_capacity(free.len());
    for (place, &i) in free.iter().enumerate() {
        let mut row: Vec<f64> = free[..place].iter().map(|&j| unit.at(i, j) + 1.0).collect();
        for k in 0..place {
            row[k] = (row[k] - dot(&factor[k][..k], &row[..k])) / factor[k][k];
        }
        let own = unit.at(i, i) + 1.0 + RIDGE;
        row.push((own - dot(&row, &row)).max(1e-15 * own).sqrt());
        factor.push(row);
    }
    factor
}

fn solve(factor: &[Vec<f64>], mut y: Vec<f64>) -> Vec<f64> {
    for (i, row) in factor.iter().enumerate() {
        y[i] = (y[i] - dot(&row[..i], &y[..i])) / row[i];
    }
    for (i, row) in factor.iter().enumerate().rev() {
        y[i] /= row[i];
        let own = y[i];
        crate::methods::minnorm::add_scaled(&mut y[..i], -own, &row[..i]);
    }
    y
}
