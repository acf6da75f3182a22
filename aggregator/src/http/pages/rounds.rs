//! One row per round, the last one first.

use plots::{
    markup::el,
    number::{bytes, percent, seconds},
};

use super::parts::{Column, Part, cell, count, number, pager, row_link, table};
use crate::http::view::View;

const ROWS: usize = 50;

pub(super) fn parts(view: &View<'_>, page: usize) -> Vec<Part> {
    let history = view.history;
    let total = history.rounds.len();
    let pages = total.div_ceil(ROWS).max(1);
    let page = page.clamp(1, pages);
    let columns = [
        Column::text("Round"),
        Column::number("Time"),
        Column::number("Mean loss"),
        Column::number("Disparity"),
        Column::number("Mean accuracy"),
        Column::number("Heard"),
        Column::number("Silent"),
        Column::number("Refused"),
        Column::number("Guard findings"),
        Column::number("Effective devices"),
        Column::number("From devices"),
        Column::number("To devices"),
        Column::number("Knob"),
    ];
    let lines = history.rounds.iter().zip(&history.disparity).rev().skip((page - 1) * ROWS).take(ROWS);
    let rows = lines.map(|(round, disparity)| {
        let traffic = round.traffic.unwrap_or_default();
        el("tr")
            .with(row_link(&format!("/round?number={}", round.round), round.round))
            .with(cell(round.seconds.map_or("–".into(), seconds)))
            .with(number(round.loss.shown_mean()))
            .with(number(*disparity))
            .with(cell(round.accuracy.shown_mean().map_or("–".into(), percent)))
            .with(count(round.heard as u64))
            .with(count(round.silent as u64))
            .with(count(round.refused as u64))
            .with(count(round.findings as u64))
            .with(number(round.effective))
            .with(cell(bytes(traffic.up as f64)))
            .with(cell(bytes(traffic.down as f64)))
            .with(number(round.fairness.map(|knob| knob.value)))
    });
    let caption = match total {
        0 => "No round is finished yet".to_owned(),
        _ => format!("The last {total} rounds"),
    };
    let list = table(&caption, &columns, rows);
    vec![Part::live(
        "list",
        "Rounds",
        [list, pager("rounds", page, pages, |page| format!("/rounds?page={page}"))],
    )]
}
