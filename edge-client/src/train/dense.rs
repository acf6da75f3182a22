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
