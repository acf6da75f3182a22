//! What pages are made of.

use std::fmt::Display;

use plots::{
    lines::{Level, LineSeries, Lines, Point},
    markup::{Element, el},
    number::figure,
};

/// A part of a page that is replaced as a whole when it has changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    pub id: &'static str,
    pub element: Element,
    /// It changes while the page is open.
    pub follows: bool,
}

impl Part {
    /// A section with a heading; its content changes while the page is open.
    pub fn live(id: &'static str, heading: &str, content: impl IntoIterator<Item = Element>) -> Self {
        let element = section(id, heading).set("data-part", "").all(content);
        Self { id, element, follows: true }
    }

    /// The same for forms and texts, which are left alone.
    pub fn fixed(id: &'static str, heading: &str, content: impl IntoIterator<Item = Element>) -> Self {
        Self { id, element: section(id, heading).all(content), follows: false }
    }
}

fn section(id: &str, heading: &str) -> Element {
    el("section")
        .set("id", id)
        .set("aria-labelledby", format_args!("{id}-heading"))
        .with(el("h2").set("id", format_args!("{id}-heading")).text(heading))
}

/// A figure in large letters. `key` and `value` name it for tests and scripts.
pub fn card(title: &str, key: &str, value: Option<f64>, text: &str, note: &str) -> Element {
    let big = el("p").class("big").set("data-key", key).text(text);
    let big = match value {
        Some(value) => big.set("data-value", value),
        None => big,
    };
    el("div").class("card").with(el("h3").text(title)).with(big).with(el("p").class("soft").text(note))
}

/// A heading of a column; with `left`, of texts.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: &'static str,
    pub left: bool,
    /// Where a click sorts by it, and how it is sorted now.
    pub sort: Option<SortLink>,
}

#[derive(Clone, Debug)]
pub struct SortLink {
    pub href: String,
    pub sorted: Option<&'static str>,
}

impl Column {
    pub fn number(name: &'static str) -> Self {
        Self { name, left: false, sort: None }
    }

    pub fn text(name: &'static str) -> Self {
        Self { name, left: true, sort: None }
    }

    fn head(&self) -> Element {
        let head = el("th").set("scope", "col");
        let head = if self.left { head.class("left") } else { head };
        match &self.sort {
            None => head.text(self.name),
            Some(SortLink { href, sorted }) => {
                let head = if let Some(order) = sorted { head.set("aria-sort", order) } else { head };
                let mark = match sorted {
                    Some("ascending") => " ↑",
                    Some(_) => " ↓",
                    None => "",
                };
                head.with(el("a").set("href", href).text(self.name).text(mark))
            }
        }
    }
}

/// A table that scrolls by itself where it is wider than the screen.
pub fn table(caption: &str, columns: &[Column], rows: impl IntoIterator<Item = Element>) -> Element {
    let head = el("tr").all(columns.iter().map(Column::head));
    let table = el("table")
        .with(el("caption").text(caption))
        .with(el("thead").with(head))
        .with(el("tbody").all(rows));
    el("div")
        .class("scroll")
        .set("tabindex", "0")
        .set("role", "region")
        .set("aria-label", caption)
        .with(table)
}

/// The first cell of a row.
pub fn row_head(text: impl Display) -> Element {
    el("th").set("scope", "row").text(text)
}

/// The same as a link.
pub fn row_link(href: &str, text: impl Display) -> Element {
    el("th").set("scope", "row").with(el("a").set("href", href).text(text))
}

pub fn cell(text: impl Display) -> Element {
    el("td").text(text)
}

/// A count.
pub fn count(value: u64) -> Element {
    el("td").set("data-value", value).text(value)
}

/// A number with three digits that are shown, and all of them for scripts.
pub fn number(value: Option<f64>) -> Element {
    match value.filter(|value| value.is_finite()) {
        // Sums of nothing are -0.
        Some(value) => el("td").set("data-value", value + 0.0).text(figure(value)),
        None => el("td").text("–"),
    }
}

pub fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), figure)
}

/// Text for a list of facts.
pub fn fact(name: &str, value: impl Display) -> [Element; 2] {
    [el("dt").text(name), el("dd").text(value)]
}

/// The link to a device's page.
pub fn device_link(name: &str) -> String {
    format!("/device?name={}", encode(name))
}

/// A query's value: everything but unreserved letters is encoded.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                encoded.push('%');
                encoded.push(DIGITS[usize::from(byte >> 4)].into());
                encoded.push(DIGITS[usize::from(byte & 15)].into());
            }
        }
    }
    encoded
}

/// Adds a text to an element; what stands between backticks is code.
pub fn prose(element: Element, text: &str) -> Element {
    let add = |element: Element, (at, piece): (usize, &str)| match at % 2 {
        0 => element.text(piece),
        _ => element.with(el("code").text(piece)),
    };
    text.split('`').enumerate().fold(element, add)
}

/// A plot with its caption.
pub fn plot(plot: Element, caption: &str) -> Element {
    el("figure").with(plot).with(el("figcaption").text(caption))
}

/// One line by round.
pub struct Curve<'a> {
    pub index: usize,
    pub name: &'a str,
    pub points: Vec<(u32, Option<f64>)>,
}

/// Lines by round, with a target.
pub fn curves(title: &str, what: &'static str, curves: Vec<Curve<'_>>, target: Option<f64>) -> Element {
    let lines = curves
        .into_iter()
        .map(|Curve { index, name, points }| {
            let point = |(round, value): (u32, Option<f64>)| {
                Some(Point { x: round.into(), mean: value.filter(|value| value.is_finite())?, std: 0.0 })
            };
            LineSeries { index, name, scales: true, points: points.into_iter().filter_map(point).collect() }
        })
        .collect();
    let levels = target.map(|value| Level { index: 0, name: "the run", value }).into_iter().collect();
    Lines { title: title.to_owned(), what, log: false, lines, levels }.draw(None)
}

/// How long ago, or how long from now.
pub fn span(seconds: f64) -> String {
    let seconds = seconds.abs();
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 129_600.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// Links to the other pages of a list; `href` makes the address of one. Nothing if there is only one.
pub fn pager(what: &str, page: usize, pages: usize, href: impl Fn(usize) -> String) -> Element {
    let nav = el("nav").class("pager").set("aria-label", format_args!("Pages of {what}"));
    if pages <= 1 {
        return nav.set("hidden", "hidden");
    }
    let link = |to: usize, text: &str| {
        if (1..=pages).contains(&to) && to != page {
            el("a").set("href", href(to)).text(text)
        } else {
            el("span").class("soft").text(text)
        }
    };
    nav.with(link(1, "first"))
        .with(link(page.saturating_sub(1), "previous"))
        .with(el("span").set("aria-current", "page").text(format_args!("{page} of {pages}")))
        .with(link(page + 1, "next"))
        .with(link(pages, "last"))
}

/// A form with one button; `fields` are sent with it.
pub fn button(action: &str, csrf: &str, fields: &[(&'static str, &str)], text: &str) -> Element {
    let hidden =
        |name: &str, value: &str| el("input").set("type", "hidden").set("name", name).set("value", value);
    el("form")
        .set("method", "post")
        .set("action", action)
        .with(hidden("csrf", csrf))
        .all(fields.iter().map(|(name, value)| hidden(name, value)))
        .with(el("button").set("type", "submit").text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_query() {
        assert_eq!(device_link("cam-1"), "/device?name=cam-1");
        assert_eq!(device_link("../a&b=<c>\"#é"), "/device?name=..%2Fa%26b%3D%3Cc%3E%22%23%C3%A9");
    }

    #[test]
    fn commands_in_texts_are_code_and_never_markup() {
        let shown = |text| prose(el("p"), text).to_string();
        assert_eq!(shown("Raise `--ram` <b>."), "<p>Raise <code>--ram</code> &lt;b&gt;.</p>");
        assert_eq!(shown("`<i>"), "<p><code>&lt;i&gt;</code></p>");
    }

    #[test]
    fn times_are_in_the_unit_that_people_use() {
        let shown = [4.4, 89.0, 120.0, 7200.0, 864_000.0].map(span);
        assert_eq!(shown, ["4 s", "89 s", "2 min", "2 h", "10 days"]);
    }
}
