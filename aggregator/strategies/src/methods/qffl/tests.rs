use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::by_name,
    methods::fleet::{Fleet, TestDevice, assert_close},
};

fn run(fleet: &Fleet, params: Value) -> Vec<f64> {
    fleet.combine(&mut by_name("qffl", params).unwrap()).0
}

fn worked() -> Fleet {
    let mut fleet = Fleet::new(&[0.5, 0.5], 0.1, &[&[0, 1]]);
    fleet.add("a", 0, 10, 1.0, &[-0.1, 0.0]);
    fleet.add("b", 0, 30, 2.0, &[0.0, -0.2]);
    fleet
}

#[test]
fn worked_numbers() {
    let fleet = worked();
    assert_close(&run(&fleet, json!({"q": 0})), &[0.45, 0.40], 1e-10);
    assert_close(&run(&fleet, json!({"q": 1})), &[0.4714285714, 0.3857142857], 1e-10);
    assert_close(&run(&fleet, Value::Null), &[0.4714285714, 0.3857142857], 1e-10);
    assert_close(&run(&fleet, json!({"q": 2})), &[0.4852941176, 0.3823529412], 1e-10);
    let (_, outcome) = fleet.combine(&mut by_name("qffl", json!({"q": 1})).unwrap());
    assert_close(&outcome.weights, &[1.0 / 3.0, 2.0 / 3.0], 1e-12);
    // L sum F^q / sum h
    assert_close(&[outcome.regions[0].rho.unwrap()], &[30.0 / 35.0], 1e-12);
}

#[test]
fn weights_and_l_can_be_stated() {
    let fleet = worked();
    assert_close(&run(&fleet, json!({"q": 1})), &reference(&fleet, 1.0, 10.0, |_| 0.5), 1e-12);
    let data = reference(&fleet, 1.0, 10.0, |member| f64::from(member.samples) / 40.0);
    assert_close(&run(&fleet, json!({"q": 1, "weighting": "data"})), &data, 1e-12);
    let mut stated = fleet.clone();
    (stated.devices[0].weight, stated.devices[1].weight) = (Some(0.25), Some(0.75));
    assert_close(&run(&stated, json!({"q": 1})), &data, 1e-12);
    stated.lr = 7.0;
    assert_close(&run(&stated, json!({"q": 1, "L": 10})), &data, 1e-12);
    stated.devices[1].weight = Some(0.0);
    assert_close(&run(&stated, json!({"q": 1, "L": 10})), &[0.5 - 0.1 / 1.1, 0.5], 1e-12);
    stated.devices[0].weight = Some(0.0);
    assert_eq!(run(&stated, json!({"q": 1})), stated.theta);
}

#[test]
fn parameters_are_checked() {
    let why = |params: Value| by_name("qffl", params).unwrap_err().to_string();
    assert!(why(json!({"q": -1})).contains("`q` must be 0 or more"));
    assert!(why(json!({"L": 0})).contains("`L` must be above 0"));
    assert!(why(json!({"weighting": "loss"})).contains("equal"));
}

/// The sums as they are printed, parameter by parameter, without logarithms.
fn reference(fleet: &Fleet, q: f64, l: f64, p: impl Fn(&TestDevice) -> f64) -> Vec<f64> {
    let step = |at: usize| {
        let (mut delta, mut bound) = (0.0, 0.0);
        for member in &fleet.devices {
            let Some(update) = fleet.update_at(member, at) else { continue };
            let norm: f64 = member.update.iter().map(|update| (l * update).powi(2)).sum();
            delta += p(member) * member.loss.powf(q) * -l * update;
            bound += p(member) * (q * member.loss.powf(q - 1.0) * norm + l * member.loss.powf(q));
        }
        if bound > 0.0 { delta / bound } else { 0.0 }
    };
    fleet.theta.iter().enumerate().map(|(at, theta)| theta - step(at)).collect()
}

#[test]
fn reweighting_does_not_shorten_the_step() {
    let fleet = worked();
    // 1/3 and 2/3
    assert_close(
        &run(&fleet, json!({"q": 1, "step": "reweight"})),
        &[0.5 - 0.1 / 3.0, 0.5 - 0.4 / 3.0],
        1e-12,
    );
    let (_, outcome) = fleet.combine(&mut by_name("qffl", json!({"q": 1, "step": "reweight"})).unwrap());
    assert_eq!(outcome.regions[0].rho, Some(1.0));
}

proptest! {
    /// theta += sum p F^q D / sum p F^q
    #[test]
    fn reweight_as_stated(seed: u64, tiers in 1usize..5, nested: bool, q in 0.0..10.0f64) {
        let fleet = Fleet::random(seed, tiers, nested);
        for q in [0.0, q] {
            let expected = fleet.weighted_mean(|member| member.loss.powf(q));
            assert_close(&run(&fleet, json!({"q": q, "step": "reweight"})), &expected, 1e-12);
            let expected = fleet.weighted_mean(|member| f64::from(member.samples) * member.loss.powf(q));
            let params = json!({"q": q, "step": "reweight", "weighting": "data"});
            assert_close(&run(&fleet, params), &expected, 1e-12);
        }
    }

    #[test]
    fn as_stated(seed: u64, tiers in 1usize..5, nested: bool, q in 0.0..10.0f64) {
        let fleet = Fleet::random(seed, tiers, nested);
        let l = 1.0 / fleet.lr;
        for q in [0.0, q] {
            assert_close(&run(&fleet, json!({"q": q})), &reference(&fleet, q, l, |_| 1.0), 1e-12);
            let data = reference(&fleet, q, l, |member| f64::from(member.samples));
            assert_close(&run(&fleet, json!({"q": q, "weighting": "data"})), &data, 1e-12);
        }
        assert_close(&run(&fleet, json!({"q": 0})), &fleet.weighted_mean(|_| 1.0), 1e-12);
    }

    /// Property 2, here against the strategy itself.
    #[test]
    fn with_one_tier_it_is_fairheterofl(seed: u64) {
        let mut fleet = Fleet::random(seed, 1, true);
        fleet.devices.iter_mut().for_each(|member| member.weight = Some(1.0));
        let fair = |q: f64, q_m: f64| {
            fleet.combine(&mut by_name("fairheterofl", json!({"q": q, "q_m": q_m, "step": "hessian"})).unwrap()).0
        };
        for q in [0.0, 0.5, 1.0, 5.0, 50.0] {
            assert_close(&run(&fleet, json!({"q": q})), &fair(q, q), 1e-12);
        }
        if fleet.devices.len() > 1 {
            let (one, other) = (run(&fleet, json!({"q": 5})), fair(5.0, 0.0));
            let difference = one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            prop_assert!(difference > 1e-12);
        }
    }

    /// Property 5: only ratios of losses enter the weights, whatever their scale.
    #[test]
    fn losses_of_any_scale(seed: u64, tiers in 1usize..5, nested: bool, power in -8..=8i32) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        let (_, before) = fleet.combine(&mut by_name("qffl", json!({"q": 50})).unwrap());
        fleet.devices.iter_mut().for_each(|member| member.loss *= 10f64.powi(power));
        let (theta, outcome) = fleet.combine(&mut by_name("qffl", json!({"q": 50})).unwrap());
        prop_assert!(theta.iter().all(|value| value.is_finite()));
        prop_assert!(outcome.regions.iter().all(|region| region.moved));
        if fleet.devices.iter().all(|member| member.loss > 1e-10) {
            assert_close(&outcome.weights, &before.weights, 1e-10);
        }
    }
}
