//! Looking after a gateway: `verify`, `resume`, `rollback`, and a disk that is full.

use std::{fs, path::Path};

use fleet::{
    gateway::{Gateway, files},
    process::Process,
};

const CONFIG: &str =
    "run = { rounds = 5, min_devices = 1 }\nstore = { keep_models = 100, keep_spool = true }";

/// A run of five rounds with one device that is over.
fn finished() -> Gateway {
    let gateway = Gateway::new(CONFIG, &["cam-0"]);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    gateway.device(&serving, "cam-0", "0/5", &[]).succeed();
    serving.process.succeed();
    gateway
}

fn command(gateway: &Gateway, words: &[&str]) -> Process {
    let dir = gateway.text("gw");
    Process::start(words[0], "aggregator", &[&words[..1], &["--dir", &dir], &words[1..]].concat())
}

#[test]
fn verify_reads_everything_and_names_what_is_damaged() {
    let gateway = finished();
    let before = files(&gateway.path("gw"));
    let output = command(&gateway, &["verify"]).succeed();
    assert!(output.contains("5 rounds committed") && output.contains("5 updates with"), "{output}");
    assert!(output.contains("models kept: [0, 1, 2, 3, 4, 5]; 5 reports, 1 devices"), "{output}");

    let spool = gateway.path("gw/store/spool/round-000003.spool");
    let whole = fs::read(&spool).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&spool, &damaged).unwrap();
    let output = command(&gateway, &["verify"]).fail();
    assert!(output.contains("round-000003.spool") && output.contains("wrong checksum"), "{output}");
    assert!(output.contains("4 updates with"), "{output}");
    assert_eq!(fs::read(&spool).unwrap(), damaged, "verify changes nothing");

    fs::write(&spool, &whole).unwrap();
    let model = gateway.path("gw/store/models/round-000002.model");
    let sound = fs::read(&model).unwrap();
    fs::write(&model, &sound[1..]).unwrap();
    let output = command(&gateway, &["verify"]).fail();
    assert!(output.contains("round-000002.model") && output.contains("bytes instead of"), "{output}");
    fs::write(&model, &sound).unwrap();
    assert!(files(&gateway.path("gw")) == before, "verify changes nothing");
    let output = command(&gateway, &["verify", "--format", "json"]).succeed();
    assert!(output.contains("\"problems\":[]"), "{output}");
}

#[test]
fn resume_goes_on_but_begins_nothing() {
    let gateway = Gateway::new("run = { rounds = 3, min_devices = 1 }", &["cam-0"]);
    let output = command(&gateway, &["resume", "--listen", "127.0.0.1:0"]).fail();
    assert!(output.contains("no run has begun") && output.contains("aggregator serve"), "{output}");
    assert!(!gateway.path("gw/store").exists(), "nothing was begun");

    let gateway = finished();
    let before = gateway.history().len();
    command(&gateway, &["rollback", "--to", "4"]).succeed();
    let serving = gateway.start("resume", "127.0.0.1:0", &["--exit-when-done"]);
    gateway.device(&serving, "cam-0", "0/5", &[]).succeed();
    let output = serving.process.succeed();
    assert!(output.contains("4 rounds are committed; going on with round 5"), "{output}");
    assert_eq!(gateway.history().len(), before);
}

#[test]
fn a_rollback_keeps_reports_and_the_run_goes_on_from_there() {
    let gateway = finished();
    let last = gateway.parameters();
    let output = command(&gateway, &["rollback", "--to", "9"]).fail();
    assert!(output.contains("round 9 is not kept; kept are those of rounds [0, 1, 2, 3, 4, 5]"), "{output}");

    let output = command(&gateway, &["rollback", "--to", "2"]).succeed();
    assert!(output.contains("from round 5 to the model after round 2"), "{output}");
    assert_eq!(gateway.history().len(), 2);
    let kept = fs::read_to_string(gateway.path("gw/store/undone-000005-to-000002.0.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 3);
    command(&gateway, &["verify"]).succeed();

    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    assert!(gateway.parameters() != last, "the file shows the earlier model");
    let output = command(&gateway, &["rollback", "--to", "1"]).fail();
    assert!(output.contains("in use by another process"), "{output}");
    let output = command(&gateway, &["verify"]).fail();
    assert!(output.contains("in use by another process"), "{output}");
    gateway.device(&serving, "cam-0", "0/5", &[]).succeed();
    serving.process.succeed();
    assert_eq!(gateway.history().len(), 5);
    assert!(gateway.parameters() == last, "the same rounds give the same model");
}

#[test]
fn a_full_disk_is_named_and_loses_nothing() {
    let rounds = "run = { rounds = 400, min_devices = 1 }\nstore = { keep_models = 1000, keep_spool = true }";
    let gateway = Gateway::new(rounds, &["cam-0"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let address = serving.address.clone();
    let device = gateway.device(&serving, "cam-0", "0/5", &["--silence", "4"]);
    gateway.wait_committed(2);
    serving.process.terminate();
    serving.process.succeed();

    // No file may become longer than the ledger is: writing beyond fails as on a full disk.
    let ledger = gateway.path("gw/store/fairtier.redb");
    let kib = fs::metadata(&ledger).unwrap().len().div_ceil(1024);
    let serve = format!(
        "trap '' XFSZ; ulimit -f {kib}; exec {} serve --dir {} --listen {address}",
        fleet::process::program("aggregator").display(),
        gateway.text("gw"),
    );
    let output = Process::start_program("full disk", Path::new("bash"), &["-c", &serve]).fail();
    assert!(output.contains("fairtier.redb") && output.contains("File too large"), "{output}");
    let verified = command(&gateway, &["verify"]).succeed();
    assert!(verified.contains("rounds committed"), "{verified}");

    let serving = gateway.serve(&address, &["--exit-when-done"]);
    let output = device.succeed();
    assert!(output.contains("run is over"), "{output}");
    serving.process.succeed();
    assert_eq!(gateway.history().len(), 400);
}
