//! Dense layer: `y = x W^T + b`, with `W[outputs][inputs]`.
//!
//! ```text
//! dx = dy W          dW += s * dy^T x          db_o += s * sum_r dy[r][o]
//! ```
//! `s` is 1 where gradients are kept and `-lr` where they are applied to the weights at once.

use super::{Backend, Float, Sizes};

/// Columns summed side by side.
const LANES: usize = 8;

pub(super) fn forward<T: Float>(
    backend: &(impl Backend<T> + ?Sized),
    sizes: Sizes,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    backend.gemm_nt(sizes, x, w, bias, y);
}

pub(super) fn input_grad<T: Float>(
    backend: &(impl Backend<T> + ?Sized),
    sizes: Sizes,
    dy: &[T],
    w: &[T],
    dx: &mut [T],
) {
    backend.gemm_nn(sizes, dy, w, dx);
}

pub(super) fn weight_grad<T: Float>(
    backend: &(impl Backend<T> + ?Sized),
    sizes: Sizes,
    scale: T,
    dy: &[T],
    x: &[T],
    dw: &mut [T],
) {
    backend.gemm_tn(sizes, scale, dy, x, dw);
}

/// One accumulator per unit and rows in ascending order, as in `Portable`.
pub(super) fn bias_grad<T: Float>(outputs: usize, scale: T, dy: &[T], db: &mut [T]) {
    for (block, db) in db.chunks_mut(LANES).enumerate() {
        let mut sums = [T::ZERO; LANES];
        for row in dy.chunks_exact(outputs.max(1)) {
            let row = row.get(block * LANES..).unwrap_or_default();
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += value;
            }
        }
        for (db, &sum) in db.iter_mut().zip(&sums) {
            *db += scale * sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use common::rng::Rng;

    use super::*;
    use crate::train::Portable;

    /// The layer is linear in each argument, so central differences are exact up to rounding.
    #[test]
    fn gradients_match_finite_differences() {
        let sizes = Sizes { rows: 3, inputs: 5, outputs: 9 };
        let mut rng = Rng::new(1);
        let mut random = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<f64>>();
        let (x, w, b, dy) = (random(15), random(45), random(9), random(27));
        let value = |x: &[f64], w: &[f64], b: &[f64]| {
            let mut y = vec![0.0; 27];
            forward(&Portable, sizes, x, w, Some(b), &mut y);
            y.iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
        };
        let slope = |f: &dyn Fn(f64) -> f64| (f(0.5) - f(-0.5)) / 1.0;
        let moved = |values: &[f64], at: usize, by: f64| {
            let mut values = values.to_vec();
            values[at] += by;
            values
        };
        let (mut dx, mut dw, mut db) = (vec![f64::NAN; 15], vec![0.0; 45], vec![0.0; 9]);
        input_grad(&Portable, sizes, &dy, &w, &mut dx);
        weight_grad(&Portable, sizes, 1.0, &dy, &x, &mut dw);
        bias_grad(9, 1.0, &dy, &mut db);
        for (at, got) in dx.iter().enumerate() {
            assert!((slope(&|h| value(&moved(&x, at, h), &w, &b)) - got).abs() < 1e-12);
        }
        for (at, got) in dw.iter().enumerate() {
            assert!((slope(&|h| value(&x, &moved(&w, at, h), &b)) - got).abs() < 1e-12);
        }
        for (at, got) in db.iter().enumerate() {
            assert!((slope(&|h| value(&x, &w, &moved(&b, at, h))) - got).abs() < 1e-12);
        }
    }
}
