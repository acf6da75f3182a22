//! How a check is computed: each way is one small function over the results of one experiment.
//!
//! Settings are compared seed by seed, over the seeds that both have.

use common::metrics::Spread;

use super::{Bench, Evidence, figure};
use crate::results::{Direction, How, Value};

/// What is computed. Figures and settings go by their names.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Measure<'a> {
    /// Relative change of a figure from one setting to another.
    Change { figure: &'a str, from: &'a str, to: &'a str, want: Want },
    /// Its difference.
    Difference { figure: &'a str, from: &'a str, to: &'a str, want: Want },
    /// `to / from`.
    Ratio { figure: &'a str, from: &'a str, to: &'a str, want: Want },
    /// Relative change from one figure to another of the same setting.
    Between { of: &'a str, from: &'a str, to: &'a str, want: Want },
    /// The figure itself.
    Level { figure: &'a str, of: &'a str, want: Want },
    /// The figure falls from each setting to the next; yields the relative change from first to last.
    Falls { figure: &'a str, settings: &'a [&'a str] },
    /// No other setting of the experiment is better; yields the difference to the best other.
    Best { figure: &'a str, of: &'a str },
    /// Nothing that our experiments compute.
    Nothing,
}

/// When the direction is reached.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Want {
    Below(f64),
    Above(f64),
    AtMost(f64),
    AtLeast(f64),
    /// From the first to the second.
    In(f64, f64),
}

impl Want {
    pub const LOWER: Self = Self::Below(0.0);
    pub const HIGHER: Self = Self::Above(0.0);

    /// No further from 0 than this.
    pub const fn within(bound: f64) -> Self {
        Self::In(-bound, bound)
    }

    fn holds(self, value: f64) -> bool {
        match self {
            Self::Below(bound) => value < bound,
            Self::Above(bound) => value > bound,
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
            Self::In(low, high) => (low..=high).contains(&value),
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, serde::Serialize)]
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
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
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
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
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

impl<'a> Measure<'a> {
    /// How an experiment's own claim is decided.
    pub fn of_value(
        value: &'a Value,
        direction: Direction,
        bar: Option<f64>,
        published: Option<f64>,
    ) -> Self {
        let zero = if value.how == How::Ratio { 1.0 } else { 0.0 };
        let want = match (direction, bar) {
            (Direction::AtMost, Some(bar)) => Want::AtMost(bar),
            (Direction::AtLeast, Some(bar)) => Want::AtLeast(bar),
            (Direction::AtMost, None) => Want::Below(zero),
            (Direction::AtLeast, None) => Want::Above(zero),
            (Direction::About, _) => {
                let [a, b] = [0.5, 2.0].map(|factor| published.unwrap_or(f64::NAN) * factor);
                Want::In(a.min(b), a.max(b))
            }
        };
        let figure = value.figure.as_str();
        let to = value.of.as_str();
        match (value.how, value.against.as_deref()) {
            (How::Mean, _) | (_, None) => Self::Level { figure, of: to, want },
            (How::Difference, Some(from)) => Self::Difference { figure, from, to, want },
            (How::Ratio, Some(from)) => Self::Ratio { figure, from, to, want },
            (How::Change, Some(from)) => Self::Change { figure, from, to, want },
        }
    }

    /// In the profile that has what is needed, the full one if both have.
    pub fn find(&self, evidence: &Evidence, experiment: &str, published: Option<f64>) -> Finding {
        let found = evidence.of(experiment).find_map(|bench| self.find_in(bench, published));
        found.unwrap_or_else(|| Finding::not_run(""))
    }

    /// `None` if runs that are needed are not there.
    pub fn find_in(&self, bench: &Bench, published: Option<f64>) -> Option<Finding> {
        let mut finding = match *self {
            Self::Change { figure, from, to, want } => {
                compare(bench, [(from, figure), (to, figure)], relative, want)
            }
            Self::Difference { figure, from, to, want } => {
                compare(bench, [(from, figure), (to, figure)], |from, to| to - from, want)
            }
            Self::Ratio { figure, from, to, want } => {
                compare(bench, [(from, figure), (to, figure)], |from, to| to / from, want)
            }
            Self::Between { of, from, to, want } => compare(bench, [(of, from), (of, to)], relative, want),
            Self::Level { figure, of, want } => level(bench, (of, figure), want),
            Self::Falls { figure, settings } => falls(bench, figure, settings),
            Self::Best { figure, of } => best(bench, figure, of),
            Self::Nothing => None,
        }?;
        let ratio = finding.effect.zip(published).map(|(ours, theirs)| ours.mean / theirs);
        finding.ratio = ratio.filter(|ratio| ratio.is_finite());
        Some(finding)
    }

    /// In words.
    pub fn describe(&self) -> String {
        let title = figure::title;
        match *self {
            Self::Change { figure, from, to, .. } => format!("{}, {from} → {to}, change", title(figure)),
            Self::Difference { figure, from, to, .. } => {
                format!("{}, {from} → {to}, difference", title(figure))
            }
            Self::Ratio { figure, from, to, .. } => format!("{}, {to} / {from}", title(figure)),
            Self::Between { of, from, to, .. } => {
                format!("{of}: {} against {}", title(to), title(from))
            }
            Self::Level { figure, of, .. } => format!("{}, {of}", title(figure)),
            Self::Falls { figure, settings } => format!("{} falls: {}", title(figure), settings.join(" > ")),
            Self::Best { figure, of } => format!("{of} has the best {}", title(figure)),
            Self::Nothing => "nothing that our experiments compute".into(),
        }
    }

    /// A number of the kind that it yields.
    pub fn show(&self, value: f64) -> String {
        match *self {
            Self::Change { .. } | Self::Between { .. } | Self::Falls { .. } => {
                crate::report::number::change(value)
            }
            Self::Difference { figure, .. } | Self::Best { figure, .. } => {
                figure::show_difference(figure, value)
            }
            Self::Level { figure, .. } => figure::show(figure, value),
            Self::Ratio { .. } | Self::Nothing => crate::report::number::figure(value),
        }
    }

    /// Settings that it needs.
    pub fn settings(&self) -> Vec<&'a str> {
        match *self {
            Self::Change { from, to, .. }
            | Self::Difference { from, to, .. }
            | Self::Ratio { from, to, .. } => {
                vec![from, to]
            }
            Self::Between { of, .. } | Self::Level { of, .. } | Self::Best { of, .. } => vec![of],
            Self::Falls { settings, .. } => settings.to_vec(),
            Self::Nothing => vec![],
        }
    }

    /// Whether both compare the same numbers, be it as change, difference or ratio.
    pub fn is_like(&self, other: &Measure<'_>) -> bool {
        self.compared().is_some_and(|compared| other.compared() == Some(compared))
    }

    /// Figure, setting and what it is compared with.
    fn compared(&self) -> Option<(&'a str, &'a str, Option<&'a str>)> {
        match *self {
            Self::Change { figure, from, to, .. }
            | Self::Difference { figure, from, to, .. }
            | Self::Ratio { figure, from, to, .. } => Some((figure, to, Some(from))),
            Self::Between { of, to, .. } => Some((to, of, None)),
            Self::Level { figure, of, .. } => Some((figure, of, None)),
            Self::Falls { .. } | Self::Best { .. } | Self::Nothing => None,
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

fn falls(bench: &Bench, figure: &str, settings: &[&str]) -> Option<Finding> {
    let reads: Vec<Read<'_>> = settings.iter().map(|&setting| (setting, figure)).collect();
    let effects = paired(bench, *reads.first()?, *reads.last()?, relative);
    let mut finding = finding(bench, &reads, &effects, Want::LOWER)?;
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
