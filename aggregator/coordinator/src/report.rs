//! The figures of a round: participation, losses and accuracies, fairness between devices and tiers, traffic.

use common::{
    Code,
    brief::Signal,
    metrics::{Better, Gaps, GroupFairness, Summary, TierSplit, WeightFigures},
    plan::TaskKind,
};
use serde::{Deserialize, Serialize};

use crate::{
    best::BestModel,
    exchange::{ClosedExchange, Purpose},
    record::RefusedDevice,
    wall::{self, WallTime},
};
use strategies::{
    combine::{Conflicts, Outcome},
    fairness::{FairnessLine, SignalSums},
    guard::GuardFinding,
};

mod figures;
pub mod history;
mod parts;

use parts::{
    device_lines, errors, gaps, groups, participation, personal, pooled, refused_line, region_line,
    silent_line, split, summaries, weight_figures,
};

/// One round in numbers.
///
/// Losses and accuracies belong to the model that devices received, and are as devices reported them. `guard` lists the values
/// that counted instead.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RoundReport {
    /// From 1.
    pub round: u32,
    /// `train`, or `evaluate` for the scores of the final model.
    pub purpose: &'static str,
    /// Learning rate of the round.
    pub lr: f32,
    /// From the opening of the first exchange to the end of the last one.
    pub seconds: f64,
    /// When the round began, as a time of day.
    #[serde(serialize_with = "wall::text", skip_serializing_if = "Option::is_none")]
    pub began: Option<WallTime>,
    /// When it ended.
    #[serde(serialize_with = "wall::text", skip_serializing_if = "Option::is_none")]
    pub ended: Option<WallTime>,
    /// Name of the strategy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Keys of the configuration that have another value than in the round before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ConfigChange>,
    /// The best model so far, by what devices have reported up to this round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<BestModel>,
    /// Why training ends with this round, before the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Over devices: the test loss, or the training loss before training for devices without test samples.
    #[serde(serialize_with = "figures::one")]
    pub loss: Summary,
    /// The same for each tier.
    #[serde(serialize_with = "figures::each")]
    pub loss_by_tier: Vec<Summary>,
    /// Variance of the loss within and between tiers.
    pub loss_split: TierSplit,
    /// Test accuracy over devices that have test samples.
    #[serde(serialize_with = "figures::one")]
    pub accuracy: Summary,
    /// The same for each tier.
    #[serde(serialize_with = "figures::each")]
    pub accuracy_by_tier: Vec<Summary>,
    /// Variance of the accuracy within and between tiers.
    pub accuracy_split: TierSplit,
    /// What the model predicts.
    pub task: &'static str,
    /// Errors of predicted numbers, instead of accuracies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<ErrorFigures>,
    /// All test samples together, each under its device's own sub-model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooled: Option<Pooled>,
    /// Devices without test samples, which the figures of accuracy leave out.
    pub untested: usize,
    /// By tier.
    pub participation: Vec<Participation>,
    /// Scores of models that stay on devices, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personal: Option<Personal>,
    /// Loss beyond that of a device's own model, if devices have trained alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Gaps>,
    /// The same for each tier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps_by_tier: Vec<Gaps>,
    /// Fairness between groups, if devices report wrong predictions by group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupFairness>,
    /// The same for each tier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups_by_tier: Vec<Option<GroupFairness>>,
    /// How evenly weight is spread over devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightFigures>,
    /// Share of all weight, by tier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weight_by_tier: Vec<f64>,
    /// Updates that point away from the step, if the run counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<Conflicts>,
    /// Over all tiers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// The same for each tier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traffic_by_tier: Vec<Traffic>,
    /// Devices that have delivered, in DeviceId order.
    pub devices: Vec<DeviceLine>,
    /// Devices whose answer was refused.
    pub refused: Vec<RefusedLine>,
    /// What the guard has limited, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guard: Vec<GuardFinding>,
    /// Devices whose weight the guard has raised to its floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raised: Option<usize>,
    /// The knobs of the fairness target, if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fairness: Vec<FairnessLine>,
    /// What the target was measured from, by tier, so that the knobs can be computed again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fairness_sums: Vec<SignalSums>,
    /// Devices that did not answer in time.
    pub silent: Vec<SilentLine>,
    /// How each region was combined.
    pub regions: Vec<RegionLine>,
    /// Why the model was left unchanged, as an error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u16>,
    /// If training has diverged: the round whose model is the present one again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_of: Option<u32>,
    /// If training may diverge: how many rounds in a row, this one included, were refused for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect_rounds: Option<u32>,
}

/// Errors of predicted numbers on test samples.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ErrorFigures {
    /// Mean absolute error over devices, in the unit of the targets.
    #[serde(serialize_with = "figures::one")]
    pub mae: Summary,
    /// The same for each tier.
    #[serde(serialize_with = "figures::each")]
    pub mae_by_tier: Vec<Summary>,
    /// R2 over the test samples of all devices together; absent if all targets are equal.
    pub r2: Option<f64>,
    /// The same for each tier.
    pub r2_by_tier: Vec<Option<f64>>,
}

/// A key of the configuration with another value than before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigChange {
    /// As in `training.lr`.
    pub key: String,
    /// The earlier value, as TOML; empty if there was none.
    pub from: String,
    /// The present one.
    pub to: String,
}

/// The scalars of a device that has delivered.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeviceLine {
    /// Its name.
    pub device: String,
    /// 0 is the widest.
    pub tier: usize,
    /// Training samples.
    pub samples: u32,
    /// Training loss of the received model.
    pub loss_before: f64,
    /// Training loss of the trained model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_after: Option<f64>,
    /// Test loss of the received model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// Test accuracy of the received model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// Mean absolute error on test samples, in the unit of the targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_mae: Option<f64>,
    /// R2 on test samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_r2: Option<f64>,
    /// Test loss of the personal model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personal_loss: Option<f64>,
    /// Test accuracy of the personal model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personal_accuracy: Option<f64>,
    /// Loss of the received model on samples that the device does not train on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Validation loss of the received model beyond that of the device's own model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
    /// Share in the new model, over all participants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// Test samples of all devices together.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Pooled {
    /// Of all devices.
    pub samples: u64,
    /// Mean over samples.
    pub loss: f64,
    /// Share of samples that are predicted correctly; absent where numbers are predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
}

/// How many devices of a tier did what in a round.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Participation {
    /// All of them.
    pub asked: usize,
    /// Their update counts.
    pub delivered: usize,
    /// Their answer was refused.
    pub refused: usize,
    /// They did not answer in time.
    pub silent: usize,
    /// Delivered after the deadline of the tier.
    pub late: usize,
    /// Silent, and still connected when the round closed.
    pub stragglers: usize,
    /// Silent, and no longer connected.
    pub dropouts: usize,
}

/// Scores of personal models.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Personal {
    /// Test loss over devices.
    #[serde(serialize_with = "figures::one")]
    pub loss: Summary,
    /// The same for each tier.
    #[serde(serialize_with = "figures::each")]
    pub loss_by_tier: Vec<Summary>,
    /// Test accuracy over devices.
    #[serde(serialize_with = "figures::one")]
    pub accuracy: Summary,
    /// The same for each tier.
    #[serde(serialize_with = "figures::each")]
    pub accuracy_by_tier: Vec<Summary>,
}

/// Bytes of models, guides and updates, without framing and retransmissions.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Traffic {
    /// From devices.
    pub up: u64,
    /// To devices.
    pub down: u64,
}

/// A device whose answer was refused.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RefusedLine {
    /// Its name.
    pub device: String,
    /// 0 is the widest.
    pub tier: usize,
    /// Number of the error code.
    pub code: u16,
    /// Text of the error code.
    pub why: &'static str,
}

/// A device that did not answer in time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SilentLine {
    /// Its name.
    pub device: String,
    /// 0 is the widest.
    pub tier: usize,
}

/// How a region was combined.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RegionLine {
    /// The tiers that hold its parameters.
    pub tiers: Vec<usize>,
    /// Devices whose updates reach it.
    pub participants: usize,
    /// Factor in (0, 1] by which the strategy shortened the step, if it does so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rho: Option<f64>,
}

impl RoundReport {
    /// The report of a closed exchange; `outcome` is the result of combining it, `tiers` the number of tiers.
    pub fn new(closed: &ClosedExchange, purpose: Purpose, outcome: Option<&Outcome>, tiers: usize) -> Self {
        let devices = device_lines(closed, outcome);
        let loss = |line: &DeviceLine| Some(line.test_loss.unwrap_or(line.loss_before));
        let (loss, loss_by_tier) = summaries(&devices, tiers, Better::Low, loss);
        let (accuracy, accuracy_by_tier) =
            summaries(&devices, tiers, Better::High, |line| line.test_accuracy);
        let weighed = devices.iter().any(|line| line.weight.is_some());
        let weight_in = |tier: usize| {
            devices.iter().filter(|line| line.tier == tier).filter_map(|line| line.weight).sum()
        };
        let (gaps, gaps_by_tier) = gaps(&devices, tiers);
        Self {
            round: closed.id.round,
            purpose: match purpose {
                Purpose::Train => "train",
                Purpose::Evaluate => "evaluate",
            },
            lr: closed.lr,
            began: None,
            ended: closed.at,
            strategy: None,
            changes: vec![],
            best: None,
            stopped: None,
            seconds: (closed.closed - closed.opened).as_millis() as f64 / 1000.0,
            loss_split: split(&loss_by_tier),
            loss,
            loss_by_tier,
            accuracy_split: split(&accuracy_by_tier),
            accuracy,
            accuracy_by_tier,
            task: TaskKind::Classification.name(),
            errors: None,
            pooled: pooled(closed.delivered.iter().filter_map(|(.., scalars)| scalars.test)),
            untested: devices.iter().filter(|line| line.test_loss.is_none()).count(),
            participation: participation(closed, tiers),
            personal: personal(&devices, tiers),
            gaps,
            gaps_by_tier,
            groups: None,
            groups_by_tier: vec![],
            weights: weight_figures(&devices),
            weight_by_tier: if weighed { (0..tiers).map(weight_in).collect() } else { vec![] },
            conflicts: None,
            traffic: None,
            traffic_by_tier: vec![],
            devices,
            refused: closed.refused.iter().map(refused_line).collect(),
            guard: vec![],
            raised: outcome.map(|outcome| outcome.raised).filter(|&raised| raised > 0),
            silent: closed.silent.iter().map(silent_line).collect(),
            regions: outcome.map_or(vec![], |outcome| outcome.regions.iter().map(region_line).collect()),
            fairness: outcome.map_or_else(Vec::new, |outcome| outcome.fairness.clone()),
            fairness_sums: outcome.map_or_else(Vec::new, |outcome| outcome.signals.clone()),
            kept: outcome.and_then(|outcome| outcome.kept).map(Code::number),
            model_of: None,
            suspect_rounds: None,
        }
    }

    /// Adds the traffic of each tier.
    #[must_use]
    pub fn with_traffic(mut self, by_tier: Vec<Traffic>) -> Self {
        let sum = |sum: Traffic, tier: &Traffic| Traffic { up: sum.up + tier.up, down: sum.down + tier.down };
        self.traffic = Some(by_tier.iter().fold(Traffic::default(), sum));
        self.traffic_by_tier = by_tier;
        self
    }

    /// Sets what the model predicts. Where it predicts numbers, errors replace accuracies.
    #[must_use]
    pub fn with_task(mut self, closed: &ClosedExchange, task: TaskKind) -> Self {
        self.task = task.name();
        if !task.has_accuracy() {
            let tiers = self.loss_by_tier.len();
            self.accuracy = Summary::default();
            self.accuracy_by_tier = vec![Summary::default(); tiers];
            self.accuracy_split = TierSplit::default();
            self.pooled = self.pooled.map(|pooled| Pooled { accuracy: None, ..pooled });
            for line in &mut self.devices {
                (line.test_accuracy, line.personal_accuracy) = (None, None);
            }
            self.personal = personal(&self.devices, tiers);
            self.errors = Some(errors(closed, &self.devices, tiers));
        }
        self
    }

    /// Adds what the guard has limited. `refused`: devices that it left out, although they have delivered.
    #[must_use]
    pub fn with_guard(mut self, lines: Vec<GuardFinding>, refused: &[RefusedDevice]) -> Self {
        self.guard = lines;
        self.refused.extend(refused.iter().map(refused_line));
        self
    }

    /// Adds the updates that point away from the step.
    #[must_use]
    pub fn with_conflicts(mut self, conflicts: Conflicts) -> Self {
        self.conflicts = Some(conflicts);
        self
    }

    /// Adds group fairness, overall and by tier, if devices report wrong predictions ([`Signal::ZeroOne`]): other signals do
    /// not determine how often a prediction is positive.
    #[must_use]
    pub fn with_groups(mut self, closed: &ClosedExchange, signal: Signal) -> Self {
        let tiers = self.loss_by_tier.len();
        if signal == Signal::ZeroOne {
            self.groups = groups(closed, None);
            let by_tier = (0..tiers).map(|tier| groups(closed, Some(tier)));
            self.groups_by_tier = if self.groups.is_some() { by_tier.collect() } else { vec![] };
        }
        self
    }
}

#[cfg(test)]
mod tests;
