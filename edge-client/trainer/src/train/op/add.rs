//! `y = a + b`; both gradients are `dy`.

use crate::train::Float;

pub(in crate::train) fn forward<T: Float>(second: &[T], y: &mut [T]) {
    for (y, &second) in y.iter_mut().zip(second) {
        *y += second;
    }
}

pub(in crate::train) fn backward<T: Float>(dy: &[T], add: bool, dx: &mut [T]) {
    if add {
        forward(dy, dx);
    } else {
        for (dx, &dy) in dx.iter_mut().zip(dy) {
            *dx = dy;
        }
    }
}
