//! All devices: sorted, searched, in pages. A fleet of ten thousand is one request as well.

use std::cmp::Ordering;

use common::Code;
use plots::markup::{Element, el};
use serde::Deserialize;

use super::parts::{
    Column, Part, SortLink, cell, count, device_link, encode, number, pager, row_link, span, table,
};
use crate::http::view::{DeviceRow, View};

/// Rows of a page.
const ROWS: usize = 50;
/// Letters of a search.
const LETTERS: usize = 64;

/// What is shown of the list.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DevicesQuery {
    /// A part of the name, or of the state.
    pub q: String,
    /// Only this tier; text, so that an empty field of the form is no error.
    pub tier: String,
    pub sort: String,
    /// `down`, or anything else for upwards.
    pub order: String,
    pub page: Option<usize>,
}

const COLUMNS: [(&str, &str, bool); 10] = [
    ("name", "Device", true),
    ("tier", "Tier", false),
    ("state", "State", true),
    ("seen", "Last seen", false),
    ("loss", "Loss", false),
    ("place", "Place", false),
    ("rounds", "Rounds", false),
    ("dropped", "Dropped", false),
    ("code", "Refused", true),
    ("ends", "Certificate ends", false),
];

pub(super) fn parts(view: &View<'_>, query: &DevicesQuery) -> Vec<Part> {
    vec![Part::fixed("search", "Find", [form(view, query)]), Part::live("list", "Devices", list(view, query))]
}

fn form(view: &View<'_>, query: &DevicesQuery) -> Element {
    let option = |value: String, text: String| {
        let option = el("option").set("value", &value).text(text);
        if value == query.tier { option.set("selected", "selected") } else { option }
    };
    el("form")
        .set("method", "get")
        .set("action", "/devices")
        .set("role", "search")
        .class("row")
        .with(
            el("label").class("field").text("Name or state").with(
                el("input")
                    .set("type", "search")
                    .set("name", "q")
                    .set("value", &query.q)
                    .set("maxlength", LETTERS),
            ),
        )
        .with(
            el("label").class("field").text("Tier").with(
                el("select")
                    .set("name", "tier")
                    .with(option(String::new(), "all".into()))
                    .all((0..view.tiers()).map(|tier| option(tier.to_string(), format!("Tier {tier}")))),
            ),
        )
        .with(el("input").set("type", "hidden").set("name", "sort").set("value", &query.sort))
        .with(el("input").set("type", "hidden").set("name", "order").set("value", &query.order))
        .with(el("button").set("type", "submit").text("Show"))
}

fn list(view: &View<'_>, query: &DevicesQuery) -> Vec<Element> {
    let mut rows = chosen(view, query);
    sort(&mut rows, query);
    let pages = rows.len().div_ceil(ROWS).max(1);
    let page = query.page.unwrap_or(1).clamp(1, pages);
    let first = (page - 1) * ROWS;
    let total = rows.len();
    let shown: Vec<Element> = rows.into_iter().skip(first).take(ROWS).map(|row| line(view, &row)).collect();
    let caption = match total {
        0 => "No device".to_owned(),
        _ => format!("Devices {} to {} of {total}", first + 1, first + shown.len()),
    };
    let columns: Vec<Column> =
        COLUMNS.iter().map(|&(key, name, left)| column(query, key, name, left)).collect();
    vec![
        table(&caption, &columns, shown),
        pager("devices", page, pages, |page| address(query, &query.sort, &query.order, page)),
    ]
}

fn chosen<'a>(view: &'a View<'_>, query: &DevicesQuery) -> Vec<DeviceRow<'a>> {
    let wanted: String = query.q.trim().to_lowercase().chars().take(LETTERS).collect();
    let tier: Option<usize> = query.tier.parse().ok();
    let mut rows = view.devices();
    rows.retain(|row| {
        let named = wanted.is_empty()
            || row.name.to_lowercase().contains(&wanted)
            || row.state().name().contains(&wanted);
        named && tier.is_none_or(|tier| row.tier == Some(tier))
    });
    rows
}

/// Rows without a value come last in both orders.
fn sort(rows: &mut [DeviceRow<'_>], query: &DevicesQuery) {
    let down = query.order == "down";
    let by = |value: fn(&DeviceRow<'_>) -> Option<f64>| {
        move |a: &DeviceRow<'_>, b: &DeviceRow<'_>| match (value(a), value(b)) {
            (Some(a), Some(b)) if down => b.total_cmp(&a),
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    };
    match query.sort.as_str() {
        "tier" => rows.sort_by(by(|row| row.tier.map(|tier| tier as f64))),
        "state" if down => rows.sort_by_key(|row| std::cmp::Reverse(row.state())),
        "state" => rows.sort_by_key(DeviceRow::state),
        "seen" => rows.sort_by(by(|row| row.last_seen())),
        "loss" | "place" => rows.sort_by(by(|row| row.loss())),
        "rounds" => rows.sort_by(by(|row| Some(row.delivered().into()))),
        "dropped" => rows.sort_by(by(|row| Some(row.dropped().into()))),
        "code" => rows.sort_by(by(|row| row.code().map(f64::from))),
        "ends" => rows.sort_by(by(|row| row.expires().map(|end| end as f64))),
        _ if down => rows.sort_by(|a, b| Ordering::reverse(a.name.cmp(b.name))),
        _ => {}
    }
}

fn column(query: &DevicesQuery, key: &str, name: &'static str, left: bool) -> Column {
    let down = query.order == "down";
    let own = query.sort == key || key == "name" && !COLUMNS.iter().any(|column| column.0 == query.sort);
    let sorted = own.then_some(if down { "descending" } else { "ascending" });
    let next = if own && !down { "down" } else { "up" };
    Column { name, left, sort: Some(SortLink { href: address(query, key, next, 1), sorted }) }
}

fn address(query: &DevicesQuery, sort: &str, order: &str, page: usize) -> String {
    let [q, tier, sort, order] = [&query.q, &query.tier, sort, order].map(encode);
    format!("/devices?q={q}&tier={tier}&sort={sort}&order={order}&page={page}")
}

fn line(view: &View<'_>, row: &DeviceRow<'_>) -> Element {
    let state = row.state();
    let seen = row.last_seen().map_or("–".to_owned(), |at| format!("{} ago", span(view.now - at)));
    let place = row.past.and_then(|past| view.history.place(past));
    let why = row.code().map_or("–".to_owned(), |number| {
        Code::of(number).map_or_else(|| format!("E{number:02}"), |code| code.to_string())
    });
    let ends = row.expires().map_or("–".to_owned(), |end| {
        let left = end as f64 - view.now;
        if left > 0.0 { format!("in {}", span(left)) } else { format!("{} ago", span(left)) }
    });
    el("tr")
        .set("data-device", row.name)
        .with(row_link(&device_link(row.name), row.name))
        .with(row.tier.map_or_else(|| cell("–"), |tier| count(tier as u64)))
        .with(
            cell(state.name())
                .class(if state.is_bad() { "left bad" } else { "left" })
                .set("data-state", state.name()),
        )
        .with(cell(seen))
        .with(number(row.loss()))
        .with(place.map_or_else(
            || cell("–"),
            |place| cell(format_args!("{place} of {}", view.history.losses.len())),
        ))
        .with(count(row.delivered().into()))
        .with(count(row.dropped().into()))
        .with(cell(why).class("left why"))
        .with(cell(ends))
}
