//! Convolutions for backends that compute a tile of sums in registers: four numbers of one operand times four of the other, per
//! term.
//!
//! The sums and the order of their terms are those of `portable::direct`, so the bits are too. Padding is skipped: outputs that
//! share a tile have the same terms inside the image.
//!
//! | part | rows of a tile | columns of a tile |
//! |---|---|---|
//! | forward | output channels | output pixels of a line |
//! | input gradient | input channels | input pixels of a line, a stride apart |
//! | weight gradient | output channels | weights; in padded images those of one place in the kernel |

use common::plan::Conv;

use super::{
    Float,
    part::{tail, tail_mut},
    portable::ConvShape,
};

const SIDE: usize = 4;

/// Computes tiles of sums. Every sum starts at zero, in one accumulator, over the terms of a [`Nest`] in order.
pub trait TileKernel<T> {
    /// The loops of a Nest as the kernel takes them.
    type Walk;

    /// Prepares the loops of a Nest that has terms.
    fn walk(&self, nest: &Nest) -> Self::Walk;

    /// `sums[i][j] = sum of a[i] * b[j]`, where `a` and `b` begin at four places each.
    fn tile(
        &mut self,
        walk: &mut Self::Walk,
        a: (&[T], &[usize; SIDE]),
        b: (&[T], &[usize; SIDE]),
        sums: &mut [[T; SIDE]; SIDE],
    );

    /// `sums[i] = sum of a[i] * b`, where `b` begins at one place.
    fn strip(
        &mut self,
        walk: &mut Self::Walk,
        a: (&[T], &[usize; SIDE]),
        b: (&[T], usize),
        sums: &mut [T; SIDE],
    );
}

/// The terms of a sum: three loops, the last one innermost.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Nest {
    /// Turns of each loop.
    pub counts: [usize; 3],
    /// How far each loop moves along `a`, in numbers.
    pub a: [isize; 3],
    /// How far each loop moves along `b`, in numbers.
    pub b: [isize; 3],
}

impl Nest {
    /// Makes the innermost loop as long as possible: loops of one turn move outwards, loops that continue one another are joined.
    fn new(counts: [usize; 3], a: [isize; 3], b: [isize; 3]) -> Self {
        let mut nest = Self { counts, a, b };
        nest.join(1);
        nest.join(1);
        nest.join(0);
        nest
    }

    fn join(&mut self, outer: usize) {
        let inner = outer + 1;
        let Self { counts, a, b } = self;
        let turns = counts[inner] as isize;
        if counts[outer] == 1 {
            // Only the loops around it move inwards.
        } else if turns == 1 {
            (counts[inner], a[inner], b[inner]) = (counts[outer], a[outer], b[outer]);
        } else if a[outer] == turns * a[inner] && b[outer] == turns * b[inner] {
            counts[inner] *= counts[outer];
        } else {
            return;
        }
        if outer == 1 {
            (counts[1], a[1], b[1]) = (counts[0], a[0], b[0]);
        }
        counts[0] = 1;
    }

    /// True if a sum has no terms.
    pub fn is_empty(&self) -> bool {
        self.counts.contains(&0)
    }

    /// How far below and above the first number of an operand the others reach. `None` if that exceeds the address space, or
    /// if there are no terms.
    pub fn reach(&self, steps: [isize; 3]) -> Option<(usize, usize)> {
        let (mut below, mut above) = (0_usize, 0_usize);
        for (&count, step) in self.counts.iter().zip(steps) {
            let far = count.checked_sub(1)?.checked_mul(step.unsigned_abs())?;
            let end = if step < 0 { &mut below } else { &mut above };
            *end = end.checked_add(far)?;
        }
        Some((below, above))
    }

    fn swapped(&self) -> Self {
        Self { counts: self.counts, a: self.b, b: self.a }
    }
}

/// One side of a tile: up to four places in an operand, each with its share of a place in the output. Places behind the last
/// repeat it.
struct Side<'a, T> {
    data: &'a [T],
    at: [usize; SIDE],
    out: [usize; SIDE],
    len: usize,
}

impl<'a, T> Side<'a, T> {
    /// `at` and `out` are the first places and the distances to the next.
    fn new(data: &'a [T], at: (usize, usize), out: (usize, usize), len: usize) -> Self {
        let mut side = Self { data, at: [at.0; SIDE], out: [out.0; SIDE], len: len.min(SIDE) };
        for place in 1..side.len {
            let next = side.at[place - 1] + at.1;
            side.at[place..].fill(next);
            side.out[place] = side.out[place - 1] + out.1;
        }
        side
    }
}

/// The loops of tiles that differ only in where they begin.
struct Tiles<'k, K, W> {
    kernel: &'k mut K,
    nest: Nest,
    /// `None` if sums have no terms.
    walk: Option<W>,
}

impl<'k, K, W> Tiles<'k, K, W> {
    fn new<T>(kernel: &'k mut K, nest: Nest) -> Self
    where
        K: TileKernel<T, Walk = W>,
    {
        let walk = (!nest.is_empty()).then(|| kernel.walk(&nest));
        Self { kernel, nest, walk }
    }

    /// Adds a tile of sums to `out`. Up to two rows or columns are strips, which waste nothing.
    #[inline(never)]
    fn add<T: Float>(&mut self, rows: &Side<'_, T>, columns: &Side<'_, T>, factor: T, out: &mut [T])
    where
        K: TileKernel<T, Walk = W>,
    {
        let mut sums = [[T::ZERO; SIDE]; SIDE];
        let (few_rows, few_columns) = (rows.len <= 2, columns.len <= 2);
        let (many, few) = if few_columns { (rows, columns) } else { (columns, rows) };
        if let Some(walk) = &mut self.walk {
            let mut turned;
            let walk = if few_rows && !few_columns {
                turned = self.kernel.walk(&self.nest.swapped());
                &mut turned
            } else {
                walk
            };
            if few_rows || few_columns {
                for (sums, &at) in sums.iter_mut().zip(&few.at).take(few.len) {
                    self.kernel.strip(walk, (many.data, &many.at), (few.data, at), sums);
                }
            } else {
                self.kernel.tile(walk, (rows.data, &rows.at), (columns.data, &columns.at), &mut sums);
            }
        }
        for (sums, &start) in sums.iter().zip(&few.out).take(few.len) {
            for (&sum, &place) in sums.iter().zip(&many.out).take(many.len) {
                if let Some(out) = out.get_mut(start + place) {
                    *out += factor * sum;
                }
            }
        }
    }
}

/// `y += W * x`, as [`Backend::conv`](super::Backend::conv).
pub fn forward<T: Float>(
    kernel: &mut impl TileKernel<T>,
    conv: &Conv,
    samples: usize,
    x: &[T],
    w: &[T],
    y: &mut [T],
) {
    let shape = ConvShape::new(conv);
    let (area, out_area, taps) = (shape.area(), shape.out_area(), shape.taps());
    let [kernel_height, kernel_width] = shape.kernel;
    for number in 0..samples * shape.groups {
        let (x, w) =
            (tail(x, number * shape.inputs * area), tail(w, number % shape.groups * shape.outputs * taps));
        let y = tail_mut(y, number * shape.outputs * out_area);
        let mut ox = 0;
        while ox < shape.out[1] {
            let (kxs, ix) = shape.reach(1, ox);
            let mut len = 1;
            while len < SIDE && ox + len < shape.out[1] && shape.reach(1, ox + len).0 == kxs {
                len += 1;
            }
            for oy in 0..shape.out[0] {
                let (kys, iy) = shape.reach(0, oy);
                let nest = Nest::new(
                    [shape.inputs, kys.len(), kxs.len()],
                    [kernel_height * kernel_width, kernel_width, 1].map(|step| step as isize),
                    [area, shape.size[1], 1].map(|step| step as isize),
                );
                let pixel = iy * shape.size[1] + ix;
                let pixels = Side::new(x, (pixel, shape.stride[1]), (oy * shape.out[1] + ox, 1), len);
                let mut tiles = Tiles::new(kernel, nest);
                for block in (0..shape.outputs).step_by(SIDE) {
                    let weight = block * taps + kys.start * kernel_width + kxs.start;
                    let to = (block * out_area, out_area);
                    let channels = Side::new(w, (weight, taps), to, shape.outputs - block);
                    tiles.add(&channels, &pixels, T::ONE, y);
                }
            }
            ox += len;
        }
    }
}

/// `dx += W^T * dy`, as [`Backend::conv_input_grad`](super::Backend::conv_input_grad).
pub fn input_grad<T: Float>(
    kernel: &mut impl TileKernel<T>,
    conv: &Conv,
    samples: usize,
    dy: &[T],
    w: &[T],
    dx: &mut [T],
) {
    let shape = ConvShape::new(conv);
    let (area, out_area, taps) = (shape.area(), shape.out_area(), shape.taps());
    let [kernel_height, kernel_width] = shape.kernel;
    let ([height, width], [down, right]) = (shape.size, shape.stride);
    for number in 0..samples * shape.groups {
        let dy = tail(dy, number * shape.outputs * out_area);
        let w = tail(w, number % shape.groups * shape.outputs * taps);
        let dx = tail_mut(dx, number * shape.inputs * area);
        for phase in 0..right.min(width) {
            let mut ix = phase;
            while ix < width {
                let over = Standing::new(&shape, 1, ix);
                let mut len = 1;
                while len < SIDE
                    && ix + len * right < width
                    && Standing::new(&shape, 1, ix + len * right).same_taps(&over)
                {
                    len += 1;
                }
                for iy in 0..height {
                    let under = Standing::new(&shape, 0, iy);
                    let nest = Nest::new(
                        [shape.outputs, under.count, over.count],
                        [taps, down * kernel_width, right].map(|step| step as isize),
                        [out_area as isize, -(shape.out[1] as isize), -1],
                    );
                    let gradient = under.out * shape.out[1] + over.out;
                    let pixels = Side::new(dy, (gradient, 1), (iy * width + ix, right), len);
                    let mut tiles = Tiles::new(kernel, nest);
                    for block in (0..shape.inputs).step_by(SIDE) {
                        let plane = kernel_height * kernel_width;
                        let weight = block * plane + under.tap * kernel_width + over.tap;
                        let to = (block * area, area);
                        let channels = Side::new(w, (weight, plane), to, shape.inputs - block);
                        tiles.add(&channels, &pixels, T::ONE, dx);
                    }
                }
                ix += len * right;
            }
        }
    }
}

/// The elements of the kernel that are ever on a pixel, along one axis: the first one, at which output position it is on the
/// pixel, and how many there are. From one to the next the element rises by the stride and the position falls by 1.
struct Standing {
    tap: usize,
    out: usize,
    count: usize,
}

impl Standing {
    #[inline(always)]
    fn new(shape: &ConvShape, axis: usize, pixel: usize) -> Self {
        let (stride, place) = (shape.stride[axis], pixel + shape.pad[axis]);
        let Some(last) = shape.out[axis].checked_sub(1) else { return Self { tap: 0, out: 0, count: 0 } };
        let lowest = place.saturating_sub(last * stride);
        let tap = lowest + (place - lowest) % stride;
        let end = shape.kernel[axis].min(place + 1);
        let count = if tap < end { (end - 1 - tap) / stride + 1 } else { 0 };
        Self { tap, out: (place.saturating_sub(tap)) / stride, count }
    }

    #[inline(always)]
    fn same_taps(&self, other: &Self) -> bool {
        self.tap == other.tap && self.count == other.count
    }
}

/// `dW += factor * (dy * x)`, as [`Backend::conv_weight_grad`](super::Backend::conv_weight_grad).
pub fn weight_grad<T: Float>(
    kernel: &mut impl TileKernel<T>,
    conv: &Conv,
    samples: usize,
    factor: T,
    dy: &[T],
    x: &[T],
    dw: &mut [T],
) {
    let shape = ConvShape::new(conv);
    let (area, out_area, taps) = (shape.area(), shape.out_area(), shape.taps());
    let [kernel_height, kernel_width] = shape.kernel;
    let plane = kernel_height * kernel_width;
    let (read, written) = (shape.groups * shape.inputs * area, shape.groups * shape.outputs * out_area);
    let padded = (0..2).any(|axis| {
        let last = (0..shape.kernel[axis]).map(|k| Inside::new(&shape, axis, k));
        last.clone().any(|inside| inside.count != shape.out[axis])
    });
    // Without padding the weights of all channels have the same terms. With it only those at one place of the kernel have.
    let (turns, step) = if padded { (plane, plane) } else { (1, 1) };
    for group in 0..shape.groups {
        let (x, dy) = (tail(x, group * shape.inputs * area), tail(dy, group * shape.outputs * out_area));
        let dw = tail_mut(dw, group * shape.outputs * taps);
        for turn in 0..turns {
            let (under, over) = (
                Inside::new(&shape, 0, turn / kernel_width.max(1)),
                Inside::new(&shape, 1, turn % kernel_width.max(1)),
            );
            let nest = Nest::new(
                [samples, under.count, over.count],
                [written, shape.out[1], 1].map(|step| step as isize),
                [read, shape.stride[0] * shape.size[1], shape.stride[1]].map(|step| step as isize),
            );
            let gradient = under.out * shape.out[1] + over.out;
            let mut tiles = Tiles::new(kernel, nest);
            let mut tap = turn;
            while tap < taps {
                let len = (taps - tap).div_ceil(step).min(SIDE);
                let mut weights = Side::new(x, (0, 0), (tap, step), len);
                for (side, at) in weights.at.iter_mut().enumerate() {
                    let tap = tap + side.min(len - 1) * step;
                    let (channel, place) = (tap / plane, tap % plane);
                    let pixel = |axis: usize, inside: &Inside, k: usize| {
                        (inside.out * shape.stride[axis] + k).saturating_sub(shape.pad[axis])
                    };
                    let iy = pixel(0, &under, place / kernel_width);
                    *at = channel * area + iy * shape.size[1] + pixel(1, &over, place % kernel_width);
                }
                for block in (0..shape.outputs).step_by(SIDE) {
                    let (from, to) = (block * out_area + gradient, block * taps);
                    let channels = Side::new(dy, (from, out_area), (to, taps), shape.outputs - block);
                    tiles.add(&channels, &weights, factor, dw);
                }
                tap += len * step;
            }
        }
    }
}

/// Output positions along one axis at which an element of the kernel is inside the image.
struct Inside {
    out: usize,
    count: usize,
}

impl Inside {
    #[inline(always)]
    fn new(shape: &ConvShape, axis: usize, k: usize) -> Self {
        let (stride, pad) = (shape.stride[axis], shape.pad[axis]);
        let out = pad.saturating_sub(k).div_ceil(stride);
        let end = (shape.size[axis] + pad).saturating_sub(k).div_ceil(stride).min(shape.out[axis]);
        Self { out, count: end.saturating_sub(out) }
    }
}
