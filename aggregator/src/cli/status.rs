//! `fairtier gateway status`: the state of the run, the devices it waits for, and the last round, tier by tier.

use std::{fmt::Write as _, fs, io, path::Path};

use crate::{
    clock::since_1970,
    config::Config,
    status::{FILE, is_serving, replace},
    store::{ReportReader, RolledBack},
};
use anyhow::{Context, Result, anyhow, bail};
use common::{Code, output::wrap};
use coordinator::{best::BestModel, report::history::held_devices};
use serde::Deserialize as _;
use serde_json::{Value, json};
use strategies::fairness::FairnessStatus;

use super::{Format, fairness, place::Place, print};

const COLUMNS: [&str; 12] = [
    "tier",
    "asked",
    "delivered",
    "late",
    "silent",
    "refused",
    "held",
    "loss",
    "variance",
    "worst10%",
    "best10%",
    "accuracy",
];

pub(super) fn status(place: &Place, format: Format) -> Result<()> {
    let Place { gateway, run: dir, name: run } = place;
    let path = dir.join(FILE);
    let name = || path.display().to_string();
    let mut status = match fs::read_to_string(&path) {
        Ok(text) => parse(&text).with_context(name)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => never_served(dir).with_context(|| {
            format!("{}: no round is finished yet, or this is not an aggregator's directory", path.display())
        })?,
        Err(error) => return Err(error).with_context(name),
    };
    // The file cannot tell: a killed server no longer writes it.
    let serving = is_serving(gateway).with_context(|| gateway.display().to_string())?;
    status["serving"] = serving.into();
    status["run"] = run.to_string().into();
    if !serving {
        status["waiting"] = Value::Null;
    }
    let shown = show(&status, gateway, since_1970().as_secs_f64()).with_context(name)?;
    let text = if format == Format::Json { status.to_string() + "\n" } else { shown };
    Ok(print(&text)?)
}

/// The status of a directory in which no server has written one yet.
fn never_served(dir: &Path) -> Result<Value> {
    let config = Config::load(&dir.join("fairtier.toml"))?;
    let mut reader = ReportReader::last(&dir.join("store"), 1)?;
    let report = reader.as_mut().map(ReportReader::read_next).transpose()?.flatten();
    let committed = report.map_or(0, |report| report.round);
    let last: Option<Value> = report.map(|report| serde_json::from_str(report.text)).transpose()?;
    let (strategy, rounds) = (config.strategy.name, config.run.rounds);
    Ok(json!({
        "strategy": strategy, "committed": committed, "rounds": rounds, "finished": false, "last_round": last,
        "waiting": null,
    }))
}

/// After a rollback: the round whose model is the present one. The next round writes the file again.
pub(super) fn rewrite(dir: &Path, done: &RolledBack) -> Result<()> {
    let strategy = Config::load(&dir.join("fairtier.toml")).map(|config| config.strategy.name).ok();
    let report: Option<Value> = done.last.as_deref().and_then(|report| serde_json::from_str(report).ok());
    let status = json!({
        "strategy": strategy,
        "best": done.best,
        "committed": done.to,
        "finished": false,
        "rolled_back_from": done.from,
        "last_round": report,
    });
    replace(dir, FILE, status.to_string().as_bytes()).with_context(|| dir.join(FILE).display().to_string())
}

fn parse(text: &str) -> Result<Value> {
    let status: Value = serde_json::from_str(text).context("the file is damaged")?;
    for key in ["strategy", "committed", "last_round"] {
        if status.get(key).is_none() {
            bail!("this is not the status of an aggregator: it has no `{key}`");
        }
    }
    Ok(status)
}

fn show(status: &Value, dir: &Path, now: f64) -> Result<String> {
    let committed = status["committed"].as_u64().ok_or_else(|| anyhow!("`committed` is not a number"))?;
    let serving = status["serving"] == true;
    let state = match (status["finished"].as_bool(), status["rolled_back_from"].as_u64()) {
        (Some(true), _) if serving => "finished, its models can be fetched".to_owned(),
        (Some(true), _) => "finished".to_owned(),
        _ if serving => "running".to_owned(),
        (_, Some(from)) => format!("rolled back from round {from}"),
        _ if committed == 0 => "not begun".to_owned(),
        _ => "stopped".to_owned(),
    };
    let strategy = status["strategy"].as_str().unwrap_or("-");
    let of = status["rounds"].as_u64().map_or(String::new(), |rounds| format!(" of {rounds}"));
    let run = match status["run"].as_str().filter(|run| *run != "default") {
        Some(run) => format!("run {run}, "),
        None => String::new(),
    };
    let mut text = format!("{run}strategy {strategy}, {committed}{of} rounds committed, {state}\n");
    if !serving && status["finished"] != true {
        let _ = writeln!(text, "no server runs; `fairtier gateway serve --dir {}` starts one", dir.display());
    }
    if status["finished"] != true {
        show_waiting(&mut text, &status["waiting"], now);
    }
    match &status["last_round"] {
        Value::Null if committed == 0 => text.push_str("the present model is the initial one\n"),
        Value::Null => text.push_str("there is no report of the last round\n"),
        round => show_round(&mut text, round)?,
    }
    text.push_str(&show_best(status));
    Ok(text)
}

/// The best model, and why training has ended early.
pub(super) fn show_best(status: &Value) -> String {
    let mut text = String::new();
    if let Some(stopped) = status["stopped"].as_str() {
        let _ = writeln!(text, "{stopped}");
    } else if let Ok(best) = BestModel::deserialize(&status["best"]) {
        let _ = writeln!(text, "the best model is {best}");
    }
    text
}

/// The devices that the run waits for, and for how long at most.
fn show_waiting(text: &mut String, waiting: &Value, now: f64) {
    let Some(round) = waiting["round"].as_u64() else { return };
    let scores = waiting["purpose"] == "evaluate";
    let round = if scores { "the round of final scores".to_owned() } else { format!("round {round}") };
    if let (Some(have), Some(need)) = (waiting["have"].as_u64(), waiting["need"].as_u64()) {
        let _ = writeln!(text, "{round} waits for devices: {have} of {need} are connected");
        return;
    }
    let open = waiting["opened"].as_f64().map_or("-".to_owned(), |at| format!("{:.0}", (now - at).max(0.0)));
    let _ = writeln!(text, "{round} is open for {open} s");
    let devices = waiting["devices"].as_array().map_or(&[][..], Vec::as_slice);
    for line in devices {
        let silent = line["silent_since"].as_f64().map(|since| (now - since).max(0.0));
        let silence = silent.map_or(String::new(), |seconds| format!(", silent for {seconds:.0} s"));
        let unless = if silent.is_some() { " unless it is heard from" } else { "" };
        let most = match line["until"].as_f64() {
            Some(until) => format!("at most {:.0} s more", (until - now).max(0.0)),
            None => "without a limit".to_owned(),
        };
        let _ = writeln!(text, "waits for: {}{silence}, {most}{unless}", device(line));
    }
    match waiting["count"].as_u64().map(|count| count.saturating_sub(devices.len() as u64)) {
        Some(more @ 1..) => _ = writeln!(text, "waits for: {more} more"),
        _ if devices.is_empty() => text.push_str("all its devices are silent or disconnected\n"),
        _ => {}
    }
}

fn show_round(text: &mut String, round: &Value) -> Result<()> {
    let list = |key: &str| round[key].as_array().map_or(&[][..], Vec::as_slice);
    let tiers = list("loss_by_tier").len();
    if round["round"].as_u64().is_none() || tiers == 0 {
        bail!("`last_round` is not a report");
    }
    let what = if round["purpose"] == "evaluate" { "scores of the final model" } else { "trained" };
    let seconds = number(&round["seconds"], 1);
    let _ = writeln!(text, "round {}, {what}, {seconds} s", round["round"]);
    let refused = |tier: Option<usize>| list("refused").iter().filter(|line| of_tier(line, tier)).count();
    let asked = |tier: Option<usize>, key: &str| {
        let counted =
            list("participation").iter().enumerate().filter(|(at, _)| tier.is_none_or(|tier| tier == *at));
        let counts: Vec<u64> = counted.filter_map(|(_, counts)| counts[key].as_u64()).collect();
        if counts.is_empty() { "-".to_owned() } else { counts.iter().sum::<u64>().to_string() }
    };
    let row = |tier: Option<usize>| {
        let (loss, accuracy) = match tier {
            Some(tier) => (&round["loss_by_tier"][tier], &round["accuracy_by_tier"][tier]),
            None => (&round["loss"], &round["accuracy"]),
        };
        [
            tier.map_or("all".to_owned(), |tier| tier.to_string()),
            asked(tier, "asked"),
            asked(tier, "delivered"),
            asked(tier, "late"),
            asked(tier, "silent"),
            refused(tier).to_string(),
            held_devices(round, tier).to_string(),
            figure(loss, "mean"),
            figure(loss, "variance"),
            figure(loss, "worst10"),
            figure(loss, "best10"),
            figure(accuracy, "mean"),
        ]
    };
    let rows: Vec<_> = (0..tiers).map(Some).chain([None]).map(row).collect();
    table(text, &rows);
    text.push_str(&empty_tiers(list("participation")));
    if !round["errors"].is_null() {
        let errors = &round["errors"];
        let by_tier = (0..tiers)
            .map(|tier| (tier.to_string(), &errors["mae_by_tier"][tier], &errors["r2_by_tier"][tier]));
        let heard = by_tier.filter(|(_, mae, _)| mae["count"].as_u64() > Some(0));
        for (name, mae, r2) in heard.chain([("all".to_owned(), &errors["mae"], &errors["r2"])]) {
            let _ = writeln!(text, "tier {name}: MAE {}, R2 {}", figure(mae, "mean"), number(r2, 4));
        }
    }
    if let Some(of) = round["model_of"].as_u64() {
        let _ = writeln!(text, "the round is refused, the model is that of round {of}: {}", Code::Diverged);
    } else if let Some(rounds) = round["suspect_rounds"].as_u64() {
        let _ = writeln!(text, "the round is refused, {rounds} in a row: {}", Code::Diverged);
    } else if let Some(code) = round["kept"].as_u64() {
        let code = u16::try_from(code).ok().and_then(Code::of);
        let _ = writeln!(
            text,
            "the model is unchanged: {}",
            code.map_or("-".to_owned(), |code| code.to_string())
        );
    }
    show_fairness(text, round);
    for line in list("refused") {
        let _ = writeln!(
            text,
            "refused: {} ({} {})",
            device(line),
            line["code"].as_u64().map_or("-".to_owned(), |code| format!("E{code:02}")),
            word(&line["why"])
        );
    }
    for line in list("silent") {
        let _ = writeln!(text, "silent: {}", device(line));
    }
    for line in list("guard") {
        let (said, counted) = (number(&line["said"], 4), number(&line["counted"], 4));
        let (what, why) = (word(&line["what"]), word(&line["why"]));
        let _ = writeln!(text, "guard: {}: {what} held, said {said}, counted {counted}: {why}", device(line));
    }
    Ok(())
}

/// Why narrow tiers may have no devices: the model is small for all of them.
fn empty_tiers(participation: &[Value]) -> String {
    let asked = |counts: &Value| counts["asked"].as_u64();
    let empty: Vec<String> = participation
        .iter()
        .enumerate()
        .filter(|(_, counts)| asked(counts) == Some(0))
        .map(|(tier, _)| tier.to_string())
        .collect();
    if empty.is_empty() || empty.len() == participation.len() {
        return String::new();
    }
    format!(
        "no device of tier {} was asked: a device gets the widest tier that its --ram allows; `fairtier gateway check` prints what each takes\n",
        empty.join(", ")
    )
}

/// One line per knob of a fairness target, with the next step where the target is not met or the measurement cannot tell.
fn show_fairness(text: &mut String, round: &Value) {
    let lines = match fairness::lines(round) {
        Ok(lines) => lines,
        Err(error) => {
            let _ = writeln!(text, "{error}");
            return;
        }
    };
    for line in &lines {
        let _ = writeln!(text, "{}", line.summary());
        if line.status != FairnessStatus::Met || line.is_within_noise() {
            let _ = writeln!(text, "  {}", wrap(&line.advice(), 2, common::output::COLUMNS));
        }
    }
}

fn of_tier(line: &Value, tier: Option<usize>) -> bool {
    tier.is_none_or(|tier| line["tier"].as_u64() == Some(tier as u64))
}

/// Each column is as wide as its longest cell.
fn table(text: &mut String, rows: &[[String; COLUMNS.len()]]) {
    let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0).max(COLUMNS[at].len());
    for row in [COLUMNS.map(str::to_owned)].iter().chain(rows) {
        let cells: Vec<String> =
            row.iter().enumerate().map(|(at, cell)| format!("{cell:>0$}", width(at))).collect();
        let _ = writeln!(text, "{}", cells.join("  "));
    }
}

/// A figure of a summary, or `-` if the summary has no devices.
fn figure(summary: &Value, key: &str) -> String {
    match summary["count"].as_u64() {
        Some(1..) => number(&summary[key], 4),
        _ => "-".to_owned(),
    }
}

fn number(value: &Value, digits: usize) -> String {
    value.as_f64().map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn device(line: &Value) -> String {
    format!(
        "{}, tier {}",
        word(&line["device"]),
        line["tier"].as_u64().map_or("-".to_owned(), |tier| tier.to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        let summary = |count: u64, mean: f64| json!({ "count": count, "mean": mean, "variance": 0.25, "worst10": 12.5, "best10": 0.5 });
        let counts = |asked: u64, delivered: u64, late: u64, silent: u64| json!({ "asked": asked, "delivered": delivered, "late": late, "silent": silent, "refused": 0 });
        json!({
            "strategy": "heterofl", "committed": 7, "finished": false,
            "last_round": {
                "round": 7, "purpose": "train", "seconds": 2.5,
                "loss": summary(3, 1.5), "loss_by_tier": [summary(3, 1.5), summary(0, 0.0)],
                "accuracy": summary(0, 0.0), "accuracy_by_tier": [summary(0, 0.0), summary(0, 0.0)],
                "participation": [counts(4, 3, 1, 0), counts(1, 0, 0, 1)],
                "refused": [{ "device": "cam-4", "tier": 0, "code": 12, "why": "update holds NaN or infinity" }],
                "silent": [{ "device": "cam-5", "tier": 1 }],
                "guard": [{ "device": "cam-1", "tier": 0, "what": "loss",
                    "why": "more than 4 medians", "said": 100.0, "counted": 1.25 }],
            },
        })
    }

    #[test]
    fn status_shows_participation_and_guard_findings_by_tier() {
        let mut status = status();
        status["serving"] = json!(true);
        let shown = show(&status, Path::new("gw"), 0.0).unwrap();
        assert_eq!(
            shown,
            "\
strategy heterofl, 7 rounds committed, running
round 7, trained, 2.5 s
tier  asked  delivered  late  silent  refused  held    loss  variance  worst10%  best10%  accuracy
   0      4          3     1       0        1     1  1.5000    0.2500   12.5000   0.5000         -
   1      1          0     0       1        0     0       -         -         -        -         -
 all      5          3     1       1        1     1  1.5000    0.2500   12.5000   0.5000         -
refused: cam-4, tier 0 (E12 update holds NaN or infinity)
silent: cam-5, tier 1
guard: cam-1, tier 0: loss held, said 100.0000, counted 1.2500: more than 4 medians
"
        );
    }

    #[test]
    fn tiers_without_devices_are_explained() {
        let mut status = status();
        let shown = |status: &Value| show(status, Path::new("gw"), 0.0).unwrap();
        assert!(!shown(&status).contains("no device of tier"));
        status["last_round"]["participation"][1]["asked"] = json!(0);
        assert!(shown(&status).contains("no device of tier 1 was asked: a device gets the widest tier"));
        status["last_round"]["participation"][0]["asked"] = json!(0);
        assert!(!shown(&status).contains("no device of tier"), "a round that asked no device");
    }

    #[test]
    fn a_file_that_is_not_a_status_is_refused() {
        for text in ["{}", "[]", "7", "what", "", r#"{"strategy": "x", "committed": 1}"#] {
            assert!(parse(text).is_err(), "{text}");
        }
        for (key, value) in
            [("last_round", json!({})), ("last_round", json!(3)), ("committed", json!("many"))]
        {
            let mut status = status();
            status[key] = value;
            let error = show(&status, Path::new("gw"), 0.0).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn a_killed_server_is_not_shown_as_running() {
        let mut status = status();
        status["serving"] = json!(false);
        let shown = show(&status, Path::new("gw"), 0.0).unwrap();
        assert!(
            shown.starts_with("strategy heterofl, 7 rounds committed, stopped\nno server runs;"),
            "{shown}"
        );
        assert!(!shown.contains("running"), "{shown}");
    }

    #[test]
    fn devices_waited_for_are_shown_with_the_time_left() {
        let mut status = status();
        status["serving"] = json!(true);
        status["waiting"] = json!({ "round": 8, "opened": 990.0, "count": 3, "devices": [
            { "device": "cam-3", "tier": 2, "silent_since": null, "until": 1041.0 },
            { "device": "cam-4", "tier": 0, "silent_since": 993.0, "until": 1008.0 },
        ]});
        let shown = show(&status, Path::new("gw"), 1000.0).unwrap();
        let expected = "\
round 8 is open for 10 s
waits for: cam-3, tier 2, at most 41 s more
waits for: cam-4, tier 0, silent for 7 s, at most 8 s more unless it is heard from
waits for: 1 more
";
        assert!(shown.contains(expected), "{shown}");
        status["waiting"] = json!({ "round": 1, "have": 1, "need": 3, "count": 0, "devices": [] });
        let shown = show(&status, Path::new("gw"), 1000.0).unwrap();
        assert!(shown.contains("round 1 waits for devices: 1 of 3 are connected\n"), "{shown}");
    }
}
