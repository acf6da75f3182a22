//! Tensors of an ONNX file as numbers, from any of the fields that may hold them.

use super::proto::{TensorProto, data_type};

/// Why a tensor cannot be read.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum TensorError {
    #[error(
        "tensor '{0}' is kept in another file, and only the bytes of the model are here; read the model from its path, or save it with its weights inside (in PyTorch: external_data=False)"
    )]
    External(String),
    #[error("tensor '{name}' has elements of type {}; only {expected} is supported here", data_type::name(*.got))]
    Type { name: String, got: i32, expected: &'static str },
    #[error("tensor '{name}' has shape {dims:?}, but {got} elements")]
    Length { name: String, dims: Vec<i64>, got: usize },
    #[error("tensor '{0}' holds NaN or infinity, so the model cannot be trained")]
    NonFinite(String),
}

/// A constant of floating-point numbers, row-major.
#[derive(Clone, PartialEq, Debug)]
pub struct Floats {
    pub dims: Vec<usize>,
    pub data: Vec<f32>,
}

impl Floats {
    /// Finite numbers only; doubles are rounded, and halves are exact.
    pub fn read(tensor: &TensorProto) -> Result<Self, TensorError> {
        let name = || tensor.name.clone();
        in_file(tensor)?;
        let raw = &tensor.raw_data;
        let data: Vec<f32> = match tensor.data_type {
            data_type::FLOAT if raw.is_empty() => tensor.float_data.clone(),
            data_type::FLOAT => words(tensor, |word: [u8; 4]| f32::from_le_bytes(word))?,
            data_type::DOUBLE if raw.is_empty() => tensor.double_data.iter().map(|&x| x as f32).collect(),
            data_type::DOUBLE => words(tensor, |word: [u8; 8]| f64::from_le_bytes(word) as f32)?,
            data_type::FLOAT16 => halves(tensor, half)?,
            data_type::BFLOAT16 => halves(tensor, |bits| f32::from_bits(u32::from(bits) << 16))?,
            got => return Err(TensorError::Type { name: name(), got, expected: "float" }),
        };
        let dims = dims(tensor, data.len())?;
        if data.iter().any(|x| !x.is_finite()) {
            return Err(TensorError::NonFinite(name()));
        }
        Ok(Self { dims, data })
    }
}

/// A constant of integers, such as a shape.
pub fn integers(tensor: &TensorProto) -> Result<Vec<i64>, TensorError> {
    in_file(tensor)?;
    let data = match tensor.data_type {
        data_type::INT64 if tensor.raw_data.is_empty() => tensor.int64_data.clone(),
        data_type::INT64 => words(tensor, i64::from_le_bytes)?,
        data_type::INT32 if tensor.raw_data.is_empty() => {
            tensor.int32_data.iter().copied().map(i64::from).collect()
        }
        data_type::INT32 => words(tensor, |word: [u8; 4]| i32::from_le_bytes(word).into())?,
        got => return Err(TensorError::Type { name: tensor.name.clone(), got, expected: "int64" }),
    };
    dims(tensor, data.len())?;
    Ok(data)
}

/// A float tensor as export writes it.
pub fn float_tensor(name: &str, dims: &[usize], data: &[f32]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.iter().map(|&size| size as i64).collect(),
        data_type: data_type::FLOAT,
        raw_data: data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ..TensorProto::default()
    }
}

fn in_file(tensor: &TensorProto) -> Result<(), TensorError> {
    match tensor.is_external() {
        true => Err(TensorError::External(tensor.name.clone())),
        false => Ok(()),
    }
}

/// Numbers of 16 bits; `int32_data` holds one in each of its own.
fn halves(tensor: &TensorProto, read: impl Fn(u16) -> f32) -> Result<Vec<f32>, TensorError> {
    match tensor.raw_data.is_empty() {
        true => Ok(tensor.int32_data.iter().map(|&word| read(word as u16)).collect()),
        false => words(tensor, |word| read(u16::from_le_bytes(word))),
    }
}

/// IEEE 754 binary16: a sign, 5 bits of exponent, 10 of fraction.
fn half(bits: u16) -> f32 {
    let fraction = f32::from(bits & 0x3ff);
    let size = match i32::from(bits >> 10 & 0x1f) {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        exponent => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if bits >> 15 == 0 { size } else { -size }
}

fn words<const N: usize, T>(
    tensor: &TensorProto,
    read: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, TensorError> {
    match tensor.raw_data.as_chunks::<N>() {
        (words, []) => Ok(words.iter().map(|&word| read(word)).collect()),
        (words, _) => Err(wrong_length(tensor, words.len())),
    }
}

fn dims(tensor: &TensorProto, got: usize) -> Result<Vec<usize>, TensorError> {
    let dims: Option<Vec<usize>> = tensor.dims.iter().map(|&size| usize::try_from(size).ok()).collect();
    let dims = dims.ok_or_else(|| wrong_length(tensor, got))?;
    match dims.iter().try_fold(1usize, |len, &size| len.checked_mul(size)) {
        Some(len) if len == got => Ok(dims),
        _ => Err(wrong_length(tensor, got)),
    }
}

fn wrong_length(tensor: &TensorProto, got: usize) -> TensorError {
    TensorError::Length { name: tensor.name.clone(), dims: tensor.dims.clone(), got }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_keeping_numbers() {
        let raw = float_tensor("w", &[2, 1], &[1.5, -2.0]);
        let floats = Floats { dims: vec![2, 1], data: vec![1.5, -2.0] };
        assert_eq!(Floats::read(&raw).unwrap(), floats);
        let listed = TensorProto { raw_data: vec![], float_data: vec![1.5, -2.0], ..raw.clone() };
        assert_eq!(Floats::read(&listed).unwrap(), floats);
        let doubles = TensorProto { data_type: data_type::DOUBLE, raw_data: vec![], ..raw.clone() };
        let listed = TensorProto { double_data: vec![1.5, -2.0], ..doubles.clone() };
        assert_eq!(Floats::read(&listed).unwrap(), floats);
        let bytes = [1.5f64, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(Floats::read(&TensorProto { raw_data: bytes, ..doubles }).unwrap(), floats);
    }

    #[test]
    fn numbers_of_16_bits() {
        // The largest and the smallest half, as raw bytes and as numbers of 32 bits.
        let tensor = |data_type: i32, bits: &[u16]| TensorProto {
            dims: vec![bits.len() as i64],
            data_type,
            raw_data: bits.iter().flat_map(|word| word.to_le_bytes()).collect(),
            ..TensorProto::default()
        };
        let halves = tensor(data_type::FLOAT16, &[0x3c00, 0xc000, 0x7bff, 0x0001, 0x0400, 0x8000]);
        let expected = [1.0, -2.0, 65504.0, 2f32.powi(-24), 2f32.powi(-14), -0.0];
        assert_eq!(Floats::read(&halves).unwrap().data, expected);
        let listed =
            TensorProto { raw_data: vec![], int32_data: vec![0x3c00, 0xc000], dims: vec![2], ..halves };
        assert_eq!(Floats::read(&listed).unwrap().data, [1.0, -2.0]);
        let brains = tensor(data_type::BFLOAT16, &[0x3f80, 0xc000, 0x7f7f]);
        assert_eq!(Floats::read(&brains).unwrap().data, [1.0, -2.0, f32::from_bits(0x7f7f_0000)]);
        for (kind, bits) in
            [(data_type::FLOAT16, 0x7c00), (data_type::FLOAT16, 0xfc01), (data_type::BFLOAT16, 0x7f80)]
        {
            assert!(matches!(Floats::read(&tensor(kind, &[bits])), Err(TensorError::NonFinite(_))));
        }
    }

    #[test]
    fn broken_tensors_are_refused() {
        let good = float_tensor("w", &[2], &[1.0, 2.0]);
        let refused = |change: &dyn Fn(&mut TensorProto)| {
            let mut tensor = good.clone();
            change(&mut tensor);
            Floats::read(&tensor).unwrap_err().to_string()
        };
        assert_eq!(refused(&|t| t.dims = vec![3]), "tensor 'w' has shape [3], but 2 elements");
        assert!(refused(&|t| t.dims = vec![-2]).contains("[-2]"));
        assert!(refused(&|t| t.dims = vec![i64::MAX, i64::MAX]).contains("2 elements"));
        assert!(refused(&|t| t.raw_data.truncate(7)).contains("1 elements"));
        assert!(refused(&|t| t.raw_data[..4].copy_from_slice(&f32::NAN.to_le_bytes())).contains("NaN"));
        assert!(refused(&|t| t.data_location = 1).contains("external_data=False"));
        assert!(refused(&|t| t.data_type = 2).contains("type uint8; only float"));
        assert!(refused(&|t| t.data_type = -4).contains("another type"));
    }
}
