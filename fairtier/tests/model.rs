//! The command `fairtier model` as a user sees it.

use std::process::{Command, Output};

use models::{
    Graph,
    graph::{Builder, Kernel, Param, ValueId},
    onnx::{ExportOptions, export},
    zoo,
};
use serde_json::Value;

#[path = "../../models/tests/support/mod.rs"]
mod support;
use support::{fixture, with_another_op};

fn models(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fairtier")).arg("model").args(args).output().expect("the program starts")
}

fn stdout(args: &[&str]) -> String {
    let output = models(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[args, &["--format", "json"]].concat())).expect("JSON")
}

fn failure(args: &[&str]) -> (Option<i32>, String) {
    let output = models(args);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn inspect_shows_what_every_tier_needs() {
    let shown = json(&["inspect", "digits-mlp", "--tiers", "1,0.5", "--batch", "4"]);
    assert_eq!(shown["tiers"][1]["parameters"], 1_210);
    assert_eq!(shown["tiers"][1]["widths"], serde_json::json!([16]));
    assert_eq!(shown["tiers"][0]["train_arena_bytes"], 4 * (3 * 2_410 + 4 * (64 + 32 + 10 + 32)));
    assert_eq!(shown["axes"][0]["layer"], "fc1");
    let text = stdout(&["inspect", "digits-mlp"]);
    for expected in ["fc1.weight", "hidden axis", "training arena B", "2,410", "0 (1)", "4 (0.125)"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn inspect_names_what_follows_the_logits() {
    let text = stdout(&["inspect", &fixture("sklearn-mlp.onnx").to_string_lossy()]);
    assert!(text.contains("output  probabilities [10] after Softmax"), "{text}");
    assert!(!text.contains("ignored") && text.contains("(file: transposed)"), "{text}");
}

#[test]
fn axes_that_stay_whole_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s.onnx").to_string_lossy().into_owned();
    let groups = fixture("conv-groups.torchscript.onnx").to_string_lossy().into_owned();
    let shown = json(&["inspect", &groups]);
    let whole = shown["whole"].as_array().unwrap();
    assert_eq!((whole[0]["reason"].as_str(), whole[0]["by_design"].as_bool()), (Some("groups"), Some(false)));
    assert_eq!(whole.last().unwrap()["reason"], "output");
    // No axis of this model can be cut.
    assert_eq!(
        (shown["tiers"].as_array().unwrap().len(), shown["refused"].as_array().unwrap().len()),
        (1, 0)
    );
    let text = stdout(&["inspect", &groups, "--tiers", "1,0.5"]);
    for expected in ["stays whole", "channels fall into groups", "tier 1 (0.5) is refused: no hidden axis"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    for keep in [&[][..], &["--keep-whole"]] {
        let (code, text) = failure(&[&["slice", &groups, "--tier", "0.5", "--out", &out], keep].concat());
        assert!(code == Some(1) && text.contains("no hidden axis can be cut"), "{text}");
    }
    let (code, text) = failure(&["plan", "emnist-linear", "--tier", "0.5"]);
    assert!(code == Some(1) && text.contains("no hidden axis can be cut"), "{text}");
    assert_eq!(json(&["inspect", "shakespeare-gru", "--tiers", "0.25"])["whole"][0]["reason"], "embedding");

    let check = models(&["check", &groups, "--tiers", "1,0.5", "--format", "json"]);
    let shown: Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(check.status.code(), Some(1));
    assert!(shown["tiers"][1]["problem"].as_str().unwrap().contains("cannot be sliced: no hidden axis"));
    assert_eq!(shown["whole"][0]["reason"], "groups");
    let check = models(&["check", &groups]);
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success(), "{text}");
    assert!(text.contains("stays whole") && text.contains("rates below 1 are refused"), "{text}");
}

/// A grouped convolution between two convolutions that could be cut.
#[test]
fn axes_that_cannot_be_cut_need_leave() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let mut builder = Builder::new("m", "x", &[2, 4, 4]).unwrap();
    let mut value = ValueId::INPUT;
    for (name, channels, groups) in [("a", 8, 1), ("b", 4, 1), ("pairs", 6, 2), ("c", 8, 1)] {
        let weight = Param::plain(format!("{name}.w"));
        value = builder.conv(name, value, channels, groups, Kernel::square(3, 1, 1), weight, None).unwrap();
    }
    value = builder.flatten("flat", value);
    value = builder.dense("fc", value, 128, 3, Param::plain("fc.w"), None).unwrap();
    let graph = builder.finish("y", value, None).unwrap();
    let file = export(&graph, &zoo::initial(&graph, 0), &ExportOptions::default()).unwrap();
    std::fs::write(path("m.onnx"), file).unwrap();

    let (model, out) = (path("m.onnx"), path("s.onnx"));
    let base = ["slice", &model, "--out", &out];
    let (code, text) = failure(&[&base[..], &["--tier", "0.5"]].concat());
    let reason = "the 4 units of 'b' cannot be cut: at 'pairs' channels fall into groups";
    assert!(code == Some(1) && text.contains(reason) && text.contains("--keep-whole"), "{text}");
    for tier in [&["--tier", "0.5", "--keep-whole"][..], &["--widths", "4,4"]] {
        assert_eq!(json(&[&base[..], tier].concat())["widths"], serde_json::json!([4, 4]));
    }
    let text = stdout(&["inspect", &model]);
    assert!(text.contains("tier 1 (0.7) is refused: the 4 units of 'b'"), "{text}");
    let checked = models(&["check", &model, "--format", "json"]);
    let shown: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1));
    assert!(shown["tiers"][1]["problem"].as_str().unwrap().contains(reason));
    let kept = json(&["check", &model, "--keep-whole"]);
    assert_eq!((kept["right"].as_bool(), kept["tiers"].as_array().unwrap().len()), (Some(true), 5));
    assert_eq!(json(&["plan", &model, "--tier", "0.5", "--keep-whole"])["widths"], serde_json::json!([4, 4]));
}

#[test]
fn slice_and_export_write_models() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let mlp = fixture("mlp.graph.onnx").to_string_lossy().into_owned();
    let shown = json(&["slice", &mlp, "--widths", "7,5", "--out", &path("s.onnx")]);
    let (slice, parameters) = Graph::from_onnx(&std::fs::read(path("s.onnx")).unwrap()).unwrap();
    assert_eq!(slice.full().widths(), [7, 5]);
    assert_eq!(shown["parameters"], parameters.len());

    let shown = json(&["export", &mlp, "--tiers", "1,0.5", "--out", &path("tiers")]);
    for tier in shown["tiers"].as_array().unwrap() {
        let file = std::fs::read(tier["file"].as_str().unwrap()).unwrap();
        assert_eq!(Graph::from_onnx(&file).unwrap().1.len(), tier["parameters"]);
    }
    let whole = std::fs::read(shown["full"].as_str().unwrap()).unwrap();
    assert_eq!(Graph::from_onnx(&whole).unwrap(), Graph::from_onnx(&std::fs::read(&mlp).unwrap()).unwrap());

    // A model must not be replaced by its own slice.
    let (code, text) = failure(&["slice", &path("s.onnx"), "--tier", "0.5", "--out", &path("s.onnx")]);
    assert_eq!(code, Some(1));
    assert!(text.contains("is the model itself"), "{text}");
}

#[test]
fn plan_finds_what_fits() {
    let base = ["plan", "digits-mlp", "--batch", "16", "--optimizer", "sgd"];
    let shown = json(&base);
    let (params, room) = (2_410, 16 * (64 + 32 + 10 + 32));
    assert_eq!(shown["training_bytes"], 4 * (3 * params + room));
    assert_eq!(shown["inference_bytes"], 4 * (params + 16 * (64 + 32)));
    assert_eq!(shown["macs_per_sample"], 64 * 32 + 32 * 10);
    let adam = json(&["plan", "digits-mlp", "--optimizer", "adam"]);
    assert_eq!(adam["training_bytes"], 4 * (5 * params + room));

    let with = |ram: u64| json(&[&base[..], &["--ram", &ram.to_string()]].concat())["ram"].clone();
    let roomy = with(4 * (3 * params + room));
    assert_eq!(
        (roomy["setting"]["fused"].as_bool(), roomy["setting"]["samples_per_pass"].as_u64()),
        (Some(false), Some(16))
    );
    let fused = with(4 * (2 * params + room));
    assert_eq!(
        (fused["setting"]["fused"].as_bool(), fused["need"].as_u64()),
        (Some(true), Some(4 * (2 * params + room)))
    );
    // Momentum needs the gradients. The batch takes four passes of four samples.
    let ram = (4 * (4 * params + 138 * 5)).to_string();
    let summed = json(&["plan", "digits-mlp", "--optimizer", "momentum", "--ram", &ram]);
    assert_eq!(summed["ram"]["setting"]["samples_per_pass"], 4);
    assert_eq!(summed["ram"]["need"], 4 * (4 * params + 138 * 4));

    let text = stdout(&[&base[..], &["--buffers", "--ram", "64k", "--flash", "256k"]].concat());
    for expected in ["RAM: fits", "flash: fits", "gradient of relu1", "anchor", "always"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let more = json(&[&base[..], &["--guide", "--personal", "--buffers"]].concat());
    let names: Vec<&str> =
        more["buffers"].as_array().unwrap().iter().filter_map(|buffer| buffer["name"].as_str()).collect();
    assert_eq!(names[..5], ["weights", "anchor", "guide", "gradients", "personal model"]);
    let short = models(&["plan", "mnist-mlp", "--ram", "64k"]);
    assert_eq!(short.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&short.stdout).contains("bytes too many"));
    assert_eq!(failure(&["plan", "digits-mlp", "--ram", "many"]).0, Some(2));
}

#[test]
fn the_zoo_is_listed() {
    assert!(stdout(&["zoo"]).contains("mnist-mlp"));
    assert_eq!(json(&["zoo"]).as_array().unwrap().len(), 15);
}

#[test]
fn errors_say_what_to_do() {
    let (code, text) = failure(&["inspect", "no-such-model"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("neither a file nor a model of the zoo (mnist-mlp, femnist-mlp"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let (code, text) = failure(&["inspect", &with_another_op(dir.path(), b"Relu", b"Sqrt")]);
    assert_eq!(code, Some(1));
    assert!(text.contains("uses op 'Sqrt', which is not supported"), "{text}");
    let (code, text) = failure(&["slice", "digits-mlp", "--widths", "99", "--out", "unused.onnx"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("hidden axis 0 has 32 units"), "{text}");
    for usage in [
        &["inspect"][..],
        &["slice", "digits-mlp", "--out", "unused.onnx"],
        &["slice", "digits-mlp", "--tier", "0.5", "--widths", "3", "--out", "unused.onnx"],
        &["inspect", "digits-mlp", "--tiers", "2"],
        &["inspect", "digits-mlp", "--batch", "0"],
    ] {
        assert_eq!(failure(usage).0, Some(2), "{usage:?}");
    }
    assert!(stdout(&["--help"]).contains("Examples:"));
}
