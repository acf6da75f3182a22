//! Convolution. The Backend computes the products; the bias is computed here: `db_o += s * sum_{n,y,x} dy[n][o][y][x]`.
//!
//! Runs sample by sample, so that the filled output is still in the caches when products are added to it.

use common::plan::{Conv, Op};

use crate::train::{Backend, Float};

pub(in crate::train) fn forward<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    conv: &Conv,
    samples: usize,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    let (read, written) = sizes(conv);
    let area = conv.window.output_area() as usize;
    for (x, y) in x.chunks_exact(read).zip(y.chunks_exact_mut(written)).take(samples) {
        match bias {
            Some(bias) => {
                let planes = y.chunks_exact_mut(area.max(1));
                planes.zip(bias).for_each(|(plane, &bias)| plane.fill(bias));
            }
            None => y.fill(T::ZERO),
        }
        backend.conv(conv, 1, x, w, y);
    }
}

pub(in crate::train) fn input_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    conv: &Conv,
    samples: usize,
    dy: &[T],
    w: &[T],
    add: bool,
    dx: &mut [T],
) {
    let (read, written) = sizes(conv);
    for (dx, dy) in dx.chunks_exact_mut(read).zip(dy.chunks_exact(written)).take(samples) {
        if !add {
            dx.fill(T::ZERO);
        }
        backend.conv_input_grad(conv, 1, dy, w, dx);
    }
}

#[expect(clippy::too_many_arguments, reason = "what a gradient is made of")]
pub(in crate::train) fn param_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    conv: &Conv,
    samples: usize,
    factor: T,
    dy: &[T],
    x: &[T],
    dw: &mut [T],
    db: &mut [T],
) {
    backend.conv_weight_grad(conv, samples, factor, dy, x, dw);
    let (area, channels) = (conv.window.output_area() as usize, conv.outputs as usize);
    for (channel, db) in db.iter_mut().enumerate() {
        let planes = dy.chunks_exact(area.max(1)).skip(channel).step_by(channels.max(1));
        *db += factor * planes.fold(T::ZERO, sum_plane);
    }
}

/// Numbers per sample that are read and written.
fn sizes(conv: &Conv) -> (usize, usize) {
    let (read, written) = Op::Conv(*conv).sizes();
    ((read as usize).max(1), (written as usize).max(1))
}

/// Eight partial sums per image, added in a fixed order that a host can still vectorise.
fn sum_plane<T: Float>(total: T, plane: &[T]) -> T {
    let mut sums = [T::ZERO; 8];
    let (blocks, rest) = plane.as_chunks::<8>();
    for block in blocks {
        for (sum, &value) in sums.iter_mut().zip(block) {
            *sum += value;
        }
    }
    for (sum, &value) in sums.iter_mut().zip(rest) {
        *sum += value;
    }
    sums.iter().fold(total, |total, &sum| total + sum)
}
