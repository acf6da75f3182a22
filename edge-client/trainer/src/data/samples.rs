//! Samples in memory, for hosts.

use common::rng::Rng;

use super::{DataError, DataSplit, Shard};

/// Features and targets of any number of samples.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Samples {
    features: Vec<f32>,
    /// `targets` per sample; empty where targets are numbers.
    labels: Vec<u32>,
    /// `targets` per sample; empty where targets are labels.
    values: Vec<f32>,
    /// One per sample, or empty.
    groups: Vec<u32>,
    /// Number of groups in the fleet, including those without a sample here.
    group_count: u32,
    inputs: usize,
    targets: usize,
    /// One per target, or empty: see [`Shard::unit`].
    units: Vec<f32>,
}

impl Samples {
    /// `features` holds `inputs` finite numbers for every label.
    pub fn new(features: Vec<f32>, labels: Vec<u32>, inputs: usize) -> Result<Self, DataError> {
        Self::with_labels(features, labels, inputs, 1)
    }

    /// `targets` labels per sample, such as one per token.
    pub fn with_labels(
        features: Vec<f32>,
        labels: Vec<u32>,
        inputs: usize,
        targets: usize,
    ) -> Result<Self, DataError> {
        Self::check(&features, labels.len(), inputs, targets)?;
        if let Some(at) = labels.iter().position(|&label| label == u32::MAX) {
            let index = (at / targets) as u32;
            return Err(DataError::Label { index, label: u32::MAX, classes: u32::MAX });
        }
        Ok(Self { features, labels, inputs, targets, ..Self::default() })
    }

    /// `targets` finite numbers to predict per sample.
    pub fn with_values(
        features: Vec<f32>,
        values: Vec<f32>,
        inputs: usize,
        targets: usize,
    ) -> Result<Self, DataError> {
        Self::check(&features, values.len(), inputs, targets)?;
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(DataError::NonFinite { index: at / targets, feature: at % targets });
        }
        Ok(Self { features, values, inputs, targets, ..Self::default() })
    }

    /// Sets what one step of each scaled target is in the unit of its file.
    pub fn with_units(mut self, units: Vec<f32>) -> Self {
        self.units = units;
        self
    }

    /// Sets the group of each sample.
    pub fn with_groups(mut self, groups: Vec<u32>) -> Result<Self, DataError> {
        if groups.len() != self.len() {
            let (features, inputs) = (self.features.len(), self.inputs);
            return Err(DataError::Lengths { features, labels: groups.len(), inputs });
        }
        self.group_count = groups.iter().max().map_or(0, |&group| group.saturating_add(1));
        self.groups = groups;
        Ok(self)
    }

    /// Sets which of `count` attributes each sample has; groups are label x attribute. There are at least two classes, even if
    /// this device has samples of only one.
    pub fn with_attributes(self, attributes: &[u32], count: u32) -> Result<Self, DataError> {
        let classes = self.classes().max(2);
        self.with_attributes_of(attributes, count, classes)
    }

    /// As [`with_attributes`](Self::with_attributes), where the fleet has this many classes.
    pub fn with_attributes_of(self, attributes: &[u32], count: u32, classes: u32) -> Result<Self, DataError> {
        let rows = self.labels.chunks_exact(self.targets.max(1)).map(|row| row[0]);
        if attributes.len() != self.len() || rows.len() != self.len() {
            let (features, inputs) = (self.features.len(), self.inputs);
            return Err(DataError::Lengths { features, labels: attributes.len(), inputs });
        }
        let wrong = |index: usize, attribute| DataError::Attribute {
            index: index as u32,
            attribute,
            attributes: count,
        };
        let group = |(index, (label, &attribute)): (usize, (u32, &u32))| {
            let group = label.checked_mul(count).and_then(|group| group.checked_add(attribute));
            group.filter(|_| attribute < count).ok_or(wrong(index, attribute))
        };
        let groups = rows.zip(attributes).enumerate().map(group).collect::<Result<_, _>>()?;
        let group_count = classes.max(self.classes()).saturating_mul(count);
        Ok(Self { group_count, ..self.with_groups(groups)? })
    }

    fn check(features: &[f32], labels: usize, inputs: usize, targets: usize) -> Result<(), DataError> {
        let samples = features.len() / inputs.max(1);
        let fit = samples.checked_mul(inputs) == Some(features.len());
        if inputs == 0 || targets == 0 || !fit || samples.checked_mul(targets) != Some(labels) {
            return Err(DataError::Lengths { features: features.len(), labels, inputs });
        }
        if [samples, inputs, targets].iter().any(|&size| u32::try_from(size).is_err()) {
            return Err(DataError::TooMany);
        }
        if let Some(at) = features.iter().position(|value| !value.is_finite()) {
            return Err(DataError::NonFinite { index: at / inputs, feature: at % inputs });
        }
        Ok(())
    }

    /// Samples of another part of the same shard must have as many numbers and targets, unless there are none.
    fn expect_shape(&self, other: &Self) -> Result<(), DataError> {
        if other.is_empty() {
            return Ok(());
        }
        if self.inputs != other.inputs {
            return Err(DataError::Room { inputs: other.inputs, room: self.inputs });
        }
        if self.targets != other.targets && !self.is_empty() {
            let (position, targets) = (other.targets as u32, self.targets as u32);
            return Err(DataError::NoTarget { index: 0, position, targets });
        }
        Ok(())
    }

    /// Copies one part of a shard.
    pub fn of(shard: &(impl Shard + ?Sized), part: DataSplit) -> Result<Self, DataError> {
        let (inputs, len, targets) = (shard.inputs() as usize, shard.len(part), shard.targets());
        let mut features = vec![0.0; inputs * len as usize];
        for (index, row) in (0..len).zip(features.chunks_exact_mut(inputs.max(1))) {
            shard.sample(part, index, row)?;
        }
        let places = || (0..len).flat_map(|index| (0..targets).map(move |position| (index, position)));
        let labels: Result<Vec<u32>, DataError> =
            places().map(|(index, position)| shard.label_at(part, index, position)).collect();
        let samples = match labels {
            Ok(labels) => Self::with_labels(features, labels, inputs, targets as usize)?,
            Err(DataError::NotClass { .. }) => {
                let values = places().map(|(index, position)| shard.value_at(part, index, position));
                Self::with_values(features, values.collect::<Result<_, _>>()?, inputs, targets as usize)?
                    .with_units((0..targets).map(|position| shard.unit(position)).collect())
            }
            Err(error) => return Err(error),
        };
        let groups: Vec<u32> = (0..len).map(|index| shard.group(part, index)).collect();
        if shard.groups() == 0 && groups.iter().all(|&group| group == 0) {
            return Ok(samples);
        }
        let samples = samples.with_groups(groups)?;
        let group_count = samples.group_count.max(shard.groups());
        Ok(Self { group_count, ..samples })
    }

    /// Number of samples; 0 without inputs.
    pub fn len(&self) -> usize {
        self.features.len() / self.inputs.max(1)
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Numbers per sample.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// All numbers, sample after sample.
    pub fn features(&self) -> &[f32] {
        &self.features
    }

    /// All labels, sample after sample; none where targets are numbers.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// All numbers to predict, sample after sample; none where targets are labels.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Targets per sample.
    pub fn targets(&self) -> usize {
        self.targets
    }

    /// One more than the largest label.
    pub fn classes(&self) -> u32 {
        self.labels.iter().max().map_or(0, |&label| label + 1)
    }

    /// The features of one sample.
    pub fn row(&self, index: usize) -> Option<&[f32]> {
        let at = index.checked_mul(self.inputs)?;
        self.features.get(at..at.checked_add(self.inputs)?)
    }

    /// The samples with these indices, in this order.
    pub fn select(&self, indices: &[u32]) -> Result<Self, DataError> {
        let Self { inputs, targets, group_count, .. } = *self;
        let units = self.units.clone();
        let mut chosen = Self { inputs, targets, group_count, units, ..Self::default() };
        chosen.features.reserve(indices.len() * self.inputs);
        for &index in indices {
            let missing = DataError::NoSample { index, len: self.len() as u32 };
            let row = self.row(index as usize).ok_or(missing)?;
            chosen.features.extend_from_slice(row);
            // Targets are labels or numbers, and the other list is empty. The list of groups may be empty, too.
            let targets = index as usize * self.targets..(index as usize + 1) * self.targets;
            if self.values.is_empty() {
                chosen.labels.extend_from_slice(&self.labels[targets]);
            } else {
                chosen.values.extend_from_slice(&self.values[targets]);
            }
            chosen.groups.extend(self.groups.get(index as usize));
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
    validation: Samples,
}

impl VecShard {
    /// Both parts must have the same shape.
    pub fn new(train: Samples, test: Samples) -> Result<Self, DataError> {
        train.expect_shape(&test)?;
        Ok(Self { train, test, validation: Samples::default() })
    }

    /// Sets samples apart for validation. Without any, training samples are kept for it.
    pub fn with_validation(self, validation: Samples) -> Result<Self, DataError> {
        self.train.expect_shape(&validation)?;
        Ok(Self { validation, ..self })
    }

    /// The samples of one part.
    pub fn part(&self, part: DataSplit) -> &Samples {
        match part {
            DataSplit::Train => &self.train,
            DataSplit::Test => &self.test,
            DataSplit::Validation => &self.validation,
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

    fn validation_len(&self) -> u32 {
        self.validation.len() as u32
    }

    fn inputs(&self) -> u32 {
        self.train.inputs as u32
    }

    fn classes(&self) -> u32 {
        self.train.classes().max(self.test.classes()).max(self.validation.classes())
    }

    fn label(&self, part: DataSplit, index: u32) -> Result<u32, DataError> {
        self.label_at(part, index, 0)
    }

    fn sample(&self, part: DataSplit, index: u32, out: &mut [f32]) -> Result<u32, DataError> {
        let missing = DataError::NoSample { index, len: self.len(part) };
        let samples = self.part(part);
        let row = samples.row(index as usize).ok_or(missing)?;
        if row.len() != out.len() {
            return Err(DataError::Room { inputs: row.len(), room: out.len() });
        }
        out.copy_from_slice(row);
        if samples.labels.is_empty() { Ok(0) } else { self.label(part, index) }
    }

    fn targets(&self) -> u32 {
        self.train.targets.max(self.test.targets) as u32
    }

    fn label_at(&self, part: DataSplit, index: u32, position: u32) -> Result<u32, DataError> {
        let samples = self.part(part);
        self.place(part, index, position).and_then(|at| {
            let missing = DataError::NoTarget { index, position, targets: samples.targets as u32 };
            match (samples.labels.get(at), samples.values.get(at)) {
                (Some(&label), _) => Ok(label),
                (None, Some(&value)) if value >= 0.0 && value as u32 as f32 == value => Ok(value as u32),
                (None, Some(_)) => Err(DataError::NotClass { index, position }),
                (None, None) => Err(missing),
            }
        })
    }

    fn value_at(&self, part: DataSplit, index: u32, position: u32) -> Result<f32, DataError> {
        let at = self.place(part, index, position)?;
        match self.part(part).values.get(at) {
            Some(&value) => Ok(value),
            None => self.label_at(part, index, position).map(|label| label as f32),
        }
    }

    fn unit(&self, position: u32) -> f32 {
        self.train.units.get(position as usize).copied().unwrap_or(1.0)
    }

    /// Samples without an attribute are in group 0.
    fn group(&self, part: DataSplit, index: u32) -> u32 {
        self.part(part).groups.get(index as usize).copied().unwrap_or(0)
    }

    fn groups(&self) -> u32 {
        self.train.group_count.max(self.test.group_count)
    }
}

impl VecShard {
    /// Index of a target.
    fn place(&self, part: DataSplit, index: u32, position: u32) -> Result<usize, DataError> {
        let samples = self.part(part);
        if index as usize >= samples.len() {
            return Err(DataError::NoSample { index, len: self.len(part) });
        }
        if position as usize >= samples.targets {
            return Err(DataError::NoTarget { index, position, targets: samples.targets as u32 });
        }
        Ok(index as usize * samples.targets + position as usize)
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
        let mut labels: Vec<u32> = [DataSplit::Train, DataSplit::Test]
            .iter()
            .flat_map(|&part| shard.part(part).labels().to_vec())
            .collect();
        assert_ne!(labels, (0..20).collect::<Vec<_>>());
        for (part, index) in [(DataSplit::Train, 14), (DataSplit::Test, 4)] {
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

    #[test]
    fn groups_are_labels_by_attributes() {
        let samples = Samples::new(vec![0.0; 4], vec![0, 1, 1, 0], 1).unwrap();
        let grouped = samples.clone().with_attributes(&[2, 0, 2, 2], 3).unwrap();
        let shard = VecShard::new(grouped.clone(), grouped.select(&[1]).unwrap()).unwrap();
        assert_eq!((0..4).map(|at| shard.group(DataSplit::Train, at)).collect::<Vec<_>>(), [2, 3, 5, 2]);
        assert_eq!(shard.summary().groups, [0, 0, 2, 1, 0, 1]);
        // All groups exist although there is only one class.
        let part = VecShard::new(grouped.select(&[0, 3]).unwrap(), Samples::default()).unwrap();
        assert_eq!(part.summary().groups, [0, 0, 2, 0, 0, 0]);
        assert_eq!(Samples::of(&part, DataSplit::Train).unwrap(), *part.part(DataSplit::Train));

        let wrong = DataError::Attribute { index: 1, attribute: 2, attributes: 2 };
        assert_eq!(samples.clone().with_attributes(&[0, 2, 0, 0], 2), Err(wrong));
        assert!(samples.clone().with_attributes(&[0], 2).is_err());
        let many = samples.with_attributes(&[0; 4], 9).unwrap();
        let many = VecShard::new(many, Samples::default()).unwrap();
        assert_eq!((many.groups(), many.summary().groups.len()), (18, 0));
    }

    #[test]
    fn tokens_numbers_and_groups_are_kept_and_selected() {
        let features: Vec<f32> = (0..6).map(|x| x as f32).collect();
        let tokens = Samples::with_labels(features.clone(), vec![1, 2, 3, 4, 5, 6], 2, 2).unwrap();
        let tokens = tokens.with_groups(vec![7, 8, 9]).unwrap();
        let shard = VecShard::new(tokens.select(&[2, 0]).unwrap(), Samples::default()).unwrap();
        assert_eq!((shard.train_len(), shard.targets(), shard.group(DataSplit::Train, 0)), (2, 2, 9));
        assert_eq!(shard.label_at(DataSplit::Train, 0, 1), Ok(6));
        assert_eq!(shard.value_at(DataSplit::Train, 1, 0), Ok(1.0));
        let missing = DataError::NoTarget { index: 0, position: 2, targets: 2 };
        assert_eq!(shard.label_at(DataSplit::Train, 0, 2), Err(missing));
        let numbers = Samples::with_values(features.clone(), vec![0.5, -1.0], 3, 1).unwrap();
        let shard = VecShard::new(numbers, Samples::default()).unwrap();
        assert_eq!(shard.value_at(DataSplit::Train, 1, 0), Ok(-1.0));
        assert_eq!(Samples::of(&shard, DataSplit::Train).unwrap().values(), [0.5, -1.0]);
        assert!(Samples::with_labels(features.clone(), vec![0; 5], 2, 2).is_err());
        assert!(Samples::with_values(features.clone(), vec![0.0, f32::NAN], 3, 1).is_err());
        assert!(Samples::new(features, vec![0; 3], 2).unwrap().with_groups(vec![1]).is_err());
    }
}
