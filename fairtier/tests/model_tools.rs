//! `fairtier model grad` and `fairtier model check` as a user sees them.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use models::npy::{Array, Data, read_archive};
use serde_json::Value;

#[path = "../../models/tests/support/mod.rs"]
mod support;
use support::{bytes, fixture, recurrent_as_onnx, with_another_op};

fn models(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fairtier")).arg("model").args(args).output().expect("the program starts")
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn grad(model: &str, inputs: &str, labels: &str, out: &Path, more: &[&str]) -> Output {
    let base = ["grad", model, "--inputs", inputs, "--labels", labels, "--out", &text(out)];
    models(&[&base[..], more].concat())
}

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Errors are relative to the largest gradient of the whole model.
#[test]
fn the_archive_holds_what_pytorch_computed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("grads.npz");
    for name in ["mlp", "cnn", "gru", "gru-steps", "lstm-stacked"] {
        for exporter in ["torchscript", "graph"] {
            let file = |part: &str| text(&fixture(&format!("{name}.{part}")));
            let output = grad(
                &file(&format!("{exporter}.onnx")),
                &file("x.npy"),
                &file("y.npy"),
                &out,
                &["--format", "json"],
            );
            let shown = report(&output);
            let got = read_archive(&fs::read(&out).unwrap()).unwrap();
            let expected = recurrent_as_onnx(read_archive(&bytes(&format!("{name}.grads.npz"))).unwrap());
            let loss = expected["loss"].data.to_f64()[0];
            assert!((got["loss"].data.to_f64()[0] - loss).abs() <= 1e-5 * loss, "{name}");
            assert_eq!(shown["loss"], got["loss"].data.to_f64()[0]);
            let wanted = || expected.iter().filter(|(name, _)| !["loss", "logits"].contains(&name.as_str()));
            let all = wanted().flat_map(|(_, array)| array.data.to_f64());
            let largest = all.fold(0.0, |largest: f64, x| largest.max(x.abs()));
            assert_eq!(got.len() - 1, wanted().count(), "{name}");
            for (key, wanted) in wanted() {
                let close = |array: &Array| {
                    let (a, b) = (array.data.to_f64(), wanted.data.to_f64());
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * largest)
                };
                match got.get(key) {
                    Some(array) => assert!(array.shape == wanted.shape && close(array), "{name}: {key}"),
                    // The gates of recurrent layers are renamed by the exporters.
                    None if key.starts_with("gru.") || key.starts_with("lstm.") => {
                        let same = |array: &&Array| array.shape == wanted.shape && close(array);
                        assert!(got.values().any(|array| same(&array)), "{name}: {key} {:?}", wanted.shape);
                    }
                    // The weights of a MatMul are transposed and renamed.
                    None => {
                        let turned =
                            Array { shape: wanted.shape.iter().rev().copied().collect(), ..turn(wanted) };
                        let (rows, values) = (turned.shape.clone(), turned.data.to_f64());
                        let same = |array: &Array| {
                            let close = |(a, b): (f64, &f64)| (a - b).abs() <= 1e-4 * largest;
                            array.shape == rows && array.data.to_f64().into_iter().zip(&values).all(close)
                        };
                        assert!(got.values().any(same), "{name}: {key}");
                    }
                }
            }
        }
    }
}

fn turn(array: &Array) -> Array {
    let (values, columns) = (array.data.to_f64(), array.shape[1]);
    let turned = (0..columns).flat_map(|column| values.iter().skip(column).step_by(columns).copied());
    Array { shape: vec![columns, array.shape[0]], data: Data::F64(turned.collect()) }
}

#[test]
fn tiers_and_losses() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let save = |name: &str, array: Array| {
        fs::write(path(name), array.write()).unwrap();
        text(&path(name))
    };
    let x = save(
        "x.npy",
        Array::new(&[2, 64], Data::F64((0..128).map(|i| f64::from(i) / 128.0).collect())).unwrap(),
    );
    let classes = save("y.npy", Array::new(&[2], Data::U8(vec![3, 9])).unwrap());
    let numbers = save("z.npy", Array::new(&[2, 10], Data::F32(vec![0.5; 20])).unwrap());
    let out = path("g.npz");
    for (tier, units) in [(&["--tier", "0.5"][..], 16), (&["--widths", "7"], 7), (&[], 32)] {
        assert!(grad("digits-mlp", &x, &classes, &out, tier).status.success());
        let got = read_archive(&fs::read(&out).unwrap()).unwrap();
        assert_eq!(
            (&got["fc1.weight"].shape[..], &got["fc2.weight"].shape[..]),
            (&[units, 64][..], &[10, units][..])
        );
    }
    let mut losses = Vec::new();
    for loss in ["sigmoid", "squared"] {
        let output = grad("digits-mlp", &x, &numbers, &out, &["--loss", loss, "--format", "json"]);
        losses.push(report(&output)["loss"].as_f64().unwrap());
    }
    // Outputs near 0: ln 2, and 0.5 squared.
    assert!((losses[0] - 0.69).abs() < 0.1 && (losses[1] - 0.25).abs() < 0.2, "{losses:?}");
    let shown = grad("digits-mlp", &x, &classes, &out, &[]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("of 2 samples") && shown.contains("fc1.weight  [32, 64]"), "{shown}");
}

#[test]
fn bad_data_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let save = |name: &str, bytes: &[u8]| {
        fs::write(path(name), bytes).unwrap();
        text(&path(name))
    };
    let file = |part: &str| text(&fixture(&format!("mlp.{part}")));
    let (model, x, y, out) = (file("graph.onnx"), file("x.npy"), file("y.npy"), path("g.npz"));
    let refused = |inputs: &str, labels: &str, more: &[&str], expected: &str| {
        let output = grad(&model, inputs, labels, &out, more);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(expected) && !errors.contains("panicked"), "{errors}");
        assert!(!out.exists());
    };
    let flat = save("flat.npy", &Array::new(&[7, 36], Data::F32(vec![0.0; 252])).unwrap().write());
    refused(&flat, &y, &[], "inputs have shape [7, 36], but the model takes [N, 1, 6, 6]");
    let nan = save("nan.npy", &Array::new(&[7, 1, 6, 6], Data::F32(vec![f32::NAN; 252])).unwrap().write());
    refused(&nan, &y, &[], "number 0 of sample 0 is NaN");
    let label = |labels: Vec<i64>| Array::new(&[7], Data::I64(labels)).unwrap().write();
    let high = save("high.npy", &label(vec![0, 1, 2, 5, 0, 0, 0]));
    refused(&x, &high, &[], "label 5 of sample 3 is none of the model's 5 classes");
    let low = save("low.npy", &label(vec![-1; 7]));
    refused(&x, &low, &[], "label -1 of sample 0");
    let ranked = save("ranked.npy", &Array::new(&[7, 2], Data::I64(vec![0; 14])).unwrap().write());
    refused(&x, &ranked, &[], "labels have shape [7, 2]; 7 samples with 1 targets each need [7]");
    let x_bytes = bytes("mlp.x.npy");
    let cut = save("cut.npy", &x_bytes[..x_bytes.len() - 5]);
    refused(&cut, &y, &[], "truncated");
    let archive = save("archive.npz", &bytes("mlp.grads.npz"));
    refused(&archive, &y, &[], "not an .npy file");
    refused(&x, &text(&path("missing.npy")), &[], "cannot read");
    refused(&x, &y, &["--widths", "99,1"], "hidden axis 0 has 20 units");
    refused(&x, &y, &["--loss", "sigmoid"], "need [7, 5]");
    let over = grad(&model, &x, &y, Path::new(&model), &[]);
    assert!(String::from_utf8_lossy(&over.stderr).contains("is the model itself"));
    // The files of the samples must not be overwritten either, by any path.
    let (own_x, own_y) = (save("own-x.npy", &x_bytes), save("own-y.npy", &bytes("mlp.y.npy")));
    let round_about = dir.path().join(".").join("own-y.npy");
    for (out, what) in [(Path::new(&own_x), "inputs"), (&round_about, "labels")] {
        let over = grad(&model, &own_x, &own_y, out, &[]);
        let errors = String::from_utf8_lossy(&over.stderr);
        assert!(over.status.code() == Some(1) && errors.contains(&format!("holds the {what}")), "{errors}");
    }
    assert_eq!((fs::read(&own_x).unwrap(), fs::read(&own_y).unwrap()), (x_bytes, bytes("mlp.y.npy")));

    let words = save("words.npy", &Array::new(&[2, 9], Data::I64(vec![20; 18])).unwrap().write());
    let gru = |part: &str| text(&fixture(&format!("gru.{part}")));
    let output = grad(&gru("graph.onnx"), &words, &gru("y.npy"), &out, &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("looks up whole numbers from 0 to 19"), "{errors}");
}

#[test]
fn check_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let refused = with_another_op(dir.path(), b"Relu", b"Sqrt");
    let output = models(&["check", &refused]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    for expected in
        ["not supported: node", "(Sqrt)\n", "  reads  ", " [N, 20]\n", "  try    compute this feature before"]
    {
        assert!(shown.contains(expected), "{expected} is not in\n{shown}");
    }
    let shown = report(&models(&["check", &refused, "--format", "json"]));
    assert_eq!((&shown["right"], shown["node"]["op"].as_str()), (&Value::Bool(false), Some("Sqrt")));
    assert!(shown["advice"].as_str().unwrap().contains("before the model"));

    let labels =
        report(&models(&["check", &text(&fixture("sklearn-mlp.onnx")), "--tiers", "1", "--format", "json"]));
    assert_eq!(labels["ends_with"], "Softmax, label 'label', 10 classes");
    assert!(
        labels["tiers"][0]["ram_bytes"].as_u64() > labels["tiers"][0]["arena_bytes"].as_u64(),
        "{labels}"
    );

    // A rate of 0.7 leaves a number of channels that is not divisible by three groups.
    let norm = models(&["check", &text(&fixture("group-norm.graph.onnx")), "--tiers", "1,0.7"]);
    let shown = String::from_utf8_lossy(&norm.stdout).into_owned();
    assert_eq!(norm.status.code(), Some(1), "{shown}");
    assert!(shown.contains("tier 0.7: cannot be sliced") && shown.contains("explicit widths"), "{shown}");

    let right = models(&["check", "digits-mlp", "--tiers", "1,0.5"]);
    let shown = String::from_utf8_lossy(&right.stdout).into_owned();
    assert!(right.status.success(), "{shown}");
    assert_eq!(shown.contains("this build has no tract"), !models::check::has_tract(), "{shown}");
    let missing = models(&["check", "no-such-model"]);
    assert_eq!((missing.status.code(), missing.stdout.is_empty()), (Some(1), true));
}

/// Only with `--cargo-profile ci`: in a debug build this takes minutes.
#[cfg(feature = "infer")]
#[test]
fn every_zoo_model_and_fixture_passes_the_check() {
    let check = |model: &str, more: &[&str]| {
        let output = models(&[&["check", model, "--format", "json"], more].concat());
        let found = report(&output);
        assert!(output.status.success(), "{model}: {found:#}");
        for tier in found["tiers"].as_array().unwrap() {
            assert!(tier["forward"]["error"].is_number(), "{model}: {tier}");
        }
    };
    for entry in models::zoo::ALL {
        // The full GRU has four million parameters and is unrolled 80 times.
        let tiers: &[&str] = if entry.name == "shakespeare-gru" { &["--tiers", "0.25"] } else { &[] };
        check(entry.name, tiers);
    }
    for name in support::torch_models() {
        for exporter in ["torchscript", "graph"] {
            check(&text(&fixture(&format!("{name}.{exporter}.onnx"))), &["--tiers", "1"]);
        }
    }
    for name in ["keras-mlp", "keras-cnn", "keras-rgb", "keras-binary", "keras-labels", "sklearn-mlp"] {
        check(&text(&fixture(&format!("{name}.onnx"))), &["--tiers", "1,0.5"]);
    }
}
