//! Convolution without an intermediate matrix. Padding is skipped, not multiplied.
//!
//! | part | each | sums over, ascending |
//! |---|---|---|
//! | forward | output pixel | (input channel of the group, ky, kx) |
//! | input gradient | input pixel | (output channel of the group, ky, kx) |
//! | weight gradient | weight | (sample, output row, output column) |
//!
//! A few channels are computed side by side: their sums are independent and share their inputs.

use common::plan::{Conv, Window};

use super::{Arithmetic, Float};
use crate::train::part::{tail, value};

const SIDE: usize = 4;

/// All sizes of a convolution as `usize`.
#[derive(Copy, Clone)]
pub(crate) struct ConvShape {
    pub groups: usize,
    /// Channels of one group.
    pub inputs: usize,
    pub outputs: usize,
    pub size: [usize; 2],
    pub out: [usize; 2],
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// Top and left.
    pub pad: [usize; 2],
}

impl ConvShape {
    pub fn new(conv: &Conv) -> Self {
        let groups = conv.groups.max(1) as usize;
        let (inputs, outputs) = (conv.inputs as usize / groups, conv.outputs as usize / groups);
        Self { groups, inputs, outputs, ..Self::window(&conv.window) }
    }

    /// A window over single channels.
    pub fn window(window: &Window) -> Self {
        let (height, width) = window.output();
        Self {
            groups: 1,
            inputs: 1,
            outputs: 1,
            size: [window.height as usize, window.width as usize],
            out: [height as usize, width as usize],
            kernel: window.kernel.map(usize::from),
            stride: window.stride.map(|stride| usize::from(stride).max(1)),
            pad: [window.pad[0].into(), window.pad[1].into()],
        }
    }

    pub fn area(&self) -> usize {
        self.size[0] * self.size[1]
    }

    pub fn out_area(&self) -> usize {
        self.out[0] * self.out[1]
    }

    /// Weights of one output channel.
    pub fn taps(&self) -> usize {
        self.inputs * self.kernel[0] * self.kernel[1]
    }

    /// The elements of the kernel inside the image at output position `out`, and the first pixel under them.
    #[inline(always)]
    pub fn reach(&self, axis: usize, out: usize) -> (core::ops::Range<usize>, usize) {
        let start = out * self.stride[axis];
        let first = self.pad[axis].saturating_sub(start);
        let last = self.kernel[axis].min((self.size[axis] + self.pad[axis]).saturating_sub(start));
        (first..last.max(first), (start + first).saturating_sub(self.pad[axis]))
    }

    /// The output position (if any) at which element `k` of the kernel is on `pixel`.
    #[inline(always)]
    fn standing(&self, axis: usize, pixel: usize, k: usize) -> Option<usize> {
        let start = (pixel + self.pad[axis]).checked_sub(k)?;
        let (out, rest) = (start / self.stride[axis], start % self.stride[axis]);
        (rest == 0 && out < self.out[axis]).then_some(out)
    }
}

pub(crate) fn forward<A: Arithmetic, T: Float>(conv: &Conv, samples: usize, x: &[T], w: &[T], y: &mut [T]) {
    let shape = ConvShape::new(conv);
    let (area, out_area, taps) = (shape.area(), shape.out_area(), shape.taps());
    let [kernel_height, kernel_width] = shape.kernel;
    let groups = x.chunks_exact((shape.inputs * area).max(1));
    let results = y.chunks_exact_mut((shape.outputs * out_area).max(1));
    for (number, (x, y)) in groups.zip(results).take(samples * shape.groups).enumerate() {
        let w = tail(w, number % shape.groups * shape.outputs * taps);
        for (block, y) in y.chunks_mut(SIDE * out_area).enumerate() {
            let w: [&[T]; SIDE] = core::array::from_fn(|side| side_tail(w, (block * SIDE + side) * taps));
            for oy in 0..shape.out[0] {
                let (kys, iy) = shape.reach(0, oy);
                for ox in 0..shape.out[1] {
                    let (kxs, ix) = shape.reach(1, ox);
                    let mut sums = [T::ZERO; SIDE];
                    for channel in 0..shape.inputs {
                        for (iy, ky) in (iy..).zip(kys.clone()) {
                            let x = tail(x, channel * area + iy * shape.size[1] + ix);
                            let tap = (channel * kernel_height + ky) * kernel_width + kxs.start;
                            let w = w.map(|w| side_tail(w, tap));
                            for (kx, &x) in x.iter().take(kxs.len()).enumerate() {
                                for (sum, w) in sums.iter_mut().zip(&w) {
                                    let w = side_value(w, kx);
                                    *sum = A::accumulate(*sum, x, w);
                                }
                            }
                        }
                    }
                    for (y, sum) in y.chunks_exact_mut(out_area).zip(sums) {
                        if let Some(y) = y.get_mut(oy * shape.out[1] + ox) {
                            *y += sum;
                        }
                    }
                }
            }
        }
    }
}

pub(crate) fn input_grad<A: Arithmetic, T: Float>(
    conv: &Conv,
    samples: usize,
    dy: &[T],
    w: &[T],
    dx: &mut [T],
) {
    let shape = ConvShape::new(conv);
    let (area, out_area, taps) = (shape.area(), shape.out_area(), shape.taps());
    let [kernel_height, kernel_width] = shape.kernel;
    let plane = kernel_height * kernel_width;
    let results = dy.chunks_exact((shape.outputs * out_area).max(1));
    let groups = dx.chunks_exact_mut((shape.inputs * area).max(1));
    for (number, (dy, dx)) in results.zip(groups).take(samples * shape.groups).enumerate() {
        let w = tail(w, number % shape.groups * shape.outputs * taps);
        for (block, dx) in dx.chunks_mut(SIDE * area).enumerate() {
            for iy in 0..shape.size[0] {
                for ix in 0..shape.size[1] {
                    let mut sums = [T::ZERO; SIDE];
                    for output in 0..shape.outputs {
                        let dy = tail(dy, output * out_area);
                        let w: [&[T]; SIDE] = core::array::from_fn(|side| {
                            side_tail(w, output * taps + (block * SIDE + side) * plane)
                        });
                        for ky in 0..kernel_height {
                            let Some(oy) = shape.standing(0, iy, ky) else { continue };
                            for kx in 0..kernel_width {
                                let Some(ox) = shape.standing(1, ix, kx) else { continue };
                                let dy = value(dy, oy * shape.out[1] + ox);
                                for (sum, w) in sums.iter_mut().zip(&w) {
                                    let w = side_value(w, ky * kernel_width + kx);
                                    *sum = A::accumulate(*sum, dy, w);
                                }
                            }
                        }
                    }
                    for (dx, sum) in dx.chunks_exact_mut(area).zip(sums) {
                        if let Some(dx) = dx.get_mut(iy * shape.size[1] + ix) {
                            *dx += sum;
                        }
                    }
                }
            }
        }
    }
}

pub(crate) fn weight_grad<A: Arithmetic, T: Float>(
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
    let (read, written) = (shape.groups * shape.inputs * area, shape.groups * shape.outputs * out_area);
    for (group, dw) in dw.chunks_exact_mut((shape.outputs * taps).max(1)).enumerate().take(shape.groups) {
        for (block, dw) in dw.chunks_mut(SIDE * taps).enumerate() {
            for tap in 0..taps {
                let (channel, place) =
                    (tap / (kernel_height * kernel_width), tap % (kernel_height * kernel_width));
                let (ky, kx) = (place / kernel_width, place % kernel_width);
                let mut sums = [T::ZERO; SIDE];
                for sample in 0..samples {
                    let x = tail(x, sample * read + (group * shape.inputs + channel) * area);
                    let first = group * shape.outputs + block * SIDE;
                    let dy: [&[T]; SIDE] = core::array::from_fn(|side| {
                        side_tail(dy, sample * written + (first + side) * out_area)
                    });
                    for oy in 0..shape.out[0] {
                        let Some(iy) = (oy * shape.stride[0] + ky).checked_sub(shape.pad[0]) else {
                            continue;
                        };
                        if iy >= shape.size[0] {
                            break;
                        }
                        for ox in 0..shape.out[1] {
                            let Some(ix) = (ox * shape.stride[1] + kx).checked_sub(shape.pad[1]) else {
                                continue;
                            };
                            if ix >= shape.size[1] {
                                break;
                            }
                            let x = value(x, iy * shape.size[1] + ix);
                            for (sum, dy) in sums.iter_mut().zip(&dy) {
                                let dy = side_value(dy, oy * shape.out[1] + ox);
                                *sum = A::accumulate(*sum, x, dy);
                            }
                        }
                    }
                }
                for (dw, sum) in dw.chunks_exact_mut(taps).zip(sums) {
                    if let Some(dw) = dw.get_mut(tap) {
                        *dw += factor * sum;
                    }
                }
            }
        }
    }
}

/// The numbers of one of the channels that are computed side by side. The last block may have fewer channels: the values of
/// the others do not matter, because their sums are dropped.
#[inline(always)]
fn side_tail<T>(values: &[T], at: usize) -> &[T] {
    values.get(at..).unwrap_or_default()
}

/// A number of [`side_tail`].
#[inline(always)]
fn side_value<T: Float>(values: &[T], at: usize) -> T {
    values.get(at).copied().unwrap_or_default()
}
