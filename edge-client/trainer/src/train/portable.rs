//! Products in plain Rust: no heap, the same bits on every target.
//!
//! Every output of a product or convolution is summed in one accumulator that starts at zero, in ascending order (see `direct`
//! for the order of a convolution). Blocking only decides which outputs are computed side by side, so it does not change bits.
//! The sum is then stored, or multiplied by its factor and added, each rounded.
//!
//! [`Plain`] rounds each product and each sum. [`Fused`] rounds once per multiply-accumulate. Nothing else in training is
//! fused.

use core::marker::PhantomData;

use common::plan::Conv;

use super::{
    Backend, Float, GemmWrite, MatrixView, MatrixViewMut,
    part::{part, tail, value},
};

mod direct;

/// Outputs computed side by side where `b` has contiguous rows.
const LANES: usize = 8;
/// Dot products computed side by side.
const DOTS: usize = 4;

/// How a multiply-accumulate is rounded.
pub trait Arithmetic {
    /// `sum + a * b`.
    fn accumulate<T: Float>(sum: T, a: T, b: T) -> T;
}

/// `sum + a * b`, rounded twice.
#[derive(Copy, Clone, Debug, Default)]
pub struct Plain;

/// `fma(a, b, sum)`, rounded once. Fast where the processor has the instruction and the compiler may use it.
#[derive(Copy, Clone, Debug, Default)]
pub struct Fused;

impl Arithmetic for Plain {
    #[inline(always)]
    fn accumulate<T: Float>(sum: T, a: T, b: T) -> T {
        sum + a * b
    }
}

impl Arithmetic for Fused {
    #[inline(always)]
    fn accumulate<T: Float>(sum: T, a: T, b: T) -> T {
        a.fused(b, sum)
    }
}

/// The backend of every microcontroller, and of hosts that must match one.
#[derive(Copy, Clone, Debug, Default)]
pub struct Portable<A = Plain>(PhantomData<A>);

impl Portable<Plain> {
    /// The arithmetic of cores without an FPU.
    pub const fn plain() -> Self {
        Self(PhantomData)
    }
}

impl Portable<Fused> {
    /// The arithmetic of cores with an FPU.
    pub const fn fused() -> Self {
        Self(PhantomData)
    }
}

impl<A: Arithmetic, T: Float> Backend<T> for Portable<A> {
    fn gemm(
        &mut self,
        a: MatrixView<'_, T>,
        b: MatrixView<'_, T>,
        store: GemmWrite<T>,
        c: MatrixViewMut<'_, T>,
    ) {
        let (inner, columns) = (a.columns.min(b.rows), c.columns.min(b.columns));
        let rows = a.rows.min(c.rows);
        let b = MatrixView { rows: inner, columns, ..b };
        let mut row = 0;
        while row < rows {
            let pair = row + 1 < rows && b.strides.1 == 1;
            let step = if pair { 2 } else { 1 };
            let from = |row: usize| tail(a.data, row.saturating_mul(a.strides.0));
            let start = row.saturating_mul(c.stride);
            let Some(out) = c.data.get_mut(start..) else { return };
            if pair {
                let (first, second) = out.split_at_mut(c.stride.min(out.len()));
                lanes::<A, T, 2>([from(row), from(row + 1)], a.strides.1, b, store, [first, second]);
            } else if b.strides.1 == 1 {
                lanes::<A, T, 1>([from(row)], a.strides.1, b, store, [out]);
            } else {
                columns_of::<A, T>(from(row), a.strides.1, b, store, out);
            }
            row += step;
        }
    }

    fn conv(&mut self, conv: &Conv, samples: usize, x: &[T], w: &[T], y: &mut [T]) {
        direct::forward::<A, T>(conv, samples, x, w, y);
    }

    fn conv_input_grad(&mut self, conv: &Conv, samples: usize, dy: &[T], w: &[T], dx: &mut [T]) {
        direct::input_grad::<A, T>(conv, samples, dy, w, dx);
    }

    fn conv_weight_grad(&mut self, conv: &Conv, samples: usize, factor: T, dy: &[T], x: &[T], dw: &mut [T]) {
        direct::weight_grad::<A, T>(conv, samples, factor, dy, x, dw);
    }
}

pub(super) use direct::ConvShape;
#[cfg(feature = "host")]
pub(super) use direct::{
    forward as direct_forward, input_grad as direct_input_grad, weight_grad as direct_weight_grad,
};

#[inline(always)]
fn put<T: Float>(place: &mut T, sum: T, store: GemmWrite<T>) {
    match store {
        GemmWrite::Replace => *place = sum,
        GemmWrite::Add(factor) => *place += factor * sum,
    }
}

/// `R` rows of `a` times a matrix whose rows are contiguous, a few neighbouring columns at a time.
#[inline(always)]
fn lanes<A: Arithmetic, T: Float, const R: usize>(
    a: [&[T]; R],
    step: usize,
    b: MatrixView<'_, T>,
    store: GemmWrite<T>,
    mut c: [&mut [T]; R],
) {
    let mut at = 0;
    while at + LANES <= b.columns {
        let mut sums = [[T::ZERO; LANES]; R];
        for k in 0..b.rows {
            let Some(row) = b.data.get(k * b.strides.0 + at..).and_then(<[T]>::first_chunk::<LANES>) else {
                break;
            };
            for (sums, a) in sums.iter_mut().zip(&a) {
                let factor = value(a, k * step);
                for (sum, &value) in sums.iter_mut().zip(row) {
                    *sum = A::accumulate(*sum, factor, value);
                }
            }
        }
        for (c, sums) in c.iter_mut().zip(&sums) {
            for (place, &sum) in c.iter_mut().skip(at).zip(sums) {
                put(place, sum, store);
            }
        }
        at += LANES;
    }
    for at in at..b.columns {
        for (c, a) in c.iter_mut().zip(&a) {
            let column = b.data.iter().skip(at).step_by(b.strides.0.max(1)).take(b.rows);
            let sum = a.iter().step_by(step.max(1)).zip(column);
            let sum = sum.fold(T::ZERO, |sum, (&a, &b)| A::accumulate(sum, a, b));
            if let Some(place) = c.get_mut(at) {
                put(place, sum, store);
            }
        }
    }
}

/// One row times a matrix with strided columns. Four independent sums hide the latency of one.
#[inline(always)]
fn columns_of<A: Arithmetic, T: Float>(
    a: &[T],
    step: usize,
    b: MatrixView<'_, T>,
    store: GemmWrite<T>,
    c: &mut [T],
) {
    let column = |at: usize| tail(b.data, at * b.strides.1);
    let (step, down) = (step.max(1), b.strides.0.max(1));
    let mut at = 0;
    while at + DOTS <= b.columns {
        let columns: [&[T]; DOTS] = core::array::from_fn(|dot| column(at + dot));
        let mut sums = [T::ZERO; DOTS];
        if step == 1 && down == 1 {
            let columns = columns.map(|column| part(column, 0..b.rows));
            let a = part(a, 0..b.rows);
            let [p, q, r, s] = columns;
            for ((((&a, &p), &q), &r), &s) in a.iter().zip(p).zip(q).zip(r).zip(s) {
                sums[0] = A::accumulate(sums[0], a, p);
                sums[1] = A::accumulate(sums[1], a, q);
                sums[2] = A::accumulate(sums[2], a, r);
                sums[3] = A::accumulate(sums[3], a, s);
            }
        } else {
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = dot::<A, T>(a, step, column, down, b.rows);
            }
        }
        for (place, sum) in c.iter_mut().skip(at).zip(sums) {
            put(place, sum, store);
        }
        at += DOTS;
    }
    for at in at..b.columns {
        let sum = dot::<A, T>(a, step, column(at), down, b.rows);
        if let Some(place) = c.get_mut(at) {
            put(place, sum, store);
        }
    }
}

#[inline(always)]
fn dot<A: Arithmetic, T: Float>(a: &[T], step: usize, b: &[T], down: usize, len: usize) -> T {
    let pairs = a.iter().step_by(step).zip(b.iter().step_by(down)).take(len);
    pairs.fold(T::ZERO, |sum, (&a, &b)| A::accumulate(sum, a, b))
}
