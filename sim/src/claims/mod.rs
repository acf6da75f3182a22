//! What the five sources claim, and whether our runs confirm it.
//!
//! Claims are files, `sim/experiments/claims/SOURCE.toml`. A [`Claim`] is a sentence of the specification with the
//! [`Check`]s that decide it. A check names an experiment, how it is [measured](Measure) on the results, and the
//! published value. An experiment file may contain its own checks in the same form; they are stored with its results.
//!
//! ```toml
//! [[claim]]
//! id = "1.5.1"
//! text = "Raising q lowers the variance of the tier means."
//! [[claim.check]]                     # [[check]] in the file of an experiment
//! what = "MNIST IID, q = 10"
//! experiment = "fairheterofl-mnist-iid"
//! measure = { how = "change", figure = "inter", from = "q0", to = "q10", want = "lower" }
//! published = "0.0234 → 0.0073"
//! effect = -0.688                     # the same as a number of the kind that the measure yields
//! ```
//!
//! ```text
//! change   mean over seeds of (to - from) / |from|, seed by seed
//! ratio    ours / published, of the same kind of number: 1 is full agreement, 0.5 to 2 the goal
//! reached  the direction, with a 95 % interval that excludes the opposite; see `verdict`
//! ```
//!
//! | part | file |
//! |---|---|
//! | how checks are computed | `measure` |
//! | whether models are worth a comparison | `trust` |
//! | verdicts of checks and claims | `verdict` |
//! | results, ready for lookup | `evidence` |
//! | whether results are those of the experiment files | `registered` |
//! | REPRODUCTION.md | `record` |

mod evidence;
mod measure;
mod record;
mod registered;
#[cfg(test)]
pub(crate) mod tests;
mod trust;
mod verdict;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use evidence::Evidence;
pub use measure::Finding;
pub(crate) use record::cell;
pub use record::record;
pub use registered::others;
pub use verdict::ClaimVerdict;

use crate::results::{Check, ExperimentResults, Form, Measure};
use verdict::settle;

/// A source with its claims.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub name: String,
    pub section: String,
    /// How the source ran its experiments.
    pub paper: PaperRuns,
    /// Doubtful points that concern the whole source.
    pub doubts: Vec<String>,
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// Rounds and seeds of a source's main experiments.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperRuns {
    pub rounds: usize,
    pub seeds: usize,
}

/// One claim of a source.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Section and number in the specification.
    pub id: String,
    pub text: String,
    /// Doubts about the claim in the source, or about how we check it.
    #[serde(default)]
    pub doubt: String,
    #[serde(rename = "check")]
    pub checks: Vec<Check>,
}

/// All sources, in the order of the specification.
pub static ALL: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let read = |text: &&str| toml::from_str(text).expect("a test reads these very texts");
    FILES.iter().map(read).collect()
});

const FILES: [&str; 5] = [
    include_str!("../../experiments/claims/fairheterofl.toml"),
    include_str!("../../experiments/claims/fedeba.toml"),
    include_str!("../../experiments/claims/eagle.toml"),
    include_str!("../../experiments/claims/fedlf.toml"),
    include_str!("../../experiments/claims/fedfb.toml"),
];

/// How the source of an experiment of the papers ran its own, by the first part of the name.
pub fn paper_of(experiment: &str) -> Option<PaperRuns> {
    let about = |source: &&Source| {
        let first = source.name.trim_end_matches('+').to_lowercase();
        experiment.strip_prefix(&first).is_some_and(|rest| rest.starts_with('-'))
    };
    ALL.iter().find(about).map(|source| source.paper)
}

/// The result of one claim.
#[derive(Clone, Debug, Serialize)]
pub struct Assessment {
    pub id: &'static str,
    pub text: &'static str,
    pub verdict: ClaimVerdict,
    pub rows: Vec<CheckOutcome>,
    pub doubt: &'static str,
}

/// One check and its result.
#[derive(Clone, Debug, Serialize)]
pub struct CheckOutcome {
    pub what: String,
    pub experiment: String,
    pub how: String,
    pub published: String,
    /// The measured effect as text: mean, and its 95 % interval.
    pub ours: String,
    pub by_construction: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headline: Option<Form>,
    pub finding: Finding,
}

/// Checks every claim of a source against the results.
pub fn assess(source: &'static Source, evidence: &Evidence) -> Vec<Assessment> {
    source.claims.iter().map(|claim| claim.assess(evidence)).collect()
}

impl Claim {
    fn assess(&'static self, evidence: &Evidence) -> Assessment {
        let mut rows: Vec<CheckOutcome> = self.checks.iter().map(|check| check.row(evidence)).collect();
        settle(&mut rows);
        let verdict = ClaimVerdict::of_claim(&rows);
        Assessment { id: &self.id, text: &self.text, verdict, rows, doubt: &self.doubt }
    }
}

impl Check {
    /// Uses the full profile if it has the needed runs, and another profile otherwise.
    fn row(&self, evidence: &Evidence) -> CheckOutcome {
        let wanted = |results: &&ExperimentResults| {
            self.profile.as_ref().is_none_or(|profile| *profile == results.record.profile)
        };
        let found = evidence.of(&self.experiment).filter(wanted).find_map(|results| self.find_in(results));
        self.outcome_of(&self.experiment, found.unwrap_or_else(|| Finding::not_run("")))
    }

    fn outcome_in(&self, results: &ExperimentResults) -> CheckOutcome {
        let finding = self.find_in(results).unwrap_or_else(|| Finding::not_run(&results.record.profile));
        self.outcome_of(&results.record.experiment, finding)
    }

    fn find_in(&self, results: &ExperimentResults) -> Option<Finding> {
        self.measure.as_ref()?.find_in(results, self.effect)
    }

    fn outcome_of(&self, experiment: &str, finding: Finding) -> CheckOutcome {
        let show = |value| self.measure.as_ref().map_or(String::new(), |measure| measure.show(value));
        let ours = match (finding.effect, finding.interval) {
            (None, _) => "–".into(),
            (Some(effect), None) => show(effect.mean),
            (Some(effect), Some(interval)) => {
                format!("{} [{}, {}]", show(effect.mean), show(interval.low), show(interval.high))
            }
        };
        let nothing = || "nothing that our experiments compute".into();
        CheckOutcome {
            what: self.what.clone(),
            experiment: experiment.into(),
            how: self.measure.as_ref().map_or_else(nothing, Measure::describe),
            published: self.published.clone(),
            ours,
            by_construction: self.by_construction,
            headline: self.headline,
            finding,
        }
    }
}

/// Outcomes of all checks that rest on an experiment in one profile: those of claims, and those of the experiment itself.
pub fn outcomes_of(results: &ExperimentResults, claims: &[Assessment]) -> Vec<CheckOutcome> {
    let record = &results.record;
    let about = |row: &&CheckOutcome| {
        row.experiment == record.experiment
            && (row.finding.profile.is_empty() || row.finding.profile == record.profile)
    };
    let of_claims = claims.iter().flat_map(|claim| &claim.rows).filter(about).cloned();
    of_claims.chain(own_outcomes(results)).collect()
}

/// Outcomes of the checks in the experiment's own file.
pub fn own_outcomes(results: &ExperimentResults) -> Vec<CheckOutcome> {
    let mut rows: Vec<CheckOutcome> =
        results.record.checks.iter().map(|check| check.outcome_in(results)).collect();
    settle(&mut rows);
    rows
}
