//! Artificial label noise: symmetric flips.

use common::rng::Rng;

use super::{DataSet, SetError};

impl DataSet {
    /// Replaces each training label with probability `share` by one of the other classes, all equally likely. Test
    /// labels stay correct, because they measure the result.
    pub fn with_label_noise(mut self, share: f64, seed: u64) -> Result<Self, SetError> {
        if !(0.0..=1.0).contains(&share) {
            return Err(SetError::Noise(share));
        }
        if share > 0.0 && self.is_regression() {
            return Err(SetError::NoLabels(self.name));
        }
        let mut rng = Rng::new(seed);
        let classes = self.classes;
        for label in self.train.labels_mut() {
            let (flip, step) = (rng.unit_f64() < share, rng.below(u64::from(classes.max(2) - 1)));
            if flip && classes > 1 {
                *label = ((u64::from(*label) + 1 + step) % u64::from(classes)) as u32;
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Features, Records};

    #[test]
    fn flips_are_symmetric_and_seeded() {
        let records = |count: u32| {
            let labels: Vec<u32> = (0..count).map(|index| index % 4).collect();
            Records::new(Features::Floats(vec![0.0; count as usize]), labels, 1, 1).unwrap()
        };
        let clean = DataSet::new("x", vec![1], 4, records(40_000), records(40)).unwrap();
        let noisy = clean.clone().with_label_noise(0.3, 5).unwrap();
        assert_eq!(noisy.test, clean.test);
        let mut moved = [[0u32; 4]; 4];
        for (&from, &to) in clean.train.labels().iter().zip(noisy.train.labels()) {
            moved[from as usize][to as usize] += 1;
        }
        for (from, row) in moved.iter().enumerate() {
            for (to, &count) in row.iter().enumerate() {
                let expected = if from == to { 7000.0 } else { 1000.0 };
                assert!((f64::from(count) - expected).abs() < 150.0, "{from} -> {to}: {count}");
            }
        }
        assert_eq!(clean.clone().with_label_noise(0.3, 5).unwrap(), noisy);
        assert_ne!(clean.clone().with_label_noise(0.3, 6).unwrap(), noisy);
        assert_eq!(clean.clone().with_label_noise(0.0, 5).unwrap(), clean);
        assert!(matches!(clean.with_label_noise(f64::NAN, 5), Err(SetError::Noise(_))));
    }
}
