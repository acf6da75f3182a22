//! Combining that a few devices can not decide: per number of the model, over the devices that hold it, the
//! weighted mean `sum v_i D_i / sum v_i` is replaced by a weighted median or a weighted trimmed mean.
//!
//! ```text
//! v_i = c[j][m] w_i, what the strategy gives device i of tier m in region j, but no more than twice the median v
//! step = (sum v_i as the strategy gave them) * location({D_i}, {v_i})
//! ```
//! The bound on v is what makes it robust under strategies whose weights follow from what devices say. Nobody is
//! left out as a whole: a device counts wherever its number lies among the others'. Memory is `devices x stretch`.

use std::{fmt, str::FromStr};

use common::Tier;
use serde::{Deserialize, Serialize};

use super::super::{CombineError, Row, Updates, apply::each_run, cohort::Cohort};
use crate::strategy::{Mix, Weights};

/// Numbers held at a time, over all devices.
const ROOM: usize = 1 << 20;
/// Numbers of the model that are read at a time, at least and at most.
const STRETCH: (usize, usize) = (64, 4096);
/// How many times the median weight one device can have.
const CAP: f64 = 2.0;

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Robust {
    #[default]
    Off,
    Median,
    /// Leaves out this share of the weight at both ends.
    Trimmed(f64),
}

impl fmt::Display for Robust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Median => f.write_str("median"),
            Self::Trimmed(share) => write!(f, "trimmed:{share}"),
        }
    }
}

impl FromStr for Robust {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = text.strip_prefix("trimmed:").and_then(|share| share.parse().ok());
        match (text, share) {
            ("off", _) => Ok(Self::Off),
            ("median", _) => Ok(Self::Median),
            (_, Some(share)) if (0.0..0.5).contains(&share) => Ok(Self::Trimmed(share)),
            _ => Err(format!("`{text}`: known are off, median, and trimmed:S with S in [0, 0.5)")),
        }
    }
}

impl From<Robust> for String {
    fn from(robust: Robust) -> Self {
        robust.to_string()
    }
}

impl TryFrom<String> for Robust {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Numbers that the same tiers hold.
struct Segment {
    full: usize,
    len: usize,
    region: usize,
    /// Where they lie in the tier's slice.
    held: Vec<(Tier, usize)>,
}

/// The step over the whole model.
pub(in super::super) fn step<U: Updates>(
    robust: Robust,
    cohort: &Cohort<'_>,
    weights: &Weights,
    mix: &Mix,
    updates: &mut U,
) -> Result<Vec<f64>, CombineError<U::Error>> {
    let mut step = vec![0.0; cohort.regions().parameters()];
    let stretch = (ROOM / cohort.participants().len().max(1)).clamp(STRETCH.0, STRETCH.1);
    let segments = segments(cohort, stretch);
    let mut values: Vec<f64> = Vec::new();
    let mut pairs = Vec::new();
    let mut rest = segments.as_slice();
    while !rest.is_empty() {
        let mut room = 0;
        let fitting = rest.iter().take_while(|segment| {
            room += segment.len;
            room <= stretch
        });
        let (group, later) = rest.split_at(fitting.count().max(1).min(rest.len()));
        rest = later;
        // One contiguous part of every update, from the first number of the group to the last.
        let spans: Vec<Option<(usize, usize)>> =
            (0..cohort.regions().tiers()).map_while(Tier::new).map(|tier| span(group, tier)).collect();
        let width = spans.iter().flatten().map(|(start, end)| end - start).max().unwrap_or(0);
        values.resize(cohort.participants().len() * width, 0.0);
        for (index, participant) in cohort.participants().iter().enumerate() {
            let Some((start, end)) = spans.get(participant.tier.index()).copied().flatten() else { continue };
            let Some(out) = values.get_mut(index * width..index * width + (end - start)) else { continue };
            let got =
                updates.part(Row::Update(index, participant), start, out).map_err(CombineError::Read)?;
            if got != cohort.regions().slice_len(participant.tier) {
                return Err(super::super::wrong_length(cohort, &participant.device, participant.tier, got));
            }
        }
        for segment in group {
            let (holders, total) = holders(cohort, weights, mix, segment);
            for at in 0..segment.len {
                pairs.clear();
                pairs.extend(holders.iter().filter_map(|holder| {
                    let first = spans.get(holder.tier.index()).copied().flatten()?.0;
                    let value = *values.get(holder.index * width + holder.packed + at - first)?;
                    Some((value, holder.weight))
                }));
                if let Some(step) = step.get_mut(segment.full + at) {
                    *step = total * location(robust, &mut pairs);
                }
            }
        }
    }
    Ok(step)
}

struct Holder {
    index: usize,
    tier: Tier,
    packed: usize,
    weight: f64,
}

/// Who counts in a segment, with bounded weights, and the sum of the weights as the strategy gave them.
fn holders(cohort: &Cohort<'_>, weights: &Weights, mix: &Mix, segment: &Segment) -> (Vec<Holder>, f64) {
    let mut holders: Vec<Holder> = cohort
        .participants()
        .iter()
        .enumerate()
        .filter_map(|(index, participant)| {
            let &(tier, packed) = segment.held.iter().find(|(tier, _)| *tier == participant.tier)?;
            let weight = weights.of(index).in_region(segment.region) * mix.coefficient(segment.region, tier);
            (weight > 0.0).then_some(Holder { index, tier, packed, weight })
        })
        .collect();
    let total = holders.iter().map(|holder| holder.weight).sum();
    let mut sorted: Vec<f64> = holders.iter().map(|holder| holder.weight).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let cap = CAP * sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    holders.iter_mut().for_each(|holder| holder.weight = holder.weight.min(cap));
    (holders, total)
}

fn segments(cohort: &Cohort<'_>, stretch: usize) -> Vec<Segment> {
    let mut segments = vec![];
    each_run(cohort.regions(), |held| {
        let Some((_, piece)) = held.first() else { return };
        for first in (0..piece.len).step_by(stretch) {
            segments.push(Segment {
                full: piece.full + first,
                len: stretch.min(piece.len - first),
                region: piece.region.index(),
                held: held.iter().map(|(tier, piece)| (*tier, piece.packed + first)).collect(),
            });
        }
    });
    segments
}

/// Where a tier's slice holds the segments, first to last.
fn span(group: &[Segment], tier: Tier) -> Option<(usize, usize)> {
    let own = |segment: &Segment| {
        let (_, packed) = segment.held.iter().find(|(other, _)| *other == tier)?;
        Some((*packed, packed + segment.len))
    };
    let mut held = group.iter().filter_map(own);
    let (start, end) = held.next()?;
    Some((start, held.next_back().map_or(end, |(_, end)| end)))
}

/// Of (value, weight), weights above 0; 0 for nobody.
pub fn location(robust: Robust, pairs: &mut [(f64, f64)]) -> f64 {
    let all: f64 = pairs.iter().map(|(_, weight)| weight).sum();
    if pairs.is_empty() || all <= 0.0 {
        return 0.0;
    }
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    match robust {
        Robust::Off => pairs.iter().map(|(value, weight)| value * weight).sum::<f64>() / all,
        Robust::Median => {
            let (half, mut before) = (all / 2.0, 0.0);
            for (at, &(value, weight)) in pairs.iter().enumerate() {
                before += weight;
                if (before - half).abs() <= 1e-12 * all {
                    return (value + pairs.get(at + 1).map_or(value, |next| next.0)) / 2.0;
                }
                if before > half {
                    return value;
                }
            }
            pairs.last().map_or(0.0, |pair| pair.0)
        }
        Robust::Trimmed(share) => {
            let (low, high) = (share * all, (1.0 - share) * all);
            let (mut before, mut sum) = (0.0, 0.0);
            for &(value, weight) in &*pairs {
                let inside = (before + weight).min(high) - f64::max(before, low);
                sum += value * inside.max(0.0);
                before += weight;
            }
            sum / (high - low)
        }
    }
}
