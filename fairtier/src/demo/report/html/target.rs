//! The fairness target on the page: disparity, knob and price, the seeds, and the device with classes of its own.

use plots::{
    markup::{Element, el},
    number,
};
use strategies::fairness::FairnessStatus;

use super::{line_legend, tone};
use crate::demo::{
    DemoResult, MinorityScores, SeedResult,
    report::{plot, rows},
    target::{certificate, words},
};

/// `None` without a target.
pub fn section(result: &DemoResult) -> Option<Element> {
    let line = result.runs.last()?.target.as_ref()?;
    let about = "Disparity: standard deviation of the tiers' mean losses over their mean, on samples that devices hold out.";
    let mut facts = vec![el("dt").text("Status"), status(line.status, &words(line))];
    facts.extend([el("dt").text("Certificate"), el("dd").text(certificate(line))]);
    for change in &result.changes {
        let [gain, pay] = rows::gain_and_pay(change);
        facts.extend([el("dt").text("Gain"), el("dd").text(gain), el("dt").text("Pay"), el("dd").text(pay)]);
    }
    let panels = [plot::disparity(result), plot::knob(result), Some(plot::gains(result))];
    Some(
        el("section")
            .set("aria-labelledby", "target")
            .with(el("h2").set("id", "target").text("Fairness target"))
            .with(el("p").text(format_args!(
                "{about} The gateway raises {} while the disparity is above the target of {}, and lowers it below. \
                 Both runs hold out the same samples, so they train on the same data.",
                line.parameter, line.target
            )))
            .with(el("dl").all(facts))
            .with(line_legend(&result.runs).with(legend(line.target)))
            .with(el("div").class("panels").all(panels.into_iter().flatten())),
    )
}

fn legend(target: f64) -> Element {
    let line = el("line").class("front").at("x1", 0.0).at("y1", 7.0).at("x2", 34.0).at("y2", 7.0);
    let sample = el("svg").set("viewBox", "0 0 34 14").set("aria-hidden", "true").with(line);
    el("li").with(sample).text(format_args!("target {target}"))
}

fn status(status: FairnessStatus, words: &str) -> Element {
    let class = match status {
        FairnessStatus::Met => "good",
        FairnessStatus::NotReachable | FairnessStatus::LimitedByPrice => "bad",
        _ => "soft",
    };
    el("dd").with(el("strong").class(class).text(words))
}

/// A row for each seed; `None` if there is only one.
pub fn seeds(result: &DemoResult) -> Option<Element> {
    let [base, .., fair] = &result.runs[..] else { return None };
    let heads =
        [base.title, fair.title, "status", "knob", "mean", "worst 10 %", "variance"].map(String::from);
    let row = |seed: &SeedResult| {
        let [old, new] = seed.disparity;
        let status = seed.status.map_or("no target", FairnessStatus::name).replace('_', " ");
        let changes = [seed.change.mean, seed.change.worst10, seed.change.variance].map(number::change);
        el("tr")
            .with(el("th").set("scope", "row").text(seed.seed))
            .all([old, new].map(|value| el("td").text(measured(value))))
            .with(el("td").text(status))
            .with(el("td").text(measured(seed.knob)))
            .all(changes.map(|by| el("td").class(tone(&by, false)).text(by)))
    };
    (result.seeds.len() > 1).then(|| {
        el("section")
            .set("aria-labelledby", "seeds")
            .with(el("h2").set("id", "seeds").text("All seeds"))
            .with(el("p").text(
                "Every seed as it falls, with the same settings and over QUIC: disparity of both runs over the last rounds, \
                 status and last value of the knob, and changes of the test losses against HeteroFL.",
            ))
            .with(table("All seeds", &heads, result.seeds.iter().map(row)))
    })
}

/// Accuracy of the device with classes of its own, by seed; `None` without such a device.
pub fn minority(result: &DemoResult) -> Option<Element> {
    let device = result.setup.minority?;
    let [base, .., fair] = &result.runs[..] else { return None };
    let head = |whose: &str| [format!("{whose}: {}", base.title), fair.title.into(), "change".into()];
    let heads = [head(device), head("others")].concat();
    let row = |(seed, MinorityScores { alone, others }): (u64, MinorityScores)| {
        let cells = [alone, others].into_iter().flat_map(|[old, new]| {
            let by = number::points(new - old);
            let accuracies = [old, new].map(|share| el("td").text(number::percent(share)));
            accuracies.into_iter().chain([el("td").class(tone(&by, true)).text(by)])
        });
        el("tr").with(el("th").set("scope", "row").text(seed)).all(cells)
    };
    let rows = result.seeds.iter().filter_map(|seed| Some(row((seed.seed, seed.minority?))));
    let rare: Vec<String> = result.setup.rare.iter().map(u32::to_string).collect();
    Some(
        el("section")
            .set("aria-labelledby", "minority")
            .with(el("h2").set("id", "minority").text("A device with classes of its own"))
            .with(el("p").text(format_args!(
                "Only {device} has classes {}, and it has no others. Test accuracy of it, and the mean of all others.",
                rare.join(" and ")
            )))
            .with(table("Minority", &heads, rows)),
    )
}

fn measured(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), number::figure)
}

fn table(label: &str, heads: &[String], rows: impl Iterator<Item = Element>) -> Element {
    let head = el("tr")
        .with(el("th").set("scope", "col").class("left").text("seed"))
        .all(heads.iter().map(|name| el("th").set("scope", "col").text(name)));
    let table = el("table").with(el("thead").with(head)).with(el("tbody").all(rows));
    el("div").class("scroll").set("tabindex", 0).set("role", "region").set("aria-label", label).with(table)
}
