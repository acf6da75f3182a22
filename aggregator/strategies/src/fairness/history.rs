//! The reports of a run, read back: the knobs follow from them with the same bits.

use common::Tier;
use serde::Deserialize;

use super::{
    Fairness,
    line::{Capped, FairnessLine},
    settings::Measure,
    sums::{RoundSignal, SignalKind, SignalSums},
};
use crate::{error::StrategyError, strategy::FairnessScope};

/// What a report says of a target.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
pub struct RecordedReport {
    /// From 1.
    pub round: u32,
    /// One per knob; empty without a target.
    #[serde(default)]
    pub fairness: Vec<FairnessLine>,
    /// By tier; empty if nothing was measured.
    #[serde(default)]
    pub fairness_sums: Vec<SignalSums>,
}

/// What is driven by what; another one begins anew.
type Kind<'a> = (&'a str, &'a str, FairnessScope, Measure, SignalKind);

impl RecordedReport {
    /// The target that the gateway had.
    pub fn target(&self) -> Option<f64> {
        self.fairness.iter().find(|line| line.tier.is_none()).map(|line| line.target)
    }

    /// The sums as the controller takes them. A round that kept the model was not measured.
    fn signal(&self, tiers: usize) -> RoundSignal {
        let mut sums = self.fairness_sums.clone();
        sums.resize(tiers, SignalSums::default());
        RoundSignal { tiers: sums, unmeasured: vec![0; tiers] }
    }

    /// What it says of one knob.
    fn line(&self, parameter: &str, tier: Option<usize>) -> Option<&FairnessLine> {
        self.fairness.iter().find(|line| line.parameter == parameter && line.tier == tier)
    }

    fn kind(&self) -> Option<Kind<'_>> {
        self.fairness.first().map(kind)
    }
}

fn kind(line: &FairnessLine) -> Kind<'_> {
    (&line.strategy, &line.parameter, line.scope, line.measure, line.signal)
}

/// The reports since the strategy or the measurement changed last.
pub fn last_stretch(mut reports: Vec<RecordedReport>) -> Vec<RecordedReport> {
    let last = reports.iter().rev().find_map(RecordedReport::kind);
    let differs = |report: &RecordedReport| report.kind().is_some_and(|kind| Some(kind) != last);
    let first = reports.iter().rposition(differs).map_or(0, |other| other + 1);
    reports.split_off(first)
}

impl Fairness {
    /// Takes in a recorded round with the target that it had; with `own_target`, with the present one.
    pub fn follow(
        &mut self,
        report: &RecordedReport,
        own_target: bool,
    ) -> Result<Vec<FairnessLine>, StrategyError> {
        let driven = self.settings.target > 0.0 && !own_target;
        if let Some(target) = report.target().filter(|_| driven) {
            self.retarget(target)?;
        }
        let tiers = self.tiers.max(report.fairness_sums.len());
        for drive in &mut self.drives {
            let recorded = report.line(drive.knob.parameter, drive.tier.map(Tier::index));
            drive.set_capped(recorded.map_or_else(Capped::default, |recorded| recorded.capped.clone()));
        }
        let mut lines = self.observe(&report.signal(tiers));
        for line in &mut lines {
            let recorded = report.line(&line.parameter, line.tier);
            line.unmeasured = recorded.map_or(0, |recorded| recorded.unmeasured);
        }
        Ok(lines)
    }

    /// Computes the state after the last of these reports. If that one has no target, or measured something else, the state is
    /// that of a first round.
    pub fn recall(&mut self, reports: Vec<RecordedReport>) -> Result<(), StrategyError> {
        let (target, own) = (self.settings.target, self.lines());
        let reports = last_stretch(reports);
        let last = reports.last().and_then(RecordedReport::kind);
        if last.is_none() || last != own.first().map(kind) {
            return Ok(());
        }
        for report in &reports {
            self.follow(report, false)?;
        }
        if target > 0.0 { self.retarget(target) } else { Ok(()) }
    }
}
