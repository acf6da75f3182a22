//! Owners' limits on what leaves their devices, with the real programs over QUIC.

use std::{fs, os::unix::fs::PermissionsExt};

use fleet::{
    gateway::{Gateway, Serving},
    process::Process,
};
use serde_json::Value;

const BANKS: [&str; 3] = ["bank-0", "bank-1", "bank-2"];

/// A gateway that asks for epsilon 2 in every round, and a file of loans for every bank. Without the guard, which remembers the
/// length of earlier updates: a rollback forgets it.
fn gateway(rounds: u32, quorum: f64) -> Gateway {
    let config = format!(
        "run = {{ rounds = {rounds}, min_devices = 3 }}\nround = {{ quorum = {quorum:.1} }}\nstore = {{ keep_models = 9 }}\nguard = {{ mode = \"off\" }}\n\
         model = {{ source = \"fairness-logistic\", tiers = [1.0] }}\n\
         [strategy]\nname = \"fedfb\"\nparams = {{ eps = 2, alpha = 0.0 }}\n"
    );
    let gateway = Gateway::new(&config, &BANKS);
    for (bank, name) in BANKS.iter().enumerate() {
        let line = |at: usize| format!("0.{at},-0.{},{},{},{}\n", at + bank, at % 2, at % 2, at / 2 % 2);
        let lines: String = (10..90).map(line).collect();
        fs::write(gateway.path(&format!("{name}.csv")), format!("income,debt,sex_too,sex,paid\n{lines}"))
            .unwrap();
    }
    gateway
}

fn bank(gateway: &Gateway, serving: &Serving, name: &str, more: &[&str]) -> Process {
    let csv = gateway.text(&format!("{name}.csv"));
    let args = ["--csv", &csv, "--attribute", "sex", "--label-column", "paid"];
    gateway.device(serving, name, "0/1", &[&args, more].concat())
}

/// The devices whose answers counted, and the refused ones with their codes.
fn round(report: &Value) -> (Vec<&str>, Vec<(&str, u64)>) {
    let name =
        |line: &Value| -> &'static str { BANKS.into_iter().find(|name| line["device"] == *name).unwrap() };
    let devices = report["devices"].as_array().unwrap().iter().map(name).collect();
    let refused = report["refused"].as_array().into_iter().flatten();
    (devices, refused.map(|line| (name(line), line["code"].as_u64().unwrap())).collect())
}

#[test]
fn a_device_at_its_privacy_limit_is_left_out_of_the_round() {
    let gateway = gateway(4, 0.3);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let banks = [
        bank(&gateway, &serving, "bank-0", &[]),
        bank(&gateway, &serving, "bank-1", &["--max-epsilon", "2", "--max-private-rounds", "2"]),
        bank(&gateway, &serving, "bank-2", &["--max-epsilon", "1.9"]),
    ];
    let said = banks.map(Process::succeed);
    let log = serving.process.succeed();
    let history = gateway.history();
    let (weak, spent) = (("bank-2", 44), ("bank-1", 45));
    for (at, report) in history.iter().enumerate() {
        let expected = match at {
            0 | 1 => (vec!["bank-0", "bank-1"], vec![weak]),
            _ => (vec!["bank-0"], vec![spent, weak]),
        };
        assert_eq!(round(report), expected, "round {}: {report}", at + 1);
    }
    assert_eq!(history.len(), 4);
    assert!(
        said[1].contains("answer 2 of 2 with noise") && said[1].contains("raise --max-private-rounds"),
        "{}",
        said[1]
    );
    assert!(said[2].contains("E44") && said[2].contains("raise --max-epsilon"), "{}", said[2]);
    assert!(said.iter().all(|said| said.contains("run is over")));
    for line in ["bank-2 cannot do what it is asked to: E44", "bank-1 cannot do what it is asked to: E45"] {
        assert!(log.contains(line), "{log}");
    }
}

#[test]
fn after_a_rollback_the_same_question_gets_the_same_answer_and_costs_nothing() {
    // Rounds wait for every bank, also after the restart.
    let gateway = gateway(2, 1.0);
    let limits = ["--max-epsilon", "2", "--max-private-rounds", "2"];
    let run = || {
        let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
        let banks = BANKS.map(|name| bank(&gateway, &serving, name, &limits));
        // After the last round, no bank answers requests without noise, and the run still ends.
        banks.into_iter().for_each(|bank| drop(bank.succeed()));
        serving.process.succeed();
        (gateway.history(), gateway.parameters())
    };
    let (first, model) = run();
    let files = BANKS.map(|name| {
        let secret = gateway.path(&format!("{name}.secret"));
        assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
        let spent = fs::read_to_string(gateway.path(&format!("{name}.spent"))).unwrap();
        assert!(spent.starts_with("answers 2\n"), "{spent}");
        (fs::read_to_string(secret).unwrap(), spent)
    });
    let different: std::collections::BTreeSet<_> = files.iter().map(|(secret, _)| secret).collect();
    assert_eq!(different.len(), 3);

    Process::start("rollback", "gateway", &["rollback", "--dir", &gateway.text("gw"), "--to", "1"]).succeed();
    let (second, again) = run();
    let told = |history: &[Value]| {
        let lines = history[1]["devices"].as_array().unwrap().iter();
        lines.map(|line| (line["device"].clone(), line["loss"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(round(&second[1]), (BANKS.to_vec(), vec![]));
    assert_eq!(told(&first), told(&second));
    assert_eq!(model, again, "different noise would give another model");
    for (name, (secret, spent)) in BANKS.iter().zip(files) {
        let now = |kind: &str| fs::read_to_string(gateway.path(&format!("{name}.{kind}"))).unwrap();
        assert_eq!((now("secret"), now("spent")), (secret, spent), "{name}");
    }
}
