//! The program itself: what it prints and how it ends.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use models::npy::{Array, Data};
use serde_json::{Value, json};

fn run(dir: &Path, args: &[&str], input: Option<&str>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_aggregator"))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A program that stops early does not read.
    let _ = stdin.write_all(input.unwrap_or_default().as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

fn file() -> Value {
    json!({
        "format": "fairtier-round", "version": 1, "round": 1, "lr": 0.1,
        "parameters": { "npy": "arrays/theta.npy" },
        "tiers": [{ "name": "full" }, { "name": "half", "indices": { "npy": "arrays/half.npy" } }],
        "devices": [
            { "id": "a", "tier": 0, "samples": 1, "loss_before": 1.0, "update": { "npy": "arrays/a.npy" } },
            { "id": "b", "tier": 1, "samples": 3, "loss_before": 1.0, "update": [4.0, 8.0] },
            { "id": "c", "tier": 1, "samples": 3, "loss_before": 1.0, "update": [0.0, "NaN"] },
        ],
    })
}

fn write(dir: &Path, file: &Value) {
    std::fs::create_dir_all(dir.join("arrays")).expect("a directory");
    let save = |name: &str, data: Data| {
        let array = Array::new(&[data.len()], data).expect("one dimension");
        std::fs::write(dir.join("arrays").join(name), array.write()).expect("a file");
    };
    save("theta.npy", Data::F64(vec![1.0, 2.0, 3.0]));
    save("half.npy", Data::I64(vec![0, 2]));
    save("a.npy", Data::F32(vec![0.0, 0.5, 0.0]));
    std::fs::write(dir.join("round.json"), file.to_string()).expect("a file");
}

#[test]
fn arrays_beside_the_file_are_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let inner = dir.path().join("below");
    write(&inner, &file());
    let args = ["combine", "--strategy", "heterofl", "--params", "{\"eta\": 2}", "below/round.json"];
    let output = run(dir.path(), &args, None);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["parameters"], json!([7.0, 3.0, 15.0]));
    assert_eq!(answer["weights"], json!({ "a": 0.25, "b": 0.75 }));
    let regions = [json!({ "tiers": [0, 1], "indices": [0, 2] }), json!({ "tiers": [0], "indices": [1] })];
    assert_eq!(answer["regions"], json!(regions));
    let refused = json!([{ "id": "c", "code": 12, "why": "update holds NaN or infinity" }]);
    assert_eq!(answer["refused"], refused);
    assert!(answer.get("brief").is_none() && answer.get("state").is_none());

    // From standard input, files are found from where one stands.
    let args = ["combine", "--strategy", "heterofl", "--params", "{\"eta\": 2}", "-", "--format", "json"];
    let piped = run(&inner, &args, Some(&file().to_string()));
    assert_eq!(piped.stdout, output.stdout);
    let table = run(&inner, &["combine", "--strategy", "heterofl", "round.json", "--format", "table"], None);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(text.contains("0.750000") && text.contains("refused: c (E12"), "{text}");
}

#[test]
fn mistakes_end_with_code_2_and_name_the_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let complaint = |file: &Value, args: &[&str]| {
        write(dir.path(), file);
        let output = run(dir.path(), args, None);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(output.stdout.is_empty());
        text
    };
    let args = ["combine", "--strategy", "fairheterofl", "round.json"];
    let mut bad = file();
    bad["devices"][1]["update"] = json!([1.0]);
    assert!(complaint(&bad, &args).contains("devices[1].update"));
    bad = file();
    bad["devices"][0]["update"]["npy"] = json!("arrays/none.npy");
    assert!(complaint(&bad, &args).contains("devices[0].update.npy"));
    bad = file();
    bad["state"] = json!({ "lambda": {} });
    assert!(complaint(&bad, &args).contains("state"));
    assert!(complaint(&file(), &["combine", "round.json"]).contains("strategy"));
    assert!(complaint(&file(), &["combine", "--strategy", "nope", "round.json"]).contains("fairheterofl"));
    let params = ["combine", "--strategy", "fedavg", "--params", "{", "round.json"];
    assert!(complaint(&file(), &params).contains("--params"));
    assert!(complaint(&file(), &["combine", "--strategy", "fedavg", "gone.json"]).contains("gone.json"));
    assert!(complaint(&json!(["x"]), &args).contains("the file"));
}

#[test]
fn history_says_where_it_looks() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = run(dir.path(), &["history", "--format", "csv"], None);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("gateway/store"));
}
