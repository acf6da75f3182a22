//! `y = max(x, 0)`; `dx = dy` where `y > 0`, else 0.
//!
//! The backward pass looks at the output, never the input, so the forward pass may overwrite its input.
//! At 0 the derivative is 0, as in PyTorch.

use super::Float;

pub(super) fn forward_in_place<T: Float>(values: &mut [T]) {
    for value in values {
        *value = rectified(*value);
    }
}

pub(super) fn forward<T: Float>(x: &[T], y: &mut [T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = rectified(x);
    }
}

pub(super) fn backward_in_place<T: Float>(y: &[T], gradient: &mut [T]) {
    for (gradient, &y) in gradient.iter_mut().zip(y) {
        *gradient = gated(y, *gradient);
    }
}

pub(super) fn backward<T: Float>(y: &[T], dy: &[T], dx: &mut [T]) {
    for ((dx, &dy), &y) in dx.iter_mut().zip(dy).zip(y) {
        *dx = gated(y, dy);
    }
}

/// NaN stays NaN, so that a diverged model can not pass for a dead one.
fn rectified<T: Float>(x: T) -> T {
    if x < T::ZERO { T::ZERO } else { x }
}

fn gated<T: Float>(y: T, dy: T) -> T {
    if y > T::ZERO { dy } else { T::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradient_matches_finite_differences() {
        let x = [-2.0f64, -0.1, 0.2, 3.0];
        let (mut up, mut down, mut y) = ([0.0; 4], [0.0; 4], [0.0; 4]);
        forward(&x.map(|x| x + 1e-6), &mut up);
        forward(&x.map(|x| x - 1e-6), &mut down);
        forward(&x, &mut y);
        let dy = [5.0, 6.0, 7.0, 8.0];
        let mut dx = [f64::NAN; 4];
        backward(&y, &dy, &mut dx);
        for at in 0..4 {
            let slope = dy[at] * (up[at] - down[at]) / 2e-6;
            assert!((slope - dx[at]).abs() < 1e-8);
        }
    }

    #[test]
    fn in_place_gives_the_same() {
        let x = [-1.5f32, 0.0, 2.5, f32::INFINITY];
        let (mut apart, mut together) = ([9.0; 4], x);
        forward(&x, &mut apart);
        forward_in_place(&mut together);
        assert_eq!(apart, together);
        let (mut dx, mut gradient) = ([9.0; 4], [1.0f32, 2.0, 3.0, 4.0]);
        backward(&apart, &gradient, &mut dx);
        backward_in_place(&together, &mut gradient);
        assert_eq!((dx, gradient), ([0.0, 0.0, 3.0, 4.0], dx));
    }

    #[test]
    fn nan_is_not_hidden() {
        let mut values = [f32::NAN];
        forward_in_place(&mut values);
        assert!(values[0].is_nan());
    }
}
