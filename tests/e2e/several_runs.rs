//! What an operator may lose or mix up over a fleet's runs: the best model, the reason of an early end, two runs in one
//! directory, and rounds that a reader of `status --follow` misses.

use std::{collections::BTreeSet, fs};

use fleet::{
    gateway::{Gateway, lasting_address},
    process::{Process, wait_for},
};
use serde_json::Value;

/// Steps too small to change any weight: the initial model stays the best one.
const STUCK: &str = "strategy = { name = \"heterofl\" }\ntraining = { lr = 1e-30 }\nmodel = { source = \"mlp:64-8-10\", tiers = [1.0, 0.5] }\n";

fn start(gateway: &Gateway, words: &[&str]) -> Process {
    let dir = gateway.text("gw");
    let split = if words[0] == "run" { 2 } else { 1 };
    Process::start(words[0], "gateway", &[&words[..split], &["--dir", &dir], &words[split..]].concat())
}

fn command(gateway: &Gateway, words: &[&str]) -> String {
    start(gateway, words).succeed()
}

fn json(gateway: &Gateway, words: &[&str]) -> Value {
    serde_json::from_str(&command(gateway, &[words, &["--format", "json"]].concat())).unwrap()
}

/// Waits until a run has committed so many rounds.
fn wait_committed(gateway: &Gateway, run: &str, rounds: u64) {
    wait_for(&format!("round {rounds} of {run}"), || {
        let text = fs::read_to_string(gateway.path(run).join("status.json")).ok()?;
        let status: Value = serde_json::from_str(&text).unwrap();
        (status["committed"].as_u64() >= Some(rounds)).then_some(())
    });
}

#[test]
fn the_best_model_survives_a_kill_and_a_rollback_and_a_missing_round_is_refused() {
    let gateway = Gateway::new(&format!("{STUCK}run = {{ rounds = 1000000 }}"), &["cam-0"]);
    let address = lasting_address();
    let serving = gateway.serve(&address, &[]);
    let _device = gateway.device(&serving, "cam-0", "0/2", &[]);
    wait_committed(&gateway, "gw", 6);
    let out = gateway.text("onnx");
    // Beside the server.
    let exported = json(&gateway, &["export", "--out", &out, "--round", "best"]);
    assert_eq!((&exported[0]["round"], exported.as_array().unwrap().len()), (&0.into(), 2));
    let refused = start(&gateway, &["export", "--out", &out, "--round", "2"]).fail();
    assert!(
        refused.contains("the model of round 2 is not kept; kept are those of rounds 0 (the best, mean loss"),
        "{refused}"
    );
    serving.process.kill();

    let found = json(&gateway, &["verify"]);
    assert_eq!((&found["best"]["round"], &found["models"][0]), (&0.into(), &0.into()), "{found}");
    let committed = found["committed"].as_u64().unwrap();
    let to = (committed - 1).to_string();
    let text = command(&gateway, &["rollback", "--to", &to]);
    assert!(text.contains("the best model is that of round 0, mean loss"), "{text}");
    let exported = command(&gateway, &["export", "--out", &out, "--round", "best"]);
    assert!(exported.contains("the model after round 0"), "{exported}");
    assert!(
        command(&gateway, &["export", "--out", &out, "--round", &to]).contains(&format!("after round {to}"))
    );
    let refused = start(&gateway, &["export", "--out", &out, "--round", &committed.to_string()]).fail();
    assert!(refused.contains("is not kept; kept are those of rounds 0 (the best"), "{refused}");

    let serving = gateway.serve(&address, &[]);
    wait_committed(&gateway, "gw", committed + 2);
    assert_eq!(json(&gateway, &["status"])["best"]["round"], 0);
    serving.process.kill();
    let found = json(&gateway, &["verify"]);
    assert_eq!((&found["best"]["round"], &found["problems"]), (&0.into(), &Value::Array(vec![])), "{found}");
}

#[test]
fn an_early_stop_says_why_and_ends_with_success() {
    let config = |rest: &str| format!("{STUCK}run = {{ min_devices = 1, {rest} }}");
    let gateway = Gateway::new(&config("rounds = 50, stop_after = 3"), &["cam-0"]);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    gateway.device(&serving, "cam-0", "0/2", &[]).succeed();
    let output = serving.process.succeed();
    let why =
        "stopped early: 3 models in a row were not better; the best model is that of round 0, mean loss";
    let over: Vec<_> = output.lines().filter(|line| line.contains("run is over")).collect();
    assert!(over.len() == 1 && over[0].contains(why), "{over:?}");
    let text = command(&gateway, &["status"]);
    assert!(text.contains("4 of 50 rounds committed, finished") && text.contains(why), "{text}");
    assert!(json(&gateway, &["status"])["stopped"].as_str().is_some_and(|said| said.starts_with(why)));
    let text = command(&gateway, &["history"]);
    assert!(
        text.contains(&format!("-- {why}")) && text.contains("-- the best model is that of round 0"),
        "{text}"
    );
    let reports = json(&gateway, &["history"]);
    let stopped: Vec<bool> =
        reports.as_array().unwrap().iter().map(|report| report["stopped"].is_string()).collect();
    assert_eq!(stopped, [false, false, false, true]);
    // Started again, it is still over.
    let output = gateway.serve("127.0.0.1:0", &["--exit-when-done"]).process.succeed();
    assert!(output.contains("the run is over"), "{output}");
    // Without the rule it goes on.
    fs::write(gateway.path("gw/fairtier.toml"), config("rounds = 6")).unwrap();
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    gateway.device(&serving, "cam-0", "0/2", &[]).succeed();
    serving.process.succeed();
    let reports = json(&gateway, &["history"]);
    assert_eq!(reports.as_array().unwrap().len(), 6);
    let changes = &reports[4]["changes"];
    assert_eq!(
        (&changes[0]["key"], &changes[0]["from"], &changes[0]["to"]),
        (&"run.rounds".into(), &"50".into(), &"6".into())
    );
}

#[test]
fn history_has_times_and_a_line_where_the_configuration_changes() {
    let config = |strategy: &str, rounds: u32| {
        format!("strategy = {{ name = \"{strategy}\" }}\nrun = {{ rounds = {rounds}, min_devices = 1 }}")
    };
    let gateway = Gateway::new(&config("heterofl", 2), &["cam-0"]);
    for (strategy, rounds) in [("heterofl", 2), ("fairheterofl", 3)] {
        fs::write(gateway.path("gw/fairtier.toml"), config(strategy, rounds)).unwrap();
        let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
        gateway.device(&serving, "cam-0", "0/2", &[]).succeed();
        serving.process.succeed();
    }
    let text = command(&gateway, &["history"]);
    let lines: Vec<_> = text.lines().collect();
    let change =
        "-- changed before round 3: run.rounds 2 -> 3; strategy.name \"heterofl\" -> \"fairheterofl\"";
    assert_eq!(lines[3], change, "{text}");
    assert_eq!(text.matches("-- changed").count(), 1, "{text}");
    let reports = json(&gateway, &["history"]);
    let times: Vec<(&str, &str)> = reports
        .as_array()
        .unwrap()
        .iter()
        .map(|report| (report["began"].as_str().unwrap(), report["ended"].as_str().unwrap()))
        .collect();
    // Times of one form sort as text.
    let sorted = times.iter().all(|(began, ended)| began[..19] <= ended[..19]);
    assert!(
        sorted && times.iter().all(|(began, ended)| began.starts_with("20") && ended.ends_with('Z')),
        "{times:?}"
    );
    assert_eq!(
        (&reports[0]["strategy"], &reports[2]["strategy"]),
        (&"heterofl".into(), &"fairheterofl".into())
    );
}

#[test]
fn two_runs_one_after_the_other_serve_the_devices_that_stay_connected() {
    let gateway = Gateway::new("run = { rounds = 1000000, min_devices = 2 }", &["cam-0", "cam-1", "thief"]);
    let address = lasting_address();
    let serving = gateway.serve(&address, &[]);
    let mut devices =
        [("cam-0", "0/2"), ("cam-1", "1/2")].map(|(name, share)| gateway.device(&serving, name, share, &[]));
    wait_committed(&gateway, "gw", 3);
    for words in [&["run", "new", "second"], &["run", "switch", "default"]] {
        let refused = start(&gateway, words).fail();
        assert!(refused.contains("a gateway serves") && refused.contains("stop it first"), "{refused}");
    }
    command(&gateway, &["revoke", "thief"]);
    serving.process.terminate();
    serving.process.succeed();
    let first = json(&gateway, &["verify"])["committed"].as_u64().unwrap();

    let text = command(&gateway, &["run", "new", "second"]);
    assert!(
        text.contains("run second is the active one") && text.contains("runs/second/fairtier.toml"),
        "{text}"
    );
    let serving = gateway.serve(&address, &[]);
    wait_committed(&gateway, "gw/runs/second", 3);
    // Revoked in the first run, and for all.
    let mut thief = gateway.device(&serving, "thief", "0/2", &[]);
    thief.wait_line("refused: E30");
    assert!(devices.iter_mut().all(Process::is_running), "the devices have stayed");
    serving.process.terminate();
    serving.process.succeed();
    let reports = json(&gateway, &["history"]);
    let mut names = BTreeSet::new();
    for report in reports.as_array().unwrap() {
        let devices = report["devices"].as_array().unwrap();
        names.extend(devices.iter().map(|line| line["device"].as_str().unwrap()));
        assert_eq!(report["refused"], Value::Array(vec![]), "{report}");
    }
    assert_eq!(names, BTreeSet::from(["cam-0", "cam-1"]));
    let list = json(&gateway, &["run", "list"]);
    let row = |at: usize| (list[at]["run"].as_str().unwrap(), list[at]["active"].as_bool().unwrap());
    assert_eq!((row(0), row(1)), (("default", false), ("second", true)), "{list}");
    assert!(command(&gateway, &["run", "list"]).contains("* second"));

    command(&gateway, &["run", "switch", "default"]);
    let serving = gateway.serve(&address, &[]);
    wait_committed(&gateway, "gw", first + 2);
    assert!(devices.iter_mut().all(Process::is_running));
    serving.process.kill();
    assert_eq!(json(&gateway, &["verify"])["problems"], Value::Array(vec![]));
}

#[test]
fn names_that_are_no_safe_paths_are_refused() {
    let gateway = Gateway::new("", &[]);
    for name in ["../x", "..", "a/b", "/tmp/x", ".x", "-x", "", "default", "active"] {
        let (status, output) = start(&gateway, &["run", "new", name]).finish();
        assert!(!status.success() && output.contains("choose another one"), "{name}: {output}");
    }
    assert!(!gateway.path("gw/runs").exists());
    let refused = start(&gateway, &["run", "switch", "none"]).fail();
    assert!(refused.contains("there is no run none; the runs are default"), "{refused}");
}

#[test]
fn a_model_with_other_weights_is_another_run() {
    let config = |seed: u32| {
        format!(
            "model = {{ source = \"mlp:64-8-10\", seed = {seed}, tiers = [1.0] }}\nrun = {{ rounds = 1000000 }}"
        )
    };
    let gateway = Gateway::new(&config(0), &["cam-0"]);
    let address = lasting_address();
    let serving = gateway.serve(&address, &[]);
    let _device = gateway.device(&serving, "cam-0", "0/2", &[]);
    wait_committed(&gateway, "gw", 3);
    serving.process.kill();
    fs::write(gateway.path("gw/fairtier.toml"), config(1)).unwrap();
    let output = gateway.serve_in_vain();
    let next = "other initial weights, so it is another run: begin it with `fairtier gateway run new NAME`";
    assert!(output.contains("E16") && output.contains(next), "{output}");
    let found = start(&gateway, &["check", "--format", "json"]).fail();
    assert!(found.contains("\"problem\"") && found.contains("other initial weights"), "{found}");
    // As it says.
    command(&gateway, &["run", "new", "other"]);
    let serving = gateway.serve(&address, &[]);
    wait_committed(&gateway, "gw/runs/other", 2);
    serving.process.kill();
    fs::write(gateway.path("gw/fairtier.toml"), config(0)).unwrap();
    command(&gateway, &["run", "switch", "default"]);
    let serving = gateway.serve(&address, &[]);
    wait_committed(&gateway, "gw", 5);
    drop(serving);
}

#[test]
fn a_follower_prints_each_round_once_while_the_gateway_is_killed_and_started_again() {
    const ROUNDS: u64 = 400;
    let gateway = Gateway::new(&format!("run = {{ rounds = {ROUNDS}, min_devices = 1 }}"), &["cam-0"]);
    let mut text = start(&gateway, &["status", "--follow"]);
    let mut lines = start(&gateway, &["status", "--follow", "--format", "json"]);
    text.wait_line("no gateway runs; waiting for `fairtier gateway serve --dir");
    lines.wait_line("{\"event\":\"serving\",\"serving\":false}");
    let address = lasting_address();
    let serving = gateway.serve(&address, &[]);
    let device = gateway.device(&serving, "cam-0", "0/2", &[]);
    text.wait_line("round 2 ");
    // On a busy machine a follower may look for the first time after the kill.
    lines.wait_line("{\"event\":\"serving\",\"serving\":true}");
    serving.process.kill();
    // Both have seen that it was gone.
    wait_for("the followers to notice", || {
        let gone = |process: &Process, line: &str| process.output().matches(line).count() == 2;
        (gone(&text, "no gateway runs") && gone(&lines, "\"serving\":false")).then_some(())
    });
    let serving = gateway.serve(&address, &["--exit-when-done"]);
    device.succeed();
    serving.process.succeed();
    let (text, lines) = (text.succeed(), lines.succeed());
    let rounds: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("round ")?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(rounds, (1..=ROUNDS).collect::<Vec<_>>(), "{text}");
    assert!(text.contains(&format!("the run is over after {ROUNDS} rounds")), "{text}");
    let events: Vec<Value> = lines
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let rounds: Vec<u64> = events
        .iter()
        .filter(|event| event["event"] == "round")
        .map(|event| event["report"]["round"].as_u64().unwrap())
        .collect();
    assert_eq!(rounds, (1..=ROUNDS).collect::<Vec<_>>());
    let end = events.last().unwrap();
    assert_eq!((&end["event"], &end["committed"]), (&"end".into(), &ROUNDS.into()));
    // Afterwards it ends at once, and while it waits it ends with success when it is interrupted.
    assert!(command(&gateway, &["status", "--follow"]).contains("the run is over"));
    let other = Gateway::new("", &[]);
    let mut waiting = start(&other, &["status", "--follow"]);
    waiting.wait_line("no gateway runs");
    waiting.signal("INT");
    let output = waiting.succeed();
    assert!(!output.contains("Error"), "{output}");
}
