//! Combines the updates of a round into the next global model.
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
//! The sums run in DeviceId order, so the result has the same bits whatever the order of arrival. If any number of the result
//! is not finite, the old model and the old state of the strategy are kept.

use common::{Code, RegionId, TierSet};
use serde_json::{Map, Value};

use crate::{
    blocks::{Blocks, Scope},
    cohort::{Cohort, Participant, Refused},
    error::{CombineError, StrategyError},
    fairness::{FairnessLine, RoundFairness, SignalSums},
    gram,
    guard::{
        self,
        share::{self, BoundedWeights},
    },
    kernel::{Scalar, sum},
    method::Method,
    strategy::{Exchange, Mix, Strategy, TierSums, Weight, Weights},
    updates::{UpdateRef, Updates, Vector},
};

mod apply;
mod conflicts;
mod fold;
mod read_ahead;
mod varp;

use apply::ModelStep;
pub use conflicts::{Conflicts, conflicts};
pub use fold::Fold;
use varp::Corrected;

/// Mean factor of the steps below which they count as short.
const SHORT: f64 = 0.5;
/// Rounds in a row with short steps that are worth a note.
const MANY_ROUNDS: u32 = 10;

/// The result of combining a round.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Set if the model is unchanged: [`Code::EmptyRound`] or [`Code::NonFiniteResult`].
    pub kept: Option<Code>,
    /// Weight of every participant over all participants, in DeviceId order; they sum to 1.
    pub weights: Vec<f64>,
    /// Devices that would have counted more without the guard, and how many count more because of it.
    pub capped: Vec<guard::CappedShare>,
    /// Devices that count more because of the guard.
    pub raised: usize,
    /// By region.
    pub regions: Vec<RegionNote>,
    /// Devices whose updates do not count, with the reason.
    pub refused: Vec<Refused>,
    /// Notes of the strategy for the report.
    pub notes: Map<String, Value>,
    /// The knobs of a fairness target, one line each; empty without a target.
    pub fairness: Vec<FairnessLine>,
    /// What the target was measured from, by tier; empty if nothing was measured.
    pub signals: Vec<SignalSums>,
}

/// The result for one region.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionNote {
    /// The tiers that hold it.
    pub tiers: TierSet,
    /// Devices whose updates reach the region.
    pub participants: usize,
    /// Their share of all weight. It may underflow to 0 if one tier outweighs all others.
    pub weight: f64,
    /// False: the region is unchanged.
    pub moved: bool,
    /// By how much the strategy shortened the step, in (0, 1]; absent if it does not state that.
    pub rho: Option<f64>,
}

/// Replaces `theta` by the next global model, and the method's state by the next one. If the result is not finite, both are
/// unchanged. After a read error, neither may be used any more. `earlier` are the exchanges of the round before the one that
/// gave the updates.
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
    method.check_state(regions)?;
    if cohort.participants().is_empty() {
        return Ok(kept(Code::EmptyRound, cohort, method));
    }
    let blocks = method.strategy.scope().map(|scope| Blocks::new(regions, cohort.layers(), scope));
    let strategy = &*method.strategy;
    let RoundStep { mut step, moved, shares, capped, raised, rho, mut notes } = match (&blocks, &method.varp)
    {
        (Some(blocks), _) => direct(strategy, cohort, blocks, updates)?,
        (None, None) => average(strategy, cohort, weigh_checked(strategy, cohort)?, updates)?,
        (None, Some(varp)) => {
            let weights = varp::weigh(strategy, cohort)?;
            let mut found = average(strategy, cohort, weights, &mut Corrected::new(updates, varp))?;
            found.step.shift = Some(varp.mean(cohort));
            found
        }
    };
    let eta = strategy.eta().unwrap_or(cohort.server_lr);
    step.folds.iter_mut().for_each(|(_, mix)| mix.scale(eta));
    step.shift.iter_mut().flatten().for_each(|shift| *shift *= eta);
    if !step.apply(regions, &moved, method.momentum.as_mut(), theta) {
        return Ok(kept(Code::NonFiniteResult, cohort, method));
    }
    if let Some(varp) = &mut method.varp {
        varp.learn(cohort, updates)?;
    }
    method.strategy.learn(cohort, earlier);
    let RoundFairness { lines: fairness, sums: signals } = method.measure(cohort, &capped);
    let note = |(region, tiers): (RegionId, TierSet)| {
        let holders = cohort.holders(tiers);
        RegionNote {
            tiers,
            participants: holders.len(),
            weight: sum(holders.into_iter().map(|index| shares[index])),
            moved: moved[region.index()],
            rho: rho[region.index()],
        }
    };
    let notes_of_regions: Vec<RegionNote> = regions.regions().map(note).collect();
    if let Some(warning) = short_steps(method, &notes_of_regions) {
        notes.insert("short_steps".into(), warning.into());
    }
    let refused = cohort.refused().to_vec();
    let regions = notes_of_regions;
    Ok(Outcome { kept: None, weights: shares, capped, raised, regions, refused, notes, fairness, signals })
}

/// The weighted mean of the sent vectors, region by region, over the whole model; 0 for parameters that no tier holds.
pub fn weighted_mean<U: Updates>(
    strategy: &dyn Strategy,
    weights: &Weights,
    cohort: &Cohort,
    updates: &mut U,
) -> Result<Vec<f64>, CombineError<U::Error>> {
    check_weights(strategy, "next", cohort, weights)?;
    let bounded = bounded_mean(strategy, cohort, weights)?;
    let weights = bounded.as_ref().unwrap_or(weights);
    let fold = fold(cohort, weights, updates, UpdateRef::Update)?;
    let mix = Mix::mean(cohort.regions(), &fold.sums());
    let step = ModelStep { folds: vec![(fold, mix)], shift: None };
    Ok(step.vector(cohort.regions()))
}

/// The direction d that a strategy with a [`Scope`] finds: a step of length 1 leads to `theta - d`.
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

/// The step of a round and the figures reported about it.
struct RoundStep<'a> {
    step: ModelStep<'a>,
    /// By region.
    moved: Vec<bool>,
    /// Weight of each participant over all participants.
    shares: Vec<f64>,
    capped: Vec<guard::CappedShare>,
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
) -> Result<RoundStep<'a>, CombineError<U::Error>> {
    let regions = cohort.regions();
    let (mut capped, mut raised, mut bounded) = (vec![], 0, None);
    if let Some(bounds) = &cohort.bounds {
        let base = base_weights(strategy, cohort)?;
        (capped, raised) = share::capped(bounds, cohort, &base, &weights);
        let own = share::tier_sums(cohort, &weights);
        let mix = mix_checked(strategy, cohort, &own)?;
        bounded = BoundedWeights::new(bounds, cohort, &base, &weights, own, &mix);
    }
    let weights = match &bounded {
        Some(bounded) => bounded.weights.clone(),
        None => weights,
    };
    let main = fold(cohort, &weights, updates, UpdateRef::Update)?;
    let sums = main.sums();
    let mix = match &bounded {
        Some(bounded) => {
            bounded.mix(cohort, &mix_checked(strategy, cohort, &bounded.restated(regions, &sums))?)
        }
        None => mix_checked(strategy, cohort, &sums)?,
    };
    let counts = |(region, tiers): (RegionId, TierSet)| {
        tiers.iter().any(|tier| mix.coefficient(region, tier) * sums.weight(tier, region) != 0.0)
    };
    let mut moved: Vec<bool> = regions.regions().map(counts).collect();
    let rho = regions.regions().map(|(region, _)| mix.rho(region)).collect();
    let mut folds = vec![(main, mix)];
    if let Some((weights, share)) = strategy.first_step(cohort) {
        check_weights(strategy, "first_step", cohort, &weights)?;
        let weights = bounded_mean(strategy, cohort, &weights)?.unwrap_or(weights);
        let first = fold(cohort, &weights, updates, UpdateRef::FirstStep)?;
        let sums = first.sums();
        let mut mix = Mix::mean(regions, &sums);
        mix.scale(share);
        for (moved, (region, tiers)) in moved.iter_mut().zip(regions.regions()) {
            *moved |= share * sums.weight_in(region, tiers) != 0.0;
        }
        folds.push((first, mix));
    }
    let step = ModelStep { folds, shift: None };
    let shares = weights.into_shares();
    Ok(RoundStep { step, moved, shares, capped, raised, rho, notes: Map::new() })
}

fn direct<'a, U: Updates>(
    strategy: &dyn Strategy,
    cohort: &'a Cohort,
    blocks: &'a Blocks,
    updates: &mut U,
) -> Result<RoundStep<'a>, CombineError<U::Error>> {
    let regions = cohort.regions();
    let grams = gram::grams(cohort, blocks, updates)?;
    let direction = strategy.direct(cohort, &grams);
    if !direction.fits(&grams) {
        let expected = "a direction over the given inner products".into();
        return Err(StrategyError::Shape { strategy: strategy.name(), method: "direct", expected }.into());
    }
    drop(grams);
    let mut fold = Fold::new(cohort, Some(blocks));
    let mut buffer = Vec::new();
    for (row, sent) in UpdateRef::rows(cohort).enumerate() {
        let weight = Weight::PerBlock(direction.row(row));
        if weight.is_zero() {
            continue;
        }
        let update = updates.read(sent, &mut buffer).map_err(CombineError::Read)?;
        sent.check_len(regions, update.len())?;
        fold.add(sent.tier(), update, weight);
    }
    let length = |row: usize| direction.row(row).iter().map(|weight| weight.abs()).sum();
    let mut shares: Vec<f64> = (0..cohort.participants().len()).map(length).collect();
    let all = sum(shares.iter().copied());
    shares.iter_mut().for_each(|share| *share = if all > 0.0 { *share / all } else { 0.0 });
    let sums = fold.sums();
    let moved = regions.regions().map(|(region, tiers)| sums.weight_in(region, tiers) > 0.0).collect();
    let step = ModelStep { folds: vec![(fold, Mix::sum(regions))], shift: None };
    let rho = vec![None; regions.sets().len()];
    Ok(RoundStep { step, moved, shares, capped: vec![], raised: 0, rho, notes: direction.notes })
}

/// Adds up the vectors of the participants, one after the other.
fn fold<'a, U: Updates>(
    cohort: &'a Cohort,
    weights: &Weights,
    updates: &mut U,
    sent: impl Fn(usize, &'a Participant) -> UpdateRef<'a> + Sync,
) -> Result<Fold<'a>, CombineError<U::Error>> {
    let (regions, participants) = (cohort.regions(), cohort.participants());
    let mut fold = Fold::new(cohort, None);
    let counted: Vec<usize> = (0..participants.len()).filter(|&index| !weights.of(index).is_zero()).collect();
    let numbers = counted.iter().map(|&index| regions.slice_len(participants[index].tier)).sum();
    let which = |index: usize| sent(index, &participants[index]);
    let mut add = |group: &[(usize, Vector<'_, U::Value>)]| {
        let mut rows = Vec::with_capacity(group.len());
        for &(index, vector) in group {
            which(index).check_len(regions, vector.len())?;
            rows.push((participants[index].tier, vector, weights.of(index)));
        }
        fold.add_all(&rows);
        Ok(())
    };
    read_ahead::for_each_group(updates, &counted, numbers, which, &mut add, CombineError::Read)?;
    Ok(fold)
}

/// The weights of a strategy, one for each participant.
fn weigh_checked(strategy: &dyn Strategy, cohort: &Cohort) -> Result<Weights, StrategyError> {
    let weights = strategy.weigh(cohort);
    check_weights(strategy, "weigh", cohort, &weights)?;
    Ok(weights)
}

fn check_weights(
    strategy: &dyn Strategy,
    method: &'static str,
    cohort: &Cohort,
    weights: &Weights,
) -> Result<(), StrategyError> {
    if weights.fits(cohort) {
        return Ok(());
    }
    let expected = format!("one weight for each of {} participants", cohort.participants().len());
    Err(StrategyError::Shape { strategy: strategy.name(), method, expected })
}

fn mix_checked(strategy: &dyn Strategy, cohort: &Cohort, sums: &TierSums) -> Result<Mix, StrategyError> {
    let mix = strategy.mix(cohort, sums);
    if mix.fits(cohort.regions()) {
        return Ok(mix);
    }
    let expected = "a mix of the cohort's regions".into();
    Err(StrategyError::Shape { strategy: strategy.name(), method: "mix", expected })
}

/// The weights of a weighted mean within the bounds; `None` if they are within them already.
fn bounded_mean(
    strategy: &dyn Strategy,
    cohort: &Cohort,
    weights: &Weights,
) -> Result<Option<Weights>, StrategyError> {
    let Some(bounds) = &cohort.bounds else { return Ok(None) };
    let base = base_weights(strategy, cohort)?;
    let own = share::tier_sums(cohort, weights);
    let mix = Mix::mean(cohort.regions(), &own);
    let bounded = BoundedWeights::new(bounds, cohort, &base, weights, own, &mix);
    Ok(bounded.map(|bounded| bounded.weights))
}

/// How much participants count regardless of their losses, one weight for each.
fn base_weights(strategy: &dyn Strategy, cohort: &Cohort) -> Result<Vec<f64>, StrategyError> {
    let (weights, participants) = (strategy.base_weights(cohort), cohort.participants().len());
    if weights.len() == participants {
        return Ok(weights);
    }
    let expected = format!("one weight for each of {participants} participants");
    Err(StrategyError::Shape { strategy: strategy.name(), method: "base_weights", expected })
}

fn kept(code: Code, cohort: &Cohort, method: &Method) -> Outcome {
    let note = |&tiers: &TierSet| RegionNote {
        tiers,
        participants: cohort.holders(tiers).len(),
        weight: 0.0,
        moved: false,
        rho: None,
    };
    Outcome {
        kept: Some(code),
        weights: vec![0.0; cohort.participants().len()],
        capped: vec![],
        raised: 0,
        regions: cohort.regions().sets().iter().map(note).collect(),
        refused: cohort.refused().to_vec(),
        notes: Map::new(),
        fairness: method.fairness_lines(),
        signals: vec![],
    }
}

/// Counts rounds in a row whose steps were shortened to less than half, and says so when there are many: a model that hardly
/// moves looks fair.
fn short_steps(method: &mut Method, regions: &[RegionNote]) -> Option<String> {
    let stated: Vec<f64> =
        regions.iter().filter(|region| region.moved).filter_map(|region| region.rho).collect();
    let mean = sum(stated.iter().copied()) / stated.len() as f64;
    method.short_steps = if mean < SHORT { method.short_steps.saturating_add(1) } else { 0 };
    let rounds = method.short_steps;
    (rounds >= MANY_ROUNDS).then(|| {
        format!(
            "steps were shortened to {mean:.2} of their length, below {SHORT} for {rounds} rounds: short steps look fair; set \
             `strategy.params.step = \"reweight\"`"
        )
    })
}

#[cfg(test)]
mod tests;
