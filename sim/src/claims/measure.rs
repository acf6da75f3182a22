//! How checks are computed. Each kind of measure is one small function over the results of one experiment.
//!
//! Settings are compared seed by seed, over the seeds that both have. Figures are means over the last evaluations.

use common::metrics::Spread;

use serde::Serialize;

use super::{trust::unfit, verdict::form};
use crate::{
    claims::ClaimVerdict,
    results::{ExperimentResults, Form, Measure, Take, Want, figure},
    statistics::{Interval, Odds, one_side, within},
};

/// The result of a check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// Set together with those of the other checks of the claim.
    pub verdict: ClaimVerdict,
    /// Form of the compared methods.
    pub form: Form,
    /// Why the compared models say nothing, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfit: Option<String>,
    /// The compared figures.
    pub parts: Vec<ComparedFigure>,
    /// For figures about groups: accuracy of the constant predictor of the majority, whose disparity is 0.
    pub constant: Option<Spread>,
    /// The measured effect over seeds.
    pub effect: Option<Spread>,
    /// The 95 % interval of its mean; `None` for fewer than two seeds, and for sums and extremes.
    pub interval: Option<Interval>,
    /// Tests of the measure, before any correction.
    pub odds: Option<Odds>,
    /// The smaller p of the two, corrected for the number of checks of the claim.
    pub p: Option<f64>,
    /// Whether the mean lies on the claimed side.
    pub holds: bool,
    /// Ratio of our effect to the published one.
    pub ratio: Option<f64>,
    /// Number of seeds in which the direction is reached.
    pub agree: usize,
    /// Number of compared seeds.
    pub seeds: usize,
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
            form: Form::Published,
            unfit: None,
            parts: vec![],
            constant: None,
            effect: None,
            interval: None,
            odds: None,
            p: None,
            holds: false,
            ratio: None,
            agree: 0,
            seeds: 0,
            rounds: 0,
            profile: profile.into(),
        }
    }

    /// The verdict with the number of seeds, where that matters.
    pub fn words(&self) -> String {
        match (self.verdict, &self.unfit) {
            (ClaimVerdict::Undecided, Some(why)) => format!("undecided ({}; {why})", seeds(self.seeds)),
            (ClaimVerdict::Undecided, None) => format!("undecided ({})", seeds(self.seeds)),
            (verdict, _) => verdict.word().into(),
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

/// `1 seed`, `5 seeds`
pub(super) fn seeds(count: usize) -> String {
    format!("{count} seed{}", if count == 1 { "" } else { "s" })
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
        finding.form = form(results, &self.settings());
        finding.unfit = unfit(results, &self.settings());
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
    finding(results, &[read], &values(results, read), want)
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
    let of = |&read: &Read<'_>| Some(values(results, read)).filter(|values| !values.is_empty());
    let values = reads.iter().map(of).collect::<Option<Vec<_>>>()?.concat();
    let value = take.of(&values)?;
    let found = finding(results, &reads, &values, want)?;
    let effect = Some(Spread { runs: 1, mean: value, std: 0.0 });
    // A sum or an extreme is a count of what was run, not an estimate.
    let sampled = take == Take::Mean;
    let (interval, odds) = (found.interval.filter(|_| sampled), found.odds.filter(|_| sampled));
    Some(Finding { holds: want.holds(value), effect, interval, odds, ..found })
}

/// Every step must fall.
fn falls(results: &ExperimentResults, figure: &str, settings: &[String]) -> Option<Finding> {
    let reads: Vec<Read<'_>> = settings.iter().map(|setting| (setting.as_str(), figure)).collect();
    let effects = paired(results, *reads.first()?, *reads.last()?, relative);
    let found = finding(results, &reads, &effects, Want::Lower)?;
    if found.parts.len() < settings.len() {
        return None;
    }
    let holds = found.parts.is_sorted_by(|a, b| b.spread.mean < a.spread.mean);
    let step = |pair: &[Read<'_>]| match pair {
        [from, to] => odds(&Spread::of(&paired(results, *from, *to, relative)), Want::Lower),
        _ => None,
    };
    let steps: Option<Vec<Odds>> = reads.windows(2).map(step).collect();
    // A rise from first to last contradicts the chain too. A fall adds nothing to its steps.
    let ends = found.odds.map(|ends| Odds { claimed: 0.0, ..ends });
    let odds = steps.zip(ends).and_then(|(steps, ends)| Odds::of_all(&[&steps[..], &[ends]].concat()));
    Some(Finding { holds, odds, ..found })
}

/// No other setting is better; shown is the difference to the best other, by mean.
fn best(results: &ExperimentResults, name: &str, of: &str) -> Option<Finding> {
    let high = figure::high_is_good(name);
    let others = results.record.settings.iter().filter(|setting| setting.id != of).filter_map(|setting| {
        let mean = spread(results, (&setting.id, name))?.mean;
        Some((setting.id.as_str(), if high { mean } else { -mean }))
    });
    let others: Vec<(&str, f64)> = others.collect();
    let (rival, _) = others.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (want, better) = match high {
        true => (Want::AtLeast(0.0), Want::Higher),
        false => (Want::AtMost(0.0), Want::Lower),
    };
    let found = compare(results, [(rival, name), (of, name)], |from, to| to - from, want)?;
    let against = |(other, _): &(&str, f64)| {
        odds(&Spread::of(&paired(results, (other, name), (of, name), |from, to| to - from)), better)
    };
    let all: Option<Vec<Odds>> = others.iter().map(against).collect();
    Some(Finding { odds: all.and_then(|all| Odds::of_all(&all)), ..found })
}

/// The figure of every run that has it.
fn values(results: &ExperimentResults, (setting, figure): Read<'_>) -> Vec<f64> {
    results.units(setting).filter_map(|unit| unit.settled(figure)).collect()
}

fn spread(results: &ExperimentResults, read: Read<'_>) -> Option<Spread> {
    Some(values(results, read)).filter(|values| !values.is_empty()).map(|values| Spread::of(&values))
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
        Some(effect(unit.settled(from.1)?, other.settled(to.1)?))
    });
    pairs.filter(|effect| effect.is_finite()).collect()
}

/// The tests of an effect.
fn odds(effect: &Spread, want: Want) -> Option<Odds> {
    match want {
        Want::Lower => one_side(effect, 0.0, true, false),
        Want::Higher => one_side(effect, 0.0, false, false),
        Want::AtMost(bound) => one_side(effect, bound, true, true),
        Want::AtLeast(bound) => one_side(effect, bound, false, true),
        Want::Within(bound) => within(effect, bound),
    }
}

fn finding(results: &ExperimentResults, reads: &[Read<'_>], effects: &[f64], want: Want) -> Option<Finding> {
    if effects.is_empty() {
        return None;
    }
    let part = |&read: &Read<'_>| {
        let (setting, figure) = read;
        let spread = spread(results, read)?;
        Some(ComparedFigure { label: results.label(setting).into(), figure: figure.into(), spread })
    };
    let effect = Spread::of(effects);
    let about_groups = reads.iter().find(|(_, figure)| figure.starts_with("groups."));
    let rounds = reads.iter().flat_map(|read| results.units(read.0)).map(|unit| unit.round_count());
    Some(Finding {
        parts: reads.iter().filter_map(part).collect(),
        constant: about_groups.and_then(|(setting, _)| spread(results, (setting, CONSTANT))),
        effect: Some(effect),
        interval: Interval::of(&effect),
        odds: odds(&effect, want),
        holds: want.holds(effect.mean),
        agree: effects.iter().filter(|&&effect| want.holds(effect)).count(),
        seeds: effects.len(),
        rounds: rounds.min().unwrap_or(0),
        ..Finding::not_run(&results.record.profile)
    })
}
