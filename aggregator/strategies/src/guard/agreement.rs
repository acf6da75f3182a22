//! Opt-in, `bonus = "agreeing"`: a device whose update points away from the others gets no bonus, but its whole plain share.
//!
//! ```text
//! u_i = D_i / |D_i|       S = sum of u_i over a sample of the model's numbers
//! cosine_i = <u_i, S - u_i> over the numbers of the sample that i holds, normalised; below 0: cap_i = min(cap_i, p_i)
//! ```
//! A device with rare data points away from the others too, and then loses the bonus that a fair strategy would give it. All
//! directions count the same, whatever their length and loss. Every round draws another sample, which is read twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use common::{
    DeviceId, Tier,
    region::RegionMap,
    rng::{Rng, derive},
};

use crate::{
    cohort::Cohort,
    error::CombineError,
    updates::{UpdateRef, Updates},
};

/// Fewest other devices from which a direction is compared.
const OTHERS: usize = 3;
/// Number of parts of the model that are sampled, and the length of each; a small model is read as a whole.
const STRETCHES: usize = 24;
const STRETCH: usize = 1024;

/// Devices whose updates point away from the others.
pub fn disagreeing<U: Updates>(
    cohort: &Cohort,
    updates: &mut U,
) -> Result<BTreeSet<DeviceId>, CombineError<U::Error>> {
    let cosines = cosines(cohort, updates)?;
    Ok(cosines.into_iter().filter(|&(_, cosine)| cosine < 0.0).map(|(device, _)| device).collect())
}

/// Cosine of every participant with the others; absent if it has no direction or too few others.
fn cosines<U: Updates>(
    cohort: &Cohort,
    updates: &mut U,
) -> Result<BTreeMap<DeviceId, f64>, CombineError<U::Error>> {
    let participants = cohort.participants();
    let mut found = BTreeMap::new();
    if participants.len() <= OTHERS {
        return Ok(found);
    }
    let sample = Sample::new(cohort.regions(), cohort.round);
    // The factor that gives an update length 1.
    let unit = |index: usize| match cohort.norm(index).sqrt() {
        length if length > 0.0 => 1.0 / length,
        _ => 0.0,
    };
    let mut sum = vec![0.0; sample.len];
    let mut buffer = Vec::new();
    for (index, participant) in participants.iter().enumerate() {
        let unit = unit(index);
        sample.read(cohort, updates, UpdateRef::Update(index, participant), &mut buffer, |at, own| {
            for (sum, own) in sum[at..at + own.len()].iter_mut().zip(own) {
                *sum += unit * own;
            }
        })?;
    }
    for (index, participant) in participants.iter().enumerate() {
        let unit = unit(index);
        let (mut product, mut square, mut length) = (0.0, 0.0, 0.0);
        sample.read(cohort, updates, UpdateRef::Update(index, participant), &mut buffer, |at, own| {
            for (sum, own) in sum[at..at + own.len()].iter().zip(own) {
                let others = sum - unit * own;
                product += own * others;
                square += others * others;
                length += own * own;
            }
        })?;
        // If no other device holds the numbers, only rounding remains.
        if unit > 0.0 && length > 0.0 && square.sqrt() > 1e-9 {
            found.insert(participant.device.clone(), product / (length * square).sqrt());
        }
    }
    Ok(found)
}

/// The sampled numbers, as tiers hold them.
struct Sample {
    /// Numbers of the sample.
    len: usize,
    /// By tier: ranges of its slice that reach into the sample.
    tiers: Vec<Vec<SampledRange>>,
}

/// A range of a slice that is read at once.
struct SampledRange {
    packed: Range<usize>,
    /// Offset in the range, offset in the sample, length.
    pieces: Vec<(usize, usize, usize)>,
}

impl Sample {
    fn new(regions: &RegionMap, round: u32) -> Self {
        let stretches = stretches(regions.parameters(), round);
        let starts: Vec<usize> = stretches
            .iter()
            .scan(0, |end, stretch| Some(std::mem::replace(end, *end + stretch.len())))
            .collect();
        let sampled = |tier: Tier, stretch: &Range<usize>, start: usize| {
            let pieces = regions.pieces(tier);
            let first = pieces.partition_point(|piece| piece.full + piece.len <= stretch.start);
            let mut range: Option<SampledRange> = None;
            for piece in pieces.iter().skip(first).take_while(|piece| piece.full < stretch.end) {
                let from = piece.full.max(stretch.start);
                let len = (piece.full + piece.len).min(stretch.end) - from;
                let packed = piece.packed + from - piece.full;
                let range = range.get_or_insert(SampledRange { packed: packed..packed, pieces: vec![] });
                range.packed.end = packed + len;
                range.pieces.push((packed - range.packed.start, start + from - stretch.start, len));
            }
            range
        };
        let tiers = (0..regions.tiers()).map_while(Tier::new);
        let ranges =
            |tier| stretches.iter().zip(&starts).filter_map(|(s, &start)| sampled(tier, s, start)).collect();
        Self { len: stretches.iter().map(ExactSizeIterator::len).sum(), tiers: tiers.map(ranges).collect() }
    }

    /// Calls `each` with offsets in the sample and the numbers of an update from there on.
    fn read<U: Updates>(
        &self,
        cohort: &Cohort,
        updates: &mut U,
        which: UpdateRef<'_>,
        buffer: &mut Vec<f64>,
        mut each: impl FnMut(usize, &[f64]),
    ) -> Result<(), CombineError<U::Error>> {
        for range in &self.tiers[which.tier().index()] {
            buffer.clear();
            buffer.resize(range.packed.len(), 0.0);
            let got = updates.read_part(which, range.packed.start, buffer).map_err(CombineError::Read)?;
            which.check_len(cohort.regions(), got)?;
            for &(from, at, len) in &range.pieces {
                each(at, &buffer[from..from + len]);
            }
        }
        Ok(())
    }
}

/// One part at a random place in each of [`STRETCHES`] equal parts of the model.
fn stretches(parameters: usize, round: u32) -> Vec<Range<usize>> {
    if parameters <= STRETCHES * STRETCH {
        return std::iter::once(0..parameters).collect();
    }
    let mut rng = Rng::new(derive(0x5c4e_e11e, u64::from(round)));
    let bound = |part: usize| part * parameters / STRETCHES;
    (0..STRETCHES)
        .map(|part| {
            let room = bound(part + 1) - bound(part) - STRETCH;
            let start = bound(part) + rng.below(room as u64 + 1) as usize;
            start..start + STRETCH
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_model_is_sampled_in_every_part_and_differently_in_every_round() {
        let whole = stretches(2410, 1);
        assert_eq!((whole.len(), &whole[0]), (1, &(0..2410)));
        let (first, second) = (stretches(178_110, 1), stretches(178_110, 2));
        assert_ne!(first, second);
        for (part, stretch) in first.iter().enumerate() {
            assert_eq!(stretch.len(), STRETCH);
            assert!(stretch.start >= part * 178_110 / STRETCHES);
            assert!(stretch.end <= (part + 1) * 178_110 / STRETCHES);
        }
    }
}
