//! Applies a gradient to the weights. [`common::brief`] documents the order and meaning of the parts.
//!
//! | optimiser | step |
//! |---|---|
//! | SGD | `w = (w - lr*(prox*(w - anchor) + decay*w)) - lr*g` |
//! | momentum | `b = momentum*b + g'`; `w -= lr*b`, or `w -= lr*(g' + momentum*b)` (Nesterov) |
//! | Adam | `m = b1*m + (1-b1)*g`, `v = b2*v + (1-b2)*g^2`, `w -= lr*m' / (sqrt(v') + eps)` |
//!
//! Plain SGD gives the same bits with and without a gradient segment. `g'` includes decay; Adam's decay is separate:
//! `w -= lr*decay*w` first.

use core::ops::Range;

use common::{
    brief::{Brief, Objective, Optimizer},
    plan::Plan,
};

use super::{Float, TrainError, executor::full, part::disjoint};

/// Plain SGD, which can be applied as soon as a gradient is known.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Descent<T> {
    /// Learning rate.
    pub lr: T,
    /// Pull towards the anchor.
    pub prox: T,
    /// Weight decay.
    pub decay: T,
}

impl<T: Float> Descent<T> {
    /// Without pull and decay.
    pub fn new(lr: T) -> Self {
        Self { lr, prox: T::ZERO, decay: T::ZERO }
    }

    /// From a brief; `None` if it needs more than plain SGD.
    pub(super) fn of(brief: &Brief) -> Option<Self> {
        let Optimizer::Sgd { momentum, decay, .. } = brief.optimizer else { return None };
        let plain = momentum == 0.0 && brief.clip.is_none() && brief.objective.align == 0.0;
        let [lr, prox, decay] = [brief.lr, brief.objective.prox, decay].map(T::from_f32);
        plain.then_some(Self { lr, prox, decay })
    }

    /// `w -= lr * (prox*(w - anchor) + decay*w)`.
    pub(super) fn pull(
        &self,
        arena: &mut [T],
        weights: Range<usize>,
        anchor: Option<Range<usize>>,
    ) -> Result<(), TrainError> {
        if (self.prox == T::ZERO && self.decay == T::ZERO) || weights.is_empty() {
            return Ok(());
        }
        if self.prox == T::ZERO {
            let [weights] = disjoint(arena, [weights])?;
            for weight in weights {
                *weight -= self.lr * (self.decay * *weight);
            }
            return Ok(());
        }
        let [weights, anchor] = disjoint(arena, [weights, anchor.ok_or(TrainError::InferenceOnly)?])?;
        for (weight, &anchor) in weights.iter_mut().zip(&*anchor) {
            *weight -= self.lr * (self.prox * (*weight - anchor) + self.decay * *weight);
        }
        Ok(())
    }
}

/// Makes one optimiser step from the gradient segment, which it may overwrite. `number` counts steps from 1. The gradient is
/// multiplied by `factor` first.
pub fn apply<T: Float>(
    plan: Plan<'_>,
    arena: &mut [T],
    brief: &Brief,
    number: u32,
    factor: T,
) -> Result<(), TrainError> {
    let segment = |at: u32| at as usize..(at as usize).saturating_add(plan.trained());
    let trained = segment(plan.frozen());
    let segments = plan.info().segments;
    let missing = |segment| TrainError::Segment { what: "this optimiser", segment };
    let grads = segment(segments.grads.ok_or(missing("gradient"))?);
    let anchor = segments.anchor.map(segment);
    if let Some(descent) = Descent::of(brief) {
        descent.pull(arena, trained.clone(), anchor)?;
        let [weights, grads] = disjoint(arena, [trained, grads])?;
        for (weight, &grad) in weights.iter_mut().zip(&*grads) {
            let grad = if factor == T::ONE { grad } else { factor * grad };
            *weight -= descent.lr * grad;
        }
        return Ok(());
    }
    full()?;
    let Objective { prox, align, .. } = brief.objective;
    let anchor = if prox == 0.0 { 0..0 } else { anchor.ok_or(missing("anchor"))? };
    let guide = if align == 0.0 { 0..0 } else { segment(segments.guide.ok_or(missing("guide"))?) };
    let [weights, anchor, gradient, guide] =
        disjoint(arena, [trained.clone(), anchor, grads.clone(), guide])?;
    shape(brief, factor, weights, anchor, gradient, guide);
    let first = segments.moment1.map(segment);
    match brief.optimizer {
        Optimizer::Sgd { momentum, nesterov, decay } => {
            let moment = if momentum == 0.0 { 0..0 } else { first.ok_or(missing("first moment"))? };
            let [weights, grads, moment] = disjoint(arena, [trained, grads, moment])?;
            let [lr, momentum, decay] = [brief.lr, momentum, decay].map(T::from_f32);
            sgd(lr, momentum, nesterov, decay, weights, grads, moment);
        }
        Optimizer::Adam { .. } => {
            let first = first.ok_or(missing("first moment"))?;
            let second = segment(segments.moment2.ok_or(missing("second moment"))?);
            let [weights, grads, first, second] = disjoint(arena, [trained, grads, first, second])?;
            adam(brief, number, weights, grads, first, second);
        }
    }
    Ok(())
}

/// Factor, alignment, proximal pull and clipping.
fn shape<T: Float>(brief: &Brief, factor: T, weights: &[T], anchor: &[T], grads: &mut [T], guide: &[T]) {
    let align = T::from_f32(brief.objective.align);
    let prox = T::from_f32(brief.objective.prox);
    grads.iter_mut().for_each(|grad| *grad *= factor);
    if align != T::ZERO {
        for (grad, &guide) in grads.iter_mut().zip(guide) {
            *grad = (T::ONE - align) * *grad + align * guide;
        }
    }
    if prox != T::ZERO {
        for ((grad, &weight), &anchor) in grads.iter_mut().zip(weights).zip(anchor) {
            *grad += prox * (weight - anchor);
        }
    }
    if let Some(clip) = brief.clip {
        let norm = libm::sqrt(grads.iter().map(|grad| grad.to_f64() * grad.to_f64()).sum());
        if norm > f64::from(clip) {
            let factor = T::from_f64(f64::from(clip) / norm);
            grads.iter_mut().for_each(|grad| *grad *= factor);
        }
    }
}

/// `moment` is read where there is momentum.
fn sgd<T: Float>(
    lr: T,
    momentum: T,
    nesterov: bool,
    decay: T,
    weights: &mut [T],
    grads: &[T],
    moment: &mut [T],
) {
    if momentum == T::ZERO {
        for (weight, &grad) in weights.iter_mut().zip(grads) {
            *weight -= lr * (grad + decay * *weight);
        }
        return;
    }
    for ((weight, &grad), moment) in weights.iter_mut().zip(grads).zip(moment) {
        let grad = grad + decay * *weight;
        *moment = momentum * *moment + grad;
        *weight -= lr * if nesterov { grad + momentum * *moment } else { *moment };
    }
}

fn adam<T: Float>(
    brief: &Brief,
    number: u32,
    weights: &mut [T],
    grads: &[T],
    first: &mut [T],
    second: &mut [T],
) {
    let Optimizer::Adam { beta1, beta2, epsilon, decay } = brief.optimizer else { return };
    // Powers in f64: 1 - 0.999^1 has three digits in f32.
    let correction = |beta: f32| 1.0 - libm::pow(beta.into(), number.max(1).into());
    let rate = T::from_f64(f64::from(brief.lr) / correction(beta1));
    let root = T::from_f64(1.0 / libm::sqrt(correction(beta2)));
    let [lr, beta1, beta2, epsilon, decay] = [brief.lr, beta1, beta2, epsilon, decay].map(T::from_f32);
    let moments = first.iter_mut().zip(second);
    for ((weight, &grad), (first, second)) in weights.iter_mut().zip(grads).zip(moments) {
        *weight -= lr * (decay * *weight);
        *first = beta1 * *first + (T::ONE - beta1) * grad;
        *second = beta2 * *second + (T::ONE - beta2) * (grad * grad);
        *weight -= rate * *first / (second.sqrt() * root + epsilon);
    }
}
