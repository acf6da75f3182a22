//! How hostile devices change their updates on the way to the aggregator.

use std::collections::BTreeSet;

use client::data::{DataError, DataSplit, Shard};
use common::{
    Codec, DeviceId,
    message::DataSummary,
    rng::{Rng, derive},
};
use coordinator::StoredUpdate;

use super::Attack;
use sim::engine::{SharedShard, Tamper};

/// Rounds in which a device of the `turncoat` row is honest.
const HONEST_ROUNDS: u32 = 10;
/// Factor by which a ramp grows from round to round.
const STEP: f64 = 1.2;
/// Largest loss that a hostile device reports: a larger one could not have been computed.
const LARGEST: f64 = 1e30;

/// Factor by which the sample count is too large.
pub(super) fn count_factor(attack: Attack) -> u32 {
    match attack {
        Attack::CountX25 => 25,
        Attack::CountX100 => 100,
        _ => 1,
    }
}

/// Factor by which losses are too high in a round, counted from 1.
fn loss_factor(attack: Attack, round: u32) -> f64 {
    match attack {
        Attack::LossX10 | Attack::Flipped => 10.0,
        Attack::LossX1e6 | Attack::OneTier => 1e6,
        Attack::Ramp => STEP.powf(f64::from(round)),
        _ => 1.0,
    }
}

pub(super) fn tamper(attack: Attack, liars: BTreeSet<DeviceId>, seed: u64) -> Tamper {
    Tamper(Box::new(move |update: &mut StoredUpdate| {
        if !liars.contains(&update.device) {
            return;
        }
        let round = update.ticket.round;
        let (losses, scalars) = (loss_factor(attack, round), &mut update.scalars);
        scalars.samples = scalars.samples.saturating_mul(count_factor(attack));
        scalars.loss_before = (scalars.loss_before * losses).min(LARGEST);
        scalars.loss_after = scalars.loss_after.map(|loss| (loss * losses).min(LARGEST));
        debug_assert_eq!(update.codec, Codec::F32, "other updates cannot be changed without decoding them");
        match attack {
            Attack::Flipped => multiply(&mut update.payload, -1.0),
            Attack::Turncoat if round > HONEST_ROUNDS => multiply(&mut update.payload, -1.0),
            Attack::UpdateX10 => multiply(&mut update.payload, 10.0),
            Attack::FlippedX10 => multiply(&mut update.payload, -10.0),
            Attack::Noise => {
                let name = update.device.as_str().bytes().fold(0, |sum, byte| derive(sum, byte.into()));
                noise(&mut update.payload, derive(derive(seed, round.into()), name));
            }
            _ => {}
        }
    }))
}

fn multiply(payload: &mut [u8], factor: f32) {
    for bytes in payload.as_chunks_mut::<4>().0 {
        *bytes = (f32::from_le_bytes(*bytes) * factor).to_le_bytes();
    }
}

/// Replaces the update by normal noise of the same length (L2 norm).
fn noise(payload: &mut [u8], seed: u64) {
    let (numbers, mut rng) = (payload.as_chunks_mut::<4>().0, Rng::new(seed));
    let length = |numbers: &[[u8; 4]]| {
        numbers.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)).powi(2)).sum::<f64>().sqrt()
    };
    let before = length(numbers);
    for bytes in numbers.iter_mut() {
        *bytes = (rng.normal() as f32).to_le_bytes();
    }
    let scale = before / length(numbers).max(f64::MIN_POSITIVE);
    multiply(payload, scale as f32);
}

/// A shard that reports `factor` times its samples.
pub(super) struct Boaster {
    pub shard: SharedShard,
    pub factor: u32,
}

impl Shard for Boaster {
    fn summary(&self) -> DataSummary {
        let summary = self.shard.summary();
        DataSummary { train_samples: summary.train_samples.saturating_mul(self.factor), ..summary }
    }

    fn train_len(&self) -> u32 {
        self.shard.train_len()
    }

    fn test_len(&self) -> u32 {
        self.shard.test_len()
    }

    fn inputs(&self) -> u32 {
        self.shard.inputs()
    }

    fn classes(&self) -> u32 {
        self.shard.classes()
    }

    fn label(&self, part: DataSplit, index: u32) -> Result<u32, DataError> {
        self.shard.label(part, index)
    }

    fn sample(&self, part: DataSplit, index: u32, out: &mut [f32]) -> Result<u32, DataError> {
        self.shard.sample(part, index, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_as_long_as_the_update() {
        let numbers = [3.0f32, 4.0, 0.0, 0.0];
        let mut payload: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        noise(&mut payload, 7);
        let now: Vec<f32> =
            payload.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert!((now.iter().map(|x| x * x).sum::<f32>().sqrt() - 5.0).abs() < 1e-5, "{now:?}");
        assert_ne!(now, numbers);
    }

    #[test]
    fn a_ramp_starts_small_and_keeps_growing() {
        assert!(loss_factor(Attack::Ramp, 1) < 1.3 && loss_factor(Attack::Ramp, 100) > 1e6);
    }
}
