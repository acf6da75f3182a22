//! What a fairness target costs the gateway: the same load with and without one, in pairs of runs.
//!
//! Both runs of a pair follow each other, and every other pair begins with the target, so that both sides meet the machine in
//! the same states. Compared is the processor time of the gateway's process, which other programs change less than seconds.

use std::fmt::{self, Display, Write as _};

use common::output::{COLUMNS, wrap};
use serde::Serialize;

use super::{LoadError, LoadOptions, LoadResult, Progress, run};
use crate::attack::PairedChange;

/// Share by which a target may raise the gateway's processor time of a round.
pub const MOST_COST: f64 = 0.03;

/// Processor time of a round, in seconds, of both runs of a pair.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct CostPair {
    pub without: f64,
    pub with: f64,
}

impl CostPair {
    /// By how much the run with a target takes longer, as a share.
    pub fn change(&self) -> f64 {
        self.with / self.without - 1.0
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TargetCost {
    pub devices: usize,
    pub rounds: u32,
    pub target: f64,
    pub pairs: Vec<CostPair>,
    /// Over the pairs, as a share.
    pub change: PairedChange,
    /// The interval of the change beside [`MOST_COST`].
    pub verdict: CostVerdict,
}

/// Whether a cost is within [`MOST_COST`].
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
    fn of(change: PairedChange) -> Self {
        match change.half_width {
            Some(half) if change.mean + half <= MOST_COST => Self::Met,
            Some(half) if change.mean - half > MOST_COST => Self::Missed,
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
    target: f64,
    pairs: u32,
    progress: impl Fn(u32, f64),
) -> Result<TargetCost, LoadError> {
    let mut found = vec![];
    for number in 0..pairs {
        let mut seconds = [0.0; 2];
        let first = usize::from(number % 2 == 1);
        for side in [first, 1 - first] {
            let fairness = (side == 1).then_some(target);
            let options = LoadOptions { fairness, ..options.clone() };
            let quiet: Progress = Box::new(|_, _| {});
            let result = Box::pin(run(&options, quiet)).await?;
            result.complete()?;
            seconds[side] = cpu_of(&result)?;
        }
        let pair = CostPair { without: seconds[0], with: seconds[1] };
        progress(number + 1, pair.change());
        found.push(pair);
    }
    let change = PairedChange::of(found.iter().map(CostPair::change));
    let LoadOptions { devices, rounds, .. } = *options;
    Ok(TargetCost { devices, rounds, target, pairs: found, change, verdict: CostVerdict::of(change) })
}

fn cpu_of(result: &LoadResult) -> Result<f64, LoadError> {
    result.cpu_s.filter(|seconds| *seconds > 0.0).ok_or(LoadError::NoProcessorTime)
}

impl TargetCost {
    pub fn table(&self) -> String {
        let Self { devices, rounds, target, pairs, change, verdict } = self;
        let mut text = format!(
            "{devices} devices, runs of {rounds} rounds with and without fairness.target = {target}\n\
             pair   without ms   with ms   change\n"
        );
        for (number, pair) in (1..).zip(pairs) {
            let CostPair { without, with } = pair;
            let percent = 100.0 * pair.change();
            let _ = writeln!(
                text,
                "{number:>4} {:>12.2} {:>9.2} {percent:>+7.1}%",
                1000.0 * without,
                1000.0 * with
            );
        }
        let interval = change
            .half_width
            .map_or_else(|| "one pair".into(), |half| format!("± {:.1} %, 95 %", 100.0 * half));
        let summary = format!(
            "a target changes the gateway's processor time of a round by {:+.1} % ({interval}); at most +{:.0} % wanted: {verdict}",
            100.0 * change.mean,
            100.0 * MOST_COST,
        );
        text + &wrap(&summary, 0, COLUMNS) + "\n"
    }

    /// Fails unless the bar is met.
    pub fn check(&self) -> Result<(), LoadError> {
        let percent = 100.0 * self.change.mean;
        match self.verdict {
            CostVerdict::Met => Ok(()),
            CostVerdict::Missed => Err(LoadError::Dear { percent }),
            CostVerdict::Undecided => Err(LoadError::CostUndecided { percent, pairs: self.pairs.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(with: &[f64]) -> TargetCost {
        let pairs: Vec<_> = with.iter().map(|&with| CostPair { without: 0.1, with }).collect();
        let change = PairedChange::of(pairs.iter().map(CostPair::change));
        TargetCost { devices: 4, rounds: 2, target: 0.3, pairs, change, verdict: CostVerdict::of(change) }
    }

    #[test]
    fn the_end_of_the_interval_decides() {
        let of = |mean, half_width| CostVerdict::of(PairedChange { mean, half_width });
        assert_eq!(of(0.01, Some(0.019)), CostVerdict::Met);
        assert_eq!(of(0.01, Some(0.021)), CostVerdict::Undecided);
        assert_eq!(of(-0.003, Some(0.046)), CostVerdict::Undecided);
        assert_eq!(of(0.05, Some(0.021)), CostVerdict::Undecided);
        assert_eq!(of(0.05, Some(0.019)), CostVerdict::Missed);
        assert_eq!(of(MOST_COST, Some(0.0)), CostVerdict::Met);
        for mean in [-1.0, 0.0, 1.0, f64::NAN] {
            assert_eq!(of(mean, None), CostVerdict::Undecided, "one pair has no interval: {mean}");
        }
        assert_eq!(of(f64::NAN, Some(f64::NAN)), CostVerdict::Undecided);
    }

    #[test]
    fn only_a_met_bar_passes() {
        let (cheap, dear) = (cost(&[0.1009, 0.1011]), cost(&[0.1049, 0.1051]));
        assert!(cheap.check().is_ok() && cheap.table().ends_with("wanted: met\n"), "{}", cheap.table());
        assert!(dear.check().unwrap_err().to_string().contains("5.0 %"));
        assert!(dear.table().contains("   1       100.00    104.90    +4.9%"), "{}", dear.table());
        for unclear in [cost(&[0.101, 0.103]), cost(&[0.101])] {
            assert!(unclear.table().contains("undecided"), "{}", unclear.table());
            assert!(unclear.check().unwrap_err().to_string().contains("--pairs"));
        }
        assert!(serde_json::to_string(&dear).unwrap().contains("\"verdict\":\"missed\""));
    }
}
