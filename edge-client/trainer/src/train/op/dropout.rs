//! `y = 0` with probability `rate`, else `x / (1 - rate)`.
//!
//! A hash of (seed, step, salt, index in the batch) decides whether a number is dropped, so backward repeats the choice
//! without stored state.

use common::rng::{derive, mix, unit_f32};

use crate::train::Float;

/// One choice per number.
#[derive(Copy, Clone, Debug)]
pub(in crate::train) struct DropoutMask {
    key: u64,
    rate: f32,
}

impl DropoutMask {
    pub(in crate::train) fn new(seed: u64, step: u32, salt: u32, rate: f32) -> Self {
        Self { key: derive(derive(seed, 0x6d61_736b ^ u64::from(step) << 32), salt.into()), rate }
    }

    fn keeps(&self, index: usize) -> bool {
        unit_f32(mix(self.key.wrapping_add(index as u64))) >= self.rate
    }

    fn factor<T: Float>(&self) -> T {
        T::ONE / (T::ONE - T::from_f32(self.rate))
    }

    pub(in crate::train) fn apply<T: Float>(&self, values: &mut [T]) {
        let factor = self.factor::<T>();
        for (index, value) in values.iter_mut().enumerate() {
            *value = if self.keeps(index) { *value * factor } else { T::ZERO };
        }
    }

    pub(in crate::train) fn backward<T: Float>(&self, dy: &[T], add: bool, dx: &mut [T]) {
        let factor = self.factor::<T>();
        for (index, (dx, &dy)) in dx.iter_mut().zip(dy).enumerate() {
            let gradient = if self.keeps(index) { dy * factor } else { T::ZERO };
            *dx = if add { *dx + gradient } else { gradient };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(mask: DropoutMask) -> Vec<bool> {
        let mut values = vec![1.0f32; 20_000];
        mask.apply(&mut values);
        values.iter().map(|&value| value == 0.0).collect()
    }

    #[test]
    fn the_rate_is_met_and_the_mean_is_kept() {
        for rate in [0.0, 0.1, 0.5, 0.9] {
            let mut values = vec![1.0f64; 20_000];
            DropoutMask::new(1, 2, 3, rate).apply(&mut values);
            let mean = values.iter().sum::<f64>() / 2e4;
            assert!((mean - 1.0).abs() < 0.06, "{rate} {mean}");
            let zeros = values.iter().filter(|&&value| value == 0.0).count() as f64 / 2e4;
            assert!((zeros - f64::from(rate)).abs() < 0.015, "{rate} {zeros}");
        }
    }

    #[test]
    fn the_mask_follows_from_seed_step_and_salt() {
        let mask = dropped(DropoutMask::new(1, 2, 3, 0.5));
        assert_eq!(mask, dropped(DropoutMask::new(1, 2, 3, 0.5)));
        for other in
            [DropoutMask::new(9, 2, 3, 0.5), DropoutMask::new(1, 9, 3, 0.5), DropoutMask::new(1, 2, 9, 0.5)]
        {
            let same = mask.iter().zip(dropped(other)).filter(|(a, b)| *a == b).count();
            assert!((9_600..10_400).contains(&same), "masks are independent: {same}");
        }
    }

    #[test]
    fn backward_drops_the_same() {
        let mask = DropoutMask::new(5, 0, 1, 0.4);
        let (mut y, mut dx) = (vec![1.0f32; 500], vec![f32::NAN; 500]);
        mask.apply(&mut y);
        mask.backward(&vec![1.0; 500], false, &mut dx);
        assert_eq!(y, dx);
        mask.backward(&vec![1.0; 500], true, &mut dx);
        assert_eq!(dx, y.iter().map(|y| y + y).collect::<Vec<_>>());
    }
}
