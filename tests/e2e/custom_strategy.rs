//! A third-party strategy (`examples/custom-strategy`): in the simulator, over QUIC, and on a recorded round.

use std::{fs, path::Path};

use fleet::{
    gateway::{Gateway, Serving},
    process::{Process, beside},
};
use serde_json::Value;

/// Starts the third-party program.
fn custom(name: &str, args: &[&str]) -> Process {
    Process::start_program(name, &beside("custom-strategy"), args)
}

#[test]
fn it_runs_in_the_simulator() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let strategy = |id: &str, boost: f64| {
        format!(
            "[[strategies]]\nid = \"{id}\"\nlabel = \"{id}\"\nname = \"median_loss\"\nparams = {{ boost = {boost:.1} }}\n"
        )
    };
    let head = "title = \"mine\"\nmodel = \"digits-mlp\"\nrounds = 3\nseeds = [1]\n\
                data = { set = \"digits\", partition = \"dominant:0.8\", clients = 10, testing = 0.25 }\n\
                fleet = { tiers = [1, 0.5] }\ntraining = { epochs = 1, batch = 16, lr = 0.1 }\n";
    fs::write(&file, [head, &strategy("plain", 1.0), &strategy("boosted", 8.0)].concat()).unwrap();
    let (file, out) = (file.to_str().unwrap(), dir.path().join("results"));
    let args = ["sim", "run", file, "--out", out.to_str().unwrap(), "--format", "json", "--quiet"];
    let printed = custom("sim", &args).succeed();
    let result: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    let units = result["units"].as_array().unwrap();
    assert_eq!(units.len(), 2, "{result}");
    let loss = |unit: &Value| unit["rounds"].as_array().unwrap().last().unwrap()["loss"].to_string();
    assert_ne!(loss(&units[0]), loss(&units[1]), "the parameter has no effect");
}

#[test]
fn it_serves_a_fleet_and_computes_a_recorded_round_again() {
    let config = "run = { rounds = 2, min_devices = 2 }\nstore = { record = true }\n\
                  strategy = { name = \"median_loss\", params = { boost = 4.0 } }\nguard = { mode = \"off\" }\n";
    let gateway = Gateway::new(config, &["cam-0", "cam-1"]);
    let dir = gateway.text("gw");
    let args = ["gateway", "serve", "--dir", &dir, "--listen", "127.0.0.1:0", "--exit-when-done"];
    let mut process = custom("gateway", &args);
    let address = process.wait_line("listening on ");
    let serving = Serving { process, address };
    let devices =
        ["cam-0", "cam-1"].map(|name| gateway.device(&serving, name, &format!("{}/20", &name[4..]), &[]));
    devices.into_iter().for_each(|device| drop(device.succeed()));
    serving.process.succeed();
    assert_eq!(
        gateway.status().unwrap()["run"]["strategy"]
            .as_str()
            .or(gateway.status().unwrap()["strategy"].as_str()),
        Some("median_loss")
    );
    let file = recorded(&gateway.path("gw/rounds"));
    let printed = custom("combine", &["round", "combine", &file, "--format", "json"]).succeed();
    let answer: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(answer["weights"].as_object().unwrap().len(), 2, "{answer}");
}

/// A target drives the parameter that the third party has declared.
#[test]
fn a_fairness_target_drives_its_knob() {
    let config = "run = { rounds = 3, min_devices = 2 }\nguard = { mode = \"off\" }\n\
                  strategy = { name = \"median_loss\" }\nfairness = { target = 0.0001 }\n";
    let gateway = Gateway::new(config, &["cam-0", "cam-1"]);
    let dir = gateway.text("gw");
    let args = ["gateway", "serve", "--dir", &dir, "--listen", "127.0.0.1:0", "--exit-when-done"];
    let mut process = custom("gateway", &args);
    let address = process.wait_line("listening on ");
    let serving = Serving { process, address };
    let devices =
        ["cam-0", "cam-1"].map(|name| gateway.device(&serving, name, &format!("{}/20", &name[4..]), &[]));
    devices.into_iter().for_each(|device| drop(device.succeed()));
    serving.process.succeed();
    let lines: Vec<_> = gateway.history().iter().map(|report| report["fairness"][0].clone()).collect();
    assert!(lines.iter().all(|line| line["parameter"] == "boost" && line["scope"] == "devices"), "{lines:?}");
    assert_eq!(lines[0]["value"], 1.0, "a run begins at the neutral value");
    for pair in lines.windows(2) {
        assert_eq!(pair[0]["next_value"], pair[1]["value"]);
    }
}

#[test]
fn the_standard_program_lists_its_known_strategies() {
    let gateway = Gateway::new("strategy = { name = \"median_loss\" }", &[]);
    let output = gateway.serve_in_vain();
    assert!(output.contains("median_loss") && output.contains("fairheterofl"), "{output}");
    let output =
        custom("gateway", &["gateway", "serve", "--dir", &gateway.text("no"), "--listen", "127.0.0.1:0"])
            .fail();
    assert!(output.contains("fairtier gateway init"), "{output}");
}

fn recorded(rounds: &Path) -> String {
    let found = fs::read_dir(rounds).unwrap().flatten().map(|entry| entry.path());
    let file = found.filter(|path| path.extension().is_some_and(|end| end == "json")).min().unwrap();
    file.to_str().unwrap().to_owned()
}
