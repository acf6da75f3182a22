//! The last of `steps` rows of each sample; only that row gets a gradient.

use crate::train::{Float, part::tail};

pub(in crate::train) fn forward<T: Float>(steps: usize, width: usize, x: &[T], y: &mut [T]) {
    for (x, y) in x.chunks_exact((steps * width).max(1)).zip(y.chunks_exact_mut(width.max(1))) {
        let last = tail(x, x.len().saturating_sub(width));
        for (y, &x) in y.iter_mut().zip(last) {
            *y = x;
        }
    }
}

pub(in crate::train) fn backward<T: Float>(steps: usize, width: usize, dy: &[T], add: bool, dx: &mut [T]) {
    if !add {
        dx.fill(T::ZERO);
    }
    for (dx, dy) in dx.chunks_exact_mut((steps * width).max(1)).zip(dy.chunks_exact(width.max(1))) {
        let start = dx.len().saturating_sub(width);
        for (dx, &dy) in dx.iter_mut().skip(start).zip(dy) {
            *dx += dy;
        }
    }
}
