//! Axes, grid and their labels.

use crate::{
    markup::{Element, el},
    scale::{Scale, label},
};

/// Width of a digit of a tick, as large as a narrow page shows it.
const DIGIT: f64 = 10.0;
/// Room at the right of every frame.
const MARGIN: f64 = 10.0;

/// The rectangle between the axes, in the plot's own units.
#[derive(Copy, Clone, Debug)]
pub struct Frame {
    /// X coordinate of the left edge.
    pub left: f64,
    /// X coordinate of the right edge.
    pub right: f64,
    /// Y coordinate of the upper edge; y grows downwards.
    pub top: f64,
    /// Y coordinate of the lower edge.
    pub bottom: f64,
}

/// An SVG that scales with the page; `about` is its text for screen readers.
pub fn canvas(width: f64, height: f64, about: &str) -> Element {
    el("svg")
        .set("xmlns", "http://www.w3.org/2000/svg")
        .set("viewBox", format_args!("0 0 {width} {height}"))
        .set("role", "img")
        .set("aria-label", about)
}

/// The same with separate title and description.
pub fn described(width: f64, height: f64, title: &str, about: &str) -> Element {
    canvas(width, height, &format!("{title}. {about}"))
        .with(el("title").text(title))
        .with(el("desc").text(about))
}

/// Text with its anchor: `start`, `middle` or `end`.
pub fn text(x: f64, y: f64, anchor: &str, what: &str) -> Element {
    el("text").at("x", x).at("y", y).set("text-anchor", anchor).text(what)
}

/// A straight line between two points, without a style.
pub fn line(x1: f64, y1: f64, x2: f64, y2: f64) -> Element {
    el("line").at("x1", x1).at("y1", y1).at("x2", x2).at("y2", y2)
}

impl Frame {
    /// Grid lines from left to right with their numbers at the left.
    pub fn rows(&self, scale: &Scale, ticks: &[f64]) -> Element {
        let tick = |&value: &f64| {
            let y = scale.at(value);
            el("g")
                .with(line(self.left, y, self.right, y).class("grid"))
                .with(text(self.left - 6.0, y + 4.0, "end", &label(value)).class("tick"))
        };
        el("g").all(ticks.iter().map(tick))
    }

    /// Grid lines from top to bottom with their numbers below.
    pub fn columns(&self, scale: &Scale, ticks: &[f64]) -> Element {
        let tick = |&value: &f64| {
            let x = scale.at(value);
            let name = label(value);
            // A number at the right end stays inside the picture.
            let beyond = x + name.len() as f64 * DIGIT / 2.0 > self.right + MARGIN;
            let (at, anchor) = if beyond { (self.right + MARGIN, "end") } else { (x, "middle") };
            el("g")
                .with(line(x, self.top, x, self.bottom).class("grid"))
                .with(text(at, self.bottom + 17.0, anchor, &name).class("tick"))
        };
        el("g").all(ticks.iter().map(tick))
    }

    /// The title of the horizontal axis.
    pub fn name_x(&self, name: &str) -> Element {
        text((self.left + self.right) / 2.0, self.bottom + 36.0, "middle", name).class("axis")
    }
}
