//! The target by round: the disparity of both runs, and the knob; and what each tier gains or pays.

use plots::{
    frame::{Frame, canvas, line, text},
    markup::{Element, el},
    number::{change, figure},
    scale::{Scale, label},
};

use crate::demo::{DemoResult, DisparityPoint};

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 220.0;
const FRAME: Frame = Frame { left: 44.0, right: WIDTH - 12.0, top: 30.0, bottom: HEIGHT - 42.0 };
/// Most points that a line of this width can show.
const POINTS: usize = 100;

/// Disparity by round with the target; `None` without a target.
pub fn disparity(result: &DemoResult) -> Option<Element> {
    let target = result.runs.last()?.target.as_ref()?;
    let values = result.runs.iter().flat_map(|run| run.disparity.iter().filter_map(|point| point.measured));
    let y = upwards(values.fold(target.target, f64::max));
    let at = y.at(target.target);
    let curves = result.runs.iter().enumerate().map(|(index, run)| {
        let end = run.disparity.last().and_then(|point| point.measured).map_or_else(|| "–".into(), figure);
        let points: Vec<(u32, f64)> =
            run.disparity.iter().filter_map(|point| Some((point.round, point.measured?))).collect();
        curve(result, index, &points, &y).hint(format_args!("{}: disparity {end} at the end", run.title))
    });
    let ends = result.runs.iter().filter_map(|run| {
        let measured = run.disparity.last()?.measured?;
        Some(format!("{} ends at {}", run.title, figure(measured)))
    });
    let about = format!(
        "Disparity between tiers by round; target {}: {}.",
        target.target,
        ends.collect::<Vec<_>>().join(", ")
    );
    Some(panel(result, "Disparity between tiers", &about, &y).all(curves).with(
        line(FRAME.left, at, FRAME.right, at).class("front").hint(format_args!("target {}", target.target)),
    ))
}

/// The driven parameter by round; `None` without a target.
pub fn knob(result: &DemoResult) -> Option<Element> {
    let (index, run) = result.runs.iter().enumerate().next_back()?;
    let target = run.target.as_ref()?;
    let y = Scale::linear((0.0, target.most.max(1e-6)), (FRAME.bottom, FRAME.top));
    let points: Vec<(u32, f64)> =
        run.disparity.iter().map(|&DisparityPoint { round, knob, .. }| (round, knob)).collect();
    let last = points.last().map_or_else(|| "–".into(), |&(_, knob)| figure(knob));
    let title = format!("Knob: {}, at most {}", target.parameter, label(target.most));
    let about = format!("{} by round, between 0 and {}: {last} at the end.", target.parameter, target.most);
    let curve =
        curve(result, index, &points, &y).hint(format_args!("{} {last} at the end", target.parameter));
    Some(panel(result, &title, &about, &y).with(curve))
}

/// Change of the mean loss of each tier. Bars to the left gain, bars to the right pay.
pub fn gains(result: &DemoResult) -> Element {
    let tiers = result.changes.first().map_or(&[][..], |change| &change.mean_by_tier);
    let finite = tiers.iter().filter(|by| by.is_finite());
    let top = 1.8 * finite.fold(0.01, |top: f64, by| top.max(by.abs()));
    let x = Scale::linear((-top, top), (FRAME.left, FRAME.right));
    let row = (FRAME.bottom - FRAME.top) / tiers.len().max(1) as f64;
    let index = result.runs.len().saturating_sub(1);
    let bars = tiers.iter().enumerate().map(|(tier, &by)| {
        let (zero, end) = (x.at(0.0), x.at(if by.is_finite() { by } else { 0.0 }));
        let y = FRAME.top + (tier as f64 + 0.5) * row;
        let (anchor, place) = if by < 0.0 { ("end", end - 4.0) } else { ("start", end + 4.0) };
        let bar = el("rect")
            .class(format_args!("bar s{}", if by < 0.0 { index } else { 0 }))
            .at("x", zero.min(end))
            .at("y", y - row * 0.3)
            .at("width", (end - zero).abs())
            .at("height", row * 0.6)
            .hint(format_args!("tier {tier}: mean loss {}", change(by)));
        el("g")
            .with(bar)
            .with(text(FRAME.left - 6.0, y + 4.0, "end", &format!("Tier {tier}")).class("tick"))
            .with(text(place, y + 4.0, anchor, &change(by)).class("value"))
    });
    let named = tiers.iter().enumerate().map(|(tier, &by)| format!("tier {tier} {}", change(by)));
    let about = format!("Change of the mean test loss by tier: {}.", named.collect::<Vec<_>>().join(", "));
    let zero = x.at(0.0);
    canvas(WIDTH, HEIGHT, &about)
        .with(text(FRAME.left, 17.0, "start", "Who gains, who pays").class("panel"))
        .with(line(zero, FRAME.top, zero, FRAME.bottom).class("zero"))
        .all(bars)
        .with(text(FRAME.left, FRAME.bottom + 17.0, "start", "← gains").class("tick"))
        .with(text(FRAME.right, FRAME.bottom + 17.0, "end", "pays →").class("tick"))
        .with(FRAME.name_x("mean test loss against HeteroFL"))
}

/// From 0 to a little above a number.
fn upwards(top: f64) -> Scale {
    Scale::linear((0.0, 1.1 * top.max(1e-6)), (FRAME.bottom, FRAME.top))
}

fn rounds(result: &DemoResult) -> Scale {
    Scale::linear((0.0, f64::from(result.setup.rounds)), (FRAME.left, FRAME.right))
}

/// An empty panel with axes.
fn panel(result: &DemoResult, title: &str, about: &str, y: &Scale) -> Element {
    let x = rounds(result);
    let whole = x.ticks(4).into_iter().filter(|tick| tick.fract() == 0.0).collect::<Vec<_>>();
    canvas(WIDTH, HEIGHT, about)
        .with(text(FRAME.left, 17.0, "start", title).class("panel"))
        .with(FRAME.rows(y, &y.ticks(4)))
        .with(FRAME.columns(&x, &whole))
        .with(FRAME.name_x("round"))
}

fn curve(result: &DemoResult, index: usize, points: &[(u32, f64)], y: &Scale) -> Element {
    let x = rounds(result);
    let (stride, last) = (points.len().div_ceil(POINTS).max(1), points.len().saturating_sub(1));
    let shown = points.iter().enumerate().filter(|(at, _)| at % stride == 0 || *at == last);
    let place =
        |(_, &(round, value)): (usize, &(u32, f64))| format!("{:.1},{:.1}", x.at(round.into()), y.at(value));
    let points: Vec<String> = shown.map(place).collect();
    el("polyline").class(format_args!("curve s{index}")).set("points", points.join(" "))
}
