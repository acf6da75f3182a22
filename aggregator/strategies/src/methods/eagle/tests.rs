//! The worked numbers, the invariants, and the course of rounds.

use common::{Code, DeviceId, brief::Brief};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::{Method, by_name},
    methods::{
        eagle::{EagleNorm, EagleParams},
        fleet::{Fleet, assert_close},
    },
    strategy::{Ask, Exchange, Kind, Strategy},
};

const GAPS: [f64; 3] = [0.3, 0.1, -0.1];

fn eagle(params: Value) -> Method {
    by_name("eagle", params).unwrap()
}

fn weights(params: Value, gaps: &[f64]) -> Vec<f64> {
    serde_json::from_value::<EagleParams>(params).unwrap().weights(gaps)
}

fn id(name: &str) -> DeviceId {
    name.parse().unwrap()
}

/// Three devices in two tiers that report the gaps of the worked example.
fn worked() -> Fleet {
    let mut fleet = Fleet::new(&[1.0, 2.0], 0.1, &[&[0, 1], &[0]]);
    fleet.add("a", 0, 10, 1.0, &[0.3, -0.1]);
    fleet.add("b", 1, 30, 1.0, &[0.6]);
    fleet.add("c", 1, 99, 1.0, &[0.0]);
    for (member, gap) in fleet.devices.iter_mut().zip(GAPS) {
        member.more.gap = Some(gap);
    }
    fleet
}

fn told(strategy: &dyn Strategy, device: &str, made: &[Exchange]) -> f32 {
    let mut brief = Brief::sgd(1, 1, 0.1, 0);
    strategy.brief(&id(device), made, &mut brief);
    assert!(brief.gap);
    brief.objective.weight
}

fn shown(method: &Method) -> Vec<f64> {
    method.strategy.training_weights().devices.into_values().collect()
}

#[test]
fn worked_numbers() {
    let raw = weights(json!({"norm": "none"}), &GAPS);
    assert_close(&raw, &[1.6, 1.0, 0.4], 1e-12);
    assert_close(&[raw.iter().map(|w| w * w).sum::<f64>().sqrt()], &[1.9287301522], 1e-10);
    assert_close(&weights(json!({}), &GAPS), &[1.4368424162, 0.8980265101, 0.3592106041], 1e-10);
    let unit = [0.8295613558, 0.5184758474, 0.2073903389];
    assert_close(&weights(json!({"norm": "unit"}), &GAPS), &unit, 1e-10);
    let doubled = weights(json!({"norm": "none", "coefficient": 4}), &GAPS);
    assert_close(&doubled, &[2.2, 1.0, -0.2], 1e-12);
    assert_close(&weights(json!({"lambda": 5, "norm": "none"}), &GAPS), &[4.0, 1.0, -2.0], 1e-12);
    let steep = weights(json!({"lambda": 5}), &GAPS);
    assert_close(&steep, &[1.5118578920, 0.3779644730, -0.7559289460], 1e-10);
    let bounded = weights(json!({"lambda": 5, "min_weight": 0}), &GAPS);
    assert_close(&bounded, &[1.5118578920, 0.3779644730, 0.0], 1e-10);
}

#[test]
fn a_round_averages_equally_and_weighs_the_next() {
    let mut method = eagle(json!({}));
    let (theta, outcome) = worked().combine(&mut method);
    assert_close(&theta, &[1.3, 1.9], 1e-12);
    assert_close(&outcome.weights, &[1.0 / 3.0; 3], 1e-12);
    assert_close(&shown(&method), &[1.4368424162, 0.8980265101, 0.3592106041], 1e-10);
    assert_eq!(told(&*method.strategy, "a", &[]), 1.436_842_4);
    assert_eq!(told(&*method.strategy, "new", &[]), 1.0);
    let state = method.state();
    assert_eq!(state["gap"], json!({"a": 0.3, "b": 0.1, "c": -0.1}));
    assert_eq!(state["baseline"], json!(["a", "b", "c"]));

    // A round file may state gaps alone. One device reports again; the others count with their last gap.
    let mut later = eagle(json!({}));
    later.set_state(json!({"gap": {"a": 0.3, "b": 0.0, "c": -0.1}})).unwrap();
    let mut fleet = worked();
    fleet.devices.retain(|member| member.device == id("b"));
    let _ = fleet.combine(&mut later);
    assert_eq!(shown(&later), shown(&method));
    assert!(eagle(json!({})).set_state(json!({"gaps": {}})).is_err());
}

#[test]
fn devices_train_alone_before_their_first_round() {
    let fleet = worked();
    let mut method = eagle(json!({"norm": "unit"}));
    let selected = [id("a"), id("b"), id("c")];
    let Some(Ask::Alone { task, devices }) = method.strategy.next(&[], &selected) else { panic!() };
    assert_eq!(devices, selected);
    assert_eq!((task.brief.epochs, task.window, task.tolerance), (500, 10, 1e-4));

    let alone = Exchange { kind: Kind::Alone, cohort: fleet.cohort() };
    let made = [alone];
    assert_eq!(method.strategy.next(&made, &selected), Some(Ask::train()));
    assert_eq!(told(&*method.strategy, "a", &made), (1.0 / 3f64.sqrt()) as f32);
    let train = Exchange { kind: Kind::Train, cohort: fleet.cohort() };
    assert_eq!(method.strategy.next(&[made[0].clone(), train], &selected), None);

    // b has answered alone but not now; c has lost its result; d is new.
    let only_a = Fleet { devices: fleet.devices[..1].to_vec(), ..fleet.clone() };
    let mut last = only_a.cohort();
    last.refuse(id("c"), Code::NoBaseline);
    last.refuse(id("b"), Code::NonFiniteUpdate);
    method.strategy.learn(&last, &made);
    assert_eq!(method.state(), json!({"gap": {"a": 0.3}, "baseline": ["a", "b"]}));
    let selected = [id("a"), id("b"), id("c"), id("d")];
    let Some(Ask::Alone { devices, .. }) = method.strategy.next(&[], &selected) else { panic!() };
    assert_eq!(devices, [id("c"), id("d")]);
    assert_eq!(method.strategy.next(&[], &selected[..2]), Some(Ask::train()));
    // A single known gap gives no weight.
    assert_eq!(told(&*method.strategy, "a", &[]), 1.0);
}

#[test]
fn parameters_are_checked() {
    let why = |params: Value| by_name("eagle", params).unwrap_err().to_string();
    assert!(why(json!({"lambda": -1})).contains("`lambda` must be 0 or more"));
    assert!(why(json!({"norm": "l1"})).contains("sqrt_k"));
    assert!(why(json!({"coefficient": 0})).contains("`coefficient`"));
    let needs = eagle(json!({"lambda": 0, "min_weight": -3})).needs();
    assert!(needs.validation && needs.sgd);
}

#[test]
fn huge_gaps_give_weights_that_can_be_sent() {
    for norm in [EagleNorm::SqrtK, EagleNorm::Unit, EagleNorm::None] {
        let params = EagleParams { norm, ..EagleParams::default() };
        let weights = params.weights(&[f64::MAX, -f64::MAX, 0.0, 1e-12]);
        assert!(weights.iter().all(|weight| weight.is_finite()), "{weights:?}");
    }
    let mut fleet = worked();
    fleet.devices[0].more.gap = Some(f64::MAX);
    let mut method = eagle(json!({"norm": "none"}));
    let _ = fleet.combine(&mut method);
    assert!(told(&*method.strategy, "a", &[]).is_finite());
}

proptest! {
    #[test]
    fn invariants_of_weights(
        gaps in prop::collection::vec(-2.0f64..2.0, 2..30),
        lambda in 0.0f64..5.0,
        shift in -10.0f64..10.0,
    ) {
        let k = gaps.len() as f64;
        let raw = weights(json!({"lambda": lambda, "norm": "none"}), &gaps);
        prop_assert!((raw.iter().sum::<f64>() - k).abs() < 1e-9);
        let mean = gaps.iter().sum::<f64>() / k;
        for (gap, weight) in gaps.iter().zip(&raw) {
            prop_assert!((gap - mean).abs() < 1e-9 || lambda < 1e-9 || (gap > &mean) == (*weight > 1.0));
        }
        let moved: Vec<f64> = gaps.iter().map(|gap| gap + shift).collect();
        assert_close(&weights(json!({"lambda": lambda, "norm": "none"}), &moved), &raw, 1e-12);
        let norm = |weights: &[f64]| weights.iter().map(|w| w * w).sum::<f64>().sqrt();
        let lengths = [json!({"lambda": lambda}), json!({"lambda": lambda, "norm": "unit"})];
        let lengths = lengths.map(|params| norm(&weights(params, &gaps)));
        assert_close(&lengths, &[k.sqrt(), 1.0], 1e-12);
        assert_close(&weights(json!({"lambda": 0}), &gaps), &vec![1.0; gaps.len()], 1e-12);
    }

    /// The weights are the gradient of the objective by the losses: finite differences.
    #[test]
    fn weights_are_the_gradient(gaps in prop::collection::vec(-2.0f64..2.0, 2..8), lambda in 0.0f64..5.0) {
        let k = gaps.len() as f64;
        let objective = |gaps: &[f64]| {
            let mean = gaps.iter().sum::<f64>() / k;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / (k - 1.0);
            mean + lambda * variance
        };
        let raw = weights(json!({"lambda": lambda, "norm": "none"}), &gaps);
        for at in 0..gaps.len() {
            let (mut up, mut down) = (gaps.clone(), gaps.clone());
            (up[at], down[at]) = (gaps[at] + 1e-5, gaps[at] - 1e-5);
            let slope = k * (objective(&up) - objective(&down)) / 2e-5;
            prop_assert!((slope - raw[at]).abs() < 1e-5 * (1.0 + slope.abs()));
        }
    }

    #[test]
    fn the_model_is_the_equal_mean(seed: u64, tiers in 1usize..5, nested: bool, lambda in 0.0f64..5.0) {
        let fleet = Fleet::random(seed, tiers, nested);
        let (theta, _) = fleet.combine(&mut eagle(json!({"lambda": lambda})));
        assert_close(&theta, &fleet.weighted_mean(|_| 1.0), 1e-12);
    }

    /// lambda = 0: devices with equal data are told and averaged as in FedAvg.
    #[test]
    fn without_lambda_it_is_fedavg(seed: u64, tiers in 1usize..5, nested: bool) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        for (number, member) in fleet.devices.iter_mut().enumerate() {
            (member.samples, member.more.gap) = (7, Some(number as f64 - 1.5));
        }
        let mut method = eagle(json!({"lambda": 0}));
        let (theta, _) = fleet.combine(&mut method);
        assert_close(&theta, &fleet.combine(&mut by_name("fedavg", Value::Null).unwrap()).0, 1e-12);
        for member in &fleet.devices {
            prop_assert_eq!(told(&*method.strategy, member.device.as_str(), &[]), 1.0);
        }
    }

    /// Secure sums: the server needs K, sum r and sum r^2 alone, in fixed point.
    #[test]
    fn two_sums_are_enough(gaps in prop::collection::vec(-2.0f64..2.0, 2..30), lambda in 0.0f64..5.0) {
        let fixed = |value: f64| (value * f64::from(1u32 << 30)).round() as i64;
        let total = |of: fn(f64) -> f64| {
            gaps.iter().map(|&gap| fixed(of(gap))).sum::<i64>() as f64 / f64::from(1u32 << 30)
        };
        let (k, first, second) = (gaps.len() as f64, total(|gap| gap), total(|gap| gap * gap));
        let mean = first / k;
        let slope = 2.0 * lambda * k / (k - 1.0);
        let norm = (k + slope * slope * (second - k * mean * mean).max(0.0)).sqrt();
        let own: Vec<f64> = gaps.iter().map(|gap| (1.0 + slope * (gap - mean)) * k.sqrt() / norm).collect();
        assert_close(&own, &weights(json!({"lambda": lambda}), &gaps), 1e-6);
    }
}
