//! 5,620 handwritten digits of 8x8 pixels, built in for demos, tests and first experiments with boards.
//!
//! UCI Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak; CC BY 4.0), see
//! `data/README.md`. Pixels are 0..=16 and become `pixel / 16`.
//!
//! ```text
//! file     "FTD1", u16 training samples, u16 test samples, samples
//! sample   8 rows of 5 bytes (8 pixels of 5 bits, first pixel lowest, little-endian), label
//! ```

use super::{DataError, DataSplit, Shard};

/// Height and width of an image.
pub const SIDE: usize = 8;
/// Numbers per sample.
pub const PIXELS: usize = SIDE * SIDE;
/// The digits 0 to 9.
pub const CLASSES: u32 = 10;
/// Largest pixel.
pub const INK: u8 = 16;

const TRAIN: usize = 3823;
const TEST: usize = 1797;
const HEADER: usize = 8;
const ROW: usize = 5;
const LABEL: usize = SIDE * ROW;
const SAMPLE: usize = LABEL + 1;
static FILE: &[u8; HEADER + (TRAIN + TEST) * SAMPLE] = include_bytes!("../../data/optdigits.bin");

/// The whole set as its authors divided it: different writers in training and test.
pub fn all() -> Digits {
    let samples = FILE[HEADER..].as_chunks().0;
    let (train, test) = samples.split_at(TRAIN.min(samples.len()));
    Digits { train: PackedDigits(train), test: PackedDigits(test) }
}

/// The built-in data set; also a Shard by itself.
#[derive(Copy, Clone, Debug)]
pub struct Digits {
    /// The authors' training set.
    pub train: PackedDigits,
    /// The authors' test set, from other writers.
    pub test: PackedDigits,
}

/// Samples that are decoded as they are read.
#[derive(Copy, Clone)]
pub struct PackedDigits(&'static [[u8; SAMPLE]]);

impl PackedDigits {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The digit that an image shows.
    pub fn label(&self, index: usize) -> Option<u8> {
        self.0.get(index).map(|sample| sample[LABEL])
    }

    /// The pixels of an image, row by row, from 0 (white) to [`INK`].
    pub fn pixels(&self, index: usize) -> Option<[u8; PIXELS]> {
        let sample = self.0.get(index)?;
        let mut pixels = [0; PIXELS];
        for (row, bytes) in pixels.chunks_exact_mut(SIDE).zip(sample.as_chunks::<ROW>().0) {
            let [a, b, c, d, e] = *bytes;
            let bits = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
            for (column, pixel) in row.iter_mut().enumerate() {
                *pixel = (bits >> (5 * column) & 31) as u8;
            }
        }
        Some(pixels)
    }
}

impl core::fmt::Debug for PackedDigits {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PackedDigits({} samples)", self.len())
    }
}

impl Digits {
    fn part(&self, part: DataSplit) -> PackedDigits {
        match part {
            DataSplit::Train => self.train,
            DataSplit::Test => self.test,
            DataSplit::Validation => PackedDigits(&[]),
        }
    }
}

impl Shard for Digits {
    fn train_len(&self) -> u32 {
        self.train.len() as u32
    }

    fn test_len(&self) -> u32 {
        self.test.len() as u32
    }

    fn inputs(&self) -> u32 {
        PIXELS as u32
    }

    fn classes(&self) -> u32 {
        CLASSES
    }

    fn label(&self, part: DataSplit, index: u32) -> Result<u32, DataError> {
        let missing = DataError::NoSample { index, len: self.len(part) };
        self.part(part).label(index as usize).map(u32::from).ok_or(missing)
    }

    fn sample(&self, part: DataSplit, index: u32, out: &mut [f32]) -> Result<u32, DataError> {
        let missing = DataError::NoSample { index, len: self.len(part) };
        let pixels = self.part(part).pixels(index as usize).ok_or(missing)?;
        if out.len() != PIXELS {
            return Err(DataError::Room { inputs: PIXELS, room: out.len() });
        }
        for (out, pixel) in out.iter_mut().zip(pixels) {
            *out = f32::from(pixel) / f32::from(INK);
        }
        self.label(part, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_says_what_the_code_assumes() {
        assert_eq!(&FILE[..4], b"FTD1");
        assert_eq!(usize::from(u16::from_le_bytes([FILE[4], FILE[5]])), TRAIN);
        assert_eq!(usize::from(u16::from_le_bytes([FILE[6], FILE[7]])), TEST);
    }

    #[test]
    fn class_counts_are_those_the_authors_give() {
        let counts = |packed: PackedDigits| {
            let mut counts = [0; 10];
            (0..packed.len()).for_each(|i| counts[usize::from(packed.label(i).unwrap())] += 1);
            counts
        };
        assert_eq!(counts(all().train), [376, 389, 380, 389, 387, 376, 377, 387, 380, 382]);
        assert_eq!(counts(all().test), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }

    #[test]
    fn first_test_sample_is_the_first_line_of_the_original() {
        let first = [
            0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0, 0, 3, 15, 2, 0, 11, 8, 0, 0, 4, 12, 0, 0, 8,
            8, 0, 0, 5, 8, 0, 0, 9, 8, 0, 0, 4, 11, 0, 1, 12, 7, 0, 0, 2, 14, 5, 10, 12, 0, 0, 0, 0, 6, 13,
            10, 0, 0, 0,
        ];
        assert_eq!(all().test.pixels(0), Some(first));
        let mut row = [0.0; PIXELS];
        assert_eq!(all().sample(DataSplit::Test, 0, &mut row), Ok(0));
        assert!(row.iter().zip(first).all(|(&x, pixel)| x * 16.0 == f32::from(pixel)));
    }

    #[test]
    fn every_pixel_is_in_range_and_no_sample_follows_the_last() {
        for packed in [all().train, all().test] {
            assert!((0..packed.len()).all(|i| packed.pixels(i).unwrap().iter().all(|&p| p <= INK)));
            assert_eq!(packed.pixels(packed.len()), None);
        }
        let missing = DataError::NoSample { index: 1797, len: 1797 };
        assert_eq!(all().label(DataSplit::Test, 1797), Err(missing));
        assert_eq!(all().sample(DataSplit::Test, 1797, &mut [0.0; 64]), Err(missing));
        assert!(all().sample(DataSplit::Test, 0, &mut [0.0; 63]).is_err());
    }
}
