//! How a setting fared round by round, over seeds.

use common::metrics::Spread;
use serde::Serialize;

use crate::results::{Figures, TierLine, UnitResult};

/// The model after so many rounds, scored on devices' own test data: while training, by those that took part;
/// at the end by all.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CurvePoint {
    pub rounds: u32,
    pub loss: Spread,
    pub variance: Spread,
    pub accuracy: Spread,
    pub tiers: Vec<TierPoint>,
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct TierPoint {
    pub loss: Spread,
    pub accuracy: Spread,
}

/// What one seed says about one moment.
struct Moment<'a> {
    rounds: u32,
    loss: &'a Figures,
    accuracy: &'a Figures,
    tiers: &'a [TierLine],
}

/// As long as the longest run; each point over the seeds that came so far.
pub fn curve(units: &[&UnitResult]) -> Vec<CurvePoint> {
    let longest = units.iter().map(|unit| unit.rounds.len() + 1).max().unwrap_or(0);
    let point = |at: usize| {
        let moments: Vec<Moment<'_>> = units.iter().filter_map(|unit| moment(unit, at)).collect();
        let over = |of: &dyn Fn(&Moment<'_>) -> Option<f64>| {
            let values: Vec<f64> = moments.iter().filter_map(of).filter(|value| value.is_finite()).collect();
            Spread::of(&values)
        };
        let tiers = moments.iter().map(|moment| moment.tiers.len()).max().unwrap_or(0);
        // A tier of which nobody took part has no score.
        let heard = |moment: &Moment<'_>, tier: usize| {
            moment.tiers.get(tier).copied().filter(|line| line.devices > 0)
        };
        let tier = |tier: usize| TierPoint {
            loss: over(&|moment| Some(heard(moment, tier)?.loss)),
            accuracy: over(&|moment| Some(heard(moment, tier)?.accuracy)),
        };
        Some(CurvePoint {
            rounds: moments.first()?.rounds,
            loss: over(&|moment| Some(moment.loss.mean)),
            variance: over(&|moment| Some(moment.loss.variance)),
            accuracy: over(&|moment| Some(moment.accuracy.mean)),
            tiers: (0..tiers).map(tier).collect(),
        })
    };
    (0..longest).filter_map(point).collect()
}

/// A round speaks of the model that it began with.
fn moment(unit: &UnitResult, at: usize) -> Option<Moment<'_>> {
    if at == unit.rounds.len() {
        let last = &unit.last;
        let rounds = unit.rounds.last().map_or(0, |line| line.round);
        return Some(Moment { rounds, loss: &last.loss, accuracy: &last.accuracy, tiers: &last.tiers });
    }
    let line = unit.rounds.get(at)?;
    let rounds = line.round.saturating_sub(1);
    Some(Moment { rounds, loss: &line.loss, accuracy: &line.accuracy, tiers: &line.tiers })
}
