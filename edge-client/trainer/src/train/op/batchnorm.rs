//! Batch normalisation in its static form: no running averages.
//!
//! ```text
//! h = (x - mean_c) / sqrt(var_c + eps)      y = scale_c * h + bias_c
//! dscale_c += s * sum dy * h                dbias_c += s * sum dy
//! dx = scale_c * (dy - mean(dy) - h * mean(dy * h)) / sqrt(var_c + eps)
//! ```
//! In training, mean and variance (divisor N) are those of the batch, and backward recomputes them. Evaluation reads them from
//! the statistics segment. A pass over the device's own training data fills it with the batches' means and variances,
//! averaged by rows.

use crate::train::{Float, part::value};

#[derive(Copy, Clone, Debug)]
pub(in crate::train) struct BatchNormSizes {
    pub channels: usize,
    pub inner: usize,
    pub epsilon: f32,
}

/// Where mean and variance come from.
#[derive(Debug)]
pub(in crate::train) enum Statistics<'a, T> {
    Batch,
    /// From the batch, and also added to the segment with this weight.
    Collect {
        share: T,
        segment: &'a mut [T],
    },
    Stored(&'a [T]),
}

pub(in crate::train) fn forward<T: Float>(
    sizes: BatchNormSizes,
    mut statistics: Statistics<'_, T>,
    x: &[T],
    scale: &[T],
    bias: &[T],
    y: &mut [T],
) {
    let BatchNormSizes { channels, inner, epsilon } = sizes;
    for (channel, (&scale, &bias)) in scale.iter().zip(bias).enumerate().take(channels) {
        let (mean, variance) = match &mut statistics {
            Statistics::Batch => moments(sizes, x, channel),
            Statistics::Collect { share, segment } => {
                let (mean, variance) = moments(sizes, x, channel);
                for (at, value) in [(channel, mean), (channels + channel, variance)] {
                    if let Some(place) = segment.get_mut(at) {
                        *place += *share * value;
                    }
                }
                (mean, variance)
            }
            Statistics::Stored(segment) => (value(segment, channel), value(segment, channels + channel)),
        };
        let inverse = T::ONE / (variance + T::from_f32(epsilon)).sqrt();
        let outputs = y.chunks_exact_mut(inner.max(1)).skip(channel).step_by(channels.max(1));
        for (x, y) in planes(sizes, x, channel).zip(outputs) {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = scale * ((x - mean) * inverse) + bias;
            }
        }
    }
}

pub(in crate::train) fn input_grad<T: Float>(
    sizes: BatchNormSizes,
    x: &[T],
    scale: &[T],
    dy: &[T],
    add: bool,
    dx: &mut [T],
) {
    let BatchNormSizes { channels, inner, .. } = sizes;
    for (channel, &scale) in scale.iter().enumerate().take(channels) {
        let Sums { mean, inverse, sum, product, count } = sums(sizes, x, dy, channel);
        let (sum, product) = (sum / count, product / count);
        let pairs = planes(sizes, x, channel).zip(planes(sizes, dy, channel));
        for ((x, dy), dx) in
            pairs.zip(dx.chunks_exact_mut(inner.max(1)).skip(channel).step_by(channels.max(1)))
        {
            for ((&x, &dy), dx) in x.iter().zip(dy).zip(dx) {
                let gradient = scale * (dy - sum - (x - mean) * inverse * product) * inverse;
                *dx = if add { *dx + gradient } else { gradient };
            }
        }
    }
}

pub(in crate::train) fn param_grad<T: Float>(
    sizes: BatchNormSizes,
    factor: T,
    x: &[T],
    dy: &[T],
    dscale: &mut [T],
    dbias: &mut [T],
) {
    for (channel, (dscale, dbias)) in dscale.iter_mut().zip(dbias).enumerate().take(sizes.channels) {
        let Sums { sum, product, .. } = sums(sizes, x, dy, channel);
        *dscale += factor * product;
        *dbias += factor * sum;
    }
}

struct Sums<T> {
    mean: T,
    inverse: T,
    /// Sums of the gradient, and of the gradient times the normalised input.
    sum: T,
    product: T,
    count: T,
}

fn sums<T: Float>(sizes: BatchNormSizes, x: &[T], dy: &[T], channel: usize) -> Sums<T> {
    let (mean, variance) = moments(sizes, x, channel);
    let inverse = T::ONE / (variance + T::from_f32(sizes.epsilon)).sqrt();
    let (mut sum, mut product) = (T::ZERO, T::ZERO);
    for (x, dy) in planes(sizes, x, channel).zip(planes(sizes, dy, channel)) {
        for (&x, &dy) in x.iter().zip(dy) {
            sum += dy;
            product += dy * ((x - mean) * inverse);
        }
    }
    Sums { mean, inverse, sum, product, count: T::from_f64(count(sizes, x)) }
}

/// Mean and variance of one channel over the batch.
fn moments<T: Float>(sizes: BatchNormSizes, x: &[T], channel: usize) -> (T, T) {
    let count = T::from_f64(count(sizes, x));
    let total = |f: &dyn Fn(T) -> T| {
        let values = planes(sizes, x, channel).flatten();
        values.fold(T::ZERO, |sum, &x| sum + f(x)) / count
    };
    let mean = total(&|x| x);
    (mean, total(&|x| (x - mean) * (x - mean)))
}

fn count<T>(sizes: BatchNormSizes, x: &[T]) -> f64 {
    (x.len() / sizes.channels.max(1)) as f64
}

/// One channel of every sample.
fn planes<T>(sizes: BatchNormSizes, values: &[T], channel: usize) -> impl Iterator<Item = &[T]> {
    values.chunks_exact(sizes.inner.max(1)).skip(channel).step_by(sizes.channels.max(1))
}
