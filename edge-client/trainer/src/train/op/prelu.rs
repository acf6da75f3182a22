//! Leaky ReLU with trained slopes.
//!
//! ```text
//! y = x where x > 0, else slope_c * x
//! dx = dy where x > 0, else slope_c * dy      dslope_c += s * sum of dy * x where x <= 0
//! ```
//! A slope may become negative, so backward reads the input: the sign of the output does not tell that of the input.

use common::plan::Spread;

use super::spread::spread_pairs;
use crate::train::{Float, part::value};

pub(in crate::train) fn forward<T: Float>(spread: &Spread, x: &[T], slope: &[T], y: &mut [T]) {
    let bend = |y: &mut T, x: T, slope: T| *y = if x < T::ZERO { slope * x } else { x };
    spread_pairs(spread.inner as usize, slope, y, x, bend);
}

pub(in crate::train) fn input_grad<T: Float>(
    spread: &Spread,
    x: &[T],
    slope: &[T],
    dy: &[T],
    add: bool,
    dx: &mut [T],
) {
    let (inner, channels) = (spread.inner.max(1) as usize, slope.len().max(1));
    let stretches = dx.chunks_mut(inner).zip(dy.chunks(inner)).zip(x.chunks(inner));
    for (number, ((dx, dy), x)) in stretches.enumerate() {
        let slope = value(slope, number % channels);
        for ((dx, &dy), &x) in dx.iter_mut().zip(dy).zip(x) {
            let gradient = if x > T::ZERO { dy } else { slope * dy };
            *dx = if add { *dx + gradient } else { gradient };
        }
    }
}

pub(in crate::train) fn param_grad<T: Float>(
    spread: &Spread,
    factor: T,
    x: &[T],
    dy: &[T],
    dslope: &mut [T],
) {
    let (inner, channels) = (spread.inner.max(1) as usize, dslope.len().max(1));
    for (channel, dslope) in dslope.iter_mut().enumerate() {
        let stretches = x.chunks(inner).zip(dy.chunks(inner)).skip(channel).step_by(channels);
        let pairs = stretches.flat_map(|(x, dy)| x.iter().zip(dy));
        // A NaN is added, so that divergence is detected.
        let sum = pairs.fold(T::ZERO, |sum, (&x, &dy)| if x > T::ZERO { sum } else { sum + dy * x });
        *dslope += factor * sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPREAD: Spread = Spread { len: 4, channels: 2, inner: 2 };

    #[test]
    fn each_channel_has_its_slope() {
        let x = [-1.0f32, 2.0, -3.0, 4.0, 1.0, -2.0, 3.0, -4.0];
        let (slope, dy) = ([0.5, -0.25], [1.0; 8]);
        let (mut y, mut dx, mut dslope) = ([0.0; 8], [10.0; 8], [0.0; 2]);
        forward(&SPREAD, &x, &slope, &mut y);
        assert_eq!(y, [-0.5, 2.0, 0.75, 4.0, 1.0, -1.0, 3.0, 1.0]);
        input_grad(&SPREAD, &x, &slope, &dy, true, &mut dx);
        assert_eq!(dx, [10.5, 11.0, 9.75, 11.0, 11.0, 10.5, 11.0, 9.75]);
        param_grad(&SPREAD, 2.0, &x, &dy, &mut dslope);
        assert_eq!(dslope, [-6.0, -14.0]);
    }

    #[test]
    fn nan_is_not_hidden() {
        let (mut y, mut dslope) = ([0.0; 4], [0.0f32; 2]);
        forward(&SPREAD, &[f32::NAN; 4], &[0.5; 2], &mut y);
        param_grad(&SPREAD, 1.0, &[f32::NAN; 4], &[1.0; 4], &mut dslope);
        assert!(y.iter().chain(&dslope).all(|x| x.is_nan()));
    }
}
