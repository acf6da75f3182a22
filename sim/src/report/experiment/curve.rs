//! Scores of a setting by round, over seeds.

use common::metrics::Spread;
use serde::Serialize;

use crate::results::{Distribution, FinalScores, KnobPoint, RoundScores, TierScores, UnitResult};

/// Scores of the model after this many rounds on devices' own test data. During training only devices that took part
/// are scored, at the end all.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CurvePoint {
    pub rounds: u32,
    pub loss: Spread,
    pub variance: Spread,
    pub accuracy: Spread,
    pub tiers: Vec<TierPoint>,
    /// Of runs with a fairness target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetPoint>,
}

/// A fairness target and its first knob in a round.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct TargetPoint {
    pub target: Spread,
    /// Disparity as measured.
    pub measured: Spread,
    /// Value of the parameter that is driven.
    pub value: Spread,
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct TierPoint {
    pub loss: Spread,
    pub accuracy: Spread,
}

/// One seed's value of a point.
struct CurveSample<'a> {
    rounds: u32,
    loss: &'a Distribution,
    accuracy: &'a Distribution,
    tiers: &'a [TierScores],
    knob: Option<&'a KnobPoint>,
    /// Whether any device was scored. Without, loss and accuracy are no figures.
    heard: bool,
}

/// As long as the longest run. Each point covers the seeds that reached this round.
pub fn curve(units: &[&UnitResult]) -> Vec<CurvePoint> {
    let longest = units.iter().map(|unit| unit.rounds.len() + 1).max().unwrap_or(0);
    let point = |at: usize| {
        let samples: Vec<CurveSample<'_>> = units.iter().filter_map(|unit| sample(unit, at)).collect();
        let over = |of: &dyn Fn(&CurveSample<'_>) -> Option<f64>| {
            let values: Vec<f64> = samples.iter().filter_map(of).filter(|value| value.is_finite()).collect();
            Spread::of(&values)
        };
        let tiers = samples.iter().map(|sample| sample.tiers.len()).max().unwrap_or(0);
        // A tier without participants has no score.
        let heard = |sample: &CurveSample<'_>, tier: usize| {
            sample.tiers.get(tier).copied().filter(|line| line.devices > 0)
        };
        let tier = |tier: usize| TierPoint {
            loss: over(&|sample| Some(heard(sample, tier)?.loss)),
            accuracy: over(&|sample| Some(heard(sample, tier)?.accuracy)),
        };
        Some(CurvePoint {
            rounds: samples.first()?.rounds,
            loss: over(&|sample| sample.heard.then_some(sample.loss.mean)),
            variance: over(&|sample| sample.heard.then_some(sample.loss.variance)),
            accuracy: over(&|sample| sample.heard.then_some(sample.accuracy.mean)),
            tiers: (0..tiers).map(tier).collect(),
            target: samples.iter().any(|sample| sample.knob.is_some()).then(|| TargetPoint {
                target: over(&|sample| Some(sample.knob?.target)),
                measured: over(&|sample| sample.knob?.measured),
                value: over(&|sample| Some(sample.knob?.value)),
            }),
        })
    };
    (0..longest).filter_map(point).collect()
}

/// A round reports scores of the model at its start.
fn sample(unit: &UnitResult, at: usize) -> Option<CurveSample<'_>> {
    if at == unit.rounds.len() {
        let last = &unit.last;
        let rounds = unit.rounds.last().map_or(0, |line| line.round);
        let FinalScores { loss, accuracy, tiers, .. } = last;
        return Some(CurveSample { rounds, loss, accuracy, tiers, knob: None, heard: true });
    }
    let line = unit.rounds.get(at)?;
    let rounds = line.round.saturating_sub(1);
    let RoundScores { loss, accuracy, tiers, .. } = line;
    Some(CurveSample { rounds, loss, accuracy, tiers, knob: line.fairness.first(), heard: line.is_heard() })
}
