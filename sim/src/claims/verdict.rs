//! Verdicts: what the runs decide about a check, and the checks about their claim.
//!
//! ```text
//! reached                  the 95 % interval lies on the claimed side, corrected for the number of checks of the claim (Holm),
//!                          and all compared models are clearly better than chance and have not diverged
//! reached by our variant   the same, for parameters or settings that the paper does not print
//! contradicted             the corrected interval lies on the other side
//! undecided                everything else that was run; a single seed decides nothing
//! ```

use serde::Serialize;
use strategies::Registry;

use super::{CheckOutcome, Finding};
use crate::{
    results::{ExperimentResults, Form},
    statistics::{LEVEL, holm},
};

/// What runs decide.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    Reached,
    /// Reached in a form that the paper does not print.
    ByVariant,
    /// Some checks of a claim are reached, but not all.
    InPart,
    Contradicted,
    Undecided,
    NotRun,
    /// It holds whatever the data are, and is not counted.
    ByConstruction,
}

impl ClaimVerdict {
    pub fn word(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::ByVariant => "reached by our variant",
            Self::InPart => "in part",
            Self::Contradicted => "contradicted",
            Self::Undecided => "undecided",
            Self::NotRun => "not run",
            Self::ByConstruction => "by construction",
        }
    }

    /// Whether runs have something to say about it.
    pub fn counts(self) -> bool {
        !matches!(self, Self::NotRun | Self::ByConstruction)
    }

    pub fn is_reached(self) -> bool {
        matches!(self, Self::Reached | Self::ByVariant)
    }

    /// Of a claim, from the verdicts of its checks.
    pub fn of_claim(rows: &[CheckOutcome]) -> Self {
        let verdicts = || rows.iter().map(|row| row.finding.verdict);
        let counted = || verdicts().filter(|verdict| verdict.counts());
        let has = |wanted| counted().any(|verdict| verdict == wanted);
        match (counted().count(), counted().filter(|verdict| verdict.is_reached()).count()) {
            (0, _) if verdicts().any(|verdict| verdict == Self::ByConstruction) => Self::ByConstruction,
            (0, _) => Self::NotRun,
            (all, reached) if reached == all && has(Self::ByVariant) => Self::ByVariant,
            (all, reached) if reached == all => Self::Reached,
            (_, reached) if reached > 0 => Self::InPart,
            _ if has(Self::Contradicted) => Self::Contradicted,
            _ => Self::Undecided,
        }
    }
}

/// Sets the verdicts of checks that belong together.
pub fn settle(rows: &mut [CheckOutcome]) {
    let tests = |finding: &Finding| finding.odds.filter(|_| finding.unfit.is_none());
    let tested: Vec<usize> = (0..rows.len())
        .filter(|&at| !rows[at].by_construction && tests(&rows[at].finding).is_some())
        .collect();
    let plain: Vec<f64> =
        tested.iter().filter_map(|&at| tests(&rows[at].finding)).map(|odds| odds.least()).collect();
    for (&at, p) in tested.iter().zip(holm(&plain)) {
        rows[at].finding.p = Some(p);
    }
    for row in rows {
        row.finding.verdict = verdict(&row.finding, row.by_construction);
    }
}

fn verdict(finding: &Finding, by_construction: bool) -> ClaimVerdict {
    let Finding { effect: Some(_), holds, form, p, odds, .. } = finding else { return ClaimVerdict::NotRun };
    match (by_construction, p.zip(*odds)) {
        (true, _) if *holds => ClaimVerdict::ByConstruction,
        // What cannot fail has failed.
        (true, _) => ClaimVerdict::Contradicted,
        (false, Some((p, odds))) if p < LEVEL && odds.claimed <= odds.against => match form {
            Form::Published => ClaimVerdict::Reached,
            Form::Improved => ClaimVerdict::ByVariant,
        },
        (false, Some((p, _))) if p < LEVEL => ClaimVerdict::Contradicted,
        (false, _) => ClaimVerdict::Undecided,
    }
}

/// The form of the methods in these settings: as printed if all are, or if none has two forms.
pub fn form(results: &ExperimentResults, settings: &[&str]) -> Form {
    let lr = lr(results).unwrap_or(f64::NAN);
    let registry = Registry::standard();
    let ours = |id: &&str| {
        let unit = results.units(id).next();
        let strategy = unit.and_then(|unit| {
            let params = serde_json::Value::from(unit.params.clone());
            registry.method(&unit.strategy, params).ok()
        });
        strategy.and_then(|method| method.strategy.as_published(lr)) == Some(false)
    };
    if settings.iter().any(ours) { Form::Improved } else { Form::Published }
}

/// Learning rate of the devices in an experiment.
fn lr(results: &ExperimentResults) -> Option<f64> {
    let table: toml::Table = results.record.toml.parse().ok()?;
    table.get("training")?.get("lr")?.as_float()
}
