//! `kill -9` at many instants of a run: nothing acknowledged is lost or counted twice, and the model equals that of
//! an undisturbed run.
//!
//! `FAIRTIER_KILLS=200` sets the number of kills (default 24), `FAIRTIER_SEED` their times.

use std::{collections::BTreeMap, thread, time::Duration};

use common::rng::Rng;
use fleet::{
    gateway::{Gateway, Serving, Stored, lasting_address},
    process::{Process, wait_for},
};
use serde_json::Value;

const DEVICES: [&str; 3] = ["cam-0", "cam-1", "cam-2"];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// With more rounds than the kills can reach, or exactly as many as were reached.
fn config(rounds: u64) -> String {
    format!(
        "run = {{ rounds = {rounds}, min_devices = 3 }}\nround = {{ quorum = 1.0, deadline_s = 600 }}\n\
         strategy = {{ name = \"heterofl\" }}\nserver = {{ listen = \"127.0.0.1:0\" }}"
    )
}

fn start_devices(gateway: &Gateway, serving: &Serving) -> Vec<Process> {
    let shares = ["0/3", "1/3", "2/3"];
    let start = |(name, share): (&&str, &str)| {
        // Dead links are detected soon.
        gateway.device(serving, name, share, &["--silence", "4"])
    };
    DEVICES.iter().zip(shares).map(start).collect()
}

/// Rounds whose update a device logged as accepted, one entry for every exchange.
fn acknowledged(output: &str) -> Vec<u64> {
    let lines = output.lines().filter_map(|line| line.split_once("update accepted")?.1.split_once("round="));
    lines.map(|(_, rest)| rest.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

/// Number of times that each device is in each round's report.
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

/// Every acknowledged update is in a report, or in the store if its round is still open. Returns the number of both.
fn assert_kept(what: &str, stored: &Stored, outputs: &[String]) -> [usize; 2] {
    let rounds: Vec<_> = stored.history.iter().map(|report| report["round"].as_u64().unwrap()).collect();
    assert_eq!(rounds, (1..=rounds.len() as u64).collect::<Vec<_>>(), "{what}: every round is closed once");
    let (counted, open) = (counted(&stored.history), rounds.len() as u64 + 1);
    assert!(counted.values().all(|&times| times == 1), "{what}: counted twice");
    let [mut closed, mut pending] = [0; 2];
    for (device, output) in DEVICES.iter().zip(outputs) {
        let acknowledged = acknowledged(output);
        for &round in &acknowledged {
            assert!(
                round <= open,
                "{what}: {device} has delivered for round {round}, but {open} is not closed"
            );
            if round < open {
                closed += 1;
                let key = ((*device).to_owned(), round);
                assert!(counted.contains_key(&key), "{what}: {device}'s update of round {round} is lost");
            }
        }
        let told = acknowledged.iter().filter(|&&round| round == open).count();
        let held =
            stored.exchanges.iter().filter(|devices| devices.iter().any(|name| name == device)).count();
        assert!(
            told <= held,
            "{what}: {device} was told {told} times that its update of the open round {open} is durable; \
             the store has {held}"
        );
        pending += told;
    }
    [closed, pending]
}

/// Kills the aggregator and checks its store while it is down.
fn kill(gateway: &Gateway, serving: Serving, devices: &[Process], what: &str) -> usize {
    // Everything acknowledged so far must be in the store.
    let outputs: Vec<_> = devices.iter().map(Process::output).collect();
    serving.process.kill();
    assert_kept(what, &gateway.look(), &outputs)[1]
}

/// Waits until all devices have joined, because their pauses grow while no round finishes.
fn wait_joined(serving: &Serving) {
    wait_for("all devices", || {
        (serving.process.output().matches("joined").count() >= DEVICES.len()).then_some(())
    });
}

#[test]
fn killed_at_many_instants_nothing_acknowledged_is_lost_or_counted_twice() {
    let (kills, seed) = (number("FAIRTIER_KILLS", 24), number("FAIRTIER_SEED", 7));
    let mut rng = Rng::new(seed);
    let gateway = Gateway::new(&config(1_000_000), &DEVICES);
    let mut serving = gateway.serve(&lasting_address(), &[]);
    let address = serving.address.clone();
    let devices = start_devices(&gateway, &serving);
    let mut pending = 0;
    for index in 0..kills {
        let what = format!("seed {seed}, kill {index}");
        // Mostly during rounds, and sometimes while the aggregator opens its store.
        if index % 4 == 3 {
            let dir = gateway.text("gw");
            pending += kill(&gateway, serving, &devices, &what);
            let args = ["serve", "--dir", &dir, "--listen", &address];
            let starting = Process::start("aggregator", "gateway", &args);
            thread::sleep(Duration::from_micros(40_000.0f64.mul_add(rng.unit_f64(), 1.0) as u64));
            starting.kill();
        } else {
            wait_joined(&serving);
            thread::sleep(Duration::from_micros((300_000.0 * rng.unit_f64()) as u64));
            pending += kill(&gateway, serving, &devices, &what);
        }
        serving = gateway.serve(&address, &[]);
    }
    // A last stretch without kills, so that interrupted rounds finish.
    let before = gateway.status().map_or(0, |status| status["committed"].as_u64().unwrap());
    gateway.wait_committed(before + 2);
    for device in &devices {
        device.terminate();
    }
    let outputs: Vec<_> = devices.into_iter().map(Process::succeed).collect();
    serving.process.terminate();
    serving.process.succeed();

    let stored = gateway.look();
    let [closed, open] = assert_kept(&format!("seed {seed}"), &stored, &outputs);
    let rounds = stored.history.len();
    assert_eq!(
        counted(&stored.history).len(),
        3 * rounds,
        "seed {seed}: a round was closed without all devices"
    );
    for (device, output) in DEVICES.iter().zip(&outputs) {
        let acknowledged = acknowledged(output);
        assert!(
            acknowledged.is_sorted_by(|a, b| a < b),
            "seed {seed}: {device} got two receipts for a round: {acknowledged:?}"
        );
    }
    assert!(closed > rounds, "the devices' own records were read: {closed}");
    println!("{kills} kills, {rounds} rounds, {} receipts, seed {seed}", closed + open);
    println!("{pending} receipts were of rounds that a kill left open");

    let undisturbed = Gateway::new(&config(rounds as u64), &DEVICES);
    let serving = undisturbed.serve("127.0.0.1:0", &["--exit-when-done"]);
    let devices = start_devices(&undisturbed, &serving);
    for device in devices {
        device.succeed();
    }
    serving.process.succeed();
    let bits = |gateway: &Gateway| gateway.parameters().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(undisturbed.history().len(), rounds);
    assert!(bits(&gateway) == bits(&undisturbed), "seed {seed}: the model differs after {rounds} rounds");
}

/// Rounds with two exchanges that close without a silent device. The model depends on which devices delivered, but
/// every acknowledged update counts once.
#[test]
fn kills_between_exchanges_with_a_silent_device_lose_nothing_acknowledged() {
    let (kills, seed) = ((number("FAIRTIER_KILLS", 24) / 3).max(4), number("FAIRTIER_SEED", 7));
    let mut rng = Rng::new(seed);
    let config = "run = { rounds = 1000000, min_devices = 3 }\nround = { quorum = 0.5, deadline_s = 1, give_up_s = 5 }\n\
                  strategy = { name = \"fedmdfg\" }\nserver = { listen = \"127.0.0.1:0\" }";
    let gateway = Gateway::new(config, &DEVICES);
    let mut serving = gateway.serve(&lasting_address(), &[]);
    let address = serving.address.clone();
    let devices = start_devices(&gateway, &serving);
    let silent = &devices[2];
    let mut pending = 0;
    for index in 0..kills {
        wait_joined(&serving);
        if index % 2 == 0 {
            // Stops at any moment of a round, which closes without this device; later rounds may, too.
            thread::sleep(Duration::from_micros((200_000.0 * rng.unit_f64()) as u64));
            silent.signal("STOP");
            let before = gateway.status().map_or(0, |status| status["committed"].as_u64().unwrap());
            gateway.wait_committed(before + 2);
        }
        thread::sleep(Duration::from_micros((300_000.0 * rng.unit_f64()) as u64));
        pending += kill(&gateway, serving, &devices, &format!("seed {seed}, kill {index}"));
        serving = gateway.serve(&address, &[]);
        silent.signal("CONT");
    }
    let before = gateway.status().map_or(0, |status| status["committed"].as_u64().unwrap());
    gateway.wait_committed(before + 2);
    for device in &devices {
        device.terminate();
    }
    let outputs: Vec<_> = devices.into_iter().map(Process::succeed).collect();
    serving.process.terminate();
    serving.process.succeed();

    let stored = gateway.look();
    let [closed, open] = assert_kept(&format!("seed {seed}"), &stored, &outputs);
    for (device, output) in DEVICES.iter().zip(&outputs) {
        let acknowledged = acknowledged(output);
        // One receipt for the update and one for the trial.
        let times = acknowledged.iter().fold(BTreeMap::new(), |mut times, round| {
            *times.entry(round).or_insert(0) += 1;
            times
        });
        assert!(
            acknowledged.is_sorted() && times.values().all(|&times| times <= 2),
            "seed {seed}: {device} got too many receipts: {acknowledged:?}"
        );
        assert!(times.values().any(|&times| times == 2), "seed {seed}: {device} had one exchange only");
    }
    let heard = |count: usize| {
        stored.history.iter().filter(|report| report["devices"].as_array().unwrap().len() == count).count()
    };
    let [two, three] = [heard(2), heard(3)];
    assert!(two > 0 && three > 0, "seed {seed}: {two} rounds with two devices, {three} with three");
    println!(
        "{kills} kills, {} rounds, {two} of them with a silent device, {} receipts, {pending} of rounds that a kill \
         left open, seed {seed}",
        stored.history.len(),
        closed + open
    );
}
