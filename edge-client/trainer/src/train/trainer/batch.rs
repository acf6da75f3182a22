//! The samples of one pass: copies them into the arena, runs the model, computes the loss.

use common::{
    brief::{Brief, SelfRegular},
    plan::Plan,
    rng::{Permutation, Rng, derive},
};

use super::{groups, subset::Subset};
use crate::{
    data::{DataError, DataSplit, Shard},
    train::{
        Backend, LossTally, PassMode, TrainError, Truth, executor::FULL, forward, loss_and_gradient,
        robust_gradient, robust_score, score, trainer::augment::augment,
    },
};

/// Parts of the seed. They differ from those of the sample order, which are the epochs.
const AUGMENT: u64 = 1 << 40;
const MIX: u64 = 2 << 40;

/// Consecutive samples of one pass over a part of the shard.
pub(super) struct Batch<'a, S: ?Sized> {
    pub plan: Plan<'a>,
    pub shard: &'a S,
    pub part: DataSplit,
    /// The samples of the part that are used.
    pub subset: Subset,
    pub first: u32,
    pub rows: u32,
    pub order: Order,
    /// Factor of the weights of groups: n/V.
    pub share: f32,
    /// Number of the batch in the whole work; it determines the copies of samples.
    pub number: u32,
}

#[derive(Copy, Clone, Debug)]
pub(super) enum Order {
    Natural,
    Shuffled(Permutation),
}

impl<S: Shard + ?Sized> Batch<'_, S> {
    /// Rows that the model processes.
    pub fn passed(&self, brief: Option<&Brief>) -> usize {
        self.rows as usize * if robust(brief).is_some() { 2 } else { 1 }
    }

    /// Losses of all samples with weight 1; robust losses if the brief asks for them.
    pub fn evaluate(
        &self,
        arena: &mut [f32],
        brief: Option<&Brief>,
        backend: &mut (impl Backend<f32> + ?Sized),
    ) -> Result<LossTally, TrainError> {
        let (truth, rows) = (Weighted { batch: self, groups: &[] }, self.passed(brief));
        self.read(arena, brief)?;
        forward(self.plan, arena, rows, PassMode::Evaluate, backend)?;
        match (brief, robust(brief)) {
            (Some(brief), Some(terms)) => {
                robust_score(self.plan, arena, rows, terms, self.mix(brief), &truth)
            }
            _ => score(self.plan, arena, rows, &truth),
        }
    }

    /// Adds the statistics of the batch to those of batch normalisation.
    pub fn statistics(
        &self,
        arena: &mut [f32],
        share: f32,
        backend: &mut (impl Backend<f32> + ?Sized),
    ) -> Result<LossTally, TrainError> {
        self.read(arena, None)?;
        forward(self.plan, arena, self.rows as usize, PassMode::Statistics { share }, backend)?;
        Ok(LossTally { samples: self.rows, ..LossTally::default() })
    }

    /// Loss, and its gradient by the logits.
    pub fn gradient(
        &self,
        arena: &mut [f32],
        brief: &Brief,
        mode: PassMode,
        targets: u32,
        backend: &mut (impl Backend<f32> + ?Sized),
    ) -> Result<LossTally, TrainError> {
        let truth = Weighted { batch: self, groups: &brief.objective.groups };
        let rows = self.passed(Some(brief));
        self.read(arena, Some(brief))?;
        forward(self.plan, arena, rows, mode, backend)?;
        match robust(Some(brief)) {
            Some(terms) => robust_gradient(self.plan, arena, rows, targets, (terms, self.mix(brief)), &truth),
            None => loss_and_gradient(self.plan, arena, rows, targets, &truth),
        }
    }

    /// Share of the clean sample in a mixture: uniform in [0, 1).
    fn mix(&self, brief: &Brief) -> f64 {
        Rng::new(derive(brief.seed, MIX + u64::from(self.number))).unit_f64()
    }

    fn read(&self, arena: &mut [f32], brief: Option<&Brief>) -> Result<(), TrainError> {
        let info = self.plan.info();
        let (at, width) = (info.input as usize, info.inputs as usize);
        let len = width.saturating_mul(self.passed(brief));
        let missing = TrainError::Arena { need: info.arena as usize, have: arena.len() };
        let rows = arena.get_mut(at..at.saturating_add(len)).ok_or(missing)?;
        let (clean, copies) = rows.split_at_mut(width.saturating_mul(self.rows as usize).min(rows.len()));
        for (place, row) in clean.chunks_exact_mut(width.max(1)).enumerate() {
            let index = self.index(place);
            self.shard.sample(self.part, index, row)?;
            // No early exit, so that the loop can be vectorised.
            if row.iter().fold(false, |odd, value| odd | !value.is_finite())
                && let Some(feature) = row.iter().position(|value| !value.is_finite())
            {
                return Err(DataError::NonFinite { index: index as usize, feature }.into());
            }
        }
        if let (Some(brief), Some(terms)) = (brief, robust(brief)) {
            let mut rng = Rng::new(derive(brief.seed, AUGMENT + u64::from(self.number)));
            let pairs = clean.chunks_exact(width.max(1)).zip(copies.chunks_exact_mut(width.max(1)));
            pairs.for_each(|(sample, copy)| augment(terms.augment, sample, copy, &mut rng));
        }
        Ok(())
    }

    pub fn index(&self, row: usize) -> u32 {
        let place = self.first + row as u32;
        self.subset.index(match self.order {
            Order::Natural => place,
            Order::Shuffled(order) => order.at(place),
        })
    }
}

fn robust(brief: Option<&Brief>) -> Option<&SelfRegular> {
    brief.and_then(|brief| brief.objective.robust.as_ref()).filter(|_| FULL)
}

/// The batch's targets, and weights by group.
pub(super) struct Weighted<'a, S: ?Sized> {
    pub batch: &'a Batch<'a, S>,
    pub groups: &'a [f32],
}

impl<S: Shard + ?Sized> Truth for Weighted<'_, S> {
    fn class(&self, row: usize, position: usize) -> Result<u32, DataError> {
        self.batch.shard.label_at(self.batch.part, self.batch.index(row), position as u32)
    }

    fn value(&self, row: usize, position: usize) -> Result<f32, DataError> {
        self.batch.shard.value_at(self.batch.part, self.batch.index(row), position as u32)
    }

    fn weight(&self, row: usize) -> Result<f32, DataError> {
        if !FULL || self.groups.is_empty() {
            return Ok(1.0);
        }
        let Batch { shard, part, share, .. } = *self.batch;
        Ok(share * groups::weight(shard, part, self.batch.index(row), self.groups)?)
    }
}
