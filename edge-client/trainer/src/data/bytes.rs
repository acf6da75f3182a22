//! Samples as bytes, in flash or memory: `feature = scale * byte`; with the feature `quantised` also
//! `feature = scale * (number - zero)` with a scale and a zero point for each feature.
//!
//! ```text
//! file   "FTS1", u32 numbers per sample, u32 training samples, u32 test samples, f32 scale,
//!        training features, training labels, test features, test labels     (little-endian, a byte each)
//! file   "FTS2", u32 numbers per sample, u32 training samples, u32 test samples, u32 kind (0 = u8, 1 = i8, 2 = i16),
//!        f32 scale and i32 zero for each feature,
//!        training features, training labels, test features, test labels     (little-endian, labels a byte each)
//! ```

use super::{DataError, DataSplit, Shard};

const MAGIC: &[u8] = b"FTS1";
#[cfg(feature = "quantised")]
const QUANTISED: &[u8] = b"FTS2";

/// How a feature is stored.
#[cfg(feature = "quantised")]
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Quantised {
    /// 0 to 255.
    U8,
    /// -128 to 127.
    I8,
    /// -32,768 to 32,767, in two bytes.
    I16,
}

#[cfg(feature = "quantised")]
impl Quantised {
    /// Bytes of a number.
    pub fn width(self) -> usize {
        if self == Self::I16 { 2 } else { 1 }
    }

    /// The smallest and the largest number.
    pub fn range(self) -> (i32, i32) {
        match self {
            Self::U8 => (0, u8::MAX.into()),
            Self::I8 => (i8::MIN.into(), i8::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
        }
    }

    fn read(self, bytes: &[u8]) -> i32 {
        match (self, bytes) {
            (Self::U8, [byte, ..]) => (*byte).into(),
            (Self::I8, [byte, ..]) => byte.cast_signed().into(),
            (Self::I16, [low, high, ..]) => i16::from_le_bytes([*low, *high]).into(),
            _ => {
                debug_assert!(false, "a row has whole numbers");
                0
            }
        }
    }
}

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
    /// The kind of numbers, with scale and zero of each feature; `scale` is then unused, and a row of `Images` is counted in bytes.
    #[cfg(feature = "quantised")]
    table: Option<(Quantised, &'a [u8])>,
    classes: u32,
}

impl<'a> BytesShard<'a> {
    /// The shard of a board that waits for its samples.
    pub const EMPTY: Self = {
        let none = Images { features: &[], labels: &[], inputs: 0 };
        Self {
            train: none,
            test: none,
            scale: 1.0,
            #[cfg(feature = "quantised")]
            table: None,
            classes: 0,
        }
    };

    /// Reads a file at the start of `file`; bytes after it are ignored, as in a flash region.
    pub fn parse(file: &'a [u8]) -> Result<Self, DataError> {
        let wrong = DataError::NoFile;
        #[cfg(feature = "quantised")]
        if let Some(rest) = file.strip_prefix(QUANTISED) {
            return Self::parse_quantised(rest).ok_or(wrong)?;
        }
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

    #[cfg(feature = "quantised")]
    fn parse_quantised(rest: &'a [u8]) -> Option<Result<Self, DataError>> {
        let (header, rest) = rest.split_first_chunk::<16>()?;
        let [inputs, train, test, kind] = *header.as_chunks::<4>().0 else { return None };
        let [inputs, train, test] = [inputs, train, test].map(|bytes| u32::from_le_bytes(bytes) as usize);
        let kind = match u32::from_le_bytes(kind) {
            0 => Quantised::U8,
            1 => Quantised::I8,
            2 => Quantised::I16,
            _ => return None,
        };
        // Without a sample, nothing in the file limits `inputs`, for which readers allocate memory.
        if train == 0 && test == 0 {
            return None;
        }
        let (table, mut rest) = rest.split_at_checked(inputs.checked_mul(8)?)?;
        let scales =
            table.as_chunks::<8>().0.iter().map(|[a, b, c, d, ..]| f32::from_le_bytes([*a, *b, *c, *d]));
        if !scales.into_iter().all(f32::is_finite) {
            return None;
        }
        let row = inputs.checked_mul(kind.width())?;
        let mut part = |count: usize| {
            let (features, after) = rest.split_at_checked(count.checked_mul(row)?)?;
            let (labels, after) = after.split_at_checked(count)?;
            rest = after;
            Some(Images::new(features, labels, row))
        };
        let (train, test) = (part(train)?, part(test)?);
        let shard = train.and_then(|train| Self::new(train, test?, 1.0));
        Some(shard.map(|shard| Self { table: Some((kind, table)), ..shard }))
    }

    /// The file that [`Self::parse`] reads.
    #[cfg(feature = "host")]
    pub fn encode(&self) -> std::vec::Vec<u8> {
        let (magic, last, table) = match self.table {
            None => (MAGIC, self.scale.to_bits(), &[][..]),
            Some((kind, table)) => (QUANTISED, kind as u32, table),
        };
        let mut file = std::vec::Vec::from(magic);
        for number in [self.inputs(), self.train_len(), self.test_len(), last] {
            file.extend_from_slice(&number.to_le_bytes());
        }
        file.extend_from_slice(table);
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
        Ok(Self {
            train,
            test,
            scale,
            #[cfg(feature = "quantised")]
            table: None,
            classes,
        })
    }

    /// Numbers of this kind, with scale and zero point of each feature. `features` of both parts hold rows of whole numbers,
    /// little-endian; `table` has an f32 and an i32 for each feature.
    #[cfg(feature = "quantised")]
    pub fn quantised(
        train: Images<'a>,
        test: Images<'a>,
        kind: Quantised,
        table: &'a [u8],
    ) -> Result<Self, DataError> {
        if table.len() / 8 * kind.width() != train.inputs || !table.len().is_multiple_of(8) {
            return Err(DataError::Room { inputs: table.len() / 8, room: train.inputs / kind.width() });
        }
        Ok(Self { table: Some((kind, table)), ..Self::new(train, test, 1.0)? })
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
        #[cfg(feature = "quantised")]
        if let Some((kind, _)) = self.table {
            return (self.train.inputs / kind.width()) as u32;
        }
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
        #[cfg(feature = "quantised")]
        if let Some((kind, table)) = self.table {
            if out.len() * kind.width() != images.inputs {
                return Err(DataError::Room { inputs: images.inputs / kind.width(), room: out.len() });
            }
            let row = images.row(index)?.chunks_exact(kind.width());
            for ((out, bytes), [a, b, c, d, zero @ ..]) in
                out.iter_mut().zip(row).zip(table.as_chunks::<8>().0)
            {
                let (scale, zero) = (f32::from_le_bytes([*a, *b, *c, *d]), i32::from_le_bytes(*zero));
                *out = scale * kind.read(bytes).wrapping_sub(zero) as f32;
            }
            return Ok(label);
        }
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

    #[cfg(feature = "host")]
    #[test]
    fn signed_numbers_have_a_scale_and_a_zero_for_each_feature() {
        let table: Vec<u8> = [(0.5f32, 10i32), (-2.0, -3)]
            .iter()
            .flat_map(|(scale, zero)| [scale.to_le_bytes(), zero.to_le_bytes()].concat())
            .collect();
        for (kind, rows, expected) in [
            (Quantised::U8, &[10u8, 0, 255, 255][..], [0.0, -6.0, 122.5, -516.0]),
            (Quantised::I8, &[10, 0xfd, 0x80, 0x7f], [0.0, 0.0, -69.0, -260.0]),
            (Quantised::I16, &[10, 0, 0xfd, 0xff, 0, 0x80, 0xff, 0x7f], [0.0, 0.0, -16389.0, -65540.0]),
        ] {
            let row = 2 * kind.width();
            let train = Images::new(rows, &[1, 4], row).unwrap();
            let shard =
                BytesShard::quantised(train, Images::new(&[], &[], row).unwrap(), kind, &table).unwrap();
            let mut file = shard.encode();
            let len = file.len();
            file.extend_from_slice(&[0xff; 9]);
            let read = BytesShard::parse(&file).unwrap();
            assert_eq!((read.inputs(), read.train_len(), read.test_len(), read.classes()), (2, 2, 0, 5));
            let mut out = [0.0; 4];
            let (first, second) = out.split_at_mut(2);
            assert_eq!(read.sample(DataSplit::Train, 0, first), Ok(1));
            assert_eq!(read.sample(DataSplit::Train, 1, second), Ok(4));
            assert_eq!(out, expected, "{kind:?}");
            assert!(read.sample(DataSplit::Train, 0, &mut [0.0; 3]).is_err());
            for short in 0..len {
                assert!(BytesShard::parse(&file[..short]).is_err(), "{short}");
            }
            // A kind that does not exist, and a scale that is no number.
            let mut wrong = file.clone();
            wrong[16] = 3;
            assert!(BytesShard::parse(&wrong).is_err());
            let mut wrong = file.clone();
            wrong[20..24].copy_from_slice(&f32::NAN.to_le_bytes());
            assert!(BytesShard::parse(&wrong).is_err());
        }
        assert!(
            BytesShard::quantised(
                Images::new(&[1, 2], &[0], 2).unwrap(),
                Images::new(&[], &[], 2).unwrap(),
                Quantised::I8,
                &table[..8]
            )
            .is_err()
        );
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
