//! What a fairness target or the dashboard costs the gateway: the same load with and without it, in pairs of runs.
//!
//! Both runs of a pair follow each other, and every other pair begins with the subject, so that both sides meet the machine in
//! the same states. A target is compared by the processor time of the gateway's process, which other programs change less than
//! seconds; the dashboard by accepted updates per second, which its pages must not lower.

use std::fmt::{self, Display, Write as _};

use common::output::{COLUMNS, wrap};
use serde::Serialize;

use super::{LoadError, LoadOptions, LoadResult, Progress, run};
use crate::attack::PairedChange;

/// Share by which a target may raise the gateway's processor time of a round.
pub const MOST_TIME: f64 = 0.03;
/// Share by which the dashboard may lower the updates per second.
pub const MOST_SLOWER: f64 = 0.05;

/// What one run of each pair has and the other has not.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// A fairness target.
    Target(f64),
    /// So many pages of the dashboard are followed.
    Dashboard(usize),
}

impl Subject {
    fn apply(self, options: &LoadOptions) -> LoadOptions {
        match self {
            Self::Target(target) => LoadOptions { fairness: Some(target), ..options.clone() },
            Self::Dashboard(viewers) => LoadOptions { viewers, ..options.clone() },
        }
    }

    /// The figure that is compared.
    fn measure(self, result: &LoadResult) -> Result<f64, LoadError> {
        match self {
            Self::Target(_) => {
                result.cpu_s.filter(|seconds| *seconds > 0.0).ok_or(LoadError::NoProcessorTime)
            }
            Self::Dashboard(_) => Ok(result.updates_per_s),
        }
    }

    /// The largest cost, as a share.
    fn most(self) -> f64 {
        match self {
            Self::Target(_) => MOST_TIME,
            Self::Dashboard(_) => MOST_SLOWER,
        }
    }

    /// The change as a cost: positive if it is worse.
    fn cost(self, change: f64) -> f64 {
        match self {
            Self::Target(_) => change,
            Self::Dashboard(_) => -change,
        }
    }

    fn verdict(self, change: PairedChange) -> CostVerdict {
        CostVerdict::of(PairedChange { mean: self.cost(change.mean), ..change }, self.most())
    }
}

/// The compared figure of both runs of a pair.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct CostPair {
    pub without: f64,
    pub with: f64,
}

impl CostPair {
    /// By how much the figure is higher with the subject, as a share.
    pub fn change(&self) -> f64 {
        self.with / self.without - 1.0
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadCost {
    pub devices: usize,
    pub rounds: u32,
    #[serde(flatten)]
    pub subject: Subject,
    pub pairs: Vec<CostPair>,
    /// Over the pairs, as a share.
    pub change: PairedChange,
    /// The interval of the change beside its limit.
    pub verdict: CostVerdict,
    /// Changed parts of pages that the dashboard has sent, over all pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts_sent: Option<u64>,
}

/// Whether a cost is within its limit.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CostVerdict {
    /// The whole interval is.
    Met,
    /// No part of the interval is.
    Missed,
    /// A part of the interval is, or there is no interval: more pairs decide.
    Undecided,
}

impl CostVerdict {
    fn of(cost: PairedChange, most: f64) -> Self {
        match cost.half_width {
            Some(half) if cost.mean + half <= most => Self::Met,
            Some(half) if cost.mean - half > most => Self::Missed,
            _ => Self::Undecided,
        }
    }
}

impl Display for CostVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
        })
    }
}

/// Runs so many pairs. `progress` is called with the number of a pair when it has ended, and its change.
pub async fn compare(
    options: &LoadOptions,
    subject: Subject,
    pairs: u32,
    progress: impl Fn(u32, f64),
) -> Result<LoadCost, LoadError> {
    let mut found = vec![];
    let mut parts_sent = None;
    for number in 0..pairs {
        let mut figures = [0.0; 2];
        let first = usize::from(number % 2 == 1);
        for side in [first, 1 - first] {
            let options = if side == 1 { subject.apply(options) } else { options.clone() };
            let quiet: Progress = Box::new(|_, _| {});
            let result = Box::pin(run(&options, quiet)).await?;
            result.complete()?;
            figures[side] = subject.measure(&result)?;
            if let Some(viewed) = &result.viewed {
                *parts_sent.get_or_insert(0) += viewed.parts.iter().sum::<u64>();
            }
        }
        let pair = CostPair { without: figures[0], with: figures[1] };
        progress(number + 1, pair.change());
        found.push(pair);
    }
    Ok(LoadCost::new(options, subject, found, parts_sent))
}

impl LoadCost {
    fn new(options: &LoadOptions, subject: Subject, pairs: Vec<CostPair>, parts_sent: Option<u64>) -> Self {
        let change = PairedChange::of(pairs.iter().map(CostPair::change));
        let LoadOptions { devices, rounds, .. } = *options;
        Self { devices, rounds, subject, pairs, change, verdict: subject.verdict(change), parts_sent }
    }

    pub fn table(&self) -> String {
        let Self { devices, rounds, subject, pairs, change, verdict, parts_sent } = self;
        let (what, unit, scale) = match subject {
            Subject::Target(target) => (format!("fairness.target = {target}"), "ms", 1000.0),
            Subject::Dashboard(viewers) => (format!("{viewers} followed pages of the dashboard"), "/s", 1.0),
        };
        let heads = [format!("without {unit}"), format!("with {unit}")];
        let mut text = format!(
            "{devices} devices, runs of {rounds} rounds with and without {what}\n\
             pair {:>12} {:>9}   change\n",
            heads[0], heads[1],
        );
        for (number, pair) in (1..).zip(pairs) {
            let CostPair { without, with } = pair;
            let percent = 100.0 * pair.change();
            let _ = writeln!(
                text,
                "{number:>4} {:>12.2} {:>9.2} {percent:>+7.1}%",
                scale * without,
                scale * with
            );
        }
        let interval = change
            .half_width
            .map_or_else(|| "one pair".into(), |half| format!("± {:.1} %, 95 %", 100.0 * half));
        let (mean, most) = (100.0 * change.mean, 100.0 * subject.most());
        let summary = match subject {
            Subject::Target(_) => format!(
                "a target changes the gateway's processor time of a round by {mean:+.1} % ({interval}); at most +{most:.0} % \
                 wanted: {verdict}"
            ),
            Subject::Dashboard(_) => format!(
                "the dashboard, which sent {} parts of pages, changes accepted updates per second by {mean:+.1} % \
                 ({interval}); at most {most:.0} % fewer wanted: {verdict}",
                parts_sent.map_or_else(|| "-".to_owned(), |parts| parts.to_string())
            ),
        };
        text + &wrap(&summary, 0, COLUMNS) + "\n"
    }

    /// Fails unless the bar is met.
    pub fn check(&self) -> Result<(), LoadError> {
        let what = match self.subject {
            Subject::Target(_) => "processor time per round with a fairness target",
            Subject::Dashboard(_) => "updates per second with the dashboard",
        };
        let percent = 100.0 * self.change.mean;
        match self.verdict {
            CostVerdict::Met => Ok(()),
            CostVerdict::Missed => Err(LoadError::Dear { what, percent }),
            CostVerdict::Undecided => {
                Err(LoadError::CostUndecided { what, percent, pairs: self.pairs.len() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(subject: Subject, with: &[f64]) -> LoadCost {
        let pairs = with.iter().map(|&with| CostPair { without: 0.1, with }).collect();
        let options = LoadOptions { devices: 4, rounds: 2, ..LoadOptions::default() };
        LoadCost::new(&options, subject, pairs, Some(7))
    }

    #[test]
    fn the_end_of_the_interval_decides() {
        let of = |mean, half_width| Subject::Target(0.3).verdict(PairedChange { mean, half_width });
        assert_eq!(of(0.01, Some(0.019)), CostVerdict::Met);
        assert_eq!(of(0.01, Some(0.021)), CostVerdict::Undecided);
        assert_eq!(of(-0.003, Some(0.046)), CostVerdict::Undecided);
        assert_eq!(of(0.05, Some(0.021)), CostVerdict::Undecided);
        assert_eq!(of(0.05, Some(0.019)), CostVerdict::Missed);
        assert_eq!(of(MOST_TIME, Some(0.0)), CostVerdict::Met);
        for mean in [-1.0, 0.0, 1.0, f64::NAN] {
            assert_eq!(of(mean, None), CostVerdict::Undecided, "one pair has no interval: {mean}");
        }
        assert_eq!(of(f64::NAN, Some(f64::NAN)), CostVerdict::Undecided);
    }

    #[test]
    fn fewer_updates_per_second_are_a_cost_and_more_are_none() {
        let of = |mean, half_width| Subject::Dashboard(5).verdict(PairedChange { mean, half_width });
        assert_eq!(of(-0.03, Some(0.019)), CostVerdict::Met);
        assert_eq!(of(0.2, Some(0.1)), CostVerdict::Met);
        assert_eq!(of(-0.03, Some(0.021)), CostVerdict::Undecided);
        assert_eq!(of(-0.07, Some(0.019)), CostVerdict::Missed);
        assert_eq!(of(0.0, None), CostVerdict::Undecided);
    }

    #[test]
    fn only_a_met_bar_passes() {
        let target = |with: &[f64]| cost(Subject::Target(0.3), with);
        let (cheap, dear) = (target(&[0.1009, 0.1011]), target(&[0.1049, 0.1051]));
        assert!(cheap.check().is_ok() && cheap.table().ends_with("wanted: met\n"), "{}", cheap.table());
        assert!(dear.check().unwrap_err().to_string().contains("+5.0 %"));
        assert!(dear.table().contains("   1       100.00    104.90    +4.9%"), "{}", dear.table());
        for unclear in [target(&[0.101, 0.103]), target(&[0.101])] {
            assert!(unclear.table().contains("undecided"), "{}", unclear.table());
            assert!(unclear.check().unwrap_err().to_string().contains("--pairs"));
        }
        let json = serde_json::to_string(&dear).unwrap();
        assert!(json.contains("\"verdict\":\"missed\"") && json.contains("\"target\":0.3"), "{json}");
        let slow = cost(Subject::Dashboard(5), &[0.0909, 0.0911]);
        assert!(slow.check().unwrap_err().to_string().contains("-9.0 %"), "{:?}", slow.check());
        assert!(slow.table().contains("sent 7 parts"), "{}", slow.table());
        assert!(serde_json::to_string(&slow).unwrap().contains("\"dashboard\":5"));
    }
}
