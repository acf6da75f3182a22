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
    /// None of predicted numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Spread>,
    /// Mean over devices of absolute errors. Only of predicted numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<Spread>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<Spread>,
}

/// One seed's value of a point.
struct CurveSample<'a> {
    rounds: u32,
    loss: &'a Distribution,
    accuracy: Option<f64>,
    mae: Option<f64>,
    r2: Option<f64>,
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
        let classes = samples.iter().any(|sample| sample.accuracy.is_some());
        let numbers = samples.iter().any(|sample| sample.mae.is_some());
        let tier = |tier: usize| TierPoint {
            loss: over(&|sample| Some(heard(sample, tier)?.loss)),
            accuracy: classes.then(|| over(&|sample| heard(sample, tier)?.accuracy)),
            mae: numbers.then(|| over(&|sample| heard(sample, tier)?.mae)),
            r2: numbers.then(|| over(&|sample| heard(sample, tier)?.r2)),
        };
        Some(CurvePoint {
            rounds: samples.first()?.rounds,
            loss: over(&|sample| sample.heard.then_some(sample.loss.mean)),
            variance: over(&|sample| sample.heard.then_some(sample.loss.variance)),
            accuracy: classes.then(|| over(&|sample| sample.accuracy.filter(|_| sample.heard))),
            mae: numbers.then(|| over(&|sample| sample.mae)),
            r2: numbers.then(|| over(&|sample| sample.r2)),
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
        let FinalScores { loss, accuracy, mae, r2, tiers, .. } = last;
        let (accuracy, mae, r2) = (mean(accuracy), mean(mae), *r2);
        return Some(CurveSample { rounds, loss, accuracy, mae, r2, tiers, knob: None, heard: true });
    }
    let line = unit.rounds.get(at)?;
    let rounds = line.round.saturating_sub(1);
    let RoundScores { loss, accuracy, mae, r2, tiers, .. } = line;
    let (accuracy, mae, r2) = (mean(accuracy), mean(mae), *r2);
    let (knob, heard) = (line.fairness.first(), line.is_heard());
    Some(CurveSample { rounds, loss, accuracy, mae, r2, tiers, knob, heard })
}

fn mean(scores: &Option<Distribution>) -> Option<f64> {
    scores.map(|scores| scores.mean)
}
