//! The programs in `examples/` run and print what they promise.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Path of an example: cargo puts examples beside the program.
fn example(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_BIN_EXE_fairtier")).parent().expect("a directory");
    let path = dir.join("examples").join(name);
    assert!(path.is_file(), "{} is missing; build it with cargo build --examples", path.display());
    path
}

fn start(name: &str, args: &[&str]) -> Child {
    Command::new(example(name)).args(args).stdout(Stdio::piped()).spawn().expect("the example starts")
}

fn run(name: &str, args: &[&str]) -> String {
    finish(start(name, args))
}

fn finish(child: Child) -> String {
    let output = child.wait_with_output().expect("the example ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_gateway_a_device_and_a_round_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let mut gateway = start("gateway", &[&path("")]);
    let mut lines = BufReader::new(gateway.stdout.take().expect("its output"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on ").expect("the address").to_owned();
    let devices = ["a.pem", "b.pem"].map(|identity| start("device", &[&address, &path(identity)]));
    for device in devices {
        let printed = finish(device);
        assert!(printed.contains("finished: true"), "{printed}");
    }
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    assert!(gateway.wait().expect("an end").success(), "{rest}");
    assert!(rest.contains("round 5: ") && rest.contains("the model is "), "{rest}");
    assert!(Path::new(&path("a.onnx")).is_file(), "the device keeps its model");
    let printed = run("round_file", &[&path("rounds/round-000005.json")]);
    assert!(printed.contains("round 5") && printed.contains("fairheterofl: a 0."), "{printed}");
}

#[test]
fn an_experiment() {
    let dir = tempfile::tempdir().expect("a directory");
    let printed = run("experiment", &[dir.path().to_str().expect("text")]);
    assert_eq!(printed.lines().count(), 5, "{printed}");
}

#[test]
fn every_example_is_short() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for file in dir.read_dir().expect("a directory").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("text");
        assert!(text.lines().count() < 60, "{} has 60 lines or more", file.path().display());
    }
}
