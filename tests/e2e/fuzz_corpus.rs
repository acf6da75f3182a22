//! Seeds of the fuzz targets: copies match their sources, and handmade seeds are still valid. `fuzz/seed.py` writes
//! them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use aggregator::{
    ca::SerialCredential,
    config::Config,
    store::{Entry, Reports, RoundRecord, RunRecord},
};
use client::{
    data::{
        BytesShard, Shard, load,
        schema::{self, Schema, Targets},
    },
    host::{Identity, enrol::Token},
    serial::{MAX_PACKET, STATUS, Status, Taken, line::Decoder},
};
use common::{TierSet, certificate::Grant, enrol::EnrolRequest, sealed::BoardIdentity, wire};
use sim::{data::files, experiment::LoadedExperiment, partition::Partition};
use strategies::device::DeviceRecord;

const AGAIN: &str = "run fuzz/seed.py";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn seed(target: &str, name: &str) -> Vec<u8> {
    let path = root().join("fuzz/corpus").join(target).join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; {AGAIN}", path.display()))
}

fn text(target: &str, name: &str) -> String {
    String::from_utf8(seed(target, name)).unwrap()
}

fn names(target: &str) -> BTreeSet<String> {
    let dir = fs::read_dir(root().join("fuzz/corpus").join(target)).unwrap();
    dir.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn seeds_of_messages_are_the_golden_frames() {
    let golden = fs::read_to_string(root().join("common/tests/golden/frames.txt")).unwrap();
    let (mut frames, mut messages) = (BTreeSet::new(), BTreeSet::new());
    for line in golden.lines().skip(1) {
        let (name, hex) = line.split_once(' ').unwrap();
        let frame: Vec<u8> = hex
            .trim()
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        assert!(seed("frames", name) == frame, "frames/{name} is stale; {AGAIN}");
        frames.insert(name.to_owned());
        if frame[1] == 0 {
            assert!(seed("messages", name) == frame[2..frame.len() - 4], "messages/{name} is stale; {AGAIN}");
            messages.insert(name.to_owned());
        }
        let inner = &frame[1..frame.len() - 4];
        if name.starts_with("ToDevice") && frame.len() < 256 {
            let piece = [&[inner.len() as u8], inner].concat();
            assert!(seed("session", name) == piece, "session/{name} is stale; {AGAIN}");
            let all = seed("session", "all");
            assert!(all.windows(piece.len()).any(|part| part == piece), "session/all lacks {name}; {AGAIN}");
        }
    }
    assert!(frames.len() > 20);
    assert_eq!((names("frames"), names("messages")), (frames, messages), "{AGAIN}");
    assert!(seed("serial", "session") == seed("session", "all"), "{AGAIN}");
}

#[test]
fn copied_seeds_match_their_sources() {
    let same = |target: &str, name: &str, source: &str| {
        assert!(
            seed(target, name) == fs::read(root().join(source).join(name)).unwrap(),
            "{target}/{name}; {AGAIN}"
        );
    };
    same("config", "default.toml", "aggregator/src");
    for target in ["onnx", "npy"] {
        let names = names(target);
        assert!(names.len() > 3, "{target}");
        let copies = names.iter().filter(|name| !name.starts_with("two-files."));
        copies.for_each(|name| same(target, name, "models/tests/fixtures"));
    }
    for name in ["fedlf-online.toml", "fedfb-parity.toml", "tour.toml"] {
        same("files", name, "sim/experiments");
        LoadedExperiment::parse("seed", &text("files", name), "quick", &[]).unwrap();
    }
    Config::parse(&text("config", "default.toml")).unwrap();
    Config::parse(&text("config", "short.toml")).unwrap();
}

/// The folder has the weights of `fuzz_targets/onnx.rs`, without its links.
#[test]
fn seeds_of_models_in_two_files() {
    let dir = tempfile::tempdir().unwrap();
    let (path, weights) = (dir.path().join("net.onnx"), [0; 4096]);
    fs::create_dir(dir.path().join("sub")).unwrap();
    for name in ["w", "sub/w", "inner"] {
        fs::write(dir.path().join(name), weights).unwrap();
    }
    let two: Vec<String> = names("onnx").into_iter().filter(|name| name.starts_with("two-files.")).collect();
    assert!(two.len() > 15, "{two:?}; {AGAIN}");
    let places: BTreeSet<String> =
        two.iter().filter_map(|name| name.strip_prefix("two-files.")).map(str::to_owned).collect();
    assert_eq!(places, &names("weights") | &BTreeSet::from(["onnx".to_owned()]), "{AGAIN}");
    for name in two {
        fs::write(&path, seed("onnx", &name)).unwrap();
        let read = models::onnx::read(&path).map(|file| models::Graph::from_onnx(&file).unwrap().1.len());
        match name.starts_with("two-files.good") {
            true => assert_eq!(read.unwrap(), 12, "{name}"),
            false => assert!(read.is_err(), "{name}"),
        }
    }
}

#[test]
fn seeds_of_records_and_credentials_are_read() {
    assert!(wire::message::<RunRecord>(&seed("records", "run")).is_ok());
    assert!(wire::message::<RoundRecord>(&seed("records", "round")).is_ok());
    assert!(wire::message::<DeviceRecord>(&seed("records", "device")).is_ok());
    assert!(wire::message::<Entry>(&seed("records", "entry")).is_ok());

    Identity::parse(&seed("credentials", "bundle.pem")).unwrap();
    let grant = Grant::of(&seed("credentials", "certificate.der")).unwrap();
    assert!(grant.expires > grant.issued && grant.issued > 0);
    text("credentials", "token").parse::<Token>().unwrap();
    let question = |name| wire::message::<EnrolRequest>(&seed("credentials", name)).unwrap();
    assert_eq!(["question", "question.token"].map(|name| question(name).secret.is_some()), [false, true]);

    let found = Reports::parse(&seed("files", "history.jsonl"));
    assert_eq!((found.reports.len(), found.damaged), (2, vec![2, 3]));
    let found = Reports::parse(&seed("files", "history.sealed.jsonl"));
    assert_eq!(
        (found.reports.into_keys().collect::<Vec<_>>(), found.damaged),
        (vec![1, 3], vec![2]),
        "{AGAIN}"
    );
    let partitions: Vec<_> =
        names("files").into_iter().filter(|name| name.starts_with("partition.")).collect();
    assert_eq!(partitions.len(), 7);
    for name in partitions {
        text("files", &name).parse::<Partition>().unwrap();
    }
}

#[test]
fn seeds_of_a_serial_line_are_read() {
    assert_eq!(BoardIdentity::decode(&seed("serial", "board-identity")).unwrap().device.as_str(), "m4");
    let member = SerialCredential::decode(&text("serial", "member")).unwrap();
    assert!(member.expires.is_some() && member.tiers != TierSet::ALL);
    let shard = seed("serial", "shard");
    assert_eq!(BytesShard::parse(&shard).unwrap().train_len(), 2);
    assert_eq!(Taken::decode(&seed("serial", "taken")).unwrap().next as usize, shard.len());
    let body = &seed("serial", "status")[1..];
    let mut frame = [&[wire::FRAME_FORMAT, 0], body].concat();
    frame.extend(wire::crc32(&frame).to_le_bytes());
    assert!(Status::decode(&[&[STATUS], &frame[..]].concat()).is_some());
    for (name, packets) in [("line", 10), ("line.long", 1)] {
        let mut decoder = Decoder::<{ MAX_PACKET + 4 }>::default();
        let found: Vec<_> = seed("serial", name)
            .iter()
            .filter_map(|&byte| decoder.push(byte).map(|found| found.is_ok()))
            .collect();
        assert_eq!(found, vec![true; packets], "{name}");
    }
}

#[test]
fn seeds_of_tables_and_archives_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = dir.path().join(name);
        fs::write(&path, &seed("datasets", name)[1..]).unwrap();
        path
    };
    for (name, schema) in [("table", &files::ADULT), ("compas", &files::COMPAS), ("bank", &files::BANK)] {
        files::table(name, &[file(name)], schema, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for name in ["motion.tar", "motion.tar.xz"] {
        files::motion(name, &file(name)).unwrap();
    }
}

/// Every kind of file reaches the numbers behind it, so that a fuzzer starts from there.
#[test]
fn seeds_of_data_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    };
    let content = |name: &str| seed("data", name)[1..].to_vec();
    let arrays = load::npz_arrays(&file("named.npz", &content("npz.schema"))).unwrap();
    assert_eq!(arrays.len(), 4, "{AGAIN}");
    let rows = file("rows.csv", &content("schema"));
    for (path, columns) in [(dir.path().join("named.npz"), NAMED), (rows, WINDOWS)] {
        let name = path.display();
        let schema = Schema::from_toml(columns).unwrap();
        let table = schema::read_any(&path, &schema, Targets::Needed).unwrap();
        assert!(!table.is_empty(), "{name}; {AGAIN}");
        assert_eq!(schema::fleet_moments(&path, &schema).unwrap().len(), 1, "{name}; {AGAIN}");
    }
    for name in ["npy", "npy.schema"] {
        let pair = content(name);
        let (x, y) = pair.split_at(pair.len() / 2);
        load::npy(&file("x.npy", x), &file("y.npy", y))
            .unwrap_or_else(|error| panic!("{name}: {error}; {AGAIN}"));
    }
    for name in names("data").into_iter().filter(|name| name.starts_with("png") || name.starts_with("jpeg")) {
        file("images/0/a", &content(&name));
        let read = load::folder(&dir.path().join("images"));
        assert_eq!(read.is_err(), name.ends_with(".large"), "{name}: {read:?}; {AGAIN}");
    }
}

const NAMED: &str = r#"
[data]
task = "classification"
columns = [
  { name = "x", type = "array", shape = [2] },
  { name = "z", type = "number", scaling = "fleet" },
  { name = "g", type = "attribute", levels = ["f", "m"] },
  { name = "y", type = "label", classes = ["no", "yes"] },
]
"#;

const WINDOWS: &str = r#"
[data]
task = "classification"
window = { rows = 2, stride = 1, within = "id" }
columns = [
  { name = "x", type = "number", missing = "mean" },
  { name = "c", type = "category", levels = ["a", "b"], missing = { constant = "b" } },
  { name = "id", type = "ignored" },
  { name = "v", type = "number", missing = { constant = 1 }, scaling = "fleet" },
  { name = "sex", type = "attribute", levels = ["f", "m"] },
  { name = "y", type = "label", classes = ["no", "yes"] },
]
"#;
