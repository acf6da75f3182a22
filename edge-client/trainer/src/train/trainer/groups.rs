//! Groups of samples (label x attribute): their weights and their losses.
//!
//! ```text
//! V = sum_k v(group of k)        a batch's loss is  n/V * (sum_k v_k l_k) / B
//! S_g = sum over samples of group g of l in [0, cap]
//! ```
//! The loss of a sample is the mean over its targets, or the share of targets that were missed.

use common::{
    brief::{GroupReport, Signal},
    message::Scalars,
};

use super::{
    batch::{Batch, Weighted},
    subset::Subset,
};
use crate::{
    data::{DataError, DataSplit, Shard},
    train::{TrainError, executor::score_row},
};

/// Sum of the weights of the training samples; `None` where groups have no weights.
pub(super) fn mass(
    shard: &(impl Shard + ?Sized),
    subset: Subset,
    weights: &[f32],
) -> Result<Option<f64>, DataError> {
    if weights.is_empty() {
        return Ok(None);
    }
    let mut mass = 0.0;
    for place in 0..subset.len(shard.train_len()) {
        mass += f64::from(weight(shard, DataSplit::Train, subset.index(place), weights)?);
    }
    Ok(Some(mass))
}

pub(super) fn weight(
    shard: &(impl Shard + ?Sized),
    part: DataSplit,
    index: u32,
    weights: &[f32],
) -> Result<f32, DataError> {
    let group = shard.group(part, index);
    let wrong = DataError::Group { index, group, groups: weights.len() as u32 };
    weights.get(group as usize).copied().ok_or(wrong)
}

impl<S: Shard + ?Sized> Batch<'_, S> {
    /// Adds the losses of the samples that [`Batch::evaluate`] has just computed to those of their groups.
    pub fn add_groups(
        &self,
        arena: &[f32],
        report: &GroupReport,
        scalars: &mut Scalars,
    ) -> Result<(), TrainError> {
        let truth = Weighted { batch: self, groups: &[] };
        for row in 0..self.rows as usize {
            let tally = score_row(self.plan, arena, row, &truth)?;
            let missed = tally.targets.saturating_sub(tally.correct);
            let loss = match report.signal {
                Signal::ZeroOne => f64::from(missed) / f64::from(tally.targets.max(1)),
                Signal::CrossEntropy => tally.mean_loss(),
            };
            let index = self.index(row);
            let group = self.shard.group(self.part, index);
            let wrong = DataError::Group { index, group, groups: scalars.group_losses.len() as u32 };
            let at = group as usize;
            match (scalars.group_losses.get_mut(at), scalars.group_counts.get_mut(at)) {
                (Some(sum), Some(count)) => {
                    // Whatever the model predicts, a sample changes the sum by a number in [0, cap].
                    *sum += if loss < report.cap.into() { loss.max(0.0) } else { report.cap.into() };
                    *count += 1;
                }
                _ => return Err(wrong.into()),
            }
        }
        Ok(())
    }

    /// True if some sample of the batch has a weight other than 0.
    pub fn counts(&self, weights: &[f32]) -> Result<bool, DataError> {
        for row in 0..self.rows as usize {
            if weights.is_empty() || weight(self.shard, self.part, self.index(row), weights)? != 0.0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
