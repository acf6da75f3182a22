//! `y = factor * x` and `dx = factor * dy`, in training only.

use crate::train::Float;

pub(in crate::train) fn apply<T: Float>(factor: f32, values: &mut [T]) {
    let factor = T::from_f32(factor);
    values.iter_mut().for_each(|value| *value *= factor);
}

pub(in crate::train) fn backward<T: Float>(factor: f32, dy: &[T], add: bool, dx: &mut [T]) {
    let factor = T::from_f32(factor);
    super::each(dx, dy, dy, add, |dy, _| factor * dy);
}
