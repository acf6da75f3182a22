//! What the five sources claim, and whether our runs show it.
//!
//! Claims are files, `sim/experiments/claims/SOURCE.toml`. A [`Claim`] is a sentence of the specification with the
//! [`Check`]s that decide it. A check names an experiment, how it is [measured](Measure) on the results and what was
//! published. An experiment may bring checks of its own, in the same form; they stand with its results.
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
//! reached  the direction alone, on the mean over seeds
//! ```
//!
//! | part | file |
//! |---|---|
//! | how checks are computed | `measure` |
//! | results, ready to be asked; figures by name | `evidence`, `figure` |
//! | REPRODUCTION.md | `record` |

mod evidence;
pub mod figure;
mod measure;
mod record;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use evidence::{Bench, Evidence};
pub use measure::{Finding, Measure, Part, Verdict, Want};
pub use record::record;

/// A source with its claims.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub name: String,
    pub section: String,
    /// Doubtful points that concern the whole.
    pub doubts: Vec<String>,
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// One claim of a source.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Section of the specification and number there.
    pub id: String,
    pub text: String,
    /// What is doubtful about it in the source, or about how we show it.
    #[serde(default)]
    pub doubt: String,
    #[serde(rename = "check")]
    pub checks: Vec<Check>,
}

/// One comparison that a claim rests on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Which data, model or setting, for people.
    pub what: String,
    /// Name of the experiment that serves it; empty where none does, and in the file of the experiment itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub experiment: String,
    /// The profile whose results it is about; absent: the full one where it has the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Absent where our experiments compute nothing of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<Measure>,
    #[serde(default = "direction_only")]
    pub published: String,
    /// The published number of the kind that the measure yields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
}

fn direction_only() -> String {
    "direction only".into()
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

/// What became of one claim.
#[derive(Clone, Debug, Serialize)]
pub struct Assessment {
    pub id: &'static str,
    pub text: &'static str,
    pub verdict: Verdict,
    pub rows: Vec<Row>,
    pub doubt: &'static str,
}

/// One check and what it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub what: String,
    pub experiment: String,
    pub how: String,
    pub published: String,
    /// What the measure yields, written out: mean and deviation over seeds.
    pub ours: String,
    pub finding: Finding,
}

/// Every claim of a source against the results.
pub fn assess(source: &'static Source, evidence: &Evidence) -> Vec<Assessment> {
    source.claims.iter().map(|claim| claim.assess(evidence)).collect()
}

impl Claim {
    fn assess(&'static self, evidence: &Evidence) -> Assessment {
        let rows: Vec<Row> = self.checks.iter().map(|check| check.row(evidence)).collect();
        Assessment { id: &self.id, text: &self.text, verdict: verdict(&rows), rows, doubt: &self.doubt }
    }
}

impl Check {
    /// In the profile that has what is needed, the full one if both have.
    fn row(&self, evidence: &Evidence) -> Row {
        let wanted =
            |bench: &&Bench| self.profile.as_ref().is_none_or(|profile| *profile == bench.record.profile);
        let found = evidence.of(&self.experiment).filter(wanted).find_map(|bench| self.find_in(bench));
        self.row_of(&self.experiment, found.unwrap_or_else(|| Finding::not_run("")))
    }

    fn row_in(&self, bench: &Bench) -> Row {
        let finding = self.find_in(bench).unwrap_or_else(|| Finding::not_run(&bench.record.profile));
        self.row_of(&bench.record.experiment, finding)
    }

    fn find_in(&self, bench: &Bench) -> Option<Finding> {
        self.measure.as_ref()?.find_in(bench, self.effect)
    }

    fn row_of(&self, experiment: &str, finding: Finding) -> Row {
        let show = |value| self.measure.as_ref().map_or(String::new(), |measure| measure.show(value));
        let ours = finding.effect.map_or("–".into(), |effect| match effect.runs {
            1 => show(effect.mean),
            _ => format!("{} (± {})", show(effect.mean), plain(&show(effect.std))),
        });
        let nothing = || "nothing that our experiments compute".into();
        Row {
            what: self.what.clone(),
            experiment: experiment.into(),
            how: self.measure.as_ref().map_or_else(nothing, Measure::describe),
            published: self.published.clone(),
            ours,
            finding,
        }
    }
}

/// Everything that claims, and the experiment itself, say about its results in one profile.
pub fn rows_of(bench: &Bench) -> Vec<Row> {
    // What is said of one profile alone is said of the other one elsewhere.
    let about = |check: &&Check| check.experiment == bench.record.experiment && check.profile.is_none();
    let checks = ALL.iter().flat_map(|source| &source.claims).flat_map(|claim| &claim.checks).filter(about);
    checks.chain(&bench.record.checks).map(|check| check.row_in(bench)).collect()
}

/// A deviation has no sign.
fn plain(text: &str) -> &str {
    text.trim_start_matches(['+', '±'])
}

/// Reached or missed only if all checks that were run agree.
fn verdict(rows: &[Row]) -> Verdict {
    let count = |verdict| rows.iter().filter(|row| row.finding.verdict == verdict).count();
    match (count(Verdict::Reached), count(Verdict::Missed)) {
        (0, 0) => Verdict::NotRun,
        (_, 0) => Verdict::Reached,
        (0, _) => Verdict::Missed,
        _ => Verdict::InPart,
    }
}
