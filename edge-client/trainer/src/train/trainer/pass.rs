//! One pass of training, and the optimiser step after the last pass of a batch.

use common::{
    brief::{Brief, Objective, Product},
    plan::Plan,
};

use super::{
    Work,
    batch::{Batch, Order},
    phase, segments,
};
use crate::{
    data::{DataSplit, Shard},
    train::{
        Backend, Descent, FULL, GradTarget, LossTally, PassMode, TrainError, apply, backward,
        executor::scale_gradient,
    },
};

impl Work {
    /// One pass of an optimiser step of `size` samples, and the step itself after the last pass.
    pub(super) fn train<S: Shard + ?Sized>(
        &mut self,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &S,
        size: u32,
        order: Order,
        backend: &mut (impl Backend<f32> + ?Sized),
    ) -> Result<LossTally, TrainError> {
        let Some(told) = phase::brief(&self.task) else { return Ok(LossTally::default()) };
        let pull = told.personal.filter(|_| self.phase.is_personal());
        let aside = pull.map(|pull| personal(told, pull));
        let brief = aside.as_ref().unwrap_or(told);
        let first = self.done - self.done % size.max(1);
        let whole = size.min(self.counts.train.saturating_sub(first));
        let end = first + whole;
        let mut batch = self.batch(plan, DataSplit::Train, shard);
        batch.order = order;
        if !(Batch { first, rows: whole, ..batch }).counts(&brief.objective.groups)? {
            return Ok(LossTally { samples: batch.rows.min(end - self.done), ..LossTally::default() });
        }
        batch.rows = batch.rows.min(end - self.done);
        let (fresh, last) = (self.done == first, self.done + batch.rows == end);
        let mode = PassMode::Train { seed: brief.seed, step: batch.number };
        let targets = whole.saturating_mul(plan.info().targets());
        let tally = batch.gradient(arena, brief, mode, targets, backend)?;
        self.summed.merge(tally);
        let factor = factor(brief, self.summed.loss / f64::from(targets.max(1)));
        let rows = batch.passed(Some(brief));
        // A step of one pass applies its factor at once, which is required where gradients are not kept.
        let late = if fresh && last {
            if factor != 1.0 {
                scale_gradient(plan, arena, rows, factor)?;
            }
            1.0
        } else {
            factor
        };
        let kept = plan.info().segments.grads.is_some();
        let target = match Descent::of(brief) {
            Some(descent) if !kept => GradTarget::Weights(descent),
            _ if fresh => GradTarget::Grads,
            _ => GradTarget::MoreGrads,
        };
        backward(plan, arena, rows, mode, target, backend)?;
        if last {
            if FULL && brief.product == Product::Gradient {
                segments::scale_gradient(plan, arena, late);
            } else {
                if kept {
                    apply(plan, arena, brief, self.trained + 1, late)?;
                }
                self.trained += 1;
            }
            if FULL && brief.product == Product::Both && self.trained == 1 {
                segments::keep_first_step(plan, arena);
            }
            self.summed = LossTally::default();
        }
        Ok(tally)
    }
}

/// The brief of the personal model: its own loss, and the pull towards the received model.
fn personal(brief: &Brief, pull: f32) -> Brief {
    let objective =
        Objective { weight: 1.0, prox: pull, align: 0.0, transform: None, ..brief.objective.clone() };
    Brief { objective, product: Product::Update, ..brief.clone() }
}

/// Factor of the gradient of the batch loss: the objective's weight times PropFair's slope.
pub(super) fn factor(brief: &Brief, loss: f64) -> f32 {
    let slope = brief.objective.transform.map_or(1.0, |transform| {
        let room = f64::from(transform.m) - loss;
        1.0 / if room > f64::from(transform.eps) { room } else { transform.eps.into() }
    });
    (f64::from(brief.objective.weight) * slope) as f32
}
