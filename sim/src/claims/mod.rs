//! What the five sources claim, and whether our runs show it.
//!
//! A [`Claim`] is data: a sentence of the specification with the [`Check`]s that decide it. A check names an
//! experiment, how it is [measured](Measure) on the results and what was published. [`assess`] compares.
//!
//! ```text
//! change   ours = mean over seeds of (to - from) / |from|, seed by seed
//! ratio    ours / published, of the same kind of number: 1 is full agreement, 0.5..2 the goal
//! reached  the direction alone, on the mean over seeds
//! ```
//!
//! | source | file |
//! |---|---|
//! | FairHeteroFL | `fairheterofl` |
//! | FedEBA+ | `fedeba` |
//! | EAGLE | `eagle` |
//! | FedLF | `fedlf` |
//! | FedFB | `fedfb` |

mod eagle;
mod fairheterofl;
mod fedeba;
mod fedfb;
mod fedlf;
mod measure;
mod metric;
mod numbers;
mod published;
mod record;
#[cfg(test)]
mod tests;

pub use measure::{Finding, Measure, Verdict, Want};
pub use metric::Metric;
pub use numbers::{ArmNumbers, Numbers, RunNumbers};
pub use published::{PAPERS, Published, published};
pub use record::record;

/// One claim of a source.
#[derive(Copy, Clone, Debug)]
pub struct Claim {
    pub id: &'static str,
    /// Section of the specification, and its number there.
    pub section: &'static str,
    pub text: &'static str,
    pub checks: &'static [Check],
    /// What is doubtful about the source, or about how we show it.
    pub doubt: &'static str,
}

/// One comparison that a claim rests on.
#[derive(Copy, Clone, Debug)]
pub struct Check {
    /// Which data, models or arms, for people.
    pub what: &'static str,
    /// Name of the experiment that serves it; empty where there is none, and `published` is all there is.
    pub experiment: &'static str,
    pub measure: Measure,
    pub published: &'static str,
    /// The published number of the kind that the measure yields.
    pub effect: Option<f64>,
}

/// A source with its claims.
#[derive(Copy, Clone, Debug)]
pub struct Source {
    pub name: &'static str,
    pub section: &'static str,
    pub claims: &'static [Claim],
    /// Doubtful points that concern the whole.
    pub doubts: &'static [&'static str],
}

/// All sources, in the order of the specification.
pub const ALL: &[Source] =
    &[fairheterofl::SOURCE, fedeba::SOURCE, eagle::SOURCE, fedlf::SOURCE, fedfb::SOURCE];

/// What became of one claim.
#[derive(Clone, Debug)]
pub struct Assessment {
    pub claim: &'static Claim,
    /// One for each check.
    pub findings: Vec<Finding>,
}

/// Every claim against what was measured.
pub fn assess(source: &Source, numbers: &Numbers) -> Vec<Assessment> {
    let of = |claim: &'static Claim| Assessment {
        claim,
        findings: claim.checks.iter().map(|check| check.find(numbers)).collect(),
    };
    source.claims.iter().map(of).collect()
}

impl Check {
    pub fn find(&self, numbers: &Numbers) -> Finding {
        self.measure.find(numbers, self.experiment, self.effect)
    }
}

impl Assessment {
    /// Reached or missed only if all checks that were run agree.
    pub fn verdict(&self) -> Verdict {
        let count = |verdict| self.findings.iter().filter(|finding| finding.verdict == verdict).count();
        match (count(Verdict::Reached), count(Verdict::Missed)) {
            (0, 0) => Verdict::NotRun,
            (_, 0) => Verdict::Reached,
            (0, _) => Verdict::Missed,
            _ => Verdict::InPart,
        }
    }
}
