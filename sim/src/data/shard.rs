//! One device's samples: indices into records that all devices share.
//!
//! A thousand devices need the memory of the data once, plus one index per sample.

use std::sync::Arc;

use trainer::data::{DataError, DataSplit, Shard};

use super::{DataSet, Records};

/// Source of the samples that a device does not train on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum TestSource {
    /// Taken from the training records.
    #[default]
    Train,
    /// Taken from the set's test records.
    Test,
}

/// A device's samples. Groups are cells (label, attribute): `label * groups + attribute`, in the order of the
/// strategies' weights.
#[derive(Clone, Debug)]
pub struct DeviceShard {
    data: Arc<DataSet>,
    train: Arc<[u32]>,
    test: Arc<[u32]>,
    held: TestSource,
    /// Indices into the training records.
    valid: Arc<[u32]>,
}

impl DeviceShard {
    /// `train` are indices into the training records; `held` says which records `test` refers to.
    pub fn new(
        data: Arc<DataSet>,
        train: Arc<[u32]>,
        test: Arc<[u32]>,
        held: TestSource,
    ) -> Result<Self, DataError> {
        let shard = Self { data, train, test, held, valid: [].into() };
        for part in [DataSplit::Train, DataSplit::Test] {
            let (records, indices) = shard.place(part);
            let len = records.len() as u32;
            if let Some(&index) = indices.iter().find(|&&index| index >= len) {
                return Err(DataError::NoSample { index, len });
            }
        }
        Ok(shard)
    }

    /// Sets training records apart for validation. Without any, a device that must validate keeps some of its own.
    pub fn with_validation(self, valid: Arc<[u32]>) -> Result<Self, DataError> {
        let len = self.data.train.len() as u32;
        match valid.iter().find(|&&index| index >= len) {
            Some(&index) => Err(DataError::NoSample { index, len }),
            None => Ok(Self { valid, ..self }),
        }
    }

    /// The shared data set.
    pub fn data(&self) -> &Arc<DataSet> {
        &self.data
    }

    /// Indices of the device's training records.
    pub fn train_indices(&self) -> &[u32] {
        &self.train
    }

    /// Indices of the samples that the device is tested on.
    pub fn test_indices(&self) -> &[u32] {
        &self.test
    }

    /// Value of the sensitive attribute of a sample; 0 if there is none.
    pub fn attribute(&self, part: DataSplit, index: u32) -> u32 {
        match self.place(part) {
            (records, _) if records.groups().is_empty() => 0,
            (records, indices) => records.groups()[indices[index as usize] as usize].into(),
        }
    }

    fn place(&self, part: DataSplit) -> (&Records, &[u32]) {
        match (part, self.held) {
            (DataSplit::Train, _) => (&self.data.train, &self.train),
            (DataSplit::Test, TestSource::Train) => (&self.data.train, &self.test),
            (DataSplit::Test, TestSource::Test) => (&self.data.test, &self.test),
            (DataSplit::Validation, _) => (&self.data.train, &self.valid),
        }
    }

    fn at(&self, part: DataSplit, index: u32) -> Result<(&Records, u32), DataError> {
        let (records, indices) = self.place(part);
        let missing = DataError::NoSample { index, len: indices.len() as u32 };
        Ok((records, *indices.get(index as usize).ok_or(missing)?))
    }
}

impl Shard for DeviceShard {
    fn train_len(&self) -> u32 {
        self.train.len() as u32
    }

    fn test_len(&self) -> u32 {
        self.test.len() as u32
    }

    fn validation_len(&self) -> u32 {
        self.valid.len() as u32
    }

    fn inputs(&self) -> u32 {
        self.data.inputs() as u32
    }

    fn classes(&self) -> u32 {
        self.data.classes
    }

    fn label(&self, part: DataSplit, index: u32) -> Result<u32, DataError> {
        self.label_at(part, index, 0)
    }

    fn sample(&self, part: DataSplit, index: u32, out: &mut [f32]) -> Result<u32, DataError> {
        let (records, at) = self.at(part, index)?;
        records.read(at, out)?;
        if records.values().is_empty() { records.label(at, 0) } else { Ok(0) }
    }

    fn targets(&self) -> u32 {
        self.data.targets() as u32
    }

    fn label_at(&self, part: DataSplit, index: u32, position: u32) -> Result<u32, DataError> {
        let (records, at) = self.at(part, index)?;
        records.label(at, position)
    }

    fn value_at(&self, part: DataSplit, index: u32, position: u32) -> Result<f32, DataError> {
        let (records, at) = self.at(part, index)?;
        records.value(at, position)
    }

    fn unit(&self, position: u32) -> f32 {
        self.data.units.get(position as usize).copied().unwrap_or(1.0)
    }

    fn group(&self, part: DataSplit, index: u32) -> u32 {
        if self.data.group_names.is_empty() {
            return 0;
        }
        let label = self.label(part, index).expect("an index below the number of samples");
        label.saturating_mul(self.data.groups()).saturating_add(self.attribute(part, index))
    }

    /// Counts all groups of the set, even if this device has only one class.
    fn groups(&self) -> u32 {
        let attributes = self.data.group_names.len() as u32;
        if attributes == 0 { 0 } else { self.data.classes.max(2).saturating_mul(attributes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Features;

    fn set() -> Arc<DataSet> {
        let bytes = |data: &[u8]| Features::Bytes { data: data.to_vec(), scale: 1.0 };
        let train = Records::new(bytes(&[0, 1, 2, 3]), vec![0, 1, 1, 0], 1, 1).unwrap();
        let train = train.with_groups(vec![0, 1, 2, 0]).unwrap();
        let test = Records::new(bytes(&[9, 8]), vec![1, 0], 1, 1).unwrap().with_groups(vec![2, 1]).unwrap();
        let set = DataSet::new("x", vec![1], 2, train, test).unwrap();
        Arc::new(set.with_group_names(vec!["a".into(), "b".into(), "c".into()]).unwrap())
    }

    #[test]
    fn indices_refer_to_the_shared_records() {
        let shard = DeviceShard::new(set(), [3, 1].into(), [0].into(), TestSource::Test).unwrap();
        let mut row = [0.0];
        assert_eq!(shard.sample(DataSplit::Train, 1, &mut row), Ok(1));
        assert_eq!((row, shard.group(DataSplit::Train, 1)), ([1.0], 3 + 1));
        assert_eq!(shard.sample(DataSplit::Test, 0, &mut row), Ok(1));
        assert_eq!(
            (row, shard.group(DataSplit::Test, 0), shard.attribute(DataSplit::Test, 0)),
            ([9.0], 3 + 2, 2)
        );
        let missing = DataError::NoSample { index: 2, len: 2 };
        assert_eq!(shard.sample(DataSplit::Train, 2, &mut row), Err(missing));
        let shard = DeviceShard::new(set(), [3, 1].into(), [2].into(), TestSource::Train).unwrap();
        assert_eq!(shard.validation_len(), 0);
        let own = shard.clone().with_validation([0].into()).unwrap();
        assert_eq!((own.validation_len(), own.sample(DataSplit::Validation, 0, &mut row)), (1, Ok(0)));
        assert_eq!(
            shard.clone().with_validation([4].into()).unwrap_err(),
            DataError::NoSample { index: 4, len: 4 }
        );
        assert_eq!(shard.sample(DataSplit::Test, 0, &mut row), Ok(1));
        assert_eq!((row, shard.summary().train_samples, shard.summary().classes), ([2.0], 2, 2));
    }

    #[test]
    fn indices_beyond_the_records_are_refused() {
        let new =
            |train: &[u32], test: &[u32], held| DeviceShard::new(set(), train.into(), test.into(), held);
        assert_eq!(new(&[4], &[], TestSource::Train).unwrap_err(), DataError::NoSample { index: 4, len: 4 });
        assert_eq!(new(&[0], &[2], TestSource::Test).unwrap_err(), DataError::NoSample { index: 2, len: 2 });
        assert!(new(&[0], &[2], TestSource::Train).is_ok());
    }
}
