//! A device with its own classes, under the configuration that `init` writes: real programs over QUIC.

use std::fs;

use aggregator::config::DEFAULT;
use client::data::{DataSplit, Samples, digits};
use fleet::{gateway::Gateway, process::Process};

const DEVICES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "rare"];
/// Samples of a device, half of them for test.
const SAMPLES: usize = 200;

/// `count` samples with these labels, starting at the `first` one, as lines of a CSV file.
fn lines(all: &Samples, labels: &[u32], first: usize, count: usize) -> String {
    let chosen = (0..all.len()).filter(|&at| labels.contains(&all.labels()[at]));
    let line = |at: usize| {
        let pixels: Vec<String> = all.row(at).unwrap().iter().map(f32::to_string).collect();
        format!("{},{}\n", pixels.join(","), all.labels()[at])
    };
    chosen.skip(first).take(count).map(line).collect()
}

/// Accuracy of the rare device under the final model, and the number of warnings in the log.
fn train(strategy: &str, guard: &str) -> (f64, usize) {
    let config = DEFAULT
        .replace("min_devices = 1", "min_devices = 8")
        .replace("name = \"fairheterofl\"", &format!("name = \"{strategy}\""))
        .replace("mode = \"bound\"", &format!("mode = \"{guard}\""));
    let gateway = Gateway::new(&config, &DEVICES);
    let all = Samples::of(&digits::all(), DataSplit::Train).unwrap();
    let usual: Vec<u32> = (0..8).collect();
    for (index, device) in DEVICES.iter().enumerate() {
        let samples = match *device {
            // Most of its samples have the rare classes; the rest are like those of the others.
            "rare" => {
                lines(&all, &[8, 9], 0, SAMPLES * 4 / 5) + &lines(&all, &usual, 7 * SAMPLES, SAMPLES / 5)
            }
            _ => lines(&all, &usual, index * SAMPLES, SAMPLES),
        };
        fs::write(gateway.path(&format!("{device}.csv")), samples).unwrap();
    }
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let clients: Vec<Process> = DEVICES
        .iter()
        .map(|device| {
            let (identity, csv) = (gateway.identity(device), gateway.text(&format!("{device}.csv")));
            let identity = identity.to_str().unwrap().to_owned();
            let args = ["run", "--server", &serving.address, "--identity", &identity, "--csv", &csv];
            Process::start(device, "device", &[&args[..], &["--test-fraction", "0.5"]].concat())
        })
        .collect();
    let log = serving.process.succeed();
    clients.into_iter().for_each(|client| _ = client.succeed());
    let status = gateway.status().unwrap();
    let lines = status["last_round"]["devices"].as_array().unwrap();
    let rare = lines.iter().find(|line| line["device"] == "rare").unwrap();
    (rare["test_accuracy"].as_f64().unwrap(), log.matches(" WARN ").count())
}

/// An earlier guard weighted that device by a tenth and flooded the log: 32.5 % against 69 % without it.
#[test]
fn an_honest_device_with_its_own_classes_keeps_its_accuracy() {
    let (bound, warnings) = train("fairheterofl", "bound");
    let (off, _) = train("fairheterofl", "off");
    let (fedavg, _) = train("fedavg", "off");
    let figures = format!("bound {bound}, off {off}, FedAvg {fedavg}");
    assert!(bound >= fedavg - 0.02, "{figures}");
    assert!(bound > 0.6, "{figures}");
    assert!(bound > off - 0.1, "a fleet of one tier: {figures}");
    assert_eq!(warnings, 0);
}
