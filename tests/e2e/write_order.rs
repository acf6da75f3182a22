//! Updates and models are on the disk before the ledger refers to them. `kill -9` cannot show this, because the page
//! cache survives it, so `strace` records the system calls of a real gateway.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use fleet::{
    gateway::{Gateway, Serving},
    process::Process,
    tools,
};

const ROUNDS: usize = 3;
const LEDGER: &str = "fairtier.redb";

/// A call that affects a file of the store.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Call<'a> {
    Write(&'a str),
    Sync(&'a str),
}

/// Parses a line of strace about a file below `store`, for example
/// `fdatasync(9</tmp/x/gw/store/spool/round-000001.spool>) = 0`.
fn call<'a>(line: &'a str, store: &str) -> Option<Call<'a>> {
    let (name, rest) = line.split_once('(')?;
    let (_, path) = rest.split_once('<')?;
    let file = path.split_once('>')?.0.strip_prefix(store)?.strip_prefix('/')?;
    match name {
        "write" | "pwrite64" => Some(Call::Write(file)),
        "fsync" | "fdatasync" if line.ends_with("= 0") => Some(Call::Sync(file)),
        _ => None,
    }
}

/// Whether the ledger refers to this file.
fn is_named(file: &str) -> bool {
    file.starts_with("spool/") || file.starts_with("models/")
}

/// Checks the calls of one thread: when the ledger is synced, all earlier writes must be synced. Returns the written
/// files, with repetitions.
fn check<'a>(calls: &[Call<'a>]) -> Vec<&'a str> {
    let (mut dirty, mut written) = (BTreeSet::new(), vec![]);
    for &call in calls {
        match call {
            Call::Write(file) if is_named(file) => {
                if dirty.insert(file) {
                    written.push(file);
                }
            }
            Call::Sync(LEDGER) => {
                assert!(dirty.is_empty(), "the ledger is synced before {dirty:?}:\n{calls:#?}");
            }
            Call::Sync(file) => _ = dirty.remove(file),
            Call::Write(_) => {}
        }
    }
    assert!(dirty.is_empty(), "never synced: {dirty:?}");
    written
}

#[test]
fn updates_and_models_are_synced_before_the_ledger_refers_to_them() {
    if tools::find(&["strace"], "strace").is_none() {
        return;
    }
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).output().unwrap();
    if !traced.status.success() {
        return tools::leave_out("this container does not allow strace to trace a process");
    }
    // With one device, nothing else is written to the ledger between an update and its receipt.
    let gateway = Gateway::new(&format!("run = {{ rounds = {ROUNDS}, min_devices = 1 }}"), &["cam-0"]);
    let (dir, traces) = (gateway.text("gw"), gateway.path("traces"));
    fs::create_dir(&traces).unwrap();
    let (to, program) = (format!("{}/thread", traces.display()), fleet::process::program());
    // With -D the aggregator is our child and ends with this test. Its output ends when strace has written
    // everything.
    let strace = ["-D", "-ff", "-yy", "-s", "0", "-e", "trace=write,pwrite64,fsync,fdatasync", "-o", &to];
    let serve = ["gateway", "serve", "--dir", &dir, "--listen", "127.0.0.1:0", "--exit-when-done"];
    let args = [&strace[..], &[program.to_str().unwrap()], &serve].concat();
    let mut process = Process::start_program("aggregator", Path::new("strace"), &args);
    let address = process.wait_line("listening on ");
    let serving = Serving { process, address };
    gateway.device(&serving, "cam-0", "0/5", &[]).succeed();
    serving.process.succeed();
    assert_eq!(gateway.history().len(), ROUNDS);

    let store = fs::canonicalize(gateway.path("gw/store")).unwrap();
    let mut written = vec![];
    for (_, trace) in fleet::gateway::files(&traces) {
        let trace = String::from_utf8(trace).unwrap();
        let calls: Vec<_> = trace.lines().filter_map(|line| call(line, store.to_str().unwrap())).collect();
        written.extend(check(&calls).into_iter().map(str::to_owned));
    }
    for round in 1..=ROUNDS {
        for file in [format!("spool/round-{round:06}.spool"), format!("models/round-{round:06}.model")] {
            assert!(written.contains(&file), "{file} was not seen: {written:?}");
        }
    }
}

#[test]
fn a_ledger_synced_too_early_is_detected() {
    let lines = [
        "pwrite64(9</gw/store/spool/round-000001.spool>, \"\"..., 60, 0) = 60",
        "fdatasync(9</gw/store/spool/round-000001.spool>) = 0",
        "pwrite64(7</gw/store/fairtier.redb>, \"\"..., 512, 0) = 512",
        "fdatasync(7</gw/store/fairtier.redb>)   = 0",
    ];
    let calls = lines.map(|line| call(line, "/gw/store").unwrap());
    assert_eq!(calls[3], Call::Sync(LEDGER));
    assert_eq!(check(&calls), ["spool/round-000001.spool"]);
    for wrong in [[0, 2, 3, 1], [0, 2, 3, 3]] {
        let calls = wrong.map(|index: usize| calls[index]);
        assert!(std::panic::catch_unwind(|| check(&calls)).is_err(), "{calls:?}");
    }
}
