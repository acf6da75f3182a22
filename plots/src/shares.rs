//! Samples of each client: one column per client, stacked by class or by group.

use crate::frame::{Frame, canvas, text};
use crate::{
    markup::{Element, el},
    scale::{Scale, step},
};

const WIDTH: f64 = 1080.0;
const HEIGHT: f64 = 380.0;
const LEGEND_ROW: f64 = 20.0;
/// Number of colours in the style sheet. The last one is for all remaining kinds.
const COLOURS: usize = 12;

/// The stacked counts: for every client, one count per kind.
#[derive(Clone, Debug)]
pub struct StackedColumns<'a> {
    /// What the kinds are, as in `class`.
    pub what: &'a str,
    /// Names of the parts of a column, from the bottom up.
    pub kinds: &'a [String],
    /// Name of each client, and its counts by kind.
    pub clients: Vec<(&'a str, &'a [usize])>,
}

/// Draws the plot on a canvas of its own.
pub fn shares(stack: &StackedColumns<'_>) -> Element {
    let (height, parts) = shares_parts(stack);
    canvas(WIDTH, height, &about(stack)).all(parts)
}

/// Height and elements, for a canvas of the caller that is 1080 units wide.
pub fn shares_parts(stack: &StackedColumns<'_>) -> (f64, Vec<Element>) {
    let bands = bands(stack);
    let (legend, rows) = legend(&bands);
    let head = rows as f64 * LEGEND_ROW + 18.0;
    let height = HEIGHT + head;
    let frame = Frame { left: 60.0, right: WIDTH - 16.0, top: head, bottom: height - 48.0 };
    let total = |counts: &[usize]| counts.iter().sum::<usize>();
    let most = stack.clients.iter().map(|(_, counts)| total(counts)).max().unwrap_or(0).max(1) as f64;
    let unit = step(most / 5.0).max(1.0);
    let y = Scale::linear((0.0, (most / unit).ceil() * unit), (frame.bottom, frame.top));
    let wide = (frame.right - frame.left) / stack.clients.len().max(1) as f64;
    let gap = if wide > 6.0 { wide * 0.12 } else { 0.0 };
    let columns = stack.clients.iter().enumerate().map(|(at, (name, counts))| {
        let left = frame.left + at as f64 * wide;
        let mut below = 0;
        let parts = bands.iter().enumerate().filter_map(|(index, band)| {
            let count: usize = band.kinds.iter().map(|&kind| counts[kind]).sum();
            let (low, high) = (y.at(below as f64), y.at((below + count) as f64));
            below += count;
            let part = el("rect")
                .class(format_args!("k{index}"))
                .at("x", left + gap / 2.0)
                .at("y", high)
                .at("width", wide - gap)
                .at("height", low - high);
            let hint = format!("{name}: {count} of {} {} {}", total(counts), stack.what, band.name);
            (count > 0).then(|| part.hint(hint))
        });
        el("g").all(parts)
    });
    let every = step((stack.clients.len() as f64 / 20.0).max(1.0)).round().max(1.0) as usize;
    let numbers = (0..stack.clients.len()).step_by(every).map(|client| {
        let x = frame.left + (client as f64 + 0.5) * wide;
        text(x, frame.bottom + 17.0, "middle", &client.to_string()).class("tick")
    });
    let mut parts = vec![legend, frame.rows(&y, &y.ticks(5))];
    parts.extend(columns);
    parts.extend(numbers);
    parts.push(frame.name_x(&format!("client; height: training samples by {}", stack.what)));
    (height, parts)
}

/// Kinds with the same colour.
struct Band {
    name: String,
    kinds: Vec<usize>,
}

/// One band per kind, or the largest kinds and the rest.
fn bands(stack: &StackedColumns<'_>) -> Vec<Band> {
    let one = |kind: usize| Band { name: stack.kinds[kind].clone(), kinds: vec![kind] };
    if stack.kinds.len() <= COLOURS {
        return (0..stack.kinds.len()).map(one).collect();
    }
    let size = |kind: &usize| -> usize { stack.clients.iter().map(|(_, counts)| counts[*kind]).sum() };
    let mut order: Vec<usize> = (0..stack.kinds.len()).collect();
    order.sort_by_key(|kind| std::cmp::Reverse(size(kind)));
    let rest = order.split_off(COLOURS - 1);
    let other = Band { name: format!("{} others", rest.len()), kinds: rest };
    order.into_iter().map(one).chain([other]).collect()
}

/// The legend, and its number of rows.
fn legend(bands: &[Band]) -> (Element, usize) {
    let (mut x, mut row) = (60.0, 0);
    let entry = |(index, band): (usize, &Band)| {
        // Approximate width of the text.
        let width = 28.0 + 8.0 * band.name.chars().count() as f64;
        if x + width > WIDTH - 16.0 {
            (x, row) = (60.0, row + 1);
        }
        let y = 4.0 + row as f64 * LEGEND_ROW;
        let sample = el("rect").class(format_args!("k{index}")).at("x", x).at("y", y);
        let sample = sample.at("width", 12.0).at("height", 12.0);
        let name = text(x + 17.0, y + 11.0, "start", &band.name).class("axis");
        x += width;
        el("g").with(sample).with(name)
    };
    let entries: Vec<Element> = bands.iter().enumerate().map(entry).collect();
    (el("g").all(entries), row + 1)
}

fn about(stack: &StackedColumns<'_>) -> String {
    let sizes = stack.clients.iter().map(|(_, counts)| counts.iter().sum::<usize>());
    format!(
        "Training samples of {} clients by {}; the smallest has {}, the largest {}.",
        stack.clients.len(),
        stack.what,
        sizes.clone().min().unwrap_or(0),
        sizes.max().unwrap_or(0)
    )
}
