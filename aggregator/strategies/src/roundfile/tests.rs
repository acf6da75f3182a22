use std::path::Path;

use common::{Code, Tier, TierSet, region::RegionMap};
use serde_json::{Value, json};

use super::*;
use crate::{
    blocks::Scope,
    cohort::Cohort,
    gram::Grams,
    method::Method,
    registry::Registry,
    strategy::{Ask, Direction, Exchange, FleetDevice, Kind, Needs, Strategy, TrainingWeights, Weights},
};

mod recorded;

/// The worked example of FairHeteroFL in section 4.8.
fn worked() -> Value {
    let device = |id: &str, tier: usize, weight: f64, loss: f64, update: Value| json!({ "id": id, "tier": tier, "samples": 1, "weight": weight, "loss_before": loss, "update": update });
    json!({
        "format": "fairtier-round", "version": 1, "round": 7, "lr": 0.1,
        "parameters": [1.0, -0.5, 0.25],
        "tiers": [{ "name": "full", "weight": 0.5 }, { "name": "half", "indices": [0, 1], "weight": 0.5 }],
        "devices": [
            device("0", 0, 0.25, 0.5, json!([-0.10, 0.05, 0.02])),
            device("1", 0, 0.75, 1.0, json!([-0.04, 0.0, 0.06])),
            device("2", 1, 0.5, 2.0, json!([-0.20, 0.10])),
            device("3", 1, 0.5, 1.0, json!([-0.12, -0.06])),
        ],
    })
}

fn read(value: &Value) -> Result<RoundFile, RoundFileError> {
    RoundFile::parse(&value.to_string(), Path::new("."))
}

fn answer(value: &Value, strategy: &str, params: Value) -> ReplayResult {
    replay(&Registry::standard(), &read(value).unwrap(), strategy, params).unwrap()
}

#[track_caller]
fn close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{got:?}");
    let same = got.iter().zip(expected).all(|(a, b)| (a - b).abs() <= tolerance);
    assert!(same, "{got:?} is not {expected:?}");
}

fn method(strategy: impl Strategy + 'static) -> Method {
    Method::new(Box::new(strategy))
}

#[test]
fn the_worked_example_of_fairheterofl() {
    let params = json!({ "q": 2, "q_m": [1, 0], "step": "hessian" });
    let result = answer(&worked(), "fairheterofl", params.clone());
    let expected = [0.898_608_892_2, -0.487_111_000_5, 0.297_655_797_8];
    close(&result.parameters, &expected, 5e-11);
    assert_eq!((&result.regions[0].tiers[..], &result.regions[0].indices[..]), (&[0, 1][..], &[0, 1][..]));
    close(
        &[result.regions[0].rho.unwrap(), result.regions[1].rho.unwrap()],
        &[0.773_516_609_1, 0.877_869_959_5],
        5e-11,
    );
    assert!((result.weights.values().sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(result.weights.len(), 4);

    // L replaces the learning rate, eta replaces server_lr.
    let mut file = worked();
    file["lr"] = json!(0.77);
    file["server_lr"] = json!(3.0);
    let params = json!({ "q": 2, "q_m": [1, 0], "step": "hessian", "L": 10, "eta": 1 });
    close(&answer(&file, "fairheterofl", params).parameters, &expected, 5e-11);
    let half =
        answer(&worked(), "fairheterofl", json!({ "q": 2, "q_m": [1, 0], "step": "hessian", "eta": 0.5 }));
    let steps: Vec<f64> =
        half.parameters.iter().zip([1.0, -0.5, 0.25]).map(|(new, old)| old + 2.0 * (new - old)).collect();
    close(&steps, &expected, 1e-10);
}

#[test]
fn heterofl_from_samples() {
    let mut file = worked();
    for (at, samples) in [10, 30, 20, 20].into_iter().enumerate() {
        file["devices"][at]["samples"] = json!(samples);
    }
    let result = answer(&file, "heterofl", Value::Null);
    close(&result.parameters, &[0.8925, -0.48375, 0.30], 1e-12);
    assert_eq!(result.weights["1".parse().as_ref().unwrap()], 0.375);
    // Only what applies is printed.
    let printed = serde_json::to_value(&result).unwrap();
    let keys: Vec<_> = printed.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["diagnostics", "parameters", "regions", "weights"]);
    assert!(printed["regions"][0].get("rho").is_none());
    assert_eq!(printed["diagnostics"]["conflicts"], json!({ "model": 0, "layers": [0] }));
}

#[test]
fn bad_numbers_are_refused_with_a_code() {
    let clean = worked();
    let mut dirty = clean.clone();
    let devices = dirty["devices"].as_array_mut().unwrap();
    let add = |list: &mut Vec<Value>, id: &str, loss: Value, samples: u32, update: Value| {
        list.push(json!({ "id": id, "tier": 1, "samples": samples, "loss_before": loss, "update": update }));
    };
    add(devices, "x0", json!(1.0), 0, json!([1, 1]));
    add(devices, "x1", json!(null), 9, json!([1, 1]));
    add(devices, "x2", json!("inf"), 9, json!([1, 1]));
    add(devices, "x3", json!(1.0), 9, json!(["NaN", 1]));
    add(devices, "x4", json!(1.0), 9, json!([1, null]));
    add(devices, "x5", json!(-1.0), 9, json!([1, 1]));
    for name in ["fedavg", "fairheterofl"] {
        let result = answer(&dirty, name, Value::Null);
        assert_eq!(result.parameters, answer(&clean, name, Value::Null).parameters);
        let codes: Vec<_> =
            result.refused.iter().map(|refused| (refused.id.as_str(), refused.code)).collect();
        assert_eq!(codes, [("x0", 11), ("x1", 13), ("x2", 13), ("x3", 12), ("x4", 12), ("x5", 13)]);
    }
    // As Python writes it.
    let text = dirty.to_string().replace("\"NaN\"", "NaN").replace("\"inf\"", "Infinity");
    let file = RoundFile::parse(&text, Path::new(".")).unwrap();
    assert_eq!(replay(&Registry::standard(), &file, "fedavg", Value::Null).unwrap().refused.len(), 6);
    // No device is left.
    let mut empty = clean.clone();
    empty["devices"] = json!([{ "id": "a", "tier": 0, "samples": 0, "loss_before": 1, "update": [1, 1, 1] }]);
    let result = answer(&empty, "fairheterofl", Value::Null);
    assert_eq!(result.parameters, [1.0, -0.5, 0.25]);
    assert_eq!(result.diagnostics["kept"]["code"], json!(Code::EmptyRound.number()));
    empty["devices"] = json!([]);
    assert_eq!(answer(&empty, "fedavg", Value::Null).parameters, [1.0, -0.5, 0.25]);
}

#[test]
fn a_malformed_file_names_the_key() {
    let spoil = |path: &str, value: Value| {
        let mut file = worked();
        *file.pointer_mut(path).unwrap() = value;
        match read(&file).and_then(|file| replay(&Registry::standard(), &file, "fairheterofl", Value::Null)) {
            Ok(_) => panic!("{path} was accepted"),
            Err(error) => error.to_string(),
        }
    };
    for (path, value, key) in [
        ("/format", json!("other"), "format: "),
        ("/version", json!(2), "version: "),
        ("/parameters", json!("x"), "parameters: "),
        ("/parameters/1", json!("NaN"), "parameters: "),
        ("/parameters", json!({ "npy": "gone.npy" }), "parameters.npy: ./gone.npy: "),
        ("/tiers", json!([]), "tiers: "),
        ("/tiers/1/indices", json!([1, 0]), "tiers[1].indices: "),
        ("/tiers/1/indices", json!([0, 3]), "tiers[1].indices: "),
        ("/tiers/1/weight", json!(-1), "tiers[1].weight: "),
        ("/devices/2/update", json!([1]), "devices[2].update: has 1 numbers"),
        ("/devices/2/update", json!([1, [2]]), "devices[2].update[1]: "),
        ("/devices/2/update", json!(null), "devices[2].update: is missing"),
        ("/devices/2/id", json!("0"), "devices[2].id: "),
        ("/devices/2/id", json!("a/b"), "devices[2].id: "),
        ("/devices/2/tier", json!(2), "devices[2].tier: "),
        ("/devices/2/tier", json!(null), "devices[2].tier: "),
        ("/devices/2/samples", json!(1.5), "devices[2].samples: "),
        ("/devices/2/weight", json!(-0.5), "devices[2].weight: "),
        ("/devices/2/loss_before", json!("much"), "devices[2].loss_before: "),
        ("/devices/2", json!(7), "devices[2]: "),
        ("/devices", json!({}), "devices: "),
        ("/lr", json!(0), "lr: "),
        ("/lr", json!(null), "lr: is missing"),
    ] {
        let error = spoil(path, value);
        assert!(error.starts_with(key), "{path}: {error}");
    }
    let without = |key: &str| {
        let mut file = worked();
        file["devices"][3].as_object_mut().unwrap().remove(key);
        read(&file)
            .and_then(|file| replay(&Registry::standard(), &file, "fairheterofl", Value::Null))
            .unwrap_err()
            .to_string()
    };
    assert!(without("loss_before").starts_with("devices[3].loss_before: is missing"));
    assert!(without("samples").starts_with("devices[3].samples: is missing"));
    assert!(without("id").starts_with("devices[3].id: is missing"));
    let no_groups = replay(&Registry::standard(), &read(&worked()).unwrap(), "fedfb", Value::Null)
        .unwrap_err()
        .to_string();
    assert!(no_groups.starts_with("devices[0].group_loss_sums: is missing"), "{no_groups}");
    for (key, value, name) in [
        ("layers", json!([[0, 2], [1, 3]]), "layers[1]: "),
        ("layers", json!([[0, 4]]), "layers[0]: "),
        ("history", json!([[{ "id": "z", "tier": 0 }]]), "history[0][0].gradient: "),
        ("history", json!([[], [{ "id": "z", "tier": 0, "gradient": [1] }]]), "history[1][0].gradient: "),
        ("history", json!([[], [], [], [], [], [], [], []]), "history[0]: "),
        ("state", json!({ "lambda": 1 }), "state: "),
    ] {
        let mut file = worked();
        file[key] = value;
        let error = read(&file)
            .and_then(|file| replay(&Registry::standard(), &file, "fairheterofl", Value::Null))
            .unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
    }
    for (key, value, name) in [
        ("group_loss_sums", json!([[1, 2]]), "devices[0].group_loss_sums: "),
        ("group_counts", json!([[1, 2], [3]]), "devices[0].group_counts: "),
        ("trial_losses", json!([[1]]), "devices[0].trial_losses[0]: "),
        ("gap", json!([]), "devices[0].gap: "),
    ] {
        let mut file = worked();
        file["devices"][0][key] = value;
        assert!(read(&file).unwrap_err().to_string().starts_with(name));
    }
    let params = |params: Value| {
        replay(&Registry::standard(), &read(&worked()).unwrap(), "fairheterofl", params)
            .unwrap_err()
            .to_string()
    };
    assert!(params(json!({ "L": 0 })).starts_with("--params L: "));
    assert!(params(json!({ "eta": "x" })).starts_with("--params eta: "));
    assert!(params(json!({ "nope": 1 })).contains("nope"));
}

/// Asks for gradients, sends the equal mean of them along with training.
#[derive(Debug)]
struct Guided;

impl Strategy for Guided {
    fn name(&self) -> &'static str {
        "guided"
    }
    fn needs(&self) -> Needs {
        Needs { guide: true, loss_after: true, ..Needs::default() }
    }
    fn next(&self, made: &[Exchange], selected: &[common::DeviceId]) -> Option<Ask> {
        assert!(selected.is_sorted());
        match made.last().map(|exchange| exchange.kind) {
            None => Some(Ask::Losses),
            Some(Kind::Losses) => Some(Ask::Gradients),
            Some(Kind::Gradients) => {
                let equal = vec![1.0; made[1].cohort.participants().len()];
                Some(Ask::Train { guide: Some(Weights::per_device(equal)) })
            }
            _ => None,
        }
    }
    fn weigh(&self, cohort: &Cohort) -> Weights {
        Weights::per_device(cohort.participants().iter().map(|one| one.loss_after()).collect())
    }
}

#[test]
fn gradients_without_updates_give_the_fair_gradient() {
    let device = |id: &str, tier: usize, gradient: Value| json!({ "id": id, "tier": tier, "loss_before": 1.0, "gradient": gradient });
    let mut file = json!({
        "format": "fairtier-round", "version": 1, "parameters": [0, 0, 0, 0],
        "tiers": [{ "indices": [0, 1, 2] }, { "indices": [0] }],
        "devices": [device("a", 0, json!([1, 2, 3])), device("b", 1, json!([5]))],
    });
    let run = |file: &Value| replay_with(&read(file)?, &mut method(Guided), Overrides::default());
    let first = run(&file).unwrap();
    assert_eq!(first.brief.gfair, [3.0, 2.0, 3.0, 0.0]);
    assert_eq!(serde_json::to_value(&first).unwrap().as_object().unwrap().len(), 1, "{first:?}");
    // A bad gradient is refused before.
    let mut bad = file.clone();
    bad["devices"][1]["gradient"][0] = json!("NaN");
    let answer = run(&bad).unwrap();
    assert_eq!((answer.brief.gfair, answer.refused[0].code), (vec![1.0, 2.0, 3.0, 0.0], 12));
    // The same devices after training.
    for (at, (update, loss)) in [(json!([1, 1, 1]), 3.0), (json!([-1]), 1.0)].into_iter().enumerate() {
        file["devices"][at]["update"] = update;
        file["devices"][at]["loss_after"] = json!(loss);
    }
    let second = run(&file).unwrap();
    assert_eq!(second.parameters, [0.5, 1.0, 1.0, 0.0]);
    assert!(second.brief.is_empty());
    let without = |at: usize, key: &str| {
        let mut file = file.clone();
        file["devices"][at].as_object_mut().unwrap().remove(key);
        run(&file).unwrap_err().to_string()
    };
    assert!(without(1, "update").starts_with("devices[1].update: is missing"));
    assert!(without(0, "loss_after").starts_with("devices[0].loss_after: is missing"));
    // With neither, the strategy names the missing key.
    let device = json!({ "id": "a", "tier": 0, "loss_before": 1.0 });
    let nothing = json!({ "format": "fairtier-round", "version": 1, "parameters": [0], "devices": [device] });
    assert!(run(&nothing).unwrap_err().to_string().starts_with("devices[0].gradient: is missing"));
}

/// The mean as a direction; of three steps, the one with the lowest sum of losses.
#[derive(Debug, Default)]
struct Searching;

impl Strategy for Searching {
    fn name(&self) -> &'static str {
        "searching"
    }
    fn next(&self, made: &[Exchange], _: &[common::DeviceId]) -> Option<Ask> {
        match made.len() {
            0 => Some(Ask::train()),
            1 => Some(Ask::Try { steps: vec![1.0, 0.5, 0.25] }),
            _ => None,
        }
    }
    fn weigh(&self, cohort: &Cohort) -> Weights {
        Weights::per_device(cohort.data_shares())
    }
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Region)
    }
    fn direct(&self, cohort: &Cohort, grams: &Grams) -> Direction {
        let mut direction = Direction::none(grams);
        let sum =
            |at: usize| cohort.participants().iter().filter_map(|one| one.trials().get(at)).sum::<f64>();
        let tried = cohort.participants().iter().any(|one| !one.trials().is_empty());
        let best = (0..3).filter(|_| tried).min_by(|&a, &b| sum(a).total_cmp(&sum(b)));
        let step = best.map_or(1.0, |at| [1.0, 0.5, 0.25][at]);
        for (block, gram) in grams.blocks().iter().enumerate() {
            let rows = gram.rows.iter().filter(|&&row| row < cohort.participants().len());
            let count = rows.clone().count() as f64;
            rows.for_each(|&row| direction.set(row, block, step / count));
            // Absent devices count a thousandth, so that a test can see them.
            let absent = gram.rows.iter().filter(|&&row| row >= cohort.participants().len());
            absent.for_each(|&row| direction.set(row, block, 0.001));
        }
        direction.notes.insert("step".into(), json!(step));
        direction
    }
}

#[test]
fn a_line_search_is_two_runs() {
    let device = |id: &str, update: Value| json!({ "id": id, "loss_before": 1.0, "update": update });
    let mut file = json!({
        "format": "fairtier-round", "version": 1, "parameters": [0, 0],
        "devices": [device("a", json!([-2, 0])), device("b", json!([0, -4]))],
    });
    let run = |file: &Value| replay_with(&read(file)?, &mut method(Searching), Overrides::default());
    let first = run(&file).unwrap();
    assert_eq!(
        (&first.brief.direction[..], &first.brief.steps[..]),
        (&[1.0, 2.0][..], &[1.0, 0.5, 0.25][..])
    );
    assert!(first.parameters.is_empty() && first.weights.is_empty());
    // In any order, some of the steps only, and one that was not asked for.
    file["devices"][0]["trial_losses"] = json!([[0.5, 0.5], [1.0, 0.9], [8.0, 0.1]]);
    assert_eq!(run(&file).unwrap().diagnostics["step"], 0.5, "a device without trials is ignored");
    file["devices"][1]["trial_losses"] = json!([[1.0, 0.9], [0.5, 0.8], [0.25, 0.2]]);
    let second = run(&file).unwrap();
    assert_eq!(second.parameters, [-0.5, -1.0]);
    assert_eq!(second.diagnostics["step"], 0.5);
    assert!(second.weights.is_empty(), "a direction has no weights");
    let mut other = file.clone();
    other["devices"][1]["trial_losses"] = json!([[3.0, 0.9]]);
    assert!(run(&other).unwrap_err().to_string().contains("none of the steps 1, 0.5, 0.25"));
    file["devices"][1]["trial_losses"] = json!([[1.0, "NaN"]]);
    let refused = run(&file).unwrap();
    assert_eq!((refused.refused[0].code, &refused.parameters[..]), (13, &[-1.0, 0.0][..]));
}

#[test]
fn history_rows_are_minus_the_gradient() {
    let past = json!([[{ "id": "y", "gradient": [-1000, 0] }], [], [{ "id": "z", "lr": 0.5, "gradient": [0, 3000] }]]);
    let file = json!({
        "format": "fairtier-round", "version": 1, "round": 9, "lr": 0.1, "parameters": [0, 0],
        "layers": [[0, 1], [1, 2]],
        "devices": [{ "id": "a", "loss_before": 1, "update": [0, 0], "trial_losses": [[1, 1]] }],
        "history": past,
    });
    let read = read(&file).unwrap();
    let rounds: Vec<_> = read.history.iter().map(|past| (past.id.as_str(), past.round, past.lr)).collect();
    assert_eq!(rounds, [("y", 6, None), ("z", 8, Some(0.5))]);
    assert_eq!(read.layers, [0..1, 1..2]);
    let answer = replay_with(&read, &mut method(Searching), Overrides::default()).unwrap();
    assert_eq!(answer.parameters, [1.0, -3.0]);
}

/// Sums up the samples it has seen, starting from what the fleet has.
#[derive(Debug, Default)]
struct Counting {
    fleet: f64,
    seen: f64,
}

impl Strategy for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }
    fn begin(&mut self, fleet: &[FleetDevice<'_>]) {
        assert!(fleet.iter().all(|member| member.groups == [1, 2, 3, 4]));
        self.fleet = fleet.iter().map(|member| member.samples).sum();
    }
    fn weigh(&self, cohort: &Cohort) -> Weights {
        let sums = |one: &crate::cohort::Participant| {
            one.group_losses()[3] * one.mass().unwrap() + one.gap().unwrap()
        };
        Weights::per_device(cohort.participants().iter().map(sums).collect())
    }
    fn learn(&mut self, cohort: &Cohort, _: &[Exchange]) {
        self.seen += cohort.participants().iter().map(|one| one.samples()).sum::<f64>();
    }
    fn training_weights(&self) -> TrainingWeights {
        let devices = [("a".parse().unwrap(), 1.4)].into_iter().collect();
        TrainingWeights { devices, samples: vec![vec![0.86, 1.14], vec![1.14, 0.86]] }
    }
    fn save(&self) -> Value {
        json!({ "fleet": self.fleet, "seen": self.seen })
    }
    fn restore(&mut self, state: Value) -> Result<(), StrategyError> {
        (self.fleet, self.seen) = (state["fleet"].as_f64().unwrap(), state["seen"].as_f64().unwrap());
        Ok(())
    }
}

#[test]
fn state_and_outlook_come_out_and_go_in_again() {
    let device = |id: &str, samples: u32, sum: f64| {
        json!({
            "id": id, "samples": samples, "loss_before": 1.0, "update": [1.0], "gap": 0.5, "sample_mass": 2.0,
            "group_loss_sums": [[0, 0], [0, sum]], "group_counts": [[1, 2], [3, 4]],
        })
    };
    let mut file = json!({
        "format": "fairtier-round", "version": 1, "parameters": [0], "devices": [device("a", 5, 1.0), device("b", 7, 2.0)],
    });
    let run = |file: &Value| {
        let answer =
            replay_with(&read(file).unwrap(), &mut method(Counting::default()), Overrides::default());
        serde_json::to_value(answer.unwrap()).unwrap()
    };
    let first = run(&file);
    assert_eq!(first["state"], json!({ "fleet": 12.0, "seen": 12.0 }));
    assert_eq!(
        first["brief"],
        json!({
            "devices": { "a": { "weight": 1.4 } }, "sample_weights": [[0.86, 1.14], [1.14, 0.86]],
        })
    );
    close(&[first["weights"]["a"].as_f64().unwrap()], &[2.5 / 7.0], 1e-15);
    file["state"] = first["state"].clone();
    assert_eq!(run(&file)["state"], json!({ "fleet": 12.0, "seen": 24.0 }));
    // The state of another strategy is ignored.
    file["strategy"] = json!({ "name": "afl", "params": {} });
    let other = run(&file);
    assert_eq!(other["state"]["seen"], 12.0);
    assert!(other["diagnostics"]["state"].as_str().unwrap().contains("afl"));
}

#[test]
fn gradients_are_what_counts_where_they_are_uploaded() {
    #[derive(Debug)]
    struct Descent;
    impl Strategy for Descent {
        fn name(&self) -> &'static str {
            "fedsgd"
        }
        fn needs(&self) -> Needs {
            Needs { product: common::brief::Product::Gradient, ..Needs::default() }
        }
        fn weigh(&self, cohort: &Cohort) -> Weights {
            Weights::per_device(cohort.data_shares())
        }
        fn eta(&self) -> Option<f64> {
            Some(-0.1)
        }
        fn uses_loss(&self, _trained: bool) -> bool {
            false
        }
    }
    let file = json!({
        "format": "fairtier-round", "version": 1, "parameters": [1],
        "devices": [{ "id": "a", "gradient": [2], "update": [77] }],
    });
    let answer = replay_with(&read(&file).unwrap(), &mut method(Descent), Overrides::default()).unwrap();
    assert_eq!(answer.parameters, [0.8]);
}

#[test]
fn first_steps_are_read_where_they_count() {
    #[derive(Debug)]
    struct Aligned;
    impl Strategy for Aligned {
        fn name(&self) -> &'static str {
            "aligned"
        }
        fn needs(&self) -> Needs {
            Needs { product: common::brief::Product::Both, ..Needs::default() }
        }
        fn weigh(&self, cohort: &Cohort) -> Weights {
            Weights::per_device(vec![0.0; cohort.participants().len()])
        }
        fn first_step(&self, cohort: &Cohort) -> Option<(Weights, f64)> {
            Some((Weights::per_device(cohort.data_shares()), 0.5))
        }
    }
    let run = |device: Value| {
        let file =
            json!({ "format": "fairtier-round", "version": 1, "parameters": [1], "devices": [device] });
        replay_with(&read(&file).unwrap(), &mut method(Aligned), Overrides::default())
    };
    let device = |first: Value| json!({ "id": "a", "loss_before": 1, "update": [9], "first_update": first });
    assert_eq!(run(device(json!([4]))).unwrap().parameters, [3.0]);
    let missing = run(device(Value::Null)).unwrap_err().to_string();
    assert!(missing.starts_with("devices[0].first_update: is missing"), "{missing}");
    assert_eq!(run(device(json!([null]))).unwrap().refused[0].code, 12);
}

#[test]
fn tiers_may_overlap_in_any_way() {
    let file = json!({
        "format": "fairtier-round", "version": 1, "parameters": [0, 0, 0, 0],
        "tiers": [{ "indices": [0, 1] }, { "indices": [1, 2] }], "devices": [],
    });
    let only = |tier| TierSet::EMPTY.with(Tier::new(tier).unwrap());
    let runs = [(0, 1, only(0)), (1, 1, TierSet::first(2)), (2, 1, only(1)), (3, 1, TierSet::EMPTY)];
    assert_eq!(read(&file).unwrap().regions, RegionMap::from_spans(4, 2, runs));
}
