//! Rounds with more than one exchange: probes, line searches, baselines and personal models. They run with the real
//! programs over QUIC, and in memory over bad links with crashes.

use common::rng::{Rng, derive};
use fleet::{
    gateway::{Gateway, Serving},
    memory::{Accident, Setup},
    process::Process,
    seeds::for_seeds,
};
use serde_json::Value;

const DEVICES: [&str; 5] = ["cam-0", "cam-1", "cam-2", "cam-3", "cam-4"];

/// Starts one device per tier, with the memory that the strategy needs there.
fn start(gateway: &Gateway, serving: &Serving) -> Vec<Process> {
    let start = |(index, name): (usize, &&str)| {
        let ram = gateway.model().plans[index].info.arena_bytes().to_string();
        gateway.device(serving, name, &format!("{index}/5"), &["--ram", &ram])
    };
    DEVICES.iter().enumerate().map(start).collect()
}

/// Reports of all rounds of a run over QUIC, with the scores of the final model last, and the output of the devices.
fn run(strategy: &str) -> (Vec<Value>, Vec<String>) {
    let config = format!(
        "run = {{ rounds = 8, min_devices = 5 }}\nround = {{ quorum = 1.0 }}\ntraining = {{ lr = 0.3 }}\n\
         [strategy]\n{strategy}"
    );
    let gateway = Gateway::new(&config, &DEVICES);
    let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
    let devices = start(&gateway, &serving);
    let said: Vec<_> = devices.into_iter().map(Process::succeed).collect();
    serving.process.succeed();
    let mut reports = gateway.history();
    reports.push(gateway.status().unwrap()["last_round"].clone());
    assert_eq!(reports.len(), 9);
    for report in &reports {
        assert_eq!(report["devices"].as_array().unwrap().len(), 5, "{report}");
        assert!(report.get("kept").is_none(), "{report}");
    }
    (reports, said)
}

fn assert_learned(strategy: &str, reports: &[Value]) {
    let loss = |report: &Value| report["loss"]["mean"].as_f64().unwrap();
    let (first, last) = (loss(&reports[0]), loss(&reports[reports.len() - 1]));
    assert!(last < 0.8 * first, "{strategy}: from {first} to {last}");
}

#[test]
fn single_exchange() {
    for strategy in ["name = \"fedlf\"", "name = \"prac_fedeba\""] {
        assert_learned(strategy, &run(strategy).0);
    }
}

#[test]
fn probe_and_train() {
    let strategy = "name = \"fedeba_plus\"\nparams = { alpha = 0.1, tau = 1.0 }";
    assert_learned(strategy, &run(strategy).0);
}

#[test]
fn first_steps_come_with_the_updates() {
    let strategy = "name = \"fedeba_plus\"\nparams = { align = \"model\", alpha = 0.3, tau = 1.0 }";
    assert_learned(strategy, &run(strategy).0);
}

#[test]
fn line_search() {
    let strategy = "name = \"fedmdfg\"";
    assert_learned(strategy, &run(strategy).0);
}

#[test]
fn baselines_of_devices_that_train_alone() {
    let strategy = "name = \"eagle\"\nparams = { lambda = 0.5 }";
    let (reports, _) = run(strategy);
    assert_learned(strategy, &reports);
    let gaps = |report: &Value| {
        let devices = report["devices"].as_array().unwrap().iter();
        devices.map(|line| line["gap"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let (first, last) = (gaps(&reports[0]), gaps(&reports[7]));
    // The untrained model is worse than every device's own model; the gap closes as the fleet learns.
    assert!(first.iter().all(|&gap| gap > 0.0), "{first:?}");
    assert!(last.iter().sum::<f64>() < first.iter().sum::<f64>(), "{first:?} {last:?}");
}

#[test]
fn personal_models() {
    let strategy = "name = \"ditto\"\nparams = { lambda = 0.1 }";
    let (reports, _) = run(strategy);
    assert_learned(strategy, &reports);
    for line in reports[7]["devices"].as_array().unwrap() {
        assert!(line["personal_loss"].as_f64().unwrap().is_finite(), "{line}");
    }
}

/// Faults of the link and crashes of the aggregator do not change the model of a round with several exchanges.
#[test]
fn bad_links_and_crashes_between_exchanges_change_nothing() {
    let strategies = [
        "name = \"fedeba_plus\"\nparams = { alpha = 0.5, tau = 1.0 }",
        "name = \"fedeba_plus\"\nparams = { align = \"model\", tau = 1.0 }",
        "name = \"fedmdfg\"",
        "name = \"eagle\"",
        "name = \"ditto\"",
        "name = \"fedlf\"",
        "name = \"afl\"\nparams = { server_momentum = 0.5 }",
    ];
    for strategy in strategies {
        let calm = Setup::new(&format!(
            "run = {{ rounds = 3 }}\ntraining = {{ batch = 8 }}\n[strategy]\n{strategy}"
        ));
        let expected = calm.run();
        for_seeds(20, |seed| {
            let mut setup = calm.disturbed(seed);
            let mut rng = Rng::new(derive(seed, 2));
            setup.accidents = (0..1 + rng.below(3)).map(|_| (rng.below(8000), Accident::Crash)).collect();
            let outcome = setup.run();
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&outcome.parameters), bits(&expected.parameters), "{strategy}");
        });
    }
}

/// A device whose memory or data does not suffice for the strategy is refused in answer to its Hello.
#[test]
fn an_unsuitable_device_is_refused_before_the_round() {
    let gateway = Gateway::new("strategy = { name = \"fedfb\" }", &["cam-0"]);
    let serving = gateway.serve("127.0.0.1:0", &[]);
    let output = gateway.device(&serving, "cam-0", "0/5", &[]).fail();
    assert!(output.contains("E39"), "{output}");
}

/// Replaying the file of a round gives the model in the file of the next round.
#[test]
fn recorded_rounds_replay() {
    for strategy in [
        "name = \"fedlf\"",
        "name = \"fedmdfg\"",
        "name = \"fedeba_plus\"\nparams = { alpha = 0.1, tau = 1.0 }",
        "name = \"afl\"\nparams = { server_momentum = 0.5 }",
    ] {
        let config = format!(
            "run = {{ rounds = 3, min_devices = 5 }}\nround = {{ quorum = 1.0 }}\nstore = {{ record = true }}\n\
             [strategy]\n{strategy}"
        );
        let gateway = Gateway::new(&config, &DEVICES);
        let serving = gateway.serve("127.0.0.1:0", &["--exit-when-done"]);
        let devices = start(&gateway, &serving);
        devices.into_iter().for_each(|device| drop(device.succeed()));
        serving.process.succeed();
        let after = |round: usize| -> Vec<f32> {
            let file = gateway.text(&format!("gw/rounds/round-{round:06}.json"));
            let output = Process::start("combine", "round", &["combine", &file, "--format", "json"]);
            let answer: Value = serde_json::from_str(&output.succeed()).unwrap();
            let parameters = answer["parameters"].as_array().unwrap().iter();
            parameters.map(|value| value.as_f64().unwrap() as f32).collect()
        };
        // Round files hold sums in f64; the store holds f32.
        let close = |a: &[f32], b: &[f32]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs().max(1e-2))
        };
        assert!(close(&after(3), &gateway.parameters()), "{strategy}");
        let other = gateway.text("gw/rounds/round-000003.json");
        let args = ["combine", "--strategy", "heterofl", &other, "--format", "json"];
        let answer: Value =
            serde_json::from_str(&Process::start("combine", "round", &args).succeed()).unwrap();
        assert_ne!(answer["parameters"][0], Value::Null, "{strategy}");
    }
}
