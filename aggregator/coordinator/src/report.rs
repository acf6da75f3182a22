//! What a round leaves behind: who took part, how it went for whom, and how fair that is.

use common::{
    Code, DeviceId, Tier,
    brief::Signal,
    message::Score,
    metrics::{Better, Gaps, GroupFairness, Summary, TierSplit, WeightFigures},
};
use serde::Serialize;

use crate::exchange::{ClosedExchange, Purpose};
use strategies::{
    combine::{Conflicts, Outcome, RegionNote},
    guard::GuardLine,
};

mod figures;
pub mod history;

/// One round in numbers. Losses and accuracies are those of the model that devices received, as devices said them; `guard` says what
/// counted for the model instead.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RoundReport {
    pub round: u32,
    /// `train`, or `evaluate` for the scores of the final model.
    pub purpose: &'static str,
    pub lr: f32,
    pub seconds: f64,
    /// Test loss over devices that have test samples, training loss before training otherwise. Of no device there is none.
    #[serde(serialize_with = "figures::one")]
    pub loss: Summary,
    #[serde(serialize_with = "figures::each")]
    pub loss_by_tier: Vec<Summary>,
    pub loss_split: TierSplit,
    #[serde(serialize_with = "figures::one")]
    pub accuracy: Summary,
    #[serde(serialize_with = "figures::each")]
    pub accuracy_by_tier: Vec<Summary>,
    pub accuracy_split: TierSplit,
    /// All test samples together, each under its device's own sub-model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooled: Option<Pooled>,
    /// Devices without test samples, which the figures of accuracy leave out.
    pub untested: usize,
    pub participation: Vec<Participation>,
    /// Models that stay on devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personal: Option<Personal>,
    /// Where devices know what they reach alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Gaps>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps_by_tier: Vec<Gaps>,
    /// Where devices report wrong predictions by group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupFairness>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups_by_tier: Vec<Option<GroupFairness>>,
    /// How evenly devices count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightFigures>,
    /// Share of all weight, by tier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weight_by_tier: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<Conflicts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traffic_by_tier: Vec<Traffic>,
    pub devices: Vec<DeviceLine>,
    pub refused: Vec<RefusedLine>,
    /// What the guard has held, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guard: Vec<GuardLine>,
    /// Devices that count more than the strategy wanted, because the guard raised them to its floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raised: Option<usize>,
    /// Asked, but not heard in time.
    pub silent: Vec<SilentLine>,
    pub regions: Vec<RegionLine>,
    /// Code of the reason why the model stayed as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u16>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeviceLine {
    pub device: String,
    pub tier: usize,
    pub samples: u32,
    pub loss_before: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_after: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personal_loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personal_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
    /// Share in the new model, over all participants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// Test samples of all devices together.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Pooled {
    pub samples: u64,
    pub loss: f64,
    pub accuracy: f64,
}

/// What became of the devices of a tier that were asked.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Participation {
    pub asked: usize,
    pub delivered: usize,
    pub refused: usize,
    pub silent: usize,
    /// Of the delivered: after the deadline.
    pub late: usize,
    /// Of the silent: still connected when the round closed.
    pub stragglers: usize,
    /// Of the silent: no longer connected.
    pub dropouts: usize,
}

/// Scores of personal models.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Personal {
    #[serde(serialize_with = "figures::one")]
    pub loss: Summary,
    #[serde(serialize_with = "figures::each")]
    pub loss_by_tier: Vec<Summary>,
    #[serde(serialize_with = "figures::one")]
    pub accuracy: Summary,
    #[serde(serialize_with = "figures::each")]
    pub accuracy_by_tier: Vec<Summary>,
}

/// Bytes of models, guides and updates, without frames and repeats.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Traffic {
    pub up: u64,
    pub down: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RefusedLine {
    pub device: String,
    pub tier: usize,
    pub code: u16,
    pub why: &'static str,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SilentLine {
    pub device: String,
    pub tier: usize,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RegionLine {
    pub tiers: Vec<usize>,
    pub participants: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rho: Option<f64>,
}

impl RoundReport {
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
            round: closed.number,
            purpose: match purpose {
                Purpose::Train => "train",
                Purpose::Evaluate => "evaluate",
            },
            lr: closed.lr,
            seconds: (closed.closed - closed.opened).as_millis() as f64 / 1000.0,
            loss_split: split(&loss_by_tier),
            loss,
            loss_by_tier,
            accuracy_split: split(&accuracy_by_tier),
            accuracy,
            accuracy_by_tier,
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
            silent: closed
                .silent
                .iter()
                .map(|(device, tier)| SilentLine { device: device.to_string(), tier: tier.index() })
                .collect(),
            regions: outcome.map_or(vec![], |outcome| outcome.regions.iter().map(region_line).collect()),
            kept: outcome.and_then(|outcome| outcome.kept).map(Code::number),
        }
    }

    /// Adds what was sent to and from each tier.
    #[must_use]
    pub fn with_traffic(mut self, by_tier: Vec<Traffic>) -> Self {
        let sum = |sum: Traffic, tier: &Traffic| Traffic { up: sum.up + tier.up, down: sum.down + tier.down };
        self.traffic = Some(by_tier.iter().fold(Traffic::default(), sum));
        self.traffic_by_tier = by_tier;
        self
    }

    /// Adds what the guard has held. A device that it left out has delivered all the same.
    #[must_use]
    pub fn with_guard(mut self, lines: Vec<GuardLine>, refused: &[(DeviceId, Tier, Code)]) -> Self {
        self.guard = lines;
        self.refused.extend(refused.iter().map(refused_line));
        self
    }

    #[must_use]
    pub fn with_conflicts(mut self, conflicts: Conflicts) -> Self {
        self.conflicts = Some(conflicts);
        self
    }

    /// Adds group fairness, overall and by tier, if devices were asked for this signal: only wrong
    /// predictions say how often a prediction is positive.
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

/// Weights are those of the participants: delivered devices that combining has not refused.
fn device_lines(closed: &ClosedExchange, outcome: Option<&Outcome>) -> Vec<DeviceLine> {
    let mut weights = outcome.map_or(&[][..], |outcome| &outcome.weights).iter().copied();
    let refused = |device: &DeviceId| {
        outcome.is_some_and(|outcome| outcome.refused.iter().any(|refused| refused.device == *device))
    };
    let mut lines = Vec::with_capacity(closed.delivered.len());
    for (device, tier, scalars) in &closed.delivered {
        lines.push(DeviceLine {
            device: device.to_string(),
            tier: tier.index(),
            samples: scalars.samples,
            loss_before: scalars.loss_before,
            loss_after: scalars.loss_after,
            test_loss: scalars.test.map(|score| score.loss),
            test_accuracy: scalars.test.map(|score| score.accuracy()),
            personal_loss: scalars.personal.map(|score| score.loss),
            personal_accuracy: scalars.personal.map(|score| score.accuracy()),
            gap: scalars.gap,
            weight: if refused(device) { None } else { weights.next() },
        });
    }
    lines
}

fn split(tiers: &[Summary]) -> TierSplit {
    TierSplit::of(tiers.iter().map(|tier| (tier.count, tier.mean, tier.variance)))
}

fn pooled(scores: impl Iterator<Item = Score> + Clone) -> Option<Pooled> {
    let samples: u64 = scores.clone().map(|score| u64::from(score.samples)).sum();
    let correct: u64 = scores.clone().map(|score| u64::from(score.correct)).sum();
    let loss: f64 = scores.map(|score| score.loss * f64::from(score.samples)).sum();
    (samples > 0).then(|| Pooled {
        samples,
        loss: loss / samples as f64,
        accuracy: correct as f64 / samples as f64,
    })
}

fn participation(closed: &ClosedExchange, tiers: usize) -> Vec<Participation> {
    let of = |wanted: usize| {
        let own = |tier: &Tier| tier.index() == wanted;
        let delivered = closed.delivered.iter().filter(|(_, tier, _)| own(tier)).count();
        let refused = closed.refused.iter().filter(|(_, tier, _)| own(tier)).count();
        let silent = closed.silent.iter().filter(|(_, tier)| own(tier)).count();
        let late = closed.late.iter().filter(|(_, tier)| own(tier)).count();
        let dropouts = closed.gone.iter().filter(|(_, tier)| own(tier)).count();
        let (asked, stragglers) = (delivered + refused + silent, silent.saturating_sub(dropouts));
        Participation { asked, delivered, refused, silent, late, stragglers, dropouts }
    };
    (0..tiers).map(of).collect()
}

fn personal(devices: &[DeviceLine], tiers: usize) -> Option<Personal> {
    devices.iter().any(|line| line.personal_loss.is_some()).then(|| {
        let (loss, loss_by_tier) = summaries(devices, tiers, Better::Low, |line| line.personal_loss);
        let (accuracy, accuracy_by_tier) =
            summaries(devices, tiers, Better::High, |line| line.personal_accuracy);
        Personal { loss, loss_by_tier, accuracy, accuracy_by_tier }
    })
}

fn gaps(devices: &[DeviceLine], tiers: usize) -> (Option<Gaps>, Vec<Gaps>) {
    let of = |wanted: Option<usize>| {
        let chosen = devices.iter().filter(|line| wanted.is_none_or(|tier| tier == line.tier));
        Gaps::of(&chosen.filter_map(|line| line.gap).collect::<Vec<_>>())
    };
    match of(None) {
        all if all.count > 0 => (Some(all), (0..tiers).map(|tier| of(Some(tier))).collect()),
        _ => (None, vec![]),
    }
}

fn weight_figures(devices: &[DeviceLine]) -> Option<WeightFigures> {
    let weighed = || devices.iter().filter_map(|line| Some((line.weight?, f64::from(line.samples))));
    let all: f64 = weighed().map(|(_, samples)| samples).sum();
    let pairs: Vec<_> = weighed().map(|(weight, samples)| (weight, samples / all)).collect();
    WeightFigures::of(pairs.into_iter())
}

/// Wrong predictions of all devices (of a tier) that report as many groups as the first does.
fn groups(closed: &ClosedExchange, wanted: Option<usize>) -> Option<GroupFairness> {
    let own = closed.delivered.iter().filter(|(_, tier, _)| wanted.is_none_or(|index| index == tier.index()));
    let (mut errors, mut counts): (Vec<f64>, Vec<f64>) = Default::default();
    for (.., scalars) in own {
        let (sums, samples) = (&scalars.group_losses, &scalars.group_counts);
        if counts.is_empty() {
            (errors, counts) = (vec![0.0; sums.len()], vec![0.0; samples.len()]);
        }
        if sums.len() == errors.len() && samples.len() == counts.len() {
            errors.iter_mut().zip(sums).for_each(|(sum, value)| *sum += value);
            counts.iter_mut().zip(samples).for_each(|(sum, &value)| *sum += f64::from(value));
        }
    }
    GroupFairness::of_errors(&errors, &counts, &mut vec![0.0; counts.len()])
}

fn refused_line((device, tier, code): &(DeviceId, Tier, Code)) -> RefusedLine {
    RefusedLine { device: device.to_string(), tier: tier.index(), code: code.number(), why: code.text() }
}

fn region_line(note: &RegionNote) -> RegionLine {
    let tiers = note.tiers.iter().map(Tier::index).collect();
    RegionLine { tiers, participants: note.participants, rho: note.rho }
}

/// Over all devices, and tier by tier.
fn summaries(
    devices: &[DeviceLine],
    tiers: usize,
    better: Better,
    value: impl Fn(&DeviceLine) -> Option<f64>,
) -> (Summary, Vec<Summary>) {
    let of = |wanted: Option<usize>| {
        let chosen = devices.iter().filter(|line| wanted.is_none_or(|tier| tier == line.tier));
        Summary::of(&mut chosen.filter_map(&value).collect::<Vec<_>>(), better)
    };
    (of(None), (0..tiers).map(|tier| of(Some(tier))).collect())
}

#[cfg(test)]
mod tests;
