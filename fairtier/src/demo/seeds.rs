//! One seed in one row: what the target did, and what it cost.

use common::metrics::Summary;
use serde::Serialize;
use strategies::fairness::FairnessStatus;

use super::{BaselineChange, Setup, StrategyRun, target};

/// Both runs with one seed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SeedResult {
    /// Seed of both runs.
    pub seed: u64,
    /// Disparity between tiers under the baseline and with the target, over the last window. `None` without a target.
    pub disparity: [Option<f64>; 2],
    /// Disparity between tiers of the final models on test samples.
    pub test_disparity: [f64; 2],
    /// The target; `None` if there is none.
    pub target: Option<f64>,
    /// Status of the target.
    pub status: Option<FairnessStatus>,
    /// The status in words.
    pub advice: Option<String>,
    /// Value of the driven parameter in the last round.
    pub knob: Option<f64>,
    /// Whether the certificate holds.
    pub certified: bool,
    /// Changes against the baseline.
    pub change: BaselineChange,
    /// The device with classes of its own, and all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minority: Option<MinorityScores>,
}

/// Test accuracies under the baseline and with the target.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct MinorityScores {
    /// Of the device with classes of its own.
    pub alone: [f64; 2],
    /// Mean over all other devices.
    pub others: [f64; 2],
}

impl SeedResult {
    /// `None` if there is nothing to compare.
    pub(super) fn of(setup: &Setup, runs: &[StrategyRun]) -> Option<Self> {
        let [base, fair] = runs else { return None };
        let line = fair.target.as_ref();
        let window = |run: &StrategyRun| run.target.as_ref().and_then(|line| line.window_rms);
        let minority = |name| Some(MinorityScores::new(scores(base, name)?, scores(fair, name)?));
        Some(Self {
            seed: setup.seed,
            disparity: [window(base), window(fair)],
            test_disparity: [base, fair].map(|run| disparity(&run.loss_by_tier)),
            target: line.map(|line| line.target),
            status: line.map(|line| line.status),
            advice: line.map(target::advice),
            knob: line.map(|line| line.value),
            certified: line.is_some_and(|line| line.certified),
            change: BaselineChange::of(base, fair),
            minority: setup.minority.and_then(minority),
        })
    }
}

impl MinorityScores {
    fn new(base: (f64, f64), fair: (f64, f64)) -> Self {
        Self { alone: [base.0, fair.0], others: [base.1, fair.1] }
    }
}

/// Accuracy of the named device, and the mean of all others.
fn scores(run: &StrategyRun, name: &str) -> Option<(f64, f64)> {
    let accuracy = |of: bool| {
        let devices = run.devices.iter().filter(move |device| (device.device == name) == of);
        let found: Vec<f64> = devices.filter_map(|device| device.test_accuracy).collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    };
    Some((accuracy(true)?, accuracy(false)?))
}

/// Standard deviation of the tiers' mean losses over their mean.
fn disparity(tiers: &[Summary]) -> f64 {
    let count = tiers.len() as f64;
    let mean = tiers.iter().map(|tier| tier.mean).sum::<f64>() / count;
    let variance = tiers.iter().map(|tier| (tier.mean - mean).powi(2)).sum::<f64>() / count;
    variance.sqrt() / mean
}
