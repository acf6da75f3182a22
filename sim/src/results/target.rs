//! What results hold of a fairness target: its knobs by round, and figures of the whole run.

use common::metrics::mean_variance;
use coordinator::report::{DeviceLine, RoundReport};
use serde::{Deserialize, Serialize};
use strategies::{
    fairness::{FairnessLine, FairnessStatus, Measure, SignalKind},
    strategy::FairnessScope,
};

use super::RoundScores;

/// Share of the rounds, at the end of a run, over which figures are taken.
const TAIL: usize = 3;

/// A knob in one round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KnobPoint {
    /// The parameter that is driven.
    pub parameter: String,
    /// Of a parameter per tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<usize>,
    /// The disparity that the fleet shall have at most.
    pub target: f64,
    /// The disparity, corrected and smoothed; absent before the first measurement.
    pub measured: Option<f64>,
    /// The estimate of its square, which may be slightly negative.
    pub squared: Option<f64>,
    /// The disparity of the losses of this round as they are.
    pub plain: Option<f64>,
    /// Of the parameter in this round.
    pub value: f64,
    /// Of the knob for the next round, from 0 to 1.
    pub position: f64,
    /// Mean loss as measured.
    pub mean: Option<f64>,
    /// Progress towards the target after this round.
    pub status: FairnessStatus,
}

/// A knob after the last round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TargetResult {
    /// Status and certificate.
    pub line: FairnessLine,
    /// The same as numbers, over the whole run.
    pub figures: TargetFigures,
}

/// Figures of a target over the run. Names of fields are names of figures; yes is 1 and no is 0.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TargetFigures {
    /// The disparity that the fleet shall have at most.
    pub target: f64,
    /// Root mean square of the measured disparity over the last third of the rounds.
    pub measured: f64,
    /// `measured / target - 1`
    pub error: f64,
    /// The same without its sign.
    pub miss: f64,
    /// Root mean square over the last window, divided by the target.
    pub end: f64,
    /// Highest measured disparity, divided by the target.
    pub peak: f64,
    /// Mean absolute step of the position over the last third.
    pub step: f64,
    /// 1 if the status after the last round is [`FairnessStatus::Met`].
    pub met: f64,
    /// 1 if it is [`FairnessStatus::NotReachable`].
    pub not_reachable: f64,
    /// Lowest disparity of a window at the end of the knob; absent: the knob was not there for a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<f64>,
    /// 1 if the certificate holds after the last round.
    pub certified: f64,
    /// It is certified, and the disparity lies above the bound.
    pub broken: f64,
    /// Root mean square since the ledger began, divided by the bound.
    pub of_bound: f64,
    /// How far the ledger's mean error is from the one added up by round.
    pub identity: f64,
    /// The disparity of the losses as they are over the last third, divided by `measured`.
    pub plain_ratio: f64,
    /// Position of the knob after the last round, from 0 to 1.
    pub position: f64,
    /// Value of the driven parameter in the last round.
    pub value: f64,
    /// Devices of the last round without a signal.
    pub unmeasured: f64,
}

impl KnobPoint {
    /// A line of a round's report.
    pub(crate) fn new(line: &FairnessLine, report: &RoundReport) -> Self {
        Self {
            parameter: line.parameter.clone(),
            tier: line.tier,
            target: line.target,
            measured: line.measured,
            squared: line.squared,
            plain: plain(line, &report.devices),
            value: line.value,
            position: line.position,
            mean: line.mean,
            status: line.status,
        }
    }
}

/// The disparity of the losses of a round, without smoothing and correction.
fn plain(line: &FairnessLine, devices: &[DeviceLine]) -> Option<f64> {
    let signal = |device: &DeviceLine| match line.signal {
        SignalKind::Validation => device.validation_loss,
        SignalKind::Training => Some(device.loss_before),
        SignalKind::Gap => device.gap,
    };
    let of = |wanted: Option<usize>| -> Vec<f64> {
        let own = devices.iter().filter(|device| wanted.is_none_or(|tier| device.tier == tier));
        own.filter_map(signal).collect()
    };
    let losses = match line.scope {
        FairnessScope::Tiers => {
            let tiers = devices.iter().map(|device| device.tier + 1).max()?;
            let heard = (0..tiers).map(|tier| of(Some(tier))).filter(|losses| !losses.is_empty());
            heard.map(|losses| mean_variance(&losses).0).collect()
        }
        FairnessScope::Devices => of(None),
        FairnessScope::Inside => of(line.tier),
    };
    let (mean, variance) = mean_variance(&losses);
    let count = losses.len() as f64;
    // Devices are a sample, tiers are all there are.
    let unbiased = if line.scope == FairnessScope::Tiers { 1.0 } else { count / (count - 1.0) };
    let deviation = (variance * unbiased).max(0.0).sqrt();
    let disparity = if line.measure == Measure::Cv { deviation / mean } else { deviation };
    disparity.is_finite().then_some(disparity)
}

impl TargetResult {
    /// The knobs after the last round, with figures over all rounds.
    pub(crate) fn all(lines: &[FairnessLine], rounds: &[RoundScores]) -> Vec<Self> {
        let of = |(number, line): (usize, &FairnessLine)| {
            let points: Vec<&KnobPoint> =
                rounds.iter().filter_map(|round| round.fairness.get(number)).collect();
            Self { figures: TargetFigures::of(line, &points), line: line.clone() }
        };
        lines.iter().enumerate().map(of).collect()
    }
}

impl TargetFigures {
    fn of(line: &FairnessLine, points: &[&KnobPoint]) -> Self {
        let target = line.target;
        let late = &points[points.len() - points.len().div_ceil(TAIL)..];
        let squares = |points: &[&KnobPoint]| mean(points.iter().filter_map(|point| point.squared));
        let measured = squares(late).max(0.0).sqrt();
        let plain = mean(late.iter().filter_map(|point| point.plain).map(|plain| plain * plain)).sqrt();
        let steps = late.windows(2).map(|pair| (pair[1].position - pair[0].position).abs());
        let peak = points.iter().filter_map(|point| point.measured).fold(0.0, f64::max);
        let seen: Vec<f64> = points.iter().filter_map(|point| point.squared).collect();
        let ledger = &seen[seen.len().saturating_sub(line.ledger.rounds as usize)..];
        let rms = mean(ledger.iter().map(|squared| squared.max(0.0))).sqrt();
        let raw = mean(ledger.iter().map(|squared| squared / (target * target) - 1.0));
        let bound = line.bound.unwrap_or(f64::INFINITY);
        let number = f64::from;
        Self {
            target,
            measured,
            error: measured / target - 1.0,
            miss: (measured / target - 1.0).abs(),
            end: line.window_rms.unwrap_or(0.0) / target,
            peak: peak / target,
            step: mean(steps),
            met: number(line.status == FairnessStatus::Met),
            not_reachable: number(line.status == FairnessStatus::NotReachable),
            reached: line.reached,
            certified: number(line.certified),
            broken: number(line.certified && rms > bound),
            of_bound: rms / bound,
            identity: line.mean_error.map_or(0.0, |error| (error - raw).abs()),
            plain_ratio: if measured > 0.0 { plain / measured } else { 0.0 },
            position: line.position,
            value: line.value,
            unmeasured: line.unmeasured as f64,
        }
    }
}

/// 0 without values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
