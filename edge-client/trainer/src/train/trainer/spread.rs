//! How far losses of single samples lie apart, in one pass and without memory of them (Welford).

use super::batch::{Batch, Weighted};
use crate::{
    data::Shard,
    train::{
        TrainError,
        executor::{FULL, score_row},
    },
};

/// A board without feature `full` measures no spread, and has no room for one.
const KEPT: usize = if FULL { 1 } else { 0 };

/// Moments of losses.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(super) struct LossSpread([Moments; KEPT]);

/// Number, mean and sum of squared deviations.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
struct Moments {
    samples: u32,
    mean: f64,
    squares: f64,
}

impl LossSpread {
    /// Adds the loss of a sample.
    pub fn add(&mut self, loss: f64) {
        for Moments { samples, mean, squares } in &mut self.0 {
            *samples = samples.saturating_add(1);
            let distance = loss - *mean;
            *mean += distance / f64::from(*samples);
            *squares += distance * (loss - *mean);
        }
    }

    /// Squared standard error of the mean: sample variance over the number of samples. 0 with one sample, of which no
    /// variance is known.
    pub fn squared_error(&self) -> f64 {
        match self.0.first() {
            Some(&Moments { samples, squares, .. }) if samples > 1 => {
                squares / f64::from(samples - 1) / f64::from(samples)
            }
            _ => 0.0,
        }
    }
}

impl<S: Shard + ?Sized> Batch<'_, S> {
    /// Adds the losses of the samples that [`Batch::evaluate`] has just seen; that of a sample is the mean over its targets.
    pub fn add_losses(&self, arena: &[f32], spread: &mut LossSpread) -> Result<(), TrainError> {
        let truth = Weighted { batch: self, groups: &[] };
        for row in 0..self.rows as usize {
            spread.add(score_row(self.plan, arena, row, &truth)?.mean_loss());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::LossSpread;
    use crate::train::LOSS_CAP;

    fn spread(losses: &[f64]) -> LossSpread {
        let mut spread = LossSpread::default();
        losses.iter().for_each(|&loss| spread.add(loss));
        spread
    }

    #[test]
    fn equal_losses_and_single_ones_have_no_error() {
        assert_eq!(spread(&[]).squared_error(), 0.0);
        assert_eq!(spread(&[3.5]).squared_error(), 0.0);
        assert_eq!(spread(&[0.1; 7]).squared_error(), 0.0);
        // Variance 4.5 of two samples.
        assert_eq!(spread(&[1.0, 4.0]).squared_error(), 2.25);
    }

    proptest! {
        #[test]
        fn the_error_is_that_of_two_passes(losses in prop::collection::vec(0.0..LOSS_CAP, 2..60), shift in 0.0..1e6f64) {
            let losses: Vec<f64> = losses.iter().map(|loss| loss + shift).collect();
            let n = losses.len() as f64;
            let mean = losses.iter().sum::<f64>() / n;
            let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let found = spread(&losses);
            prop_assert!(found.0.iter().all(|moments| (moments.mean - mean).abs() <= 1e-12 * mean));
            prop_assert!((found.squared_error() - variance / n).abs() <= 1e-9 * (variance / n) + 1e-12);
            prop_assert!(found.squared_error() >= 0.0);
        }
    }
}
