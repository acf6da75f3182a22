//! The target as plain text: disparity and knob by round, who gains and who pays, status, certificate, seeds.

use std::fmt::{self, Write};

use plots::number;
use strategies::fairness::FairnessLine;

use crate::demo::{
    DemoResult, DisparityPoint, MinorityScores, SeedResult, StrategyRun,
    report::rows,
    target::{certificate, words},
};

/// Rounds that a line has room for.
const ROUNDS: usize = 9;
/// Width of the names at the left.
const NAME: usize = 10;

/// Everything about the target; the gain by tier and the seeds also without one.
pub fn write(out: &mut String, result: &DemoResult) -> fmt::Result {
    let line = result.runs.last().and_then(|run| run.target.as_ref());
    if let Some(line) = line {
        rounds(out, result, line)?;
    }
    writeln!(out)?;
    for change in &result.changes {
        let [gain, pay] = rows::gain_and_pay(change);
        writeln!(out, "gain: {gain}\npay:  {pay}")?;
    }
    if let Some(line) = line {
        writeln!(out, "status: {}", words(line))?;
        writeln!(out, "{}", certificate(line))?;
    }
    if result.seeds.len() > 1 {
        seeds(out, result)?;
    }
    minority(out, result)
}

fn rounds(out: &mut String, result: &DemoResult, line: &FairnessLine) -> fmt::Result {
    writeln!(out, "\nDisparity by round: standard deviation of the tiers' mean losses over their mean,")?;
    writeln!(out, "on the held-out samples; target {}", line.target)?;
    let Some(fair) = result.runs.last() else { return Ok(()) };
    let shown = shown(&fair.disparity);
    row(out, "round", shown.iter().map(|point| point.round.to_string()))?;
    for run in &result.runs {
        let at = |point: &DisparityPoint| run.disparity.iter().find(|other| other.round == point.round);
        let cell = |point: &DisparityPoint| measured(at(point).and_then(|found| found.measured));
        row(out, run.title, shown.iter().map(cell))?;
    }
    row(out, &line.parameter, shown.iter().map(|point| number::figure(point.knob)))
}

/// Rounds from the first to the last at about equal distances.
fn shown(points: &[DisparityPoint]) -> Vec<DisparityPoint> {
    let Some(last) = points.len().checked_sub(1) else { return vec![] };
    let steps = last.clamp(1, ROUNDS - 1);
    let mut at: Vec<usize> = (0..=steps).map(|step| step * last / steps).collect();
    at.dedup();
    at.into_iter().filter_map(|index| points.get(index).copied()).collect()
}

fn row(out: &mut String, name: &str, cells: impl Iterator<Item = String>) -> fmt::Result {
    write!(out, "{name:<NAME$}")?;
    for cell in cells {
        write!(out, " {cell:>7}")?;
    }
    writeln!(out)
}

fn measured(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), number::figure)
}

/// Titles of the baseline and of the other run.
fn titles(runs: &[StrategyRun]) -> [&str; 2] {
    match runs {
        [base, .., last] => [base.title, last.title],
        _ => ["", ""],
    }
}

fn seeds(out: &mut String, result: &DemoResult) -> fmt::Result {
    let [base, fair] = titles(&result.runs);
    let target = result.seeds.iter().find_map(|seed| seed.target);
    let target = target.map_or_else(String::new, |target| format!("; target {target}"));
    writeln!(out, "\nAll seeds, over QUIC: disparity over the last rounds{target}; changes of test losses")?;
    writeln!(
        out,
        "{:>4} {base:>9} {fair:>9}  {:<13} {:>6} {:>9} {:>10} {:>9}",
        "seed", "status", "knob", "mean", "worst 10 %", "variance"
    )?;
    for SeedResult { seed, disparity: [old, new], status, knob, change, .. } in &result.seeds {
        writeln!(
            out,
            "{seed:>4} {:>9} {:>9}  {:<13} {:>6} {:>9} {:>10} {:>9}",
            measured(*old),
            measured(*new),
            status.map_or("no target", |status| status.name()),
            measured(*knob),
            number::change(change.mean),
            number::change(change.worst10),
            number::change(change.variance)
        )?;
    }
    Ok(())
}

fn minority(out: &mut String, result: &DemoResult) -> fmt::Result {
    let Some(device) = result.setup.minority else { return Ok(()) };
    let [base, fair] = titles(&result.runs);
    writeln!(out, "\nTest accuracy of {device}, which has classes of its own, and of all others (mean):")?;
    writeln!(out, "{:>4} {device:>22} {:>34}", "seed", "others")?;
    writeln!(out, "{:>4} {base:>10} {fair:>10} {:>12} {base:>10} {fair:>10} {:>12}", "", "change", "change")?;
    for (seed, scores) in result.seeds.iter().filter_map(|seed| Some((seed.seed, seed.minority?))) {
        let MinorityScores { alone, others } = scores;
        write!(out, "{seed:>4}")?;
        for [old, new] in [alone, others] {
            let [from, to] = [old, new].map(number::percent);
            write!(out, " {from:>10} {to:>10} {:>12}", number::points(new - old))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_round_are_shown_for_any_length() {
        for len in 0..50u32 {
            let points: Vec<DisparityPoint> =
                (1..=len).map(|round| DisparityPoint { round, measured: None, knob: 0.0 }).collect();
            let shown: Vec<u32> = shown(&points).iter().map(|point| point.round).collect();
            assert!(shown.len() <= ROUNDS && shown.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(shown.first().copied(), (len > 0).then_some(1));
            assert_eq!(shown.last().copied(), (len > 0).then_some(len));
        }
    }
}
