//! Blocks of 64 numbers: a scale (`f32`, the largest absolute value / 127), then one byte each.

use super::{BLOCK, BLOCK_BYTES};
use crate::rng;

/// See [`super::Codec::encode`]; the lengths must match. Like [`each`], it is inlined, so the caller's target features apply.
#[inline(always)]
pub fn encode(values: &[f32], first: usize, seed: u64, out: &mut [u8]) {
    for (block, (values, out)) in values.chunks(BLOCK).zip(out.chunks_mut(BLOCK_BYTES)).enumerate() {
        let first = first + block * BLOCK;
        let largest = largest(values);
        let scale = largest / 127.0;
        let (head, codes) = out.split_at_mut(4);
        head.copy_from_slice(&scale.to_le_bytes());
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        for (at, (code, &value)) in codes.iter_mut().zip(values).enumerate() {
            let random = rng::unit_f32(rng::derive(seed, (first + at) as u64));
            // `as i8` saturates, so rounding cannot leave the range of `i8`.
            let level = floor(value * inverse + random).clamp(-127.0, 127.0) as i8;
            *code = level as u8;
        }
    }
}

pub(super) fn decode(bytes: &[u8], values: &mut [f32]) {
    each(bytes, values, |place, value| *place = value);
}

/// Calls `take` with every place and its number, until either runs out. `bytes` start at a block boundary.
#[inline(always)]
pub fn each<T>(bytes: &[u8], places: &mut [T], take: impl Fn(&mut T, f32)) {
    // The length of a whole block is a constant, which makes the loop nearly twice as fast.
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    let (whole, last) = places.as_chunks_mut::<BLOCK>();
    for (block, places) in blocks.iter().zip(whole) {
        if let Some((scale, codes)) = block.split_first_chunk()
            && let Some(codes) = codes.first_chunk::<BLOCK>()
        {
            scaled(*scale, codes, places, &take);
        }
    }
    if let Some((scale, codes)) = rest.split_first_chunk() {
        scaled(*scale, codes, last, take);
    }
}

#[inline(always)]
fn scaled<T>(scale: [u8; 4], codes: &[u8], places: &mut [T], take: impl Fn(&mut T, f32)) {
    let scale = f32::from_le_bytes(scale);
    for (place, &code) in places.iter_mut().zip(codes) {
        take(place, f32::from(code as i8) * scale);
    }
}

/// Rounds down, without the branches of `libm`. Numbers outside `i32` saturate, NaN becomes 0.
#[inline(always)]
fn floor(value: f32) -> f32 {
    let whole = value as i32 as f32;
    if whole > value { whole - 1.0 } else { whole }
}

/// The largest absolute value, or NaN if there is one. Compares the bits as integers, which needs no FPU: non-negative
/// floats have the order of their bits, with NaN at the end.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |largest, value| value.abs().to_bits().max(largest)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn floor_handles_nan_and_large_numbers() {
        assert_eq!((floor(f32::NAN), floor(-0.5), floor(-1.0)), (0.0, -1.0, -1.0));
        assert!(floor(f32::INFINITY) > 1e9 && floor(f32::NEG_INFINITY) < -1e9);
    }

    #[test]
    fn the_largest_is_nan_if_one_is() {
        assert_eq!(largest(&[1.0, -3.0, 2.0]), 3.0);
        assert_eq!(largest(&[f32::NEG_INFINITY, 2.0]), f32::INFINITY);
        assert!(largest(&[1.0, -f32::NAN, f32::INFINITY]).is_nan());
        assert_eq!(largest(&[]), 0.0);
    }

    proptest! {
        #[test]
        fn floor_is_that_of_libm(value in -200.0f32..200.0, whole in -200i32..200) {
            prop_assert_eq!(floor(value), libm::floorf(value));
            prop_assert_eq!(floor(whole as f32), whole as f32);
        }
    }
}
