//! From the updates of a round to the next global model.
//!
//! ```text
//! averaging, in memory of the order of the model:
//!   scalars of all devices -> Strategy::weigh -> one weight per device (or per device and region)
//!   updates, a group at a time, in DeviceId order -> per tier m:  acc_m = sum_i weight_i * D_i   (f64)
//!   norms of the sums      -> Strategy::mix   -> coefficients c[j][m] per region j and tier m
//!   for every region j:       theta^(j) += eta * sum_{m in M(j)} c[j][m] * acc_m^(j)
//!
//! directions, with inner products of all pairs of updates:
//!   updates, stretch by stretch -> Gram matrices per block -> Strategy::direct -> coefficients per row and block
//!   updates, one at a time      -> the same fold, with those coefficients
//! ```
//! The sums run in DeviceId order, so the result is the same bits whatever the order of arrival. A
//! non-finite number anywhere in the result keeps the old model and the old state of the strategy.

use common::{Code, DeviceId, Tier, TierSet};
use serde_json::{Map, Value};

use crate::{
    blocks::{Blocks, Scope},
    cohort::{Cohort, Participant, Refused},
    error::CombineError,
    gram,
    guard::{
        self,
        share::{self, Bounded},
    },
    kernel::{Scalar, sum},
    method::Method,
    strategy::{Exchange, Mix, Strategy, TierSums, Weight, Weights},
    updates::{Row, Updates, Vector},
};

mod ahead;
mod apply;
mod conflicts;
mod fold;
mod varp;

use apply::Step;
pub use conflicts::{Conflicts, conflicts};
pub use fold::Fold;
use varp::Corrected;

/// What a round did.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Set if the model stayed as it was: [`Code::EmptyRound`] or [`Code::NonFiniteResult`].
    pub kept: Option<Code>,
    /// Weight of every participant over all participants, in DeviceId order; they sum to 1.
    pub weights: Vec<f64>,
    /// Devices that would have counted more without the guard, and how many count more because of it.
    pub held: Vec<guard::Held>,
    pub raised: usize,
    /// By region.
    pub regions: Vec<RegionNote>,
    pub refused: Vec<Refused>,
    /// What the strategy found worth reporting.
    pub notes: Map<String, Value>,
}

/// What happened to one region.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionNote {
    pub tiers: TierSet,
    /// Devices whose updates reach the region.
    pub participants: usize,
    /// Their share of all weight; it may be too small for a number where one tier outweighs all others.
    pub weight: f64,
    /// False: the region kept its value.
    pub moved: bool,
    /// By how much the strategy shortened the step, in (0, 1]; absent where it has no such notion.
    pub rho: Option<f64>,
}

/// Replaces `theta` by the next global model, and the method's state by the next one. Where the result is not finite, both
/// are untouched; after an error of reading, neither may be used any more. `earlier` are the exchanges of the round before the one that gave the updates.
pub fn combine<P: Scalar, U: Updates>(
    method: &mut Method,
    cohort: &Cohort,
    earlier: &[Exchange],
    updates: &mut U,
    theta: &mut [P],
) -> Result<Outcome, CombineError<U::Error>> {
    let regions = cohort.regions();
    if theta.len() != regions.parameters() {
        return Err(CombineError::Model { expected: regions.parameters(), got: theta.len() });
    }
    method.fits(regions)?;
    if cohort.participants().is_empty() {
        return Ok(kept(Code::EmptyRound, cohort));
    }
    let blocks = method.strategy.scope().map(|scope| Blocks::new(regions, cohort.layers(), scope));
    let strategy = &*method.strategy;
    let Found { mut step, shares, held, raised, rho, notes } = match (&blocks, &method.varp) {
        (Some(blocks), _) => direct(strategy, cohort, blocks, updates)?,
        (None, None) => average(strategy, cohort, strategy.weigh(cohort), updates)?,
        (None, Some(varp)) => {
            let weights = varp::weigh(strategy, cohort);
            let mut found = average(strategy, cohort, weights, &mut Corrected::new(updates, varp))?;
            let mean = varp.mean(cohort);
            match found.step.shift.is_empty() {
                true => found.step.shift = mean,
                false => found.step.shift.iter_mut().zip(mean).for_each(|(shift, mean)| *shift += mean),
            }
            found
        }
    };
    let eta = strategy.eta().unwrap_or(cohort.server_lr);
    step.folds.iter_mut().for_each(|(_, mix)| mix.scale(eta));
    step.shift.iter_mut().for_each(|shift| *shift *= eta);
    let momentum = method.momentum.as_mut().map(|momentum| (momentum.beta, &mut momentum.buffer));
    if !step.apply(regions, momentum, theta) {
        return Ok(kept(Code::NonFiniteResult, cohort));
    }
    if let Some(varp) = &mut method.varp {
        varp.learn(cohort, updates)?;
    }
    method.strategy.learn(cohort, earlier);
    let note = |(region, &tiers): (usize, &TierSet)| {
        let reach = cohort.participants().iter().zip(&shares);
        let reach = reach.filter(|(participant, _)| tiers.contains(participant.tier));
        RegionNote {
            tiers,
            participants: cohort.reaching(tiers),
            weight: sum(reach.map(|(_, &weight)| weight)),
            moved: step.moved.get(region).copied().unwrap_or(false),
            rho: rho.get(region).copied().flatten(),
        }
    };
    let notes_of_regions = regions.sets().iter().enumerate().map(note).collect();
    let refused = cohort.refused().to_vec();
    Ok(Outcome { kept: None, weights: shares, held, raised, regions: notes_of_regions, refused, notes })
}

/// The weighted mean of what was sent, region by region, over the whole model; 0 where nobody holds a number.
pub fn weighted_mean<U: Updates>(
    strategy: &dyn Strategy,
    weights: &Weights,
    cohort: &Cohort,
    updates: &mut U,
) -> Result<Vec<f64>, CombineError<U::Error>> {
    let mean = |sums: &TierSums| Mix::mean(cohort.regions(), sums);
    let bounded = Bounded::new(strategy, cohort, weights, mean);
    let weights = bounded.as_ref().map_or(weights, |bounded| &bounded.weights);
    let fold = fold(cohort, weights, updates, |index, participant| Row::Update(index, participant))?;
    let mix = mean(&fold.sums());
    let step = Step { folds: vec![(fold, mix)], shift: vec![], moved: vec![] };
    Ok(step.vector(cohort.regions()))
}

/// The direction d that a strategy finds: a step of length 1 leads to `theta - d`.
pub fn direction<U: Updates>(
    strategy: &dyn Strategy,
    cohort: &Cohort,
    updates: &mut U,
) -> Result<Vec<f64>, CombineError<U::Error>> {
    let scope = strategy.scope().unwrap_or(Scope::Region);
    let blocks = Blocks::new(cohort.regions(), cohort.layers(), scope);
    let found = direct(strategy, cohort, &blocks, updates)?;
    let mut vector = found.step.vector(cohort.regions());
    vector.iter_mut().for_each(|value| *value = -*value);
    Ok(vector)
}

/// A step and what is worth telling of it.
struct Found<'a> {
    step: Step<'a>,
    /// Weight of each participant over all participants.
    shares: Vec<f64>,
    held: Vec<guard::Held>,
    raised: usize,
    /// By region.
    rho: Vec<Option<f64>>,
    notes: Map<String, Value>,
}

fn average<'a, U: Updates>(
    strategy: &dyn Strategy,
    cohort: &'a Cohort,
    weights: Weights,
    updates: &mut U,
) -> Result<Found<'a>, CombineError<U::Error>> {
    let regions = cohort.regions();
    let (held, raised) = share::held(strategy, cohort, &weights);
    let bounded = Bounded::new(strategy, cohort, &weights, |sums| strategy.mix(cohort, sums));
    let weights = match &bounded {
        Some(bounded) => bounded.weights.clone(),
        None => weights,
    };
    let main = fold(cohort, &weights, updates, |index, participant| Row::Update(index, participant))?;
    let sums = main.sums();
    let mix = match &bounded {
        Some(bounded) => bounded.mix(cohort, &strategy.mix(cohort, &bounded.restated(&sums))),
        None => strategy.mix(cohort, &sums),
    };
    let counts = |region: usize, tiers: &TierSet| {
        tiers.iter().any(|tier| mix.coefficient(region, tier) * sums.weight(tier, region) != 0.0)
    };
    let mut moved: Vec<bool> =
        regions.sets().iter().enumerate().map(|(region, tiers)| counts(region, tiers)).collect();
    let rho = (0..regions.sets().len()).map(|region| mix.rho(region)).collect();
    let mut folds = vec![(main, mix)];
    if let Some((weights, share)) = strategy.first(cohort) {
        let bounded = Bounded::new(strategy, cohort, &weights, |sums| Mix::mean(regions, sums));
        let weights = bounded.map_or(weights, |bounded| bounded.weights);
        let first = fold(cohort, &weights, updates, |index, participant| Row::First(index, participant))?;
        let mut mix = Mix::mean(regions, &first.sums());
        mix.scale(share);
        moved.iter_mut().enumerate().for_each(|(region, moved)| {
            *moved |= share * first.sums().weight_in(region, regions) != 0.0;
        });
        folds.push((first, mix));
    }
    let step = Step { folds, shift: vec![], moved };
    Ok(Found { step, shares: weights.into_shares(), held, raised, rho, notes: Map::new() })
}

fn direct<'a, U: Updates>(
    strategy: &dyn Strategy,
    cohort: &'a Cohort,
    blocks: &'a Blocks,
    updates: &mut U,
) -> Result<Found<'a>, CombineError<U::Error>> {
    let regions = cohort.regions();
    let grams = gram::grams(cohort, blocks, updates)?;
    let direction = strategy.direct(cohort, &grams);
    drop(grams);
    let mut fold = Fold::new(cohort, Some(blocks));
    let mut buffer = Vec::new();
    for row in 0..cohort.rows() {
        let weight = Weight::PerBlock(direction.row(row));
        let Some((row, tier, device)) = Row::of(cohort, row).filter(|_| !weight.is_zero()) else { continue };
        let update = updates.read(row, &mut buffer).map_err(CombineError::Read)?;
        if !fold.add(tier, update, weight) {
            return Err(wrong_length(cohort, device, tier, update.len()));
        }
    }
    let mut shares = vec![0.0; cohort.participants().len()];
    for (row, share) in shares.iter_mut().enumerate() {
        *share = direction.row(row).iter().map(|weight| weight.abs()).sum();
    }
    let all = sum(shares.iter().copied());
    shares.iter_mut().for_each(|share| *share = if all > 0.0 { *share / all } else { 0.0 });
    let sums = fold.sums();
    let moved = (0..regions.sets().len()).map(|region| sums.weight_in(region, regions) > 0.0).collect();
    let step = Step { folds: vec![(fold, Mix::whole(regions))], shift: vec![], moved };
    Ok(Found { step, shares, held: vec![], raised: 0, rho: vec![], notes: direction.notes })
}

/// Adds up what participants have sent, one after the other.
fn fold<'a, U: Updates>(
    cohort: &'a Cohort,
    weights: &Weights,
    updates: &mut U,
    row: impl for<'r> Fn(usize, &'r Participant) -> Row<'r>,
) -> Result<Fold<'a>, CombineError<U::Error>> {
    let mut fold = Fold::new(cohort, None);
    let counts = |(index, _): &(usize, &Participant)| !weights.of(*index).is_zero();
    let participants = || cohort.participants().iter().enumerate().filter(counts);
    let rows = participants().map(|(index, participant)| row(index, participant)).collect();
    let numbers = participants().map(|(_, participant)| cohort.regions().slice_len(participant.tier)).sum();
    let mut add = |group: &[(Row<'_>, Vector<'_, U::Value>)]| {
        let mut rows = Vec::with_capacity(group.len());
        for &(row, vector) in group {
            let (Row::Update(index, participant) | Row::First(index, participant)) = row else { continue };
            if vector.len() != cohort.regions().slice_len(participant.tier) {
                return Err(wrong_length(cohort, &participant.device, participant.tier, vector.len()));
            }
            rows.push((participant.tier, vector, weights.of(index)));
        }
        fold.add_all(&rows);
        Ok(())
    };
    ahead::each(updates, rows, numbers, &mut add, CombineError::Read)?;
    Ok(fold)
}

fn wrong_length<E>(cohort: &Cohort, device: &DeviceId, tier: Tier, got: usize) -> CombineError<E> {
    CombineError::Update { device: device.clone(), expected: cohort.regions().slice_len(tier), got }
}

fn kept(code: Code, cohort: &Cohort) -> Outcome {
    let note = |&tiers: &TierSet| RegionNote {
        tiers,
        participants: cohort.reaching(tiers),
        weight: 0.0,
        moved: false,
        rho: None,
    };
    Outcome {
        kept: Some(code),
        weights: vec![0.0; cohort.participants().len()],
        held: vec![],
        raised: 0,
        regions: cohort.regions().sets().iter().map(note).collect(),
        refused: cohort.refused().to_vec(),
        notes: Map::new(),
    }
}

#[cfg(test)]
mod tests;
