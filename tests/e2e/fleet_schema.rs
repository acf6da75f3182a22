//! What devices that read their files in different ways would do to a run: a scale that one device moves, samples without the
//! schema of the run, and samples by the schema of an earlier run.

use std::{fmt::Write as _, fs};

use fleet::{
    gateway::{Gateway, Serving, lasting_address},
    process::{Process, wait_for},
};
use serde_json::Value;

const DEVICES: usize = 10;

/// Names of the fleet's devices.
fn names() -> Vec<String> {
    (0..DEVICES).map(|at| format!("d{at}")).collect()
}

/// A pressure of about 1013 hPa, which differs a little from device to device, and a word.
fn csv(device: usize, factor: f64) -> String {
    (0..40).fold("state,pressure\n".to_owned(), |mut text, row| {
        let (low, wave) = (row % 2 == 0, f64::from(row * 7 % 11));
        let pressure = 1000.0 + 2.0 * device as f64 + if low { wave } else { 15.0 + wave };
        writeln!(text, "{},{}", if low { "low" } else { "high" }, pressure * factor).unwrap();
        text
    })
}

fn config(scaling: &str, rounds: u32, min_devices: usize) -> String {
    format!(
        "model = {{ source = \"mlp:1-4-2\", tiers = [1.0] }}\nrun = {{ rounds = {rounds}, min_devices = {min_devices} }}\n\
         [data]\ntask = \"classification\"\ncolumns = [{{ name = \"pressure\", type = \"number\", scaling = {scaling} }}, \
         {{ name = \"state\", type = \"label\", classes = [\"low\", \"high\"] }}]\n"
    )
}

fn start(gateway: &Gateway, serving: &Serving, device: &str, schema: &[&str]) -> Process {
    let data = gateway.text(&format!("{device}.csv"));
    gateway.device(serving, device, "0/1", &[&["--data", &data], schema].concat())
}

/// Mean and deviation that the fleet has agreed on.
fn scale(gateway: &Gateway) -> (f64, f64) {
    let text = fs::read_to_string(gateway.path("gw/scales.json")).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(recorded["devices"], DEVICES);
    let number = |key: &str| recorded["scales"][0][key].as_f64().unwrap();
    (number("mean"), number("deviation"))
}

/// A fleet of ten over QUIC, of which device 3 multiplies its numbers; and a device that comes later.
fn agree(factor: f64) -> (f64, f64) {
    let all = names();
    let mut enrolled: Vec<&str> = all.iter().map(String::as_str).collect();
    enrolled.push("late");
    let gateway = Gateway::new(&config("\"fleet\"", 1_000_000, DEVICES), &enrolled);
    for (at, name) in all.iter().enumerate() {
        let factor = if at == 3 { factor } else { 1.0 };
        fs::write(gateway.path(&format!("{name}.csv")), csv(at, factor)).unwrap();
    }
    fs::write(gateway.path("late.csv"), csv(DEVICES + 2, 1.0)).unwrap();
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let fleet: Vec<Process> =
        all.iter().map(|name| start(&gateway, &serving, name, &["--schema", "gateway"])).collect();
    gateway.wait_committed(1);
    let agreed = scale(&gateway);
    // A device that comes later reads its file by the recorded scale: by another one it would end.
    let mut late = start(&gateway, &serving, "late", &["--schema", "gateway"]);
    late.wait_line("round ");
    assert!(late.is_running());
    assert_eq!(scale(&gateway), agreed);
    // Exported models have this scale for `predict`.
    let (dir, out) = (gateway.text("gw"), gateway.text("onnx"));
    Process::start("export", "gateway", &["export", "--dir", &dir, "--out", &out]).succeed();
    let text = fs::read(gateway.path("onnx/tier-0.onnx")).unwrap();
    let written = format!("mean = {}", agreed.0 as f32);
    assert!(String::from_utf8_lossy(&text).contains(&written), "{written}");
    drop((late, fleet));
    agreed
}

#[test]
fn one_device_that_lies_by_a_million_moves_the_scale_of_the_fleet_by_less_than_a_tenth() {
    let (mean, deviation) = agree(1.0);
    assert!((1015.0..1030.0).contains(&mean) && (5.0..20.0).contains(&deviation), "{mean} {deviation}");
    for factor in [1e6, -1e6, 1e-6] {
        let found = agree(factor);
        assert!((found.0 - mean).abs() < 0.1 * mean, "{factor}: mean {} instead of {mean}", found.0);
        let moved = (found.1 - deviation).abs();
        assert!(moved < 0.1 * deviation, "{factor}: deviation {} instead of {deviation}", found.1);
    }
}

#[test]
fn a_device_that_reads_without_the_schema_of_the_run_does_not_train() {
    let gateway = Gateway::new(&config("{ mean = 1013, deviation = 10 }", 1_000_000, 1), &["d0", "d1"]);
    // One number and a class, as the model takes them.
    fs::write(gateway.path("d0.csv"), "1000,0\n1020,1\n1001,0\n1021,1\n").unwrap();
    fs::write(gateway.path("d1.csv"), csv(1, 1.0)).unwrap();
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let output = start(&gateway, &serving, "d0", &[]).fail();
    assert!(output.contains("the run reads files by another schema"), "{output}");
    assert!(output.contains("--schema gateway"), "{output}");
    let _device = start(&gateway, &serving, "d1", &["--schema", "gateway"]);
    let status = gateway.wait_committed(1);
    let devices = status["last_round"]["devices"].as_array().unwrap();
    assert!(devices.iter().all(|line| line["device"] == "d1"), "{status}");
}

#[test]
fn a_device_that_stays_connected_reads_its_file_by_the_schema_of_the_next_run() {
    let gateway = Gateway::new(&config("{ mean = 1013, deviation = 10 }", 1_000_000, 1), &["d0", "d1"]);
    for at in [0, 1] {
        fs::write(gateway.path(&format!("d{at}.csv")), csv(at, 1.0)).unwrap();
    }
    fs::write(gateway.path("schema.toml"), config("{ mean = 1013, deviation = 10 }", 1, 1)).unwrap();
    let address = lasting_address();
    let serving = gateway.serve(&address, &[]);
    let mut follows = start(&gateway, &serving, "d0", &["--schema", "gateway"]);
    let keeps = start(&gateway, &serving, "d1", &["--schema", &gateway.text("schema.toml")]);
    gateway.wait_committed(2);
    serving.process.terminate();
    serving.process.succeed();
    let dir = gateway.text("gw");
    Process::start("run", "gateway", &["run", "new", "--dir", &dir, "second"]).succeed();
    let second = gateway.path("gw/runs/second");
    fs::write(second.join("fairtier.toml"), config("{ min = 900, max = 1100 }", 1_000_000, 1)).unwrap();
    let serving = gateway.serve(&address, &[]);
    follows.wait_line("the run reads files by another schema; samples are read again");
    // By a file, the device cannot follow.
    let output = keeps.fail();
    assert!(output.contains("start the device again with --schema gateway"), "{output}");
    wait_for("a round of the second run", || {
        let status: Value = serde_json::from_slice(&fs::read(second.join("status.json")).ok()?).ok()?;
        (status["committed"].as_u64() >= Some(2)).then_some(())
    });
    assert!(follows.is_running());
    serving.process.terminate();
    serving.process.succeed();
    // Within a run the schema stays, which is known before the gateway starts.
    fs::write(second.join("fairtier.toml"), config("{ min = 800, max = 1100 }", 1_000_000, 1)).unwrap();
    for args in [&["check", "--format", "json"][..], &["serve"]] {
        let output = Process::start(args[0], "gateway", &[args, &["--dir", &dir]].concat()).fail();
        assert!(output.contains("[data] is not that of the stored run"), "{args:?}: {output}");
    }
}
