//! What the guard has held, line by line.

use serde::Serialize;

use super::{GuardConfig, share::Held};
use crate::cohort::Cohort;

/// One line of a report: what a device said, what counted instead, and why.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GuardLine {
    pub device: String,
    pub tier: usize,
    /// `loss`, `loss_after`, `share`, `length` or `probe`; `gap`, `mass`, `trials`, `group_losses` or `group_counts`, which some
    /// strategies ask for; and, for the report alone, `shown_loss` and others of that kind.
    pub what: &'static str,
    pub said: f64,
    pub counted: f64,
    pub why: String,
}

/// The lines of an inspection.
pub(super) struct Findings<'a> {
    pub config: &'a GuardConfig,
    pub lines: Vec<GuardLine>,
}

impl Findings<'_> {
    /// A figure of the size of a loss.
    pub fn loss(&mut self, cohort: &Cohort, index: usize, what: &'static str, said: f64, counted: f64) {
        self.line(cohort, index, what, (said, counted), &format!("more than {} medians", self.config.loss));
    }

    pub fn length(&mut self, cohort: &Cohort, index: usize, said: f64, counted: f64) {
        let why = format!("longer than {} median updates", self.config.length);
        self.line(cohort, index, "length", (said, counted), &why);
    }

    pub fn line(
        &mut self,
        cohort: &Cohort,
        index: usize,
        what: &'static str,
        (said, counted): (f64, f64),
        why: &str,
    ) {
        if let Some(participant) = cohort.participants().get(index) {
            let (device, tier) = (participant.device.to_string(), participant.tier.index());
            self.lines.push(GuardLine { device, tier, what, said, counted, why: why.to_owned() });
        }
    }
}

impl GuardLine {
    /// A share that was cut.
    pub fn share(held: &Held, config: &GuardConfig) -> Self {
        let why = match held.no_bonus {
            true => "its update points away from the others: no bonus".to_owned(),
            false => format!("more than {} average devices", config.share),
        };
        let Held { device, tier, wanted, counted, .. } = held;
        let (device, tier) = (device.to_string(), tier.index());
        Self { device, tier, what: "share", said: *wanted, counted: *counted, why }
    }
}
