//! How checks are computed. Each kind of measure is one small function over the results of one experiment.
//!
//! Settings are compared seed by seed, over the seeds that both have.

use common::metrics::Spread;

use serde::Serialize;

use crate::results::{ExperimentResults, Measure, Take, Want, figure};

#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    Reached,
    /// Some checks of a claim are reached, but not all.
    InPart,
    Missed,
    NotRun,
}

impl ClaimVerdict {
    pub fn word(self) -> &'static str {
        match self {
            Self::Reached => "yes",
            Self::InPart => "in part",
            Self::Missed => "no",
            Self::NotRun => "not run",
        }
    }
}

/// The result of a check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    pub verdict: ClaimVerdict,
    /// The compared figures.
    pub parts: Vec<ComparedFigure>,
    /// For figures about groups: accuracy of the constant predictor of the majority, whose disparity is 0.
    pub constant: Option<Spread>,
    /// The measured effect over seeds.
    pub effect: Option<Spread>,
    /// Ratio of our effect to the published one.
    pub ratio: Option<f64>,
    /// Number of seeds in which the direction is reached.
    pub agree: usize,
    /// Rounds of the compared runs; the smallest number if they differ.
    pub rounds: usize,
    pub profile: String,
}

/// One figure of one setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ComparedFigure {
    pub label: String,
    pub figure: String,
    pub spread: Spread,
}

impl Finding {
    pub(super) fn not_run(profile: &str) -> Self {
        Self {
            verdict: ClaimVerdict::NotRun,
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
    /// Computes the check; `None` if a run that it needs is missing.
    pub(crate) fn find_in(&self, results: &ExperimentResults, published: Option<f64>) -> Option<Finding> {
        let mut finding = match self {
            Self::Change { figure, from, to, want } => {
                compare(results, [(from, figure), (to, figure)], relative, *want)
            }
            Self::Difference { figure, from, to, want } => {
                compare(results, [(from, figure), (to, figure)], |from, to| to - from, *want)
            }
            Self::Between { of, from, to, want } => compare(results, [(of, from), (of, to)], relative, *want),
            Self::Level { figure, of, want } => level(results, (of, figure), *want),
            Self::Pooled { figure, of, take, want } => pooled(results, figure, of, *take, *want),
            Self::Falls { figure, settings } => falls(results, figure, settings),
            Self::Best { figure, of } => best(results, figure, of),
        }?;
        let ratio = finding.effect.zip(published).map(|(ours, theirs)| ours.mean / theirs);
        finding.ratio = ratio.filter(|ratio| ratio.is_finite());
        Some(finding)
    }

    /// A description of the measure.
    pub(crate) fn describe(&self) -> String {
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
            Self::Pooled { figure, of, take, .. } => {
                format!("{} of {}, {}", take.word(), title(figure), of.join(", "))
            }
            Self::Falls { figure, settings } => format!("{} falls: {}", title(figure), settings.join(" > ")),
            Self::Best { figure, of } => format!("{of} has the best {}", title(figure)),
        }
    }

    /// Formats a value of this measure.
    pub(crate) fn show(&self, value: f64) -> String {
        match self {
            Self::Change { .. } | Self::Between { .. } | Self::Falls { .. } => plots::number::change(value),
            Self::Difference { figure, .. } | Self::Best { figure, .. } => {
                figure::show_difference(figure, value)
            }
            Self::Level { figure, .. } | Self::Pooled { figure, .. } => figure::show(figure, value),
        }
    }

    /// The bar in words; `None` if the measure has none of its own.
    pub(crate) fn bar(&self) -> Option<String> {
        match self {
            Self::Change { want, .. }
            | Self::Difference { want, .. }
            | Self::Between { want, .. }
            | Self::Level { want, .. }
            | Self::Pooled { want, .. } => Some(want.words()),
            Self::Falls { .. } | Self::Best { .. } => None,
        }
    }

    /// Ids of the settings that it needs.
    #[cfg(test)]
    pub(crate) fn settings(&self) -> Vec<&str> {
        match self {
            Self::Change { from, to, .. } | Self::Difference { from, to, .. } => vec![from, to],
            Self::Between { of, .. } | Self::Level { of, .. } | Self::Best { of, .. } => vec![of],
            Self::Falls { settings, .. } | Self::Pooled { of: settings, .. } => {
                settings.iter().map(String::as_str).collect()
            }
        }
    }
}

/// `(to - from) / |from|`; 0 if both are equal.
fn relative(from: f64, to: f64) -> f64 {
    if from == to { 0.0 } else { (to - from) / from.abs() }
}

fn compare(
    results: &ExperimentResults,
    reads: [Read<'_>; 2],
    effect: fn(f64, f64) -> f64,
    want: Want,
) -> Option<Finding> {
    let [from, to] = reads;
    finding(results, &reads, &paired(results, from, to, effect), want)
}

fn level(results: &ExperimentResults, read: Read<'_>, want: Want) -> Option<Finding> {
    let values: Vec<f64> = results.units(read.0).filter_map(|unit| unit.figure(read.1)).collect();
    finding(results, &[read], &values, want)
}

/// One value of the runs of all settings; `None` if a setting has none.
fn pooled(
    results: &ExperimentResults,
    figure: &str,
    of: &[String],
    take: Take,
    want: Want,
) -> Option<Finding> {
    let reads: Vec<Read<'_>> = of.iter().map(|setting| (setting.as_str(), figure)).collect();
    let of = |read: &Read<'_>| -> Option<Vec<f64>> {
        let values: Vec<f64> = results.units(read.0).filter_map(|unit| unit.figure(read.1)).collect();
        (!values.is_empty()).then_some(values)
    };
    let values = reads.iter().map(of).collect::<Option<Vec<_>>>()?.concat();
    let value = take.of(&values)?;
    let found = finding(results, &reads, &values, want)?;
    let verdict = if want.holds(value) { ClaimVerdict::Reached } else { ClaimVerdict::Missed };
    Some(Finding { verdict, effect: Some(Spread { runs: 1, mean: value, std: 0.0 }), ..found })
}

fn falls(results: &ExperimentResults, figure: &str, settings: &[String]) -> Option<Finding> {
    let reads: Vec<Read<'_>> = settings.iter().map(|setting| (setting.as_str(), figure)).collect();
    let effects = paired(results, *reads.first()?, *reads.last()?, relative);
    let mut finding = finding(results, &reads, &effects, Want::Lower)?;
    if finding.parts.len() < settings.len() {
        return None;
    }
    let falls = finding.parts.is_sorted_by(|a, b| b.spread.mean < a.spread.mean);
    finding.verdict = if falls { ClaimVerdict::Reached } else { ClaimVerdict::Missed };
    Some(finding)
}

/// Compares with the best other setting, by mean.
fn best(results: &ExperimentResults, name: &str, of: &str) -> Option<Finding> {
    let high = figure::high_is_good(name);
    let others = results.record.settings.iter().filter(|setting| setting.id != of).filter_map(|setting| {
        let mean = results.spread(&setting.id, name)?.mean;
        Some((setting.id.as_str(), if high { mean } else { -mean }))
    });
    let (rival, _) = others.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let want = if high { Want::AtLeast(0.0) } else { Want::AtMost(0.0) };
    compare(results, [(rival, name), (of, name)], |from, to| to - from, want)
}

/// Effects of the seeds that both settings have.
fn paired(
    results: &ExperimentResults,
    from: Read<'_>,
    to: Read<'_>,
    effect: fn(f64, f64) -> f64,
) -> Vec<f64> {
    let pairs = results.units(from.0).filter_map(|unit| {
        let other = results.units(to.0).find(|other| other.unit.seed == unit.unit.seed)?;
        Some(effect(unit.figure(from.1)?, other.figure(to.1)?))
    });
    pairs.filter(|effect| effect.is_finite()).collect()
}

fn finding(results: &ExperimentResults, reads: &[Read<'_>], effects: &[f64], want: Want) -> Option<Finding> {
    if effects.is_empty() {
        return None;
    }
    let part = |&(setting, figure): &Read<'_>| {
        let spread = results.spread(setting, figure)?;
        Some(ComparedFigure { label: results.label(setting).into(), figure: figure.into(), spread })
    };
    let spread = Spread::of(effects);
    let about_groups = reads.iter().find(|(_, figure)| figure.starts_with("groups."));
    let rounds = reads.iter().flat_map(|read| results.units(read.0)).map(|unit| unit.round_count());
    Some(Finding {
        verdict: if want.holds(spread.mean) { ClaimVerdict::Reached } else { ClaimVerdict::Missed },
        parts: reads.iter().filter_map(part).collect(),
        constant: about_groups.and_then(|(setting, _)| results.spread(setting, CONSTANT)),
        effect: Some(spread),
        ratio: None,
        agree: effects.iter().filter(|&&effect| want.holds(effect)).count(),
        rounds: rounds.min().unwrap_or(0),
        profile: results.record.profile.clone(),
    })
}
