//! `predict` by the schema inside an exported model: words as classes, for rows with and without labels.

use std::{fmt::Write as _, fs};

use fleet::{
    gateway::Gateway,
    process::{Process, beside},
};
use serde_json::Value;

const CONFIG: &str = r#"
model = { source = "mlp:4-6-2", tiers = [1.0] }
run = { rounds = 8, min_devices = 1 }
training = { lr = 0.3 }
[data]
task = "classification"
columns = [
  { name = "load", type = "number", missing = { constant = 5 }, scaling = { min = 0, max = 10 } },
  { name = "site", type = "category", levels = ["north", "south"] },
  { name = "hour", type = "number", scaling = { min = 0, max = 24 } },
  { name = "state", type = "label", classes = ["idle", "busy"] },
]
"#;

/// Lines in another order of columns than the schema; busy is what has a load above 5.
fn rows(count: u32, labelled: bool) -> String {
    let mut text = if labelled { "hour,state,site,load\n" } else { "hour,site,load\n" }.to_owned();
    for row in 0..count {
        let (load, site) = (row % 11, ["north", "south"][(row % 2) as usize]);
        let state = if load > 5 { "busy," } else { "idle," };
        let load = if row == 5 { String::new() } else { load.to_string() };
        writeln!(text, "{},{}{site},{load}", row % 24, if labelled { state } else { "" }).unwrap();
    }
    text
}

fn predict(model: &str, data: &str, format: &str) -> String {
    let args = ["predict", "--model", model, "--data", data, "--format", format];
    Process::start("predict", "device", &args).succeed()
}

fn json(output: &str) -> Value {
    serde_json::from_str(output.lines().find(|line| line.starts_with('{')).unwrap()).unwrap()
}

#[test]
fn words_are_predicted_for_rows_without_labels() {
    let gateway = Gateway::new(CONFIG, &["cam-0"]);
    for (name, count, labelled) in [("train.csv", 200, true), ("new.csv", 44, false), ("test.csv", 44, true)]
    {
        fs::write(gateway.path(name), rows(count, labelled)).unwrap();
    }
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let samples = gateway.text("train.csv");
    let more = ["--data", &samples, "--schema", "gateway"];
    gateway.device(&serving, "cam-0", "0/1", &more).succeed();
    serving.process.succeed();
    let (dir, out) = (gateway.text("gw"), gateway.text("export"));
    Process::start("export", "gateway", &["export", "--dir", &dir, "--out", &out]).succeed();
    let model = gateway.text("export/tier-0.onnx");

    let found = json(&predict(&model, &gateway.text("new.csv"), "json"));
    assert_eq!(found["classes"], serde_json::json!(["idle", "busy"]));
    assert_eq!((&found["loss"], &found["confusion"]), (&Value::Null, &Value::Null));
    let predictions = found["predictions"].as_array().unwrap();
    assert_eq!(predictions.len(), 44);
    for line in predictions {
        let p = |class: &str| line["probabilities"][class].as_f64().unwrap();
        assert!((p("idle") + p("busy") - 1.0).abs() < 1e-5, "{line}");
        assert_eq!(line["predicted"], if p("busy") > p("idle") { "busy" } else { "idle" });
        assert!(line.get("label").is_none(), "{line}");
    }
    // The same rows with labels: the same predictions, and scores.
    let scored = json(&predict(&model, &gateway.text("test.csv"), "json"));
    let words = |found: &Value| -> Vec<Value> {
        found["predictions"].as_array().unwrap().iter().map(|line| line["predicted"].clone()).collect()
    };
    assert_eq!(words(&scored), words(&found));
    assert!(scored["accuracy"].as_f64().unwrap() > 0.8, "{scored}");
    // The slim client says the same.
    let args = ["predict", "--model", &model, "--data", &gateway.text("new.csv"), "--format", "json"];
    let slim = Process::start_program("slim", &beside("fairtier-client"), &args).succeed();
    assert_eq!(json(&slim), found);
    let csv = predict(&model, &gateway.text("test.csv"), "csv");
    assert!(csv.contains("sample,predicted,p_idle,p_busy,label"), "{csv}");
    assert!(csv.contains("accuracy 0.") || csv.contains("accuracy 1."), "{csv}");
}
