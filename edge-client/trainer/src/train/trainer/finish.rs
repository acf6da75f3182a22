//! Puts the result into the anchor segment (and the guide segment behind it), from which it is sent.
//!
//! ```text
//! u = weights - anchor, or the gradient
//! u = 0 if a number of u is not finite                     this and the next line only with privacy
//! u = u * min(1, clip_l1 / ||u||_1) + Laplace(update)
//! u = u + residual of a lossy codec                        derived from sent numbers only, so nothing leaks
//! ```

use core::ops::Range;

use common::{
    brief::{Laplace, Product},
    message::Task,
    plan::Plan,
};

use super::{Charge, HiddenDigest, QuestionKey, TrainError, Work, noise_for};
use crate::train::{FULL, part::part};

impl Work {
    /// After training: puts the result into the anchor segment. `Product::Both` has the first step in the guide segment directly
    /// behind it. Does nothing for other tasks. Returns the charge of an answer with noise.
    pub fn finish(&self, plan: Plan<'_>, arena: &mut [f32]) -> Result<Option<Charge>, TrainError> {
        let Task::Train(brief) = &self.task else { return Ok(None) };
        let mut charge = None;
        let hide = |update: &mut [f32]| {
            if let (Some(laplace), Some(question)) = (noise_for(&self.task), self.question) {
                charge = Some(hide(update, laplace, question, self.sums.unwrap_or(HiddenDigest::sums(&[]))));
            }
        };
        finish(plan, arena, brief.product, hide)?;
        Ok(charge)
    }
}

/// [`Work::finish`] without privacy.
pub fn finish_update(plan: Plan<'_>, arena: &mut [f32], product: Product) -> Result<(), TrainError> {
    finish(plan, arena, product, |_| {})
}

/// Clips the update and adds its noise.
fn hide(update: &mut [f32], laplace: Laplace, question: QuestionKey, sums: HiddenDigest) -> Charge {
    let norm: f64 = update.iter().map(|&value| f64::from(value.abs())).sum();
    if !norm.is_finite() {
        update.fill(0.0);
    }
    let hidden = HiddenDigest::update(update);
    let mut noise = question.noise_of_update(sums, hidden);
    let clip = f64::from(laplace.clip_l1);
    let factor = if norm > clip { clip / norm } else { 1.0 };
    for value in update {
        *value = noise.hide(f64::from(*value) * factor, laplace.update) as f32;
    }
    question.charge(sums, hidden)
}

fn finish(
    plan: Plan<'_>,
    arena: &mut [f32],
    product: Product,
    hide: impl FnOnce(&mut [f32]),
) -> Result<(), TrainError> {
    let info = plan.info();
    let (need, have) = (info.arena as usize, arena.len());
    let segment = |at: u32| segment(plan, at);
    let missing = |what, segment| TrainError::Segment { what, segment };
    let anchor = segment(info.segments.anchor.ok_or(TrainError::InferenceOnly)?);
    let residual = info.segments.residual.map_or(0..0, segment);
    let product = if FULL { product } else { Product::Update };
    let result = match product {
        Product::Gradient => segment(info.segments.grads.ok_or(missing("a gradient", "gradient"))?),
        Product::Update | Product::FirstStep | Product::Both => segment(plan.frozen()),
    };
    let [result, update, residual] = arena
        .get_disjoint_mut([result, anchor.clone(), residual])
        .map_err(|_| TrainError::Arena { need, have })?;
    for (update, &result) in update.iter_mut().zip(&*result) {
        *update = if product == Product::Gradient { result } else { result - *update };
    }
    hide(update);
    for (update, &owed) in update.iter_mut().zip(&*residual) {
        *update += owed;
    }
    let sent = match product {
        Product::Both => {
            let guide = info.segments.guide.ok_or(missing("two vectors", "guide"))?;
            anchor.start..segment(guide).end
        }
        _ => anchor,
    };
    // No early exit, so that the loop can be vectorised.
    let odd = part(arena, sent).iter().fold(false, |odd, value| odd | !value.is_finite());
    if odd { Err(TrainError::NonFiniteUpdate) } else { Ok(()) }
}

/// The range of a segment, or of the trained weights.
pub(super) fn segment(plan: Plan<'_>, at: u32) -> Range<usize> {
    at as usize..(at as usize).saturating_add(plan.trained())
}
