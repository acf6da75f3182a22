//! Helpers of several test files: fixtures, `.npy` files and a simple reference forward pass.
#![allow(dead_code, unused_imports, reason = "every test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::path::{Path, PathBuf};

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

/// PyTorch's gates r, z, n as ONNX's z, r, h, and its two biases as one.
pub fn gru_as_onnx(
    mut arrays: std::collections::BTreeMap<String, models::npy::Array>,
) -> std::collections::BTreeMap<String, models::npy::Array> {
    use models::npy::{Array, Data};
    let mut reordered = |name: &str| {
        let Array { shape, data } = arrays.remove(name)?;
        let values = data.to_f64();
        let gate = values.len() / 3;
        let gates = [&values[gate..2 * gate], &values[..gate], &values[2 * gate..]].concat();
        Some((shape, gates))
    };
    let mut parts = Vec::new();
    for name in ["gru.weight_ih_l0", "gru.weight_hh_l0"] {
        parts.extend(reordered(name).map(|(shape, gates)| (name, [vec![1], shape].concat(), gates)));
    }
    let biases = reordered("gru.bias_ih_l0").zip(reordered("gru.bias_hh_l0"));
    parts.extend(biases.map(|((_, w), (_, r))| ("gru.bias", vec![1, w.len() + r.len()], [w, r].concat())));
    for (name, shape, gates) in parts {
        arrays.insert(name.to_owned(), Array::new(&shape, Data::F64(gates)).expect("gates"));
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
