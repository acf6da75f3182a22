//! Numbers by round: one line per series with a band of one standard deviation over seeds.

use crate::{
    frame::{Frame, described, line, text},
    markup::{Element, el},
    number::figure,
    scale::Scale,
    series::class,
};

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 240.0;
const FRAME: Frame = Frame { left: 48.0, right: WIDTH - 12.0, top: 30.0, bottom: HEIGHT - 42.0 };
/// Most points that a line of this width can show.
const POINTS: usize = 100;

/// One panel.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    /// Above the panel.
    pub title: String,
    /// The shown quantity, as in `mean loss`.
    pub what: &'static str,
    /// Whether the vertical axis is logarithmic.
    pub log: bool,
    /// One for each series.
    pub lines: Vec<LineSeries<'a>>,
    /// Horizontal lines at values that series shall reach.
    pub levels: Vec<Level<'a>>,
}

/// The value that a series shall reach.
#[derive(Clone, Debug)]
pub struct Level<'a> {
    /// Index of the series.
    pub index: usize,
    /// As the legend has it.
    pub name: &'a str,
    /// On the vertical axis.
    pub value: f64,
}

/// A quantity by round.
#[derive(Clone, Debug)]
pub struct LineSeries<'a> {
    /// Selects colour and dashes.
    pub index: usize,
    /// As the legend has it.
    pub name: &'a str,
    /// Whether the axis covers it. A diverged line ends at the edge.
    pub scales: bool,
    /// By round.
    pub points: Vec<Point>,
}

/// The quantity after a round.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Point {
    /// The round.
    pub x: f64,
    /// Over seeds.
    pub mean: f64,
    /// Standard deviation over seeds; 0 for one seed.
    pub std: f64,
}

impl Lines<'_> {
    /// The smallest and the largest number that can be shown. Panels may share the union of their domains.
    pub fn domain(&self) -> Option<(f64, f64)> {
        let shown = |value: &f64| value.is_finite() && (!self.log || *value > 0.0);
        let scaling = self.lines.iter().filter(|line| line.scales);
        let means = scaling.flat_map(|line| line.points.iter().map(|point| point.mean));
        let values = means.chain(self.levels.iter().map(|level| level.value)).filter(shown);
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        (low <= high).then_some((low, high))
    }

    /// The panel as SVG, with the given domain or its own.
    pub fn draw(&self, domain: Option<(f64, f64)>) -> Element {
        let (low, high) = domain.or_else(|| self.domain()).unwrap_or((0.1, 1.0));
        let y = if self.log {
            Scale::log((low * 0.9, high * 1.1), (FRAME.bottom, FRAME.top))
        } else {
            // So wide that the numbers beside the axis differ, also if all values are the same.
            let size = low.abs().max(high.abs());
            let least = if size > 0.0 { 0.02 * size } else { 0.1 };
            let edge = ((high - low) * 0.05).max(least - (high - low) / 2.0).max(1e-6);
            Scale::linear((low - edge, high + edge), (FRAME.bottom, FRAME.top))
        };
        let x = Scale::linear(self.rounds(), (FRAME.left, FRAME.right));
        let whole: Vec<f64> = x.ticks(4).into_iter().filter(|tick| tick.fract() == 0.0).collect();
        described(WIDTH, HEIGHT, &self.title, &self.about())
            .with(text(FRAME.left, 17.0, "start", &self.title).class("panel"))
            .with(FRAME.rows(&y, &y.ticks(6)))
            .with(FRAME.columns(&x, &whole))
            .with(FRAME.name_x("rounds"))
            .all(self.lines.iter().filter_map(|line| line.band(&x, &y)))
            .all(self.lines.iter().map(|line| line.stroke(self.what, &x, &y)))
            .all(self.levels.iter().filter(|level| level.value.is_finite()).map(|level| level.draw(&y)))
    }

    /// From the beginning, unless the first rounds of a long run are left out.
    fn rounds(&self) -> (f64, f64) {
        let ends = |of: fn(&[Point]) -> Option<&Point>| {
            self.lines.iter().filter_map(move |line| of(&line.points)).map(|point| point.x)
        };
        let first = ends(<[Point]>::first).fold(f64::INFINITY, f64::min);
        let first = if first.is_finite() && first > 1.0 { first } else { 0.0 };
        (first, ends(<[Point]>::last).fold(first + 1.0, f64::max))
    }

    fn about(&self) -> String {
        let ends: Vec<String> = self
            .lines
            .iter()
            .filter_map(|line| Some(format!("{} ends at {}", line.name, figure(line.points.last()?.mean))))
            .collect();
        let scale = if self.log { ", logarithmic" } else { "" };
        let levels: Vec<String> = self
            .levels
            .iter()
            .map(|level| format!("; target of {} {}", level.name, figure(level.value)))
            .collect();
        format!("{} by round{scale}: {}{}.", self.what, ends.join(", "), levels.concat())
    }
}

impl Level<'_> {
    fn draw(&self, y: &Scale) -> Element {
        let at = y.at(self.value);
        line(FRAME.left, at, FRAME.right, at)
            .class(format_args!("target {}", class(self.index)))
            .hint(format_args!("{}: target {}", self.name, figure(self.value)))
    }
}

impl LineSeries<'_> {
    fn shown(&self) -> impl DoubleEndedIterator<Item = &Point> {
        let stride = self.points.len().div_ceil(POINTS).max(1);
        let last = self.points.len().saturating_sub(1);
        let shown = self.points.iter().enumerate().filter(move |(at, _)| at % stride == 0 || *at == last);
        shown.map(|(_, point)| point).filter(|point| point.mean.is_finite())
    }

    fn stroke(&self, what: &str, x: &Scale, y: &Scale) -> Element {
        let points: Vec<String> =
            self.shown().map(|point| format!("{:.1},{:.1}", x.at(point.x), y.at(point.mean))).collect();
        let end = self.points.last().map_or(f64::NAN, |point| point.mean);
        el("polyline")
            .class(format_args!("line {}", class(self.index)))
            .set("points", points.join(" "))
            .hint(format_args!("{}: {what} {} at the end", self.name, figure(end)))
    }

    /// `None` if there is only one seed.
    fn band(&self, x: &Scale, y: &Scale) -> Option<Element> {
        self.points.iter().any(|point| point.std > 0.0).then(|| {
            let edge = |point: &Point, side: f64| {
                format!("{:.1},{:.1}", x.at(point.x), y.at(point.mean + side * point.std))
            };
            let upper = self.shown().map(|point| edge(point, 1.0));
            let lower = self.shown().rev().map(|point| edge(point, -1.0));
            let points: Vec<String> = upper.chain(lower).collect();
            el("polygon").class(format_args!("band {}", class(self.index))).set("points", points.join(" "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_and_bands_only_where_seeds_differ() {
        let point = |x, mean, std| Point { x, mean, std };
        let panel = Lines {
            title: "Tier 0".into(),
            what: "mean loss",
            log: true,
            levels: vec![Level { index: 1, name: "b", value: 1.5 }],
            lines: vec![
                LineSeries {
                    index: 0,
                    name: "a",
                    scales: true,
                    points: vec![point(0.0, 2.0, 0.1), point(1.0, 1.0, 0.1)],
                },
                LineSeries {
                    index: 1,
                    name: "b",
                    scales: true,
                    points: vec![point(0.0, 2.0, 0.0), point(1.0, f64::NAN, 0.0)],
                },
            ],
        };
        let text = panel.draw(None).to_string();
        assert_eq!((text.matches("<polyline").count(), text.matches("<polygon").count()), (2, 1));
        assert!(text.contains("target of b 1.50") && text.contains("class=\"target e1 d0\""), "{text}");
        assert!(text.contains("a ends at 1.00") && !text.contains("NaN"), "{text}");
        let wild = LineSeries { index: 2, name: "c", scales: false, points: vec![point(1.0, 1e30, 0.0)] };
        let with_wild = Lines { lines: [panel.lines.clone(), vec![wild]].concat(), ..panel.clone() };
        assert_eq!(with_wild.domain(), panel.domain());
        let late = |from: f64| Lines {
            lines: vec![LineSeries {
                index: 0,
                name: "a",
                scales: true,
                points: (0..9).map(|at| point(from + f64::from(at), 1.0, 0.0)).collect(),
            }],
            ..panel.clone()
        };
        assert_eq!((late(1.0).rounds(), late(9000.0).rounds()), ((0.0, 9.0), (9000.0, 9008.0)));
        let level = |value: f64| Lines {
            log: false,
            levels: vec![],
            lines: vec![LineSeries {
                index: 0,
                name: "a",
                scales: true,
                points: (0..9).map(|at| point(f64::from(at), value, 0.0)).collect(),
            }],
            ..panel.clone()
        };
        for value in [0.0, 0.3, 1.0, 2e4] {
            let text = level(value).draw(None).to_string();
            let ticks: Vec<&str> = text.split("class=\"tick\">").skip(1).collect();
            let names: Vec<&str> = ticks.iter().map(|tick| tick.split('<').next().unwrap()).collect();
            let rows: Vec<&str> = names
                [..names.len() - names.iter().rev().position(|name| *name == "0").map_or(0, |at| at + 1)]
                .to_vec();
            let distinct: std::collections::BTreeSet<_> = rows.iter().collect();
            assert!(rows.len() > 1 && distinct.len() == rows.len(), "{value}: {names:?}");
        }
        let empty = Lines { title: String::new(), what: "", log: false, lines: vec![], levels: vec![] };
        assert!(empty.draw(None).to_string().starts_with("<svg"));
    }
}
