//! The main comparison as one SVG file, for a README: a headline and the losses of the devices.

use plots::{PICTURE_STYLE, PLOT_STYLE, markup::el, number};

use super::plot::{self, Spacing, StripPlot};
use crate::demo::DemoResult;

const HEAD: f64 = 64.0;

/// A complete SVG document.
pub fn picture(result: &DemoResult) -> String {
    let headline = result.changes.first().map_or_else(String::new, |change| {
        format!(
            "variance {}   ·   worst 10 % {}   ·   mean loss {}",
            number::change(change.variance),
            number::change(change.worst10),
            number::change(change.mean)
        )
    });
    let setup = &result.setup;
    let title = format!("Test loss of {} devices in {} tiers of hardware", setup.devices, setup.tiers.len());
    let StripPlot { width, height, about, parts } = plot::strip_parts(result, Spacing::TIGHT);
    let text = |y: f64, class: &str, what: &str| el("text").at("x", 14.0).at("y", y).class(class).text(what);
    let svg = el("svg")
        .set("xmlns", "http://www.w3.org/2000/svg")
        .set("viewBox", format_args!("0 0 {width} {}", height + HEAD))
        .at("width", width * 1.35)
        .at("height", (height + HEAD) * 1.35)
        .set("role", "img")
        .set("aria-label", format_args!("{title}. {headline}. {about}"))
        .with(el("style").text(PLOT_STYLE).text(PICTURE_STYLE))
        .with(el("rect").class("back").set("width", "100%").set("height", "100%"))
        .with(text(28.0, "head", &title))
        .with(text(50.0, "row", &headline))
        .with(el("g").set("transform", format_args!("translate(0 {HEAD})")).all(parts));
    format!("{svg}\n")
}
