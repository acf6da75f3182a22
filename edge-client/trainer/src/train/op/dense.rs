//! Dense layer: `y = x W^T + b`, with `W[outputs][inputs]`, for every row of every sample.
//!
//! ```text
//! dx = dy W          dW += s * dy^T x          db_o += s * sum_r dy[r][o]
//! ```

use super::fill_rows;
use crate::train::{Backend, Float, Store, View, ViewMut};

#[derive(Copy, Clone, Debug)]
pub(in crate::train) struct Sizes {
    /// Of the whole batch.
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
}

pub(in crate::train) fn forward<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    Sizes { rows, inputs, outputs }: Sizes,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    let store = if bias.is_some() { Store::Add(T::ONE) } else { Store::Replace };
    if bias.is_some() {
        fill_rows(outputs, bias, y);
    }
    let (x, w) = (View::new(x, rows, inputs), View::new(w, outputs, inputs));
    backend.gemm(x, w.transposed(), store, ViewMut::new(y, rows, outputs));
}

pub(in crate::train) fn input_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    Sizes { rows, inputs, outputs }: Sizes,
    dy: &[T],
    w: &[T],
    add: bool,
    dx: &mut [T],
) {
    let store = if add { Store::Add(T::ONE) } else { Store::Replace };
    let (dy, w) = (View::new(dy, rows, outputs), View::new(w, outputs, inputs));
    backend.gemm(dy, w, store, ViewMut::new(dx, rows, inputs));
}

pub(in crate::train) fn param_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    Sizes { rows, inputs, outputs }: Sizes,
    factor: T,
    dy: &[T],
    x: &[T],
    dw: &mut [T],
    db: &mut [T],
) {
    backend.column_sums(outputs, factor, dy, db);
    let (dy, x) = (View::new(dy, rows, outputs), View::new(x, rows, inputs));
    backend.gemm(dy.transposed(), x, Store::Add(factor), ViewMut::new(dw, outputs, inputs));
}
