//! A recorded round, computed again with another strategy: the weights that its devices would have had.

use std::path::Path;

use plots::markup::{Element, el};
use serde_json::Value;
use strategies::{
    Registry,
    roundfile::{RoundFile, replay as compute},
};

use super::{RoundPage, round::compared};
use crate::http::{history::Report, view::View};

/// Devices that are compared one by one.
const LISTED: usize = 50;
/// Bytes of the larger of a round's arrays; a page must not take the gateway's memory.
pub const MOST_BYTES: u64 = 256 << 20;

/// The answer to a question of a round's page.
#[derive(Clone, PartialEq, Debug)]
pub struct WhatIf {
    pub strategy: String,
    pub params: String,
    pub result: Result<Replayed, String>,
}

/// What another strategy would have done.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Replayed {
    /// By device.
    pub weights: Vec<(String, f64)>,
    /// Length of the step of the model.
    pub moves: Option<f64>,
    pub refused: usize,
}

/// Computes a round again. Errors are for the page.
pub fn replay(
    registry: &Registry,
    dir: &Path,
    round: u32,
    strategy: &str,
    params: &str,
) -> Result<Replayed, String> {
    let params = match params.trim() {
        "" => Value::Null,
        text => serde_json::from_str(text).map_err(|error| format!("the parameters are no JSON: {error}"))?,
    };
    let rounds = dir.join("rounds");
    let bytes = size_of_round(&rounds.join(format!("round-{round:06}")));
    if bytes > MOST_BYTES {
        return Err(format!(
            "the round has {bytes} bytes, and a page computes at most {MOST_BYTES}; use `fairtier round combine` on another machine"
        ));
    }
    let file =
        RoundFile::open(&rounds.join(format!("round-{round:06}.json"))).map_err(|error| error.to_string())?;
    let result = compute(registry, &file, strategy, params).map_err(|error| error.to_string())?;
    let moves = (!result.parameters.is_empty()).then(|| {
        let steps = result.parameters.iter().zip(&file.parameters).map(|(new, old)| new - old);
        steps.map(|step| step * step).sum::<f64>().sqrt()
    });
    Ok(Replayed {
        weights: result.weights.iter().map(|(device, weight)| (device.to_string(), *weight)).collect(),
        moves,
        refused: result.refused.len(),
    })
}

fn size_of_round(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

pub(super) fn show(view: &View<'_>, page: &RoundPage, report: &Report) -> Vec<Element> {
    let mut shown = vec![form(view, page)];
    let Some(WhatIf { strategy, result, .. }) = &page.what_if else { return shown };
    match result {
        Err(why) => shown.push(el("p").class("bad").text(why)),
        Ok(replayed) => shown.extend(answer(strategy, replayed, report)),
    }
    shown
}

fn form(view: &View<'_>, page: &RoundPage) -> Element {
    let (chosen, params) = page
        .what_if
        .as_ref()
        .map_or(("", ""), |what_if| (what_if.strategy.as_str(), what_if.params.as_str()));
    let option = |name: &&'static str| {
        let option = el("option").set("value", name).text(name);
        if *name == chosen { option.set("selected", "selected") } else { option }
    };
    el("form")
        .set("method", "get")
        .set("action", "/round")
        .class("row")
        .with(el("input").set("type", "hidden").set("name", "number").set("value", page.round))
        .with(
            el("label")
                .class("field")
                .text("Strategy")
                .with(el("select").set("name", "strategy").all(view.strategies.iter().map(option))),
        )
        .with(
            el("label")
                .class("field")
                .text("Parameters as JSON, may be empty")
                .with(el("input").set("name", "params").set("value", params).set("maxlength", 2000)),
        )
        .with(el("button").set("type", "submit").text("Compute"))
}

fn answer(strategy: &str, replayed: &Replayed, report: &Report) -> Vec<Element> {
    let Replayed { weights, moves, refused } = replayed;
    let mut text = match moves {
        Some(length) => {
            format!("{strategy} would have moved the model by {}.", plots::number::figure(*length))
        }
        None => {
            format!("{strategy} would first have asked devices for more, which this round does not hold.")
        }
    };
    if *refused > 0 {
        text += &format!(" It would have refused {refused} devices.");
    }
    let mut shown = vec![el("p").text(text)];
    if weights.is_empty() {
        return shown;
    }
    let was = |device: &str| {
        report.devices.iter().find(|line| line.device == device).map(|line| (line.tier, line.weight))
    };
    let mut tiers: Vec<(String, Option<f64>, Option<f64>)> = (0..report.loss_by_tier.len())
        .map(|tier| (format!("Tier {tier}"), report.weight_by_tier.get(tier).copied().flatten(), Some(0.0)))
        .collect();
    let mut devices = vec![];
    for (device, weight) in weights {
        let known = was(device);
        if let Some((tier, _)) = known
            && let Some((_, _, sum)) = tiers.get_mut(tier)
        {
            *sum = sum.map(|sum| sum + weight);
        }
        devices.push((device.clone(), known.and_then(|(_, weight)| weight), Some(*weight)));
    }
    let moved = |line: &(String, Option<f64>, Option<f64>)| match (line.1, line.2) {
        (Some(a), Some(b)) => (a - b).abs(),
        _ => f64::INFINITY,
    };
    devices.sort_by(|a, b| moved(b).total_cmp(&moved(a)));
    devices.truncate(LISTED);
    shown.push(compared("By tier", "Tier", &tiers));
    shown.push(compared("By device, the largest change first", "Device", &devices));
    shown
}
