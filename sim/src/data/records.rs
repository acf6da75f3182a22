//! One part of a data set: features, targets and, if known, group and natural client of every sample.
//!
//! Images stay bytes (`feature = scale * byte`): 60,000 of 28x28 take 47 MB instead of 188.

use trainer::data::DataError;

/// Samples with their labels or numbers to predict and, if known, their groups and natural clients.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Records {
    features: Features,
    /// `targets` per sample; empty where targets are numbers.
    labels: Vec<u32>,
    /// `targets` per sample; empty where targets are labels.
    values: Vec<f32>,
    /// One group per sample, or empty.
    groups: Vec<u8>,
    /// One client per sample, or empty.
    clients: Vec<u32>,
    inputs: usize,
    targets: usize,
}

/// The numbers of all samples, one after the other.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Features {
    /// Bytes `data`; a feature is `scale` x byte.
    Bytes { data: Vec<u8>, scale: f32 },
    /// Features as they are.
    Floats(Vec<f32>),
}

impl Default for Features {
    fn default() -> Self {
        Self::Floats(Vec::new())
    }
}

impl Records {
    /// `features` holds `inputs` finite numbers for every sample, and `labels` holds `targets` labels.
    pub fn new(
        features: Features,
        labels: Vec<u32>,
        inputs: usize,
        targets: usize,
    ) -> Result<Self, DataError> {
        Self::check(&features, labels.len(), inputs, targets)?;
        Ok(Self { features, labels, inputs, targets, ..Self::default() })
    }

    /// `targets` finite numbers to predict per sample.
    pub(crate) fn with_values(
        features: Features,
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

    fn check(features: &Features, labels: usize, inputs: usize, targets: usize) -> Result<(), DataError> {
        let wrong = DataError::Lengths { features: features.len(), labels, inputs };
        if inputs == 0 || targets == 0 || !labels.is_multiple_of(targets) {
            return Err(wrong);
        }
        let samples = labels / targets;
        if samples.checked_mul(inputs) != Some(features.len()) {
            return Err(wrong);
        }
        if [samples, inputs, targets].iter().any(|&size| u32::try_from(size).is_err()) {
            return Err(DataError::TooMany);
        }
        if let Features::Floats(floats) = features
            && let Some(at) = floats.iter().position(|value| !value.is_finite())
        {
            return Err(DataError::NonFinite { index: at / inputs, feature: at % inputs });
        }
        Ok(())
    }

    /// Assigns a group (value of the sensitive attribute) to each sample.
    pub(crate) fn with_groups(mut self, groups: Vec<u8>) -> Result<Self, DataError> {
        self.one_each(groups.len())?;
        self.groups = groups;
        Ok(self)
    }

    /// Assigns a natural client (writer, speaker, person) to each sample.
    pub(crate) fn with_clients(mut self, clients: Vec<u32>) -> Result<Self, DataError> {
        self.one_each(clients.len())?;
        self.clients = clients;
        Ok(self)
    }

    /// Replaces squares of pixels by their mean. Samples are planes of `height x width`, which `side` divides.
    pub(super) fn pooled(mut self, height: usize, width: usize, side: usize) -> Result<Self, DataError> {
        let (rows, columns) = (height / side, width / side);
        let inputs = self.inputs / (side * side);
        let mut sample = vec![0.0; self.inputs];
        let mut floats = Vec::with_capacity(self.len() * inputs);
        for index in 0..self.len() as u32 {
            self.read(index, &mut sample)?;
            for plane in sample.chunks_exact((height * width).max(1)) {
                let mut sums = vec![0.0f32; rows * columns];
                for (at, value) in plane.iter().enumerate() {
                    sums[at / width / side * columns + at % width / side] += value;
                }
                floats.extend(sums.iter().map(|sum| sum / (side * side) as f32));
            }
        }
        (self.features, self.inputs) = (Features::Floats(floats), inputs);
        Ok(self)
    }

    /// Mean and standard deviation of all numbers; `None` if all are equal, or bytes.
    pub(super) fn moments(&self) -> Option<(f32, f32)> {
        let Features::Floats(floats) = &self.features else { return None };
        let count = floats.len().max(1) as f64;
        let mean = floats.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
        let squares = floats.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>();
        let deviation = (squares / count).sqrt();
        (deviation > 0.0).then_some((mean as f32, deviation as f32))
    }

    /// Subtracts `mean` from all numbers and divides them by `deviation`; bytes stay.
    pub(super) fn scaled(mut self, mean: f32, deviation: f32) -> Self {
        if let Features::Floats(floats) = &mut self.features {
            floats.iter_mut().for_each(|value| *value = (*value - mean) / deviation);
        }
        self
    }

    pub(super) fn one_each(&self, given: usize) -> Result<(), DataError> {
        let lengths =
            DataError::Lengths { features: self.features.len(), labels: given, inputs: self.inputs };
        if given == self.len() { Ok(()) } else { Err(lengths) }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        // A part without samples has no targets.
        self.labels.len().max(self.values.len()) / self.targets.max(1)
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Numbers per sample.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Labels per sample.
    pub fn targets(&self) -> usize {
        self.targets
    }

    pub(crate) fn features(&self) -> &Features {
        &self.features
    }

    /// All labels, sample after sample; none where targets are numbers.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// All numbers to predict, sample after sample; none where targets are labels.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    pub(super) fn labels_mut(&mut self) -> &mut [u32] {
        &mut self.labels
    }

    /// The first label of every sample, by which partitions by class divide; none where targets are numbers.
    pub(crate) fn first_labels(&self) -> impl Iterator<Item = u32> {
        self.labels.iter().step_by(self.targets.max(1)).copied()
    }

    /// Group of every sample; empty if there are no groups.
    pub fn groups(&self) -> &[u8] {
        &self.groups
    }

    /// Natural client of every sample; empty if there are none.
    pub fn clients(&self) -> &[u32] {
        &self.clients
    }

    /// The label at a position of a sample.
    pub fn label(&self, index: u32, position: u32) -> Result<u32, DataError> {
        let at = self.place(index, position)?;
        self.labels.get(at).copied().ok_or(DataError::NotClass { index, position })
    }

    /// The number to predict at a position of a sample; its label where targets are labels.
    pub(crate) fn value(&self, index: u32, position: u32) -> Result<f32, DataError> {
        let at = self.place(index, position)?;
        self.values.get(at).copied().map_or_else(|| self.label(index, position).map(|label| label as f32), Ok)
    }

    /// Index of a target.
    fn place(&self, index: u32, position: u32) -> Result<usize, DataError> {
        if index as usize >= self.len() {
            return Err(DataError::NoSample { index, len: self.len() as u32 });
        }
        if position as usize >= self.targets {
            return Err(DataError::NoTarget { index, position, targets: self.targets as u32 });
        }
        Ok(index as usize * self.targets + position as usize)
    }

    /// Writes the features of a sample to `out`.
    pub fn read(&self, index: u32, out: &mut [f32]) -> Result<(), DataError> {
        let missing = DataError::NoSample { index, len: self.len() as u32 };
        if out.len() != self.inputs {
            return Err(DataError::Room { inputs: self.inputs, room: out.len() });
        }
        let at = (index as usize).checked_mul(self.inputs).ok_or(missing)?;
        let row = at..at.saturating_add(self.inputs);
        match &self.features {
            Features::Bytes { data, scale } => {
                for (out, &byte) in out.iter_mut().zip(data.get(row).ok_or(missing)?) {
                    *out = scale * f32::from(byte);
                }
            }
            Features::Floats(data) => out.copy_from_slice(data.get(row).ok_or(missing)?),
        }
        Ok(())
    }

    /// The samples with these indices, in this order.
    pub(crate) fn select(&self, indices: &[u32]) -> Result<Self, DataError> {
        let len = self.len() as u32;
        if let Some(&index) = indices.iter().find(|&&index| index >= len) {
            return Err(DataError::NoSample { index, len });
        }
        Ok(Self {
            features: match &self.features {
                Features::Bytes { data, scale } => {
                    Features::Bytes { data: rows(data, self.inputs, indices), scale: *scale }
                }
                Features::Floats(data) => Features::Floats(rows(data, self.inputs, indices)),
            },
            labels: rows(&self.labels, self.targets, indices),
            values: rows(&self.values, self.targets, indices),
            groups: rows(&self.groups, 1, indices),
            clients: rows(&self.clients, 1, indices),
            ..*self
        })
    }
}

/// Rows of `width` numbers. Indices out of range are skipped.
fn rows<T: Copy>(data: &[T], width: usize, indices: &[u32]) -> Vec<T> {
    let row = |&index: &u32| data.get(index as usize * width..(index as usize + 1) * width);
    indices.iter().filter_map(row).flatten().copied().collect()
}

impl Features {
    /// Number of features of all samples together.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes { data, .. } => data.len(),
            Self::Floats(data) => data.len(),
        }
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Bytes { data, .. } => data.len(),
            Self::Floats(data) => 4 * data.len(),
        }
    }

    /// Smallest and largest number.
    pub(crate) fn range(&self) -> Option<(f32, f32)> {
        match self {
            Self::Bytes { data, scale } => {
                let (low, high) = (data.iter().min()?, data.iter().max()?);
                Some((scale * f32::from(*low), scale * f32::from(*high)))
            }
            Self::Floats(data) => {
                let first = *data.first()?;
                Some(data.iter().fold((first, first), |(low, high), &x| (low.min(x), high.max(x))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Records {
        let features = Features::Bytes { data: vec![0, 10, 20, 30, 40, 50], scale: 0.5 };
        Records::new(features, vec![1, 0, 2], 2, 1).unwrap()
    }

    #[test]
    fn bytes_are_scaled_as_they_are_read() {
        let records = bytes();
        let mut row = [0.0; 2];
        records.read(2, &mut row).unwrap();
        assert_eq!((row, records.label(2, 0)), ([20.0, 25.0], Ok(2)));
        assert_eq!((records.features().range(), records.features().bytes()), (Some((0.0, 25.0)), 6));
        assert_eq!(records.read(3, &mut row), Err(DataError::NoSample { index: 3, len: 3 }));
        assert_eq!(records.read(0, &mut [0.0; 3]), Err(DataError::Room { inputs: 2, room: 3 }));
        assert_eq!(records.label(0, 1), Err(DataError::NoTarget { index: 0, position: 1, targets: 1 }));
    }

    #[test]
    fn a_selection_keeps_labels_groups_and_clients() {
        let records = bytes().with_groups(vec![0, 1, 0]).unwrap().with_clients(vec![7, 8, 9]).unwrap();
        let chosen = records.select(&[2, 0]).unwrap();
        assert_eq!(
            (chosen.labels(), chosen.groups(), chosen.clients()),
            (&[2, 1][..], &[0, 0][..], &[9, 7][..])
        );
        let mut row = [0.0; 2];
        chosen.read(0, &mut row).unwrap();
        assert_eq!(row, [20.0, 25.0]);
        assert_eq!(records.select(&[3]), Err(DataError::NoSample { index: 3, len: 3 }));
    }

    #[test]
    fn numbers_to_predict_are_no_labels() {
        let features = || Features::Floats(vec![0.0; 4]);
        let records = Records::with_values(features(), vec![0.5, 1.0, -2.0, 3.0], 2, 2).unwrap();
        assert_eq!((records.len(), records.is_empty(), records.targets()), (2, false, 2));
        assert_eq!((records.value(1, 0), records.value(0, 1)), (Ok(-2.0), Ok(1.0)));
        assert_eq!(records.label(0, 1), Err(DataError::NotClass { index: 0, position: 1 }));
        assert_eq!(records.value(0, 2), Err(DataError::NoTarget { index: 0, position: 2, targets: 2 }));
        assert_eq!(records.select(&[1]).unwrap().values(), [-2.0, 3.0]);
        assert_eq!(bytes().value(0, 0), Ok(1.0));
        let wrong = Records::with_values(features(), vec![0.5, f32::NAN], 2, 1);
        assert_eq!(wrong, Err(DataError::NonFinite { index: 1, feature: 0 }));
        assert!(Records::with_values(features(), vec![0.5; 3], 2, 1).is_err());
    }

    #[test]
    fn inconsistent_parts_are_refused() {
        let floats = |data: &[f32]| Features::Floats(data.to_vec());
        assert!(Records::new(floats(&[0.0; 3]), vec![0, 1], 2, 1).is_err());
        assert!(Records::new(floats(&[]), vec![], 0, 1).is_err());
        assert!(Records::new(floats(&[0.0; 4]), vec![0; 3], 2, 2).is_err());
        let nan = Records::new(floats(&[0.0, 1.0, f32::NAN, 0.0]), vec![0, 0], 2, 1);
        assert_eq!(nan, Err(DataError::NonFinite { index: 1, feature: 0 }));
        assert!(bytes().with_groups(vec![0]).is_err());
        assert!(bytes().with_clients(vec![0; 4]).is_err());
    }
}
