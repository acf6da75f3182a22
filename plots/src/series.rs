//! Styles of series: eight colours, then the same colours with other dashes. Marks also differ in shape, so that
//! colour is not needed to tell them apart.

use crate::frame::line;
use crate::markup::{Element, el};

const COLOURS: usize = 8;
const DASHES: usize = 3;

/// Style class of the series with this index.
pub fn class(index: usize) -> String {
    format!("e{} d{}", index % COLOURS, index / COLOURS % DASHES)
}

/// A mark of the series; `r` is its radius.
pub fn mark(index: usize, x: f64, y: f64, r: f64) -> Element {
    let path = |points: &[(f64, f64)]| {
        let points: Vec<String> =
            points.iter().map(|(dx, dy)| format!("{:.2} {:.2}", x + dx * r, y + dy * r)).collect();
        el("path").set("d", format_args!("M{}Z", points.join("L")))
    };
    let mark = match index % 5 {
        0 => el("circle").at("cx", x).at("cy", y).at("r", r),
        1 => path(&[(-1.25, 0.0), (0.0, -1.25), (1.25, 0.0), (0.0, 1.25)]),
        2 => path(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        3 => path(&[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)]),
        _ => path(&[(0.0, 1.2), (1.15, -0.9), (-1.15, -0.9)]),
    };
    mark.class(format_args!("mark {}", class(index)))
}

/// The legend as a list of the page. Each name comes with the index of its series.
pub fn legend<'a>(names: impl IntoIterator<Item = (usize, &'a str)>) -> Element {
    let entry = |(index, name): (usize, &str)| {
        let sample = el("svg")
            .set("viewBox", "0 0 34 14")
            .set("aria-hidden", "true")
            .with(line(0.0, 7.0, 34.0, 7.0).class(format_args!("line {}", class(index))))
            .with(mark(index, 17.0, 7.0, 4.5));
        el("li").with(sample).text(name)
    };
    el("ul").class("legend").all(names.into_iter().map(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_series_differ() {
        let mut seen: Vec<String> = (0..20).map(class).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 20);
        let legend = legend([(0, "a"), (9, "b")]).to_string();
        assert_eq!(legend.matches("<li>").count(), 2);
        assert!(legend.contains("e1 d1"));
    }
}
