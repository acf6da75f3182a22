//! Dense layer: `y = x W^T + b`, with `W[outputs][inputs]`, for every row of every sample.
//!
//! ```text
//! dx = dy W          dW += s * dy^T x          db_o += s * sum_r dy[r][o]
//! ```

use super::fill_rows;
use crate::train::{Backend, Float, GemmWrite, MatrixView, MatrixViewMut};

#[derive(Copy, Clone, Debug)]
pub(in crate::train) struct DenseSizes {
    /// Of the whole batch.
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
}

pub(in crate::train) fn forward<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    DenseSizes { rows, inputs, outputs }: DenseSizes,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    let store = if bias.is_some() { GemmWrite::Add(T::ONE) } else { GemmWrite::Replace };
    if bias.is_some() {
        fill_rows(outputs, bias, y);
    }
    let (x, w) = (MatrixView::new(x, rows, inputs), MatrixView::new(w, outputs, inputs));
    backend.gemm(x, w.transposed(), store, MatrixViewMut::new(y, rows, outputs));
}

pub(in crate::train) fn input_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    DenseSizes { rows, inputs, outputs }: DenseSizes,
    dy: &[T],
    w: &[T],
    add: bool,
    dx: &mut [T],
) {
    let store = if add { GemmWrite::Add(T::ONE) } else { GemmWrite::Replace };
    let (dy, w) = (MatrixView::new(dy, rows, outputs), MatrixView::new(w, outputs, inputs));
    backend.gemm(dy, w, store, MatrixViewMut::new(dx, rows, inputs));
}

pub(in crate::train) fn param_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    DenseSizes { rows, inputs, outputs }: DenseSizes,
    factor: T,
    dy: &[T],
    x: &[T],
    dw: &mut [T],
    db: &mut [T],
) {
    backend.column_sums(outputs, factor, dy, db);
    let (dy, x) = (MatrixView::new(dy, rows, outputs), MatrixView::new(x, rows, inputs));
    backend.gemm(dy.transposed(), x, GemmWrite::Add(factor), MatrixViewMut::new(dw, outputs, inputs));
}
