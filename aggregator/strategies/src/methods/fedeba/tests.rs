use common::rng::Rng;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    combine::Outcome,
    method::by_name,
    methods::fleet::{Fleet, assert_close},
};

fn run(fleet: &Fleet, params: Value) -> (Vec<f64>, Outcome) {
    fleet.combine(&mut by_name("fedeba", params).unwrap())
}

fn weights(fleet: &Fleet, params: Value) -> Vec<f64> {
    run(fleet, params).1.weights
}

/// One tier; losses after training are those given, so that weights follow them.
fn three(losses: [f64; 3]) -> Fleet {
    let mut fleet = Fleet::new(&[0.0, 0.0], 0.1, &[&[0, 1]]);
    for (number, loss) in losses.into_iter().enumerate() {
        let id = ["a", "b", "c"][number];
        fleet.add(id, 0, [50, 30, 20][number], 7.0, &[[0.1, 0.0], [0.0, 0.2], [-0.1, 0.1]][number]);
        fleet.devices[number].loss_after = loss;
    }
    fleet
}

/// The weights in the order of the fleet's devices.
fn in_order(fleet: &Fleet, weights: &[f64]) -> Vec<f64> {
    let mut ids: Vec<_> = fleet.devices.iter().map(|member| &member.device).collect();
    ids.sort();
    let place = |device| ids.iter().position(|id| *id == device).unwrap();
    fleet.devices.iter().map(|member| weights[place(&member.device)]).collect()
}

#[test]
fn worked_numbers() {
    let fleet = three([0.5, 1.0, 2.0]);
    let expect = |params: Value, expected: [f64; 3]| assert_close(&weights(&fleet, params), &expected, 1e-10);
    expect(json!({"tau": 1}), [0.1402443832, 0.2312238976, 0.6285317192]);
    expect(json!({"tau": 0.5}), [0.0420100661, 0.1141951994, 0.8437947345]);
    expect(json!({"tau": 1, "prior": "data"}), [0.2644167697, 0.2615697315, 0.4740134987]);
    expect(json!({"tau": 0.05}), [2.9994e-6, 2.079645e-4, 0.9997890361]);
    let after = weights(&three([0.2, 0.6, 1.5]), json!({"tau": 1}));
    assert_close(&after, &[0.1623081158, 0.2421352558, 0.5955566284], 1e-10);
    let (theta, outcome) = run(&fleet, json!({"tau": 1}));
    let w = &outcome.weights;
    assert_close(&theta, &[0.1 * w[0] - 0.1 * w[2], 0.2 * w[1] + 0.1 * w[2]], 1e-12);
}

#[test]
fn annealed_by_the_round() {
    let mut fleet = three([0.5, 1.0, 2.0]);
    fleet.round = 11;
    for (anneal, tau) in [("constant", 1.0), ("linear", 0.5), ("concave", 0.5f64.sqrt()), ("convex", 0.125)] {
        let annealed = weights(&fleet, json!({"tau": 1, "anneal": anneal}));
        assert_close(&annealed, &weights(&fleet, json!({ "tau": tau })), 1e-12);
    }
}

#[test]
fn without_reweighting_it_is_fedavg() {
    let fleet = Fleet::random(4, 3, false);
    let (theta, outcome) = run(&fleet, json!({"reweight": false}));
    let (expected, plain) = fleet.combine(&mut by_name("fedavg", Value::Null).unwrap());
    assert_close(&theta, &expected, 1e-12);
    assert_close(&outcome.weights, &plain.weights, 1e-12);
    assert!(by_name("fedeba", Value::Null).unwrap().needs().loss_after);
    assert!(!by_name("fedeba", json!({"reweight": false})).unwrap().needs().loss_after);
}

#[test]
fn parameters_are_checked() {
    let why = |params: Value| by_name("fedeba", params).unwrap_err().to_string();
    assert!(why(json!({"tau": 0})).contains("`tau` must be above 0"));
    assert!(why(json!({"eps_p": 1})).contains("`eps_p` must lie in [0, 1)"));
    assert!(why(json!({"kappa": -1})).contains("`kappa`"));
    assert!(why(json!({"anneal": "cosine"})).contains("concave"));
    assert!(why(json!({"alpha": 0.5})).contains("unknown field `alpha`"));
}

/// f1 = 2(x-2)^2, f2 = (x+4)^2/2, one step of gradient descent per round.
fn toy(name: &str, params: Value, lr: f64, rounds: usize) -> (f64, f64) {
    let losses = |x: f64| [2.0 * (x - 2.0).powi(2), (x + 4.0).powi(2) / 2.0];
    let mut fleet = Fleet::new(&[0.8], lr, &[&[0]]);
    fleet.add("a", 0, 1, 0.0, &[0.0]);
    fleet.add("b", 0, 1, 0.0, &[0.0]);
    let mut method = by_name(name, params).unwrap();
    for _ in 0..rounds {
        let x = fleet.theta[0];
        let slopes = [4.0 * (x - 2.0), x + 4.0];
        for ((member, loss), slope) in fleet.devices.iter_mut().zip(losses(x)).zip(slopes) {
            (member.loss, member.loss_after, member.update) = (loss, loss, vec![-lr * slope]);
        }
        fleet.theta = fleet.combine(&mut method).0;
    }
    let x = fleet.theta[0];
    let [one, other] = losses(x);
    (x, (one - other).powi(2) / 4.0)
}

#[test]
fn stationary_points_of_the_toy() {
    let cases = [
        (0.001, 1e-5, 30_000, 5.776e-5, 5e-9, 1.2e-7, 5e-9),
        (0.1, 1e-3, 5000, 0.00574442, 5e-9, 0.0011862, 5e-8),
        (1.0, 1e-2, 5000, 0.05469381, 5e-9, 0.1062234, 5e-8),
        (10.0, 0.1, 1000, 0.35790717, 5e-9, 4.2081183, 5e-8),
        (100.0, 0.1, 1000, 0.72249193, 5e-9, 15.5508423, 5e-8),
        (1e12, 0.1, 1000, 0.8, 5e-9, 18.6624, 5e-8),
    ];
    for (tau, lr, rounds, x, near, variance, close) in cases {
        for name in ["fedeba", "prac_fedeba"] {
            let found = toy(name, json!({"tau": tau, "eps_p": 0}), lr, rounds);
            assert!(
                (found.0 - x).abs() <= near && (found.1 - variance).abs() <= close,
                "{name} {tau}: {found:?}"
            );
        }
    }
    let (x, variance) = toy("qffl", json!({"q": 1}), 0.05, 5000);
    assert!((x - 0.29537808).abs() <= 5e-9 && (variance - 2.9132766).abs() <= 5e-8, "{x} {variance}");
    let (x, _) = toy("qffl", json!({"q": 5}), 0.05, 50_000);
    assert!((x - 0.08311742).abs() <= 5e-9, "{x}");
}

proptest! {
    #[test]
    fn the_weighted_mean_of_its_weights(
        seed: u64, tiers in 1usize..5, nested: bool, tau in 0.3..5.0f64, prior: bool
    ) {
        let fleet = Fleet::random(seed, tiers, nested);
        let params = json!({"tau": tau, "eps_p": 0, "prior": if prior { "data" } else { "none" }});
        let expected = fleet.weighted_mean(|member| {
            (if prior { f64::from(member.samples) } else { 1.0 }) * (member.loss_after / tau).exp()
        });
        assert_close(&run(&fleet, params).0, &expected, 1e-12);
    }

    /// Property 8.
    #[test]
    fn limits_of_the_temperature(seed: u64, tiers in 1usize..5, nested: bool) {
        let fleet = Fleet::random(seed, tiers, nested);
        let count = fleet.devices.len();
        let hot = weights(&fleet, json!({"tau": 1e9}));
        prop_assert!(hot.iter().all(|weight| (weight * count as f64 - 1.0).abs() < 1e-6));
        let (_, plain) = fleet.combine(&mut by_name("fedavg", Value::Null).unwrap());
        assert_close(&weights(&fleet, json!({"tau": 1e9, "prior": "data"})), &plain.weights, 1e-6);
        let cold = in_order(&fleet, &weights(&fleet, json!({"tau": 1e-9, "eps_p": 0})));
        let worst = (0..count).max_by(|&a, &b| fleet.devices[a].loss.total_cmp(&fleet.devices[b].loss)).unwrap();
        prop_assert!(cold[worst] > 1.0 - 1e-9);
        for eps_p in [1e-6f64, 1e-3, 0.01] {
            for prior in ["none", "data"] {
                let clamped = weights(&fleet, json!({"tau": 1e-9, "eps_p": eps_p, "prior": prior}));
                // The prior itself may be below the limit for a device; then only the prior is guaranteed.
                let bound = match prior {
                    "none" => eps_p.min(1.0 / count as f64),
                    _ => plain.weights.iter().copied().fold(eps_p, f64::min),
                };
                prop_assert!(clamped.iter().all(|&weight| weight >= bound * (1.0 - 1e-9)), "{clamped:?}");
            }
        }
    }

    /// Property 8.
    #[test]
    fn shifts_permutations_and_term(seed: u64, tiers in 1usize..5, nested: bool, shift in 0.0..10.0f64, tau in 0.05..5.0f64) {
        let fleet = Fleet::random(seed, tiers, nested);
        let mut shifted = fleet.clone();
        shifted.devices.iter_mut().for_each(|member| member.loss_after += shift);
        let params = json!({ "tau": tau });
        assert_close(&run(&shifted, params.clone()).0, &run(&fleet, params.clone()).0, 1e-10);
        assert_close(&weights(&shifted, params.clone()), &weights(&fleet, params.clone()), 1e-10);

        // Other names for the same devices: the same weights under those names.
        let mut renamed = fleet.clone();
        let mut names: Vec<_> = fleet.devices.iter().map(|member| member.device.clone()).collect();
        Rng::new(seed).shuffle(&mut names);
        renamed.devices.iter_mut().zip(names).for_each(|(member, name)| member.device = name);
        let (one, other) = (run(&fleet, params.clone()), run(&renamed, params));
        assert_close(&in_order(&renamed, &other.1.weights), &in_order(&fleet, &one.1.weights), 1e-12);
        assert_close(&other.0, &one.0, 1e-12);

        let mut before = fleet.clone();
        before.devices.iter_mut().for_each(|member| member.loss = member.loss_after);
        let term = before.combine(&mut by_name("term", json!({"t": 1.0 / tau})).unwrap());
        let eba = run(&fleet, json!({"tau": tau, "eps_p": 0, "prior": "data"}));
        assert_close(&eba.0, &term.0, 1e-12);
        assert_close(&eba.1.weights, &term.1.weights, 1e-12);
    }

    #[test]
    fn hostile_losses(
        seed: u64, tiers in 1usize..5, nested: bool, eps_p in prop::sample::select(vec![0.0, 1e-6, 0.5]),
        losses in prop::collection::vec(prop::sample::select(vec![0.0, 1e-12, 1.0, 1e8, 1e300]), 20),
        tau in prop::sample::select(vec![1e-300, 0.1, 1e300]),
    ) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        fleet.round = 4_000_000_000;
        fleet.devices.iter_mut().zip(&losses).for_each(|(member, &loss)| {
            (member.loss, member.loss_after) = (loss, loss);
        });
        for name in ["fedeba", "prac_fedeba", "fedeba_plus"] {
            let params = json!({"tau": tau, "eps_p": eps_p, "anneal": "convex"});
            let (theta, outcome) = fleet.combine(&mut by_name(name, params).unwrap());
            prop_assert!(theta.iter().all(|value| value.is_finite()));
            prop_assert!(outcome.regions.iter().all(|region| region.moved), "{name}");
            prop_assert!((outcome.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }
}
