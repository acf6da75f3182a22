//! `y[c][i] = x[c][i] * s[c]`: `dx = dy * s`, and `ds[c]` is the sum of `dy * x` over the channel.

use crate::train::Float;

pub(in crate::train) fn forward<T: Float>(inner: usize, x: &[T], gate: &[T], y: &mut [T]) {
    scaled(inner, x, gate, false, y);
}

pub(in crate::train) fn backward<T: Float>(inner: usize, gate: &[T], dy: &[T], add: bool, dx: &mut [T]) {
    scaled(inner, dy, gate, add, dx);
}

pub(in crate::train) fn second_grad<T: Float>(inner: usize, x: &[T], dy: &[T], add: bool, gate: &mut [T]) {
    let inner = inner.max(1);
    for ((gate, x), dy) in gate.iter_mut().zip(x.chunks_exact(inner)).zip(dy.chunks_exact(inner)) {
        let mut sum = if add { *gate } else { T::ZERO };
        for (&x, &dy) in x.iter().zip(dy) {
            sum += x * dy;
        }
        *gate = sum;
    }
}

fn scaled<T: Float>(inner: usize, from: &[T], gate: &[T], add: bool, into: &mut [T]) {
    let inner = inner.max(1);
    for ((into, from), &gate) in into.chunks_exact_mut(inner).zip(from.chunks_exact(inner)).zip(gate) {
        for (into, &from) in into.iter_mut().zip(from) {
            *into = if add { *into + from * gate } else { from * gate };
        }
    }
}
