//! NumPy's files: `.npy` (one array) and `.npz` (a zip of them, not compressed), little-endian, row-major.
//!
//! ```text
//! npy   93 "NUMPY"  version:2  header length:2 (version 1) or 4  header  numbers
//! npz   ( local header  name  npy )*   ( central header  name )*   end of central directory
//! ```
//! The header is a Python literal, `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, padded with
//! spaces so that the numbers start at a multiple of 64. Lengths are checked before anything is read.
//!
//! Implemented here, because small files make both existing crates panic: npyz 0.9 multiplies the sizes of a header unchecked,
//! and ndarray-npy 0.10 allocates as many numbers as a header announces.

use std::collections::BTreeMap;

mod zip;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Numbers with a shape, row-major.
#[derive(Clone, PartialEq, Debug)]
pub struct Array {
    /// Sizes of the axes; empty for a single number.
    pub shape: Vec<usize>,
    /// Row-major.
    pub data: Data,
}

/// Numbers of one type.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    /// `float32`
    F32(Vec<f32>),
    /// `float64`
    F64(Vec<f64>),
    /// `int32`
    I32(Vec<i32>),
    /// `int64`
    I64(Vec<i64>),
    /// `uint8`
    U8(Vec<u8>),
}

/// Why a file cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum NpyError {
    #[error("this is not an .npy file; write one with numpy.save")]
    Magic,
    #[error("the file is truncated: expected {expected} bytes, got {got}; write it again")]
    Truncated { expected: usize, got: usize },
    #[error("{0} bytes follow the array; write the file again")]
    Trailing(usize),
    #[error("the header of the array has no '{0}'; write the file again with numpy.save")]
    Header(&'static str),
    #[error(
        "numbers of type '{0}' are not supported; convert the array with .astype to float32, float64, int32, int64 or uint8"
    )]
    Type(String),
    #[error("the array is column-major; save numpy.ascontiguousarray of it")]
    Fortran,
    #[error("an array of shape {0:?} is too large")]
    Size(Vec<usize>),
    #[error("shape {shape:?} does not hold {got} numbers")]
    Length { shape: Vec<usize>, got: usize },
    #[error("this is not an .npz file, or it is truncated; write it again with numpy.savez")]
    Archive,
    #[error("'{0}' is compressed; write the file with numpy.savez instead of numpy.savez_compressed")]
    Compressed(String),
    #[error("'{0}' is damaged: its checksum is wrong; write the file again")]
    Checksum(String),
    #[error("two arrays are called '{0}'; give each its own name")]
    Twice(String),
    #[error("more than 65,535 arrays or 4 GiB do not fit an .npz file")]
    TooLarge,
    #[error("'{name}': {error}")]
    Member { name: String, error: Box<NpyError> },
}

impl Data {
    /// How many numbers there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U8(values) => values.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// NumPy's name of the type.
    pub fn descr(&self) -> &'static str {
        match self {
            Self::F32(_) => "<f4",
            Self::F64(_) => "<f8",
            Self::I32(_) => "<i4",
            Self::I64(_) => "<i8",
            Self::U8(_) => "|u1",
        }
    }

    /// All numbers; integers beyond 2^53 are rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Self::F32(values) => values.iter().map(|&x| x.into()).collect(),
            Self::F64(values) => values.clone(),
            Self::I32(values) => values.iter().map(|&x| x.into()).collect(),
            Self::I64(values) => values.iter().map(|&x| x as f64).collect(),
            Self::U8(values) => values.iter().map(|&x| x.into()).collect(),
        }
    }

    /// `None` for floats.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        match self {
            Self::F32(_) | Self::F64(_) => None,
            Self::I32(values) => Some(values.iter().map(|&x| x.into()).collect()),
            Self::I64(values) => Some(values.clone()),
            Self::U8(values) => Some(values.iter().map(|&x| x.into()).collect()),
        }
    }
}

impl Array {
    /// Refuses numbers that do not fill the shape.
    pub fn new(shape: &[usize], data: Data) -> Result<Self, NpyError> {
        let shape = shape.to_vec();
        match count(&shape) == Some(data.len()) {
            true => Ok(Self { shape, data }),
            false => Err(NpyError::Length { shape, got: data.len() }),
        }
    }

    /// A single number.
    pub fn scalar(value: f64) -> Self {
        Self { shape: vec![], data: Data::F64(vec![value]) }
    }

    /// The array of an `.npy` file.
    pub fn read(file: &[u8]) -> Result<Self, NpyError> {
        let (header, numbers) = split(file)?;
        let descr = quoted(after(header, "descr")?).ok_or(NpyError::Header("descr"))?;
        if !after(header, "fortran_order")?.starts_with("False") {
            return Err(NpyError::Fortran);
        }
        let shape = shape(after(header, "shape")?).ok_or(NpyError::Header("shape"))?;
        let data = match descr {
            "<f4" => Data::F32(words(numbers, &shape, f32::from_le_bytes)?),
            "<f8" => Data::F64(words(numbers, &shape, f64::from_le_bytes)?),
            "<i4" => Data::I32(words(numbers, &shape, i32::from_le_bytes)?),
            "<i8" => Data::I64(words(numbers, &shape, i64::from_le_bytes)?),
            "|u1" | "<u1" => Data::U8(words(numbers, &shape, u8::from_le_bytes)?),
            other => return Err(NpyError::Type(other.to_owned())),
        };
        Ok(Self { shape, data })
    }

    /// An `.npy` file, byte for byte what `numpy.save` writes.
    pub fn write(&self) -> Vec<u8> {
        let sizes: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let comma = if sizes.len() == 1 { "," } else { "" };
        let shape = format!("({}{comma})", sizes.join(", "));
        let descr = self.data.descr();
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        // Magic, version, length and the newline at the end.
        let unpadded = 10 + header.len() + 1;
        header.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
        header.push('\n');
        let mut file = [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
        match &self.data {
            Data::F32(values) => values.iter().for_each(|x| file.extend(x.to_le_bytes())),
            Data::F64(values) => values.iter().for_each(|x| file.extend(x.to_le_bytes())),
            Data::I32(values) => values.iter().for_each(|x| file.extend(x.to_le_bytes())),
            Data::I64(values) => values.iter().for_each(|x| file.extend(x.to_le_bytes())),
            Data::U8(values) => file.extend(values),
        }
        file
    }
}

/// The arrays of an `.npz` file by name.
pub fn read_archive(file: &[u8]) -> Result<BTreeMap<String, Array>, NpyError> {
    let mut arrays = BTreeMap::new();
    for (name, bytes) in zip::members(file)? {
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_owned();
        let array = Array::read(bytes)
            .map_err(|error| NpyError::Member { name: name.clone(), error: Box::new(error) })?;
        if arrays.insert(name.clone(), array).is_some() {
            return Err(NpyError::Twice(name));
        }
    }
    Ok(arrays)
}

/// An `.npz` file; equal arrays give equal bytes.
pub fn write_archive(arrays: &[(String, Array)]) -> Result<Vec<u8>, NpyError> {
    let names: Vec<&str> = arrays.iter().map(|(name, _)| name.as_str()).collect();
    if let Some((_, name)) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        return Err(NpyError::Twice((*name).to_owned()));
    }
    zip::store(arrays.iter().map(|(name, array)| (format!("{name}.npy"), array.write())))
}

/// Header and numbers.
fn split(file: &[u8]) -> Result<(&str, &[u8]), NpyError> {
    let rest = file.strip_prefix(MAGIC).ok_or(NpyError::Magic)?;
    let short = |expected: usize| NpyError::Truncated { expected, got: file.len() };
    let (start, len) = match rest {
        [1, _, a, b, ..] => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        [1..=3, ..] | [] => return Err(short(12)),
        _ => return Err(NpyError::Magic),
    };
    let end = start + len;
    let header = file.get(start..end).ok_or_else(|| short(end))?;
    let header = str::from_utf8(header).map_err(|_| NpyError::Header("descr"))?;
    Ok((header, &file[end..]))
}

/// What follows a key.
fn after<'a>(header: &'a str, key: &'static str) -> Result<&'a str, NpyError> {
    let value = header.split_once(&format!("'{key}':")).map(|(_, value)| value.trim_start());
    value.ok_or(NpyError::Header(key))
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.split_once('\'').map(|(inside, _)| inside)
}

fn shape(text: &str) -> Option<Vec<usize>> {
    let inside = text.strip_prefix('(')?.split_once(')')?.0;
    let sizes = inside.split(',').map(str::trim).filter(|size| !size.is_empty());
    sizes.map(|size| size.parse().ok()).collect()
}

fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))
}

fn words<const N: usize, T>(
    bytes: &[u8],
    shape: &[usize],
    read: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, NpyError> {
    let too_large = || NpyError::Size(shape.to_vec());
    let expected = count(shape).and_then(|count| count.checked_mul(N)).ok_or_else(too_large)?;
    match bytes.len() {
        got if got < expected => Err(NpyError::Truncated { expected, got }),
        got if got > expected => Err(NpyError::Trailing(got - expected)),
        _ => Ok(bytes.as_chunks().0.iter().map(|&word| read(word)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrays() -> Vec<(String, Array)> {
        let array = |shape: &[usize], data| Array::new(shape, data).unwrap();
        vec![
            ("loss".to_owned(), Array::scalar(0.5)),
            ("a.weight".to_owned(), array(&[2, 3], Data::F32(vec![1.0, -2.0, 3.5, 0.0, 1e-9, 7.0]))),
            ("onnx::é".to_owned(), array(&[1], Data::I32(vec![-5]))),
            ("n".to_owned(), array(&[2], Data::I64(vec![i64::MIN, 3]))),
            ("u".to_owned(), array(&[0, 4], Data::U8(vec![]))),
        ]
    }

    #[test]
    fn there_and_back() {
        let file = write_archive(&arrays()).unwrap();
        assert_eq!(read_archive(&file).unwrap(), arrays().into_iter().collect());
        for (_, array) in arrays() {
            assert_eq!(Array::read(&array.write()), Ok(array));
        }
    }

    #[test]
    fn every_prefix_is_refused() {
        let file = write_archive(&arrays()).unwrap();
        (0..file.len()).for_each(|end| assert!(read_archive(&file[..end]).is_err(), "{end}"));
        let file = arrays()[1].1.write();
        (0..file.len()).for_each(|end| assert!(Array::read(&file[..end]).is_err(), "{end}"));
        assert_eq!(Array::read(&[&file[..], &[0]].concat()), Err(NpyError::Trailing(1)));
    }

    #[test]
    fn damage_is_detected_without_a_panic() {
        let file = write_archive(&arrays()).unwrap();
        for at in 0..file.len() {
            let mut bad = file.clone();
            bad[at] ^= 0x55;
            let _ = read_archive(&bad);
            let _ = Array::read(&bad[at..]);
        }
        let mut bad = file.clone();
        let at = file.windows(4).position(|word| word == 3.5f32.to_le_bytes()).unwrap();
        bad[at] ^= 1;
        assert_eq!(read_archive(&bad), Err(NpyError::Checksum("a.weight.npy".to_owned())));
    }

    #[test]
    fn unsupported_files_are_refused_with_a_reason() {
        let header = |from: &str, to: &str| {
            let file = arrays()[1].1.write();
            let text = String::from_utf8_lossy(&file[10..128]).replacen(from, to, 1);
            [&file[..10], text.as_bytes(), &file[128..]].concat()
        };
        assert_eq!(Array::read(&header("<f4", ">f4")), Err(NpyError::Type(">f4".to_owned())));
        assert_eq!(Array::read(&header("False", "True ")), Err(NpyError::Fortran));
        assert!(matches!(Array::read(&header("(2, 3)", "(2, 9)")), Err(NpyError::Truncated { .. })));
        let huge = Array::read(&header("(2, 3), }           ", "(99999999999, 9999999999)"));
        assert!(matches!(huge, Err(NpyError::Size(_) | NpyError::Truncated { .. })), "{huge:?}");
        assert_eq!(Array::read(b"PK"), Err(NpyError::Magic));
        let twice = [arrays(), arrays()].concat();
        assert_eq!(write_archive(&twice), Err(NpyError::Twice("loss".to_owned())));
        assert!(Array::new(&[2], Data::U8(vec![1])).is_err());
    }
}
