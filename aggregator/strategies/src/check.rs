//! Checks an update before it may count: right length, finite, from a device with data.
//!
//! One pass gives finiteness and the squared norm of every region together, because the sum of squares
//! of `f32` numbers in `f64` is finite exactly if all of them are.

use common::{Code, Codec, message::Scalars, region::Piece};
use zerocopy::FromBytes;

use crate::kernel::{self, Scalar, sum_squares};

/// Numbers decoded at a time: small enough to stay in the processor's first cache.
const BLOCK: usize = 4096;

/// Squared norm of an update per region, by [`common::RegionId`]; the update is the packed slice
/// whose pieces are given.
///
/// `f64` updates whose squares overflow count as non-finite.
pub fn check_update<T: Scalar>(update: &[T], pieces: &[Piece], regions: usize) -> Result<Vec<f64>, Code> {
    if update.len() != slice_len(pieces) {
        return Err(Code::WrongShape);
    }
    let mut norms = vec![0.0; regions];
    for piece in pieces {
        let values = update.get(piece.packed..piece.packed + piece.len).ok_or(Code::WrongShape)?;
        *norms.get_mut(piece.region.index()).ok_or(Code::WrongShape)? += sum_squares(values);
    }
    finite(norms)
}

/// The same for an update as it arrived.
pub fn check_encoded(bytes: &[u8], codec: Codec, pieces: &[Piece], regions: usize) -> Result<Vec<f64>, Code> {
    if codec.encoded_len(slice_len(pieces)).map(|len| len as usize) != Some(bytes.len()) {
        return Err(Code::WrongShape);
    }
    if codec == Codec::F32 {
        return check_numbers(bytes, pieces, regions);
    }
    let mut norms = vec![0.0; regions];
    let mut block = vec![0.0f32; BLOCK];
    let mut pieces = pieces.iter().copied().peekable();
    let block_bytes = codec.encoded_len(BLOCK).map_or(usize::MAX, |len| len as usize);
    for (number, bytes) in bytes.chunks(block_bytes).enumerate() {
        let first = number * BLOCK;
        let values = codec.count_in(bytes.len()).and_then(|count| block.get_mut(..count));
        let values = values.ok_or(Code::WrongShape)?;
        kernel::int8::decode(codec, bytes, values).map_err(|_| Code::WrongShape)?;
        while let Some(piece) = pieces.peek() {
            let (start, end) = (piece.packed.max(first) - first, piece.packed + piece.len - first);
            let part = &values[start.min(values.len())..end.min(values.len())];
            *norms.get_mut(piece.region.index()).ok_or(Code::WrongShape)? += sum_squares(part);
            if end > values.len() {
                break;
            }
            pieces.next();
        }
    }
    finite(norms)
}

/// For the usual codec, whose bytes are the numbers if they are aligned; otherwise the same sums over a copy.
fn check_numbers(bytes: &[u8], pieces: &[Piece], regions: usize) -> Result<Vec<f64>, Code> {
    if let (true, Ok(numbers)) = (cfg!(target_endian = "little"), <[f32]>::ref_from_bytes(bytes)) {
        return check_update(numbers, pieces, regions);
    }
    let mut numbers = vec![0.0f32; bytes.len() / size_of::<f32>()];
    Codec::F32.decode(bytes, &mut numbers).map_err(|_| Code::WrongShape)?;
    check_update(&numbers, pieces, regions)
}

/// A device without samples or with an impossible loss is dropped before any weight is formed.
pub fn check_scalars(scalars: &Scalars) -> Result<(), Code> {
    let possible = |loss: f64| loss.is_finite() && loss >= 0.0;
    if scalars.samples == 0 {
        return Err(Code::EmptyShard);
    }
    let validation =
        scalars.validation.into_iter().flat_map(|validation| [validation.loss, validation.error]);
    let losses =
        [scalars.loss_before].into_iter().chain(scalars.loss_after).chain(scalars.mass).chain(validation);
    let sound = losses.chain(scalars.trials.iter().copied()).all(possible)
        // Gaps may be negative, and so may sums with noise.
        && scalars.gap.into_iter().chain(scalars.group_losses.iter().copied()).all(f64::is_finite)
        && scalars.group_losses.len() <= scalars.group_counts.len();
    if sound { Ok(()) } else { Err(Code::NonFiniteLoss) }
}

fn slice_len(pieces: &[Piece]) -> usize {
    pieces.last().map_or(0, |piece| piece.packed + piece.len)
}

fn finite(norms: Vec<f64>) -> Result<Vec<f64>, Code> {
    if norms.iter().all(|norm| norm.is_finite()) { Ok(norms) } else { Err(Code::NonFiniteUpdate) }
}

#[cfg(test)]
mod tests {
    use common::{Tier, TierSet, message::Validation, region::RegionMap};
    use proptest::prelude::*;

    use super::*;

    fn map(lens: &[usize]) -> RegionMap {
        let (zero, one) = (Tier::new(0).unwrap(), Tier::new(1).unwrap());
        let sets = [TierSet::EMPTY.with(zero).with(one), TierSet::EMPTY.with(zero)];
        let mut start = 0;
        let runs: Vec<_> = lens
            .iter()
            .enumerate()
            .map(|(i, &len)| {
                start += len;
                (start - len, len, sets[i % 2])
            })
            .collect();
        RegionMap::from_spans(start, 2, runs)
    }

    #[test]
    fn lengths_and_bad_numbers_are_refused() {
        let map = map(&[3, 2]);
        let tier = Tier::new(0).unwrap();
        let check = |update: &[f32]| check_update(update, map.pieces(tier), 2);
        assert_eq!(check(&[1.0, 2.0, 2.0, 3.0, 4.0]), Ok(vec![9.0, 25.0]));
        assert_eq!(check(&[1.0; 4]), Err(Code::WrongShape));
        assert_eq!(check(&[1.0; 6]), Err(Code::WrongShape));
        assert_eq!(check(&[1.0, 1.0, f32::NAN, 1.0, 1.0]), Err(Code::NonFiniteUpdate));
        assert_eq!(check(&[1.0, 1.0, 1.0, f32::INFINITY, 1.0]), Err(Code::NonFiniteUpdate));
        let encoded = |bytes: &[u8]| check_encoded(bytes, Codec::F32, map.pieces(tier), 2);
        assert_eq!(encoded(&[0; 19]), Err(Code::WrongShape));
        assert_eq!(encoded(&[0; 24]), Err(Code::WrongShape));
        assert_eq!(encoded(&[0xff; 20]), Err(Code::NonFiniteUpdate));
        assert_eq!(encoded(&[0; 20]), Ok(vec![0.0, 0.0]));
    }

    #[test]
    fn scalars_of_a_failed_device_are_refused() {
        let good = Scalars {
            samples: 1,
            loss_before: 0.0,
            loss_after: None,
            test: None,
            steps: 1,
            ..Scalars::default()
        };
        assert_eq!(check_scalars(&good), Ok(()));
        assert_eq!(check_scalars(&Scalars { samples: 0, ..good.clone() }), Err(Code::EmptyShard));
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(
                check_scalars(&Scalars { loss_before: bad, ..good.clone() }),
                Err(Code::NonFiniteLoss)
            );
            let bads = [
                Scalars { loss_after: Some(bad), ..good.clone() },
                Scalars { mass: Some(bad), ..good.clone() },
                Scalars { validation: Some(Validation { loss: bad, error: 0.0 }), ..good.clone() },
                Scalars { validation: Some(Validation { loss: 1.0, error: bad }), ..good.clone() },
                Scalars { trials: [1.0, bad].into_iter().collect(), ..good.clone() },
                Scalars { gap: Some(if bad < 0.0 { f64::NAN } else { bad }), ..good.clone() },
            ];
            assert!(bads.iter().all(|bad| check_scalars(bad) == Err(Code::NonFiniteLoss)));
        }
    }

    proptest! {
        #[test]
        fn encoded_and_decoded_agree(lens in prop::collection::vec(1usize..3000, 1..8), seed: u64) {
            let map = map(&lens);
            let tier = Tier::new(0).unwrap();
            let mut rng = common::rng::Rng::new(seed);
            let update: Vec<f32> = (0..map.parameters()).map(|_| rng.unit_f32() - 0.5).collect();
            for codec in Codec::ALL {
                let mut bytes = vec![0; codec.encoded_len(update.len()).unwrap() as usize];
                codec.encode(&update, 0, seed, &mut bytes).unwrap();
                let mut decoded = update.clone();
                codec.decode(&bytes, &mut decoded).unwrap();
                let regions = map.sets().len();
                let whole = check_update(&decoded, map.pieces(tier), regions).unwrap();
                let parts = check_encoded(&bytes, codec, map.pieces(tier), regions).unwrap();
                for (whole, part) in whole.iter().zip(&parts) {
                    prop_assert!((whole - part).abs() <= 1e-12 * whole);
                }
                // However the bytes are aligned.
                for shift in 1..4 {
                    let mut shifted = vec![0; shift];
                    shifted.extend_from_slice(&bytes);
                    let again = check_encoded(&shifted[shift..], codec, map.pieces(tier), regions).unwrap();
                    prop_assert_eq!(&again, &parts);
                }
            }
        }
    }
}
