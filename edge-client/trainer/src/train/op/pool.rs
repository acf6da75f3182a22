//! Pooling over images: the largest number or the mean under a kernel.
//!
//! Backward of the maximum searches the input again; of equal numbers the first (row by row) gets the gradient. In forward, NaN
//! counts as the maximum, so that divergence is detected.

use common::plan::{Pool, PoolKind};

use crate::train::{
    Float,
    part::{part, part_mut, tail},
    portable::ConvShape,
};

pub(in crate::train) fn forward<T: Float>(pool: &Pool, x: &[T], y: &mut [T]) {
    let shape = ConvShape::window(&pool.window);
    let width = shape.out[1].max(1);
    let planes = x.chunks_exact(shape.area().max(1)).zip(y.chunks_exact_mut(shape.out_area().max(1)));
    for (x, y) in planes {
        for (oy, y) in y.chunks_exact_mut(width).enumerate() {
            match pool.kind {
                PoolKind::Max if pairs(&shape) => {
                    let (top, bottom) = rows_of(&shape, x, oy);
                    for ((y, &[a, b]), &[c, d]) in
                        y.iter_mut().zip(top.as_chunks().0).zip(bottom.as_chunks().0)
                    {
                        *y = larger(larger(a, b), larger(c, d));
                    }
                }
                PoolKind::Max => {
                    for (ox, y) in y.iter_mut().enumerate() {
                        *y = largest(&shape, x, oy, ox).1;
                    }
                }
                PoolKind::Average | PoolKind::AveragePadded => {
                    for (ox, y) in y.iter_mut().enumerate() {
                        let mut sum = T::ZERO;
                        let count = visit(&shape, oy, ox, |at, len| {
                            for &value in part(x, at..at + len) {
                                sum += value;
                            }
                        });
                        *y = sum / divisor(pool, count);
                    }
                }
            }
        }
    }
}

pub(in crate::train) fn backward<T: Float>(pool: &Pool, x: &[T], dy: &[T], add: bool, dx: &mut [T]) {
    let shape = ConvShape::window(&pool.window);
    let (area, width) = (shape.area().max(1), shape.out[1].max(1));
    let planes = dx.chunks_exact_mut(area).zip(dy.chunks_exact(shape.out_area().max(1)));
    for (plane, (dx, dy)) in planes.enumerate() {
        if !add {
            dx.fill(T::ZERO);
        }
        // Only the maximum reads the input again; that of an average is not kept.
        let x = if pool.kind == PoolKind::Max { tail(x, plane * area) } else { &[] };
        for (oy, dy) in dy.chunks_exact(width).enumerate() {
            match pool.kind {
                PoolKind::Max if pairs(&shape) => {
                    let (top, bottom) = rows_of(&shape, x, oy);
                    let windows = top.as_chunks().0.iter().zip(bottom.as_chunks().0);
                    for (ox, ((&[a, b], &[c, d]), &dy)) in windows.zip(dy).enumerate() {
                        // Finds the first maximum without branches, because they could not be predicted.
                        let line = usize::from(larger(c, d) > larger(a, b));
                        let right = [usize::from(b > a), usize::from(d > c)][line];
                        if let Some(dx) = dx.get_mut((2 * oy + line) * shape.size[1] + 2 * ox + right) {
                            *dx += dy;
                        }
                    }
                }
                PoolKind::Max => {
                    for (ox, &dy) in dy.iter().enumerate() {
                        if let Some(dx) = dx.get_mut(largest(&shape, x, oy, ox).0) {
                            *dx += dy;
                        }
                    }
                }
                PoolKind::Average | PoolKind::AveragePadded => {
                    for (ox, &dy) in dy.iter().enumerate() {
                        let share = dy / divisor(pool, visit(&shape, oy, ox, |_, _| {}));
                        visit(&shape, oy, ox, |at, len| {
                            for dx in part_mut(dx, at..at + len) {
                                *dx += share;
                            }
                        });
                    }
                }
            }
        }
    }
}

fn divisor<T: Float>(pool: &Pool, inside: usize) -> T {
    let count = match pool.kind {
        PoolKind::AveragePadded => pool.window.kernel_area() as f64,
        PoolKind::Average | PoolKind::Max => inside as f64,
    };
    T::from_f64(count)
}

/// The most common pooling: 2 x 2, step 2, no padding.
fn pairs(shape: &ConvShape) -> bool {
    shape.kernel == [2, 2] && shape.stride == [2, 2] && shape.pad == [0, 0]
}

fn rows_of<'a, T>(shape: &ConvShape, x: &'a [T], oy: usize) -> (&'a [T], &'a [T]) {
    let (width, used) = (shape.size[1], 2 * shape.out[1]);
    let row = |y: usize| part(x, y * width..y * width + used);
    (row(2 * oy), row(2 * oy + 1))
}

/// The larger number, or NaN.
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn larger<T: Float>(a: T, b: T) -> T {
    if (a > b) | (a != a) { a } else { b }
}

#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn beats<T: Float>(value: T, best: T) -> bool {
    value > best || (value != value && best == best)
}

/// Index and value of the first of the largest numbers.
fn largest<T: Float>(shape: &ConvShape, x: &[T], oy: usize, ox: usize) -> (usize, T) {
    let mut best = None;
    visit(shape, oy, ox, |at, len| {
        for (at, &value) in (at..).zip(part(x, at..at + len)) {
            match best {
                Some((_, old)) if !beats(value, old) => {}
                _ => best = Some((at, value)),
            }
        }
    });
    debug_assert!(best.is_some(), "a checked kernel covers a pixel at every position");
    best.unwrap_or((usize::MAX, T::ZERO))
}

/// Calls `f` with start and length of every run of pixels under the kernel, and returns their number.
fn visit(shape: &ConvShape, oy: usize, ox: usize, mut f: impl FnMut(usize, usize)) -> usize {
    let ((kys, iy), (kxs, ix)) = (shape.reach(0, oy), shape.reach(1, ox));
    for row in 0..kys.len() {
        f((iy + row) * shape.size[1] + ix, kxs.len());
    }
    kys.len() * kxs.len()
}
