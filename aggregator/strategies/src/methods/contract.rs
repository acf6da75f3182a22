//! Requirements on every strategy, whatever it computes. Runs over [`crate::registry::Registry::standard().names()`].

use common::Code;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    combine::combine,
    method::{Method, by_name},
    methods::fleet::{Fleet, assert_close},
    registry::Registry,
};

fn each(mut check: impl FnMut(&str, Method)) {
    each_anew(|name, new| check(name, new()));
}

/// With what makes the method once more.
fn each_anew(mut check: impl FnMut(&str, &dyn Fn() -> Method)) {
    for name in Registry::standard().names() {
        check(name, &|| by_name(name, Value::Null).unwrap());
    }
    // Another algorithm under the same name.
    check("aaggff", &|| by_name("aaggff", json!({"form": "silos"})).unwrap());
}

#[test]
fn every_strategy_and_every_parameter_is_documented() {
    for strategy in Registry::standard().describe().unwrap() {
        assert!(!strategy.about.is_empty(), "{}", strategy.name);
        for parameter in strategy.parameters {
            assert!(!parameter.about.is_empty(), "{} of {}", parameter.key, strategy.name);
        }
    }
}

#[test]
fn names_and_keys_are_checked() {
    let unknown = by_name("fedavgg", Value::Null).unwrap_err().to_string();
    each(|name, strategy| {
        assert_eq!(strategy.name(), name);
        assert!(unknown.contains(name), "{unknown}");
        let key = by_name(name, json!({"no_such_key": 1})).unwrap_err().to_string();
        assert!(key.contains(name) && key.contains("no_such_key"), "{key}");
        assert!(by_name(name, json!([1])).is_err());
    });
    assert!(by_name("fedavg", json!({"eta": 0.5, "scaler": true})).unwrap().needs().scaler);
}

/// Presets, with the parameters that they stand for.
fn presets() -> [(&'static str, Value, Value); 5] {
    let fair = json!({"q": 3, "q_m": 0.5, "L": 7});
    let mut stated = fair.clone();
    for (key, value) in [("step", "hessian"), ("hessian", "literal"), ("norm", "region")] {
        stated[key] = value.into();
    }
    let fedfb = json!({"alpha": 0.1, "normalize_mu": true, "signal": "cross_entropy"});
    let all = [
        ("fairheterofl", fair, stated),
        ("eagle", json!({"lambda": 2}), json!({"lambda": 2, "norm": "unit"})),
        ("fedlf", json!({}), json!({"normalize_rows": false})),
        ("fedfb", json!({"alpha": 0.1}), fedfb),
        ("fedeba_plus", json!({"tau": 1, "align": "model", "Theta": 30}), json!({"tau": 1})),
    ];
    all.map(|(name, mut preset, stated)| {
        preset["published"] = true.into();
        (name, preset, stated)
    })
}

#[test]
fn published_presets_are_what_they_say() {
    for (name, preset, stated) in presets() {
        let method = |params: &Value| by_name(name, params.clone()).unwrap();
        assert_eq!(method(&preset).needs(), method(&stated).needs(), "{name}");
        for seed in 0..20 {
            let fleet = Fleet::random(seed, 3, true);
            assert_eq!(fleet.combine(&mut method(&preset)), fleet.combine(&mut method(&stated)), "{name}");
        }
    }
}

#[test]
fn forms_are_told_apart() {
    for (name, preset, stated) in presets() {
        let form = |params: &Value, lr: f64| by_name(name, params.clone()).unwrap().strategy.as_published(lr);
        assert_eq!((form(&preset, 0.1), form(&stated, 0.1)), (Some(true), Some(true)), "{name}");
        // Ours is the default, except where only the learning rate differs.
        assert_eq!(form(&Value::Null, 0.02), Some(false), "{name}");
    }
    for (name, params) in [("fedavg", json!({})), ("fairheterofl", json!({"q": 0, "q_m": 0}))] {
        assert_eq!(by_name(name, params).unwrap().strategy.as_published(0.1), None, "{name}");
    }
}

#[test]
fn published_forms_take_other_steps() {
    let step =
        |fleet: &Fleet, name: &str, params: Value| fleet.combine(&mut by_name(name, params).unwrap()).0;
    for name in ["fairheterofl", "fedlf"] {
        // A direction may be the same in both forms, for example 0.
        let differs = |seed: u64| {
            let fleet = Fleet::random(seed, 2, true);
            step(&fleet, name, json!({"published": true})) != step(&fleet, name, Value::Null)
        };
        assert!((0..50).any(differs), "{name}");
    }
}

#[test]
fn an_empty_round_moves_nothing() {
    each(|name, mut strategy| {
        let mut fleet = Fleet::random(5, 3, true);
        fleet.devices.clear();
        let (theta, outcome) = fleet.combine(&mut strategy);
        assert_eq!((theta, outcome.kept), (fleet.theta.clone(), Some(Code::EmptyRound)), "{name}");
    });
}

#[test]
fn failed_devices_are_dropped_before_weights() {
    each_anew(|name, new| {
        let mut strategy = new();
        let clean = Fleet::random(8, 2, true);
        let mut dirty = clean.clone();
        let update = vec![1.0; clean.tiers[0].len()];
        let mut bad = update.clone();
        bad[0] = f64::NAN;
        dirty.add("x0", 0, 0, 1.0, &update);
        dirty.add("x1", 0, 9, f64::NAN, &update);
        dirty.add("x2", 0, 9, f64::INFINITY, &update);
        dirty.add("x3", 0, 9, 1.0, &bad);
        dirty.add("x4", 0, 9, 1.0, &update[1..]);
        let (expected, _) = clean.combine(&mut strategy);
        let mut again = new();
        let (theta, outcome) = dirty.combine(&mut again);
        assert_eq!(theta, expected, "{name}");
        let codes: Vec<_> = outcome.refused.iter().map(|refused| refused.code).collect();
        let expected = [
            Code::EmptyShard,
            Code::NonFiniteLoss,
            Code::NonFiniteLoss,
            Code::NonFiniteUpdate,
            Code::WrongShape,
        ];
        assert_eq!(codes, expected, "{name}");
    });
}

#[test]
fn a_result_that_is_not_finite_keeps_model_and_state() {
    each(|name, mut strategy| {
        let mut fleet = Fleet::new(&[f64::MAX, 1.0], 0.1, &[&[0, 1]]);
        fleet.add("a", 0, 1, 1.0, &[1e150, 1.0]);
        let before = strategy.save();
        let mut theta = [f32::MAX, 1.0];
        let outcome = combine(&mut strategy, &fleet.cohort(), &[], &mut fleet.updates(), &mut theta).unwrap();
        // A strategy may shorten the step so much that the result stays finite.
        if outcome.kept.is_some() {
            assert_eq!(outcome.kept, Some(Code::NonFiniteResult), "{name}");
            assert_eq!(theta, [f32::MAX, 1.0], "{name}");
            assert_eq!(strategy.save(), before, "{name}");
        }
        assert!(theta.iter().all(|value| value.is_finite()), "{name}");
    });
}

#[test]
fn state_survives_and_foreign_state_is_refused() {
    each_anew(|name, new| {
        let mut strategy = new();
        let fleet = Fleet::random(3, 2, true);
        let _ = fleet.combine(&mut strategy);
        let mut resumed = new();
        resumed.restore(&strategy.save()).unwrap();
        assert_eq!(fleet.combine(&mut strategy), fleet.combine(&mut resumed), "{name}");
        assert!(resumed.restore(&[0xff; 7]).is_err(), "{name}");
    });
}

#[test]
fn server_learning_rate_scales_the_step_unless_eta_is_given() {
    let fleet = Fleet::random(3, 2, true);
    let step = |params: Value, server_lr: f64| -> Vec<f64> {
        let mut cohort = fleet.cohort();
        cohort.server_lr = server_lr;
        let mut theta = fleet.theta.clone();
        let mut strategy = by_name("fedavg", params).unwrap();
        combine(&mut strategy, &cohort, &[], &mut fleet.updates(), &mut theta).unwrap();
        theta.iter().zip(&fleet.theta).map(|(new, old)| new - old).collect()
    };
    let whole = step(Value::Null, 1.0);
    let half: Vec<f64> = whole.iter().map(|step| step / 2.0).collect();
    assert_close(&step(Value::Null, 0.5), &half, 1e-12);
    assert_close(&step(json!({"eta": 0.5}), 7.0), &half, 1e-12);
    assert_close(&step(json!({"eta": 1}), 7.0), &whole, 1e-12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn arrival_order_does_not_matter(seed: u64, tiers in 1usize..5, nested: bool, shuffle: u64) {
        each(|_, mut strategy| {
            let fleet = Fleet::random(seed, tiers, nested);
            let mut shuffled = fleet.clone();
            common::rng::Rng::new(shuffle).shuffle(&mut shuffled.devices);
            let state = strategy.save();
            let one = fleet.combine(&mut strategy);
            strategy.restore(&state).unwrap();
            assert_eq!(one, shuffled.combine(&mut strategy));
        });
    }

    #[test]
    fn weights_are_shares(seed: u64, tiers in 1usize..5, nested: bool) {
        each(|name, mut strategy| {
            let (_, outcome) = Fleet::random(seed, tiers, nested).combine(&mut strategy);
            assert!(outcome.weights.iter().all(|&weight| weight >= 0.0));
            // The direction may be 0 everywhere if gradients oppose each other.
            let all = outcome.weights.iter().sum::<f64>();
            let still = strategy.strategy.scope().is_some() && outcome.regions.iter().all(|region| !region.moved);
            assert!((all - if still { 0.0 } else { 1.0 }).abs() < 1e-12, "{name}");
        });
    }

    #[test]
    fn regions_without_devices_keep_their_value(seed: u64, tiers in 2usize..5, nested: bool, gone in 0usize..4) {
        each(|name, mut strategy| {
            let mut fleet = Fleet::random(seed, tiers, nested);
            fleet.devices.retain(|member| member.tier != gone % tiers);
            let (theta, outcome) = fleet.combine(&mut strategy);
            let mut held = vec![false; theta.len()];
            fleet.devices.iter().flat_map(|member| &fleet.tiers[member.tier]).for_each(|&at| held[at] = true);
            for at in (0..theta.len()).filter(|&at| !held[at]) {
                assert_eq!(theta[at], fleet.theta[at], "{name}");
            }
            for region in &outcome.regions {
                // The direction of a region may be 0 if gradients oppose each other.
                let still = strategy.strategy.scope().is_some() && !region.moved;
                assert!(still || (region.participants > 0) == region.moved, "{name}");
            }
        });
    }

    #[test]
    fn hostile_numbers_give_a_finite_model(
        seed: u64,
        tiers in 1usize..5,
        nested: bool,
        losses in prop::collection::vec(prop::sample::select(vec![0.0, 1e-12, 1e-8, 1.0, 1e8, 1e300]), 20),
        sizes in prop::collection::vec(prop::sample::select(vec![0.0, 1e-30, 1.0, 1e30, 1e38]), 20),
    ) {
        each(|name, mut strategy| {
            let mut fleet = Fleet::random(seed, tiers, nested);
            for ((member, loss), size) in fleet.devices.iter_mut().zip(&losses).zip(&sizes) {
                member.loss = *loss;
                member.update.iter_mut().for_each(|value| *value = (*value * size).clamp(-3e38, 3e38));
            }
            let mut theta: Vec<f32> = fleet.theta.iter().map(|&value| value as f32).collect();
            let outcome = combine(&mut strategy, &fleet.cohort(), &[], &mut fleet.updates(), &mut theta).unwrap();
            assert!(theta.iter().all(|value| value.is_finite()), "{name}");
            assert!(outcome.weights.iter().all(|weight| weight.is_finite()), "{name}");
        });
    }
}
