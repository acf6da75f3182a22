//! Convolution as matrix products over columns: `columns[tap][pixel]` holds the input number that weight `tap` is multiplied
//! with for an output pixel, 0 in the padding.
//!
//! ```text
//! y += W columns          dW += s * dy columns^T          dcolumns = W^T dy, then added to dx
//! ```
//! A few output rows are computed at a time, so that the columns stay in the second-level cache. Their buffer is kept between
//! calls. A kernel of one pixel needs no columns. Depthwise convolutions would be tiny products, so they are computed
//! directly.

use core::ops::Range;

use common::plan::Conv;

use super::{Backend, Fast, GemmWrite, MatrixView, MatrixViewMut};
use crate::train::{
    Float, Plain,
    part::{part, part_mut, tail, tail_mut},
    portable::{ConvShape, direct_forward, direct_input_grad, direct_weight_grad},
};

/// Numbers in a tile of columns: 1 MiB of `f32`.
const TILE: usize = 1 << 18;
const BLOCK: usize = 8;

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
    let shape = ConvShape::new(conv);
    if is_depthwise(&shape) {
        return direct_forward::<Plain, T>(conv, samples, x, w, y);
    }
    let (taps, area, outputs) = (shape.taps(), shape.out_area(), shape.outputs);
    over(fast, &shape, samples, |fast, columns, group, tile| {
        let x = tail(x, group * shape.inputs * shape.area());
        let w = MatrixView::new(tail(w, group % shape.groups * outputs * taps), outputs, taps);
        let columns = gather(&shape, tile, x, columns);
        let y = tail_mut(y, group * outputs * area + tile.first);
        fast.gemm(w, columns, GemmWrite::Add(T::ONE), MatrixViewMut::strided(y, outputs, tile.len, area));
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
    let shape = ConvShape::new(conv);
    if is_depthwise(&shape) {
        return direct_weight_grad::<Plain, T>(conv, samples, factor, dy, x, dw);
    }
    let (taps, area, outputs) = (shape.taps(), shape.out_area(), shape.outputs);
    over(fast, &shape, samples, |fast, columns, group, tile| {
        let x = tail(x, group * shape.inputs * shape.area());
        let columns = gather(&shape, tile, x, columns);
        let dy = MatrixView::strided(tail(dy, group * outputs * area + tile.first), outputs, tile.len, area);
        let dw = tail_mut(dw, group % shape.groups * outputs * taps);
        fast.gemm(dy, columns.transposed(), GemmWrite::Add(factor), MatrixViewMut::new(dw, outputs, taps));
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
    let shape = ConvShape::new(conv);
    if is_depthwise(&shape) {
        return direct_input_grad::<Plain, T>(conv, samples, dy, w, dx);
    }
    let (taps, area, outputs) = (shape.taps(), shape.out_area(), shape.outputs);
    over(fast, &shape, samples, |fast, columns, group, tile| {
        let w = MatrixView::new(tail(w, group % shape.groups * outputs * taps), outputs, taps).transposed();
        let dy = MatrixView::strided(tail(dy, group * outputs * area + tile.first), outputs, tile.len, area);
        let dx = tail_mut(dx, group * shape.inputs * shape.area());
        if is_pointwise(&shape) {
            let place = MatrixViewMut::strided(tail_mut(dx, tile.first), shape.inputs, tile.len, area);
            return fast.gemm(w, dy, GemmWrite::Add(T::ONE), place);
        }
        let columns = part_mut(columns, 0..taps * tile.len);
        fast.gemm(w, dy, GemmWrite::Replace, MatrixViewMut::new(columns, taps, tile.len));
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

/// Calls `f` for every tile of every group of every sample, with a buffer for columns.
fn over<T: Float>(
    fast: &mut Fast<T>,
    shape: &ConvShape,
    samples: usize,
    mut f: impl FnMut(&mut Fast<T>, &mut [T], usize, Tile),
) {
    let [height, width] = shape.out;
    let rows = (TILE / (shape.taps() * width).max(1)).clamp(1, height.max(1));
    // Tiles have equal heights, because a thin last one would be slow.
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

fn is_depthwise(shape: &ConvShape) -> bool {
    shape.groups > 1 && shape.inputs == 1 && shape.outputs == 1
}

fn is_pointwise(shape: &ConvShape) -> bool {
    shape.kernel == [1, 1] && shape.stride == [1, 1] && shape.size == shape.out
}

fn gather<'a, T: Float>(
    shape: &ConvShape,
    tile: Tile,
    x: &'a [T],
    columns: &'a mut [T],
) -> MatrixView<'a, T> {
    let taps = shape.taps();
    if is_pointwise(shape) {
        return MatrixView::strided(tail(x, tile.first), shape.inputs, tile.len, shape.area());
    }
    let (width, step) = (shape.out[1].max(1), shape.stride[1]);
    for (row, tap) in columns.chunks_exact_mut(tile.len.max(1)).zip(all_taps(shape)) {
        let reach = Reach::new(shape, tile, tap);
        let (start, rest) = row.split_at_mut((reach.lines.start * width).min(row.len()));
        let (lines, end) = rest.split_at_mut((reach.lines.len() * width).min(rest.len()));
        start.fill(T::ZERO);
        end.fill(T::ZERO);
        if reach.lines.is_empty() {
            continue;
        }
        let (before, end) = (reach.before, reach.before + reach.count);
        let sources = tail(x, reach.first).chunks(reach.stride);
        let pairs = lines.chunks_exact_mut(width).zip(sources);
        if step == 1 && reach.count == width {
            pairs.for_each(|(to, from)| copy(from, to));
        } else {
            for (to, from) in pairs {
                let (start, rest) = to.split_at_mut(before.min(to.len()));
                let (middle, end) = rest.split_at_mut((end - before).min(rest.len()));
                start.iter_mut().chain(end).for_each(|to| *to = T::ZERO);
                if step == 1 {
                    copy(from, middle);
                } else {
                    middle.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, &from)| *to = from);
                }
            }
        }
    }
    MatrixView::new(columns, taps, tile.len)
}

fn scatter<T: Float>(shape: &ConvShape, tile: Tile, columns: &[T], dx: &mut [T]) {
    let (width, step) = (shape.out[1].max(1), shape.stride[1]);
    for (row, tap) in columns.chunks_exact(tile.len.max(1)).zip(all_taps(shape)) {
        let reach = Reach::new(shape, tile, tap);
        if reach.lines.is_empty() {
            continue;
        }
        let places = tail_mut(dx, reach.first).chunks_mut(reach.stride);
        let lines = row.chunks_exact(width).skip(reach.lines.start).take(reach.lines.len());
        for (from, to) in lines.zip(places) {
            let from = part(from, reach.before..reach.before + reach.count);
            if step == 1 {
                add(from, to);
            } else {
                to.iter_mut().step_by(step).zip(from).for_each(|(to, &from)| *to += from);
            }
        }
    }
}

/// Channel, row and column of every weight, in order.
fn all_taps(shape: &ConvShape) -> impl Iterator<Item = [usize; 3]> {
    let (channels, [height, width]) = (shape.inputs, shape.kernel);
    (0..channels)
        .flat_map(move |channel| (0..height).flat_map(move |ky| (0..width).map(move |kx| [channel, ky, kx])))
}

/// The input numbers of one weight in a tile.
struct Reach {
    /// Lines of the tile that are inside the image.
    lines: Range<usize>,
    /// Pixels at the left of each line in the padding, and pixels after them inside the image.
    before: usize,
    count: usize,
    /// Index of the first number, if there are lines, and distance between the beginnings of two lines.
    first: usize,
    stride: usize,
}

impl Reach {
    #[inline(always)]
    fn new(shape: &ConvShape, tile: Tile, [channel, ky, kx]: [usize; 3]) -> Self {
        let [height, width] = shape.size;
        // Output positions along an axis at which an element of the kernel is inside the image.
        let inside = |axis: usize, k: usize, offset: usize, limit: usize| {
            let steps = |len: usize| match shape.stride[axis] {
                1 => len,
                step => len.div_ceil(step),
            };
            let start = steps(shape.pad[axis].saturating_sub(k));
            let end = steps((shape.size[axis] + shape.pad[axis]).saturating_sub(k));
            let clip = |at: usize| at.saturating_sub(offset).min(limit);
            clip(start)..clip(end).max(clip(start))
        };
        let rows = tile.rows;
        let mut lines = inside(0, ky, tile.row, rows);
        let columns = inside(1, kx, 0, shape.out[1]);
        if columns.is_empty() {
            lines = rows..rows;
        }
        let iy = ((tile.row + lines.start) * shape.stride[0] + ky).saturating_sub(shape.pad[0]);
        let ix = (columns.start * shape.stride[1] + kx).saturating_sub(shape.pad[1]);
        Self {
            lines,
            before: columns.start,
            count: columns.len(),
            first: (channel * height + iy) * width + ix,
            stride: (width * shape.stride[0]).max(1),
        }
    }
}

/// Copies `to.len()` numbers in blocks of eight, of which the last overlaps the one before. Lines are short, so a call of
/// `memcpy` would cost more than the copy.
#[inline(always)]
fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    let Some(from) = from.get(..to.len()) else { return };
    let Some(last) = to.len().checked_sub(BLOCK) else {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = from;
        }
        return;
    };
    for (to, from) in to.as_chunks_mut::<BLOCK>().0.iter_mut().zip(from.as_chunks::<BLOCK>().0) {
        *to = *from;
    }
    if to.len().is_multiple_of(BLOCK) {
        return;
    }
    if let (Some(to), Some(from)) =
        (to.last_chunk_mut::<BLOCK>(), from.get(last..).and_then(<[T]>::first_chunk))
    {
        *to = *from;
    }
}

/// Adds `from` to `to`, in blocks like [`copy`].
#[inline(always)]
fn add<T: Float>(from: &[T], to: &mut [T]) {
    let Some(to) = to.get_mut(..from.len()) else { return };
    let ((blocks, rest), (places, last)) = (from.as_chunks::<BLOCK>(), to.as_chunks_mut::<BLOCK>());
    for (to, from) in places.iter_mut().zip(blocks) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to += from;
        }
    }
    for (to, &from) in last.iter_mut().zip(rest) {
        *to += from;
    }
}
