//! Exported models in an independent inference engine: tract computes the same loss as the trainer.

use std::fmt::Write;

use client::data::{DataSplit, Samples, VecShard, digits, partition};
use fleet::{gateway::Gateway, process::Process};
use models::infer::TractModel;
use serde_json::Value;

const TOLERANCE: f64 = 1e-4;

/// Compares the losses that devices reported for the final model with tract on the same files and samples.
pub fn assert_same_losses(gateway: &Gateway, devices: &[&str]) {
    let status = gateway.status().unwrap();
    assert_eq!(status["last_round"]["purpose"], "evaluate");
    let lines = status["last_round"]["devices"].as_array().unwrap().clone();
    for (index, device) in devices.iter().enumerate() {
        let line = lines.iter().find(|line| line["device"] == **device).unwrap();
        let reported = |key: &str| line[key].as_f64().unwrap();
        let shard = shard(index, devices.len());
        for file in [format!("{device}.onnx"), format!("export/tier-{index}.onnx")] {
            let model = TractModel::load(&std::fs::read(gateway.path(&file)).unwrap()).unwrap();
            assert_eq!((model.inputs(), model.outputs()), (64, 10));
            for (part, key) in [(DataSplit::Train, "loss_before"), (DataSplit::Test, "test_loss")] {
                let samples = shard.part(part);
                let score = model.score(samples.features(), samples.labels()).unwrap();
                near(&format!("{file}, {key}"), score.loss, reported(key));
            }
        }
        let predicted = predict(gateway, device, shard.part(DataSplit::Test));
        near(&format!("predict for {device}"), predicted["loss"].as_f64().unwrap(), reported("test_loss"));
        let accuracy = predicted["accuracy"].as_f64().unwrap();
        near(&format!("accuracy of {device}"), accuracy, reported("test_accuracy"));
    }
}

fn near(what: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() < TOLERANCE, "{what}: {found} instead of {expected}");
}

/// The samples of `fairtier device run --share INDEX/COUNT --data-seed 7`.
fn shard(index: usize, count: usize) -> VecShard {
    let samples = Samples::of(&digits::all(), DataSplit::Train).unwrap();
    let parts = partition::dominant_class(samples.labels(), count, 0.8, 7);
    samples.select(&parts[index]).unwrap().split(0.2, 7 + index as u64).unwrap()
}

/// Runs `fairtier device predict` on samples in a CSV file.
fn predict(gateway: &Gateway, device: &str, samples: &Samples) -> Value {
    let mut text = String::new();
    for (index, label) in samples.labels().iter().enumerate() {
        for value in samples.row(index).unwrap() {
            write!(text, "{value},").unwrap();
        }
        writeln!(text, "{label}").unwrap();
    }
    let csv = gateway.path(&format!("{device}.csv"));
    std::fs::write(&csv, text).unwrap();
    let (model, csv) = (gateway.text(&format!("{device}.onnx")), csv.to_str().unwrap().to_owned());
    let [own, tract] = ["trainer", "tract"].map(|engine| {
        let args = ["predict", "--model", &model, "--csv", &csv, "--format", "json", "--engine", engine];
        let output = Process::start("predict", "device", &args).succeed();
        let line = output.lines().find(|line| line.starts_with('{')).unwrap();
        serde_json::from_str::<Value>(line).unwrap()
    });
    near("loss of both engines", own["loss"].as_f64().unwrap(), tract["loss"].as_f64().unwrap());
    assert_eq!((&own["accuracy"], &own["confusion"]), (&tract["accuracy"], &tract["confusion"]));
    own
}
