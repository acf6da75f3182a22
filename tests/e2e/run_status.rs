//! Progress of a run as an operator sees it: `status` before, during and after, the devices it waits for, refused
//! devices with reasons, and runs without any training.

use std::fs;

use common::{
    Code,
    message::{ToAggregator, ToDevice},
};
use fleet::{
    gateway::Gateway,
    process::{Process, wait_for},
    raw::{Raw, hello, tls},
};
use serde_json::Value;

fn command(gateway: &Gateway, words: &[&str]) -> String {
    let dir = gateway.text("gw");
    Process::start(words[0], "gateway", &[&words[..1], &["--dir", &dir], &words[1..]].concat()).succeed()
}

fn status(gateway: &Gateway) -> (String, Value) {
    let json = command(gateway, &["status", "--format", "json"]);
    (command(gateway, &["status"]), serde_json::from_str(&json).unwrap())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn connect(gateway: &Gateway, address: &str, device: &str) -> Raw {
    let identity = fs::read(gateway.identity(device)).unwrap();
    Raw::connect(address, tls(&identity, false)).await.unwrap()
}

#[test]
fn status_is_right_before_the_first_round_and_after_a_kill() {
    let gateway = Gateway::new("run = { rounds = 1000000, min_devices = 2 }", &["cam-0", "cam-1"]);
    let (text, json) = status(&gateway);
    assert!(text.contains("0 of 1000000 rounds committed, not begun"), "{text}");
    assert!(text.contains("no server runs; `fairtier gateway serve --dir"), "{text}");
    assert_eq!((&json["serving"], &json["committed"]), (&Value::from(false), &Value::from(0)));

    let serving = gateway.serve("127.0.0.1:0", &[]);
    let (text, json) = status(&gateway);
    assert!(text.contains("0 of 1000000 rounds committed, running"), "{text}");
    assert!(text.contains("the present model is the initial one"), "{text}");
    assert_eq!(json["serving"], true);
    let _first = gateway.device(&serving, "cam-0", "0/2", &[]);
    wait_for("status to say what is missing", || {
        status(&gateway).0.contains("round 1 waits for devices: 1 of 2 are connected").then_some(())
    });
    let _second = gateway.device(&serving, "cam-1", "1/2", &[]);
    gateway.wait_committed(3);
    assert!(status(&gateway).0.contains("rounds committed, running"));

    serving.process.kill();
    let (text, json) = status(&gateway);
    assert!(text.contains("rounds committed, stopped") && text.contains("no server runs"), "{text}");
    assert!(!text.contains("running") && !text.contains("waits for"), "{text}");
    assert_eq!((&json["serving"], &json["waiting"]), (&Value::from(false), &Value::Null));
    assert!(text.contains("round 3") || json["committed"].as_u64() > Some(3), "{text}");
}

#[test]
fn log_and_status_name_the_devices_a_round_waits_for() {
    let gateway = Gateway::new("run = { rounds = 3, min_devices = 2 }", &["cam-0", "mute"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    block_on(async {
        let mut mute = connect(&gateway, &serving.address, "mute").await;
        mute.join(hello("mute")).await;
        let device = gateway.device(&serving, "cam-0", "0/2", &[]);
        mute.assignment().await;
        let (text, json) = wait_for("status to name the device", || {
            let (text, json) = status(&gateway);
            text.contains("waits for: mute, tier 0, silent for").then_some((text, json))
        });
        assert!(text.contains("at most") && text.contains("s more unless it is heard from"), "{text}");
        assert_eq!(json["waiting"]["devices"][0]["device"], "mute");
        assert!(json["waiting"]["devices"][0]["until"].is_f64(), "{json}");
        // The device is dropped, and the run ends without it.
        gateway.wait_committed(3);
        drop(device);
    });
    let output = serving.process.output();
    let said: Vec<_> = output.lines().filter(|line| line.contains("waits for mute (tier 0")).collect();
    assert!((1..=3).contains(&said.len()), "{said:?}");
    assert!(
        said.iter().all(|line| line.contains("round 1 waits for mute") && line.contains("at most")),
        "{said:?}"
    );
}

#[test]
fn a_refused_device_is_logged_once_with_its_figures() {
    let gateway = Gateway::new("", &["small", "other"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    for _ in 0..3 {
        let output = gateway.device(&serving, "small", "0/2", &["--ram", "1k"]).fail();
        assert!(output.contains("E33"), "{output}");
    }
    fs::write(gateway.path("samples.csv"), "1,2,3,0\n4,5,6,1\n").unwrap();
    let (identity, csv) = (gateway.text("other.pem"), gateway.text("samples.csv"));
    let args = ["run", "--server", &serving.address, "--identity", &identity, "--csv", &csv];
    let output = Process::start("other", "device", &args).fail();
    assert!(output.contains("E34"), "{output}");
    let log = serving.process.output();
    let lines = |what: &str| log.lines().filter(|line| line.contains(what)).collect::<Vec<_>>();
    let small = lines("small is refused: E33");
    assert!(small.len() == 1 && small[0].contains("bytes, has 1024)"), "{small:?}");
    let other = lines("other is refused: E34");
    assert!(other.len() == 1 && other[0].contains("(needs 64, has "), "{other:?}");
}

#[test]
fn a_finished_run_is_not_served_again_with_exit_when_done() {
    let gateway = Gateway::new("run = { rounds = 2, min_devices = 1 }", &["cam-0"]);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    gateway.device(&serving, "cam-0", "0/2", &[]).succeed();
    serving.process.succeed();
    for _ in 0..2 {
        let output = gateway.serve("127.0.0.1:0", &["--exit-when-done"]).process.succeed();
        assert!(output.contains("the run is over"), "{output}");
        let (text, json) = status(&gateway);
        assert!(text.contains("2 of 2 rounds committed, finished"), "{text}");
        assert_eq!(json["last_round"]["purpose"], "evaluate");
    }
    // With more rounds in the configuration, it continues.
    fs::write(gateway.path("gw/fairtier.toml"), "run = { rounds = 3, min_devices = 1 }").unwrap();
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    gateway.device(&serving, "cam-0", "0/2", &[]).succeed();
    serving.process.succeed();
    assert_eq!(gateway.history().len(), 3);
}

/// A device that refuses every assignment.
#[test]
fn a_run_without_training_fails_and_empty_rounds_have_no_loss() {
    let gateway = Gateway::new("run = { rounds = 2, min_devices = 1 }", &["broken"]);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    block_on(async {
        let mut raw = connect(&gateway, &serving.address, "broken").await;
        raw.join(hello("broken")).await;
        raw.say(&ToAggregator::Ready).await;
        // An assignment may come twice: when its round opens, and as an answer to Ready.
        loop {
            match raw.hear().await {
                Some(ToDevice::Assignment(_)) => {
                    raw.say(&ToAggregator::Refusal(Code::NotReady.into())).await;
                    raw.say(&ToAggregator::Ready).await;
                }
                Some(ToDevice::Finished { .. }) => break,
                Some(_) => {}
                None => panic!("the aggregator hung up before the end"),
            }
        }
        raw.leave().await;
    });
    let output = serving.process.fail();
    assert!(output.contains("no device could train: all 2 rounds are empty"), "{output}");
    assert!(output.contains("broken was refused (E37 device cannot do this now) 2 times"), "{output}");
    assert!(
        output.contains("raise run.rounds") && output.contains("fairtier gateway resume --dir"),
        "{output}"
    );
    assert!(output.contains("broken cannot do what it is asked to: E37"), "{output}");

    for report in gateway.history() {
        assert_eq!(report["loss"], serde_json::json!({ "count": 0 }), "{report}");
    }
    let csv = command(&gateway, &["history", "--format", "csv"]);
    let column = csv.lines().next().unwrap().split(',').position(|name| name == "loss").unwrap();
    let losses: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').nth(column).unwrap()).collect();
    assert_eq!(losses, ["", ""], "{csv}");
    let (text, json) = status(&gateway);
    assert_eq!(json["last_round"]["loss"]["mean"], Value::Null);
    assert!(text.lines().any(|line| line.trim_start().starts_with("all ") && line.contains(" - ")), "{text}");
    // Serving once more changes nothing.
    let output = gateway.serve("127.0.0.1:0", &["--exit-when-done"]).process.fail();
    assert!(output.contains("no device could train"), "{output}");
}
