//! Stochastic gradient descent: `w -= lr * g`.
//!
//! The rate of a Round comes from the aggregator, decay included, so there is no state here.

use super::Float;

pub fn descend<T: Float>(lr: T, grads: &[T], weights: &mut [T]) {
    for (weight, &grad) in weights.iter_mut().zip(grads) {
        *weight -= lr * grad;
    }
}
