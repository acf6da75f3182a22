//! Number of devices by loss: the baseline above the axis, the other strategy below.

use plots::{
    frame::{Frame, canvas, line, text},
    markup::{Element, el},
    number::figure,
    scale::{Scale, label, step},
};

use super::{losses, top_loss};
use crate::demo::{DemoResult, StrategyRun};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const FRAME: Frame = Frame { left: 44.0, right: WIDTH - 16.0, top: 14.0, bottom: HEIGHT - 48.0 };
/// Approximate number of bins.
const BINS: f64 = 12.0;

/// The histogram of the baseline and of the last run.
pub fn histogram(result: &DemoResult) -> Element {
    let top = top_loss(result);
    let width = step(top / BINS);
    let bins = (top / width).ceil().max(1.0) as usize;
    let end = width * bins as f64;
    let x = Scale::linear((0.0, end), (FRAME.left, FRAME.right));
    let [base, others @ ..] = &result.runs[..] else { return canvas(WIDTH, HEIGHT, "No results.") };
    let Some(other) = others.last() else { return canvas(WIDTH, HEIGHT, "Nothing to compare.") };
    let counts = [count(base, width, bins), count(other, width, bins)];
    let most = counts.iter().flatten().copied().max().unwrap_or(1).max(1) as f64;
    let middle = (FRAME.top + FRAME.bottom) / 2.0;
    let unit = (FRAME.bottom - FRAME.top) / 2.0 / (most + 0.5);
    let sides = [(base, -1.0, 0), (other, 1.0, result.runs.len() - 1)];
    let bars = sides.into_iter().zip(&counts).flat_map(|((run, side, index), counts)| {
        let x = &x;
        counts.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(bin, &count)| {
            let (low, high) = (bin as f64 * width, (bin + 1) as f64 * width);
            let tall = count as f64 * unit;
            let y = if side < 0.0 { middle - tall } else { middle };
            el("rect")
                .class(format_args!("bar s{index}"))
                .at("x", x.at(low) + 1.5)
                .at("y", y)
                .at("width", x.at(high) - x.at(low) - 3.0)
                .at("height", tall)
                .hint(format_args!(
                    "{}: {count} devices with a loss of {} to {}",
                    run.title,
                    label(low),
                    label(high)
                ))
        })
    });
    let ruler = step(most / 2.0).max(1.0);
    let rungs = (0..=(most / ruler) as u32).flat_map(|rung| {
        let devices = f64::from(rung) * ruler;
        [middle - devices * unit, middle + devices * unit].map(|y| {
            el("g")
                .with(line(FRAME.left, y, FRAME.right, y).class("grid"))
                .with(text(FRAME.left - 6.0, y + 4.0, "end", &label(devices)).class("tick"))
        })
    });
    canvas(WIDTH, HEIGHT, &about(base, other))
        .all(rungs)
        .with(FRAME.columns(&x, &x.ticks(6)))
        .all(bars)
        .with(line(FRAME.left, middle, FRAME.right, middle).class("zero"))
        .with(text(FRAME.right, FRAME.top + 14.0, "end", &format!("{} ↑ devices", base.title)).class("axis"))
        .with(
            text(FRAME.right, FRAME.bottom - 6.0, "end", &format!("{} ↓ devices", other.title)).class("axis"),
        )
        .with(FRAME.name_x("test loss of a device (cross-entropy, nats)"))
}

fn count(run: &StrategyRun, width: f64, bins: usize) -> Vec<usize> {
    let mut counts = vec![0; bins];
    for loss in losses(run).filter(|loss| loss.is_finite()) {
        let bin = ((loss / width) as usize).min(bins - 1);
        if let Some(count) = counts.get_mut(bin) {
            *count += 1;
        }
    }
    counts
}

fn about(base: &StrategyRun, other: &StrategyRun) -> String {
    let [from, to] = [base, other].map(|run| {
        format!("{} spreads ±{} around {}", run.title, figure(run.loss.std), figure(run.loss.mean))
    });
    format!("Number of devices by test loss. {from}; {to}.")
}
