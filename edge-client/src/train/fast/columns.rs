//! Convolution as matrix products over columns: `columns[tap][pixel]` holds what weight `tap` meets at an
//! output pixel, 0 in the padding.
//!
//! ```text
//! y += W columns          dW += s * dy columns^T          dcolumns = W^T dy, then added to dx
//! ```
//! A few output rows at a time, so that the columns stay in the second-level cache; the room is kept from
//! call to call. A kernel of one pixel needs no columns; depthwise convolutions have no product worth the
//! name and are computed directly.

use common::plan::Conv;

use super::{Backend, Fast, Store, View, ViewMut};
use crate::train::{
    Float, Plain,
    portable::{Shape, direct_forward, direct_input_grad, direct_weight_grad},
};

/// Numbers in a tile of columns: 512 KiB of `f32`.
const TILE: usize = 1 << 17;

pub(super) fn forward<T: Float>(
    fast: &mut Fast<T>,
    conv: &Conv,
    samples: usize,
    x: &[T],
    w: &[T],
    y: &mut [T],
) where
    Fast<T>: Backend<T>,
{
    let shape = Shape::new(conv);
    if is_depthwise(&shape) {
        return direct_forward::<Plain, T>(conv, samples, x, w, y);
    }
    let (taps, area, outputs) = (shape.taps(), shape.out_area(), shape.outputs);
    over(fast, &shape, samples, |fast, columns, group, tile| {
        let x = tail(x, group * shape.inputs * shape.area());
        let w = View::new(tail(w, group % shape.groups * outputs * taps), outputs, taps);
        let columns = gather(&shape, tile, x, columns);
        let y = y.get_mut(group * outputs * area + tile.first..).unwrap_or_default();
        fast.gemm(w, columns, Store::Add(T::ONE), ViewMut::strided(y, outputs, tile.len, area));
    });
}

pub(super) fn weight_grad<T: Float>(
    fast: &mut Fast<T>,
    conv: &Conv,
    samples: usize,
    factor: T,
    dy: &[T],
    x: &[T],
    dw: &mut [T],
) where
    Fast<T>: Backend<T>,
{
    let shape = Shape::new(conv);
    if is_depthwise(&shape) {
        return direct_weight_grad::<Plain, T>(conv, samples, factor, dy, x, dw);
    }
    let (taps, area, outputs) = (shape.taps(), shape.out_area(), shape.outputs);
    over(fast, &shape, samples, |fast, columns, group, tile| {
        let x = tail(x, group * shape.inputs * shape.area());
        let columns = gather(&shape, tile, x, columns);
        let dy = View::strided(tail(dy, group * outputs * area + tile.first), outputs, tile.len, area);
        let dw = dw.get_mut(group % shape.groups * outputs * taps..).unwrap_or_default();
        fast.gemm(dy, columns.transposed(), Store::Add(factor), ViewMut::new(dw, outputs, taps));
    });
}

pub(super) fn input_grad<T: Float>(
    fast: &mut Fast<T>,
    conv: &Conv,
    samples: usize,
    dy: &[T],
    w: &[T],
    dx: &mut [T],
) where
    Fast<T>: Backend<T>,
{
    let shape = Shape::new(conv);
    if is_depthwise(&shape) {
        return direct_input_grad::<Plain, T>(conv, samples, dy, w, dx);
    }
    let (taps, area, outputs) = (shape.taps(), shape.out_area(), shape.outputs);
    over(fast, &shape, samples, |fast, columns, group, tile| {
        let w = View::new(tail(w, group % shape.groups * outputs * taps), outputs, taps).transposed();
        let dy = View::strided(tail(dy, group * outputs * area + tile.first), outputs, tile.len, area);
        let dx = dx.get_mut(group * shape.inputs * shape.area()..).unwrap_or_default();
        if is_pointwise(&shape) {
            let place = dx.get_mut(tile.first..).unwrap_or_default();
            let place = ViewMut::strided(place, shape.inputs, tile.len, area);
            return fast.gemm(w, dy, Store::Add(T::ONE), place);
        }
        let columns = columns.get_mut(..taps * tile.len).unwrap_or_default();
        fast.gemm(w, dy, Store::Replace, ViewMut::new(columns, taps, tile.len));
        scatter(&shape, tile, columns, dx);
    });
}

/// Some whole rows of an output image.
#[derive(Copy, Clone)]
struct Tile {
    row: usize,
    rows: usize,
    /// First pixel and number of pixels.
    first: usize,
    len: usize,
}

/// Calls for every tile of every group of every sample, with room for columns.
fn over<T: Float>(
    fast: &mut Fast<T>,
    shape: &Shape,
    samples: usize,
    mut f: impl FnMut(&mut Fast<T>, &mut [T], usize, Tile),
) {
    let [height, width] = shape.out;
    let rows = (TILE / (shape.taps() * width).max(1)).clamp(1, height.max(1));
    // Tiles of equal height, because a thin last one would be slow.
    let rows = height.div_ceil(height.div_ceil(rows).max(1)).max(1);
    let mut columns = core::mem::take(&mut fast.columns);
    let need = if is_pointwise(shape) { 0 } else { shape.taps() * rows * width };
    if columns.len() < need {
        columns.resize(need, T::ZERO);
    }
    for group in 0..samples * shape.groups {
        for row in (0..height).step_by(rows) {
            let rows = rows.min(height - row);
            f(fast, &mut columns, group, Tile { row, rows, first: row * width, len: rows * width });
        }
    }
    fast.columns = columns;
}

fn is_depthwise(shape: &Shape) -> bool {
    shape.groups > 1 && shape.inputs == 1 && shape.outputs == 1
}

fn is_pointwise(shape: &Shape) -> bool {
    shape.kernel == [1, 1] && shape.stride == [1, 1] && shape.size == shape.out
}

fn gather<'a, T: Float>(shape: &Shape, tile: Tile, x: &'a [T], columns: &'a mut [T]) -> View<'a, T> {
    let taps = shape.taps();
    if is_pointwise(shape) {
        return View::strided(tail(x, tile.first), shape.inputs, tile.len, shape.area());
    }
    for (tap, row) in columns.chunks_exact_mut(tile.len.max(1)).take(taps).enumerate() {
        walk(shape, tile, tap, |line, before, from, count| {
            let width = shape.out[1];
            let Some(line) = row.get_mut(line * width..(line + 1) * width) else { return };
            let Some((from, step)) = from else { return line.fill(T::ZERO) };
            let (start, rest) = line.split_at_mut(before.min(line.len()));
            let (middle, end) = rest.split_at_mut(count.min(rest.len()));
            start.fill(T::ZERO);
            end.fill(T::ZERO);
            let from = tail(x, from);
            if step == 1 {
                middle.copy_from_slice(from.get(..count).unwrap_or_default());
            } else {
                middle.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, &from)| *to = from);
            }
        });
    }
    View::new(columns, taps, tile.len)
}

fn scatter<T: Float>(shape: &Shape, tile: Tile, columns: &[T], dx: &mut [T]) {
    for (tap, row) in columns.chunks_exact(tile.len.max(1)).take(shape.taps()).enumerate() {
        walk(shape, tile, tap, |line, before, from, count| {
            let Some((to, step)) = from else { return };
            let line = tail(row, line * shape.out[1] + before);
            let places = dx.get_mut(to..).unwrap_or_default();
            if step == 1 {
                places.iter_mut().zip(line).take(count).for_each(|(dx, &value)| *dx += value);
            } else {
                let places = places.iter_mut().step_by(step);
                places.zip(line).take(count).for_each(|(dx, &value)| *dx += value);
            }
        });
    }
}

/// For every line of the tile: its number, how many pixels meet padding on the left, the first input number
/// that is met and the step from one to the next (nothing if all is padding), how many are met.
#[inline(always)]
fn walk(
    shape: &Shape,
    tile: Tile,
    tap: usize,
    mut f: impl FnMut(usize, usize, Option<(usize, usize)>, usize),
) {
    let [kernel_height, kernel_width] = shape.kernel;
    let (channel, place) = (tap / (kernel_height * kernel_width), tap % (kernel_height * kernel_width));
    let (ky, kx) = (place / kernel_width, place % kernel_width);
    let step = shape.stride[1];
    let before = shape.pad[1].saturating_sub(kx).div_ceil(step);
    let reach = (shape.size[1] + shape.pad[1]).saturating_sub(kx).div_ceil(step).min(shape.out[1]);
    let count = reach.saturating_sub(before);
    for line in 0..tile.rows {
        let iy = ((tile.row + line) * shape.stride[0] + ky).checked_sub(shape.pad[0]);
        let from = iy.filter(|&iy| iy < shape.size[0] && count > 0).map(|iy| {
            let ix = before * step + kx - shape.pad[1];
            ((channel * shape.size[0] + iy) * shape.size[1] + ix, step)
        });
        f(line, before, from, count);
    }
}

fn tail<T>(values: &[T], at: usize) -> &[T] {
    values.get(at..).unwrap_or_default()
}
