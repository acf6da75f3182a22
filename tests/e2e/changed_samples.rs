//! A device whose file of samples changes during a run: read again between rounds, or refused with the earlier samples kept.

use std::{fmt::Write as _, fs, path::Path};

use fleet::{gateway::Gateway, process::wait_for};
use serde_json::Value;

/// Replaces the file as a careful program does, so that no half of it is ever read.
fn replace(file: &Path, text: &str) {
    let copy = file.with_extension("new");
    fs::write(&copy, text).unwrap();
    fs::rename(copy, file).unwrap();
}

fn rows(count: u32) -> String {
    (0..count).fold(String::new(), |mut text, row| {
        let _ = writeln!(text, "{},{},{}", row % 7, row % 5, row % 2);
        text
    })
}

/// The number of training samples that the last round of a device counted.
fn samples(status: &Value) -> Option<u64> {
    status["last_round"]["devices"][0]["samples"].as_u64()
}

#[test]
fn changed_samples_are_used_from_the_next_round_on() {
    let config =
        "model = { source = \"mlp:2-4-2\", tiers = [1.0] }\nrun = { rounds = 1000000, min_devices = 1 }";
    let gateway = Gateway::new(config, &["cam-0"]);
    let file = gateway.path("samples.csv");
    fs::write(&file, rows(20)).unwrap();
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let csv = gateway.text("samples.csv");
    let mut device = gateway.device(&serving, "cam-0", "0/1", &["--csv", &csv, "--test-fraction", "0"]);
    assert_eq!(samples(&gateway.wait_committed(2)), Some(20));

    replace(&file, &rows(30));
    let line = device.wait_line("samples changed and are read again");
    assert_eq!(line, "train=30 test=0 train_before=20");
    wait_for("a round with the new samples", || {
        gateway.status().filter(|status| samples(status) == Some(30))
    });

    replace(&file, "1,2,0\n3,four,1\n");
    let line = device.wait_line("samples changed and are refused; the earlier ones stay in use");
    assert!(line.contains("samples.csv:2: column 2") && line.contains("train=30"), "{line}");
    let committed = gateway.status().unwrap()["committed"].as_u64().unwrap();
    assert_eq!(samples(&gateway.wait_committed(committed + 2)), Some(30));

    replace(&file, &rows(25));
    wait_for("a round with the corrected samples", || {
        gateway.status().filter(|status| samples(status) == Some(25))
    });
    let output = device.output();
    assert_eq!(output.matches("are refused").count(), 1, "{output}");
    assert!(device.is_running());
}
