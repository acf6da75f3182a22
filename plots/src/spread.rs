//! Every device of every setting as a dot, one lane per tier, over a box of quartiles and whiskers (5 and 95 %).

use crate::{
    frame::{Frame, described, line, text},
    markup::{Element, el},
    number::figure,
    scale::{Scale, step},
    series::class,
};

const WIDTH: f64 = 1060.0;
const LEFT: f64 = 210.0;
const TOP: f64 = 12.0;
const LANE: f64 = 6.0;
const GAP: f64 = 12.0;
/// Letters that fit into one of the two lines of a name in the margin.
const LETTERS: usize = 28;
/// Distance of the two lines.
const LEADING: f64 = 14.0;
/// Letters that fit however wide they are.
const FREE_LETTERS: usize = 14;

/// One setting.
#[derive(Clone, Debug)]
pub struct SpreadRow<'a> {
    /// Selects the colour.
    pub index: usize,
    /// As the margin has it.
    pub name: &'a str,
    /// Tier and value of every device.
    pub devices: Vec<(usize, f64)>,
    /// Whether the axis covers it. Diverged devices are at its edge.
    pub scales: bool,
}

/// Draws the plot; `what` is the title of the axis.
pub fn spread(what: &str, rows: &[SpreadRow<'_>]) -> Element {
    let lanes = rows.iter().flat_map(|row| row.devices.iter().map(|device| device.0 + 1)).max().unwrap_or(1);
    let tall = (lanes as f64 * LANE).max(18.0);
    let bottom = TOP + rows.len().max(1) as f64 * (tall + GAP);
    let frame = Frame { left: LEFT, right: WIDTH - 16.0, top: TOP, bottom };
    let scaling = rows.iter().filter(|row| row.scales);
    let values = scaling.flat_map(|row| row.devices.iter().map(|device| device.1));
    let top = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    let unit = step((top / 10.0).max(1e-6));
    let x = Scale::linear((0.0, (top / unit).ceil().max(1.0) * unit), (frame.left, frame.right));
    let medians: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let [low, _, middle, _, high] = quantiles(row)?;
            Some(format!("{} {} ({} to {})", row.name, figure(middle), figure(low), figure(high)))
        })
        .collect();
    let about = format!("{what}, median and 5 to 95 %: {}.", medians.join(", "));
    let draw = |(at, row): (usize, &SpreadRow<'_>)| {
        let y = TOP + at as f64 * (tall + GAP) + GAP / 2.0;
        el("g").with(name(row.name, y + tall / 2.0 + 4.0)).all(shape(row, y, tall, &x)).all(
            row.devices.iter().filter(|device| device.1.is_finite()).map(|&(tier, value)| {
                let y = y + (tier as f64 + 0.5) * tall / lanes as f64;
                el("circle")
                    .class(format_args!("device {}", class(row.index)))
                    .at("cx", x.at(value))
                    .at("cy", y)
                    .at("r", 2.2)
            }),
        )
    };
    described(WIDTH, bottom + 48.0, what, &about)
        .with(frame.columns(&x, &x.ticks(10)))
        .all(rows.iter().enumerate().map(draw))
        .with(frame.name_x(what))
}

/// The name on one line or two, squeezed to fit the margin.
fn name(name: &str, y: f64) -> Element {
    let lines = divide(name);
    let first = y - LEADING * (lines.len() as f64 - 1.0) / 2.0;
    let label = |(at, line): (usize, &String)| {
        let label = text(LEFT - 8.0, first + LEADING * at as f64, "end", line).class("row");
        match line.chars().count() > FREE_LETTERS {
            true => label.at("textLength", LEFT - 16.0).set("lengthAdjust", "spacingAndGlyphs"),
            false => label,
        }
    };
    el("g").all(lines.iter().enumerate().map(label)).hint(name)
}

/// Divides a long name at the last space that leaves room. What then does not fit into two lines is cut off.
fn divide(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= LETTERS {
        return vec![name.to_owned()];
    }
    let at = letters[..=LETTERS].iter().rposition(|letter| *letter == ' ').filter(|at| *at > 0);
    let rest = at.map_or(LETTERS, |at| at + 1);
    let first = letters[..at.unwrap_or(LETTERS)].iter().collect();
    let second = match letters[rest..].len() > LETTERS {
        true => letters[rest..].iter().take(LETTERS - 1).chain(&['…']).collect(),
        false => letters[rest..].iter().collect(),
    };
    vec![first, second]
}

fn shape(row: &SpreadRow<'_>, y: f64, tall: f64, x: &Scale) -> Vec<Element> {
    let Some(ends) = quantiles(row) else { return vec![] };
    let [low, first, middle, third, high] = ends.map(|value| x.at(value));
    let style = class(row.index);
    let quarter = el("rect").class(format_args!("box {style}")).at("x", first).at("y", y);
    vec![
        line(low, y + tall / 2.0, high, y + tall / 2.0).class(format_args!("whisker {style}")),
        quarter.at("width", (third - first).max(0.5)).at("height", tall).hint(format_args!(
            "{}: half of the devices between {} and {}",
            row.name,
            figure(ends[1]),
            figure(ends[3])
        )),
        line(middle, y, middle, y + tall).class(format_args!("middle {style}")),
    ]
}

/// Quantiles at 5, 25, 50, 75 and 95 %, linearly interpolated.
fn quantiles(row: &SpreadRow<'_>) -> Option<[f64; 5]> {
    let mut values: Vec<f64> =
        row.devices.iter().map(|device| device.1).filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some([0.05, 0.25, 0.5, 0.75, 0.95].map(|share| {
        let at = share * last as f64;
        let (below, above) = (values[at.floor() as usize], values[(at.ceil() as usize).min(last)]);
        below + (above - below) * at.fract()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles() {
        let row = SpreadRow {
            index: 0,
            name: "a",
            scales: true,
            devices: (0..=20).map(|value| (0, f64::from(value))).collect(),
        };
        assert_eq!(quantiles(&row), Some([1.0, 5.0, 10.0, 15.0, 19.0]));
        assert_eq!(quantiles(&SpreadRow { devices: vec![], ..row }), None);
    }

    #[test]
    fn long_names_have_two_lines() {
        assert_eq!(divide("FedAvg"), ["FedAvg"]);
        let two = divide("calm: FedAvg of all three makers, without any weights");
        assert_eq!(two, ["calm: FedAvg of all three", "makers, without any weights"]);
        let lines = divide(&"x".repeat(80));
        assert_eq!((lines[0].len(), lines[1].chars().count()), (LETTERS, LETTERS));
        assert!(lines[1].ends_with('…'));
        assert!(divide(&format!("é {}", "ä".repeat(40))).iter().all(|line| line.chars().count() <= LETTERS));
    }

    #[test]
    fn every_device_is_a_dot() {
        let row = SpreadRow {
            index: 0,
            name: "a name that is much too long for it",
            devices: vec![(0, 1.0), (4, 2.0), (1, f64::NAN)],
            scales: true,
        };
        let wild = SpreadRow { devices: vec![(0, 1e30)], scales: false, ..row.clone() };
        let edge = spread("loss", &[row.clone(), wild]).to_string();
        assert!(edge.contains(">2</text>") && !edge.contains("e30</text>"), "{edge}");
        let text = spread("loss", &[row]).to_string();
        assert_eq!(text.matches("class=\"device").count(), 2);
        assert!(!text.contains('…') && !text.contains("NaN"));
        assert!(spread("loss", &[]).to_string().starts_with("<svg"));
    }
}
