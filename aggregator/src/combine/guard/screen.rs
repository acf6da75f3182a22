//! Whose update points away from all others.
//!
//! ```text
//! u_i = D_i / |D_i|       M_i = mean of the other devices' u over each number that they hold, as far as i holds it
//! cosine_i = u_i . M_i / |M_i|
//! ```
//! Everybody's direction counts the same, however long the update and whatever weight its loss would give it, so
//! that the ones looked for can not buy the mean. Two passes over the updates, memory of the order of the model.

use std::collections::BTreeMap;

use common::DeviceId;

use super::super::{Cohort, CombineError, Row, Scalar, Updates, weighted_mean};
use crate::strategy::Weights;

/// Others without whom a direction says nothing.
const OTHERS: usize = 3;

/// Cosine of every participant with the others; absent where it has no direction or too few others.
pub fn cosines<U: Updates>(
    cohort: &Cohort<'_>,
    updates: &mut U,
) -> Result<BTreeMap<DeviceId, f64>, CombineError<U::Error>> {
    let regions = cohort.regions();
    let participants = cohort.participants();
    let length = |index: usize| cohort.norm(index).sqrt();
    let votes: Vec<f64> = (0..participants.len())
        .map(|index| if length(index) > 0.0 { cohort.credit(index) / length(index) } else { 0.0 })
        .collect();
    // The mean divides by the sum of the votes in a region; what is needed is the sum itself.
    let all: Vec<f64> = regions
        .sets()
        .iter()
        .map(|set| {
            let reach = participants.iter().zip(&votes).filter(|(p, _)| set.contains(p.tier));
            reach.map(|(_, vote)| vote).sum()
        })
        .collect();
    let mean = weighted_mean(&Weights::per_device(votes.clone()), cohort, updates)?;
    let mut found = BTreeMap::new();
    let mut buffer = Vec::new();
    for (index, participant) in participants.iter().enumerate() {
        let vote = votes.get(index).copied().unwrap_or(0.0);
        if vote == 0.0 || participants.len() <= OTHERS {
            continue;
        }
        let update =
            updates.read(Row::Update(index, participant), &mut buffer).map_err(CombineError::Read)?;
        let (mut product, mut square) = (0.0, 0.0);
        for piece in regions.pieces(participant.tier) {
            let total = all.get(piece.region.index()).copied().unwrap_or(0.0);
            let own = update.get(piece.packed..piece.packed + piece.len).unwrap_or(&[]);
            let theirs = mean.get(piece.full..piece.full + piece.len).unwrap_or(&[]);
            for (own, theirs) in own.iter().zip(theirs) {
                let own = own.wide();
                let others = total * theirs - vote * own;
                product += own * others;
                square += others * others;
            }
        }
        // What remains of an only holder's numbers is rounding.
        if square.sqrt() > 1e-9 {
            found.insert(participant.device.clone(), product / (length(index) * square.sqrt()));
        }
    }
    Ok(found)
}
