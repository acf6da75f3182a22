//! Whole runs of the real programs over real QUIC.

use aggregator::{
    run,
    store::{DiskStore, Options, Store},
};
use common::{RunId, Tier};
use fleet::{
    gateway::{Gateway, Serving, lasting_address, parameters},
    process::{Process, wait_for},
};
use serde_json::Value;

const DEVICES: [&str; 5] = ["cam-0", "cam-1", "cam-2", "cam-3", "cam-4"];
/// Parameters of `digits-mlp` under the default tiers.
const PARAMETERS: [usize; 5] = [2410, 1660, 1210, 610, 310];

const TEN: &str = "run = { rounds = 10, min_devices = 5 }\nround = { quorum = 1.0 }\n";

/// Starts one device per tier, with just the memory that its tier needs.
fn start_devices(gateway: &Gateway, serving: &Serving) -> Vec<Process> {
    (0..DEVICES.len()).map(|index| start_device(gateway, serving, index)).collect()
}

fn start_device(gateway: &Gateway, serving: &Serving, index: usize) -> Process {
    let ram = gateway.model().plans[index].info.arena_bytes().to_string();
    let saved = gateway.text(&format!("{}.onnx", DEVICES[index]));
    let more = ["--ram", &ram, "--save-model", &saved];
    gateway.device(serving, DEVICES[index], &format!("{index}/5"), &more)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The run in the store, and the reports of its rounds. No other process may have the store open.
fn stored(gateway: &Gateway) -> (RunId, Vec<(u32, Value)>) {
    let mut store = DiskStore::open(&gateway.path("gw/store"), Options::default()).unwrap();
    let saved = store.load(&run::fingerprint(&gateway.model())).unwrap().unwrap();
    let reports = store.history().unwrap().into_iter();
    (saved.run.run, reports.map(|(round, text)| (round, serde_json::from_str(&text).unwrap())).collect())
}

/// Every tier's export and every device's file hold exactly the tier's slice of the global model.
fn assert_slices(gateway: &Gateway) {
    let model = gateway.model();
    let global = gateway.parameters();
    let (dir, out) = (gateway.text("gw"), gateway.text("export"));
    Process::start("export", "gateway", &["export", "--dir", &dir, "--out", &out]).succeed();
    for (index, &count) in PARAMETERS.iter().enumerate() {
        let mut slice = vec![];
        model.regions.gather(Tier::new(index).unwrap(), &global, &mut slice);
        assert_eq!(slice.len(), count);
        let exported = parameters(&gateway.path(&format!("export/tier-{index}.onnx")));
        assert_eq!(bits(&exported), bits(&slice), "export of tier {index}");
        let saved = parameters(&gateway.path(&format!("{}.onnx", DEVICES[index])));
        assert_eq!(bits(&saved), bits(&slice), "{}", DEVICES[index]);
    }
}

fn finish(devices: Vec<Process>) {
    for device in devices {
        let output = device.succeed();
        assert!(output.contains("run is over"), "{output}");
    }
}

fn mean_loss(report: &Value) -> f64 {
    report["loss"]["mean"].as_f64().unwrap()
}

/// Runs to the end. Returns the loss of the first round and the final loss.
fn run_to_end(config: &str) -> (Gateway, f64, f64) {
    let gateway = Gateway::new(config, &DEVICES);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let devices = start_devices(&gateway, &serving);
    finish(devices);
    serving.process.succeed();
    let status = gateway.status().unwrap();
    assert_eq!(status["finished"], true);
    let (_, reports) = stored(&gateway);
    let first = mean_loss(&reports[0].1);
    let last = mean_loss(&status["last_round"]);
    (gateway, first, last)
}

#[test]
fn five_tiers_learn_and_hold_their_slices() {
    let (gateway, first, last) = run_to_end(&format!("{TEN}strategy = {{ name = \"heterofl\" }}"));
    assert!(last < 0.5 * first, "the loss only fell from {first} to {last}");
    let status = gateway.status().unwrap();
    let devices = status["last_round"]["devices"].as_array().unwrap();
    let tiers: Vec<_> = devices.iter().map(|line| line["tier"].as_u64().unwrap()).collect();
    assert_eq!(tiers, [0, 1, 2, 3, 4]);
    assert_slices(&gateway);
    #[cfg(feature = "infer")]
    super::inference::assert_same_losses(&gateway, &DEVICES);
}

#[test]
fn int8_updates_with_error_feedback_learn_too() {
    let codec = "wire = { up = \"int8\", error_feedback = true }\nstrategy = { name = \"heterofl\" }";
    let (gateway, first, last) = run_to_end(&format!("{TEN}{codec}"));
    assert!(last < 0.5 * first, "the loss only fell from {first} to {last}");
    assert_slices(&gateway);
}

#[test]
fn a_reweighting_strategy_learns_over_quic() {
    let strategy = "strategy = { name = \"fairheterofl\", params = { step = \"reweight\" } }";
    let (_, first, last) = run_to_end(&format!("{TEN}{strategy}"));
    assert!(last < 0.5 * first, "the loss only fell from {first} to {last}");
}

const LONG: &str =
    "run = { rounds = 90, min_devices = 5 }\nround = { quorum = 1.0 }\ntraining = { epochs = 3 }";
/// Enough rounds that the run still goes on when the test reads its status, which is a quarter of a second old.
const LONG_ROUNDS: u32 = 90;

/// Every round was closed once, with all devices.
fn assert_history(gateway: &Gateway, rounds: u32) -> RunId {
    let (run, reports) = stored(gateway);
    assert_eq!(reports.iter().map(|(round, _)| *round).collect::<Vec<_>>(), (1..=rounds).collect::<Vec<_>>());
    for (round, report) in &reports {
        assert_eq!(report["devices"].as_array().unwrap().len(), 5, "round {round}: {report}");
    }
    run
}

#[test]
fn a_killed_aggregator_continues_its_run() {
    let gateway = Gateway::new(LONG, &DEVICES);
    let serving = gateway.serve(&lasting_address(), &["--exit-when-done"]);
    let mut devices = start_devices(&gateway, &serving);
    let mut run = None;
    let mut serving = Some(serving);
    for at in [3, 9] {
        gateway.wait_committed(at);
        let Serving { process, address } = serving.take().unwrap();
        process.kill();
        let committed = gateway.status().unwrap()["committed"].as_u64().unwrap();
        let (id, reports) = stored(&gateway);
        assert_eq!(*run.get_or_insert(id), id);
        assert!(reports.len() as u64 >= committed && reports.len() < LONG_ROUNDS as usize, "{committed}");
        assert!(devices.iter_mut().all(Process::is_running), "devices must wait for the aggregator");
        let mut again = gateway.serve(&address, &["--exit-when-done"]);
        again.process.wait_line(&id.to_string());
        serving = Some(again);
    }
    finish(devices);
    serving.take().unwrap().process.succeed();
    assert_eq!(Some(assert_history(&gateway, LONG_ROUNDS)), run);
    assert_slices(&gateway);
}

#[test]
fn a_stopped_aggregator_exits_cleanly_and_continues_later() {
    let gateway = Gateway::new(LONG, &DEVICES);
    let serving = gateway.serve(&lasting_address(), &[]);
    let devices = start_devices(&gateway, &serving);
    gateway.wait_committed(3);
    serving.process.terminate();
    serving.process.succeed();
    let (run, _) = stored(&gateway);
    let serving = gateway.serve(&serving.address, &["--exit-when-done"]);
    finish(devices);
    serving.process.succeed();
    assert_eq!(assert_history(&gateway, LONG_ROUNDS), run);
}

#[test]
fn a_killed_device_reconnects_and_the_run_continues() {
    let gateway = Gateway::new(LONG, &DEVICES);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let mut devices = start_devices(&gateway, &serving);
    for at in [3, 8, 13] {
        gateway.wait_committed(at);
        devices.remove(0).kill();
        devices.insert(0, start_device(&gateway, &serving, 0));
    }
    finish(devices);
    serving.process.succeed();
    assert_history(&gateway, LONG_ROUNDS);
    assert_slices(&gateway);
}

#[test]
fn a_terminated_device_closes_its_connection() {
    let gateway = Gateway::new("run = { rounds = 30, min_devices = 5 }\nround = { quorum = 0.2 }", &DEVICES);
    let mut serving = gateway.serve("127.0.0.1:0", &[]);
    let mut device = start_device(&gateway, &serving, 2);
    device.wait_line("joined as tier 2 with 1210 parameters");
    device.terminate();
    let output = device.succeed();
    assert!(output.contains("stopped before its end"), "{output}");
    wait_for("the aggregator to notice", || {
        serving.process.output().contains("connection ended").then_some(())
    });
    assert!(serving.process.is_running());
}
