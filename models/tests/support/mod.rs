//! Helpers of several test files: fixtures, `.npy` files and a simple reference forward pass.
#![allow(dead_code, unused_imports, reason = "every test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use models::npy::{Array, Data};

mod engine;
mod reference;
pub use engine::{Case, GUARD, Run, bits, run, worst};
pub use reference::forward;

pub fn fixture(name: &str) -> PathBuf {
    // Tests of the program `fairtier` use them, too.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures").join(name)
}

pub fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Writes `mlp.graph.onnx` with one operation called by another name of the same length, and returns the path.
pub fn with_another_op(dir: &Path, from: &[u8], to: &[u8]) -> String {
    assert_eq!(from.len(), to.len());
    let mut file = bytes("mlp.graph.onnx");
    while let Some(at) = file.windows(from.len()).position(|part| part == from) {
        file[at..at + to.len()].copy_from_slice(to);
    }
    let path = dir.join("another-op.onnx");
    std::fs::write(&path, file).unwrap();
    path.to_string_lossy().into_owned()
}

/// Names of all models that PyTorch exported.
pub fn torch_models() -> Vec<String> {
    let files = std::fs::read_dir(fixture("")).expect("the directory of fixtures");
    let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".torchscript.onnx").map(str::to_owned)).collect();
    names.sort();
    assert!(names.len() >= 19, "{names:?}");
    names
}

/// Models and files of PyTorch's exporters; the newer one unrolls plain recurrent layers, so these have one file.
pub fn torch_files() -> Vec<(String, String)> {
    let both = |name: String| {
        ["torchscript", "graph"].map(|exporter| (name.clone(), format!("{name}.{exporter}.onnx")))
    };
    let unrolled = ("rnn".to_owned(), "rnn.onnx".to_owned());
    torch_models().into_iter().flat_map(both).chain([unrolled]).collect()
}

/// PyTorch's recurrent layers as ONNX has them: gates in its order, and the two biases as one.
pub fn recurrent_as_onnx(mut arrays: BTreeMap<String, Array>) -> BTreeMap<String, Array> {
    let suffix =
        |name: &String| name.split_once(".weight_ih").map(|(layer, at)| (layer.to_owned(), at.to_owned()));
    let layers: Vec<(String, String)> = arrays.keys().filter_map(suffix).collect();
    for (layer, at) in layers {
        let order: &[usize] = match layer.as_str() {
            // r z n to z r h.
            "gru" => &[1, 0, 2],
            // i f g o to i o f c.
            "lstm" => &[0, 3, 1, 2],
            _ => &[0],
        };
        let mut reordered = |kind: &str| {
            let Array { shape, data } = arrays.remove(&format!("{layer}.{kind}{at}"))?;
            let values = data.to_f64();
            let gate = values.len() / order.len();
            Some((
                shape,
                order.iter().flat_map(|at| values[at * gate..][..gate].to_vec()).collect::<Vec<_>>(),
            ))
        };
        let mut parts: Vec<(&str, Vec<usize>, Vec<f64>)> = Vec::new();
        for kind in ["weight_ih", "weight_hh"] {
            parts.extend(reordered(kind).map(|(shape, gates)| (kind, [vec![1], shape].concat(), gates)));
        }
        let biases = reordered("bias_ih").zip(reordered("bias_hh"));
        parts.extend(biases.map(|((_, w), (_, r))| ("bias", vec![1, w.len() + r.len()], [w, r].concat())));
        for (kind, shape, gates) in parts {
            let gates = Array::new(&shape, Data::F64(gates)).expect("gates");
            arrays.insert(format!("{layer}.{kind}{at}"), gates);
        }
    }
    arrays
}

pub fn softmax(logits: &[f64]) -> Vec<f64> {
    let exps: Vec<f64> = logits.iter().map(|x| x.exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|x| x / sum).collect()
}

/// Mean softmax cross-entropy.
pub fn loss(logits: &[f64], labels: &[usize]) -> f64 {
    let rows = logits.chunks(logits.len() / labels.len());
    rows.zip(labels).map(|(row, &label)| -softmax(row)[label].ln()).sum::<f64>() / labels.len() as f64
}

/// The numbers of an `.npy` file of `<f4`, `<f8` or `<i8`.
pub fn npy(file: &[u8]) -> Vec<f64> {
    assert_eq!(&file[..6], b"\x93NUMPY");
    let header = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    let text = String::from_utf8_lossy(&file[10..header]);
    let data = &file[header..];
    if text.contains("'<f4'") {
        data.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word).into()).collect()
    } else if text.contains("'<f8'") {
        data.as_chunks().0.iter().map(|&word| f64::from_le_bytes(word)).collect()
    } else if text.contains("'<i8'") {
        data.as_chunks().0.iter().map(|&word| i64::from_le_bytes(word) as f64).collect()
    } else {
        panic!("{text}")
    }
}

/// The first number of a member of an uncompressed `.npz` file.
pub fn npz_scalar(file: &[u8], member: &str) -> f64 {
    npz(file, member)[0]
}

/// A member of an uncompressed `.npz` file.
pub fn npz(file: &[u8], member: &str) -> Vec<f64> {
    let find = |from: usize, what: &[u8]| {
        from + file[from..].windows(what.len()).position(|w| w == what).expect("a member of the file")
    };
    let start = find(find(0, format!("{member}.npy").as_bytes()), b"\x93NUMPY");
    let len = file[start..].windows(2).position(|w| w == b"PK").unwrap_or(file.len() - start);
    npy(&file[start..start + len])
}

pub fn floats(name: &str) -> Vec<f32> {
    npy(&bytes(name)).into_iter().map(|x| x as f32).collect()
}

pub fn labels(name: &str) -> Vec<usize> {
    npy(&bytes(name)).into_iter().map(|x| x as usize).collect()
}
