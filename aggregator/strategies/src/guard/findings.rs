//! The findings of the guard: what it has limited, one finding per device and figure.

use serde::Serialize;

use super::{GuardConfig, share::CappedShare};
use crate::cohort::Cohort;

/// One line of a report: the value that a device reported, the value that counted, and why.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GuardFinding {
    /// Its name.
    pub device: String,
    /// Its tier.
    pub tier: usize,
    /// `loss`, `loss_after`, `validation`, `validation_error`, `share`, `length` or `probe`. Some strategies also ask for `gap`,
    /// `mass`, `trials`, `group_losses` or `group_counts`. `shown_loss` and others of that kind concern only the report.
    pub what: &'static str,
    /// The value that the device reported.
    pub said: f64,
    /// The value that counted.
    pub counted: f64,
    /// The rule that limited it.
    pub why: String,
}

/// The lines of an inspection.
pub(super) struct Findings<'a> {
    pub config: &'a GuardConfig,
    pub found: Vec<GuardFinding>,
}

impl Findings<'_> {
    /// A figure that is treated as a loss.
    pub fn loss(&mut self, cohort: &Cohort, index: usize, what: &'static str, said: f64, counted: f64) {
        self.add(cohort, index, what, (said, counted), &format!("more than {} medians", self.config.loss));
    }

    pub fn length(&mut self, cohort: &Cohort, index: usize, said: f64, counted: f64) {
        let why = format!("longer than {} median updates", self.config.length);
        self.add(cohort, index, "length", (said, counted), &why);
    }

    pub fn add(
        &mut self,
        cohort: &Cohort,
        index: usize,
        what: &'static str,
        (said, counted): (f64, f64),
        why: &str,
    ) {
        let participant = &cohort.participants()[index];
        let (device, tier) = (participant.device.to_string(), participant.tier.index());
        self.found.push(GuardFinding { device, tier, what, said, counted, why: why.to_owned() });
    }
}

impl GuardFinding {
    /// A share that was cut.
    pub fn share(capped: &CappedShare, config: &GuardConfig) -> Self {
        let why = match capped.no_bonus {
            true => "its update points away from the others: no bonus".to_owned(),
            false if capped.by_samples => {
                format!("more than {} average devices by its sample count", config.counts)
            }
            false if capped.most < config.share * (1.0 - 1e-6) => {
                format!(
                    "more than {:.1} average devices: the loudest fifth counts {} each",
                    capped.most, config.fifth
                )
            }
            false => format!("more than {} average devices", config.share),
        };
        let CappedShare { device, tier, wanted, counted, .. } = capped;
        let (device, tier) = (device.to_string(), tier.index());
        Self { device, tier, what: "share", said: *wanted, counted: *counted, why }
    }
}
