//! Matrix products in plain Rust: no heap, the same bits on every target.
//!
//! Every output is summed in one accumulator that starts at zero, in ascending order, with a
//! multiplication and an addition that are rounded separately (never fused). Blocking only decides
//! which outputs are computed side by side, so it changes speed and not bits.

use super::{Backend, Float, Sizes};

/// Outputs computed side by side where neighbours in memory are neighbours in the product.
const LANES: usize = 8;
/// Dot products computed side by side.
const DOTS: usize = 4;

/// The backend of every microcontroller, and of hosts that must match one.
#[derive(Copy, Clone, Debug, Default)]
pub struct Portable;

impl<T: Float> Backend<T> for Portable {
    fn gemm_nt(&self, sizes: Sizes, x: &[T], w: &[T], bias: Option<&[T]>, y: &mut [T]) {
        let Sizes { inputs, outputs, .. } = sizes;
        if inputs == 0 || outputs == 0 {
            return;
        }
        for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact_mut(outputs)) {
            let mut y = y.chunks_exact_mut(DOTS);
            let mut w = w.chunks_exact(DOTS * inputs);
            for (y, w) in y.by_ref().zip(w.by_ref()) {
                y.copy_from_slice(&dots(x, w));
            }
            for (y, w) in y.into_remainder().iter_mut().zip(w.remainder().chunks_exact(inputs)) {
                *y = dot(x, w);
            }
        }
        if let Some(bias) = bias {
            for y in y.chunks_exact_mut(outputs) {
                for (y, &bias) in y.iter_mut().zip(bias) {
                    *y += bias;
                }
            }
        }
    }

    fn gemm_nn(&self, sizes: Sizes, dy: &[T], w: &[T], dx: &mut [T]) {
        let Sizes { inputs, outputs, .. } = sizes;
        if inputs == 0 || outputs == 0 {
            return;
        }
        for (dy, dx) in dy.chunks_exact(outputs).zip(dx.chunks_exact_mut(inputs)) {
            combine(
                |k| dy.get(k).copied(),
                w,
                inputs,
                |at, sums| {
                    if let Some(dx) = dx.get_mut(at..at + sums.len()) {
                        dx.copy_from_slice(sums);
                    }
                },
            );
        }
    }

    fn gemm_tn(&self, sizes: Sizes, scale: T, dy: &[T], x: &[T], dw: &mut [T]) {
        let Sizes { inputs, outputs, .. } = sizes;
        if inputs == 0 || outputs == 0 {
            return;
        }
        for (unit, dw) in dw.chunks_exact_mut(inputs).enumerate() {
            combine(
                |k| dy.get(k * outputs + unit).copied(),
                x,
                inputs,
                |at, sums| {
                    for (dw, &sum) in dw.iter_mut().skip(at).zip(sums) {
                        *dw += scale * sum;
                    }
                },
            );
        }
    }
}

/// Four dot products with consecutive rows of `w`: four chains hide the latency of one.
#[inline]
fn dots<T: Float>(x: &[T], w: &[T]) -> [T; DOTS] {
    let (a, rest) = w.split_at(x.len().min(w.len()));
    let (b, rest) = rest.split_at(x.len().min(rest.len()));
    let (c, d) = rest.split_at(x.len().min(rest.len()));
    let mut sums = [T::ZERO; DOTS];
    for ((((&x, &a), &b), &c), &d) in x.iter().zip(a).zip(b).zip(c).zip(d) {
        sums[0] += x * a;
        sums[1] += x * b;
        sums[2] += x * c;
        sums[3] += x * d;
    }
    sums
}

#[inline]
fn dot<T: Float>(x: &[T], w: &[T]) -> T {
    x.iter().zip(w).fold(T::ZERO, |sum, (&x, &w)| sum + x * w)
}

/// `sum_k factor(k) * row_k` over the rows of a matrix, a few neighbouring columns at a time.
#[inline]
fn combine<T: Float>(
    factor: impl Fn(usize) -> Option<T>,
    matrix: &[T],
    width: usize,
    mut write: impl FnMut(usize, &[T]),
) {
    let mut at = 0;
    while at + LANES <= width {
        let mut sums = [T::ZERO; LANES];
        for (k, row) in matrix.chunks_exact(width).enumerate() {
            let (Some(factor), Some(row)) = (factor(k), row.get(at..).and_then(<[T]>::first_chunk::<LANES>))
            else {
                break;
            };
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += factor * value;
            }
        }
        write(at, &sums);
        at += LANES;
    }
    for at in at..width {
        let mut sum = T::ZERO;
        for (k, row) in matrix.chunks_exact(width).enumerate() {
            let (Some(factor), Some(&value)) = (factor(k), row.get(at)) else { break };
            sum += factor * value;
        }
        write(at, &[sum]);
    }
}
