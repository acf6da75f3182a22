//! Codec and sums for `int8`, compiled for each kind of processor; see [`super`].

use common::{
    Codec,
    codec::{LengthError, int8},
};
use pulp::{Arch, NullaryFnOnce};

/// `acc += weight * values`, with the same bits as decoding first. `bytes` begin with a block.
pub(crate) fn axpy(acc: &mut [f64], weight: f64, bytes: &[u8]) {
    Arch::new().dispatch(Axpy { acc, weight, bytes });
}

struct Axpy<'a> {
    acc: &'a mut [f64],
    weight: f64,
    bytes: &'a [u8],
}

impl NullaryFnOnce for Axpy<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let weight = self.weight;
        int8::each(self.bytes, self.acc, |acc, value| *acc += weight * f64::from(value));
    }
}

/// [`Codec::decode`], in fewer instructions.
pub fn decode(codec: Codec, bytes: &[u8], values: &mut [f32]) -> Result<(), LengthError> {
    if codec != Codec::Int8 || codec.encoded_len(values.len()).map(|len| len as usize) != Some(bytes.len()) {
        return codec.decode(bytes, values);
    }
    Arch::new().dispatch(Decode { bytes, values });
    Ok(())
}

struct Decode<'a> {
    bytes: &'a [u8],
    values: &'a mut [f32],
}

impl NullaryFnOnce for Decode<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        int8::each(self.bytes, self.values, |place, value| *place = value);
    }
}

/// [`Codec::encode`] of a whole tensor, in fewer instructions.
pub fn encode(codec: Codec, values: &[f32], seed: u64, out: &mut [u8]) -> Result<(), LengthError> {
    if codec != Codec::Int8 || codec.encoded_len(values.len()).map(|len| len as usize) != Some(out.len()) {
        return codec.encode(values, 0, seed, out);
    }
    Arch::new().dispatch(Encode { values, seed, out });
    Ok(())
}

struct Encode<'a> {
    values: &'a [f32],
    seed: u64,
    out: &'a mut [u8],
}

impl NullaryFnOnce for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        int8::encode(self.values, 0, self.seed, self.out);
    }
}

#[cfg(test)]
mod tests {
    use common::rng::Rng;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// On any processor, and for any length.
        #[test]
        fn loops_over_int8_give_the_bits_of_the_codec(len in 0usize..300, seed: u64, weight in -2.0f64..2.0) {
            let mut rng = Rng::new(seed);
            let values: Vec<f32> = (0..len).map(|_| rng.unit_f32() - 0.5).collect();
            let room = || vec![0; Codec::Int8.encoded_len(len).unwrap() as usize];
            let (mut bytes, mut plain) = (room(), room());
            encode(Codec::Int8, &values, seed, &mut bytes).unwrap();
            Codec::Int8.encode(&values, 0, seed, &mut plain).unwrap();
            prop_assert_eq!(&bytes, &plain);
            let (mut decoded, mut plain) = (vec![0.0; len], vec![0.0; len]);
            decode(Codec::Int8, &bytes, &mut decoded).unwrap();
            Codec::Int8.decode(&bytes, &mut plain).unwrap();
            prop_assert_eq!(&decoded, &plain);
            let start: Vec<f64> = (0..len).map(|_| rng.unit_f64()).collect();
            let (mut acc, mut plain) = (start.clone(), start);
            axpy(&mut acc, weight, &bytes);
            crate::kernel::axpy(&mut plain, weight, &decoded);
            prop_assert_eq!(acc, plain);
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        assert!(decode(Codec::Int8, &[0; 68], &mut [0.0; 63]).is_err());
        assert!(encode(Codec::Int8, &[0.0; 64], 0, &mut [0; 67]).is_err());
    }
}
