//! Compares the measurements with the bars that a gateway has to meet.

use std::fmt;

use serde::Serialize;

use super::LoadResult;

/// Limit of the aggregator's peak memory: a constant, and an amount for every connected device.
const BASE_KB: u64 = 64 << 10;
const PER_DEVICE_KB: u64 = 80;
/// Limit of the growth of the peak from the first round to the last, as a share.
const GROWTH: f64 = 0.05;
/// Least updates per second, as a share of those of bare streams.
const RATIO: f64 = 0.6;

/// On which side of its limit a figure must be.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtMost,
    AtLeast,
    Exactly,
}

/// One bar and the measured value. It is not passed if nothing was measured.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct LoadCheck {
    pub name: &'static str,
    pub bound: Bound,
    pub limit: f64,
    pub measured: Option<f64>,
    pub passed: bool,
}

impl LoadCheck {
    fn new(name: &'static str, bound: Bound, limit: f64, measured: Option<f64>) -> Self {
        let measured = measured.filter(|measured| measured.is_finite());
        let passed = measured.is_some_and(|measured| match bound {
            Bound::AtMost => measured <= limit,
            Bound::AtLeast => measured >= limit,
            Bound::Exactly => measured == limit,
        });
        Self { name, bound, limit, measured, passed }
    }
}

impl fmt::Display for LoadCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Bound::AtMost => "at most ",
            Bound::AtLeast => "at least ",
            Bound::Exactly => "",
        };
        let limit = Figure(self.limit);
        let Some(measured) = self.measured else {
            return write!(f, "{} was not measured ({bound}{limit} wanted)", self.name);
        };
        write!(f, "{} is {} ({bound}{limit} wanted)", self.name, Figure(measured))?;
        let off = measured - self.limit;
        match self.passed {
            true => Ok(()),
            false if off > 0.0 => write!(f, ", {} too much", Figure(off)),
            false => write!(f, ", {} too little", Figure(-off)),
        }
    }
}

/// Formats counts without decimals and shares with four.
struct Figure(f64);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.fract() == 0.0 { write!(f, "{}", self.0) } else { write!(f, "{:.4}", self.0) }
    }
}

/// All bars; the ratio only with a reference.
pub(super) fn checks(result: &LoadResult) -> Vec<LoadCheck> {
    let most = BASE_KB + PER_DEVICE_KB * result.options.devices as u64;
    let peak = result.peak_rss_kb.overall.map(|kb| kb as f64);
    let mut checks = vec![
        LoadCheck::new("accepted", Bound::Exactly, result.expected as f64, Some(result.accepted as f64)),
        LoadCheck::new("peak_rss_kb", Bound::AtMost, most as f64, peak),
        LoadCheck::new("peak_growth", Bound::AtMost, GROWTH, growth(result)),
    ];
    if let Some(reference) = &result.reference {
        checks.push(LoadCheck::new("ratio", Bound::AtLeast, RATIO, Some(reference.ratio)));
    }
    checks
}

/// Growth from the first round to the last; `None` with one round.
fn growth(result: &LoadResult) -> Option<f64> {
    let [first, .., last] = &*result.rounds else { return None };
    let (first, last) = (first.peak_rss_kb? as f64, last.peak_rss_kb? as f64);
    Some((last - first) / first)
}

/// The missed bars as text.
#[derive(Clone, PartialEq, Debug)]
pub struct MissedChecks(pub Vec<LoadCheck>);

impl fmt::Display for MissedChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, check) in self.0.iter().enumerate() {
            let between = if index > 0 { "; " } else { "" };
            write!(f, "{between}{check}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::result, *};

    /// Four devices in three rounds that meet every bar exactly.
    fn just_enough() -> LoadResult {
        let mut result = result(&[4, 4, 4]);
        result.peak_rss_kb.overall = Some((64 << 10) + 4 * 80);
        for (round, peak) in result.rounds.iter_mut().zip([1000, 2000, 1050]) {
            round.peak_rss_kb = Some(peak);
        }
        if let Some(reference) = &mut result.reference {
            reference.ratio = 0.6;
        }
        result
    }

    fn missed(result: &LoadResult) -> Vec<(&'static str, String)> {
        let checks = checks(result);
        let missed = checks.iter().filter(|check| !check.passed);
        missed.map(|check| (check.name, check.to_string())).collect()
    }

    #[test]
    fn a_value_equal_to_its_limit_passes() {
        let names: Vec<_> = checks(&just_enough()).iter().map(|check| check.name).collect();
        assert_eq!(names, ["accepted", "peak_rss_kb", "peak_growth", "ratio"]);
        assert_eq!(missed(&just_enough()), []);
    }

    #[test]
    fn a_missed_bar_is_reported_with_the_difference() {
        let mut heavy = just_enough();
        heavy.peak_rss_kb.overall = heavy.peak_rss_kb.overall.map(|kb| kb + 1);
        let wanted = "peak_rss_kb is 65857 (at most 65856 wanted), 1 too much".to_owned();
        assert_eq!(missed(&heavy), [("peak_rss_kb", wanted)]);

        let mut growing = just_enough();
        growing.rounds[2].peak_rss_kb = Some(1080);
        let wanted = "peak_growth is 0.0800 (at most 0.0500 wanted), 0.0300 too much".to_owned();
        assert_eq!(missed(&growing), [("peak_growth", wanted)]);

        let mut slow = just_enough();
        slow.reference.as_mut().unwrap().ratio = 0.55;
        let wanted = "ratio is 0.5500 (at least 0.6000 wanted), 0.0500 too little".to_owned();
        assert_eq!(missed(&slow), [("ratio", wanted)]);

        let mut fewer = just_enough();
        fewer.accepted -= 3;
        assert_eq!(missed(&fewer), [("accepted", "accepted is 9 (12 wanted), 3 too little".to_owned())]);
    }

    #[test]
    fn a_bar_without_a_measurement_is_not_passed() {
        let mut blind = just_enough();
        blind.peak_rss_kb.overall = None;
        blind.rounds[0].peak_rss_kb = None;
        blind.reference.as_mut().unwrap().ratio = f64::NAN;
        let names: Vec<_> = missed(&blind).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["peak_rss_kb", "peak_growth", "ratio"]);
        // Growth cannot be computed from one round.
        let mut short = just_enough();
        short.rounds.truncate(1);
        let wanted = "peak_growth was not measured (at most 0.0500 wanted)".to_owned();
        assert_eq!(missed(&short), [("peak_growth", wanted)]);
    }

    #[test]
    fn without_a_reference_there_is_no_ratio() {
        let mut alone = just_enough();
        alone.reference = None;
        assert!(checks(&alone).iter().all(|check| check.name != "ratio"));
    }
}
