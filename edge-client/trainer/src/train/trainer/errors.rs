//! Errors of predicted numbers on test samples, in one pass.

use common::{message::Errors, plan::Loss};

use super::batch::Batch;
use crate::{
    data::Shard,
    train::{FULL, TrainError, executor::predictions},
};

/// A board without feature `full` reports no errors, and has no room for their sums.
const KEPT: usize = if FULL { 1 } else { 0 };

/// Sums over predicted numbers.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(super) struct ErrorTally([Sums; KEPT]);

#[derive(Copy, Clone, PartialEq, Debug, Default)]
struct Sums {
    targets: u32,
    /// In the unit of the targets.
    absolute: f64,
    squared: f64,
    /// Mean of the targets so far, and squared distances from it (Welford).
    mean: f64,
    spread: f64,
}

impl ErrorTally {
    fn add(&mut self, prediction: f64, target: f64, unit: f64) {
        for sums in &mut self.0 {
            sums.targets = sums.targets.saturating_add(1);
            let (error, distance) = (prediction - target, target - sums.mean);
            sums.absolute += error.abs() * unit;
            sums.squared += error * error;
            sums.mean += distance / f64::from(sums.targets);
            sums.spread += distance * (target - sums.mean);
        }
    }

    /// `None` if no numbers were predicted.
    #[cfg(feature = "full")]
    pub fn errors(&self) -> Option<Errors> {
        let sums = self.0.first().filter(|sums| sums.targets > 0)?;
        let mean = |sum: f64| sum / f64::from(sums.targets);
        let (absolute, squared, variance) = (mean(sums.absolute), mean(sums.squared), mean(sums.spread));
        Some(Errors { absolute, squared, mean: sums.mean, variance })
    }

    #[cfg(not(feature = "full"))]
    pub fn errors(&self) -> Option<Errors> {
        None
    }
}

impl<S: Shard + ?Sized> Batch<'_, S> {
    /// Adds the predictions that [`Batch::evaluate`] has just made, if they are numbers.
    pub fn add_errors(&self, arena: &[f32], tally: &mut ErrorTally) -> Result<(), TrainError> {
        if !FULL || self.plan.info().loss != Loss::Squared {
            return Ok(());
        }
        let width = (self.plan.info().outputs as usize).max(1);
        let predicted = predictions(self.plan, arena, self.rows as usize)?;
        for (row, predicted) in predicted.chunks_exact(width).enumerate() {
            for (position, &prediction) in (0..).zip(predicted) {
                let target = self.shard.value_at(self.part, self.index(row), position)?;
                tally.add(prediction.into(), target.into(), self.shard.unit(position).into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[cfg(feature = "full")]
mod tests {
    use super::*;

    /// By hand: errors 0.5, -0.5, 0 and 1; targets 3, -0.5, 2 and 7 have mean 2.875 and squared distances 29.1875.
    #[test]
    fn errors_are_those_of_a_hand_calculation() {
        let mut tally = ErrorTally::default();
        assert_eq!(tally.errors(), None);
        for (prediction, target) in [(2.5, 3.0), (0.0, -0.5), (2.0, 2.0), (8.0, 7.0)] {
            tally.add(prediction, target, 10.0);
        }
        let Errors { absolute, squared, mean, variance } = tally.errors().unwrap();
        assert_eq!((absolute, squared, mean), (5.0, 0.375, 2.875));
        assert!((variance - 29.1875 / 4.0).abs() < 1e-12);
    }
}
