//! The devices that are worst off, and those that were not heard.

use common::Code;
use plots::{
    markup::{Element, el},
    number::{figure, percent},
};

use super::parts::{Column, cell, count, device_link, number, row_link, table};
use crate::http::{
    history::{Heard, Report},
    view::View,
};

/// Devices of each kind that are named here; the page of devices has all.
const NAMED: usize = 5;

/// Of the present figures.
pub(super) fn worst(view: &View<'_>) -> Vec<Element> {
    let Some(report) = view.history.shown() else {
        return vec![el("p").text("No round is finished yet.")];
    };
    let mut shown = vec![losses(report)];
    shown.extend(missing(report));
    let all =
        el("a").set("href", "/devices?sort=loss&order=down").text("All devices, the highest loss first");
    shown.push(el("p").with(all));
    shown
}

fn losses(report: &Report) -> Element {
    let mut lines: Vec<(&Heard, f64)> =
        report.devices.iter().filter_map(|line| Some((line, line.loss()?))).collect();
    if lines.is_empty() {
        return el("p").text("No device has reported a loss.");
    }
    lines.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mean = report.loss.shown_mean().filter(|mean| *mean > 0.0);
    let columns = [
        Column::text("Device"),
        Column::number("Tier"),
        Column::number("Loss"),
        Column::number("Of the mean loss"),
        Column::number("Accuracy"),
        Column::number("Weight"),
    ];
    let rows = lines.iter().take(NAMED).map(|(line, loss)| {
        el("tr")
            .with(row_link(&device_link(&line.device), &line.device))
            .with(count(line.tier as u64))
            .with(number(Some(*loss)))
            .with(cell(mean.map_or("–".into(), |mean| format!("{} times", figure(loss / mean)))))
            .with(cell(line.test_accuracy.map_or("–".into(), percent)))
            .with(number(line.weight))
    });
    let caption = format!("The highest losses of {} devices", lines.len());
    table(&caption, &columns, rows)
}

/// None if all were heard.
fn missing(report: &Report) -> Option<Element> {
    let refused = report.refused.iter().map(|line| {
        let why = Code::of(line.code)
            .map_or_else(|| format!("E{:02} {}", line.code, line.why), |code| code.to_string());
        (line.device.as_str(), line.tier, format!("refused: {why}"))
    });
    let silent = report
        .silent
        .iter()
        .map(|line| (line.device.as_str(), line.tier, "did not answer in time".to_owned()));
    let all = report.refused.len() + report.silent.len();
    let rows = refused.chain(silent).take(NAMED).map(|(device, tier, why)| {
        el("tr")
            .with(row_link(&device_link(device), device))
            .with(count(tier as u64))
            .with(cell(why).class("left"))
    });
    let caption =
        if all > NAMED { format!("Not heard: {NAMED} of {all} devices") } else { "Not heard".to_owned() };
    let columns = [Column::text("Device"), Column::number("Tier"), Column::text("Why")];
    (all > 0).then(|| table(&caption, &columns, rows))
}
