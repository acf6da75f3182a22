use std::os::unix::{fs::symlink, net::UnixListener};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::onnx::{import, proto::GraphProto};

const INSIDE: u8 = 0x11;
const OUTSIDE: u8 = 0x22;

/// A folder `model` with files of weights, and files beside it that no model may reach.
fn town() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("model/sub")).unwrap();
    for (name, byte) in
        [("model/w", INSIDE), ("model/sub/w", INSIDE), ("secret", OUTSIDE), ("model-2", OUTSIDE)]
    {
        fs::write(at(name), [byte; 64]).unwrap();
    }
    for (target, link) in
        [("sub/w", "inner"), ("../secret", "leak"), ("..", "up"), ("none", "broken"), ("loop", "loop")]
    {
        symlink(target, at("model").join(link)).unwrap();
    }
    symlink(at("secret"), at("model/leak-2")).unwrap();
    symlink("/dev/zero", at("model/zero")).unwrap();
    UnixListener::bind(at("model/socket")).unwrap();
    dir
}

fn tensor(entries: &[(&str, &str)], dims: &[i64]) -> TensorProto {
    let entry = |&(key, value): &(&str, &str)| StringStringEntryProto {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    TensorProto {
        name: "w".to_owned(),
        dims: dims.to_vec(),
        data_type: data_type::FLOAT,
        data_location: 1,
        external_data: entries.iter().map(entry).collect(),
        ..TensorProto::default()
    }
}

/// Reads a model that has this tensor and nothing else.
fn load(dir: &TempDir, tensor: TensorProto) -> Result<Vec<u8>, ReadError> {
    let graph = GraphProto { initializer: vec![tensor], ..GraphProto::default() };
    let model = ModelProto { graph: Some(graph), ..ModelProto::default() };
    let path = dir.path().join("model/net.onnx");
    fs::write(&path, model.encode_to_vec()).unwrap();
    let model = ModelProto::decode(&read(&path)?[..]).unwrap();
    let tensor = &model.graph.unwrap().initializer[0];
    assert!(!tensor.is_external());
    Ok(tensor.raw_data.clone())
}

fn problem(dir: &TempDir, entries: &[(&str, &str)], dims: &[i64]) -> String {
    load(dir, tensor(entries, dims)).unwrap_err().to_string()
}

#[test]
fn a_model_in_two_files_is_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    let (path, file) =
        (dir.path().join("net.onnx"), include_bytes!("../../../tests/fixtures/mlp.graph.onnx"));
    fs::write(&path, file).unwrap();
    assert_eq!(read(&path).unwrap(), file, "a model in one file is not changed");

    let mut model = ModelProto::decode(&file[..]).unwrap();
    let mut weights = vec![7; 5];
    for tensor in model.tensors().filter(|tensor| !tensor.raw_data.is_empty()) {
        let bytes = std::mem::take(&mut tensor.raw_data);
        let entries = [
            ("location", "net.onnx.data".to_owned()),
            ("offset", weights.len().to_string()),
            ("length", bytes.len().to_string()),
            ("checksum", "not compared".to_owned()),
        ];
        let entries = entries.map(|(key, value)| StringStringEntryProto { key: key.to_owned(), value });
        (tensor.external_data, tensor.data_location) = (entries.to_vec(), 1);
        weights.extend(bytes);
    }
    fs::write(&path, model.encode_to_vec()).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("'net.onnx.data', which is missing; copy it"), "{error}");
    fs::write(dir.path().join("net.onnx.data"), &weights).unwrap();
    assert_eq!(import(&read(&path).unwrap()).unwrap(), import(file).unwrap());

    let error = import(&fs::read(&path).unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("read the model from its path") && error.contains("external_data=False"),
        "{error}"
    );
    fs::write(dir.path().join("net.onnx.data"), &weights[..weights.len() - 1]).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("may be incomplete"), "{error}");
}

#[test]
fn constants_in_nodes_may_be_in_another_file() {
    let dir = town();
    let attribute = crate::onnx::proto::AttributeProto {
        name: "value".to_owned(),
        t: Some(tensor(&[("location", "w"), ("offset", "60")], &[1])),
        ..Default::default()
    };
    let node = crate::onnx::proto::NodeProto { attribute: vec![attribute], ..Default::default() };
    let graph = GraphProto { node: vec![node], ..GraphProto::default() };
    let path = dir.path().join("model/net.onnx");
    fs::write(&path, ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec()).unwrap();
    let mut model = ModelProto::decode(&read(&path).unwrap()[..]).unwrap();
    assert_eq!(model.tensors().next().unwrap().raw_data, [INSIDE; 4]);
}

#[test]
fn only_files_in_the_folder_are_read() {
    let dir = town();
    for location in ["w", "./w", "sub/w", "sub/./w", "inner"] {
        assert_eq!(load(&dir, tensor(&[("location", location)], &[2])).unwrap(), [INSIDE; 8], "{location}");
    }
    let outside = dir.path().join("secret").to_string_lossy().into_owned();
    let back = dir.path().join("model/w").to_string_lossy().into_owned();
    for location in [
        "",
        "/",
        "..",
        "../secret",
        "sub/../w",
        "sub/../../secret",
        "leak",
        "leak-2",
        "up/secret",
        "zero",
        &outside,
        &back,
    ] {
        let text = problem(&dir, &[("location", location)], &[2]);
        assert!(text.contains("which is not in the folder of the model"), "{location}: {text}");
    }
    assert!(problem(&dir, &[], &[2]).contains("file '', which is not in the folder"));
    for (location, expected) in [
        ("none", "which is missing"),
        ("broken", "which is missing"),
        ("loop", "which cannot be read"),
        ("w/w", "which cannot be read"),
        ("w\0", "which cannot be read"),
        ("sub", "which cannot be read"),
        (".", "which cannot be read"),
        ("socket", "not a regular file"),
    ] {
        let text = problem(&dir, &[("location", location)], &[2]);
        assert!(text.contains(expected), "{location}: {text}");
    }
}

#[test]
fn lengths_are_checked_before_memory_is_reserved() {
    let dir = town();
    let at = |offset: &'static str, length: &'static str| {
        [("location", "w"), ("offset", offset), ("length", length)]
    };
    assert_eq!(load(&dir, tensor(&at("56", "8"), &[2])).unwrap().len(), 8);
    assert!(problem(&dir, &at("57", "8"), &[2]).contains("ends before byte 65; it has 64 bytes"));
    assert!(
        problem(&dir, &at("18446744073709551615", "8"), &[2])
            .contains("ends before byte 1844674407370955161")
    );
    assert!(problem(&dir, &at("0", "12"), &[2]).contains("needs 8 bytes instead of 12"));
    for wrong in ["-1", "0x8", "8.0", "18446744073709551616", " 8", ""] {
        assert!(problem(&dir, &at("0", wrong), &[2]).contains("which is not a number of bytes"), "{wrong}");
    }
    assert!(problem(&dir, &at("0", "8"), &[-2]).contains("has shape [-2], which is too large"));
    assert!(problem(&dir, &at("0", "8"), &[i64::MAX, 4]).contains("too large"));
    assert!(problem(&dir, &[("location", "w")], &[1 << 40]).contains("at most 2147483648 bytes in total"));
    let strings = TensorProto { data_type: data_type::STRING, ..tensor(&[("location", "w")], &[2]) };
    assert!(load(&dir, strings).unwrap_err().to_string().contains("type string cannot be kept there"));

    // Each tensor fits, all of them together do not.
    let mut folder = WeightsFolder::of(&dir.path().join("model/net.onnx"), 100).unwrap();
    let one = tensor(&[("location", "w")], &[16]);
    assert_eq!(folder.load("w", &one).unwrap().len(), 64);
    assert!(matches!(folder.load("w", &one), Err(WeightsError::TooLarge)));
}

#[test]
fn hostile_names_never_leave_the_folder() {
    const NAMES: &[&str] = &[
        "w", "sub", "..", ".", "", "leak", "leak-2", "up", "inner", "secret", "model", "model-2", "zero",
        "socket",
    ];
    let dir = town();
    proptest!(|(
        parts in prop::collection::vec(prop::sample::select(NAMES), 0..6),
        start in prop::sample::select(vec!["", "/", "./", "../"]),
        offset in prop::option::of(0u64..80),
        length in prop::option::of(prop::sample::select(vec![0u64, 4, 8, 64, u64::MAX])),
        dims in prop::collection::vec(prop::sample::select(vec![0i64, 1, 2, 16, -1, i64::MAX]), 0..3),
        data_type in -1i32..18,
    )| {
        let location = format!("{start}{}", parts.join("/"));
        let mut entries = vec![("location", location.clone())];
        entries.extend(offset.map(|offset| ("offset", offset.to_string())));
        entries.extend(length.map(|length| ("length", length.to_string())));
        let entries: Vec<(&str, &str)> = entries.iter().map(|(key, value)| (*key, value.as_str())).collect();
        if let Ok(bytes) = load(&dir, TensorProto { data_type, ..tensor(&entries, &dims) }) {
            prop_assert!(bytes.iter().all(|&byte| byte == INSIDE) && bytes.len() <= 64, "{}", location);
        }
    });
}
