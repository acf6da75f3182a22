//! One row per tier: its slice, its devices in the open exchange, its losses over rounds, its bytes.

use plots::{
    columns::{ColumnSeries, Columns},
    markup::{Element, el},
    number::{bytes, percent},
    series::legend,
};

use super::{
    overview::last_round,
    parts::{Column, Curve, Part, cell, count, curves, number, plot, row_head, table},
};
use crate::http::{
    history::{Figures, Traffic},
    view::View,
};
use crate::live::TierShape;

/// Tiers with a line of their own in plots.
const DRAWN: usize = 8;

pub(super) fn parts(view: &View<'_>) -> Vec<Part> {
    vec![
        Part::live("now", "Now", [now(view)]),
        Part::live("last-tiers", "The last round by tier", [last_round(view)]),
        Part::live("losses", "Over rounds", [losses(view)]),
        Part::live("traffic", "Participation and bytes", [traffic(view)]),
    ]
}

fn now(view: &View<'_>) -> Element {
    let Some(live) = &view.live else { return resting(view) };
    let columns = [
        Column::text("Tier"),
        Column::number("Width"),
        Column::number("Units"),
        Column::number("Parameters"),
        Column::number("Devices"),
        Column::number("Connected"),
        Column::number("Asked"),
        Column::number("Delivered"),
        Column::number("Late"),
        Column::number("Refused"),
        Column::number("Given up"),
        Column::text("Quorum"),
    ];
    let row = |(number, tier): (usize, &crate::live::LiveTier)| {
        let quorum = match (tier.asked, tier.has_quorum) {
            (0, _) => "–".to_owned(),
            (asked, _) if tier.delivered == 0 && tier.absent + tier.refused == asked => {
                "no device left".into()
            }
            (_, true) => format!("reached ({})", percent(tier.quorum)),
            (_, false) => format!("missing ({})", percent(tier.quorum)),
        };
        el("tr")
            .set("data-tier", number)
            .with(row_head(format_args!("Tier {number}")))
            .all(shape(view, tier.shape))
            .all(
                [
                    tier.devices,
                    tier.connected,
                    tier.asked,
                    tier.delivered,
                    tier.late,
                    tier.refused,
                    tier.absent,
                ]
                .map(|number| count(number as u64)),
            )
            .with(cell(quorum).class("left"))
    };
    table("Tiers in the open exchange, widest first", &columns, live.tiers.iter().enumerate().map(row))
}

/// Share of the units of the widest tier, units and parameters.
fn shape(view: &View<'_>, own: TierShape) -> [Element; 3] {
    let widest = view.shapes.iter().map(|shape| shape.units).max().unwrap_or(own.units);
    // A model without hidden layers has no units, and all tiers hold it whole.
    let width = if widest > 0 { percent(own.units as f64 / widest as f64) } else { "–".into() };
    [cell(width), count(own.units), count(own.parameters)]
}

/// What tiers hold while no server runs.
fn resting(view: &View<'_>) -> Element {
    let columns = [
        Column::text("Tier"),
        Column::number("Width"),
        Column::number("Units"),
        Column::number("Parameters"),
    ];
    let rows = view.shapes.iter().enumerate().map(|(number, own)| {
        el("tr").set("data-tier", number).with(row_head(format_args!("Tier {number}"))).all(shape(view, *own))
    });
    table("Tiers, widest first; no server runs, so no device is connected", &columns, rows)
}

fn losses(view: &View<'_>) -> Element {
    let rounds = &view.history.rounds;
    if rounds.len() < 2 {
        return el("p").text("Plots follow after two rounds.");
    }
    let tiers = view.tiers().min(DRAWN);
    let names: Vec<String> = (0..tiers).map(|tier| format!("Tier {tier}")).collect();
    let lines = |value: &dyn Fn(&Figures) -> Option<f64>| -> Vec<Curve<'_>> {
        let line = |(tier, name)| {
            let points =
                rounds.iter().map(|round| (round.round, round.loss_by_tier.get(tier).and_then(value)));
            Curve { index: tier, name, points: points.collect() }
        };
        names.iter().map(String::as_str).enumerate().map(line).collect()
    };
    let shares = names
        .iter()
        .enumerate()
        .map(|(tier, name)| {
            let delivered = rounds.iter().map(|round| {
                let line = round.participation.get(tier).filter(|line| line.asked > 0);
                (round.round, line.map(|line| line.delivered as f64 / line.asked as f64))
            });
            Curve { index: tier, name, points: delivered.collect() }
        })
        .collect();
    let spread = |figures: &Figures| figures.variance.filter(|_| figures.count > 0).map(f64::sqrt);
    let note = if view.tiers() > DRAWN { "Only the first eight tiers are drawn." } else { "" };
    el("div").with(legend(names.iter().map(String::as_str).enumerate())).with(el("div").class("panels").all(
        [
            plot(curves("Mean loss", "mean loss", lines(&Figures::shown_mean), None), note),
            plot(curves("Spread inside tiers", "standard deviation of the loss", lines(&spread), None), note),
            plot(curves("Delivered of asked", "share that delivered", shares, None), note),
        ],
    ))
}

fn traffic(view: &View<'_>) -> Element {
    let rounds = &view.history.rounds;
    let Some(last) = rounds.back() else { return el("p").text("No round is finished yet.") };
    let tiers = view.tiers();
    let sums: Vec<Traffic> = (0..tiers)
        .map(|tier| {
            let own = rounds.iter().filter_map(|round| round.traffic_by_tier.get(tier));
            own.fold(Traffic::default(), |sum, part| Traffic {
                up: sum.up + part.up,
                down: sum.down + part.down,
            })
        })
        .collect();
    let delivered: Vec<[u64; 2]> = (0..tiers)
        .map(|tier| {
            let own = rounds.iter().filter_map(|round| round.participation.get(tier));
            own.fold([0, 0], |[asked, delivered], line| [asked + line.asked, delivered + line.delivered])
        })
        .collect();
    let columns = [
        Column::text("Tier"),
        Column::number("Asked"),
        Column::number("Delivered"),
        Column::number("Share"),
        Column::number("Weight in the last round"),
        Column::number("Bytes from devices"),
        Column::number("Bytes to devices"),
    ];
    let rows = sums.iter().zip(&delivered).enumerate().map(|(tier, (sum, &[asked, got]))| {
        el("tr")
            .with(row_head(format_args!("Tier {tier}")))
            .with(count(asked))
            .with(count(got))
            .with(cell(if asked > 0 { percent(got as f64 / asked as f64) } else { "–".into() }))
            .with(number(last.weight_by_tier.get(tier).copied().flatten()))
            .with(el("td").set("data-value", sum.up).text(bytes(sum.up as f64)))
            .with(el("td").set("data-value", sum.down).text(bytes(sum.down as f64)))
    });
    let first = rounds.front().map_or(0, |round| round.round);
    let caption = format!("Rounds {first} to {}", last.round);
    let megabytes = |part: fn(&Traffic) -> u64| sums.iter().map(|sum| part(sum) as f64 / 1e6).collect();
    let columns_plot = Columns {
        title: "Bytes by tier",
        unit: "MB",
        top: None,
        series: vec![
            ColumnSeries { index: 0, name: "from devices", values: megabytes(|sum| sum.up) },
            ColumnSeries { index: 1, name: "to devices", values: megabytes(|sum| sum.down) },
        ],
    };
    el("div")
        .with(table(&caption, &columns, rows))
        .with(plot(columns_plot.draw(), "Left: from devices. Right: to devices."))
}
