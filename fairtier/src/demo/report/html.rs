//! The report as one self-contained page: no network, no script.
//!
//! `target` has the section on the fairness target and the seeds, `setup` the last section.

mod setup;
mod target;

use plots::{
    PLOT_STYLE, STYLE,
    markup::{Element, el},
    number,
};

use super::{
    plot,
    rows::{self, COLUMNS, ComparedGroup},
};
use crate::demo::{BaselineChange, DemoResult, Setup, StrategyRun, change};

/// A complete HTML document.
pub fn html(result: &DemoResult) -> String {
    page(
        result,
        "FairTier: HeteroFL and a fairness target on the same fleet",
        setup::section(result),
        "Written by fairtier demo. Numbers of this page are those of fairtier demo --format json; hover over a mark to read it.",
    )
}

/// The page that compares two runs. The caller provides the last section and the footer.
pub(super) fn page(result: &DemoResult, title: &str, last: Element, footer: &str) -> String {
    let head = el("head")
        .with(el("meta").set("charset", "utf-8"))
        .with(el("meta").set("name", "viewport").set("content", "width=device-width, initial-scale=1"))
        .with(el("title").text(title))
        .with(el("style").text(PLOT_STYLE).text(STYLE));
    let main = el("main")
        .with(header(result))
        .with(cards(result))
        .all(target::section(result))
        .all(target::seeds(result))
        .all(target::minority(result))
        .with(devices(result))
        .with(rounds(result))
        .with(comparison(result))
        .with(last)
        .with(el("footer").text(footer));
    let page = el("html").set("lang", "en").with(head).with(el("body").with(main));
    format!("<!DOCTYPE html>\n{page}\n")
}

fn header(result: &DemoResult) -> Element {
    let Setup { devices, tiers, rounds, seed, .. } = &result.setup;
    let lead = format!(
        "{devices} devices in {} tiers of hardware trained one model for {rounds} rounds, each the widest slice its memory holds: \
         once with HeteroFL and once with FairTier's default, FairHeteroFL, from the same start, on the same data (seed {seed}).",
        tiers.len()
    );
    let header = el("header")
        .with(el("h1").text("Fair federated learning on unequal devices"))
        .with(el("p").class("lead").text(lead));
    header.all(result.changes.iter().map(|change| el("p").text(verdict(change))))
}

/// A summary of the result in sentences.
fn verdict(change: &BaselineChange) -> String {
    let moved = |what: &str, by: f64| match number::change(by) {
        same if same.starts_with('±') => format!("{what} is the same"),
        by if by.starts_with('−') => format!("{what} is {} lower", by.trim_start_matches('−')),
        by => format!("{what} is {} higher", by.trim_start_matches('+')),
    };
    let pays: Vec<String> = change
        .mean_by_tier
        .iter()
        .enumerate()
        .filter(|&(_, &by)| by > 0.0005)
        .map(|(tier, &by)| format!("tier {tier} ({})", number::change(by)))
        .collect();
    let price = if pays.is_empty() {
        "No tier has a higher mean loss than before.".into()
    } else {
        format!("A higher mean loss than before: {}.", pays.join(", "))
    };
    format!(
        "With FairTier the variance of test losses over devices {}, {}, and {}. {price}",
        moved("", change.variance).trim_start(),
        moved("the mean loss", change.mean),
        moved("the loss of the worst 10 %", change.worst10),
    )
}

fn cards(result: &DemoResult) -> Element {
    let [base, .., last] = &result.runs[..] else { return el("section") };
    let relative = |title, old: f64, new: f64, note| {
        let by = change(old, new);
        card(title, &number::change(by), false, &number::figure(old), &number::figure(new), note)
    };
    let points = last.accuracy.mean - base.accuracy.mean;
    el("section").class("cards").set("aria-label", "Summary").all([
        relative("Variance over devices", base.loss.variance, last.loss.variance, "lower is fairer"),
        relative("Worst 10 % of devices", base.loss.worst10, last.loss.worst10, "loss; lower is better"),
        relative("Mean loss", base.loss.mean, last.loss.mean, "lower is better"),
        card(
            "Mean accuracy",
            &number::points(points),
            true,
            &number::percent(base.accuracy.mean),
            &number::percent(last.accuracy.mean),
            "higher is better",
        ),
    ])
}

fn card(title: &str, big: &str, high: bool, from: &str, to: &str, note: &str) -> Element {
    el("div")
        .class("card")
        .with(el("h3").text(title))
        .with(el("p").class(format_args!("big {}", tone(big, high))).text(big))
        .with(el("p").text(format_args!("{from} → {to}")))
        .with(el("p").class("soft").text(note))
}

/// `good`, `bad` or neither. `high`: higher values are better.
pub(super) fn tone(change: &str, high: bool) -> &'static str {
    match change.chars().next() {
        Some('−') if !high => "good",
        Some('+') if high => "good",
        Some('−' | '+') => "bad",
        _ => "soft",
    }
}

fn devices(result: &DemoResult) -> Element {
    let figure = |plot: Element, caption: &str| el("figure").with(plot).with(el("figcaption").text(caption));
    el("section")
        .set("aria-labelledby", "devices")
        .with(el("h2").set("id", "devices").text("How the final model serves each device"))
        .with(el("p").text(match result.setup.minority {
            None => {
                "Each device scores its sub-model on samples it has not trained on. \
                 Device k of every tier holds the same classes, so rows differ by hardware, not by data."
            }
            Some(_) => {
                "Each device scores its sub-model on samples it has not trained on. \
                 Device k of every tier holds the same classes, except for the device with classes of its own."
            }
        }))
        .with(
            el("div")
                .class("pair")
                .with(figure(plot::strip(result), "One mark per device; the bar is the mean of the tier."))
                .with(
                    el("div")
                        .class("pair")
                        .with(figure(plot::histogram(result), "Number of devices by loss."))
                        .with(figure(plot::bars(result), "Mean test accuracy of the devices, by tier.")),
                ),
        )
}

fn rounds(result: &DemoResult) -> Element {
    el("section")
        .set("aria-labelledby", "rounds")
        .with(el("h2").set("id", "rounds").text("Loss by round"))
        .with(el("p").text(
            "Mean test loss of the devices of each tier, all with the same logarithmic axis, and the variance over all devices.",
        ))
        .with(line_legend(&result.runs))
        .with(el("div").class("panels").all(plot::curves(result)))
}

fn line_legend(runs: &[StrategyRun]) -> Element {
    let entry = |(index, run): (usize, &StrategyRun)| {
        let line = el("line").class(format_args!("curve s{index}"));
        let line = line.at("x1", 0.0).at("y1", 7.0).at("x2", 34.0).at("y2", 7.0);
        let sample = el("svg").set("viewBox", "0 0 34 14").set("aria-hidden", "true").with(line);
        el("li").with(sample).text(run.title)
    };
    el("ul").class("legend").all(runs.iter().enumerate().map(entry))
}

fn comparison(result: &DemoResult) -> Element {
    let columns = COLUMNS.iter().map(|(name, _)| el("th").set("scope", "col").text(name));
    let head = el("tr")
        .with(el("th").set("scope", "col").class("left").text("Devices"))
        .with(el("th").set("scope", "col").class("left").text("Strategy"))
        .all(columns);
    let table = el("table")
        .with(el("thead").with(head))
        .all(rows::groups(result).iter().map(|group| body(result, group)))
        .all(rows::split(result).iter().map(|single| split(result, single)));
    el("section")
        .set("aria-labelledby", "table")
        .with(el("h2").set("id", "table").text("All figures"))
        .with(el("p").text(
            "Test losses in nats (natural logarithm). Worst and best 10 % are means over the devices at either end, at least one. \
             Variances have divisor N.",
        ))
        .with(el("div").class("scroll").set("tabindex", 0).set("role", "region").set("aria-label", "All figures").with(table))
}

fn body(result: &DemoResult, group: &ComparedGroup) -> Element {
    let extra = group.lines.len().saturating_sub(1);
    let mut name = Some(
        el("th")
            .set("scope", "rowgroup")
            .set("rowspan", group.lines.len() + extra)
            .text(&group.name)
            .with(el("br"))
            .with(el("span").class("unit").text(&group.detail)),
    );
    let lines = result.runs.iter().zip(&group.lines).map(|(run, line)| {
        let cells = line.iter().zip(COLUMNS).map(|(&value, (_, share))| {
            let text = if share { number::percent(value) } else { number::figure(value) };
            cell(value).text(text)
        });
        el("tr").all(name.take()).with(el("th").set("scope", "row").text(run.title)).all(cells)
    });
    let mut rows: Vec<Element> = lines.collect();
    if let Some((base, others)) = group.lines.split_first() {
        rows.extend(others.iter().map(|line| {
            let cells = rows::changes(base, line).into_iter().zip(COLUMNS).map(|(by, (_, share))| {
                let text = if share { number::points(by) } else { number::change(by) };
                cell(by).class(tone(&text, share)).text(text)
            });
            el("tr").class("change").with(el("th").set("scope", "row").text("change")).all(cells)
        }));
    }
    el("tbody").class(if group.name == "All" { "total" } else { "tier" }).all(rows)
}

fn split(result: &DemoResult, single: &rows::FleetFigure) -> Element {
    let Some((&base, others)) = single.values.split_first() else { return el("tbody") };
    let name = el("th").set("scope", "rowgroup").set("rowspan", single.values.len() + others.len());
    let mut name = Some(name.text(single.name));
    let mut row = |title: &str, cell: Element| {
        el("tr")
            .all(name.take())
            .with(el("th").set("scope", "row").text(title))
            .with(el("td").set("colspan", 3))
            .with(cell)
            .with(el("td"))
    };
    let values = result.runs.iter().zip(&single.values);
    let values = values.map(|(run, &value)| row(run.title, cell(value).text(number::figure(value))));
    let mut rows: Vec<Element> = values.collect();
    for &value in others {
        let by = change(base, value);
        let text = number::change(by);
        rows.push(row("change", cell(by).class(format_args!("{} strong", tone(&text, false))).text(text)));
    }
    el("tbody").all(rows)
}

/// A cell that also carries the unrounded number.
pub(super) fn cell(value: f64) -> Element {
    el("td").set("data-value", value)
}
