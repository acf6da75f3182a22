//! What a round leaves behind: who took part, how it went for whom, and how fair that is.

use common::{
    Tier,
    metrics::{Better, Summary, TierSplit},
};
use serde::Serialize;

use crate::{
    combine::Outcome,
    round::{ClosedRound, Purpose},
};

/// One round in numbers. Losses and accuracies are those of the model that devices received.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RoundReport {
    pub round: u32,
    /// `train`, or `evaluate` for the scores of the final model.
    pub purpose: &'static str,
    pub lr: f32,
    pub seconds: f64,
    /// Test loss over devices that have test samples, training loss before training otherwise.
    pub loss: Summary,
    pub loss_by_tier: Vec<Summary>,
    pub loss_split: TierSplit,
    pub accuracy: Summary,
    pub accuracy_by_tier: Vec<Summary>,
    pub devices: Vec<DeviceLine>,
    pub refused: Vec<RefusedLine>,
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
    /// Share in the new model, over all participants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
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
    pub fn new(closed: &ClosedRound, purpose: Purpose, outcome: Option<&Outcome>, tiers: usize) -> Self {
        let weight = |index: usize| outcome.and_then(|outcome| outcome.weights.get(index).copied());
        let devices: Vec<_> = closed
            .delivered
            .iter()
            .enumerate()
            .map(|(index, (device, tier, scalars))| DeviceLine {
                device: device.to_string(),
                tier: tier.index(),
                samples: scalars.samples,
                loss_before: scalars.loss_before,
                loss_after: scalars.loss_after,
                test_loss: scalars.test.map(|score| score.loss),
                test_accuracy: scalars.test.map(|score| score.accuracy()),
                weight: weight(index),
            })
            .collect();
        let loss = |line: &DeviceLine| Some(line.test_loss.unwrap_or(line.loss_before));
        let accuracy = |line: &DeviceLine| line.test_accuracy;
        let (loss, loss_by_tier) = summaries(&devices, tiers, Better::Low, loss);
        let (accuracy, accuracy_by_tier) = summaries(&devices, tiers, Better::High, accuracy);
        let split = loss_by_tier.iter().map(|tier: &Summary| (tier.count, tier.mean, tier.variance));
        Self {
            round: closed.number,
            purpose: match purpose {
                Purpose::Train => "train",
                Purpose::Evaluate => "evaluate",
            },
            lr: closed.lr,
            seconds: (closed.closed - closed.opened).as_millis() as f64 / 1000.0,
            loss_split: TierSplit::of(split),
            loss,
            loss_by_tier,
            accuracy,
            accuracy_by_tier,
            devices,
            refused: closed.refused.iter().map(refused_line).collect(),
            silent: closed
                .silent
                .iter()
                .map(|(device, tier)| SilentLine { device: device.to_string(), tier: tier.index() })
                .collect(),
            regions: outcome.map_or(vec![], |outcome| outcome.regions.iter().map(region_line).collect()),
            kept: outcome.and_then(|outcome| outcome.kept).map(common::Code::number),
        }
    }
}

fn refused_line((device, tier, code): &(common::DeviceId, Tier, common::Code)) -> RefusedLine {
    RefusedLine { device: device.to_string(), tier: tier.index(), code: code.number(), why: code.text() }
}

fn region_line(note: &crate::combine::RegionNote) -> RegionLine {
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
