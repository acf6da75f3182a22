//! `fairtier gateway fairness`: where the fairness target of a run stands, and how it is changed.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context, Result, bail};
use common::{
    Code,
    files::{MAX_CONFIG, read_text},
    output::{COLUMNS, wrap},
};
use serde_json::{Value, json};
use strategies::{Registry, fairness::FairnessLine};

use super::{Format, place::Place, print, say};
use crate::{
    config::{Config, replace_config, with_target},
    run::Run,
    status::{is_serving, last},
    store::ReportReader,
};

pub(super) fn fairness(
    registry: &Registry,
    place: &Place,
    target: Option<f64>,
    format: Format,
) -> Result<()> {
    match target {
        Some(target) => change(registry, place, target, format),
        None => show(place, format),
    }
}

/// Prints the state after the last round.
fn show(place: &Place, format: Format) -> Result<()> {
    let dir = &place.gateway;
    let report = last_report(&place.run)?;
    let lines = lines(&report).with_context(|| dir.display().to_string())?;
    if lines.is_empty() {
        let shown = dir.display();
        let next = "set one with `fairtier gateway fairness --target 0.3 --dir";
        bail!("{shown}: the last round has no fairness target; {next} {shown}`, then start the server again");
    }
    if format == Format::Json {
        let line = |line: &FairnessLine| {
            let mut shown = json!(line);
            shown["advice"] = line.advice().into();
            shown["notes"] = line.notes().into();
            shown
        };
        let lines: Vec<Value> = lines.iter().map(line).collect();
        let json = json!({ "round": report["round"], "fairness": lines });
        return Ok(print(&format!("{json}\n"))?);
    }
    let mut text = String::new();
    for line in &lines {
        let _ = writeln!(text, "{}", line.summary());
        for note in [line.advice()].into_iter().chain(line.notes()) {
            let _ = writeln!(text, "  {}", wrap(&note, 2, COLUMNS));
        }
    }
    Ok(print(&text)?)
}

/// The lines of a report; empty without a target.
pub(super) fn lines(report: &Value) -> Result<Vec<FairnessLine>> {
    match &report["fairness"] {
        Value::Null => Ok(vec![]),
        lines => serde_json::from_value(lines.clone())
            .context("the report's `fairness` is damaged, or of another version"),
    }
}

/// The report of the last round: of the status file, or else of the history.
fn last_report(dir: &Path) -> Result<Value> {
    let status = last(dir).map(|mut status| status["last_round"].take()).filter(|report| !report.is_null());
    if let Some(report) = status {
        return Ok(report);
    }
    let mut reader = ReportReader::last(&dir.join("store"), 1)?;
    let report = reader.as_mut().map(ReportReader::read_next).transpose()?.flatten();
    match report {
        Some(report) => Ok(serde_json::from_str(report.text)?),
        None => bail!(
            "{}: no round is finished yet, or this is not an aggregator's directory; `fairtier gateway status` says more",
            dir.display()
        ),
    }
}

/// Writes another target into the configuration.
fn change(registry: &Registry, place: &Place, target: f64, format: Format) -> Result<()> {
    let dir = &place.run;
    let path = dir.join("fairtier.toml");
    let name = || format!("{}: {}", Code::BadConfig, path.display());
    let before = super::load(dir)?.fairness.target;
    let text = read_text(&path, MAX_CONFIG).with_context(name)?;
    let text = with_target(&text, target).with_context(name)?;
    // With all checks of a start, so that the file never keeps the gateway from starting.
    let config = Config { fairness: Config::parse(&text)?.fairness, ..super::load(dir)? };
    Run::prepare(registry, &config).with_context(name)?;
    replace_config(&path, &text).with_context(|| path.display().to_string())?;
    let serving = is_serving(&place.gateway).with_context(|| place.gateway.display().to_string())?;
    let driven = last(dir).is_some_and(|status| status["last_round"]["fairness"].is_array());
    let from = match (serving, driven || before > 0.0) {
        (true, true) => "the next round on",
        (true, false) => "the next start on: restart the server",
        (false, _) => "the next start on",
    };
    let text = format!("fairness.target = {target} in {}, from {from}\n", path.display());
    say(
        format,
        &text,
        &json!({ "target": target, "before": before, "file": path.display().to_string(), "from": from }),
    )
}

/// A target on the command line.
pub(super) fn parse_target(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(target) if target.is_finite() && target > 0.0 => Ok(target),
        _ => Err("must be a number above 0, for example 0.3".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_are_no_target() {
        assert_eq!(parse_target("0.3"), Ok(0.3));
        for bad in ["0", "-1", "nan", "inf", "x", ""] {
            assert!(parse_target(bad).is_err(), "{bad}");
        }
    }
}
