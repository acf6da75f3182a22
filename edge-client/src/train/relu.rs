//! `y = max(x, 0)`; `dx = dy` where `y > 0`, else 0.
//!
//! The backward pass looks at the output, never the input, so the forward pass may overwrite its input.
//! At 0 the derivative is 0, as in PyTorch.

use super::Float;

pub(super) fn forward_in_place<T: Float>(values: &mut [T]) {
    for value in values {
        *value = rectified(*value);
    }
}

pub(super) fn forward<T: Float>(x: &[T], y: &mut [T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = rectified(x);
    }
}

pub(super) fn backward_in_place<T: Float>(y: &[T], gradient: &mut [T]) {
    for (gradient, &y) in gradient.iter_mut().zip(y) {
        *gradient = gated(y, *gradient);
    }
}

pub(super) fn backward<T: Float>(y: &[T], dy: &[T], dx: &mut [T]) {
    for ((dx, &dy), &y) in dx.iter_mut().zip(dy).zip(y) {
        *dx = gated(y, dy);
    }
}

/// NaN stays NaN, so that a diverged model can not pass for a dead one.
fn rectified<T: Float>(x: T) -> T {
    if x < T::ZERO { T::ZERO } else { x }
}

fn gated<T: Float>(y: T, dy: T) -> T {
    if y > T::ZERO { dy } else { T::ZERO }
}
