//! `fairtier round combine`, `fairtier codes` and damaged stores: output and exit codes.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use aggregator::store::{Commit, DiskStore, ModelFingerprint, Options, RoundRecord, RunRecord, Store};
use common::RunId;
use models::npy::{Array, Data};
use serde_json::{Value, json};

fn run(dir: &Path, args: &[&str], input: Option<&str>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fairtier"))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A program that exits early does not read its input; the error is ignored.
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
    let args = ["round", "combine", "--strategy", "heterofl", "--params", "{\"eta\": 2}", "below/round.json"];
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

    // A recorded round names its strategy, so the option may be omitted.
    let mut recorded = file();
    recorded["strategy"] = json!({ "name": "heterofl", "params": { "eta": 2 } });
    write(&inner, &recorded);
    assert_eq!(run(&inner, &["round", "combine", "round.json"], None).stdout, output.stdout);
    let other: Value = serde_json::from_slice(
        &run(&inner, &["round", "combine", "round.json", "--strategy", "fedavg"], None).stdout,
    )
    .expect("JSON");
    assert_eq!(
        other["parameters"],
        json!([4.0, 2.5, 9.0]),
        "parameters of another strategy must not be used"
    );

    // From standard input, files are relative to the current directory.
    let args =
        ["round", "combine", "--strategy", "heterofl", "--params", "{\"eta\": 2}", "-", "--format", "json"];
    let piped = run(&inner, &args, Some(&file().to_string()));
    assert_eq!(piped.stdout, output.stdout);
    let table =
        run(&inner, &["round", "combine", "--strategy", "heterofl", "round.json", "--format", "table"], None);
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
    let args = ["round", "combine", "--strategy", "fairheterofl", "round.json"];
    let mut bad = file();
    bad["devices"][1]["update"] = json!([1.0]);
    assert!(complaint(&bad, &args).contains("devices[1].update"));
    bad = file();
    bad["devices"][0]["update"]["npy"] = json!("arrays/none.npy");
    assert!(complaint(&bad, &args).contains("devices[0].update.npy"));
    bad = file();
    bad["state"] = json!({ "lambda": {} });
    assert!(complaint(&bad, &args).contains("state"));
    assert!(complaint(&file(), &["round", "combine", "round.json"]).contains("strategy"));
    assert!(
        complaint(&file(), &["round", "combine", "--strategy", "nope", "round.json"])
            .contains("fairheterofl")
    );
    let params = ["round", "combine", "--strategy", "fedavg", "--params", "{", "round.json"];
    assert!(complaint(&file(), &params).contains("--params"));
    assert!(
        complaint(&file(), &["round", "combine", "--strategy", "fedavg", "gone.json"]).contains("gone.json")
    );
    assert!(complaint(&json!(["x"]), &args).contains("the file"));
}

#[test]
fn history_is_one_line_per_round() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = run(dir.path(), &["gateway", "history", "--format", "csv"], None);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("gateway/store"));

    let model = ModelFingerprint { digest: 1, parameters: 1, tiers: vec![1] };
    let record = RunRecord { run: RunId(7), model, config: String::new() };
    let mut store = DiskStore::open(&dir.path().join("gateway/store"), Options::default()).expect("a store");
    store.begin_run(&record, &[0.0]).expect("a run");
    for round in 1..=2 {
        store
            .open_round(&RoundRecord {
                round,
                attempt: 0,
                selected: vec![],
                wanted: vec![],
                exchanges: vec![],
                began: None,
            })
            .expect("a round");
        let report = json!({
            "round": round, "lr": 0.5, "devices": [{}], "refused": [], "silent": [],
            "loss": { "mean": 1.25, "variance": 0.5 }, "loss_by_tier": [{ "count": 1, "mean": 1.25 }],
        })
        .to_string();
        let commit = Commit {
            round,
            parameters: &[0.0],
            strategy_state: &[],
            report: &report,
            history: 0,
            ..Commit::default()
        };
        store.commit_round(&commit).expect("a commit");
    }
    drop(store);
    let text = |format: &str| {
        let output = run(dir.path(), &["gateway", "history", "--format", format], None);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let csv = text("csv");
    let lines: Vec<_> = csv.lines().collect();
    assert!(lines[0].starts_with("round,devices,") && lines[0].ends_with("loss_tier0,accuracy_tier0"));
    assert!(lines[2].starts_with("2,1,0,0,,,0,0.5,1.25,0.5,") && lines[2].ends_with(",1.25,"));
    let table = text("table");
    assert_eq!(table.lines().count(), 3);
    assert!(table.lines().last().is_some_and(|line| line.contains("1.2500")));
    let reports: Value = serde_json::from_str(&text("json")).expect("JSON");
    assert_eq!((reports[0]["round"].clone(), reports[1]["loss"]["mean"].clone()), (json!(1), json!(1.25)));
}
