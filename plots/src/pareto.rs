//! Fairness against quality, one mark per setting with its spread over seeds. A line joins the settings that no
//! other setting beats in both.

use crate::{
    frame::{Frame, described, line, text},
    markup::{Element, el},
    number::figure,
    scale::Scale,
    series::{class, mark},
};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 400.0;
const FRAME: Frame = Frame { left: 72.0, right: WIDTH - 18.0, top: 34.0, bottom: HEIGHT - 50.0 };

/// One setting.
#[derive(Clone, PartialEq, Debug)]
pub struct ParetoPoint<'a> {
    /// Selects colour and mark.
    pub index: usize,
    /// As the legend has it.
    pub name: &'a str,
    /// Unfairness, lower is better: mean and standard deviation over seeds.
    pub unfair: (f64, f64),
    /// Quality, higher is better: mean and standard deviation over seeds.
    pub good: (f64, f64),
    /// Only settings with the same data can beat each other.
    pub data: &'a str,
}

/// Titles of the axes.
#[derive(Copy, Clone, Debug)]
pub struct Axes<'a> {
    /// Name or value of the horizontal axis.
    pub unfair: &'a str,
    /// Name or value of the vertical axis.
    pub good: &'a str,
}

/// Points that no other point dominates, fairest first. A point dominates if it is at least as good in both figures
/// and better in one.
pub fn front<'a, 'b>(points: &'b [ParetoPoint<'a>]) -> Vec<&'b ParetoPoint<'a>> {
    let beats = |a: &ParetoPoint<'_>, b: &ParetoPoint<'_>| {
        a.data == b.data
            && a.unfair.0 <= b.unfair.0
            && a.good.0 >= b.good.0
            && (a.unfair.0 < b.unfair.0 || a.good.0 > b.good.0)
    };
    let mut front: Vec<&ParetoPoint<'_>> =
        points.iter().filter(|point| !points.iter().any(|other| beats(other, point))).collect();
    front.sort_by(|a, b| a.unfair.0.total_cmp(&b.unfair.0));
    front
}

/// Draws the plot.
pub fn pareto(axes: Axes<'_>, points: &[ParetoPoint<'_>]) -> Element {
    let x = Scale::linear(domain(points.iter().map(|point| point.unfair)), (FRAME.left, FRAME.right));
    let y = Scale::linear(domain(points.iter().map(|point| point.good)), (FRAME.bottom, FRAME.top));
    let best = front(points);
    let mut fronts: Vec<(&str, Vec<String>)> = vec![];
    for point in &best {
        let corner = format!("{:.1},{:.1}", x.at(point.unfair.0), y.at(point.good.0));
        match fronts.iter_mut().find(|(data, _)| *data == point.data) {
            Some((_, corners)) => corners.push(corner),
            None => fronts.push((point.data, vec![corner])),
        }
    }
    let front =
        |(_, corners): &(&str, Vec<String>)| el("polyline").class("front").set("points", corners.join(" "));
    let names: Vec<&str> = best.iter().map(|point| point.name).collect();
    let about = format!(
        "{} against {}. Not beaten in both by any other: {}.",
        axes.good,
        axes.unfair,
        names.join(", ")
    );
    described(WIDTH, HEIGHT, "Fairness and quality", &about)
        .with(FRAME.rows(&y, &y.ticks(6)))
        .with(FRAME.columns(&x, &x.ticks(6)))
        .with(text(FRAME.left, 16.0, "start", &format!("↑ {}", axes.good)).class("axis"))
        .all(fronts.iter().map(front))
        .all(points.iter().map(|point| cross(point, &x, &y)))
        .all(labels(points, &x, &y))
        .with(FRAME.name_x(&format!("{}: fairer ←", axes.unfair)))
}

/// The mark with its spread over seeds.
fn cross(point: &ParetoPoint<'_>, x: &Scale, y: &Scale) -> Element {
    let (cx, cy) = (x.at(point.unfair.0), y.at(point.good.0));
    let style = format!("whisker {}", class(point.index));
    let [left, right] = [-1.0, 1.0].map(|side| x.at(point.unfair.0 + side * point.unfair.1));
    let [low, high] = [-1.0, 1.0].map(|side| y.at(point.good.0 + side * point.good.1));
    el("g")
        .with(line(left, cy, right, cy).class(&style))
        .with(line(cx, low, cx, high).class(&style))
        .with(mark(point.index, cx, cy, 6.0))
        .hint(format_args!("{}: {}, {}", point.name, figure(point.unfair.0), figure(point.good.0)))
}

/// Names beside the marks, each at the first free position. Names without a free position are left out; hints and the
/// table show them.
fn labels(points: &[ParetoPoint<'_>], x: &Scale, y: &Scale) -> Vec<Element> {
    let marks = points.iter().map(|point| (x.at(point.unfair.0), y.at(point.good.0)));
    let mut taken: Vec<[f64; 4]> = marks.clone().map(|(x, y)| [x - 6.0, y - 6.0, x + 6.0, y + 6.0]).collect();
    let mut labels = vec![];
    for (point, (cx, cy)) in points.iter().zip(marks) {
        let wide = point.name.chars().map(width).sum::<f64>();
        let places = [
            (cx + 11.0, cy + 4.0, "start", cx + 11.0),
            (cx - 11.0, cy + 4.0, "end", cx - 11.0 - wide),
            (cx, cy - 12.0, "middle", cx - wide / 2.0),
            (cx, cy + 20.0, "middle", cx - wide / 2.0),
            (cx + 9.0, cy - 11.0, "start", cx + 9.0),
            (cx + 9.0, cy + 18.0, "start", cx + 9.0),
        ];
        let free = places.into_iter().find_map(|(at, base, anchor, left)| {
            let shape = [left, base - 16.0, left + wide, base + 4.0];
            let inside =
                shape[0] > FRAME.left && shape[2] < WIDTH && shape[1] > 20.0 && shape[3] < FRAME.bottom;
            let apart = |other: &[f64; 4]| {
                shape[2] < other[0] || other[2] < shape[0] || shape[3] < other[1] || other[3] < shape[1]
            };
            (inside && taken.iter().all(apart)).then_some((at, base, anchor, shape))
        });
        if let Some((at, base, anchor, shape)) = free {
            taken.push(shape);
            labels.push(text(at, base, anchor, point.name).class("value"));
        }
    }
    labels
}

/// Room for a letter of a label, as large as a narrow page shows it.
fn width(letter: char) -> f64 {
    match letter {
        'W' | 'M' | 'm' | 'w' | '@' | '%' => 17.5,
        _ if letter.is_ascii_uppercase() => 13.0,
        _ if letter.is_ascii() => 10.0,
        _ => 17.5,
    }
}

/// The range of all values with their spread and a margin.
fn domain(values: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let ends = values.filter(|(mean, _)| mean.is_finite()).map(|(mean, std)| (mean - std, mean + std));
    let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (x, y)| (a.min(x), b.max(y)));
    if low > high {
        return (0.0, 1.0);
    }
    let air = ((high - low) * 0.12).max(high.abs() * 1e-3).max(1e-9);
    (low - air, high + air)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, unfair: f64, good: f64) -> ParetoPoint<'_> {
        ParetoPoint { index: 0, name, unfair: (unfair, 0.0), good: (good, 0.1), data: "" }
    }

    #[test]
    fn the_front_leaves_out_dominated_points() {
        let points =
            [point("a", 3.0, 0.9), point("b", 1.0, 0.8), point("c", 2.0, 0.7), point("d", 3.0, 0.85)];
        let names: Vec<&str> = front(&points).iter().map(|point| point.name).collect();
        assert_eq!(names, ["b", "a"]);
        // Equal points do not dominate each other.
        assert_eq!(front(&[point("a", 1.0, 1.0), point("b", 1.0, 1.0)]).len(), 2);
        // Other data are another question.
        let other = ParetoPoint { data: "iid", ..point("b", 2.0, 0.5) };
        assert_eq!(front(&[point("a", 1.0, 1.0), other]).len(), 2);
    }

    #[test]
    fn every_setting_has_a_mark() {
        let points = [point("a", 3.0, 0.9), point("b", 3.0, 0.9)];
        let text = pareto(Axes { unfair: "variance", good: "accuracy" }, &points).to_string();
        assert_eq!(text.matches("class=\"mark").count(), 2);
        assert!(!text.contains("NaN"));
        assert!(pareto(Axes { unfair: "variance", good: "accuracy" }, &[]).to_string().starts_with("<svg"));
    }
}
