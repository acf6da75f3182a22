//! How a check is computed: each way is one small function over [`Numbers`].
//!
//! Arms are compared seed by seed, over the seeds that both have.

use std::collections::BTreeSet;

use common::metrics::Spread;

use super::{ArmNumbers, Metric, Numbers};

/// What is computed from the results of an experiment.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Measure {
    /// Relative change of a metric from one arm to another.
    Change { metric: Metric, from: &'static str, to: &'static str, want: Want },
    /// Difference of a metric from one arm to another.
    Difference { metric: Metric, from: &'static str, to: &'static str, want: Want },
    /// Relative change from one metric to another of the same arm.
    Between { arm: &'static str, from: Metric, to: Metric, want: Want },
    /// The metric itself.
    Level { metric: Metric, arm: &'static str, want: Want },
    /// The metric falls from each arm to the next; yields the relative change from first to last.
    Falls { metric: Metric, arms: &'static [&'static str] },
    /// No other arm of the experiment is better; yields the difference to the best other.
    Best { metric: Metric, arm: &'static str },
    /// Nothing that our experiments compute.
    Nothing,
}

/// When the direction is reached.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Want {
    AtMost(f64),
    AtLeast(f64),
    /// No further from 0 than this.
    Within(f64),
}

impl Want {
    pub const LOWER: Self = Self::AtMost(-1e-12);
    pub const HIGHER: Self = Self::AtLeast(1e-12);

    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
            Self::Within(bound) => value.abs() <= bound,
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Reached,
    /// Some checks of a claim, but not all.
    InPart,
    Missed,
    NotRun,
}

/// What a check came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    pub verdict: Verdict,
    /// Arm, metric and its spread over seeds, for all that were compared.
    pub parts: Vec<(String, Metric, Spread)>,
    /// What the measure yields, over seeds.
    pub effect: Option<Spread>,
    /// Of our effect to the published one.
    pub ratio: Option<f64>,
    /// Seeds in which the direction is reached, of how many.
    pub agree: (usize, usize),
    /// Of the runs compared; the least where they differ.
    pub rounds: u32,
    pub profile: String,
}

impl Finding {
    fn not_run() -> Self {
        Self {
            verdict: Verdict::NotRun,
            parts: vec![],
            effect: None,
            ratio: None,
            agree: (0, 0),
            rounds: 0,
            profile: String::new(),
        }
    }
}

/// What is read from which arm.
type Read<'a> = (&'a str, Metric);

impl Measure {
    pub(super) fn find(&self, numbers: &Numbers, experiment: &str, published: Option<f64>) -> Finding {
        let finding = match *self {
            Self::Change { metric, from, to, want } => {
                compare(numbers, experiment, [(from, metric), (to, metric)], relative, want)
            }
            Self::Difference { metric, from, to, want } => {
                compare(numbers, experiment, [(from, metric), (to, metric)], difference, want)
            }
            Self::Between { arm, from, to, want } => {
                compare(numbers, experiment, [(arm, from), (arm, to)], relative, want)
            }
            Self::Level { metric, arm, want } => level(numbers, experiment, (arm, metric), want),
            Self::Falls { metric, arms } => falls(numbers, experiment, metric, arms),
            Self::Best { metric, arm } => best(numbers, experiment, metric, arm),
            Self::Nothing => None,
        };
        let mut finding = finding.unwrap_or_else(Finding::not_run);
        finding.ratio = finding.effect.zip(published).and_then(|(ours, theirs)| {
            let ratio = ours.mean / theirs;
            ratio.is_finite().then_some(ratio)
        });
        finding
    }

    /// In words, for the record.
    pub fn describe(&self) -> String {
        match *self {
            Self::Change { metric, from, to, .. } => format!("change of {}, {from} → {to}", metric.name()),
            Self::Difference { metric, from, to, .. } => {
                format!("difference of {}, {from} → {to}", metric.name())
            }
            Self::Between { arm, from, to, .. } => format!("{} against {}, {arm}", to.name(), from.name()),
            Self::Level { metric, arm, .. } => format!("{}, {arm}", metric.name()),
            Self::Falls { metric, arms } => format!("{} falls: {}", metric.name(), arms.join(" > ")),
            Self::Best { metric, arm } => format!("{} has the best {}", arm, metric.name()),
            Self::Nothing => "–".into(),
        }
    }

    /// Whether what it yields is relative, to be read in percent.
    pub fn is_relative(&self) -> bool {
        matches!(self, Self::Change { .. } | Self::Between { .. } | Self::Falls { .. })
    }

    /// The metric it is about, the later one where there are two.
    pub fn metric(&self) -> Option<Metric> {
        match *self {
            Self::Change { metric, .. }
            | Self::Difference { metric, .. }
            | Self::Level { metric, .. }
            | Self::Falls { metric, .. }
            | Self::Best { metric, .. } => Some(metric),
            Self::Between { to, .. } => Some(to),
            Self::Nothing => None,
        }
    }

    /// Arms it needs.
    pub fn arms(&self) -> Vec<&'static str> {
        match *self {
            Self::Change { from, to, .. } | Self::Difference { from, to, .. } => vec![from, to],
            Self::Between { arm, .. } | Self::Level { arm, .. } | Self::Best { arm, .. } => vec![arm],
            Self::Falls { arms, .. } => arms.to_vec(),
            Self::Nothing => vec![],
        }
    }
}

/// `(to - from) / |from|`; 0 where both are 0.
fn relative(from: f64, to: f64) -> f64 {
    if from == to { 0.0 } else { (to - from) / from.abs() }
}

fn difference(from: f64, to: f64) -> f64 {
    to - from
}

fn compare(
    numbers: &Numbers,
    experiment: &str,
    [from, to]: [Read<'_>; 2],
    effect: fn(f64, f64) -> f64,
    want: Want,
) -> Option<Finding> {
    let [old, new] = [numbers.arm(experiment, from.0)?, numbers.arm(experiment, to.0)?];
    let effects = paired(old, from.1, new, to.1, effect);
    finding(&[(from, old), (to, new)], &effects, want)
}

fn level(numbers: &Numbers, experiment: &str, read: Read<'_>, want: Want) -> Option<Finding> {
    let arm = numbers.arm(experiment, read.0)?;
    let values: Vec<f64> = arm.runs.iter().filter_map(|run| run.value(read.1)).collect();
    finding(&[(read, arm)], &values, want)
}

fn falls(numbers: &Numbers, experiment: &str, metric: Metric, arms: &[&'static str]) -> Option<Finding> {
    let all: Option<Vec<(Read<'_>, &ArmNumbers)>> =
        arms.iter().map(|&arm| Some(((arm, metric), numbers.arm(experiment, arm)?))).collect();
    let all = all?;
    let (first, last) = (all.first()?.1, all.last()?.1);
    let effects = paired(first, metric, last, metric, relative);
    let mut finding = finding(&all, &effects, Want::LOWER)?;
    let means: Vec<f64> = finding.parts.iter().map(|(_, _, spread)| spread.mean).collect();
    let ordered = means.len() == arms.len() && means.windows(2).all(|pair| pair[1] < pair[0]);
    finding.verdict = if ordered { Verdict::Reached } else { Verdict::Missed };
    Some(finding)
}

/// Against the best of all other arms, by mean.
fn best(numbers: &Numbers, experiment: &str, metric: Metric, arm: &str) -> Option<Finding> {
    let ours = numbers.arm(experiment, arm)?;
    let sign = if metric.high_is_good() { 1.0 } else { -1.0 };
    let others = numbers.arms(experiment).filter(|&other| other != arm).filter_map(|other| {
        let numbers = numbers.arm(experiment, other)?;
        Some((other, numbers, numbers.spread(metric)?.mean * sign))
    });
    let (other, rival, _) = others.max_by(|a, b| a.2.total_cmp(&b.2))?;
    let want = if metric.high_is_good() { Want::AtLeast(0.0) } else { Want::AtMost(0.0) };
    let effects = paired(rival, metric, ours, metric, difference);
    finding(&[((other, metric), rival), ((arm, metric), ours)], &effects, want)
}

/// Effects of the seeds that both arms have.
fn paired(old: &ArmNumbers, from: Metric, new: &ArmNumbers, to: Metric, effect: fn(f64, f64) -> f64) -> Vec<f64> {
    let pairs = old.runs.iter().filter_map(|run| {
        let other = new.runs.iter().find(|other| other.seed == run.seed)?;
        Some(effect(run.value(from)?, other.value(to)?))
    });
    pairs.filter(|effect| effect.is_finite()).collect()
}

fn finding(arms: &[(Read<'_>, &ArmNumbers)], effects: &[f64], want: Want) -> Option<Finding> {
    if effects.is_empty() {
        return None;
    }
    let parts = arms.iter().filter_map(|&((name, metric), arm)| Some((name.into(), metric, arm.spread(metric)?)));
    let spread = Spread::of(effects);
    let profiles: BTreeSet<&str> = arms.iter().map(|(_, arm)| arm.profile.as_str()).collect();
    Some(Finding {
        verdict: if want.holds(spread.mean) { Verdict::Reached } else { Verdict::Missed },
        parts: parts.collect(),
        effect: Some(spread),
        ratio: None,
        agree: (effects.iter().filter(|&&effect| want.holds(effect)).count(), effects.len()),
        rounds: arms.iter().flat_map(|(_, arm)| arm.runs.iter().map(|run| run.rounds)).min().unwrap_or(0),
        profile: profiles.into_iter().collect::<Vec<_>>().join("/"),
    })
}
