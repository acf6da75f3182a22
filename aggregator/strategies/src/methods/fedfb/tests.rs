//! Worked numbers, whole rounds, and missing values.

use common::{
    DeviceId,
    brief::Brief,
    message::{Scalars, Task},
    privacy::{Policy, Privacy},
    rng::Rng,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::{Method, by_name},
    methods::{
        fedfb::Quantiser,
        fleet::{Fleet, assert_close, groups},
    },
    strategy::{Ask, Exchange, FleetDevice, Kind},
};

fn fedfb(params: Value) -> Method {
    by_name("fedfb", params).unwrap()
}

fn id(name: &str) -> DeviceId {
    name.parse().unwrap()
}

/// The worked counts [[30,20],[20,30]] and sums [[6,8],[10,3]], spread over three devices in two tiers.
fn worked() -> Fleet {
    Fleet::grouped()
}

/// State and sample weights after the worked round.
fn after(params: Value, state: Value) -> (Value, Vec<f64>) {
    let mut method = fedfb(params);
    method.set_state(state).unwrap();
    let _ = worked().combine(&mut method);
    (method.state(), method.strategy.training_weights().samples.concat())
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        Value::Object(values) => values.values().flat_map(numbers).collect(),
        other => other.as_f64().into_iter().collect(),
    }
}

fn published(notion: &str) -> Value {
    json!({"notion": notion, "normalize_mu": true, "alpha": 0.1})
}

#[test]
fn demographic_parity_worked() {
    let (state, weights) = after(published("dp"), Value::Null);
    assert_close(&numbers(&state["lambda"]), &[0.4292893219, 0.5707106781], 1e-10);
    assert_eq!(state["counts"], json!([[30.0, 20.0], [20.0, 30.0]]));
    assert_close(&weights, &[0.8585786438, 1.1414213562, 1.1414213562, 0.8585786438], 1e-10);
    // Not normalised: mu = (-0.38, 0.38).
    let (state, _) = after(json!({"alpha": 0.1}), Value::Null);
    assert_close(&numbers(&state["lambda"]), &[0.462, 0.538], 1e-12);
}

#[test]
fn opportunity_and_odds_worked() {
    let counts = json!([[30, 20], [20, 30]]);
    let (state, weights) = after(published("eo"), json!({"lambda": [0.3], "counts": counts}));
    assert_close(&numbers(&state["lambda"]), &[0.2], 1e-12);
    assert_close(&weights, &[1.0, 1.0, 1.5, 0.6666666667], 1e-10);
    let (start, _) = after(published("eo"), Value::Null);
    assert_eq!(start, state);

    let (state, weights) = after(published("eodds"), json!({"lambda": [[0.2], [0.3]], "counts": counts}));
    assert_eq!(state["lambda"].as_array().map(Vec::len), Some(2));
    assert_close(&numbers(&state["lambda"]), &[0.2447213595, 0.2105572809], 1e-10);
    assert_close(&weights, &[0.8509288015, 1.2236067977, 1.4472135955, 0.7018576030], 1e-10);
}

#[test]
fn client_parity_worked() {
    let mut method = fedfb(published("cp"));
    method.set_state(json!({"lambda": {"b": 0.3, "c": 0.2}, "counts": {"a": 50, "b": 30, "c": 20}})).unwrap();
    let (theta, outcome) = worked().combine(&mut method);
    assert_close(&outcome.weights, &[0.5, 0.3, 0.2], 1e-12);
    assert_close(&theta, &[1.0 + 0.5 * 0.3 + 0.3 * 0.6, 1.9], 1e-12);
    let state = method.state();
    assert_close(&numbers(&state["lambda"]), &[0.3970142500, 0.1757464375], 1e-10);
    assert_eq!(state["losses"], json!({"a": 0.5, "b": 0.9, "c": 0.4}));
    let rest = 1.0 - 0.3970142500 - 0.1757464375;
    let devices: Vec<f64> = method.strategy.training_weights().devices.into_values().collect();
    assert_close(&devices, &[2.0 * rest, 0.3970142500 / 0.3, 0.1757464375 / 0.2], 1e-9);
    // The next round counts by n_i * v_i.
    let (_, outcome) = worked().combine(&mut method);
    assert_close(&outcome.weights, &[rest, 0.3970142500, 0.1757464375], 1e-9);
}

#[test]
fn client_parity_with_absent_devices() {
    let only = |names: &[&str]| {
        let mut fleet = worked();
        fleet.devices.retain(|member| names.contains(&member.device.as_str()));
        fleet
    };
    let mut method = fedfb(published("cp"));
    let members = ["a", "b", "c"].map(id);
    let fleet: Vec<FleetDevice<'_>> = members
        .iter()
        .zip([50.0, 30.0, 20.0])
        .map(|(device, samples)| FleetDevice {
            device,
            tier: common::Tier::new(0).unwrap(),
            samples,
            groups: &[],
        })
        .collect();
    method.strategy.begin(&fleet);
    // Client 0 has never been seen: no step.
    let _ = only(&["b"]).combine(&mut method);
    assert_close(&numbers(&method.state()["lambda"]), &[0.3, 0.2], 1e-12);
    // Now it has: b counts with its last loss, c has none and stays.
    let _ = only(&["a"]).combine(&mut method);
    assert_close(&numbers(&method.state()["lambda"]), &[0.4, 0.2], 1e-12);
    // Client 0 is absent and counts with its last loss.
    let _ = only(&["c"]).combine(&mut method);
    let step = 0.1 / (0.4f64.powi(2) + 0.1f64.powi(2)).sqrt();
    assert_close(&numbers(&method.state()["lambda"]), &[0.4 + 0.4 * step, 0.2 - 0.1 * step], 1e-12);
    // A new device is not part of it and counts with its samples.
    let mut fleet = only(&["a"]);
    fleet.add("new", 0, 50, 3.0, &[0.0, 0.0]);
    let (_, outcome) = fleet.combine(&mut method);
    let first = 100.0 * (1.0 - 0.6 - 0.3 * step);
    assert_close(&outcome.weights, &[first / (first + 50.0), 50.0 / (first + 50.0)], 1e-9);
}

#[test]
fn devices_count_by_mass() {
    let state = json!({"lambda": [0.4, 0.6], "counts": [[30, 20], [20, 30]]});
    let mut method = fedfb(json!({}));
    method.set_state(state).unwrap();
    let mut fleet = worked();
    // v = [[0.8, 1.2], [1.2, 0.8]]: from the counts, as reported, and n_i if nothing is known.
    fleet.devices[1].more.mass = Some(7.0);
    fleet.devices[2].more = Scalars::default();
    let (_, outcome) = fleet.combine(&mut method);
    let masses = [16.0 + 12.0 + 12.0 + 8.0, 7.0, 20.0];
    assert_close(&outcome.weights, &masses.map(|mass| mass / 75.0), 1e-12);
    // A device of mass 0 moves nothing, but its losses enter.
    let (mut with, mut without) = (worked(), worked());
    with.devices[1].more.mass = Some(0.0);
    without.devices.remove(1);
    let (mut one, mut two) = (fedfb(json!({})), fedfb(json!({})));
    let start = json!({"counts": [[30, 20], [20, 30]]});
    one.set_state(start.clone()).unwrap();
    two.set_state(start).unwrap();
    assert_close(&with.combine(&mut one).0, &without.combine(&mut two).0, 1e-12);
    assert_ne!(one.state(), two.state());
}

#[test]
fn missing_samples() {
    let step = |params: Value, state: Value, more: Scalars| {
        let mut fleet = Fleet::new(&[0.0], 0.1, &[&[0]]);
        fleet.add("a", 0, 9, 1.0, &[1.0]);
        fleet.devices[0].more = more;
        let mut method = fedfb(params);
        method.set_state(state).unwrap();
        let _ = fleet.combine(&mut method);
        let weights = method.strategy.training_weights().samples.concat();
        assert!(weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0));
        (numbers(&method.state()["lambda"]), weights)
    };
    let three = json!([[10, 20, 30], [10, 20, 10]]);
    // No sample of attribute 1 this round: it stays, 0 and 2 move. Rates 0.2 and 0.5.
    let here = groups(&[10, 0, 30, 10, 0, 10], &[2.0, 0.0, 15.0, 8.0, 0.0, 5.0]);
    let (lambda, _) = step(json!({"alpha": 1}), json!({"counts": three}), here);
    assert_close(&lambda, &[0.2 - 0.3, 0.4, 0.4 + 0.3].map(|value: f64| value.max(0.0)), 1e-12);
    // No reference this round: no step.
    let here = groups(&[0, 20, 30, 0, 20, 10], &[0.0, 20.0, 0.0, 0.0, 0.0, 0.0]);
    for notion in ["dp", "eo", "eodds"] {
        let (_, weights) = step(json!({"notion": notion}), json!({"counts": three}), here.clone());
        assert_close(&weights, &[1.0; 6], 1e-12);
    }
    // EOdds: a reference without samples stops only its own label.
    let here = groups(&[10, 10, 0, 0, 10, 10], &[1.0, 2.0, 0.0, 0.0, 9.0, 9.0]);
    let (lambda, weights) = step(json!({"notion": "eodds", "alpha": 0.5}), json!({"counts": three}), here);
    assert_close(&lambda, &[0.2 + 0.05, 0.3, 0.2, 0.1], 1e-12);
    assert_close(&weights[3..], &[1.0; 3], 1e-12);
    // No samples of attribute 0 at all: 1 replaces it (EO), and groups are compared with it (DP).
    let gone = json!([[0, 20, 30], [0, 20, 10]]);
    let here = groups(&[0, 20, 30, 0, 20, 10], &[0.0, 5.0, 6.0, 0.0, 4.0, 5.0]);
    let (lambda, weights) =
        step(json!({"notion": "eo", "alpha": 0.1}), json!({"counts": gone}), here.clone());
    assert_close(&lambda, &[0.0, 0.125 + 0.1 * (0.5 - 0.2)], 1e-12);
    assert_close(&weights[3..], &[1.0, 80.0 * (0.375 - 0.155) / 20.0, 8.0 * 0.155], 1e-12);
    let (lambda, weights) = step(json!({"alpha": 0.1}), json!({"counts": gone}), here);
    // rate(1) = (5 + 16)/40, rate(2) = (6 + 5)/40
    assert_close(&lambda, &[0.0, 0.5 + 0.025, 0.5 - 0.025], 1e-12);
    assert_eq!((weights[0], weights[3]), (1.0, 1.0));
}

#[test]
fn losses_of_the_new_model() {
    let fleet = worked();
    let params = json!({"losses": "new", "normalize_mu": true, "alpha": 0.1});
    let mut method = fedfb(params.clone());
    let selected = ["a", "b", "c"].map(id);
    // First round: trains at once, and lambda stays.
    assert_eq!(method.strategy.next(&[], &selected), Some(Ask::train()));
    let _ = fleet.combine(&mut method);
    let first = method.state();
    assert_eq!(first, json!({"lambda": [0.5, 0.5], "counts": [[30.0, 20.0], [20.0, 30.0]]}));
    // Second round: losses first, a step of the first round's length, then training with its weights.
    assert_eq!(method.strategy.next(&[], &selected), Some(Ask::Losses));
    let mut cohort = fleet.cohort();
    cohort.round = 2;
    let asked = [Exchange { kind: Kind::Losses, cohort: cohort.clone() }];
    assert_eq!(method.strategy.next(&asked, &selected), Some(Ask::train()));
    let mut brief = Brief::sgd(1, 1, 0.1, 0);
    method.strategy.brief(&id("a"), &asked, &mut brief);
    let told: Vec<f64> = brief.objective.groups.iter().copied().map(f64::from).collect();
    assert_close(&told, &[0.8585786438, 1.1414213562, 1.1414213562, 0.8585786438], 1e-7);
    let mut trained = fleet.clone();
    (0..3).for_each(|index| trained.devices[index].more.group_losses.clear());
    trained.round = 2;
    let mut theta = fleet.theta.clone();
    crate::combine::combine(&mut method, &trained.cohort(), &asked, &mut trained.updates(), &mut theta)
        .unwrap();
    let live = method.state();
    assert_close(&numbers(&live["lambda"]), &[0.4292893219, 0.5707106781], 1e-10);
    let train = Exchange { kind: Kind::Train, cohort: cohort.clone() };
    assert_eq!(method.strategy.next(&[asked[0].clone(), train], &selected), None);
    // A replay has only one exchange, and its masses follow from the step too.
    let mut replay = fedfb(params);
    replay.set_state(first).unwrap();
    let (_, outcome) = Fleet { round: 2, ..fleet }.combine(&mut replay);
    assert_eq!(replay.state(), live);
    let (less, more) = (0.8585786438, 1.1414213562);
    let masses = [30.0 * less + 20.0 * more, 20.0 * less + 10.0 * more, 10.0 * less + 10.0 * more];
    let all: f64 = masses.iter().sum();
    assert_close(&outcome.weights, &masses.map(|mass| mass / all), 1e-9);
}

#[test]
fn steps_shorten_with_the_rounds() {
    let lambda = |params: Value, round: u32| {
        let mut method = fedfb(params);
        let _ = Fleet { round, ..worked() }.combine(&mut method);
        numbers(&method.state()["lambda"])[1] - 0.5
    };
    assert_close(&[lambda(json!({"alpha": 0.1}), 4)], &[0.019], 1e-12);
    assert_close(&[lambda(json!({"alpha": 0.1, "decay": "sqrt"}), 4)], &[0.019], 1e-12);
    assert_close(&[lambda(json!({"alpha": 0.1, "decay": "none"}), 4)], &[0.038], 1e-12);
}

#[test]
fn losses_in_few_bits() {
    let quantised = |params: Value| numbers(&after(params, Value::Null).0["lambda"])[1] - 0.5;
    // Each: mean losses of the cells of each device.
    let fleet = worked();
    let f1 = |loss: &dyn Fn(f64) -> f64| {
        let mut sums = [0.0; 4];
        for member in &fleet.devices {
            for (cell, sum) in sums.iter_mut().enumerate() {
                let n = f64::from(member.more.group_counts[cell]);
                *sum += if n > 0.0 { n * loss(member.more.group_losses[cell] / n) } else { 0.0 };
            }
        }
        (-sums[0] + sums[2] + sums[1] - sums[3]) / 50.0 + 0.6 - 0.4
    };
    let coarse = Quantiser::new([0.0, 1.0], 2);
    let expected = f1(&|loss| coarse.value(loss));
    assert!((expected - 0.38).abs() > 0.01);
    assert_close(&[quantised(json!({"bits": 2, "alpha": 0.1}))], &[0.1 * expected], 1e-12);
    assert_close(&[quantised(json!({"bits": 24, "alpha": 0.1}))], &[0.038], 1e-6);
    let wide = Quantiser::new([0.0, 5.0], 3);
    let params = json!({"bits": 3, "alpha": 0.1, "range": [0, 5]});
    assert_close(&[quantised(params)], &[0.1 * f1(&|loss| wide.value(loss))], 1e-12);
    // Round: contributions of the devices to f_1: (-5+6+2-1)/50, (-1+4+0-0)/50, (6-2)/50.
    let levels = Quantiser::new([-2.0, 2.0], 6);
    let pulls: f64 = [2.0 / 50.0, 3.0 / 50.0, 4.0 / 50.0].iter().map(|&pull| levels.value(pull)).sum();
    let params = json!({"bits": 6, "quant": "round", "alpha": 0.1});
    assert_close(&[quantised(params)], &[0.1 * (pulls + 0.2)], 1e-12);
    let params = json!({"bits": 30, "quant": "round", "alpha": 0.1});
    assert_close(&[quantised(params)], &[0.038], 1e-6);
}

#[test]
fn noisy_sums_are_brought_into_their_range() {
    let mut noisy = worked();
    noisy.devices[1].more.group_losses = [-4.0, 3.0, 1e9, 10.0].into_iter().collect();
    let mut clean = worked();
    clean.devices[1].more.group_losses = [0.0, 0.0, 10.0, 10.0].into_iter().collect();
    let (mut one, mut two) = (fedfb(json!({"eps": 1})), fedfb(json!({})));
    let _ = (noisy.combine(&mut one), clean.combine(&mut two));
    assert_eq!(one.state(), two.state());
}

#[test]
fn briefs() {
    let told = |params: Value| {
        let mut brief = Brief::sgd(1, 1, 0.1, 0);
        let method = fedfb(params);
        method.strategy.brief(&id("a"), &[], &mut brief);
        (brief, method.needs())
    };
    let (brief, needs) = told(json!({"eps": 2, "clip_l1": 3}));
    let report = brief.groups.unwrap();
    assert_eq!((report.signal, report.cap), (common::brief::Signal::ZeroOne, 1.0));
    let noise = brief.privacy.unwrap();
    assert_eq!((noise.sums, noise.clip_l1, noise.update), (1.0, 3.0, 6.0));
    assert!(needs.groups && needs.binary && brief.objective.groups.is_empty());
    let (brief, _) = told(json!({"notion": "eo", "eps": 0.5}));
    assert_eq!((brief.groups.unwrap().cap, brief.privacy.unwrap().sums), (5.0, 20.0));
    // The noise that devices add matches the configured budget.
    for notion in ["dp", "eo", "eodds", "cp"] {
        for eps in [0.1, 0.7, 1.0, 3.0, 10.0] {
            let (brief, _) = told(json!({"notion": notion, "eps": eps, "clip_l1": 0.3}));
            let counted = brief.epsilon().unwrap();
            assert!((counted / eps - 1.0).abs() < 1e-6, "{notion}: {counted} instead of {eps}");
            let policy = Some(Policy { max_epsilon: eps as f32, max_answers: None });
            let owner = Privacy { policy, ..Privacy::simulated(1) };
            assert_eq!(owner.allows(&Task::Train(brief)), Ok(()), "{notion}: {eps}");
        }
    }
    let (brief, _) = told(json!({"notion": "eo"}));
    assert_eq!(brief.groups.unwrap().signal, common::brief::Signal::CrossEntropy);
    let (brief, needs) = told(json!({"notion": "cp"}));
    assert!(brief.groups.is_none() && brief.privacy.is_none() && !needs.groups && !needs.binary);
    assert!(told(json!({"notion": "cp", "signal": "zero_one"})).1.groups);

    // Counts of the whole fleet, and weights of the start; devices without two labels do not count.
    let mut method = fedfb(json!({}));
    let device = id("a");
    let tier = common::Tier::new(0).unwrap();
    let member = |groups| FleetDevice { device: &device, tier, samples: 1.0, groups };
    method.strategy.begin(&[member(&[]), member(&[1, 2, 3]), member(&[1, 2, 3, 4]), member(&[4, 3, 2, 1])]);
    assert_eq!(method.state(), json!({"counts": [[5.0, 5.0], [5.0, 5.0]]}));
    let mut brief = Brief::sgd(1, 1, 0.1, 0);
    method.strategy.brief(&device, &[], &mut brief);
    assert_eq!(brief.objective.groups.as_slice(), [1.0; 4]);
    let mut stated = fedfb(json!({"groups": 3}));
    stated.strategy.begin(&[member(&[1, 2, 3, 4]), member(&[1; 6])]);
    assert_eq!(stated.state(), json!({"counts": [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]}));
}

#[test]
fn parameters_and_states_are_checked() {
    let why = |params: Value| by_name("fedfb", params).unwrap_err().to_string();
    assert!(why(json!({"notion": "xx"})).contains("eodds"));
    assert!(why(json!({"alpha": -1})).contains("`alpha` must be 0 or more"));
    assert!(why(json!({"bits": 0})).contains("`bits` must lie in 1..=32"));
    assert!(why(json!({"range": [1, 0]})).contains("smaller first"));
    assert!(why(json!({"groups": 9})).contains("`groups` must lie in 2..=8"));
    assert!(why(json!({"eps": 0})).contains("`eps` must be above 0"));
    assert!(why(json!({"eps": 1, "losses": "new"})).contains("received"));
    assert!(why(json!({"notion": "eo", "quant": "round"})).contains("dp"));
    let state = |notion: &str, state: Value| {
        fedfb(json!({"notion": notion})).set_state(state).map_err(|error| error.to_string())
    };
    assert!(state("dp", json!({"lambda": [0.5], "counts": [[1, 2], [3, 4]]})).unwrap_err().contains("not 2"));
    assert!(state("dp", json!({"counts": [[1, 2], [3]]})).unwrap_err().contains("`counts`"));
    assert!(state("dp", json!({"counts": [[1, -2], [3, 4]]})).is_err());
    assert!(state("eodds", json!({"lambda": [0.5]})).unwrap_err().contains("one list per label"));
    assert!(state("eo", json!({"lambda": [[0.5]]})).is_err());
    assert!(state("cp", json!({"counts": {"a": 0}})).unwrap_err().contains("above 0"));
    assert!(state("cp", json!({"mu": {}})).is_err());
}

/// A fleet whose devices have samples in some of 2 x `attributes` cells.
fn random(seed: u64, tiers: usize, nested: bool, attributes: usize) -> Fleet {
    let mut fleet = Fleet::random(seed, tiers, nested);
    let mut rng = Rng::new(seed ^ 7);
    for member in &mut fleet.devices {
        let mut counts: Vec<u32> =
            (0..2 * attributes).map(|_| (rng.below(3) > 0) as u32 * rng.below(40) as u32).collect();
        // Every sample is in a cell, and every device has one.
        counts[0] += u32::from(counts.iter().all(|&n| n == 0));
        let losses: Vec<f64> = counts.iter().map(|&n| (rng.unit_f64() * f64::from(n)).floor()).collect();
        member.samples = counts.iter().sum();
        member.more = groups(&counts, &losses);
    }
    fleet
}

proptest! {
    /// Several rounds on tiers: the mass-weighted mean of each region, sums of all devices, weights in range.
    #[test]
    fn rounds_on_tiers(
        seed: u64,
        tiers in 1usize..5,
        nested: bool,
        attributes in 1usize..5,
        notion in prop::sample::select(vec!["dp", "eo", "eodds", "cp"]),
        normalize: bool,
        bits in prop::option::of(1u32..12),
    ) {
        let params = json!({"notion": notion, "alpha": 1, "normalize_mu": normalize, "bits": bits});
        let mut method = fedfb(params.clone());
        for round in 1..5 {
            let mut fleet = random(seed.wrapping_add(round), tiers, nested, attributes);
            fleet.round = round as u32;
            let training_weights = method.strategy.training_weights();
            let weights = training_weights.samples.concat();
            let mass = |member: &crate::methods::fleet::TestDevice| {
                let cells = member.more.group_counts.iter().zip(&weights);
                match notion {
                    "cp" => training_weights.devices.get(&member.device).unwrap_or(&1.0) * f64::from(member.samples),
                    _ if weights.is_empty() => member.more.group_counts.iter().copied().map(f64::from).sum(),
                    _ => cells.map(|(&n, weight)| f64::from(n) * weight).sum(),
                }
            };
            let (theta, _) = fleet.combine(&mut method);
            assert_close(&theta, &fleet.weighted_mean(mass), 1e-9);
            let mut resumed = fedfb(params.clone());
            resumed.restore(&method.save()).unwrap();
            prop_assert_eq!(resumed.state(), method.state());
            prop_assert_eq!(resumed.strategy.training_weights(), method.strategy.training_weights());
        }
    }

    #[test]
    fn hostile_sums(
        seed: u64,
        tiers in 1usize..5,
        notion in prop::sample::select(vec!["dp", "eo", "eodds", "cp"]),
        values in prop::collection::vec(prop::sample::select(vec![0.0, -1e300, 1e300, 1e-300, f64::MAX]), 6),
        mass in prop::option::of(prop::sample::select(vec![0.0, 1e-300, f64::MAX])),
        losses in prop::sample::select(vec!["received", "new"]),
    ) {
        let mut fleet = random(seed, tiers, true, 3);
        fleet.devices[0].more.group_losses = values.into_iter().collect();
        fleet.devices[0].more.mass = mass;
        fleet.devices[0].loss = 1e300;
        let mut method = fedfb(json!({"notion": notion, "losses": losses}));
        for _ in 0..3 {
            let (theta, outcome) = fleet.combine(&mut method);
            prop_assert!(theta.iter().chain(&outcome.weights).all(|value| value.is_finite()));
            let training_weights = method.strategy.training_weights();
            let told = training_weights.samples.concat().into_iter().chain(training_weights.devices.into_values());
            prop_assert!(told.into_iter().all(|weight| weight.is_finite() && weight >= 0.0));
        }
    }

    /// Secure sums: V_i theta_i, V_i and S added up in fixed point give the same round.
    #[test]
    fn sums_in_fixed_point_agree(seed: u64, attributes in 2usize..5) {
        let fleet = random(seed, 1, true, attributes);
        let scale = f64::from(1u32 << 30);
        let fixed = |value: f64| (value * scale).round() as i64;
        let mut method = fedfb(json!({"alpha": 0.5, "signal": "cross_entropy"}));
        let mut sums = groups(&vec![0; 2 * attributes], &[]);
        let mut losses = vec![0i64; 2 * attributes];
        let (mut mass, mut models) = (0i64, vec![0i64; fleet.theta.len()]);
        for member in &fleet.devices {
            let own: f64 = member.more.group_counts.iter().copied().map(f64::from).sum();
            mass += fixed(own);
            for (at, model) in models.iter_mut().enumerate() {
                *model += fixed(own * (fleet.theta[at] + member.update[at]));
            }
            for (loss, own) in losses.iter_mut().zip(&member.more.group_losses) {
                *loss += fixed(*own);
            }
            for (count, own) in sums.group_counts.iter_mut().zip(&member.more.group_counts) {
                *count += own;
            }
        }
        sums.group_losses = losses.iter().map(|&loss| loss as f64 / scale).collect();
        prop_assume!(mass > 0);
        let theta: Vec<f64> = models.iter().map(|&model| model as f64 / mass as f64).collect();
        assert_close(&fleet.combine(&mut method).0, &theta, 1e-8);
        let mut summed = Fleet::new(&[0.0], 0.1, &[&[0]]);
        summed.add("all", 0, 1, 1.0, &[0.0]);
        summed.devices[0].more = sums;
        let mut other = fedfb(json!({"alpha": 0.5, "signal": "cross_entropy"}));
        let _ = summed.combine(&mut other);
        assert_close(&numbers(&method.state()), &numbers(&other.state()), 1e-8);
    }
}
