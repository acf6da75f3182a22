//! Blocks of 64 numbers: a scale (`f32`, the largest absolute value / 127), then one byte each.

use super::{BLOCK, BLOCK_BYTES};
use crate::rng;

pub(super) fn encode(values: &[f32], first: usize, seed: u64, out: &mut [u8]) {
    for (block, (values, out)) in values.chunks(BLOCK).zip(out.chunks_mut(BLOCK_BYTES)).enumerate() {
        let first = first + block * BLOCK;
        let largest = values.iter().fold(0.0f32, |largest, value| nan_max(largest, value.abs()));
        let scale = largest / 127.0;
        let (head, codes) = out.split_at_mut(4);
        head.copy_from_slice(&scale.to_le_bytes());
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        for (at, (code, &value)) in codes.iter_mut().zip(values).enumerate() {
            let random = rng::unit_f32(rng::derive(seed, (first + at) as u64));
            // `as i8` saturates, so rounding can not leave -127..=127 by more than the clamp.
            let level = floor(value * inverse + random).clamp(-127.0, 127.0) as i8;
            *code = level as u8;
        }
    }
}

pub(super) fn decode(bytes: &[u8], values: &mut [f32]) {
    // Whole blocks have lengths that the compiler knows, which makes them nearly twice as fast.
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    let (whole, last) = values.as_chunks_mut::<BLOCK>();
    for (block, values) in blocks.iter().zip(whole) {
        if let Some((scale, codes)) = block.split_first_chunk()
            && let Some(codes) = codes.first_chunk::<BLOCK>()
        {
            scaled(*scale, codes, values);
        }
    }
    if let Some((scale, codes)) = rest.split_first_chunk() {
        scaled(*scale, codes, last);
    }
}

#[inline(always)]
fn scaled(scale: [u8; 4], codes: &[u8], values: &mut [f32]) {
    let scale = f32::from_le_bytes(scale);
    for (value, &code) in values.iter_mut().zip(codes) {
        *value = f32::from(code as i8) * scale;
    }
}

/// Rounds down numbers that fit an `i32` (others stay beyond it, NaN becomes 0); unlike `libm`'s, without a branch.
fn floor(value: f32) -> f32 {
    let whole = value as i32 as f32;
    if whole > value { whole - 1.0 } else { whole }
}

/// Unlike `f32::max`, keeps NaN, so that a block with one decodes to NaN.
fn nan_max(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_number_or_too_large_stays_so() {
        assert_eq!((floor(f32::NAN), floor(-0.5), floor(-1.0)), (0.0, -1.0, -1.0));
        assert!(floor(f32::INFINITY) > 1e9 && floor(f32::NEG_INFINITY) < -1e9);
    }

    proptest! {
        #[test]
        fn floor_is_that_of_libm(value in -200.0f32..200.0, whole in -200i32..200) {
            prop_assert_eq!(floor(value), libm::floorf(value));
            prop_assert_eq!(floor(whole as f32), whole as f32);
        }
    }
}
