//! What an inspection has found so far, line by line.

use common::Code;
use serde::Serialize;

use super::{super::cohort::Cohort, Verdict};

/// One line of a report: what a device said, what counted instead, and why.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GuardLine {
    pub device: String,
    pub tier: usize,
    /// `loss`, `loss_after`, `norm`, `samples`, `tier`, `direction`, `mass`, `gap`, `trials`, `group_losses` or
    /// `group_counts`; of scores `test_loss`, `test_samples`, `personal_loss` or `personal_samples`.
    pub what: &'static str,
    /// `clipped`, `refused`, `counted less` or `noted`.
    pub action: &'static str,
    pub why: &'static str,
    pub said: f64,
    pub counted: f64,
}

/// What was found so far.
pub(super) struct Findings {
    pub refuse: bool,
    pub refused: Vec<(usize, Code)>,
    pub verdict: Verdict,
}

impl Findings {
    pub fn note(
        &mut self,
        cohort: &Cohort<'_>,
        index: usize,
        what: &'static str,
        code: Code,
        numbers: (f64, f64),
        why: &'static str,
    ) {
        let action = if self.refuse { "refused" } else { "clipped" };
        self.line(cohort, index, what, action, numbers, why);
        if self.refuse {
            self.refused.push((index, code));
        }
    }

    pub fn line(
        &mut self,
        cohort: &Cohort<'_>,
        index: usize,
        what: &'static str,
        action: &'static str,
        (said, counted): (f64, f64),
        why: &'static str,
    ) {
        if let Some(participant) = cohort.participants().get(index) {
            let (device, tier) = (participant.device.to_string(), participant.tier.index());
            self.verdict.lines.push(GuardLine { device, tier, what, action, why, said, counted });
        }
    }
}
