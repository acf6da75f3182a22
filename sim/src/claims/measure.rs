//! How a check is computed: each way is one small function over the results of one experiment.
//!
//! Settings are compared seed by seed, over the seeds that both have.

use common::metrics::Spread;

use serde::{Deserialize, Serialize};

use super::{Bench, figure};

/// What is computed. Figures and settings go by their names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case", deny_unknown_fields)]
pub enum Measure {
    /// Relative change of a figure from one setting to another.
    Change { figure: String, from: String, to: String, want: Want },
    /// Its difference.
    Difference { figure: String, from: String, to: String, want: Want },
    /// Relative change from one figure to another of the same setting.
    Between { of: String, from: String, to: String, want: Want },
    /// The figure itself.
    Level { figure: String, of: String, want: Want },
    /// The figure falls from each setting to the next; yields the relative change from first to last.
    Falls { figure: String, settings: Vec<String> },
    /// No other setting of the experiment is better; yields the difference to the best other.
    Best { figure: String, of: String },
}

/// When the direction is reached.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// Below 0.
    Lower,
    /// Above 0.
    Higher,
    AtMost(f64),
    AtLeast(f64),
    /// No further from 0 than this.
    Within(f64),
}

impl Want {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Lower => value < 0.0,
            Self::Higher => value > 0.0,
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
            Self::Within(bound) => value.abs() <= bound,
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Reached,
    /// Some checks of a claim, but not all.
    InPart,
    Missed,
    NotRun,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Self::Reached => "yes",
            Self::InPart => "in part",
            Self::Missed => "no",
            Self::NotRun => "not run",
        }
    }
}

/// What a check came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    /// All that was compared.
    pub parts: Vec<Part>,
    /// Where that is about groups: the accuracy of always predicting the majority, whose disparity is 0.
    pub constant: Option<Spread>,
    /// What the measure yields, over seeds.
    pub effect: Option<Spread>,
    /// Of our effect to the published one.
    pub ratio: Option<f64>,
    /// Seeds in which the direction is reached.
    pub agree: usize,
    /// Rounds of the runs compared; the least where they differ.
    pub rounds: usize,
    pub profile: String,
}

/// One figure of one setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Part {
    pub label: String,
    pub figure: String,
    pub spread: Spread,
}

impl Finding {
    pub(super) fn not_run(profile: &str) -> Self {
        Self {
            verdict: Verdict::NotRun,
            parts: vec![],
            constant: None,
            effect: None,
            ratio: None,
            agree: 0,
            rounds: 0,
            profile: profile.into(),
        }
    }

    /// `heterofl 0.036 ± 0.002 → fair 0.029 ± 0.001`.
    pub fn show_parts(&self) -> String {
        let parts = self.parts.iter();
        let parts =
            parts.map(|part| format!("{} {}", part.label, figure::show_spread(&part.figure, &part.spread)));
        let mut text = parts.collect::<Vec<_>>().join(" → ");
        if let Some(constant) = &self.constant {
            text += &format!("; constant predictor {}", figure::show_spread(CONSTANT, constant));
        }
        text
    }
}

const CONSTANT: &str = "groups.constant";

/// A setting and one of its figures.
type Read<'a> = (&'a str, &'a str);

impl Measure {
    /// `None` if runs that are needed are not there.
    pub fn find_in(&self, bench: &Bench, published: Option<f64>) -> Option<Finding> {
        let mut finding = match self {
            Self::Change { figure, from, to, want } => {
                compare(bench, [(from, figure), (to, figure)], relative, *want)
            }
            Self::Difference { figure, from, to, want } => {
                compare(bench, [(from, figure), (to, figure)], |from, to| to - from, *want)
            }
            Self::Between { of, from, to, want } => compare(bench, [(of, from), (of, to)], relative, *want),
            Self::Level { figure, of, want } => level(bench, (of, figure), *want),
            Self::Falls { figure, settings } => falls(bench, figure, settings),
            Self::Best { figure, of } => best(bench, figure, of),
        }?;
        let ratio = finding.effect.zip(published).map(|(ours, theirs)| ours.mean / theirs);
        finding.ratio = ratio.filter(|ratio| ratio.is_finite());
        Some(finding)
    }

    /// In words.
    pub fn describe(&self) -> String {
        let title = figure::title;
        match self {
            Self::Change { figure, from, to, .. } => format!("{}, {from} → {to}, change", title(figure)),
            Self::Difference { figure, from, to, .. } => {
                format!("{}, {from} → {to}, difference", title(figure))
            }
            Self::Between { of, from, to, .. } => {
                format!("{of}: {} against {}", title(to), title(from))
            }
            Self::Level { figure, of, .. } => format!("{}, {of}", title(figure)),
            Self::Falls { figure, settings } => format!("{} falls: {}", title(figure), settings.join(" > ")),
            Self::Best { figure, of } => format!("{of} has the best {}", title(figure)),
        }
    }

    /// A number of the kind that it yields.
    pub fn show(&self, value: f64) -> String {
        match self {
            Self::Change { .. } | Self::Between { .. } | Self::Falls { .. } => {
                crate::report::number::change(value)
            }
            Self::Difference { figure, .. } | Self::Best { figure, .. } => {
                figure::show_difference(figure, value)
            }
            Self::Level { figure, .. } => figure::show(figure, value),
        }
    }

    /// Settings that it needs.
    pub fn settings(&self) -> Vec<&str> {
        match self {
            Self::Change { from, to, .. } | Self::Difference { from, to, .. } => vec![from, to],
            Self::Between { of, .. } | Self::Level { of, .. } | Self::Best { of, .. } => vec![of],
            Self::Falls { settings, .. } => settings.iter().map(String::as_str).collect(),
        }
    }
}

/// `(to - from) / |from|`; 0 where both are 0.
fn relative(from: f64, to: f64) -> f64 {
    if from == to { 0.0 } else { (to - from) / from.abs() }
}

fn compare(bench: &Bench, reads: [Read<'_>; 2], effect: fn(f64, f64) -> f64, want: Want) -> Option<Finding> {
    let [from, to] = reads;
    finding(bench, &reads, &paired(bench, from, to, effect), want)
}

fn level(bench: &Bench, read: Read<'_>, want: Want) -> Option<Finding> {
    let values: Vec<f64> = bench.units(read.0).filter_map(|unit| figure::read(unit, read.1)).collect();
    finding(bench, &[read], &values, want)
}

fn falls(bench: &Bench, figure: &str, settings: &[String]) -> Option<Finding> {
    let reads: Vec<Read<'_>> = settings.iter().map(|setting| (setting.as_str(), figure)).collect();
    let effects = paired(bench, *reads.first()?, *reads.last()?, relative);
    let mut finding = finding(bench, &reads, &effects, Want::Lower)?;
    if finding.parts.len() < settings.len() {
        return None;
    }
    let falls = finding.parts.is_sorted_by(|a, b| b.spread.mean < a.spread.mean);
    finding.verdict = if falls { Verdict::Reached } else { Verdict::Missed };
    Some(finding)
}

/// Against the best of all other settings, by mean.
fn best(bench: &Bench, name: &str, of: &str) -> Option<Finding> {
    let high = figure::high_is_good(name);
    let others = bench.record.settings.iter().filter(|setting| setting.id != of).filter_map(|setting| {
        let mean = bench.spread(&setting.id, name)?.mean;
        Some((setting.id.as_str(), if high { mean } else { -mean }))
    });
    let (rival, _) = others.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let want = if high { Want::AtLeast(0.0) } else { Want::AtMost(0.0) };
    compare(bench, [(rival, name), (of, name)], |from, to| to - from, want)
}

/// Effects of the seeds that both settings have.
fn paired(bench: &Bench, from: Read<'_>, to: Read<'_>, effect: fn(f64, f64) -> f64) -> Vec<f64> {
    let pairs = bench.units(from.0).filter_map(|unit| {
        let other = bench.units(to.0).find(|other| other.unit.seed == unit.unit.seed)?;
        Some(effect(figure::read(unit, from.1)?, figure::read(other, to.1)?))
    });
    pairs.filter(|effect| effect.is_finite()).collect()
}

fn finding(bench: &Bench, reads: &[Read<'_>], effects: &[f64], want: Want) -> Option<Finding> {
    if effects.is_empty() {
        return None;
    }
    let part = |&(setting, figure): &Read<'_>| {
        let spread = bench.spread(setting, figure)?;
        Some(Part { label: bench.label(setting).into(), figure: figure.into(), spread })
    };
    let spread = Spread::of(effects);
    let about_groups = reads.iter().find(|(_, figure)| figure.starts_with("groups."));
    let rounds = reads.iter().flat_map(|read| bench.units(read.0)).map(|unit| unit.round_count());
    Some(Finding {
        verdict: if want.holds(spread.mean) { Verdict::Reached } else { Verdict::Missed },
        parts: reads.iter().filter_map(part).collect(),
        constant: about_groups.and_then(|(setting, _)| bench.spread(setting, CONSTANT)),
        effect: Some(spread),
        ratio: None,
        agree: effects.iter().filter(|&&effect| want.holds(effect)).count(),
        rounds: rounds.min().unwrap_or(0),
        profile: bench.record.profile.clone(),
    })
}
