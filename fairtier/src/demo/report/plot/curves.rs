//! Loss by round: one small panel per tier with the same axes, and one for the variance.

use plots::{
    frame::{Frame, canvas, text},
    markup::{Element, el},
    number::figure,
    scale::Scale,
};

use crate::demo::{CurvePoint, DemoResult, StrategyRun};

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 220.0;
/// Most points that a line of this width can show.
const POINTS: usize = 100;
const FRAME: Frame = Frame { left: 44.0, right: WIDTH - 12.0, top: 30.0, bottom: HEIGHT - 42.0 };

/// Reads the shown value of a point.
type Read<'a> = &'a dyn Fn(&CurvePoint) -> f64;

/// A panel for each tier, widest first, and one for the variance over devices.
pub fn curves(result: &DemoResult) -> Vec<Element> {
    let tiers = result.setup.tiers.len();
    let of_tier = |tier: usize| move |point: &CurvePoint| point.loss_by_tier[tier];
    let all = (0..tiers).map(|tier| domain(result, &of_tier(tier)));
    let shared = all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0.1, 1.0));
    let mut panels: Vec<Element> = result
        .setup
        .tiers
        .iter()
        .enumerate()
        .map(|(tier, setup)| {
            let units: u32 = setup.widths.iter().sum();
            panel(result, &format!("Tier {tier}: {units} hidden units"), "Mean loss", &of_tier(tier), shared)
        })
        .collect();
    let variance = |point: &CurvePoint| point.variance;
    let own = domain(result, &variance);
    panels.push(panel(result, "All devices: variance", "Variance", &variance, own));
    panels
}

fn panel(result: &DemoResult, title: &str, what: &str, read: Read<'_>, domain: (f64, f64)) -> Element {
    let rounds = f64::from(result.setup.rounds);
    let x = Scale::linear((0.0, rounds), (FRAME.left, FRAME.right));
    let y = Scale::log(domain, (FRAME.bottom, FRAME.top));
    let ends: Vec<String> = result
        .runs
        .iter()
        .filter_map(|run| Some(format!("{} ends at {}", run.title, figure(read(run.curve.last()?)))))
        .collect();
    let about = format!("{title}. {what} by round, logarithmic: {}.", ends.join(", "));
    let whole = x.ticks(4).into_iter().filter(|tick| tick.fract() == 0.0).collect::<Vec<_>>();
    canvas(WIDTH, HEIGHT, &about)
        .with(text(FRAME.left, 17.0, "start", title).class("panel"))
        .with(FRAME.rows(&y, &y.ticks(6)))
        .with(FRAME.columns(&x, &whole))
        .with(FRAME.name_x("rounds"))
        .all(result.runs.iter().enumerate().map(|(index, run)| curve(index, run, what, read, &x, &y)))
}

fn curve(index: usize, run: &StrategyRun, what: &str, read: Read<'_>, x: &Scale, y: &Scale) -> Element {
    let stride = run.curve.len().div_ceil(POINTS).max(1);
    let last = run.curve.len().saturating_sub(1);
    let shown = run.curve.iter().enumerate().filter(|(at, _)| at % stride == 0 || *at == last);
    let point = |(_, point): (usize, &CurvePoint)| {
        format!("{:.1},{:.1}", x.at(point.rounds.into()), y.at(read(point)))
    };
    let points: Vec<String> = shown.map(point).collect();
    let end = run.curve.last().map_or(f64::NAN, read);
    el("polyline").class(format_args!("curve s{index}")).set("points", points.join(" ")).hint(format_args!(
        "{}: {} {} at the end",
        run.title,
        what.to_lowercase(),
        figure(end)
    ))
}

/// The smallest and the largest positive number of the panel.
fn domain(result: &DemoResult, read: Read<'_>) -> (f64, f64) {
    let values = result.runs.iter().flat_map(|run| run.curve.iter().map(read));
    let values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    if low < high { (low * 0.9, high * 1.1) } else { (0.1, 1.0) }
}
