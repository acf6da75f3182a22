//! Fairness against accuracy, one mark per arm with its spread over seeds; the line joins the arms that no other
//! beats in both.

use super::{
    frame::{Frame, described, line, text},
    series::{class, mark},
};
use crate::report::{
    markup::{Element, el},
    number::figure,
    scale::Scale,
};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 400.0;
const FRAME: Frame = Frame { left: 58.0, right: WIDTH - 18.0, top: 34.0, bottom: HEIGHT - 50.0 };
/// Of a letter in labels, roughly.
const LETTER: f64 = 7.0;

#[derive(Clone, PartialEq, Debug)]
pub struct Arm<'a> {
    pub index: usize,
    pub name: &'a str,
    /// Low is fair: mean and standard deviation over seeds.
    pub unfair: (f64, f64),
    /// High is good.
    pub good: (f64, f64),
}

/// What the axes mean.
#[derive(Copy, Clone, Debug)]
pub struct Axes<'a> {
    pub unfair: &'a str,
    pub good: &'a str,
}

/// Arms that none is at least as good as in both and better in one, fairest first.
pub fn front<'a, 'b>(arms: &'b [Arm<'a>]) -> Vec<&'b Arm<'a>> {
    let beats = |a: &Arm<'_>, b: &Arm<'_>| {
        a.unfair.0 <= b.unfair.0 && a.good.0 >= b.good.0 && (a.unfair.0 < b.unfair.0 || a.good.0 > b.good.0)
    };
    let mut front: Vec<&Arm<'_>> =
        arms.iter().filter(|arm| !arms.iter().any(|other| beats(other, arm))).collect();
    front.sort_by(|a, b| a.unfair.0.total_cmp(&b.unfair.0));
    front
}

pub fn pareto(axes: Axes<'_>, arms: &[Arm<'_>]) -> Element {
    let x = Scale::linear(domain(arms.iter().map(|arm| arm.unfair)), (FRAME.left, FRAME.right));
    let y = Scale::linear(domain(arms.iter().map(|arm| arm.good)), (FRAME.bottom, FRAME.top));
    let best = front(arms);
    let points: Vec<String> =
        best.iter().map(|arm| format!("{:.1},{:.1}", x.at(arm.unfair.0), y.at(arm.good.0))).collect();
    let names: Vec<&str> = best.iter().map(|arm| arm.name).collect();
    let about = format!(
        "{} against {}. Not beaten in both by any other: {}.",
        axes.good,
        axes.unfair,
        names.join(", ")
    );
    described(WIDTH, HEIGHT, "Fairness and accuracy", &about)
        .with(FRAME.rows(&y, &y.ticks(6)))
        .with(FRAME.columns(&x, &x.ticks(6)))
        .with(text(FRAME.left, 16.0, "start", &format!("↑ {}", axes.good)).class("axis"))
        .with(el("polyline").class("front").set("points", points.join(" ")))
        .all(arms.iter().map(|arm| cross(arm, &x, &y)))
        .all(labels(arms, &x, &y))
        .with(FRAME.name_x(&format!("{}: fairer ←", axes.unfair)))
}

/// The mark and how far seeds differ.
fn cross(arm: &Arm<'_>, x: &Scale, y: &Scale) -> Element {
    let (cx, cy) = (x.at(arm.unfair.0), y.at(arm.good.0));
    let style = format!("whisker {}", class(arm.index));
    let [left, right] = [-1.0, 1.0].map(|side| x.at(arm.unfair.0 + side * arm.unfair.1));
    let [low, high] = [-1.0, 1.0].map(|side| y.at(arm.good.0 + side * arm.good.1));
    el("g")
        .with(line(left, cy, right, cy).class(&style))
        .with(line(cx, low, cx, high).class(&style))
        .with(mark(arm.index, cx, cy, 6.0))
        .hint(format_args!("{}: {}, {}", arm.name, figure(arm.unfair.0), figure(arm.good.0)))
}

/// Names beside the marks, each at the first place that is free; none where all are taken (hints and the table
/// have it).
fn labels(arms: &[Arm<'_>], x: &Scale, y: &Scale) -> Vec<Element> {
    let marks = arms.iter().map(|arm| (x.at(arm.unfair.0), y.at(arm.good.0)));
    let mut taken: Vec<[f64; 4]> = marks.clone().map(|(x, y)| [x - 6.0, y - 6.0, x + 6.0, y + 6.0]).collect();
    let mut labels = vec![];
    for (arm, (cx, cy)) in arms.iter().zip(marks) {
        let wide = arm.name.chars().count() as f64 * LETTER;
        let places = [
            (cx + 11.0, cy + 4.0, "start", cx + 11.0),
            (cx - 11.0, cy + 4.0, "end", cx - 11.0 - wide),
            (cx, cy - 12.0, "middle", cx - wide / 2.0),
            (cx, cy + 20.0, "middle", cx - wide / 2.0),
            (cx + 9.0, cy - 11.0, "start", cx + 9.0),
            (cx + 9.0, cy + 18.0, "start", cx + 9.0),
        ];
        let free = places.into_iter().find_map(|(at, base, anchor, left)| {
            let shape = [left, base - 11.0, left + wide, base + 3.0];
            let inside =
                shape[0] > FRAME.left && shape[2] < WIDTH && shape[1] > 20.0 && shape[3] < FRAME.bottom;
            let apart = |other: &[f64; 4]| {
                shape[2] < other[0] || other[2] < shape[0] || shape[3] < other[1] || other[3] < shape[1]
            };
            (inside && taken.iter().all(apart)).then_some((at, base, anchor, shape))
        });
        if let Some((at, base, anchor, shape)) = free {
            taken.push(shape);
            labels.push(text(at, base, anchor, arm.name).class("value"));
        }
    }
    labels
}

/// Everything with its spread, and some air.
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

    fn arm(name: &str, unfair: f64, good: f64) -> Arm<'_> {
        Arm { index: 0, name, unfair: (unfair, 0.0), good: (good, 0.1) }
    }

    #[test]
    fn the_front_leaves_out_who_is_beaten() {
        let arms = [arm("a", 3.0, 0.9), arm("b", 1.0, 0.8), arm("c", 2.0, 0.7), arm("d", 3.0, 0.85)];
        let names: Vec<&str> = front(&arms).iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["b", "a"]);
        // Equals do not beat each other.
        assert_eq!(front(&[arm("a", 1.0, 1.0), arm("b", 1.0, 1.0)]).len(), 2);
    }

    #[test]
    fn every_arm_has_a_mark() {
        let arms = [arm("a", 3.0, 0.9), arm("b", 3.0, 0.9)];
        let text = pareto(Axes { unfair: "variance", good: "accuracy" }, &arms).to_string();
        assert_eq!(text.matches("class=\"mark").count(), 2);
        assert!(!text.contains("NaN"));
        assert!(pareto(Axes { unfair: "variance", good: "accuracy" }, &[]).to_string().starts_with("<svg"));
    }
}
