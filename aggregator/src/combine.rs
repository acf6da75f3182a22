//! From the updates of a round to the next global model, in memory of the order of the model.
//!
//! ```text
//! scalars of all devices -> Strategy::weigh -> one weight per device (or per device and region)
//! updates, one at a time, in DeviceId order  -> per tier m:  acc_m = sum_i weight_i * D_i   (f64)
//! norms of the sums      -> Strategy::mix   -> coefficients c[j][m] per region j and tier m
//! for every region j:       theta^(j) += eta * sum_{m in M(j)} c[j][m] * acc_m^(j)
//! ```
//! The sums run in DeviceId order, so the result is the same bits whatever the order of arrival. A
//! non-finite number anywhere in the result keeps the old model and the old state of the strategy.

use common::{Code, TierSet};

use crate::strategy::{Strategy, StrategyError};

mod apply;
mod check;
mod cohort;
mod fold;
mod kernel;
mod sums;

pub use check::{check_encoded, check_scalars, check_update};
pub use cohort::{Cohort, Participant, Refused};
pub use fold::Fold;
pub use kernel::{Scalar, sum};
pub use sums::TierSums;

/// Where the updates of a cohort are read from, one at a time.
pub trait Updates {
    /// `f32` on the wire, `f64` in round files.
    type Value: Scalar;
    type Error;

    /// The packed update of a participant: either borrowed from the source, or read into `buffer`.
    fn read<'a>(
        &'a mut self,
        index: usize,
        participant: &Participant,
        buffer: &'a mut Vec<Self::Value>,
    ) -> Result<&'a [Self::Value], Self::Error>;
}

/// Updates held in memory, in DeviceId order.
impl<T: Scalar> Updates for &[Vec<T>] {
    type Value = T;
    type Error = std::convert::Infallible;

    fn read<'a>(
        &'a mut self,
        index: usize,
        _: &Participant,
        _: &'a mut Vec<T>,
    ) -> Result<&'a [T], Self::Error> {
        Ok(self.get(index).map_or(&[], Vec::as_slice))
    }
}

/// What a round did.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Set if the model stayed as it was: [`Code::EmptyRound`] or [`Code::NonFiniteResult`].
    pub kept: Option<Code>,
    /// Weight of every participant over all participants, in DeviceId order; they sum to 1.
    pub weights: Vec<f64>,
    /// By region.
    pub regions: Vec<RegionNote>,
    pub refused: Vec<Refused>,
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

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CombineError<E> {
    #[error("the model has {expected} parameters, got {got}")]
    Model { expected: usize, got: usize },
    #[error("the update of {device} has {got} numbers, its slice has {expected}")]
    Update { device: common::DeviceId, expected: usize, got: usize },
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    #[error("an update can not be read: {0}")]
    Read(E),
}

/// Replaces `theta` by the next global model. On an error it is untouched.
pub fn combine<P: Scalar, U: Updates>(
    strategy: &mut dyn Strategy,
    cohort: &Cohort<'_>,
    updates: &mut U,
    theta: &mut [P],
) -> Result<Outcome, CombineError<U::Error>> {
    let regions = cohort.regions();
    if theta.len() != regions.parameters() {
        return Err(CombineError::Model { expected: regions.parameters(), got: theta.len() });
    }
    strategy.fits(regions)?;
    if cohort.participants().is_empty() {
        return Ok(kept(Code::EmptyRound, cohort));
    }
    let state = strategy.save();
    let weights = strategy.weigh(cohort);
    let mut fold = Fold::new(cohort);
    let mut buffer = Vec::new();
    for (index, participant) in cohort.participants().iter().enumerate() {
        let weight = weights.of(index);
        if weight.is_zero() {
            continue;
        }
        let update = updates.read(index, participant, &mut buffer).map_err(CombineError::Read);
        let update = update.inspect_err(|_| restore(strategy, &state))?;
        if !fold.add(participant.tier, update, weight) {
            restore(strategy, &state);
            return Err(CombineError::Update {
                device: participant.device.clone(),
                expected: regions.slice_len(participant.tier),
                got: update.len(),
            });
        }
    }
    drop(buffer);
    let sums = fold.sums();
    let mut mix = strategy.mix(cohort, &sums);
    mix.scale(strategy.eta().unwrap_or(cohort.server_lr));
    if !apply::apply(&fold, &mix, regions, theta) {
        restore(strategy, &state);
        return Ok(kept(Code::NonFiniteResult, cohort));
    }
    let weights = weights.into_shares();
    let note = |(region, &tiers): (usize, &TierSet)| {
        let reach = cohort.participants().iter().zip(&weights);
        let reach = reach.filter(|(participant, _)| tiers.contains(participant.tier));
        let counts = |tier| mix.coefficient(region, tier) * sums.weight(tier, region) != 0.0;
        RegionNote {
            tiers,
            participants: cohort.reaching(tiers),
            weight: sum(reach.map(|(_, &weight)| weight)),
            moved: tiers.iter().any(counts),
            rho: mix.rho(region),
        }
    };
    let notes = regions.sets().iter().enumerate().map(note).collect();
    Ok(Outcome { kept: None, weights, regions: notes, refused: cohort.refused().to_vec() })
}

fn kept(code: Code, cohort: &Cohort<'_>) -> Outcome {
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
        regions: cohort.regions().sets().iter().map(note).collect(),
        refused: cohort.refused().to_vec(),
    }
}

/// A strategy reads back what it wrote itself a moment ago, so there is nothing to report.
fn restore(strategy: &mut dyn Strategy, state: &[u8]) {
    let restored = strategy.restore(state);
    debug_assert!(restored.is_ok(), "a strategy must read what it saved");
}

#[cfg(test)]
mod tests;
