//! One round: who was heard how much, what the guard found, where the time and the bytes went.

use common::Code;
use plots::{
    columns::{ColumnSeries, Columns},
    markup::{Element, el},
    number::{bytes, figure, percent, seconds},
};

use super::{
    RoundPage,
    parts::{
        Column, Part, cell, count, device_link, fact, number, pager, plot, row_head, row_link, shown, table,
    },
    what_if,
};
use crate::http::{history::Report, view::View};

/// Devices of a page.
const ROWS: usize = 100;
/// Findings that are listed.
const FINDINGS: usize = 100;

pub(super) fn parts(view: &View<'_>, page: &RoundPage) -> Vec<Part> {
    let Some(report) = &page.report else {
        let none = el("p").text(format_args!("There is no report of round {}.", page.round));
        return vec![Part::fixed("unknown", "Not found", [none])];
    };
    let report = &report.0;
    let mut parts = vec![
        Part::fixed("facts", "The round", [facts(view, report)]),
        Part::fixed("weights", "Who was heard how much", [weights_by_tier(report), weights(report, page)]),
        Part::fixed("guard", "Guard findings", [findings(report)]),
        Part::fixed("missing", "Who was not heard", [missing(report)]),
    ];
    let what_if = if page.recorded {
        what_if::show(view, page, report)
    } else {
        vec![el("p").text("This round is not recorded. With store.record = true, each later round is.")]
    };
    parts.push(Part::fixed("what-if", "What another strategy would have done", what_if));
    parts
}

fn facts(view: &View<'_>, report: &Report) -> Element {
    let phase = view.phases.iter().find(|times| times.round == report.round);
    let time = |millis: u64| seconds(millis as f64 / 1000.0);
    let phases = phase.map_or(
        "not measured: it is kept for the last 512 rounds since the gateway was started".to_owned(),
        |times| {
            format!(
                "waiting for devices {}, opening {}, collecting {}, combining {}",
                time(times.gathering.as_millis()),
                time(times.opening.as_millis()),
                time(times.collecting.as_millis()),
                time(times.closing.as_millis())
            )
        },
    );
    let traffic = report.traffic.unwrap_or_default();
    let kept = report.kept.map_or("the model was changed".to_owned(), |number| {
        let why = Code::of(number).map_or(format!("E{number:02}"), |code| code.to_string());
        format!("the model is unchanged: {why}")
    });
    let knobs = report.fairness.iter().map(|line| {
        let (measured, target) = (shown(line.measured), figure(line.target));
        let (status, parameter) = (line.status.name().replace('_', " "), &line.parameter);
        let tier = line.tier.map_or(String::new(), |tier| format!("Inside tier {tier}: "));
        let value = figure(line.value);
        fact("Fairness target", format_args!("{tier}{measured} of {target}, {status}; {parameter} = {value}"))
    });
    el("dl")
        .all(
            [
                fact("Result", kept),
                fact("Time", report.seconds.map_or("–".into(), seconds)),
                fact("Time per phase", phases),
                fact("Mean loss", shown(report.loss.shown_mean())),
                fact("Mean accuracy", report.accuracy.shown_mean().map_or("–".into(), percent)),
                fact("Bytes from devices", bytes(traffic.up as f64)),
                fact("Bytes to devices", bytes(traffic.down as f64)),
                fact("Effective devices", shown(report.weights.and_then(|weights| weights.effective))),
            ]
            .into_iter()
            .flatten(),
        )
        .all(knobs.flatten())
}

fn weights_by_tier(report: &Report) -> Element {
    if report.weight_by_tier.is_empty() {
        return el("p")
            .text("This strategy gives no weights: it follows a direction, or the model was kept.");
    }
    let samples: u64 = report.devices.iter().map(|line| line.samples).sum();
    let share = |tier: usize| {
        let own: u64 = report.devices.iter().filter(|line| line.tier == tier).map(|line| line.samples).sum();
        if samples > 0 { 100.0 * own as f64 / samples as f64 } else { 0.0 }
    };
    let weights: Vec<f64> =
        report.weight_by_tier.iter().map(|weight| weight.map_or(f64::NAN, |weight| 100.0 * weight)).collect();
    let series = vec![
        ColumnSeries { index: 0, name: "weight", values: weights.clone() },
        ColumnSeries { index: 2, name: "samples", values: (0..weights.len()).map(share).collect() },
    ];
    let columns = Columns { title: "Weight and samples by tier", unit: "%", top: None, series };
    plot(columns.draw(), "Left: share of the weight. Right: share of the training samples.")
}

fn weights(report: &Report, page: &RoundPage) -> Element {
    let mut lines: Vec<_> = report.devices.iter().collect();
    lines.sort_by(|a, b| b.weight.unwrap_or(-1.0).total_cmp(&a.weight.unwrap_or(-1.0)));
    let pages = lines.len().div_ceil(ROWS).max(1);
    let at = page.page.clamp(1, pages);
    let columns = [
        Column::text("Device"),
        Column::number("Tier"),
        Column::number("Weight"),
        Column::number("Samples"),
        Column::number("Loss"),
        Column::number("Test accuracy"),
    ];
    let rows = lines.iter().skip((at - 1) * ROWS).take(ROWS).map(|line| {
        el("tr")
            .with(row_link(&device_link(&line.device), &line.device))
            .with(count(line.tier as u64))
            .with(number(line.weight))
            .with(count(line.samples))
            .with(number(line.loss()))
            .with(cell(line.test_accuracy.map_or("–".into(), percent)))
    });
    let caption = format!("{} devices, the heaviest first", lines.len());
    el("div")
        .with(table(&caption, &columns, rows))
        .with(pager("devices", at, pages, |to| format!("/round?number={}&page={to}", report.round)))
}

fn findings(report: &Report) -> Element {
    if report.guard.is_empty() {
        return el("p").text("None.");
    }
    let columns = [
        Column::text("Device"),
        Column::number("Tier"),
        Column::text("What"),
        Column::number("Reported"),
        Column::number("Counted"),
        Column::text("Why"),
    ];
    let rows = report.guard.iter().take(FINDINGS).map(|line| {
        el("tr")
            .with(row_link(&device_link(&line.device), &line.device))
            .with(count(line.tier as u64))
            .with(cell(&line.what).class("left"))
            .with(number(line.said))
            .with(number(line.counted))
            .with(cell(&line.why).class("left"))
    });
    let all = report.guard.len();
    let caption =
        if all > FINDINGS { format!("The first {FINDINGS} of {all}") } else { format!("{all} findings") };
    table(&caption, &columns, rows)
}

fn missing(report: &Report) -> Element {
    if report.silent.is_empty() && report.refused.is_empty() {
        return el("p").text("All devices that were asked were heard.");
    }
    let refused =
        report.refused.iter().map(|line| (line, format!("refused: E{:02} {}", line.code, line.why)));
    let refused = refused.map(|(line, why)| (line.device.as_str(), line.tier, why));
    let silent = report
        .silent
        .iter()
        .map(|line| (line.device.as_str(), line.tier, "did not answer in time".to_owned()));
    let all = report.refused.len() + report.silent.len();
    let rows = refused.chain(silent).take(FINDINGS).map(|(device, tier, why)| {
        el("tr")
            .with(row_link(&device_link(device), device))
            .with(count(tier as u64))
            .with(cell(why).class("left"))
    });
    let caption =
        if all > FINDINGS { format!("The first {FINDINGS} of {all}") } else { format!("{all} devices") };
    table(&caption, &[Column::text("Device"), Column::number("Tier"), Column::text("Why")], rows)
}

/// For the page of a round that is computed again.
pub(super) fn compared(
    caption: &str,
    first: &'static str,
    rows: &[(String, Option<f64>, Option<f64>)],
) -> Element {
    let [second, third] = ["Weight in the run", "Weight it would have had"];
    let columns = [Column::text(first), Column::number(second), Column::number(third)];
    let row = |(name, a, b): &(String, Option<f64>, Option<f64>)| {
        el("tr").with(row_head(name)).with(number(*a)).with(number(*b))
    };
    table(caption, &columns, rows.iter().map(row))
}
