//! A fairness target: over QUIC with changes while the gateway runs, after kills and rollbacks, and in virtual time with
//! crashes between any two steps. The knob is always that of an undisturbed run, bit for bit.

use std::{fs, sync::Mutex};

use common::rng::{Rng, derive};
use fleet::{
    gateway::{Gateway, lasting_address},
    memory::{Accident, CrashCounts, Outcome, Setup},
    process::{Process, wait_for},
    seeds::{for_seeds, is_replay},
};
use serde_json::Value;
use strategies::fairness::FairnessLine;

/// Low gains and a low target, so that the knob has another value in every round.
const TARGET: &str = "[fairness]\ntarget = 0.02 # low\ngains = [0.02, 0.02]\n";
const DEVICES: [&str; 4] = ["cam-0", "cam-1", "cam-2", "cam-3"];

fn config(rounds: u32) -> String {
    format!(
        "# mine\n{TARGET}[run]\nrounds = {rounds}\nmin_devices = 4\n[round]\nquorum = 1\n\
         [model]\ntiers = [1.0, 0.25]\n[store]\nkeep_models = 100\n\
         [devices]\ncam-0 = 0\ncam-1 = 0\ncam-2 = 1\ncam-3 = 1\n"
    )
}

fn command(gateway: &Gateway, words: &[&str]) -> Process {
    let dir = gateway.text("gw");
    Process::start(
        words[0],
        "gateway",
        &[&words[..1], &["--dir", &dir, "--log", "warn"], &words[1..]].concat(),
    )
}

fn lines(report: &Value) -> Vec<FairnessLine> {
    serde_json::from_value(report["fairness"].clone()).unwrap()
}

/// The only knob of a report.
fn knob(report: &Value) -> FairnessLine {
    let mut lines = lines(report);
    assert_eq!(lines.len(), 1, "{report}");
    lines.swap_remove(0)
}

fn replay(gateway: &Gateway, more: &[&str]) -> Vec<Value> {
    let (history, config) = (gateway.text("gw/store/history.jsonl"), gateway.text("gw/fairtier.toml"));
    let args = [&["replay", &history, "--config", &config, "--format", "json"], more].concat();
    serde_json::from_str(&Process::start("replay", "fairness", &args).succeed()).unwrap()
}

/// The history gives the gateway's knobs again, bit for bit.
fn assert_replays(gateway: &Gateway, history: &[Value]) {
    let again = replay(gateway, &[]);
    assert_eq!(again.len(), history.len());
    for (again, report) in again.iter().zip(history) {
        assert_eq!(again["round"], report["round"]);
        let again: FairnessLine = serde_json::from_value(again.clone()).unwrap();
        assert_eq!(again, knob(report), "round {}", report["round"]);
        assert_eq!(again.next_value.to_bits(), knob(report).next_value.to_bits());
    }
}

#[test]
fn a_target_is_changed_while_the_gateway_runs_and_survives_kills() {
    let gateway = Gateway::new(&config(1_000_000), &DEVICES);
    let address = lasting_address();
    let serving = gateway.serve(&address, &["--fairness", "0.01"]);
    let devices: Vec<_> = DEVICES
        .iter()
        .map(|name| gateway.device(&serving, name, &format!("{}/20", &name[4..]), &[]))
        .collect();
    let status = gateway.wait_committed(3);
    assert_eq!(knob(&status["last_round"]).target, 0.01, "the option overrides the file");
    let shown = command(&gateway, &["status"]).succeed();
    assert!(shown.contains("\nfairness ") && shown.contains(" of 0.01  q "), "{shown}");

    let said = command(&gateway, &["fairness", "--target", "0.015"]).succeed();
    assert!(said.contains("fairness.target = 0.015") && said.contains("from the next round on"), "{said}");
    let file = fs::read_to_string(gateway.path("gw/fairtier.toml")).unwrap();
    assert_eq!(file, config(1_000_000).replace("0.02 # low", "0.015 # low"), "nothing else changes");
    let target_is = |target: f64| {
        wait_for("the target to be taken up", || {
            let report = gateway.status()?["last_round"].take();
            (knob(&report).target == target).then_some(report)
        })
    };
    let changed = target_is(0.015);
    let log = serving.process.output();
    let said: Vec<_> = log.lines().filter(|line| line.contains("fairness target changed")).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    let (round, ledger) = (changed["round"].as_u64().unwrap(), knob(&changed).ledger);
    assert!(ledger.rounds > 0 && u64::from(ledger.rounds) < round, "a new ledger: {ledger:?}");

    // A broken file changes nothing; another key is not taken.
    fs::write(gateway.path("gw/fairtier.toml"), "[fairness\n").unwrap();
    wait_for("the file to be read", || {
        serving.process.output().contains("cannot read the changed configuration").then_some(())
    });
    let said = command(&gateway, &["fairness", "--target", "0.5"]).fail();
    assert!(said.contains("fairtier.toml"), "{said}");
    fs::write(gateway.path("gw/fairtier.toml"), config(1_000_000).replace("target = 0.02", "target = 0.03"))
        .unwrap();
    target_is(0.03);

    // A kill, and the file decides at the next start.
    serving.process.kill();
    let serving = gateway.start("resume", &address, &[]);
    let committed = gateway.status().unwrap()["committed"].as_u64().unwrap();
    gateway.wait_committed(committed + 3);
    let said = command(&gateway, &["fairness"]).succeed();
    assert!(said.starts_with("fairness ") && said.contains(" of 0.03  q "), "{said}");
    serving.process.kill();
    drop(devices);

    let history = gateway.history();
    let targets: Vec<f64> = history.iter().map(|report| knob(report).target).collect();
    let mut distinct = targets.clone();
    distinct.dedup();
    assert_eq!(distinct, [0.01, 0.015, 0.03]);
    let knobs: Vec<u64> = history.iter().map(|report| knob(report).next_value.to_bits()).collect();
    assert!(knobs.windows(2).any(|pair| pair[0] != pair[1]), "the knob moves: {knobs:?}");
    for pair in history.windows(2).map(|pair| [knob(&pair[0]), knob(&pair[1])]) {
        assert_eq!(pair[0].next_value.to_bits(), pair[1].value.to_bits(), "the next round uses it");
    }
    assert_replays(&gateway, &history);
    let other = replay(&gateway, &["--target", "5", "--most", "3"]);
    assert!(
        other.iter().all(|line| line["target"] == 5.0 && line["next_value"] == 0.0),
        "{:?}",
        other.last()
    );
    let csv = command(&gateway, &["history", "--format", "csv", "--last", "1"]).succeed();
    assert!(csv.contains(",fairness_measured,fairness_target,knob,fairness_status,"), "{csv}");
    let table = command(&gateway, &["history", "--last", "1"]).succeed();
    assert!(table.contains("fairness_status"), "{table}");
}

fn run_to_the_end(gateway: &Gateway) {
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let devices: Vec<_> = DEVICES
        .iter()
        .map(|name| gateway.device(&serving, name, &format!("{}/20", &name[4..]), &[]))
        .collect();
    devices.into_iter().for_each(|device| drop(device.succeed()));
    serving.process.succeed();
}

#[test]
fn a_rollback_restores_the_controller_of_that_round() {
    let gateway = Gateway::new(&config(6), &DEVICES);
    run_to_the_end(&gateway);
    let before = gateway.history();
    assert_replays(&gateway, &before);
    let last: Value =
        serde_json::from_str(&command(&gateway, &["fairness", "--format", "json"]).succeed()).unwrap();
    assert_eq!(last["fairness"][0]["next_value"], before[5]["fairness"][0]["next_value"], "{last}");

    command(&gateway, &["rollback", "--to", "3"]).succeed();
    let shown: Value =
        serde_json::from_str(&command(&gateway, &["fairness", "--format", "json"]).succeed()).unwrap();
    assert_eq!(shown["round"], 3);
    assert_eq!(shown["fairness"][0]["integrator"], before[2]["fairness"][0]["integrator"]);
    run_to_the_end(&gateway);
    let after = gateway.history();
    let all = |history: &[Value]| history.iter().map(knob).collect::<Vec<_>>();
    assert_eq!(all(&after), all(&before));
    assert_replays(&gateway, &after);
}

#[test]
fn targets_that_the_strategy_cannot_drive_are_refused_and_the_file_stays() {
    let text = "strategy = { name = \"fedlf\" }\n# mine\n";
    let gateway = Gateway::new(text, &[]);
    let said = command(&gateway, &["fairness", "--target", "0.3"]).fail();
    assert!(said.contains("fedlf") && said.contains("fairness.target"), "{said}");
    assert_eq!(fs::read_to_string(gateway.path("gw/fairtier.toml")).unwrap(), text);
    let said = command(&gateway, &["fairness"]).fail();
    assert!(said.contains("no round is finished yet"), "{said}");
    fs::write(gateway.path("gw/fairtier.toml"), "strategy = { params = { q = 1 } }\n").unwrap();
    let said = command(&gateway, &["fairness", "--target", "0.3"]).fail();
    assert!(said.contains("delete `strategy.params.q`"), "{said}");
}

/// What must not depend on crashes: everything that a round says of the knobs.
fn knobs(outcome: &Outcome) -> Vec<(u32, Vec<FairnessLine>)> {
    let train = outcome.reports.iter().filter(|report| report.purpose == "train");
    train.map(|report| (report.round, report.fairness.clone())).collect()
}

#[test]
fn crashes_between_any_two_steps_leave_the_knob_as_it_was() {
    let calm = Setup::new(&format!(
        "run = {{ rounds = 5 }}\ntraining = {{ batch = 8 }}\n{}",
        TARGET.replace("target = 0.02", "target = 0.005")
    ));
    let expected = knobs(&calm.run());
    assert_eq!(expected.len(), 5);
    let moved = expected.windows(2).filter(|pair| pair[0].1[0].next_value != pair[1].1[0].next_value);
    assert!(moved.count() >= 2, "{expected:?}");
    assert!(expected.iter().all(|(_, lines)| lines[0].unmeasured == 0 && lines[0].measured.is_some()));
    let crashes = Mutex::new(CrashCounts::default());
    for_seeds(80, |seed| {
        let mut setup = calm.disturbed(seed);
        let mut rng = Rng::new(derive(seed, 2));
        setup.accidents = (0..1 + rng.below(4))
            .map(|_| {
                let accident = match rng.below(4) {
                    0 => Accident::Crash,
                    1 => Accident::CrashUncommitted,
                    2 => Accident::CrashUnsettled,
                    _ => {
                        let device = rng.below(5) as usize;
                        Accident::Reboot { device, tier: device }
                    }
                };
                (rng.below(12_000), accident)
            })
            .collect();
        let outcome = setup.run();
        assert_eq!(knobs(&outcome), expected);
        *crashes.lock().unwrap() += outcome.crashes;
    });
    let CrashCounts { uncommitted, unsettled, undone } = crashes.into_inner().unwrap();
    assert!(is_replay() || uncommitted.min(unsettled).min(undone) > 0);
}
