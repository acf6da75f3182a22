//! Samples in memory, for hosts.

use common::rng::Rng;

use super::{DataError, Part, Shard};

/// Features and labels of any number of samples.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Samples {
    features: Vec<f32>,
    labels: Vec<u32>,
    inputs: usize,
}

impl Samples {
    /// `features` holds `inputs` finite numbers for every label.
    pub fn new(features: Vec<f32>, labels: Vec<u32>, inputs: usize) -> Result<Self, DataError> {
        if inputs == 0 || labels.len().checked_mul(inputs) != Some(features.len()) {
            return Err(DataError::Lengths { features: features.len(), labels: labels.len(), inputs });
        }
        if u32::try_from(labels.len()).is_err() || u32::try_from(inputs).is_err() {
            return Err(DataError::TooMany);
        }
        if let Some(at) = features.iter().position(|value| !value.is_finite()) {
            return Err(DataError::NonFinite { index: at / inputs, feature: at % inputs });
        }
        if let Some(index) = labels.iter().position(|&label| label == u32::MAX) {
            return Err(DataError::Label { index: index as u32, label: u32::MAX, classes: u32::MAX });
        }
        Ok(Self { features, labels, inputs })
    }

    /// Copies one part of a shard.
    pub fn of(shard: &(impl Shard + ?Sized), part: Part) -> Result<Self, DataError> {
        let (inputs, len) = (shard.inputs() as usize, shard.len(part));
        let mut features = vec![0.0; inputs * len as usize];
        let rows = features.chunks_exact_mut(inputs.max(1));
        let labels = (0..len).zip(rows).map(|(index, row)| shard.sample(part, index, row));
        let labels = labels.collect::<Result<_, _>>()?;
        Self::new(features, labels, inputs)
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// All numbers, sample after sample.
    pub fn features(&self) -> &[f32] {
        &self.features
    }

    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// One more than the largest label.
    pub fn classes(&self) -> u32 {
        self.labels.iter().max().map_or(0, |&label| label + 1)
    }

    pub fn row(&self, index: usize) -> Option<&[f32]> {
        let at = index.checked_mul(self.inputs)?;
        self.features.get(at..at.checked_add(self.inputs)?)
    }

    /// The samples with these indices, in this order.
    pub fn select(&self, indices: &[u32]) -> Result<Self, DataError> {
        let mut chosen = Self { inputs: self.inputs, ..Self::default() };
        chosen.features.reserve(indices.len() * self.inputs);
        for &index in indices {
            let missing = DataError::NoSample { index, len: self.len() as u32 };
            let row = self.row(index as usize).ok_or(missing)?;
            chosen.features.extend_from_slice(row);
            chosen.labels.extend(self.labels.get(index as usize));
        }
        Ok(chosen)
    }

    /// Holds out `round(fraction * n)` random samples for the test part, and keeps at least one for training.
    pub fn split(&self, test_fraction: f64, seed: u64) -> Result<VecShard, DataError> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        Rng::new(seed).shuffle(&mut order);
        let held_out = super::partition::held_out(order.len(), test_fraction);
        let (test, train) = order.split_at(held_out);
        VecShard::new(self.select(train)?, self.select(test)?)
    }
}

/// A Shard that owns its samples.
#[derive(Clone, PartialEq, Debug)]
pub struct VecShard {
    train: Samples,
    test: Samples,
}

impl VecShard {
    pub fn new(train: Samples, test: Samples) -> Result<Self, DataError> {
        if train.inputs != test.inputs && !test.is_empty() {
            return Err(DataError::Room { inputs: test.inputs, room: train.inputs });
        }
        Ok(Self { train, test })
    }

    pub fn part(&self, part: Part) -> &Samples {
        match part {
            Part::Train => &self.train,
            Part::Test => &self.test,
        }
    }
}

impl Shard for VecShard {
    fn train_len(&self) -> u32 {
        self.train.len() as u32
    }

    fn test_len(&self) -> u32 {
        self.test.len() as u32
    }

    fn inputs(&self) -> u32 {
        self.train.inputs as u32
    }

    fn classes(&self) -> u32 {
        self.train.classes().max(self.test.classes())
    }

    fn label(&self, part: Part, index: u32) -> Result<u32, DataError> {
        let missing = DataError::NoSample { index, len: self.len(part) };
        self.part(part).labels.get(index as usize).copied().ok_or(missing)
    }

    fn sample(&self, part: Part, index: u32, out: &mut [f32]) -> Result<u32, DataError> {
        let label = self.label(part, index)?;
        let row = self.part(part).row(index as usize).unwrap_or_default();
        if row.len() != out.len() {
            return Err(DataError::Room { inputs: row.len(), room: out.len() });
        }
        out.copy_from_slice(row);
        Ok(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_keeps_every_sample_once() {
        let features: Vec<f32> = (0..40).map(|x| x as f32).collect();
        let samples = Samples::new(features, (0..20).collect(), 2).unwrap();
        let shard = samples.split(0.25, 3).unwrap();
        assert_eq!((shard.train_len(), shard.test_len(), shard.classes()), (15, 5, 20));
        let mut labels: Vec<u32> =
            [Part::Train, Part::Test].iter().flat_map(|&part| shard.part(part).labels().to_vec()).collect();
        assert_ne!(labels, (0..20).collect::<Vec<_>>());
        for (part, index) in [(Part::Train, 14), (Part::Test, 4)] {
            let mut row = [0.0; 2];
            let label = shard.sample(part, index, &mut row).unwrap();
            assert_eq!(row, [2.0 * label as f32, 2.0 * label as f32 + 1.0]);
        }
        labels.sort_unstable();
        assert_eq!(labels, (0..20).collect::<Vec<_>>());
        assert_eq!(samples.split(0.25, 3), Ok(shard));
    }

    #[test]
    fn contradictions_are_refused() {
        let lengths = DataError::Lengths { features: 3, labels: 2, inputs: 2 };
        assert_eq!(Samples::new(vec![0.0; 3], vec![0; 2], 2), Err(lengths));
        assert!(Samples::new(vec![], vec![], 0).is_err());
        let bad = Samples::new(vec![0.0, 1.0, 2.0, f32::NAN], vec![0, 1], 2);
        assert_eq!(bad, Err(DataError::NonFinite { index: 1, feature: 1 }));
        assert!(Samples::new(vec![0.0], vec![u32::MAX], 1).is_err());
        let good = Samples::new(vec![0.0; 4], vec![0, 1], 2).unwrap();
        assert_eq!(good.select(&[1, 2]), Err(DataError::NoSample { index: 2, len: 2 }));
        let narrow = Samples::new(vec![0.0; 2], vec![0, 1], 1).unwrap();
        assert!(VecShard::new(good, narrow).is_err());
    }
}
