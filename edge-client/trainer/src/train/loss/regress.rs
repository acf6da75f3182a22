//! Losses of single numbers.
//!
//! ```text
//! sigmoid   l = max(z, 0) - z t + ln(1 + exp(-|z|))     dz = sigmoid(z) - t     hit: z > 0 as t >= 1/2
//! squared   l = (z - t)^2                               dz = 2 (z - t)          hit: never
//! ```
//! The first is binary cross-entropy from the logit, in a form that never overflows.

use super::{Float, capped};

pub(super) fn sigmoid<T: Float>(z: T, target: T) -> (f64, bool) {
    let (positive, size) = if z < T::ZERO { (T::ZERO, -z) } else { (z, z) };
    let loss = positive - z * target + (T::ONE + (-size).exp()).ln();
    (capped(loss.to_f64()), (z > T::ZERO) == (target.to_f64() >= 0.5))
}

pub(super) fn sigmoid_gradient<T: Float>(outputs: &mut [T], target: T, scale: T) {
    outputs.iter_mut().for_each(|z| *z = (z.sigmoid() - target) * scale);
}

pub(super) fn squared<T: Float>(z: T, target: T) -> (f64, bool) {
    let gap = z - target;
    (capped((gap * gap).to_f64()), false)
}

pub(super) fn squared_gradient<T: Float>(outputs: &mut [T], target: T, scale: T) {
    outputs.iter_mut().for_each(|z| {
        let gap = *z - target;
        *z = (gap + gap) * scale;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_match_finite_differences() {
        for (z, target) in [(0.3f64, 1.0), (-2.0, 1.0), (4.0, 0.0), (0.7, 0.25)] {
            let slope = |f: &dyn Fn(f64) -> f64| (f(z + 1e-6) - f(z - 1e-6)) / 2e-6;
            let (mut one, mut two) = ([z], [z]);
            sigmoid_gradient(&mut one, target, 0.5);
            squared_gradient(&mut two, target, 0.5);
            assert!((0.5 * slope(&|z| sigmoid(z, target).0) - one[0]).abs() < 1e-9);
            assert!((0.5 * slope(&|z| squared(z, target).0) - two[0]).abs() < 1e-9);
        }
    }

    #[test]
    fn large_logits_do_not_overflow() {
        assert_eq!(sigmoid(200.0f32, 1.0).0, 0.0);
        assert_eq!(sigmoid(-200.0f32, 0.0).0, 0.0);
        assert_eq!(sigmoid(200.0f32, 0.0).0, 200.0);
        assert!((sigmoid(0.0f64, 1.0).0 - 2f64.ln()).abs() < 1e-15);
        assert!(sigmoid(f32::NAN, 1.0).0.is_nan() && squared(f32::NAN, 1.0).0.is_nan());
        assert!(sigmoid(1.0f32, 1.0).1 && !sigmoid(-1.0f32, 1.0).1 && sigmoid(-1.0f32, 0.0).1);
    }
}
