//! A gateway as a service: backups under load, a service manager, a changed configuration, and what monitors read.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::{Path, PathBuf},
    process::Command,
};

use fleet::{
    gateway::{Gateway, Serving, lasting_address, parameters},
    openmetrics::{Exposition, parse},
    process::{PATIENCE, Process, program, wait_for},
    tools,
};
use serde_json::Value;

const DEVICES: [&str; 3] = ["cam-0", "cam-1", "cam-2"];
/// More rounds than any machine finishes during the test.
const ENDLESS: u64 = 100_000;

fn config(rounds: u64) -> String {
    format!(
        "run = {{ rounds = {rounds}, min_devices = 3 }}\nround = {{ quorum = 1.0, deadline_s = 600 }}\n\
         strategy = {{ name = \"heterofl\" }}\nserver = {{ listen = \"127.0.0.1:0\" }}"
    )
}

fn start_devices(gateway: &Gateway, serving: &Serving) -> Vec<Process> {
    let start = |(index, name): (usize, &&str)| {
        gateway.device(serving, name, &format!("{index}/3"), &["--silence", "4"])
    };
    DEVICES.iter().enumerate().map(start).collect()
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("packaging").join(name)
}

#[test]
fn a_backup_under_load_continues_elsewhere_to_the_model_of_an_undisturbed_run() {
    let gateway = Gateway::new(&config(ENDLESS), &DEVICES);
    let serving = gateway.serve(&lasting_address(), &[]);
    let address = serving.address.clone();
    let devices = start_devices(&gateway, &serving);
    let (dir, other, file) = (gateway.text("gw"), gateway.text("gw-2"), gateway.text("backup.tar"));
    gateway.wait_committed(3);
    // The last of several, each at another moment of a round; they replace each other.
    let backups: Vec<Value> = (0..4)
        .map(|_| {
            let args = ["backup", "--dir", &dir, &file, "--format", "json"];
            let output = Process::start("backup", "gateway", &args).succeed();
            serde_json::from_str(output.lines().find(|line| line.starts_with('{')).unwrap()).unwrap()
        })
        .collect();
    let last = &backups[3];
    assert_eq!(last["serving"], true);
    let committed = last["manifest"]["committed"].as_u64().unwrap();
    assert!(committed >= 3, "{committed} rounds were committed");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Devices are ahead of the backup when the gateway is lost.
    gateway.wait_committed(committed + 2);
    serving.process.kill();

    Process::start("restore", "gateway", &["restore", &file, "--dir", &other]).succeed();
    let verified = Process::start("verify", "gateway", &["verify", "--dir", &other]).succeed();
    assert!(verified.contains(&format!("{committed} rounds committed")), "{verified}");
    let again = Process::start("restore", "gateway", &["restore", &file, "--dir", &other]).fail();
    assert!(again.contains("is not empty"), "{again}");
    let rounds = committed + 50;
    fs::write(gateway.path("gw-2/fairtier.toml"), config(rounds)).unwrap();
    let args = ["resume", "--dir", &other, "--listen", &address, "--exit-when-done"];
    let resumed = Process::start("restored gateway", "gateway", &args);
    devices.into_iter().for_each(|device| drop(device.succeed()));
    resumed.succeed();

    let undisturbed = Gateway::new(&config(rounds), &DEVICES);
    let serving = undisturbed.serve("127.0.0.1:0", &["--exit-when-done"]);
    let devices = start_devices(&undisturbed, &serving);
    devices.into_iter().for_each(|device| drop(device.succeed()));
    serving.process.succeed();
    let model = |path: PathBuf| parameters(&path);
    let [expected, restored] =
        [undisturbed.path("gw/model.onnx"), gateway.path("gw-2/model.onnx")].map(model);
    assert!(!expected.is_empty() && expected == restored, "the restored run has given another model");
}

/// The next message that contains all of these.
fn wait_told(socket: &UnixDatagram, parts: &[&str]) -> String {
    wait_for(&format!("the service manager to be told {parts:?}"), || {
        let mut buffer = [0; 4096];
        let len = socket.recv(&mut buffer).unwrap();
        let text = String::from_utf8(buffer[..len].to_vec()).unwrap();
        parts.iter().all(|part| text.contains(part)).then_some(text)
    })
}

/// Lines of a log in JSON.
fn events(output: &str) -> Vec<Value> {
    let lines = output.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_service_manager_is_told_and_a_changed_configuration_is_taken_up() {
    let before = "run = { rounds = 9, min_devices = 2 }\nserver = { listen = \"127.0.0.1:0\" }";
    let gateway = Gateway::new(before, &[]);
    let path = gateway.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let notify = format!("NOTIFY_SOCKET={}", path.display());
    let (program, dir) = (program(), gateway.text("gw"));
    let env = ["-u", "FAIRTIER_LOG", &notify, "WATCHDOG_USEC=900000"];
    let args = [program.to_str().unwrap(), "gateway", "serve", "--dir", &dir, "--log-format", "json"];
    let process = Process::start_program("gateway", Path::new("/usr/bin/env"), &[&env[..], &args].concat());
    wait_told(&socket, &["READY=1"]);
    wait_told(&socket, &["STATUS=0 of 9 rounds committed; round 1 waits; 0 devices connected"]);
    wait_told(&socket, &["WATCHDOG=1"]);
    wait_told(&socket, &["WATCHDOG=1"]);

    let reload = |config: &str, marker: &str| {
        let count = || process.output().matches(marker).count();
        let before = count();
        fs::write(gateway.path("gw/fairtier.toml"), config).unwrap();
        process.signal("HUP");
        wait_told(&socket, &["RELOADING=1", "MONOTONIC_USEC="]);
        wait_told(&socket, &["READY=1"]);
        wait_for(marker, || (count() > before).then_some(()));
        events(&process.output())
    };
    let (read, refused) = ("configuration read", "configuration refused");
    let after = "run = { rounds = 9, min_devices = 1 }\nserver = { listen = \"127.0.0.1:0\", max_connections = 7 }\n\
                 round = { deadline_s = 7 }\nmodel = { seed = 3 }\nlog = { level = \"debug\" }";
    let log = reload(after, read);
    let said = |log: &[Value], message: &str| -> BTreeSet<String> {
        let of = log
            .iter()
            .filter(|event| event["message"].as_str().is_some_and(|text| text.starts_with(message)));
        of.map(|event| event["key"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let now = ["log.level", "round.deadline_s", "run.min_devices", "server.max_connections"];
    assert_eq!(said(&log, "reloaded"), names(&now), "{log:?}");
    assert_eq!(said(&log, "needs a restart"), names(&["model.seed"]), "{log:?}");
    let broken = reload("round = { quorum = 7 }", refused);
    assert!(broken.iter().any(|event| {
        event["message"] == "configuration refused; the one in effect stays"
            && event["error"].as_str().is_some_and(|error| error.contains("round.quorum = 7"))
    }));
    // What was refused has changed nothing, and what needs a restart is said again.
    let restored = reload(after, read);
    assert_eq!(said(&restored[broken.len()..], "reloaded"), names(&[]));
    assert_eq!(said(&restored[broken.len()..], "needs a restart"), names(&["model.seed"]));
    // Events of dependencies, which level `debug` shows, may have no message.
    for event in restored.iter().filter(|event| event["level"] != "DEBUG") {
        assert!(["timestamp", "level", "message"].iter().all(|key| event[key].is_string()), "{event}");
    }

    // `min_devices` is 1 now: the run begins with one device.
    gateway.enroll(&["cam-0"]);
    let listening =
        process.output().lines().find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned()));
    let serving = Serving { process, address: listening.unwrap() };
    let device = gateway.device(&serving, "cam-0", "0/40", &[]);
    gateway.wait_committed(1);
    serving.process.terminate();
    wait_told(&socket, &["STOPPING=1"]);
    serving.process.succeed();
    drop(device);
}

/// Status and body of an answer.
fn request(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn get(address: &str, path: &str) -> (u16, String) {
    request(address, &format!("GET {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n"))
}

#[test]
fn metrics_are_openmetrics_and_equal_the_status() {
    let config = "run = { rounds = 3, min_devices = 2 }\nserver = { listen = \"127.0.0.1:0\" }\n\
                  [model]\nsource = \"digits-mlp\"\ntiers = [1.0, 0.5]\n[devices]\ncam-0 = 0\ncam-1 = 1";
    let gateway = Gateway::new(config, &DEVICES[..2]);
    let mut serving = gateway.serve("127.0.0.1:0", &["--metrics", "127.0.0.1:0"]);
    let http = serving.process.wait_line("metrics on http://").replace("/metrics", "");
    let devices = [("cam-0", "0/40"), ("cam-1", "1/40")];
    let devices = devices.map(|(name, share)| gateway.device(&serving, name, share, &[]));
    devices.into_iter().for_each(|device| drop(device.succeed()));
    let finished = |status: &Value| status["finished"] == true;
    let status = wait_for("the final scores", || gateway.status().filter(finished));
    let (code, text) = get(&http, "/metrics");
    assert_eq!(code, 200);
    let found: Exposition = parse(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    assert!(!text.contains("cam-"), "a device is named");
    let value = |name: &str, labels: &[(&str, &str)]| {
        found.value(name, labels).unwrap_or_else(|| panic!("{name} {labels:?}:\n{text}"))
    };
    assert_eq!(value("fairtier_round_committed", &[]), 3.0);
    assert_eq!(value("fairtier_rounds_total", &[("strategy", "fairheterofl"), ("outcome", "combined")]), 3.0);
    assert_eq!(value("fairtier_run_finished", &[]), 1.0);
    let last = &status["last_round"];
    assert_eq!(value("fairtier_loss", &[]), last["loss"]["mean"].as_f64().unwrap());
    for tier in [0, 1] {
        let label = [("tier", if tier == 0 { "0" } else { "1" })];
        assert_eq!(value("fairtier_devices_registered", &label), 1.0);
        assert_eq!(value("fairtier_tier_loss", &label), last["loss_by_tier"][tier]["mean"].as_f64().unwrap());
        // Three rounds and the final scores.
        assert_eq!(value("fairtier_device_loss_count", &label), 4.0);
        assert!(value("fairtier_traffic_bytes_total", &[label[0], ("direction", "up")]) > 1000.0);
    }
    assert!(value("fairtier_disk_free_bytes", &[]) > 1e6);

    assert_eq!(get(&http, "/healthz"), (200, "ok\n".into()));
    assert_eq!(get(&http, "/readyz"), (200, "ready\n".into()));
    assert_eq!(get(&http, "/../fairtier.toml").0, 404);
    assert_eq!(request(&http, "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").0, 405);
    let long = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(64 << 10));
    let mut stream = TcpStream::connect(&http).unwrap();
    // The answer is an error, or the connection is closed while it is still written.
    let _ = stream.write_all(long.as_bytes());
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    serving.process.terminate();
    serving.process.succeed();
}

#[test]
fn alert_rules_are_valid_and_fire_when_they_should() {
    let Some(promtool) = tools::find(&["promtool"], "the package prometheus") else { return };
    for (command, file) in [("check", "fairtier.rules.yml"), ("test", "fairtier.rules.test.yml")] {
        let mut promtool = Command::new(&promtool);
        let output =
            promtool.args([command, "rules", file]).current_dir(packaging("prometheus")).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    }
}

/// Names that are shown or alerted on and no longer exported would stay silent for ever.
#[test]
fn dashboard_and_rules_use_only_metrics_that_exist() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("aggregator/src/metrics.rs");
    // Without line breaks, which the formatter sets.
    let source = fs::read_to_string(source).unwrap().split_whitespace().collect::<String>();
    let dashboard = fs::read_to_string(packaging("grafana/fairtier.json")).unwrap();
    let panels: Value = serde_json::from_str(&dashboard).unwrap();
    assert!(panels["panels"].as_array().unwrap().len() > 10);
    let rules = fs::read_to_string(packaging("prometheus/fairtier.rules.yml")).unwrap();
    let text = dashboard + &rules;
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let names: BTreeSet<_> = text.split(word).filter_map(|word| word.strip_prefix("fairtier_")).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let suffixes = ["_total", "_bucket", "_count", "_sum", "_seconds", "_bytes"];
        let mut base = name;
        while let Some(shorter) = suffixes.iter().find_map(|suffix| base.strip_suffix(suffix)) {
            if source.contains(&format!("(\"{base}\"")) {
                break;
            }
            base = shorter;
        }
        assert!(source.contains(&format!("(\"{base}\"")), "fairtier_{name}");
    }
}

#[test]
fn the_systemd_unit_is_hardened() {
    let Some(analyze) = tools::find(&["systemd-analyze"], "systemd") else { return };
    let unit = packaging("systemd/fairtier-gateway.service");
    // In tenths.
    let args = ["security", "--offline=true", "--no-pager", "--threshold=20"];
    let output = Command::new(analyze).args(args).arg(&unit).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("Overall exposure level"), "{text}");
    let unit = fs::read_to_string(unit).unwrap();
    for line in ["Type=notify", "WatchdogSec=", "ExecReload=", "StateDirectory=fairtier"] {
        assert!(unit.contains(line), "{line}");
    }
}

#[test]
fn int8_is_advised_to_a_large_fleet() {
    let names: Vec<String> = (0..1000).map(|number| format!("cam-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let gateway = Gateway::new("", &names);
    let dir = gateway.text("gw");
    let args = ["check", "--dir", &dir, "--listen", "127.0.0.1:0", "--format", "json"];
    let is_advised =
        || Process::start("check", "gateway", &args).succeed().contains("a quarter of the bytes");
    assert!(is_advised());
    fs::write(gateway.path("gw/fairtier.toml"), "wire.up = \"int8\"").unwrap();
    assert!(!is_advised());
}
