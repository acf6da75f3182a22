//! Forms the parts of a report from what devices have reported.

use common::{
    DeviceId, Tier,
    message::{Errors, Scalars, Score},
    metrics::{Better, ErrorSums, Gaps, GroupFairness, Summary, TierSplit, WeightFigures},
};
use strategies::combine::{Outcome, RegionNote};

use super::{DeviceLine, ErrorFigures, Participation, Personal, Pooled, RefusedLine, RegionLine, SilentLine};
use crate::{
    exchange::ClosedExchange,
    record::{DeviceInTier, RefusedDevice},
};

/// Weights are those of the participants: delivered devices that combining has not refused.
pub(super) fn device_lines(closed: &ClosedExchange, outcome: Option<&Outcome>) -> Vec<DeviceLine> {
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
            test_mae: scalars.errors.map(|errors| errors.absolute),
            test_r2: error_sums([scalars].into_iter()).r2(),
            personal_loss: scalars.personal.map(|score| score.loss),
            personal_accuracy: scalars.personal.map(|score| score.accuracy()),
            validation_loss: scalars.validation.map(|validation| validation.loss),
            gap: scalars.gap,
            weight: if refused(device) { None } else { weights.next() },
        });
    }
    lines
}

pub(super) fn split(tiers: &[Summary]) -> TierSplit {
    TierSplit::of(tiers.iter().map(|tier| (tier.count, tier.mean, tier.variance)))
}

pub(super) fn pooled(scores: impl Iterator<Item = Score> + Clone) -> Option<Pooled> {
    let samples: u64 = scores.clone().map(|score| u64::from(score.samples)).sum();
    let correct: u64 = scores.clone().map(|score| u64::from(score.correct)).sum();
    let loss: f64 = scores.map(|score| score.loss * f64::from(score.samples)).sum();
    (samples > 0).then(|| Pooled {
        samples,
        loss: loss / samples as f64,
        accuracy: Some(correct as f64 / samples as f64),
    })
}

/// The errors of these devices together.
fn error_sums<'a>(scalars: impl Iterator<Item = &'a Scalars>) -> ErrorSums {
    let mut sums = ErrorSums::default();
    for (score, errors) in scalars.filter_map(|scalars| scalars.test.zip(scalars.errors)) {
        let Errors { absolute, squared, mean, variance } = errors;
        sums.add(score.samples.into(), absolute, squared, (mean, variance));
    }
    sums
}

pub(super) fn errors(closed: &ClosedExchange, devices: &[DeviceLine], tiers: usize) -> ErrorFigures {
    let (mae, mae_by_tier) = summaries(devices, tiers, Better::Low, |line| line.test_mae);
    let r2 = |wanted: Option<usize>| {
        let own =
            closed.delivered.iter().filter(|(_, tier, _)| wanted.is_none_or(|index| index == tier.index()));
        error_sums(own.map(|(.., scalars)| scalars)).r2()
    };
    ErrorFigures {
        mae,
        mae_by_tier,
        r2: r2(None),
        r2_by_tier: (0..tiers).map(|tier| r2(Some(tier))).collect(),
    }
}

pub(super) fn participation(closed: &ClosedExchange, tiers: usize) -> Vec<Participation> {
    let of = |wanted: usize| {
        let own = |tier: &Tier| tier.index() == wanted;
        let delivered = closed.delivered.iter().filter(|(_, tier, _)| own(tier)).count();
        let refused = closed.refused.iter().filter(|refused| own(&refused.tier)).count();
        let count = |devices: &[DeviceInTier]| devices.iter().filter(|device| own(&device.tier)).count();
        let (silent, late, dropouts) = (count(&closed.silent), count(&closed.late), count(&closed.gone));
        let (asked, stragglers) = (delivered + refused + silent, silent.saturating_sub(dropouts));
        Participation { asked, delivered, refused, silent, late, stragglers, dropouts }
    };
    (0..tiers).map(of).collect()
}

pub(super) fn personal(devices: &[DeviceLine], tiers: usize) -> Option<Personal> {
    devices.iter().any(|line| line.personal_loss.is_some()).then(|| {
        let (loss, loss_by_tier) = summaries(devices, tiers, Better::Low, |line| line.personal_loss);
        let (accuracy, accuracy_by_tier) =
            summaries(devices, tiers, Better::High, |line| line.personal_accuracy);
        Personal { loss, loss_by_tier, accuracy, accuracy_by_tier }
    })
}

pub(super) fn gaps(devices: &[DeviceLine], tiers: usize) -> (Option<Gaps>, Vec<Gaps>) {
    let of = |wanted: Option<usize>| {
        let chosen = devices.iter().filter(|line| wanted.is_none_or(|tier| tier == line.tier));
        Gaps::of(&chosen.filter_map(|line| line.gap).collect::<Vec<_>>())
    };
    match of(None) {
        all if all.count > 0 => (Some(all), (0..tiers).map(|tier| of(Some(tier))).collect()),
        _ => (None, vec![]),
    }
}

pub(super) fn weight_figures(devices: &[DeviceLine]) -> Option<WeightFigures> {
    let weighed = || devices.iter().filter_map(|line| Some((line.weight?, f64::from(line.samples))));
    let all: f64 = weighed().map(|(_, samples)| samples).sum();
    let pairs: Vec<_> = weighed().map(|(weight, samples)| (weight, samples / all)).collect();
    WeightFigures::of(pairs.into_iter())
}

/// Fairness between groups over all devices (of a tier) that report as many groups as the first one.
pub(super) fn groups(closed: &ClosedExchange, wanted: Option<usize>) -> Option<GroupFairness> {
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

pub(super) fn refused_line(RefusedDevice { device, tier, code }: &RefusedDevice) -> RefusedLine {
    RefusedLine { device: device.to_string(), tier: tier.index(), code: code.number(), why: code.text() }
}

pub(super) fn silent_line(DeviceInTier { device, tier }: &DeviceInTier) -> SilentLine {
    SilentLine { device: device.to_string(), tier: tier.index() }
}

pub(super) fn region_line(note: &RegionNote) -> RegionLine {
    let tiers = note.tiers.iter().map(Tier::index).collect();
    RegionLine { tiers, participants: note.participants, rho: note.rho }
}

/// Over all devices, and tier by tier.
pub(super) fn summaries(
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
