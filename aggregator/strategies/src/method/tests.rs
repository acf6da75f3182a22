//! The options that any strategy takes.

use std::collections::BTreeMap;

use common::brief::{Brief, SelfRegular};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    combine::combine,
    error::CombineError,
    method::{Method, StrategyError, by_name},
    methods::fleet::{Fleet, assert_close},
};

fn samples(member: &crate::methods::fleet::TestDevice) -> f64 {
    f64::from(member.samples)
}

/// The devices of the fleet that this round draws.
fn drawn(full: &Fleet, theta: &[f64], seed: u64, round: usize) -> Fleet {
    let mut fleet = Fleet { theta: theta.to_vec(), ..full.clone() };
    let mut number = 0;
    fleet.devices.retain(|_| {
        number += 1;
        (seed >> ((number + 7 * round) % 60)) & 1 == 0
    });
    for member in &mut fleet.devices {
        member.update.iter_mut().for_each(|value| *value *= 1.0 + round as f64);
    }
    fleet
}

fn combine_of(fleet: &Fleet, clients: usize, method: &mut Method) -> Vec<f64> {
    let mut cohort = fleet.cohort();
    cohort.set_clients(clients);
    let mut theta = fleet.theta.clone();
    combine(method, &cohort, &[], &mut fleet.updates(), &mut theta).unwrap();
    theta
}

#[test]
fn momentum_by_hand() {
    let mut fleet = Fleet::new(&[0.0, 0.0], 0.1, &[&[0, 1], &[0]]);
    fleet.add("a", 0, 1, 1.0, &[1.0, 1.0]);
    fleet.add("b", 1, 1, 1.0, &[3.0]);
    let mut method = by_name("fedavg", json!({"server_momentum": 0.5})).unwrap();
    fleet.theta = fleet.combine(&mut method).0;
    assert_eq!(fleet.theta, [2.0, 1.0]);
    let all = fleet.devices.clone();
    fleet.devices.remove(0);
    // No device holds the second parameter: it stays, and so does its momentum.
    fleet.theta = fleet.combine(&mut method).0;
    assert_eq!(fleet.theta, [2.0 + 4.0, 1.0]);
    assert_eq!(method.state()["momentum"], json!([4.0, 1.0]));
    fleet.devices = all;
    assert_eq!(fleet.combine(&mut method).0, [6.0 + 4.0, 1.0 + 1.5]);
}

#[test]
fn momentum_is_a_number_or_off() {
    let beta = |value: Value| {
        by_name("fedavg", json!({ "server_momentum": value })).unwrap().momentum.map(|momentum| momentum.beta)
    };
    assert_eq!([beta(json!(false)), beta(json!(true)), beta(json!(0.5))], [None, Some(0.9), Some(0.5)]);
    for bad in [json!(1), json!(-0.1), json!("x")] {
        let why = by_name("fedavg", json!({ "server_momentum": bad })).unwrap_err().to_string();
        assert!(why.contains("server_momentum"), "{why}");
    }
}

#[test]
fn self_regularisation_reaches_devices() {
    let told = |name: &str, params: Value| {
        let method = by_name(name, params).unwrap();
        let mut brief = Brief::sgd(1, 10, 0.1, 0);
        method.brief(&"a".parse().unwrap(), &[], &mut brief);
        (brief.objective, method.needs().gradients)
    };
    let default =
        SelfRegular { sharpen: 0.5, soften: 3.0, gamma: 0.4, augment: common::brief::Augment::Noise(0.05) };
    for name in ["fedavg", "prac_fedeba", "term"] {
        let (objective, gradients) = told(name, json!({"lsr": true}));
        assert_eq!((objective.robust, gradients), (Some(default), true), "{name}");
        assert_eq!(told(name, Value::Null), (Default::default(), false), "{name}");
    }
    // In addition to the strategy's own brief.
    let (objective, _) = told("fedprox", json!({"mu": 2, "lsr": {"Ts": 1, "gamma_reg": 0}}));
    assert_eq!(objective.prox, 2.0);
    assert_eq!(objective.robust, Some(SelfRegular { sharpen: 1.0, gamma: 0.0, ..default }));
    for bad in [json!({"Ts": 0}), json!({"Td": -1}), json!({"gamma_reg": -1}), json!({"T": 1}), json!(3)] {
        let why = by_name("fedavg", json!({ "lsr": bad })).unwrap_err().to_string();
        assert!(why.contains("lsr"), "{why}");
    }
}

#[test]
fn varp_needs_one_tier_and_plain_updates() {
    let fleet = Fleet::random(3, 2, true);
    let mut method = by_name("fedavg", json!({"varp": true})).unwrap();
    let error = method.fits(&fleet.regions).unwrap_err();
    assert_eq!(error, StrategyError::OneTier { key: "varp", tiers: 2 });
    let mut theta = fleet.theta.clone();
    let error = combine(&mut method, &fleet.cohort(), &[], &mut fleet.updates(), &mut theta).unwrap_err();
    assert!(matches!(error, CombineError::Strategy(StrategyError::OneTier { .. })), "{error}");
    assert_eq!(theta, fleet.theta);
    assert!(method.is_buffered());
    for (name, params) in
        [("fedsgd", json!({"varp": true})), ("fedeba_plus", json!({"varp": true, "align": "model"}))]
    {
        assert!(by_name(name, params).unwrap_err().to_string().contains("`varp` needs plain updates"));
    }
}

/// Samples differ, but every device counts the same, as published.
#[test]
fn varp_by_hand() {
    let mut fleet = Fleet::new(&[0.0], 0.1, &[&[0]]);
    fleet.add("a", 0, 1, 1.0, &[1.0]);
    fleet.add("b", 0, 3, 1.0, &[5.0]);
    let mut method = by_name("fedavg", json!({"varp": true})).unwrap();
    fleet.theta = combine_of(&fleet, 4, &mut method);
    assert_eq!(fleet.theta, [3.0]);
    fleet.devices.remove(0);
    fleet.devices[0].update = vec![7.0];
    // (7 - 5) + (1 + 5) / 4
    assert_eq!(combine_of(&fleet, 4, &mut method), [3.0 + 2.0 + 1.5]);
    assert_eq!(method.state()["varp"], json!({"a": [1.0], "b": [7.0]}));
}

proptest! {
    #[test]
    fn momentum_rests_where_nobody_is(seed: u64, tiers in 1usize..5, nested: bool, beta in 0.0..0.99f64) {
        let full = Fleet::random(seed, tiers, nested);
        let mut method = by_name("fedavg", json!({ "server_momentum": beta })).unwrap();
        let (mut theta, mut buffer) = (full.theta.clone(), vec![0.0; full.theta.len()]);
        for round in 0..4 {
            let fleet = drawn(&full, &theta, seed, round);
            let plain = fleet.weighted_mean(samples);
            for at in 0..theta.len() {
                if fleet.devices.iter().any(|member| fleet.update_at(member, at).is_some()) {
                    buffer[at] = beta * buffer[at] + (plain[at] - fleet.theta[at]);
                    theta[at] += buffer[at];
                }
            }
            // Restarted in every round.
            let mut resumed = by_name("fedavg", json!({ "server_momentum": beta })).unwrap();
            resumed.restore(&method.save()).unwrap();
            let (next, _) = fleet.combine(&mut method);
            assert_close(&next, &theta, 1e-12);
            prop_assert_eq!(fleet.combine(&mut resumed).0, next);
        }
    }

    #[test]
    fn varp_as_stated(seed: u64, more in 0usize..4, eta in 0.1..2.0f64) {
        let full = Fleet::random(seed, 1, true);
        let clients = full.devices.len() + more;
        for name in ["fedavg", "heterofl", "fedprox", "fairheterofl"] {
            let params = match name {
                "fairheterofl" => json!({"varp": true, "q": 0, "q_m": 0}),
                _ => json!({"varp": true}),
            };
            let mut method = by_name(name, params.clone()).unwrap();
            let mut theta = full.theta.clone();
            let mut last: BTreeMap<_, Vec<f64>> = BTreeMap::new();
            for round in 0..4 {
                let fleet = drawn(&full, &theta, seed, round);
                if fleet.devices.is_empty() {
                    continue;
                }
                let mut step = vec![0.0; theta.len()];
                for member in &fleet.devices {
                    let y = last.get(&member.device).cloned().unwrap_or(vec![0.0; theta.len()]);
                    let count = fleet.devices.len() as f64;
                    (0..theta.len()).for_each(|at| step[at] += (member.update[at] - y[at]) / count);
                }
                for y in last.values() {
                    (0..theta.len()).for_each(|at| step[at] += y[at] / clients as f64);
                }
                last.extend(fleet.devices.iter().map(|member| (member.device.clone(), member.update.clone())));
                let mut resumed = by_name(name, params.clone()).unwrap();
                resumed.restore(&method.save()).unwrap();
                let mut cohort = fleet.cohort();
                cohort.set_clients(clients);
                cohort.server_lr = eta;
                let mut next = fleet.theta.clone();
                let outcome = combine(&mut resumed, &cohort, &[], &mut fleet.updates(), &mut next).unwrap();
                method = resumed;
                let expected: Vec<f64> = theta.iter().zip(&step).map(|(theta, step)| theta + eta * step).collect();
                assert_close(&next, &expected, 1e-12);
                let share = 1.0 / fleet.devices.len() as f64;
                prop_assert!(outcome.weights.iter().all(|weight| (weight - share).abs() < 1e-12));
                theta = next;
            }
        }
    }

    /// Strategies with weights of their own keep them.
    #[test]
    fn varp_with_other_weights(seed: u64) {
        let fleet = Fleet::random(seed, 1, true);
        let mut method = by_name("term", json!({"t": 2, "varp": true})).unwrap();
        let (first, outcome) = fleet.combine(&mut method);
        let plain = fleet.combine(&mut by_name("term", json!({"t": 2})).unwrap());
        assert_close(&first, &plain.0, 1e-12);
        let again = Fleet { theta: first, ..fleet };
        // Every device sends the same again: only the mean of the stored updates is left.
        let (second, _) = again.combine(&mut method);
        assert_close(&second, &again.weighted_mean(|_| 1.0), 1e-12);
        assert_close(&outcome.weights, &plain.1.weights, 1e-12);
    }
}
