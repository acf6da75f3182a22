//! Every device's loss as a dot, tier by tier, one row per strategy; a bar marks the tier's mean.

use plots::{
    frame::{Frame, canvas, line, text},
    markup::{Element, el},
    number::figure,
    scale::Scale,
};

use super::top_loss;
use crate::demo::{DemoResult, StrategyRun, TierSetup};

const WIDTH: f64 = 560.0;
const LEFT: f64 = 92.0;
const TOP: f64 = 34.0;
const RADIUS: f64 = 6.0;

fn height(result: &DemoResult, Spacing { row, gap }: Spacing) -> f64 {
    TOP + result.setup.tiers.len() as f64 * (result.runs.len() as f64 * row + gap) + 48.0
}

/// The plot on its own canvas.
pub fn strip(result: &DemoResult) -> Element {
    let StripPlot { width, height, about, parts } = strip_parts(result, Spacing::AIRY);
    canvas(width, height, &about).all(parts)
}

/// Height of a row of marks, and the gap between tiers.
#[derive(Copy, Clone, Debug)]
pub struct Spacing {
    row: f64,
    gap: f64,
}

impl Spacing {
    /// For pages.
    pub const AIRY: Self = Self { row: 38.0, gap: 30.0 };
    /// For pictures.
    pub const TIGHT: Self = Self { row: 25.0, gap: 14.0 };
}

/// The plot without its canvas, for pictures that have their own.
#[derive(Clone, Debug)]
pub struct StripPlot {
    /// Width of the canvas that it needs.
    pub width: f64,
    /// Height of the canvas that it needs.
    pub height: f64,
    /// Description for screen readers.
    pub about: String,
    /// The elements of the plot.
    pub parts: Vec<Element>,
}

/// The plot without a canvas.
pub fn strip_parts(result: &DemoResult, spacing: Spacing) -> StripPlot {
    let mut parts = body(result, spacing);
    parts.push(legend(result, LEFT, 14.0));
    StripPlot { width: WIDTH, height: height(result, spacing), about: about(result), parts }
}

fn body(result: &DemoResult, spacing: Spacing) -> Vec<Element> {
    let Spacing { row, gap } = spacing;
    let frame = Frame { left: LEFT, right: WIDTH - 16.0, top: TOP, bottom: height(result, spacing) - 48.0 };
    let x = Scale::linear((0.0, top_loss(result)), (frame.left, frame.right));
    let block = result.runs.len() as f64 * row + gap;
    let tier = |(tier, setup): (usize, &TierSetup)| {
        let top = TOP + tier as f64 * block + gap / 2.0;
        let units: u32 = setup.widths.iter().sum();
        let middle = top + result.runs.len() as f64 * row / 2.0;
        el("g")
            .with(text(14.0, middle, "start", &format!("Tier {tier}")).class("row"))
            .with(text(14.0, middle + 17.0, "start", &format!("{units} units")).class("tick"))
            .all(
                result
                    .runs
                    .iter()
                    .enumerate()
                    .map(|(index, run)| dots(index, run, tier, &x, top + (index as f64 + 0.5) * row)),
            )
    };
    let mut parts =
        vec![frame.columns(&x, &x.ticks(6)), frame.name_x("test loss of a device (cross-entropy, nats)")];
    parts.extend(result.setup.tiers.iter().enumerate().map(tier));
    parts
}

fn about(result: &DemoResult) -> String {
    let means = |run: &StrategyRun| run.loss_by_tier.iter().map(|tier| figure(tier.mean)).collect::<Vec<_>>();
    let runs = result.runs.iter().map(|run| format!("{}: {}", run.title, means(run).join(", ")));
    format!(
        "Test loss of every device by tier. Tier means, widest tier first. {}.",
        runs.collect::<Vec<_>>().join(". ")
    )
}

/// A legend of the strategies' marks.
pub fn legend(result: &DemoResult, x: f64, y: f64) -> Element {
    let entry = |(index, run): (usize, &StrategyRun)| {
        let x = x + index as f64 * 120.0;
        el("g").with(mark(index, x, y - 5.0)).with(text(x + 12.0, y, "start", run.title).class("axis"))
    };
    el("g").all(result.runs.iter().enumerate().map(entry))
}

/// The mark of a strategy. Marks differ in shape and filling, not only in colour.
fn mark(index: usize, x: f64, y: f64) -> Element {
    let class = format!("dot s{index}");
    if index == 0 {
        el("circle").class(class).at("cx", x).at("cy", y).at("r", RADIUS)
    } else {
        let r = RADIUS * 1.2;
        let path =
            format!("M{:.2} {y:.2}L{x:.2} {:.2}L{:.2} {y:.2}L{x:.2} {:.2}Z", x - r, y - r, x + r, y + r);
        el("path").class(class).set("d", path)
    }
}

fn dots(index: usize, run: &StrategyRun, tier: usize, x: &Scale, y: f64) -> Element {
    let mean = run.loss_by_tier[tier].mean;
    let at = x.at(mean);
    let bar = line(at, y - 11.0, at, y + 11.0).class(format_args!("mean s{index}"));
    let bar = bar.hint(format_args!("{}, tier {tier}: mean loss {}", run.title, figure(mean)));
    let members = run.devices.iter().filter(|device| device.tier == tier);
    let dot = members.map(|device| {
        let loss = device.test_loss.unwrap_or(device.loss_before);
        mark(index, x.at(loss), y).hint(format_args!(
            "{}, {}: loss {}",
            run.title,
            device.device,
            figure(loss)
        ))
    });
    el("g").all(dot).with(bar)
}
