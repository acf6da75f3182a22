//! The load generator against the real aggregator: its counts match what happened.

use fleet::{gateway::Gateway, process::Process};
use serde_json::{Value, json};

fn load(args: &[&str]) -> Process {
    Process::start("load", "bench", &[&["load", "--format", "json", "--quiet"], args].concat())
}

/// The result, which is also printed if the run fails.
fn result(output: &str) -> Value {
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{output}"));
    serde_json::from_str(line).unwrap()
}

fn all(rounds: &Value, key: &str) -> Vec<Value> {
    rounds.as_array().unwrap().iter().map(|round| round[key].clone()).collect()
}

/// One of the result's checks.
fn check<'a>(result: &'a Value, name: &str) -> &'a Value {
    let checks = result["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {result}"))
}

#[test]
fn devices_without_data_take_part_in_every_round() {
    let result = result(&load(&["--devices", "20", "--rounds", "2", "--reference"]).succeed());
    assert_eq!(result["parameters"], 178_110);
    assert_eq!(result["connect"]["devices"], 20);
    // The first round of the turn does not count, on either side.
    let (rounds, bare) = (&result["rounds"], &result["reference"]["rounds"]);
    assert_eq!(all(rounds, "round"), [1, 2, 3]);
    assert_eq!(all(rounds, "counted"), [false, true, true]);
    assert_eq!(all(bare, "counted"), [false, true, true]);
    assert_eq!(all(rounds, "accepted"), [20, 20, 20]);
    let counts = ["accepted", "expected", "refused"].map(|key| &result[key]);
    assert_eq!(counts, [&json!(60), &json!(60), &json!(0)]);

    // Figures are computed from the rounds that count; the median of two is their mean.
    let close = |a: &Value, b: f64| (a.as_f64().unwrap() / b - 1.0).abs() < 1e-9;
    let mean = |rounds: &Value, key: &dyn Fn(&Value) -> f64| {
        let rounds = rounds.as_array().unwrap();
        f64::midpoint(key(&rounds[1]), key(&rounds[2]))
    };
    let per_s = |round: &Value| 20.0 / round["seconds"].as_f64().unwrap();
    let (ours, theirs) = (mean(rounds, &per_s), mean(bare, &per_s));
    assert!(close(&result["updates_per_s"], ours), "{result}");
    assert!(close(&result["reference"]["updates_per_s"], theirs), "{result}");
    assert!(close(&result["reference"]["ratio"], ours / theirs), "{result}");
    assert_eq!(result["reference"]["setup"], "plain");
}

#[test]
fn peak_memory_covers_every_phase() {
    let result = result(&load(&["--devices", "3", "--rounds", "2", "--reference", "tuned"]).succeed());
    assert_eq!(result["reference"]["setup"], "tuned");
    let peaks = &result["peak_rss_kb"];
    let phases = ["connecting", "round", "between", "leaving"].map(|phase| peaks[phase].as_u64().unwrap());
    assert!(phases.iter().all(|peak| *peak > 4096), "{peaks}");
    assert_eq!(peaks["overall"].as_u64(), phases.into_iter().max());
    let rounds = all(&result["rounds"], "peak_rss_kb");
    assert_eq!(peaks["round"].as_u64(), rounds.iter().map(|peak| peak.as_u64().unwrap()).max());
    // The bars use these peaks.
    let peak = check(&result, "peak_rss_kb");
    assert_eq!(peak["measured"].as_f64(), peaks["overall"].as_f64());
    assert_eq!(peak["limit"].as_f64(), Some(f64::from(64 * 1024 + 3 * 80)));
    assert_eq!(peak["passed"], true, "{peak}");
    assert_eq!(check(&result, "accepted")["passed"], true);
    let names = all(&result["checks"], "name");
    assert_eq!(names, ["accepted", "peak_rss_kb", "peak_growth", "ratio"]);
}

#[test]
fn a_missed_bar_is_an_error_only_if_asked_for() {
    // Growth cannot be measured with one round.
    let args = ["--devices", "2", "--rounds", "1"];
    assert_eq!(check(&result(&load(&args).succeed()), "peak_growth")["passed"], false);
    let output = load(&[&args[..], &["--check"]].concat()).fail();
    assert!(output.contains("missed: peak_growth was not measured"), "{output}");
    assert!(!output.contains("accepted is"), "{output}");
    assert_eq!(check(&result(&output), "peak_growth")["measured"], Value::Null);
}

#[test]
fn missing_updates_are_an_error() {
    // The run has one round, but two are requested.
    let config = "[model]\nsource = \"mnist-mlp\"\ntiers = [1.0]\n[run]\nrounds = 1\nmin_devices = 2\n";
    let gateway = Gateway::new(config, &[]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let (server, dir) = (&serving.address, gateway.text("gw"));
    let output = load(&["--devices", "2", "--rounds", "2", "--server", server, "--dir", &dir]).fail();
    assert!(output.contains("2 updates of 4 were accepted"), "{output}");
    assert_eq!(result(&output)["accepted"], 2);
}

#[test]
fn the_cost_of_the_dashboard_is_measured_while_its_pages_are_followed() {
    let args = ["--devices", "6", "--rounds", "3", "--dashboard", "2", "--pairs", "2"];
    let cost = result(&load(&args).succeed());
    assert_eq!((&cost["dashboard"], &cost["devices"], &cost["rounds"]), (&json!(2), &json!(6), &json!(3)));
    let pairs = cost["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 2);
    let changes: Vec<f64> = pairs
        .iter()
        .map(|pair| pair["with"].as_f64().unwrap() / pair["without"].as_f64().unwrap() - 1.0)
        .collect();
    let mean = cost["change"]["mean"].as_f64().unwrap();
    assert!((mean - f64::midpoint(changes[0], changes[1])).abs() < 1e-9, "{cost}");
    assert!(cost["change"]["half_width"].as_f64().is_some_and(|half| half > 0.0), "{cost}");
    // Each of two viewers has seen each part of its page at least once, in both pairs.
    assert!(cost["parts_sent"].as_u64() >= Some(4), "{cost}");
    let output = load(&["--devices", "6", "--pairs", "2"]).finish();
    assert!(!output.0.success() && output.1.contains("--fairness"), "{}", output.1);
}
