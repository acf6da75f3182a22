//! The last touch: what is to be sent, in the anchor segment (and the guide segment behind it).
//!
//! ```text
//! u = weights - anchor, or the gradient
//! u = u * min(1, clip_l1 / ||u||_1) + Laplace(update)      where privacy asks for it
//! u = u + what a lossy codec still owes                    made of sent numbers only, so nothing leaks
//! ```

use core::ops::Range;

use common::{
    brief::{Laplace, Product},
    message::Task,
    plan::Plan,
};

use super::{
    TrainError, Work,
    noise::{Noise, Use},
};
use crate::train::FULL;

impl Work {
    /// After training: puts what is to be sent into the anchor segment; `Product::Both` leaves the first step
    /// in the guide segment, directly behind it. Does nothing for other tasks.
    pub fn finish(&self, plan: Plan<'_>, arena: &mut [f32]) -> Result<(), TrainError> {
        let Task::Train(brief) = &self.task else { return Ok(()) };
        let noise = Noise::new(self.own.secret, brief.seed, Use::Update);
        finish(plan, arena, brief.product, brief.privacy.filter(|_| FULL).map(|laplace| (laplace, noise)))
    }
}

/// [`Work::finish`] without privacy.
pub fn finish_update(plan: Plan<'_>, arena: &mut [f32], product: Product) -> Result<(), TrainError> {
    finish(plan, arena, product, None)
}

fn finish(
    plan: Plan<'_>,
    arena: &mut [f32],
    product: Product,
    privacy: Option<(Laplace, Noise)>,
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
    if let Some((laplace, mut noise)) = privacy {
        let norm: f64 = update.iter().map(|&value| f64::from(value.abs())).sum();
        let clip = f64::from(laplace.clip_l1);
        let factor = if norm > clip { clip / norm } else { 1.0 };
        for value in update.iter_mut() {
            *value = (f64::from(*value) * factor + noise.draw(laplace.update)) as f32;
        }
    }
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
    // Looked at without a way out of the loop, so that processors take many numbers at once.
    let sent = arena.get(sent).unwrap_or_default();
    let odd = sent.iter().fold(false, |odd, value| odd | !value.is_finite());
    if odd { Err(TrainError::NonFiniteUpdate) } else { Ok(()) }
}

/// A segment, or what is trained of the weights.
pub(super) fn segment(plan: Plan<'_>, at: u32) -> Range<usize> {
    at as usize..(at as usize).saturating_add(plan.trained())
}
