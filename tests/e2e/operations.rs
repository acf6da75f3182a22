//! Operating a gateway: `verify`, `resume`, `rollback`, `status`, `history`, and a full disk.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::Command,
};

use fleet::{
    gateway::{Gateway, files},
    process::Process,
};

const CONFIG: &str =
    "run = { rounds = 5, min_devices = 1 }\nstore = { keep_models = 100, keep_spool = true }";

/// A finished run of five rounds with one device.
fn finished() -> Gateway {
    let gateway = Gateway::new(CONFIG, &["cam-0"]);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    gateway.device(&serving, "cam-0", "0/5", &[]).succeed();
    serving.process.succeed();
    gateway
}

fn command(gateway: &Gateway, words: &[&str]) -> Process {
    let dir = gateway.text("gw");
    Process::start(words[0], "gateway", &[&words[..1], &["--dir", &dir], &words[1..]].concat())
}

#[test]
fn verify_reads_everything_and_names_damaged_files() {
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
fn resume_continues_a_run_but_starts_none() {
    let gateway = Gateway::new("run = { rounds = 3, min_devices = 1 }", &["cam-0"]);
    let output = command(&gateway, &["resume", "--listen", "127.0.0.1:0"]).fail();
    assert!(output.contains("no run has begun") && output.contains("fairtier gateway serve"), "{output}");
    assert!(!gateway.path("gw/store").exists(), "a store was created");

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
fn a_rollback_keeps_reports_and_the_run_continues_from_there() {
    let gateway = finished();
    let last = gateway.parameters();
    let output = command(&gateway, &["rollback", "--to", "9"]).fail();
    assert!(output.contains("round 9 is not kept; kept are those of rounds [0, 1, 2, 3, 4, 5]"), "{output}");

    // Also if the latest model is damaged, with which the run cannot continue.
    let model = gateway.path("gw/store/models/round-000005.model");
    fs::write(&model, &fs::read(&model).unwrap()[4..]).unwrap();
    let output = gateway.serve_in_vain();
    assert!(
        output.contains("round-000005.model") && output.contains("fairtier gateway rollback"),
        "{output}"
    );
    let output = command(&gateway, &["rollback", "--to", "2"]).succeed();
    assert!(output.contains("from round 5 to the model after round 2"), "{output}");
    assert_eq!(gateway.history().len(), 2);
    let kept = fs::read_to_string(gateway.path("gw/store/undone-000005-to-000002.0.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 3);
    command(&gateway, &["verify"]).succeed();

    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    assert!(gateway.parameters() != last, "the file must hold the earlier model");
    let output = command(&gateway, &["rollback", "--to", "1"]).fail();
    assert!(output.contains("in use by another process"), "{output}");
    let output = command(&gateway, &["verify"]).fail();
    assert!(output.contains("in use by another process"), "{output}");
    gateway.device(&serving, "cam-0", "0/5", &[]).succeed();
    serving.process.succeed();
    assert_eq!(gateway.history().len(), 5);
    assert!(gateway.parameters() == last, "the same rounds give the same model");
}

/// `fairtier gateway` with a limit on the size of files: larger writes fail as on a full disk.
fn limited(gateway: &Gateway, kib: u64, words: &[&str]) -> Process {
    let program = fleet::process::program();
    let dir = gateway.text("gw");
    let words = [&words[..1], &["--dir", &dir], &words[1..]].concat();
    assert!(!dir.contains(' '), "{dir}");
    let script =
        format!("trap '' XFSZ; ulimit -f {kib}; exec {} gateway {}", program.display(), words.join(" "));
    Process::start_program("full disk", Path::new("bash"), &["-c", &script])
}

fn kib(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len().div_ceil(1024)
}

#[test]
fn a_full_disk_is_reported_and_the_store_stays_readable() {
    let gateway = finished();
    let before = files(&gateway.path("gw"));
    // No byte can be written to any file.
    for words in [&["serve", "--listen", "127.0.0.1:0"][..], &["resume", "--listen", "127.0.0.1:0"]] {
        let output = limited(&gateway, 0, words).fail();
        assert!(output.contains("fairtier.redb") && output.contains("File too large"), "{words:?}: {output}");
        assert!(output.contains("free some space"), "{words:?}: {output}");
    }
    let output = limited(&gateway, 0, &["verify"]).succeed();
    assert!(output.contains("5 rounds committed; store format 6"), "{output}");
    assert_eq!(limited(&gateway, 0, &["history", "--format", "csv"]).succeed().lines().count(), 6);
    limited(&gateway, 0, &["status"]).succeed();
    assert!(files(&gateway.path("gw")) == before, "something has changed");
}

#[test]
fn a_read_only_disk_is_read() {
    let gateway = Gateway::of_format_4();
    let store = gateway.path("gw/store");
    let content = files(&store);
    let Some(disk) = Disk::mount(store.clone()) else {
        return println!("only root can mount a disk; the test with limited files takes its place");
    };
    for (path, bytes) in &content {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    disk.make_read_only();
    File::create(store.join("new")).unwrap_err();
    let output = command(&gateway, &["verify"]).succeed();
    assert!(output.contains("3 rounds committed, round 4 open; store format 4"), "{output}");
    assert_eq!(command(&gateway, &["history", "--format", "csv"]).succeed().lines().count(), 4);
    let output = command(&gateway, &["serve", "--listen", "127.0.0.1:0"]).fail();
    assert!(output.contains("fairtier.redb") && output.contains("Read-only file system"), "{output}");
    assert!(files(&store) == content, "something has changed");
}

/// A history that does not fit into memory.
#[test]
fn a_history_of_tens_of_thousands_of_rounds_is_read_line_by_line() {
    const ROUNDS: usize = 30_000;
    let gateway = Gateway::of_format_4();
    let path = gateway.path("gw/store/history.jsonl");
    let first = fs::read_to_string(&path).unwrap();
    let rest = first.lines().next().unwrap().strip_prefix("{\"round\":1,").unwrap();
    let mut file = BufWriter::new(File::create(&path).unwrap());
    for round in 1..=ROUNDS {
        writeln!(file, "{{\"round\":{round},{rest}").unwrap();
    }
    file.into_inner().unwrap();
    let memory = 100_000;
    assert!(kib(&path) > memory);
    let (program, dir) = (fleet::process::program(), gateway.text("gw"));
    let run = |words: &str| {
        let program = program.display();
        let script = format!(
            "set -o pipefail; ulimit -v {memory}; {program} gateway history --dir {dir} {words} | tail -n 1"
        );
        Process::start_program("history", Path::new("bash"), &["-c", &script]).succeed()
    };
    for words in ["--format table", "--format csv", "--format table --last 2"] {
        let last = run(words);
        assert!(last.trim_start().starts_with(&ROUNDS.to_string()), "{words}: {last}");
    }
    let last = run("--format json");
    assert!(last.starts_with(&format!("{{\"round\":{ROUNDS},")) && last.trim_end().ends_with("}]"), "json");
}

#[test]
fn a_damaged_line_of_the_history_is_named() {
    let gateway = finished();
    let path = gateway.path("gw/store/history.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    assert!(whole.lines().all(|line| line.contains(",\"crc32\":\"") && line.ends_with("\"}")), "{whole}");
    // A changed number in a line that is still valid JSON.
    let at = whole.find("{\"round\":2,").unwrap()
        + whole[whole.find("{\"round\":2,").unwrap()..].find("\"lr\":0.").unwrap();
    let mut bytes = whole.clone().into_bytes();
    let digit = at + "\"lr\":0.".len();
    bytes[digit] ^= 1;
    serde_json::from_slice::<serde_json::Value>(bytes.split(|&byte| byte == b'\n').nth(1).unwrap()).unwrap();
    fs::write(&path, &bytes).unwrap();
    let place = "history.jsonl, line 2, after round 1: its checksum is wrong";
    let output = command(&gateway, &["verify"]).fail();
    assert!(output.contains(place), "{output}");
    let output = command(&gateway, &["history", "--format", "csv"]).succeed();
    assert!(output.contains(place) && output.contains("left out"), "{output}");
    // The ledger still has the report, so the next start rewrites the line.
    assert_eq!(gateway.history().len(), 5);
    assert!(fs::read_to_string(&path).unwrap() == whole);
    command(&gateway, &["verify"]).succeed();
}

#[test]
fn a_history_in_several_files_is_one_history() {
    let config = CONFIG.replace("keep_spool", "history_rounds = 2, keep_spool");
    let gateway = Gateway::new(&config, &["cam-0"]);
    let serve = || {
        let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
        gateway.device(&serving, "cam-0", "0/5", &[]).succeed();
        serving.process.succeed();
    };
    let expect_files = || {
        let names = ["history-000001-000002.jsonl", "history-000003-000004.jsonl", "history.jsonl"];
        let lines = names
            .map(|name| fs::read_to_string(gateway.path("gw/store").join(name)).unwrap().lines().count());
        assert_eq!(lines, [2, 2, 1]);
        let csv = command(&gateway, &["history", "--format", "csv"]).succeed();
        let rounds: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
        assert_eq!(rounds, ["1", "2", "3", "4", "5"]);
        let csv = command(&gateway, &["history", "--format", "csv", "--last", "3"]).succeed();
        let rounds: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
        assert_eq!(rounds, ["3", "4", "5"]);
        let output = command(&gateway, &["verify"]).succeed();
        assert!(output.contains("5 reports"), "{output}");
    };
    serve();
    expect_files();
    command(&gateway, &["rollback", "--to", "1"]).succeed();
    assert_eq!(command(&gateway, &["history", "--format", "csv"]).succeed().lines().count(), 2);
    let undone = fs::read_to_string(gateway.path("gw/store/undone-000005-to-000001.0.jsonl")).unwrap();
    assert_eq!(undone.lines().count(), 4);
    serve();
    expect_files();
}

/// A run that keeps everything.
fn lasting(rounds: usize) -> String {
    format!(
        "run = {{ rounds = {rounds}, min_devices = 1 }}\n\
         store = {{ keep_models = 100000, keep_spool = true, keep_reports = 100000 }}"
    )
}

/// More rounds than any machine finishes before the disk is full.
const ENDLESS: usize = 100_000;

/// Asserts the messages of an aggregator that ran out of space during a run.
fn assert_named(output: &str, why: &str) {
    assert!(output.contains("the run cannot go on") && output.contains(why), "{output}");
    assert!(
        output.contains("free some space, then continue with `fairtier gateway resume --dir"),
        "{output}"
    );
    assert!(!output.contains("the run is over"), "{output}");
}

/// Continues for some rounds after the disk was full. Every update that was acknowledged must count.
fn assert_complete(gateway: &Gateway, address: &str, device: Process) {
    let verified = command(gateway, &["verify"]).succeed();
    let committed =
        verified.split(" rounds committed").next().and_then(|text| text.split_whitespace().last());
    let rounds = committed.and_then(|number| number.parse::<usize>().ok()).expect("a number of rounds") + 50;
    fs::write(gateway.path("gw/fairtier.toml"), lasting(rounds)).unwrap();
    let serving = gateway.start("resume", address, &["--exit-when-done"]);
    let output = device.succeed();
    assert!(output.contains("run is over"), "{output}");
    serving.process.succeed();
    let history = gateway.history();
    let reported: Vec<_> = history.iter().map(|report| report["round"].as_u64().unwrap() as usize).collect();
    assert_eq!(reported, (1..=rounds).collect::<Vec<_>>());
    // One per round and one for the final scores. The last receipt may not have been sent before the server ended.
    let accepted = output.matches("update accepted").count();
    assert!((rounds..=rounds + 1).contains(&accepted), "{accepted} receipts of {rounds} rounds");
    assert!(history.iter().all(|report| report["devices"].as_array().unwrap().len() == 1));
    let verified = command(gateway, &["verify"]).succeed();
    let expected = [format!("{rounds} rounds committed"), format!("{rounds} reports")];
    assert!(expected.iter().all(|text| verified.contains(text)), "{verified}");
}

/// A limit on the size of files that is reached during a run with a connected device.
#[test]
fn a_disk_that_fills_up_during_a_run_ends_the_server_and_loses_nothing() {
    let gateway = Gateway::new(&lasting(ENDLESS), &["cam-0"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let address = serving.address.clone();
    let device = gateway.device(&serving, "cam-0", "0/5", &["--silence", "4"]);
    gateway.wait_committed(2);
    serving.process.terminate();
    serving.process.succeed();

    let limit = kib(&gateway.path("gw/store/fairtier.redb")).max(1024) + 64;
    let mut serving = limited(&gateway, limit, &["serve", "--listen", &address]);
    serving.wait_line("listening on ");
    let output = serving.fail();
    assert!(output.contains("cam-0"), "the device was not connected: {output}");
    assert_named(&output, "File too large");
    assert_complete(&gateway, &address, device);
}

/// A temporary file system, unmounted with the test.
struct Disk(PathBuf);

impl Disk {
    /// `None` if this user may not mount file systems.
    fn mount(path: PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"]).arg(&path).output();
        mount.is_ok_and(|mount| mount.status.success()).then_some(Self(path))
    }

    /// Uses up all free space.
    fn fill(&self) {
        let mut file = File::create(self.0.join("ballast")).unwrap();
        let mut bytes = vec![1; 1 << 20];
        while !bytes.is_empty() {
            if file.write_all(&bytes).is_err() {
                bytes.truncate(bytes.len() / 2);
            }
        }
    }

    fn make_read_only(&self) {
        let mount = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status();
        assert!(mount.unwrap().success());
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The same on a small file system, where every write fails.
#[test]
fn a_full_file_system_ends_the_server_and_loses_nothing() {
    let gateway = Gateway::new(&lasting(ENDLESS), &["cam-0"]);
    let Some(disk) = Disk::mount(gateway.path("gw/store")) else {
        return println!("only root can mount a small disk; the test with limited files takes its place");
    };
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let address = serving.address.clone();
    let device = gateway.device(&serving, "cam-0", "0/5", &["--silence", "4"]);
    gateway.wait_committed(5);
    disk.fill();
    assert_named(&serving.process.fail(), "No space left on device");
    let output = command(&gateway, &["verify"]).succeed();
    assert!(output.contains("rounds committed"), "also without any space: {output}");
    disk.free();
    assert_complete(&gateway, &address, device);
}

#[test]
fn history_and_status_are_read_while_the_server_runs() {
    let gateway = Gateway::new(
        "run = { rounds = 100000, min_devices = 1 }\nstore = { keep_models = 100000 }",
        &["cam-0"],
    );
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let _device = gateway.device(&serving, "cam-0", "0/5", &[]);
    gateway.wait_committed(3);
    let csv = command(&gateway, &["history", "--format", "csv"]).succeed();
    assert!(csv.starts_with("round,devices,refused,silent,stragglers,late,held,"), "{csv}");
    let rounds: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert!(rounds.len() >= 3 && rounds[..3] == ["1", "2", "3"], "{csv}");
    let status = command(&gateway, &["status"]).succeed();
    assert!(status.contains("asked  delivered  late  silent  refused  held"), "{status}");
    assert!(status.contains("running"), "{status}");
    let empty = status.lines().find(|line| line.trim_start().starts_with("1 ")).unwrap();
    assert!(empty.contains('-') && !empty.contains("0.0000"), "{status}");
    serving.process.terminate();
    serving.process.succeed();

    let output = command(&gateway, &["rollback", "--to", "2"]).succeed();
    assert!(output.contains("to the model after round 2"), "{output}");
    let status = command(&gateway, &["status"]).succeed();
    assert!(
        status.contains("2 rounds committed, rolled back from round") && status.contains("round 2,"),
        "{status}"
    );
    assert_eq!(command(&gateway, &["history", "--format", "csv"]).succeed().lines().count(), 3);
    let model = || fs::read(gateway.path("gw/model.onnx")).unwrap();
    let after_two = model();
    command(&gateway, &["rollback", "--to", "0"]).succeed();
    assert_ne!(model(), after_two, "`export` must give the model of the rollback");
    let status = command(&gateway, &["status"]).succeed();
    assert!(status.contains("0 rounds committed") && status.contains("initial"), "{status}");
    fs::write(gateway.path("gw/status.json"), "{}").unwrap();
    for format in ["table", "json"] {
        let output = command(&gateway, &["status", "--format", format]).fail();
        assert!(
            output.contains("status.json") && output.contains("not the status of an aggregator"),
            "{output}"
        );
    }
}

#[test]
fn errors_name_the_directory() {
    let gateway = Gateway::new("", &[]);
    for words in [&["verify"][..], &["rollback", "--to", "1"]] {
        let output = command(&gateway, words).fail();
        assert!(
            output.contains(&gateway.text("gw/store")) && output.contains("no run has begun"),
            "{output}"
        );
    }
}

/// Asserts that the help of a command and of its subcommands has examples. Returns the number of commands.
fn look_for_examples(words: &[&str]) -> usize {
    let help =
        Process::start_program("help", &fleet::process::program(), &[words, &["--help"]].concat()).succeed();
    let command = format!("  {}", [&["fairtier"], words].concat().join(" "));
    let examples = help.split_once("\nExamples:\n").map_or("", |(_, examples)| examples);
    let shows =
        |line: &str| line.strip_prefix(&command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    assert!(examples.lines().any(shows), "{help}");
    let Some((_, below)) = help.split_once("\nCommands:\n") else { return 1 };
    // Names of commands are indented by two spaces, wrapped lines by more.
    let named = below.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let names =
        named.filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty() && *name != "help");
    1 + names.map(|name| look_for_examples(&[words, &[name]].concat())).sum::<usize>()
}

#[test]
fn every_command_has_an_example() {
    let looked = look_for_examples(&[]);
    assert!(looked >= 49, "{looked} commands");
}
