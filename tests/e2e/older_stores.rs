//! Stores and configurations of older programs.

use std::{fs, thread, time::Duration};

use common::wire;
use fleet::{
    gateway::{Gateway, files},
    process::{Process, wait_for},
};
use serde_json::Value;

/// Verifies a store without opening it for writing.
fn verify(gateway: &Gateway) -> Value {
    let dir = gateway.text("gw");
    let text = Process::start("verify", "gateway", &["verify", "--dir", &dir, "--format", "json"]).succeed();
    serde_json::from_str(&text).unwrap()
}

/// Continues round 4 with the stored updates of `a` and `b`: only `c` has to train.
fn go_on(gateway: &Gateway) {
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    let c = gateway.device(&serving, "c", "2/40", &[]);
    let status = gateway.wait_committed(4);
    let devices: Vec<_> = status["last_round"]["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["device"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(devices, ["a", "b", "c"]);
    drop(c);
    serving.process.signal("KILL");
    wait_for("the server to end", || (!serving.process.is_running()).then_some(()));
}

#[test]
fn a_store_of_format_4_is_read_without_changes() {
    let gateway = Gateway::of_format_4();
    let before = files(&gateway.path("gw"));
    let found = verify(&gateway);
    assert_eq!((found["format"].as_u64(), found["reports"].as_u64()), (Some(4), Some(3)), "{found}");
    let dir = gateway.text("gw");
    for words in [&["history"][..], &["history", "--last", "1", "--format", "csv"], &["status"]] {
        Process::start("reading", "gateway", &[&words[..1], &["--dir", &dir], &words[1..]].concat())
            .succeed();
    }
    let out = gateway.text("onnx");
    Process::start("export", "gateway", &["export", "--dir", &dir, "--out", &out]).succeed();
    assert!(files(&gateway.path("gw")) == before, "something has changed");
}

#[test]
fn a_store_of_format_4_is_migrated_and_its_run_continues() {
    let gateway = Gateway::of_format_4();
    let before = gateway.look();
    assert_eq!((before.history.len(), &before.exchanges[..]), (3, &[vec!["a".into(), "b".into()]][..]));
    assert_eq!(verify(&gateway)["format"], 4);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    serving.process.terminate();
    let output = serving.process.succeed();
    assert!(output.contains("store migrated from format 4 to 5"), "{output}");
    assert!(output.contains("store migrated from format 5 to 6"), "{output}");
    assert_eq!(verify(&gateway)["format"], 6);
    go_on(&gateway);
    let found = verify(&gateway);
    assert_eq!((&found["format"], &found["problems"]), (&6.into(), &Value::Array(vec![])));
    assert!(found["committed"].as_u64() >= Some(4) && found["reports"] == found["committed"], "{found}");
    let history = fs::read_to_string(gateway.path("gw/store/history.jsonl")).unwrap();
    for (index, line) in history.lines().enumerate() {
        let mut report: Value = serde_json::from_str(line).unwrap();
        assert_eq!(report["round"], index as u64 + 1);
        let (body, sum) = line.rsplit_once(",\"crc32\":\"").unwrap();
        assert_eq!(sum, format!("{:08x}\"}}", wire::crc32(body.as_bytes())));
        report.as_object_mut().unwrap().remove("crc32");
        assert!(
            index > 2 || report == before.history[index],
            "the report of round {} has changed",
            index + 1
        );
    }
}

#[test]
fn a_store_of_format_5_is_migrated_and_its_run_continues() {
    let gateway = Gateway::of_format_5();
    let found = verify(&gateway);
    assert_eq!((&found["format"], &found["committed"], &found["open"]), (&5.into(), &3.into(), &4.into()));
    assert_eq!((&found["updates"], &found["best"]), (&2.into(), &Value::Null));
    let before = gateway.look().history;
    go_on(&gateway);
    let found = verify(&gateway);
    assert_eq!((&found["format"], &found["problems"]), (&6.into(), &Value::Array(vec![])));
    // Round 4 has measured the model of round 3.
    assert_eq!(found["best"]["round"].as_u64(), Some(3), "{found}");
    assert!(gateway.history().starts_with(&before), "earlier reports have changed");
}

/// Bytes of padding in each line, so that a migration takes a while.
const PADDING: u64 = 8 << 20;

/// A store that is killed at many instants of a slow migration is intact, in one format or the other.
#[test]
fn a_killed_migration_leaves_an_intact_store() {
    let mut formats = vec![];
    for instant in 0..12 {
        let gateway = Gateway::of_format_4();
        // The ledger contains these reports unchanged.
        let path = gateway.path("gw/store/history.jsonl");
        let padding = format!(",\"padding\":\"{}\"}}\n", "x".repeat(PADDING as usize));
        let long: String = fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(|line| line.strip_suffix('}').unwrap().to_owned() + &padding)
            .collect();
        fs::write(&path, &long).unwrap();
        let len = |name: &str| fs::metadata(gateway.path("gw/store").join(name)).map_or(0, |file| file.len());
        let dir = gateway.text("gw");
        let mut serving =
            Process::start("resume", "gateway", &["resume", "--dir", &dir, "--listen", "127.0.0.1:0"]);
        let reached = || match instant {
            0 => true,
            1..10 => len("history.jsonl.new") > (instant - 1) * PADDING / 3,
            10 => len("history.jsonl") != long.len() as u64,
            _ => false,
        };
        while !reached() && serving.is_running() && !serving.output().contains("listening") {
            thread::sleep(Duration::from_micros(500));
        }
        serving.kill();
        let found = verify(&gateway);
        assert_eq!((&found["committed"], &found["open"]), (&3.into(), &4.into()), "{instant}: {found}");
        assert_eq!((&found["reports"], &found["updates"]), (&3.into(), &2.into()), "{instant}: {found}");
        assert_eq!(found["problems"], Value::Array(vec![]), "{instant}: {found}");
        formats.push(found["format"].as_u64().unwrap());
        if instant % 4 == 3 {
            go_on(&gateway);
            assert_eq!(verify(&gateway)["format"], 6);
        }
    }
    println!("formats after each kill: {formats:?}");
    assert_eq!((formats[0], formats[11]), (4, 6));
    assert!(formats.iter().all(|format| [4, 5, 6].contains(format)), "{formats:?}");
}

/// An upgraded gateway starts with the file that its older `init` wrote.
#[test]
fn a_configuration_of_an_older_init_still_starts() {
    let gateway = Gateway::of_format_4();
    let old = fs::read_to_string(gateway.path("init.toml")).unwrap();
    let gateway = Gateway::new(&old, &["d"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let _device = gateway.device(&serving, "d", "0/40", &[]);
    gateway.wait_committed(1);
}
