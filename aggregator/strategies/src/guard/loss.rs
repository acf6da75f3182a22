//! Rule 1: a loss counts up to `loss` medians, and so does every figure that strategies treat as a loss.
//!
//! | figure | counts up to |
//! |---|---|
//! | loss before training, loss after it, loss at a step of a line search | `loss` medians of the same figure |
//! | validation loss, and the squared error of it | `loss` medians of the same figure |
//! | gap (a loss less another one), either way | `loss` medians of the losses |
//! | mass per sample | `loss` medians of the same |
//! | mean loss of a group, either way (noise can make it negative) | `loss` medians of the group, or of all losses |
//! | samples in groups | the device's sample count, cut as rule 2 cuts it |
//!
//! Medians are lower medians over all devices of the round, never per tier: a tier of liars cannot set its own limit. A median
//! of 0 gives no bound; rule 2 still applies.

use common::message::{MAX_TRIALS, Validation};

use super::{Findings, GuardConfig};
use crate::cohort::{Bounds, Cohort, Participant};

pub(super) fn limit(config: &GuardConfig, bounds: &Bounds, cohort: &mut Cohort, findings: &mut Findings<'_>) {
    let usual = losses(config, cohort, findings);
    validations(config, cohort, findings);
    if !cohort.participants().iter().any(Participant::has_extra) {
        return;
    }
    if let Some(usual) = usual {
        gaps(config.loss * usual, cohort, findings);
    }
    masses(config, cohort, findings);
    trials(config, cohort, findings);
    group_counts(bounds, cohort, findings);
    group_losses(config, usual, cohort, findings);
}

/// Element `(n - 1) / 2` of the sorted values; `None` if it is not above 0.
pub(super) fn lower_median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().filter(|&median| median > 0.0)
}

/// One figure of every participant that reports it, with the participant's index.
fn said(cohort: &Cohort, of: impl Fn(&Participant) -> Option<f64>) -> Vec<(usize, f64)> {
    let figure = |(index, participant)| Some((index, of(participant)?));
    cohort.participants().iter().enumerate().filter_map(figure).collect()
}

/// The figures above the limit of `times` medians, with that limit.
fn above(said: Vec<(usize, f64)>, times: f64) -> Vec<(usize, f64, f64)> {
    let Some(median) = lower_median(said.iter().map(|&(_, value)| value)) else { return vec![] };
    let limit = times * median;
    said.into_iter().filter(|&(_, said)| said > limit).map(|(index, said)| (index, said, limit)).collect()
}

/// Bounds the losses. Returns the median loss before training.
fn losses(config: &GuardConfig, cohort: &mut Cohort, findings: &mut Findings<'_>) -> Option<f64> {
    let before = said(cohort, |participant| Some(participant.loss()));
    let usual = lower_median(before.iter().map(|&(_, loss)| loss));
    for (index, said, limit) in above(before, config.loss) {
        findings.loss(cohort, index, "loss", said, limit);
        cohort.set_loss(index, limit);
    }
    for (index, said, limit) in above(said(cohort, Participant::reported_loss_after), config.loss) {
        findings.loss(cohort, index, "loss_after", said, limit);
        cohort.set_loss_after(index, limit);
    }
    usual
}

/// Both figures: a loss that is too high would look unfair, an error that is too high would look fair.
fn validations(config: &GuardConfig, cohort: &mut Cohort, findings: &mut Findings<'_>) {
    let of = |participant: &Participant, part: fn(Validation) -> f64| participant.validation().map(part);
    let losses = said(cohort, |participant| of(participant, |validation| validation.loss));
    for (index, said, limit) in above(losses, config.loss) {
        findings.loss(cohort, index, "validation", said, limit);
        change(cohort, index, |validation| validation.loss = limit);
    }
    let errors = said(cohort, |participant| of(participant, |validation| validation.error));
    for (index, said, limit) in above(errors, config.loss) {
        findings.loss(cohort, index, "validation_error", said, limit);
        change(cohort, index, |validation| validation.error = limit);
    }
}

fn change(cohort: &mut Cohort, index: usize, change: impl FnOnce(&mut Validation)) {
    if let Some(mut validation) = cohort.participants()[index].validation() {
        change(&mut validation);
        cohort.set_validation(index, validation);
    }
}

fn gaps(limit: f64, cohort: &mut Cohort, findings: &mut Findings<'_>) {
    for (index, said) in said(cohort, Participant::gap) {
        if said.abs() > limit {
            let counted = limit.copysign(said);
            findings.loss(cohort, index, "gap", said, counted);
            cohort.amend(index, |extra| extra.gap = Some(counted));
        }
    }
}

fn masses(config: &GuardConfig, cohort: &mut Cohort, findings: &mut Findings<'_>) {
    let per_sample = said(cohort, |participant| Some(participant.mass()? / participant.samples()));
    for (index, said, limit) in above(per_sample, config.loss) {
        let samples = cohort.participants()[index].samples();
        findings.loss(cohort, index, "mass", said * samples, limit * samples);
        cohort.amend(index, |extra| extra.mass = Some(limit * samples));
    }
}

fn trials(config: &GuardConfig, cohort: &mut Cohort, findings: &mut Findings<'_>) {
    for step in 0..MAX_TRIALS {
        let tried = said(cohort, |participant| participant.trials().get(step).copied());
        if tried.is_empty() {
            return;
        }
        for (index, said, limit) in above(tried, config.loss) {
            findings.loss(cohort, index, "trials", said, limit);
            cohort.amend(index, |extra| extra.trials[step] = limit);
        }
    }
}

fn group_counts(bounds: &Bounds, cohort: &mut Cohort, findings: &mut Findings<'_>) {
    let devices: Vec<_> = cohort.participants().iter().map(|participant| &participant.device).collect();
    let samples: Vec<f64> = cohort.participants().iter().map(Participant::samples).collect();
    let allowed = bounds.counts(&devices, &samples);
    for (index, allowed) in allowed.into_iter().enumerate() {
        let participant = &cohort.participants()[index];
        let said: f64 = participant.group_counts().iter().copied().map(f64::from).sum();
        if said > allowed {
            let why = "more samples in groups than the device counts with";
            findings.add(cohort, index, "group_counts", (said, allowed), why);
            let share = allowed / said;
            cohort.amend(index, |extra| {
                extra.group_counts.iter_mut().for_each(|count| *count = (f64::from(*count) * share) as u32);
                extra.group_losses.iter_mut().for_each(|sum| *sum *= share);
            });
        }
    }
}

fn group_losses(config: &GuardConfig, usual: Option<f64>, cohort: &mut Cohort, findings: &mut Findings<'_>) {
    let groups = cohort.participants().iter().map(|participant| participant.group_losses().len()).max();
    let Some(groups) = groups else { return };
    for group in 0..groups {
        let mean = |participant: &Participant| {
            let (sum, count) =
                (participant.group_losses().get(group)?, participant.group_counts().get(group)?);
            (*count > 0).then(|| sum / f64::from(*count))
        };
        let said = said(cohort, mean);
        let medians = [lower_median(said.iter().map(|&(_, mean)| mean)), usual];
        let Some(median) = medians.into_iter().flatten().reduce(f64::max) else { continue };
        let limit = config.loss * median;
        for (index, said) in said.into_iter().filter(|(_, said)| said.abs() > limit) {
            let counted = limit.copysign(said);
            findings.loss(cohort, index, "group_losses", said, counted);
            cohort.amend(index, |extra| {
                extra.group_losses[group] = counted * f64::from(extra.group_counts[group]);
            });
        }
    }
}
