//! Lorenz curves: the share of the whole that the worst-off devices have together.
//!
//! ```text
//! x = i / N,  y = (sum of the i smallest) / (sum of all)      on the diagonal all are equal
//! Gini = 1 - 2 * area below the curve
//! ```

use crate::{
    frame::{Frame, described, line, text},
    markup::{Element, el},
    number::figure,
    scale::Scale,
    series::class,
};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 400.0;
const FRAME: Frame = Frame { left: 48.0, right: WIDTH - 14.0, top: 34.0, bottom: HEIGHT - 48.0 };

/// One curve.
#[derive(Clone, Debug)]
pub struct Lorenz<'a> {
    /// Selects colour and dashes.
    pub index: usize,
    /// As the legend has it.
    pub name: &'a str,
    /// From (0, 0) to (1, 1).
    pub curve: Vec<(f64, f64)>,
}

/// Points from (0, 0) to (1, 1); empty if the sum is 0. Negative numbers count as 0.
pub fn curve(values: &[f64]) -> Vec<(f64, f64)> {
    let mut values: Vec<f64> =
        values.iter().filter(|value| value.is_finite()).map(|value| value.max(0.0)).collect();
    values.sort_unstable_by(f64::total_cmp);
    let (count, all) = (values.len() as f64, values.iter().sum::<f64>());
    if all <= 0.0 {
        return vec![];
    }
    let mut sum = 0.0;
    let steps = values.iter().enumerate().map(|(at, value)| {
        sum += value;
        ((at + 1) as f64 / count, sum / all)
    });
    std::iter::once((0.0, 0.0)).chain(steps).collect()
}

/// The Gini index; 0 if all values are equal.
pub fn gini(values: &[f64]) -> Option<f64> {
    let curve = curve(values);
    let area = |pair: &[(f64, f64)]| match pair {
        [(x0, y0), (x1, y1)] => (x1 - x0) * (y0 + y1) / 2.0,
        _ => 0.0,
    };
    (!curve.is_empty()).then(|| (1.0 - 2.0 * curve.windows(2).map(area).sum::<f64>()).max(0.0))
}

/// All curves in one square; `what` is the distributed quantity, as in `accuracy`.
pub fn lorenz(what: &str, lines: &[Lorenz<'_>]) -> Element {
    let x = Scale::linear((0.0, 1.0), (FRAME.left, FRAME.right));
    let y = Scale::linear((0.0, 1.0), (FRAME.bottom, FRAME.top));
    let stroke = |series: &Lorenz<'_>| {
        let points: Vec<String> =
            series.curve.iter().map(|point| format!("{:.1},{:.1}", x.at(point.0), y.at(point.1))).collect();
        el("polyline")
            .class(format_args!("line {}", class(series.index)))
            .set("points", points.join(" "))
            .hint(series.name)
    };
    let fifth = |series: &Lorenz<'_>| {
        let at = series.curve.iter().rfind(|point| point.0 <= 0.2 + 1e-9)?;
        Some(format!("{} {}", series.name, figure(at.1)))
    };
    let about = format!(
        "Share of all {what} that the worst-off fifth of devices has, 0.2 if all had the same: {}.",
        lines.iter().filter_map(fifth).collect::<Vec<_>>().join(", ")
    );
    described(WIDTH, HEIGHT, &format!("Lorenz curve of {what}"), &about)
        .with(FRAME.rows(&y, &y.ticks(5)))
        .with(FRAME.columns(&x, &x.ticks(5)))
        .with(line(FRAME.left, FRAME.bottom, FRAME.right, FRAME.top).class("zero"))
        .all(lines.iter().map(stroke))
        .with(text(FRAME.left, 16.0, "start", &format!("↑ share of all {what}")).class("axis"))
        .with(FRAME.name_x("share of devices, worst-off first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_lie_on_the_diagonal() {
        assert_eq!(curve(&[2.0, 2.0]), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)]);
        assert_eq!(gini(&[3.0; 4]), Some(0.0));
    }

    #[test]
    fn one_of_four_has_everything() {
        assert_eq!(gini(&[0.0, 0.0, 1.0, 0.0]), Some(0.75));
        assert_eq!(gini(&[1.0, 3.0]), Some(0.25));
        assert_eq!((gini(&[]), gini(&[0.0])), (None, None));
    }

    #[test]
    fn curves_are_drawn() {
        let text =
            lorenz("accuracy", &[Lorenz { index: 0, name: "a", curve: curve(&[1.0, 3.0]) }]).to_string();
        assert!(text.contains("<polyline") && text.contains("a 0.00"), "{text}");
        assert!(lorenz("accuracy", &[]).to_string().starts_with("<svg"));
    }
}
