//! Samples as bytes, in flash or memory: `feature = scale * byte`.
//!
//! ```text
//! file   "FTS1", u32 numbers per sample, u32 training samples, u32 test samples, f32 scale,
//!        training features, training labels, test features, test labels     (little-endian, a byte each)
//! ```

use super::{DataError, DataSplit, Shard};

const MAGIC: &[u8] = b"FTS1";

/// One set of byte features with byte labels; lengths are checked once.
#[derive(Copy, Clone, Debug)]
pub struct Images<'a> {
    features: &'a [u8],
    labels: &'a [u8],
    inputs: usize,
}

impl<'a> Images<'a> {
    /// `features` holds `inputs` bytes for every label.
    pub fn new(features: &'a [u8], labels: &'a [u8], inputs: usize) -> Result<Self, DataError> {
        if inputs == 0 || labels.len().checked_mul(inputs) != Some(features.len()) {
            return Err(DataError::Lengths { features: features.len(), labels: labels.len(), inputs });
        }
        if u32::try_from(features.len()).is_err() {
            return Err(DataError::TooMany);
        }
        Ok(Self { features, labels, inputs })
    }

    fn len(&self) -> u32 {
        self.labels.len() as u32
    }

    fn label(&self, index: u32) -> Result<u32, DataError> {
        let missing = DataError::NoSample { index, len: self.len() };
        self.labels.get(index as usize).map(|&label| label.into()).ok_or(missing)
    }

    fn row(&self, index: u32) -> Result<&'a [u8], DataError> {
        let missing = DataError::NoSample { index, len: self.len() };
        let start = (index as usize).checked_mul(self.inputs).ok_or(missing)?;
        self.features.get(start..start.saturating_add(self.inputs)).ok_or(missing)
    }
}

/// A Shard without a heap.
#[derive(Copy, Clone, Debug)]
pub struct BytesShard<'a> {
    train: Images<'a>,
    test: Images<'a>,
    scale: f32,
    classes: u32,
}

impl<'a> BytesShard<'a> {
    /// The shard of a board that waits for its samples.
    pub const EMPTY: Self = {
        let none = Images { features: &[], labels: &[], inputs: 0 };
        Self { train: none, test: none, scale: 1.0, classes: 0 }
    };

    /// Reads a file at the start of `file`; bytes after it are ignored, as in a flash region.
    pub fn parse(file: &'a [u8]) -> Result<Self, DataError> {
        let wrong = DataError::NoFile;
        let rest = file.strip_prefix(MAGIC).ok_or(wrong)?;
        let (header, mut rest) = rest.split_first_chunk::<16>().ok_or(wrong)?;
        let [inputs, train, test, scale] = *header.as_chunks::<4>().0 else { return Err(wrong) };
        let [inputs, train, test] = [inputs, train, test].map(|bytes| u32::from_le_bytes(bytes) as usize);
        // Without a sample, nothing in the file limits `inputs`, for which readers allocate memory.
        if train == 0 && test == 0 {
            return Err(wrong);
        }
        let mut part = |count: usize| {
            let (features, after) = rest.split_at_checked(count.checked_mul(inputs)?)?;
            let (labels, after) = after.split_at_checked(count)?;
            rest = after;
            Some(Images::new(features, labels, inputs))
        };
        let (train, test) = (part(train).ok_or(wrong)??, part(test).ok_or(wrong)??);
        Self::new(train, test, f32::from_le_bytes(scale))
    }

    /// The file that [`Self::parse`] reads.
    #[cfg(feature = "host")]
    pub fn encode(&self) -> std::vec::Vec<u8> {
        let mut file = std::vec::Vec::from(MAGIC);
        for number in [self.inputs(), self.train_len(), self.test_len(), self.scale.to_bits()] {
            file.extend_from_slice(&number.to_le_bytes());
        }
        for part in [&self.train, &self.test] {
            file.extend_from_slice(part.features);
            file.extend_from_slice(part.labels);
        }
        file
    }

    /// Both parts must have the same number of inputs.
    pub fn new(train: Images<'a>, test: Images<'a>, scale: f32) -> Result<Self, DataError> {
        if train.inputs != test.inputs {
            return Err(DataError::Room { inputs: test.inputs, room: train.inputs });
        }
        let largest = train.labels.iter().chain(test.labels).max();
        let classes = largest.map_or(0, |&label| u32::from(label) + 1);
        Ok(Self { train, test, scale, classes })
    }

    fn part(&self, part: DataSplit) -> &Images<'a> {
        match part {
            DataSplit::Train => &self.train,
            DataSplit::Test => &self.test,
            DataSplit::Validation => &Images { features: &[], labels: &[], inputs: 0 },
        }
    }
}

impl Shard for BytesShard<'_> {
    fn train_len(&self) -> u32 {
        self.train.len()
    }

    fn test_len(&self) -> u32 {
        self.test.len()
    }

    fn inputs(&self) -> u32 {
        self.train.inputs as u32
    }

    fn classes(&self) -> u32 {
        self.classes
    }

    fn label(&self, part: DataSplit, index: u32) -> Result<u32, DataError> {
        self.part(part).label(index)
    }

    fn sample(&self, part: DataSplit, index: u32, out: &mut [f32]) -> Result<u32, DataError> {
        let images = self.part(part);
        let label = images.label(index)?;
        if out.len() != images.inputs {
            return Err(DataError::Room { inputs: images.inputs, room: out.len() });
        }
        for (out, &byte) in out.iter_mut().zip(images.row(index)?) {
            *out = self.scale * f32::from(byte);
        }
        Ok(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_scaled() {
        let train = Images::new(&[0, 128, 255, 64], &[1, 4], 2).unwrap();
        let shard = BytesShard::new(train, Images::new(&[2, 4], &[0], 2).unwrap(), 0.5).unwrap();
        assert_eq!((shard.inputs(), shard.classes(), shard.train_len(), shard.test_len()), (2, 5, 2, 1));
        let mut row = [0.0; 2];
        assert_eq!(shard.sample(DataSplit::Train, 1, &mut row), Ok(4));
        assert_eq!(row, [127.5, 32.0]);
        assert_eq!(shard.sample(DataSplit::Test, 0, &mut row), Ok(0));
        assert_eq!(row, [1.0, 2.0]);
    }

    #[cfg(feature = "host")]
    #[test]
    fn files_come_back_and_short_ones_are_refused() {
        let train = Images::new(&[0, 16, 8, 4], &[1, 4], 2).unwrap();
        let shard = BytesShard::new(train, Images::new(&[2, 4], &[0], 2).unwrap(), 1.0 / 16.0).unwrap();
        let mut file = shard.encode();
        let len = file.len();
        file.extend_from_slice(&[0xff; 9]);
        let read = BytesShard::parse(&file).unwrap();
        assert_eq!((read.inputs(), read.train_len(), read.test_len(), read.classes()), (2, 2, 1, 5));
        let mut row = [0.0; 2];
        assert_eq!(read.sample(DataSplit::Train, 0, &mut row), Ok(1));
        assert_eq!(row, [0.0, 1.0]);
        for short in 0..len {
            assert!(BytesShard::parse(&file[..short]).is_err(), "{short}");
        }
    }

    #[test]
    fn a_file_without_samples_is_refused_whatever_width_it_states() {
        let mut file = [0; 20];
        file[..4].copy_from_slice(MAGIC);
        file[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(BytesShard::parse(&file).err(), Some(DataError::NoFile));
        assert!(BytesShard::parse(&[&file[..], &[0; 64]].concat()).is_err());
    }

    #[test]
    fn wrong_lengths_and_indices_are_refused() {
        assert!(Images::new(&[0; 5], &[0; 2], 2).is_err());
        assert!(Images::new(&[], &[], 0).is_err());
        let (two, one) = (Images::new(&[0; 4], &[0; 2], 2).unwrap(), Images::new(&[0], &[0], 1).unwrap());
        assert!(BytesShard::new(two, one, 1.0).is_err());
        let shard = BytesShard::new(two, two, 1.0).unwrap();
        let missing = DataError::NoSample { index: 2, len: 2 };
        assert_eq!(shard.sample(DataSplit::Test, 2, &mut [0.0; 2]), Err(missing));
        assert_eq!(shard.label(DataSplit::Train, 2), Err(missing));
        assert_eq!(shard.sample(DataSplit::Test, 0, &mut [0.0]), Err(DataError::Room { inputs: 2, room: 1 }));
    }
}
