//! Group and layer normalisation over instances of `channels x inner` numbers.
//!
//! ```text
//! h = (x - mean) / sqrt(var + eps)      y = scale_c * h + bias_c
//! dh = dy * scale_c      dx = (dh - mean(dh) - h * mean(dh * h)) / sqrt(var + eps)
//! dscale_c += s * sum dy * h            dbias_c += s * sum dy
//! ```
//! Where scale or bias is empty, the factors are 1 and the summands 0, and there is no gradient by them.
//!
//! Backward recomputes mean and variance, in two passes over the instance. Parameter gradients are added sample by sample, so
//! applying them at once rounds differently from keeping them.

use common::plan::{Norm, Standardize};

use crate::train::{Float, part::value};

/// The same with the shape of [`Norm`], whose offsets are not read here.
pub(in crate::train) fn of_standardize(norm: &Standardize) -> Norm {
    let Standardize { instances, channels, epsilon, .. } = *norm;
    Norm { instances, channels, inner: 1, epsilon, shared: true, scale: 0, bias: 0 }
}

pub(in crate::train) fn forward<T: Float>(norm: &Norm, x: &[T], scale: &[T], bias: &[T], y: &mut [T]) {
    let sizes = NormSizes::new(norm);
    let instances = x.chunks_exact(sizes.len()).zip(y.chunks_exact_mut(sizes.len()));
    for (number, (x, y)) in instances.enumerate() {
        let (mean, inverse) = moments(x, T::from_f32(norm.epsilon));
        let first = sizes.first(number);
        let channels = x.chunks_exact(sizes.inner).zip(y.chunks_exact_mut(sizes.inner));
        for (channel, (x, y)) in (first..).zip(channels) {
            let (scale, bias) = (or(scale, channel, T::ONE), or(bias, channel, T::ZERO));
            for (y, &x) in y.iter_mut().zip(x) {
                *y = scale * ((x - mean) * inverse) + bias;
            }
        }
    }
}

pub(in crate::train) fn input_grad<T: Float>(
    norm: &Norm,
    x: &[T],
    scale: &[T],
    dy: &[T],
    add: bool,
    dx: &mut [T],
) {
    let sizes = NormSizes::new(norm);
    let count = T::from_f64(sizes.len() as f64);
    let instances = x.chunks_exact(sizes.len()).zip(dy.chunks_exact(sizes.len()));
    for (number, ((x, dy), dx)) in instances.zip(dx.chunks_exact_mut(sizes.len())).enumerate() {
        let (mean, inverse) = moments(x, T::from_f32(norm.epsilon));
        let first = sizes.first(number);
        let (mut sum, mut product) = (T::ZERO, T::ZERO);
        let channels = x.chunks_exact(sizes.inner).zip(dy.chunks_exact(sizes.inner));
        for (channel, (x, dy)) in (first..).zip(channels.clone()) {
            let scale = or(scale, channel, T::ONE);
            for (&x, &dy) in x.iter().zip(dy) {
                let dh = dy * scale;
                sum += dh;
                product += dh * ((x - mean) * inverse);
            }
        }
        let (sum, product) = (sum / count, product / count);
        for (channel, ((x, dy), dx)) in (first..).zip(channels.zip(dx.chunks_exact_mut(sizes.inner))) {
            let scale = or(scale, channel, T::ONE);
            for ((&x, &dy), dx) in x.iter().zip(dy).zip(dx) {
                let gradient = (dy * scale - sum - (x - mean) * inverse * product) * inverse;
                *dx = if add { *dx + gradient } else { gradient };
            }
        }
    }
}

pub(in crate::train) fn param_grad<T: Float>(
    norm: &Norm,
    factor: T,
    x: &[T],
    dy: &[T],
    dscale: &mut [T],
    dbias: &mut [T],
) {
    let sizes = NormSizes::new(norm);
    let instances = x.chunks_exact(sizes.len()).zip(dy.chunks_exact(sizes.len()));
    for (number, (x, dy)) in instances.enumerate() {
        let (mean, inverse) = moments(x, T::from_f32(norm.epsilon));
        let channels = x.chunks_exact(sizes.inner).zip(dy.chunks_exact(sizes.inner));
        for (channel, (x, dy)) in (sizes.first(number)..).zip(channels) {
            let (mut sum, mut product) = (T::ZERO, T::ZERO);
            for (&x, &dy) in x.iter().zip(dy) {
                sum += dy;
                product += dy * ((x - mean) * inverse);
            }
            if let Some(dscale) = dscale.get_mut(channel) {
                *dscale += factor * product;
            }
            if let Some(dbias) = dbias.get_mut(channel) {
                *dbias += factor * sum;
            }
        }
    }
}

/// A parameter, or `neutral` where the layer has none.
fn or<T: Float>(values: &[T], at: usize, neutral: T) -> T {
    if values.is_empty() { neutral } else { value(values, at) }
}

struct NormSizes {
    instances: usize,
    channels: usize,
    inner: usize,
    shared: bool,
}

impl NormSizes {
    fn new(norm: &Norm) -> Self {
        let size = |size: u32| size.max(1) as usize;
        let (instances, channels) = (size(norm.instances), size(norm.channels));
        Self { instances, channels, inner: size(norm.inner), shared: norm.shared }
    }

    fn len(&self) -> usize {
        self.channels * self.inner
    }

    /// Index of the first channel in scale and bias.
    fn first(&self, number: usize) -> usize {
        if self.shared { 0 } else { number % self.instances * self.channels }
    }
}

/// Mean and `1 / sqrt(variance + epsilon)`.
fn moments<T: Float>(x: &[T], epsilon: T) -> (T, T) {
    let count = T::from_f64(x.len() as f64);
    let mean = x.iter().fold(T::ZERO, |sum, &x| sum + x) / count;
    let square = x.iter().fold(T::ZERO, |sum, &x| sum + (x - mean) * (x - mean));
    (mean, T::ONE / (square / count + epsilon).sqrt())
}
