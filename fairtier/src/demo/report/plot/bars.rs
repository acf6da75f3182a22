//! Mean accuracy of the devices of each tier, and of all.

use common::metrics::Summary;
use plots::{
    frame::{Frame, canvas, text},
    markup::{Element, el},
    number::percent,
    scale::Scale,
};

use super::strip::legend;
use crate::demo::{DemoResult, StrategyRun};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const FRAME: Frame = Frame { left: 44.0, right: WIDTH - 16.0, top: 40.0, bottom: HEIGHT - 48.0 };

/// Bars of the mean accuracy, by tier and strategy.
pub fn bars(result: &DemoResult) -> Element {
    let y = Scale::linear((0.0, 100.0), (FRAME.bottom, FRAME.top));
    let tiers = result.setup.tiers.len();
    let group = (FRAME.right - FRAME.left) / (tiers + 1) as f64;
    let bar = (group * 0.78) / result.runs.len().max(1) as f64;
    let groups = (0..=tiers).map(|at| {
        let name = if at < tiers { format!("Tier {at}") } else { "All".into() };
        let left = FRAME.left + at as f64 * group + group * 0.11;
        let columns = result.runs.iter().enumerate().map(|(index, run)| {
            let accuracy = of(run, at).mean;
            let (x, top) = (left + index as f64 * bar, y.at(100.0 * accuracy));
            el("g")
                .with(
                    el("rect")
                        .class(format_args!("bar s{index}"))
                        .at("x", x + 1.0)
                        .at("y", top)
                        .at("width", bar - 2.0)
                        .at("height", FRAME.bottom - top)
                        .hint(format_args!("{}, {name}: accuracy {}", run.title, percent(accuracy))),
                )
                .with(
                    text(x + bar / 2.0, top - 5.0, "middle", &format!("{:.0}", 100.0 * accuracy))
                        .class("value"),
                )
        });
        el("g")
            .all(columns)
            .with(text(left + group * 0.39, FRAME.bottom + 17.0, "middle", &name).class("row"))
    });
    canvas(WIDTH, HEIGHT, &about(result))
        .with(legend(result, FRAME.left + 6.0, 14.0))
        .with(FRAME.rows(&y, &y.ticks(5)))
        .all(groups)
        .with(FRAME.name_x("mean test accuracy, percent"))
}

fn of(run: &StrategyRun, at: usize) -> &Summary {
    run.accuracy_by_tier.get(at).unwrap_or(&run.accuracy)
}

fn about(result: &DemoResult) -> String {
    let tiers = result.setup.tiers.len();
    let of = |run| (0..=tiers).map(|at| percent(of(run, at).mean)).collect::<Vec<_>>().join(", ");
    let runs = result.runs.iter().map(|run| format!("{}: {}", run.title, of(run)));
    format!("Test accuracy of tiers, widest first, then of all. {}.", runs.collect::<Vec<_>>().join(". "))
}
