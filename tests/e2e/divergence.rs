//! Runs that diverge end with E56 and say what to do. That hostile devices end no other run: `hostile_devices`.

use std::{fmt::Write as _, fs};

use common::Code;
use coordinator::report::RoundReport;
use fleet::{
    gateway::{Gateway, Serving},
    memory::{Setup, World},
    process::Process,
};

const WILD: &str = "run = { rounds = 30 }\ntraining = { batch = 8, lr = 100.0 }";

fn wild(config: &str) -> Setup {
    Setup { may_fail: true, ..Setup::new(config) }
}

fn diverged() -> Option<u16> {
    Some(Code::Diverged.number())
}

#[test]
fn a_learning_rate_of_100_ends_the_run_within_a_few_rounds() {
    let mut world = World::new(&wild(WILD));
    world.run();
    let why = world.diverged().expect("the run goes on");
    assert!(why.starts_with("E56") && why.contains("is refused"), "{why}");
    let outcome = world.outcome();
    assert!(outcome.parameters.iter().all(|value| value.is_finite()));
    let (last, before) = outcome.reports.split_last().unwrap();
    assert!(last.round <= 8, "round {}", last.round);
    assert_eq!((last.kept, last.suspect_rounds), (diverged(), None));
    assert!(before.iter().any(|report| report.suspect_rounds == Some(2)));
    // Devices are told nothing new: the present model is an earlier one, or the initial one.
    assert!(last.model_of.is_none_or(|of| of < last.round));
}

#[test]
fn a_run_that_is_to_go_on_in_any_case_goes_on() {
    let mut setup = wild(WILD);
    (setup.config.run.divergence, setup.config.run.rounds) = (0.0, 8);
    let mut world = World::new(&setup);
    world.run();
    assert_eq!(world.diverged(), None);
    assert!(world.outcome().reports.iter().all(|report| report.kept != diverged()));
}

#[test]
fn a_restart_in_a_series_of_suspect_rounds_keeps_the_count() {
    let mut world = World::new(&wild(WILD));
    let mut restarts = 0;
    while world.diverged().is_none() {
        assert!(world.step());
        let suspect = |report: &RoundReport| report.suspect_rounds == Some(restarts + 1);
        if world.outcome().reports.last().is_some_and(suspect) {
            restarts += 1;
            world.reconfigure(|_| {});
        }
    }
    assert_eq!(restarts, 2);
    let reports = world.outcome().reports;
    let refused: Vec<u32> =
        reports.iter().filter(|report| report.kept == diverged()).map(|report| report.round).collect();
    let first = refused[0];
    assert_eq!(refused, [first, first + 1, first + 2], "three rounds in a row, each refused once");
}

/// `y` is a line through both inputs, in an unscaled unit.
fn csv(rows: std::ops::Range<u32>, header: &str, scale: f64) -> String {
    rows.fold(format!("{header}\n"), |mut text, row| {
        let (a, b) = (f64::from(row * 7 % 20) / 10.0 - 1.0, f64::from(row * 3 % 11) / 5.0 - 1.0);
        let _ = writeln!(text, "{a},{b},{}", scale * (3.0 + 2.0 * a - b));
        text
    })
}

fn schema(scaling: &str) -> String {
    format!(
        "model = {{ source = \"mlp:2-8-1\", tiers = [1.0] }}\nrun = {{ rounds = 30, min_devices = 2 }}\n\
         round = {{ quorum = 1.0 }}\ntraining = {{ epochs = 5, batch = 4, lr = 0.1 }}\n[data]\ntask = \"regression\"\n\
         columns = [{{ name = \"a\", type = \"number\" }}, {{ name = \"b\", type = \"number\" }}, \
         {{ name = \"price\", type = \"target\", scaling = {scaling} }}]\n"
    )
}

/// Two devices with files of their own, and one with test samples.
fn houses(config: &str, scale: f64) -> (Gateway, Serving, Vec<Process>) {
    let gateway = Gateway::new(config, &["lab", "hall"]);
    for (name, rows) in [("lab", 0..40), ("hall", 40..80), ("test", 80..120)] {
        fs::write(gateway.path(&format!("{name}.csv")), csv(rows, "a,b,price", scale)).unwrap();
    }
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let start = |name: &str| {
        let (data, model) = (gateway.text(&format!("{name}.csv")), gateway.text(&format!("{name}.onnx")));
        let more = ["--data", &data, "--schema", "gateway", "--save-model", &model];
        gateway.device(&serving, name, "0/1", &more)
    };
    let devices = vec![start("lab"), start("hall")];
    (gateway, serving, devices)
}

#[test]
fn a_regression_with_scaled_targets_reports_errors_in_their_unit() {
    let (gateway, serving, devices) = houses(&schema("{ mean = 3000.0, deviation = 1300.0 }"), 1000.0);
    devices.into_iter().for_each(|device| {
        let output = device.succeed();
        assert!(output.contains("MAE ") && !output.contains("accuracy"), "{output}");
    });
    serving.process.succeed();
    let status = gateway.status().unwrap();
    let scores = &status["last_round"];
    assert_eq!(scores["task"], "regression");
    assert_eq!(scores["accuracy"], serde_json::json!({ "count": 0 }), "{scores}");
    let (mae, r2) =
        (scores["errors"]["mae"]["mean"].as_f64().unwrap(), scores["errors"]["r2"].as_f64().unwrap());
    assert!(r2 > 0.9 && r2 <= 1.0, "R2 {r2}");
    assert!((1.0..400.0).contains(&mae), "MAE {mae} is not in the unit of the targets");
    let (dir, model, test) = (gateway.text("gw"), gateway.text("lab.onnx"), gateway.text("test.csv"));
    let table = Process::start("status", "gateway", &["status", "--dir", &dir]).succeed();
    assert!(table.contains("tier all: MAE ") && table.contains(", R2 0.9"), "{table}");
    let follow = Process::start("follow", "gateway", &["status", "--dir", &dir, "--follow"]).succeed();
    assert!(
        follow.contains("  MAE ") && follow.contains("final scores: loss") && !follow.contains("accuracy"),
        "{follow}"
    );
    let history =
        Process::start("history", "gateway", &["history", "--dir", &dir, "--format", "csv"]).succeed();
    assert!(history.lines().next().unwrap().contains("mae,r2"), "{history}");
    let predict = ["predict", "--model", &model, "--data", &test, "--format", "json"];
    let output = Process::start("predict", "device", &predict).succeed();
    let found: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert!(found["r2"]["price"].as_f64().unwrap() > 0.9, "{found}");
    assert!(found["mae"]["price"].as_f64().unwrap() < 400.0, "{found}");
}

#[test]
fn a_regression_with_unscaled_targets_ends_with_e56_and_the_advice_to_scale() {
    let (gateway, serving, devices) = houses(&schema("\"none\""), 1e6);
    let output = serving.process.fail();
    assert!(output.contains("E56") && output.contains("`price` of [data] has no scaling"), "{output}");
    drop(devices);
    let status = gateway.status().unwrap();
    assert!(status["committed"].as_u64().unwrap() < 30, "the run has 30 rounds: {status}");
    assert_eq!(status["last_round"]["kept"], 56);
    let table = Process::start("status", "gateway", &["status", "--dir", &gateway.text("gw")]).succeed();
    assert!(table.contains("training diverges"), "{table}");
    let follow = ["status", "--dir", &gateway.text("gw"), "--follow"];
    let followed = Process::start("follow", "gateway", &follow).fail();
    assert!(followed.contains("E56") && !followed.contains("the run is over"), "{followed}");
}
