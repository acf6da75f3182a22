//! The fairness target in the results of the demo: disparity and knob by round, status and certificate in words.

use coordinator::report::RoundReport;
use plots::number;
use serde::Serialize;
use strategies::fairness::FairnessLine;

/// Disparity and knob of one round.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct DisparityPoint {
    /// The round, from 1.
    pub round: u32,
    /// Disparity between tiers; `None` if it was not measured.
    pub measured: Option<f64>,
    /// Value of the driven parameter.
    pub knob: f64,
}

impl DisparityPoint {
    /// `None` for a round without a target, and for the final scores, which repeat the last round's line.
    pub(super) fn new(report: &RoundReport) -> Option<Self> {
        let line = report.fairness.first().filter(|_| report.purpose == "train")?;
        Some(Self { round: report.round, measured: line.measured, knob: line.value })
    }
}

/// The status in words, with a short number for the knob.
pub(super) fn advice(line: &FairnessLine) -> String {
    let value = number::figure(line.value).parse().unwrap_or(line.value);
    FairnessLine { value, ..line.clone() }.advice()
}

/// Name of the status and the advice, without saying the same twice.
pub(super) fn words(line: &FairnessLine) -> String {
    let (name, advice) = (line.status.name().replace('_', " "), advice(line));
    if advice.starts_with(&name) { advice } else { format!("{name}: {advice}") }
}

/// The certificate in words, or why there is none.
pub(super) fn certificate(line: &FairnessLine) -> String {
    let rounds = line.ledger.rounds;
    let mean = (line.ledger.sum_d / f64::from(rounds.max(1))).max(0.0).sqrt();
    match line.bound.filter(|_| line.certified && rounds > 0) {
        Some(bound) => format!(
            "certified: disparity {} (root mean square of {rounds} rounds), at most {} for any data",
            number::figure(mean),
            number::figure(bound)
        ),
        None if rounds > 0 => format!(
            "not certified: the rule was at a limit in some rounds; disparity {} over {rounds} rounds",
            number::figure(mean)
        ),
        None => "not certified: nothing was measured".into(),
    }
}

#[cfg(test)]
mod tests {
    use strategies::fairness::FairnessStatus;

    use crate::demo::tests::TINY;

    use super::*;

    #[test]
    fn a_status_is_named_once() {
        let line = TINY.runs[1].target.clone().unwrap();
        let line = FairnessLine { position: 0.5, value: 2.345_678, resolution: None, ..line };
        let says = |status| words(&FairnessLine { status, ..line.clone() });
        assert_eq!(says(FairnessStatus::Met), "met with q = 2.35");
        assert_eq!(says(FairnessStatus::Measuring), "measuring: too few rounds to judge");
        assert!(says(FairnessStatus::NotReachable).starts_with("not reachable with q up to 10"));
    }

    #[test]
    fn the_certificate_names_the_bound_only_if_there_is_one() {
        let line = TINY.runs[1].target.clone().unwrap();
        let with = FairnessLine { certified: true, bound: Some(0.345_67), ..line.clone() };
        assert!(certificate(&with).contains("at most 0.346"), "{}", certificate(&with));
        for without in [
            FairnessLine { certified: false, bound: Some(0.345_67), ..line.clone() },
            FairnessLine { certified: true, bound: None, ..line },
        ] {
            let text = certificate(&without);
            assert!(text.starts_with("not certified") && !text.contains("0.346"), "{text}");
        }
    }
}
