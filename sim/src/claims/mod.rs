//! What the five sources claim, and whether our runs show it.
//!
//! A [`Claim`] is data: a sentence of the specification with the [`Check`]s that decide it. A check names an
//! experiment, how it is [measured](Measure) on the results and what was published. Experiments may bring
//! checks of their own ([`results::Claim`](crate::results::Claim)); they join the claim with the same id.
//!
//! ```text
//! change   mean over seeds of (to - from) / |from|, seed by seed
//! ratio    ours / published, of the same kind of number: 1 is full agreement, 0.5 to 2 the goal
//! reached  the direction alone, on the mean over seeds
//! ```
//!
//! | part | file |
//! |---|---|
//! | claims by source | `fairheterofl`, `fedeba`, `eagle`, `fedlf`, `fedfb` |
//! | how checks are computed | `measure` |
//! | results, ready to be asked; figures by name | `evidence`, `figure` |
//! | REPRODUCTION.md | `record` |

mod eagle;
mod evidence;
mod fairheterofl;
mod fedeba;
mod fedfb;
mod fedlf;
pub mod figure;
mod measure;
mod record;
#[cfg(test)]
pub(crate) mod tests;

pub use evidence::{Bench, Evidence};
pub use measure::{Finding, Measure, Part, Verdict, Want};
pub use record::record;

/// A source with its claims.
#[derive(Copy, Clone, Debug)]
pub struct Source {
    pub name: &'static str,
    pub section: &'static str,
    pub claims: &'static [Claim],
    /// Doubtful points that concern the whole.
    pub doubts: &'static [&'static str],
}

/// One claim of a source.
#[derive(Copy, Clone, Debug)]
pub struct Claim {
    /// Section of the specification and number there.
    pub id: &'static str,
    pub text: &'static str,
    pub checks: &'static [Check],
    /// What is doubtful about it in the source, or about how we show it.
    pub doubt: &'static str,
}

/// One comparison that a claim rests on.
#[derive(Copy, Clone, Debug)]
pub struct Check {
    /// Which data, model or setting, for people.
    pub what: &'static str,
    /// Name of the experiment that serves it; empty where none does.
    pub experiment: &'static str,
    pub measure: Measure<'static>,
    pub published: &'static str,
    /// The published number of the kind that the measure yields.
    pub effect: Option<f64>,
}

/// All sources, in the order of the specification.
pub const ALL: &[Source] =
    &[fairheterofl::SOURCE, fedeba::SOURCE, eagle::SOURCE, fedlf::SOURCE, fedfb::SOURCE];

/// What became of one claim.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Assessment {
    pub id: &'static str,
    pub text: &'static str,
    pub verdict: Verdict,
    pub rows: Vec<Row>,
    pub doubt: &'static str,
}

/// One check and what it came to.
#[derive(Clone, Debug, serde::Serialize)]
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
pub fn assess(source: &Source, evidence: &Evidence) -> Vec<Assessment> {
    source.claims.iter().map(|claim| claim.assess(evidence)).collect()
}

impl Claim {
    fn assess(&self, evidence: &Evidence) -> Assessment {
        let mut rows: Vec<Row> = self.checks.iter().map(|check| check.row(evidence)).collect();
        for bench in &evidence.benches {
            rows.extend(own_rows(bench, |own| {
                self.is_said_by(own) && !self.covers(&bench.record.experiment, own)
            }));
        }
        Assessment { id: self.id, text: self.text, verdict: verdict(&rows), rows, doubt: self.doubt }
    }

    /// Experiments number parts of a claim as they like: `1.5.4b`, `1.5.4-hessian`.
    fn is_said_by(&self, own: &crate::results::Claim) -> bool {
        let rest = own.id.strip_prefix(self.id);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next == '.' || next.is_ascii_digit()))
    }

    /// Whether a check of ours says what the experiment's own claim does; a bar is always its own.
    fn covers(&self, experiment: &str, own: &crate::results::Claim) -> bool {
        if own.bar.is_some_and(|bar| bar != 0.0) {
            return false;
        }
        let measure = Measure::of_value(&own.value, own.direction, own.bar, own.published);
        self.checks.iter().any(|check| check.experiment == experiment && check.measure.is_like(&measure))
    }
}

impl Check {
    fn row(&self, evidence: &Evidence) -> Row {
        let finding = self.measure.find(evidence, self.experiment, self.effect);
        Row::new(self.what, self.experiment, &self.measure, self.published.into(), finding)
    }

    fn row_in(&self, bench: &Bench) -> Row {
        let finding = self.measure.find_in(bench, self.effect);
        let finding = finding.unwrap_or_else(|| Finding::not_run(&bench.record.profile));
        Row::new(self.what, self.experiment, &self.measure, self.published.into(), finding)
    }
}

/// Everything that claims say about one experiment, on its results in one profile.
pub fn rows_of(bench: &Bench) -> Vec<Row> {
    let claims = || ALL.iter().flat_map(|source| source.claims);
    let ours =
        claims().flat_map(|claim| claim.checks).filter(|check| check.experiment == bench.record.experiment);
    let mut rows: Vec<Row> = ours.map(|check| check.row_in(bench)).collect();
    rows.extend(own_rows(bench, |own| !claims().any(|claim| claim.covers(&bench.record.experiment, own))));
    rows
}

/// Claims that the experiment's file makes, as far as `wanted`.
pub fn own_rows(bench: &Bench, wanted: impl Fn(&crate::results::Claim) -> bool) -> Vec<Row> {
    let row = |own: &crate::results::Claim| {
        let measure = Measure::of_value(&own.value, own.direction, own.bar, own.published);
        let finding =
            measure.find_in(bench, own.published).unwrap_or_else(|| Finding::not_run(&bench.record.profile));
        let published = own.published.map_or("direction only".into(), |value| measure.show(value));
        let what = match own.bar {
            Some(bar) if bar != 0.0 => format!("{} (bar: {})", own.text, measure.show(bar)),
            _ => own.text.clone(),
        };
        Row::new(&what, &bench.record.experiment, &measure, published, finding)
    };
    bench.record.claims.iter().filter(|own| wanted(own)).map(row).collect()
}

impl Row {
    fn new(what: &str, experiment: &str, measure: &Measure<'_>, published: String, finding: Finding) -> Self {
        let ours = finding.effect.map_or("–".into(), |effect| match effect.runs {
            1 => measure.show(effect.mean),
            _ => format!("{} (± {})", measure.show(effect.mean), plain(&measure.show(effect.std))),
        });
        Self {
            what: what.into(),
            experiment: experiment.into(),
            how: measure.describe(),
            published,
            ours,
            finding,
        }
    }
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
