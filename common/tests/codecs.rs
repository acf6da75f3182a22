//! Codecs: bounds on the error, independence of chunking, unbiased rounding, error feedback.

#![allow(clippy::unwrap_used, reason = "tests")]

use fairtier_common::{Codec, codec::BLOCK};
use proptest::prelude::*;

fn round_trip(codec: Codec, values: &[f32], seed: u64) -> Vec<f32> {
    let mut bytes = vec![0; codec.encoded_len(values.len()).unwrap() as usize];
    codec.encode(values, 0, seed, &mut bytes).unwrap();
    let mut back = vec![0.0; values.len()];
    codec.decode(&bytes, &mut back).unwrap();
    back
}

#[test]
fn lengths() {
    assert_eq!(Codec::Int8.encoded_len(178_110), Some(178_110 + 4 * 2783));
    assert_eq!(Codec::Int8.encoded_len(0), Some(0));
    assert_eq!(Codec::F32.encoded_len(usize::MAX), None);
    assert_eq!(Codec::Int8.count_in(3), None, "an incomplete scale");
    for codec in Codec::ALL {
        assert!(codec.encode(&[1.0; 3], 0, 0, &mut [0; 2]).is_err());
        assert!(codec.decode(&[0; 3], &mut [0.0; 9]).is_err());
    }
}

#[test]
fn non_finite_numbers_stay_non_finite() {
    for codec in Codec::ALL {
        for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let back = round_trip(codec, &[1.0, poison, 2.0], 1);
            assert!(back.iter().any(|value| !value.is_finite()), "{codec:?} {poison}");
        }
    }
}

#[test]
fn int8_is_right_on_average() {
    let value = 0.3f32;
    let sum: f64 = (0..20_000).map(|seed| f64::from(round_trip(Codec::Int8, &[value, 1.0], seed)[0])).sum();
    // One level is 1/127; the mean of 20,000 draws deviates by less than 6 sigma.
    assert!((sum / 2e4 - f64::from(value)).abs() < 6.0 * 0.5 / 127.0 / 2e4f64.sqrt());
}

#[test]
fn error_feedback_sends_everything_in_the_long_run() {
    let update = [0.001f32, 1.0, -0.4];
    let mut residual = [0.0; 3];
    let mut sent = [0.0f64; 3];
    for round in 0..1000 {
        let values: Vec<f32> = update.iter().zip(&residual).map(|(u, r)| u + r).collect();
        for (sum, value) in sent.iter_mut().zip(round_trip(Codec::Int8, &values, round)) {
            *sum += f64::from(value);
        }
        Codec::Int8.residual(&values, round, &mut residual);
    }
    for ((sum, update), residual) in sent.iter().zip(update).zip(residual) {
        assert!((sum + f64::from(residual) - 1000.0 * f64::from(update)).abs() < 1e-2, "{sum} {update}");
        assert!(residual.abs() < 0.02);
    }
}

proptest! {
    #[test]
    fn errors_are_bounded(values in prop::collection::vec(-1e4f32..1e4, 1..300), seed: u64) {
        prop_assert_eq!(&round_trip(Codec::F32, &values, seed), &values);
        for (value, back) in values.iter().zip(round_trip(Codec::F16, &values, seed)) {
            prop_assert!((value - back).abs() <= value.abs() / 2048.0 + 3.0e-8);
        }
        let back = round_trip(Codec::Int8, &values, seed);
        for (block, back) in values.chunks(BLOCK).zip(back.chunks(BLOCK)) {
            let largest = block.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            for (value, back) in block.iter().zip(back) {
                prop_assert!((value - back).abs() <= largest / 127.0 * 1.0001);
            }
        }
    }

    #[test]
    fn chunks_have_the_bytes_of_the_whole(
        values in prop::collection::vec(-1f32..1.0, 1..600), seed: u64, blocks in 1u32..4
    ) {
        for codec in Codec::ALL {
            let len = codec.encoded_len(values.len()).unwrap();
            let mut whole = vec![0; len as usize];
            codec.encode(&values, 0, seed, &mut whole).unwrap();
            let step = (codec.align() * blocks) as usize;
            let mut decoded = vec![0.0; values.len()];
            for (at, bytes) in whole.chunks(step).enumerate() {
                let first = codec.index_at((at * step) as u32).unwrap();
                let count = codec.count_in(bytes.len()).unwrap();
                let mut chunk = vec![0; bytes.len()];
                codec.encode(&values[first..first + count], first, seed, &mut chunk).unwrap();
                prop_assert_eq!(&chunk, bytes);
                codec.decode(&chunk, &mut decoded[first..first + count]).unwrap();
            }
            prop_assert_eq!(decoded, round_trip(codec, &values, seed));
        }
    }
}
