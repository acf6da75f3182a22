//! `kill -9` at many instants of a run: nothing that was acknowledged is lost, nothing counts twice, and the
//! model is the one of a run that nobody disturbed.
//!
//! `FAIRTIER_KILLS=200` sets how often (24 otherwise), `FAIRTIER_SEED` when.

use std::{collections::BTreeMap, thread, time::Duration};

use common::rng::Rng;
use fleet::{
    gateway::{Gateway, Serving},
    process::{Process, wait_for},
};
use serde_json::Value;

const DEVICES: [&str; 3] = ["cam-0", "cam-1", "cam-2"];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// More rounds than any number of kills can reach, or as many as were reached.
fn config(rounds: u64) -> String {
    format!(
        "run = {{ rounds = {rounds}, min_devices = 3 }}\nround = {{ quorum = 1.0, deadline_s = 600 }}\n\
         strategy = {{ name = \"heterofl\" }}\nserver = {{ listen = \"127.0.0.1:0\" }}"
    )
}

fn start_devices(gateway: &Gateway, serving: &Serving) -> Vec<Process> {
    let shares = ["0/3", "1/3", "2/3"];
    let start = |(name, share): (&&str, &str)| {
        // Links that die without a word are noticed soon.
        gateway.device(serving, name, share, &["--silence", "4"])
    };
    DEVICES.iter().zip(shares).map(start).collect()
}

/// Rounds in which a device was told that its update is durable, as it wrote them down.
fn acknowledged(output: &str) -> Vec<u64> {
    let lines = output.lines().filter_map(|line| line.split_once("update accepted")?.1.split_once("round="));
    lines.map(|(_, rest)| rest.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

/// How often each device is in each round's report.
fn counted(history: &[Value]) -> BTreeMap<(String, u64), usize> {
    let mut counted = BTreeMap::new();
    for report in history {
        for device in report["devices"].as_array().unwrap() {
            let key = (device["device"].as_str().unwrap().to_owned(), report["round"].as_u64().unwrap());
            *counted.entry(key).or_default() += 1;
        }
    }
    counted
}

#[test]
fn killed_at_many_instants_nothing_acknowledged_is_lost_or_counted_twice() {
    let (kills, seed) = (number("FAIRTIER_KILLS", 24), number("FAIRTIER_SEED", 7));
    let mut rng = Rng::new(seed);
    let gateway = Gateway::new(&config(1_000_000), &DEVICES);
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    let address = serving.address.clone();
    let devices = start_devices(&gateway, &serving);
    for kill in 0..kills {
        // Mostly while rounds are under way, and sometimes while the aggregator is still opening its store.
        if kill % 4 == 3 {
            let dir = gateway.text("gw");
            serving.process.kill();
            let args = ["serve", "--dir", &dir, "--listen", &address];
            let starting = Process::start("aggregator", "aggregator", &args);
            thread::sleep(Duration::from_micros(40_000.0f64.mul_add(rng.unit_f64(), 1.0) as u64));
            starting.kill();
        } else {
            // Devices pause longer and longer while no round is finished, so all of them are let in first.
            wait_for("all devices", || {
                (serving.process.output().matches("joined").count() >= DEVICES.len()).then_some(())
            });
            thread::sleep(Duration::from_micros((300_000.0 * rng.unit_f64()) as u64));
            serving.process.kill();
        }
        serving = gateway.serve(&address, &[]);
    }
    // A last stretch in peace, so that what was interrupted at the end is also seen to be finished.
    let before = gateway.status().map_or(0, |status| status["committed"].as_u64().unwrap());
    gateway.wait_committed(before + 2);
    for device in &devices {
        device.terminate();
    }
    let outputs: Vec<_> = devices.into_iter().map(Process::succeed).collect();
    serving.process.terminate();
    serving.process.succeed();

    let history = gateway.history();
    let rounds: Vec<_> = history.iter().map(|report| report["round"].as_u64().unwrap()).collect();
    assert_eq!(rounds, (1..=rounds.len() as u64).collect::<Vec<_>>(), "every round is closed once");
    let counted = counted(&history);
    assert!(counted.values().all(|&times| times == 1), "seed {seed}: counted twice");
    assert_eq!(counted.len(), 3 * rounds.len(), "seed {seed}: a round was closed without somebody");
    let mut receipts = 0;
    for (device, output) in DEVICES.iter().zip(&outputs) {
        let acknowledged = acknowledged(output);
        receipts += acknowledged.len();
        assert!(
            acknowledged.is_sorted_by(|a, b| a < b),
            "seed {seed}: {device} was told twice: {acknowledged:?}"
        );
        for &round in acknowledged.iter().filter(|&&round| round <= rounds.len() as u64) {
            let key = ((*device).to_owned(), round);
            assert!(counted.contains_key(&key), "seed {seed}: {device}'s update of round {round} is lost");
        }
    }
    assert!(receipts > rounds.len(), "the devices' own records were read: {receipts}");
    println!("{kills} kills, {} rounds, {receipts} receipts, seed {seed}", rounds.len());

    let undisturbed = Gateway::new(&config(rounds.len() as u64), &DEVICES);
    let serving = undisturbed.serve("127.0.0.1:0", &["--exit-when-done"]);
    let devices = start_devices(&undisturbed, &serving);
    for device in devices {
        device.succeed();
    }
    serving.process.succeed();
    let bits = |gateway: &Gateway| gateway.parameters().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(undisturbed.history().len(), rounds.len());
    assert!(
        bits(&gateway) == bits(&undisturbed),
        "seed {seed}: the model differs after {} rounds",
        rounds.len()
    );
}
