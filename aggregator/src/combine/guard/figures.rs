//! What only some strategies ask devices for, held against what the peers say and against what is already believed.
//!
//! | figure | can be believed | otherwise |
//! |---|---|---|
//! | mass, per sample | what the peers' bands allow | the middle of the peers |
//! | gap | its size up to `factor` times the larger of the device's loss and its peers' | that bound; the middle of the peers if positive |
//! | a trial | what the peers' bands allow, or `factor` times the device's loss | the middle of the peers |
//! | mean loss of a group | its size up to what the peers' bands allow | the middle of the peers; 0 if negative |
//! | samples of all groups | `samples` times the device's samples | as many as it has samples |
//!
//! A gap is a loss less another one, so it can not be larger than the loss. Noise for privacy may make sums
//! negative, and that alone is no lie.

use common::{Code, message::MAX_TRIALS};

use super::{
    Findings, GuardConfig, PEERS,
    band::{Band, bands, median},
};
use crate::combine::{Participant, cohort::Cohort};

pub(super) fn check(config: &GuardConfig, cohort: &mut Cohort<'_>, findings: &mut Findings) {
    if cohort.participants().iter().all(Participant::is_plain) {
        return;
    }
    masses(config, cohort, findings);
    gaps(config, cohort, findings);
    trials(config, cohort, findings);
    counts(config, cohort, findings);
    group_losses(config, cohort, findings);
}

/// One figure of every participant, where it has said one.
fn values(cohort: &Cohort<'_>, of: impl Fn(&Participant) -> Option<f64>) -> Vec<Option<f64>> {
    cohort.participants().iter().map(of).collect()
}

/// The band of every participant's tier.
fn own_bands(config: &GuardConfig, cohort: &Cohort<'_>, values: &[Option<f64>]) -> Vec<Option<Band>> {
    let bands = bands(cohort, values, config);
    let own = |participant: &Participant| bands.get(participant.tier.index()).copied().flatten();
    cohort.participants().iter().map(own).collect()
}

fn masses(config: &GuardConfig, cohort: &mut Cohort<'_>, findings: &mut Findings) {
    let per_sample = |participant: &Participant| Some(participant.mass()? / participant.samples());
    let said = values(cohort, per_sample);
    let bands = own_bands(config, cohort, &said);
    for (index, (said, band)) in said.into_iter().zip(bands).enumerate() {
        let (Some(said), Some(band)) = (said, band) else { continue };
        if said > band.limit {
            let samples = cohort.participants().get(index).map_or(0.0, Participant::samples);
            let (said, counted) = (said * samples, band.usual() * samples);
            findings.note(cohort, index, "mass", Code::ImplausibleLoss, (said, counted), PEERS);
            cohort.amend(index, |more| more.mass = Some(counted));
        }
    }
}

fn gaps(config: &GuardConfig, cohort: &mut Cohort<'_>, findings: &mut Findings) {
    let said = values(cohort, Participant::gap);
    let mut all: Vec<f64> = said.iter().copied().flatten().collect();
    if all.is_empty() {
        return;
    }
    let usual = median(&mut all);
    let losses = values(cohort, |participant| Some(participant.loss()));
    let bands = own_bands(config, cohort, &losses);
    for (index, (said, band)) in said.into_iter().zip(bands).enumerate() {
        let (Some(said), Some(Some(loss))) = (said, losses.get(index)) else { continue };
        let limit = config.factor * loss.max(band.map_or(0.0, |band| band.usual()));
        if said.abs() > limit {
            let counted = if said > 0.0 { usual.clamp(-limit, limit) } else { -limit };
            let why = "is larger than its loss can explain";
            findings.note(cohort, index, "gap", Code::ImplausibleLoss, (said, counted), why);
            cohort.amend(index, |more| more.gap = Some(counted));
        }
    }
}

fn trials(config: &GuardConfig, cohort: &mut Cohort<'_>, findings: &mut Findings) {
    for step in 0..MAX_TRIALS {
        let said = values(cohort, |participant| participant.trials().get(step).copied());
        if said.iter().all(Option::is_none) {
            return;
        }
        let bands = own_bands(config, cohort, &said);
        for (index, (said, band)) in said.into_iter().zip(bands).enumerate() {
            let (Some(said), Some(band)) = (said, band) else { continue };
            let loss = cohort.participants().get(index).map_or(0.0, Participant::loss);
            if said > band.limit && said > config.factor * loss {
                let counted = band.usual();
                findings.note(cohort, index, "trials", Code::ImplausibleLoss, (said, counted), PEERS);
                cohort.amend(index, |more| {
                    if let Some(trial) = more.trials.get_mut(step) {
                        *trial = counted;
                    }
                });
            }
        }
    }
}

fn counts(config: &GuardConfig, cohort: &mut Cohort<'_>, findings: &mut Findings) {
    for index in 0..cohort.participants().len() {
        let Some(participant) = cohort.participants().get(index) else { continue };
        let said: f64 = participant.group_counts().iter().copied().map(f64::from).sum();
        let samples = participant.samples();
        if said > config.samples * samples {
            let why = "has more samples in groups than in all";
            findings.note(cohort, index, "group_counts", Code::ImplausibleSamples, (said, samples), why);
            let share = samples / said;
            cohort.amend(index, |more| {
                more.group_counts.iter_mut().for_each(|count| *count = (f64::from(*count) * share) as u32);
                more.group_losses.iter_mut().for_each(|sum| *sum *= share);
            });
        }
    }
}

fn group_losses(config: &GuardConfig, cohort: &mut Cohort<'_>, findings: &mut Findings) {
    let groups = cohort.participants().iter().map(|participant| participant.group_losses().len()).max();
    for group in 0..groups.unwrap_or(0) {
        let mean = |participant: &Participant| {
            let (sum, count) =
                (participant.group_losses().get(group)?, participant.group_counts().get(group)?);
            (*count > 0).then(|| sum / f64::from(*count))
        };
        let said = values(cohort, mean);
        let positive: Vec<_> = said.iter().map(|said| said.filter(|&said| said > 0.0)).collect();
        let bands = own_bands(config, cohort, &positive);
        for (index, (said, band)) in said.into_iter().zip(bands).enumerate() {
            let (Some(said), Some(band)) = (said, band) else { continue };
            if said.abs() > band.limit {
                let counted = if said > 0.0 { band.usual() } else { 0.0 };
                findings.note(cohort, index, "group_losses", Code::ImplausibleLoss, (said, counted), PEERS);
                cohort.amend(index, |more| {
                    let count = more.group_counts.get(group).copied().map_or(0.0, f64::from);
                    if let Some(sum) = more.group_losses.get_mut(group) {
                        *sum = counted * count;
                    }
                });
            }
        }
    }
}
