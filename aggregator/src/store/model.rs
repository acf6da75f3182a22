//! A model as bytes: its parameters, little-endian.

pub(super) fn encode(parameters: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; 4 * parameters.len()];
    for (to, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(parameters) {
        *to = value.to_le_bytes();
    }
    bytes
}

/// `None` if the bytes end inside a number.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<f32>> {
    let (values, []) = bytes.as_chunks::<4>() else { return None };
    Some(values.iter().map(|&value| f32::from_le_bytes(value)).collect())
}
