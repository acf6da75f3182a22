//! Softmax cross-entropy from logits.
//!
//! ```text
//! m = max_j z_j    s = sum_j exp(z_j - m)    p_j = exp(z_j - m) / s
//! loss = ln s - (z_y - m), at most LOSS_CAP          dz_j = scale * (p_j - [j = y])
//! ```

use super::{Float, capped as limited};
use crate::train::part::value;

/// Loss of one sample, and whether its largest logit (the first of equals) is that of the label.
///
/// A label without a logit has loss NaN; callers check labels first.
pub(super) fn score<T: Float>(logits: &[T], label: usize) -> (f64, bool) {
    let (best, max) = peak(logits);
    let sum = logits.iter().fold(T::ZERO, |sum, &logit| sum + (logit - max).exp());
    (loss(logits, label, max, sum), best == label)
}

/// Like [`score`], and replaces the logits by `scale * (p - [j = label])`.
pub(super) fn gradient<T: Float>(logits: &mut [T], label: usize, scale: T) -> (f64, bool) {
    let (best, max) = peak(logits);
    let target = logits.get(label).copied();
    let mut sum = T::ZERO;
    for logit in logits.iter_mut() {
        *logit = (*logit - max).exp();
        sum += *logit;
    }
    for value in logits.iter_mut() {
        *value = *value / sum * scale;
    }
    if let Some(value) = logits.get_mut(label) {
        *value -= scale;
    }
    (capped(target, max, sum), best == label)
}

fn loss<T: Float>(logits: &[T], label: usize, max: T, sum: T) -> f64 {
    capped(logits.get(label).copied(), max, sum)
}

fn capped<T: Float>(target: Option<T>, max: T, sum: T) -> f64 {
    limited(target.map_or(f64::NAN, |target| (sum.ln() - (target - max)).to_f64()))
}

fn peak<T: Float>(logits: &[T]) -> (usize, T) {
    let first = (0, value(logits, 0));
    let larger =
        |best: (usize, T), (at, &logit): (usize, &T)| if logit > best.1 { (at, logit) } else { best };
    logits.iter().enumerate().fold(first, larger)
}

#[cfg(test)]
mod tests {
    use super::{super::LOSS_CAP, *};

    #[test]
    fn gradient_matches_finite_differences() {
        let logits = [0.3f64, -1.2, 2.0, 0.9];
        let mut dz = logits;
        let (loss, correct) = gradient(&mut dz, 3, 0.25);
        assert_eq!((loss, correct), score(&logits, 3));
        for at in 0..4 {
            let moved = |by: f64| {
                let mut logits = logits;
                logits[at] += by;
                score(&logits, 3).0
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            assert!((0.25 * slope - dz[at]).abs() < 1e-9, "{at}");
        }
    }

    #[test]
    fn uniform_logits_cost_ln_of_the_classes() {
        assert!((score(&[5.0f64; 10], 4).0 - 10f64.ln()).abs() < 1e-12);
        assert!((score(&[1e30f32; 10], 4).0 - 10f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn of_equal_logits_the_first_wins() {
        assert!(score(&[1.0f32, 1.0], 0).1);
        assert!(!score(&[1.0f32, 1.0], 1).1);
    }

    #[test]
    fn large_losses_are_capped_and_nan_is_not() {
        assert_eq!(score(&[0.0f32, 2e4], 0).0, LOSS_CAP);
        assert_eq!(score(&[-3e38f32, 3e38], 0).0, LOSS_CAP);
        let mut logits = [-3e38f32, 3e38];
        assert_eq!(gradient(&mut logits, 0, 1.0).0, LOSS_CAP);
        assert_eq!(logits, [-1.0, 1.0]);
        assert!(score(&[0.0, f32::NAN], 0).0.is_nan());
        assert!(score(&[0.0, f32::INFINITY], 0).0.is_nan());
        assert!(score(&[0.0f32, 0.0], 2).0.is_nan());
    }
}
