//! Tables of the page. Cells also carry the unrounded number.

use common::metrics::Spread;

use super::digest::{Digest, ExperimentDigest, SettingDigest, TierDigest};
use crate::{
    claims::{CheckOutcome, ClaimVerdict, Finding},
    experiment::{Price, PriceLine},
    results::figure,
    statistics::Interval,
};
use plots::{
    markup::{Element, el},
    number,
};

/// A table in a horizontally scrolling box.
fn scroll(name: &str, table: Element) -> Element {
    el("div").class("scroll").set("tabindex", 0).set("role", "region").set("aria-label", name).with(table)
}

fn head(names: &[&str]) -> Element {
    let cell = |(at, name): (usize, &&str)| {
        let cell = el("th").set("scope", "col").text(name);
        if at == 0 { cell.class("left") } else { cell }
    };
    el("thead").with(el("tr").all(names.iter().enumerate().map(cell)))
}

pub fn badge(verdict: ClaimVerdict) -> Element {
    let (class, sign) = match verdict {
        ClaimVerdict::Reached | ClaimVerdict::ByVariant => ("good", "✓ "),
        ClaimVerdict::InPart => ("part", "◐ "),
        ClaimVerdict::Contradicted => ("bad", "✗ "),
        ClaimVerdict::Undecided | ClaimVerdict::NotRun | ClaimVerdict::ByConstruction => ("soft", ""),
    };
    el("span").class(format_args!("badge {class}")).text(format_args!("{sign}{}", verdict.word()))
}

/// One line per claim.
pub fn claims(digest: &Digest) -> Element {
    let body = |source: &super::SourceDigest| {
        let row = |claim: &crate::claims::Assessment| {
            let verdicts = || claim.rows.iter().map(|row| row.finding.verdict);
            let reached = verdicts().filter(|verdict| verdict.is_reached()).count();
            el("tr")
                .with(el("th").set("scope", "row").text(claim.id))
                .with(el("td").class("words").text(claim.text))
                .with(el("td").with(badge(claim.verdict)))
                .with(el("td").text(match verdicts().filter(|verdict| verdict.counts()).count() {
                    0 => "–".into(),
                    run => format!("{reached} of {run}"),
                }))
        };
        let name = el("th").set("scope", "rowgroup").set("colspan", 4).text(source.name);
        el("tbody").with(el("tr").class("group").with(name)).all(source.claims.iter().map(row))
    };
    let table = el("table")
        .class("claims")
        .with(head(&["Claim", "", "Verdict", "Checks reached"]))
        .all(digest.sources.iter().map(body));
    scroll("Claims", table)
}

/// The compared figures, and why they decide nothing.
fn explained(finding: &Finding) -> String {
    let parts = finding.show_parts();
    finding.unfit.as_ref().map_or(parts.clone(), |why| format!("{parts}; {why}"))
}

/// Published values compared with ours; `None` if an experiment has no checks.
pub fn checks(experiment: &ExperimentDigest) -> Option<Element> {
    let row = |row: &CheckOutcome| {
        let finding = &row.finding;
        let ratio = finding.ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"));
        let ours = match finding.effect {
            Some(effect) => el("td").set("data-value", effect.mean),
            None => el("td").class("soft"),
        };
        let ours = ours.text(&row.ours);
        el("tr")
            .with(el("th").set("scope", "row").class("words").text(&row.what))
            .with(el("td").text(&row.published))
            .with(ours)
            .with(el("td").with(badge(finding.verdict)))
            .with(el("td").text(finding.seeds))
            .with(el("td").text(ratio))
            .with(el("td").class("words soft").text(explained(finding)))
    };
    let names = ["Check", "Published", "Ours [95 %]", "Verdict", "Seeds", "Ratio", "Mean ± std over seeds"];
    let table = el("table").with(head(&names)).with(el("tbody").all(experiment.checks.iter().map(row)));
    (!experiment.checks.is_empty()).then(|| scroll("Paper against ours", table))
}

/// All figures of all settings; the best of each column is marked among settings with the same data.
pub fn figures(experiment: &ExperimentDigest) -> Element {
    let titles: Vec<String> = experiment.figures.iter().map(|name| figure::title(name)).collect();
    let names: Vec<&str> =
        ["Setting", "Seeds"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    let row = |setting: &SettingDigest| {
        let cells = experiment.figures.iter().map(|name| match setting.figure(name) {
            Some(spread) => {
                let cell = el("td").set("data-value", spread.mean).text(figure::show_spread(name, spread));
                let cell = match setting.intervals.get(name) {
                    Some(Interval { low, high }) => {
                        let ends = [*low, *high].map(|end| figure::show(name, end)).join(", ");
                        cell.set("title", format_args!("95 %: [{ends}]"))
                    }
                    None => cell,
                };
                let best =
                    experiment.scales(setting) && best(experiment, &setting.data, name) == Some(spread.mean);
                if best { cell.class("best") } else { cell }
            }
            None => el("td").class("soft").text("–"),
        });
        let wanted = setting.seeds.len() + setting.missing.len();
        el("tr")
            .with(el("th").set("scope", "row").text(&setting.label))
            .with(el("td").text(format_args!("{} of {wanted}", setting.seeds.len())))
            .all(cells)
    };
    let several = experiment.settings.iter().any(|setting| setting.data != experiment.settings[0].data);
    let group = |data: &str| {
        let name = el("th").set("scope", "rowgroup").set("colspan", names.len()).text(data);
        el("tr").class("group").with(name)
    };
    let mut rows = vec![];
    let mut last = None;
    for setting in &experiment.settings {
        if several && last != Some(&setting.data) {
            rows.push(group(&setting.data));
        }
        last = Some(&setting.data);
        rows.push(row(setting));
    }
    let body = el("tbody").all(rows);
    scroll("All figures", el("table").class("figures").with(head(&names)).with(body))
}

/// The best of the settings with these data; `None` if the figure has no better direction, or all values are equal.
fn best(experiment: &ExperimentDigest, data: &str, name: &str) -> Option<f64> {
    let same = |setting: &&SettingDigest| setting.data == data && experiment.scales(setting);
    let means =
        || experiment.settings.iter().filter(same).filter_map(|setting| Some(setting.figure(name)?.mean));
    let (low, high) = (means().reduce(f64::min)?, means().reduce(f64::max)?);
    let judged = !matches!(name, "groups.constant" | "gaps.min");
    (judged && low < high).then_some(if figure::high_is_good(name) { high } else { low })
}

/// Settings with a fairness target against the same without; `None` if no such runs are there.
pub fn prices(experiment: &ExperimentDigest) -> Option<Element> {
    let body = |price: &Price| {
        let mut name =
            Some(el("th").set("scope", "rowgroup").set("rowspan", price.lines.len()).text(&price.label));
        let row = |line: &PriceLine| {
            let spread = |spread: &Spread| {
                el("td").set("data-value", spread.mean).text(figure::show_spread(&line.figure, spread))
            };
            el("tr")
                .all(name.take())
                .with(el("td").class("left").text(&line.title))
                .with(spread(&line.without))
                .with(spread(&line.with))
                .with(el("td").set("data-value", line.change.mean).text(number::change(line.change.mean)))
        };
        el("tbody").all(price.lines.iter().map(row).collect::<Vec<_>>())
    };
    let names = ["Setting", "Figure", "Without fairness", "With target", "Change"];
    let table = el("table").with(head(&names)).all(experiment.prices.iter().map(body));
    (!experiment.prices.is_empty()).then(|| scroll("Price of fairness", table))
}

/// The numbers of the plots by tier.
pub fn tiers(experiment: &ExperimentDigest) -> Element {
    let [quality, second] = match experiment.predicts_numbers() {
        true => ["Mean absolute error", "R2"],
        false => ["Accuracy", "Variance (percent²)"],
    };
    let names = [
        "Setting",
        "Tier",
        "Devices",
        "Mean loss",
        "Variance of loss",
        quality,
        second,
        "Up",
        "Down",
        "Time",
        "Energy",
        "Answered",
    ];
    let body = |(_, setting): (usize, &SettingDigest)| {
        let mut name =
            Some(el("th").set("scope", "rowgroup").set("rowspan", setting.tiers.len()).text(&setting.label));
        let rows = setting.tiers.iter().enumerate().map(|(at, tier)| tier_row(name.take(), at, tier));
        el("tbody").all(rows.collect::<Vec<_>>())
    };
    let table = el("table").with(head(&names)).all(experiment.run().map(body));
    scroll("Figures by tier", table)
}

fn tier_row(name: Option<Element>, at: usize, tier: &TierDigest) -> Element {
    let cell = |spread: &Spread, text: String| el("td").set("data-value", spread.mean).text(text);
    let scored = |spread: &Spread, figure: &str| cell(spread, figure::show_spread(figure, spread));
    let given = |spread: &Option<Spread>, figure: &str| match spread {
        Some(spread) => scored(spread, figure),
        None => el("td").text("–"),
    };
    let (quality, second) = match &tier.mae {
        Some(mae) => (scored(mae, "mae.mean"), given(&tier.r2, "r2")),
        None => (given(&tier.accuracy, "accuracy.mean"), given(&tier.accuracy_variance, "accuracy.variance")),
    };
    let mean = |spread: &Spread, show: fn(f64) -> String| cell(spread, show(spread.mean));
    el("tr")
        .all(name)
        .with(el("td").text(at))
        .with(el("td").text(tier.devices))
        .with(scored(&tier.loss, "loss.mean"))
        .with(scored(&tier.loss_variance, "loss.variance"))
        .with(quality)
        .with(second)
        .with(mean(&tier.bytes_up, number::bytes))
        .with(mean(&tier.bytes_down, number::bytes))
        .with(mean(&tier.busy_s, number::seconds))
        .with(mean(&tier.joules, |joules| format!("{} J", number::figure(joules))))
        .with(el("td").text(format_args!("{:.0} of {:.0}", tier.answered.mean, tier.asked.mean)))
}

/// The configuration: strategies, parameters, Gini indices, time.
pub fn settings(experiment: &ExperimentDigest) -> Element {
    let numbers = experiment.predicts_numbers();
    let row = |setting: &SettingDigest| {
        let params = setting.params.iter().map(|params| el("div").with(el("code").text(params)));
        let seeds: Vec<String> = setting.seeds.iter().map(u64::to_string).collect();
        let gini = setting.gini.map_or("–".into(), |gini| figure::show_spread("", &gini));
        el("tr")
            .with(el("th").set("scope", "row").text(&setting.label))
            .with(el("td").class("left").with(el("code").text(&setting.strategy)))
            .with(el("td").class("left words").all(params))
            .with(el("td").class("left").text(if setting.data.is_empty() { "–" } else { &setting.data }))
            .with(el("td").text(if seeds.is_empty() { "–".into() } else { seeds.join(", ") }))
            .all((!numbers).then(|| el("td").text(gini)))
            .with(el("td").text(number::seconds(setting.seconds)))
    };
    let mut names = vec!["Setting", "Strategy", "Parameters as used", "Data", "Seeds"];
    names.extend((!numbers).then_some("Gini of accuracy"));
    names.push("Wall time");
    let body = el("tbody").all(experiment.settings.iter().map(row));
    scroll("Settings", el("table").with(head(&names)).with(body))
}
