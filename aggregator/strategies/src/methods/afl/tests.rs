use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    combine::combine,
    method::{Method, by_name},
    methods::{
        afl::*,
        fleet::{Fleet, assert_close},
        simplex::project_simplex,
    },
};

fn afl(params: Value) -> Method {
    by_name("afl", params).unwrap()
}

fn lambda(method: &Method) -> Vec<f64> {
    let state = method.state();
    state["lambda"].as_object().unwrap().values().map(|value| value.as_f64().unwrap()).collect()
}

/// Combines with a stated size of the fleet.
fn run(fleet: &Fleet, clients: usize, method: &mut Method) -> Vec<f64> {
    let mut cohort = fleet.cohort();
    cohort.set_clients(clients);
    let mut theta = fleet.theta.clone();
    combine(method, &cohort, &[], &mut fleet.updates(), &mut theta).unwrap();
    theta
}

fn worked() -> Fleet {
    let mut fleet = Fleet::new(&[0.0, 0.0, 0.0], 0.1, &[&[0, 1, 2]]);
    fleet.add("a", 0, 1, 0.5, &[1.0, 0.0, 0.0]);
    fleet.add("b", 0, 2, 1.0, &[0.0, 1.0, 0.0]);
    fleet.add("c", 0, 3, 2.0, &[0.0, 0.0, 1.0]);
    fleet
}

#[test]
fn worked_numbers() {
    let (fleet, mut method) = (worked(), afl(Value::Null));
    let expected = [0.2666666667, 0.3166666667, 0.4166666667];
    assert_close(&fleet.combine(&mut method).0, &[1.0 / 3.0; 3], 1e-12);
    assert_close(&lambda(&method), &expected, 1e-10);
    assert_close(&fleet.combine(&mut method).0, &expected, 1e-10);
}

/// a has 0.3 of 1, so b, c and two clients that were never seen have 0.7 / 4 each.
#[test]
fn clients_that_are_not_named_share_the_rest() {
    let (fleet, mut method) = (worked(), afl(Value::Null));
    method.set_state(json!({"lambda": {"a": 0.3}})).unwrap();
    let theta = run(&fleet, 5, &mut method);
    let all = 0.3 + 2.0 * 0.175;
    assert_close(&theta, &[0.3 / all, 0.175 / all, 0.175 / all], 1e-12);
    let full = project_simplex(&[0.35, 0.275, 0.375, 0.175, 0.175], 1.0);
    assert_close(&lambda(&method), &full[..3], 1e-12);
    // The rest belongs to those two.
    let left = 1.0 - lambda(&method).iter().sum::<f64>();
    assert_close(&[left], &[full[3] + full[4]], 1e-12);
    // In a fleet that is smaller than the state, no client shares the rest.
    let mut method = afl(Value::Null);
    method.set_state(json!({"lambda": {"x": 0.6, "y": 0.1, "z": 0.1, "zz": 0.0}})).unwrap();
    assert_close(&run(&fleet, 3, &mut method), &[1.0 / 3.0; 3], 1e-12);
}

#[test]
fn regions_without_lambda_average() {
    let mut fleet = Fleet::new(&[0.0, 0.0], 0.1, &[&[0, 1], &[0]]);
    fleet.add("a", 0, 1, 1.0, &[1.0, 1.0]);
    fleet.add("b", 0, 9, 1.0, &[3.0, 3.0]);
    fleet.add("c", 1, 1, 1.0, &[8.0]);
    let mut method = afl(Value::Null);
    method.set_state(json!({"lambda": {"a": 0, "b": 0, "c": 1}})).unwrap();
    assert_close(&fleet.combine(&mut method).0, &[8.0, 2.0], 1e-12);
    method.set_state(json!({"lambda": {"a": 0, "b": 0, "c": 0, "d": 1}})).unwrap();
    let (theta, outcome) = fleet.combine(&mut method);
    assert_close(&theta, &[4.0, 2.0], 1e-12);
    assert_close(&outcome.weights, &[1.0 / 3.0; 3], 1e-12);
    method.set_state(json!({"lambda": {"a": 5e-324, "b": 0, "c": 0, "d": 1}})).unwrap();
    assert_close(&fleet.combine(&mut method).0, &[4.0, 2.0], 1e-12);
}

#[test]
fn states_and_parameters_are_checked() {
    let mut method = afl(Value::Null);
    for bad in [json!({"a": -0.1}), json!({"a": 0.6, "b": 0.6}), json!({"a": "x"}), json!([1])] {
        let why = method.set_state(json!({ "lambda": bad })).unwrap_err().to_string();
        assert!(why.contains("afl"), "{why}");
    }
    assert!(method.set_state(json!({"mu": {}})).is_err());
    method.set_state(json!({"lambda": {"a": 0.5}})).unwrap();
    method.set_state(Value::Null).unwrap();
    assert_eq!(method.state(), Value::Null);
    assert!(by_name("afl", json!({"gamma_lambda": -1})).is_err());
}

#[test]
fn losses_of_any_size_leave_lambda_in_the_simplex() {
    let mut fleet = worked();
    for losses in [[0.0, 1e-12, 1e8], [1e300, 1e300, 0.0], [f64::MAX, f64::MAX, f64::MAX]] {
        fleet.devices.iter_mut().zip(losses).for_each(|(member, loss)| member.loss = loss);
        let mut method = afl(json!({"gamma_lambda": 0.7}));
        let _ = fleet.combine(&mut method);
        assert!((lambda(&method).iter().sum::<f64>() - 1.0).abs() < 1e-12, "{losses:?}");
        assert!(fleet.combine(&mut method).0.iter().all(|value| value.is_finite()));
    }
}

proptest! {
    /// Property 16, and several rounds of partial participation against lambda written out for all.
    #[test]
    fn lambda_stays_in_the_simplex(
        seed: u64, tiers in 1usize..5, nested: bool, gamma in 0.01..0.7f64, more in 0usize..4, rounds in 1usize..5
    ) {
        let full = Fleet::random(seed, tiers, nested);
        let clients = full.devices.len() + more;
        let mut method = afl(json!({"gamma_lambda": gamma}));
        let mut all: BTreeMap<String, f64> = full
            .devices
            .iter()
            .map(|member| member.device.to_string())
            .chain((0..more).map(|number| format!("unseen{number}")))
            .map(|id| (id, 1.0 / clients as f64))
            .collect();
        for round in 0..rounds {
            let mut fleet = full.clone();
            let keep = |number: usize| (seed >> ((number + 7 * round) % 60)) & 1 == 0;
            fleet.devices = (0..).zip(&full.devices).filter(|(number, _)| keep(*number)).map(|(_, m)| m.clone()).collect();
            if fleet.devices.is_empty() {
                continue;
            }
            let theta = run(&fleet, clients, &mut method);
            let total: f64 = fleet.devices.iter().map(|member| all[member.device.as_str()]).sum();
            if total > 1e-9 && tiers == 1 {
                assert_close(&theta, &fleet.weighted_mean(|member| all[member.device.as_str()]), 1e-9);
            }
            for member in &fleet.devices {
                *all.get_mut(member.device.as_str()).unwrap() += gamma * member.loss;
            }
            let projected = project_simplex(&all.values().copied().collect::<Vec<_>>(), 1.0);
            all.values_mut().zip(projected).for_each(|(lambda, projected)| *lambda = projected);
            let state = method.state();
            for (id, value) in state["lambda"].as_object().unwrap() {
                prop_assert!((value.as_f64().unwrap() - all[id]).abs() < 1e-12);
            }
            prop_assert!(lambda(&method).iter().all(|&lambda| lambda >= 0.0));
            prop_assert!(lambda(&method).iter().sum::<f64>() <= 1.0 + 1e-12);
        }
    }

    #[test]
    fn equal_losses_keep_lambda(seed: u64, loss in 0.0..10.0f64) {
        let mut fleet = Fleet::random(seed, 2, true);
        let mut method = afl(Value::Null);
        let _ = fleet.combine(&mut method);
        let before = lambda(&method);
        fleet.devices.iter_mut().for_each(|member| member.loss = loss);
        let _ = fleet.combine(&mut method);
        assert_close(&lambda(&method), &before, 1e-12);
    }
}
