use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::by_name,
    methods::fleet::{Fleet, TestDevice, assert_close},
};

fn run(fleet: &Fleet, params: Value) -> Vec<f64> {
    fleet.combine(&mut by_name("prac_fedeba", params).unwrap()).0
}

#[test]
fn worked_numbers() {
    let mut fleet = Fleet::new(&[0.0, 0.0], 0.1, &[&[0, 1]]);
    fleet.add("a", 0, 1, 0.5, &[0.1, 0.0]);
    fleet.add("b", 0, 2, 1.0, &[0.0, 0.2]);
    fleet.add("c", 0, 3, 2.0, &[-0.1, 0.1]);
    fleet.devices.iter_mut().zip([0.2, 0.6, 1.5]).for_each(|(member, loss)| member.loss_after = loss);
    let (theta, outcome) = fleet.combine(&mut by_name("prac_fedeba", json!({"tau": 1})).unwrap());
    assert_close(&outcome.weights, &[0.1512762495, 0.2366795767, 0.6120441738], 1e-10);
    assert_close(&theta, &[-0.0460767924, 0.1085403327], 1e-10);
    let before = fleet.combine(&mut by_name("prac_fedeba", json!({"tau": 1, "alpha": 1})).unwrap()).1;
    assert_close(&before.weights, &[0.1402443832, 0.2312238976, 0.6285317192], 1e-10);
}

#[test]
fn parameters_are_checked() {
    let why = |params: Value| by_name("prac_fedeba", params).unwrap_err().to_string();
    assert!(why(json!({"alpha": 1.5})).contains("`alpha` must lie in [0, 1]"));
    assert!(why(json!({"tau": -1})).contains("`tau`"));
    assert!(why(json!({"Theta": 1})).contains("unknown field `Theta`"));
}

/// As published, parameter by parameter: gtilde from the updates, updates aligned with it, then averaged.
fn literal(fleet: &Fleet, tau: f64, alpha: f64, steps: f64) -> Vec<f64> {
    let step = |at: usize| {
        let held: Vec<(&TestDevice, f64)> =
            fleet.devices.iter().filter_map(|member| Some((member, fleet.update_at(member, at)?))).collect();
        let shares = |loss: &dyn Fn(&TestDevice) -> f64| -> Vec<f64> {
            let all: f64 = held.iter().map(|(member, _)| (loss(member) / tau).exp()).sum();
            held.iter().map(|(member, _)| (loss(member) / tau).exp() / all).collect()
        };
        let (p, ptilde) = (shares(&|member| member.loss_after), shares(&|member| member.loss));
        let local = fleet.lr * steps;
        let fair: f64 = held.iter().zip(&ptilde).map(|((_, update), ptilde)| ptilde * -update / local).sum();
        let aligned = |update: f64| (1.0 - alpha) * update - alpha * local * fair;
        held.iter().zip(&p).map(|((_, update), p)| p * aligned(*update)).sum::<f64>()
    };
    fleet.theta.iter().enumerate().map(|(at, theta)| theta + step(at)).collect()
}

proptest! {
    /// Property 9.
    #[test]
    fn the_cancelled_form_is_the_literal_one(
        seed: u64, tiers in 1usize..5, nested: bool, tau in 0.3..5.0f64, alpha in 0.0..1.0f64, steps in 1u8..50
    ) {
        let fleet = Fleet::random(seed, tiers, nested);
        let got = run(&fleet, json!({"tau": tau, "alpha": alpha, "eps_p": 0}));
        assert_close(&got, &literal(&fleet, tau, alpha, f64::from(steps)), 1e-12);
    }

    /// Property 9.
    #[test]
    fn without_alignment_it_is_fedeba(seed: u64, tiers in 1usize..5, nested: bool, reweight: bool) {
        let fleet = Fleet::random(seed, tiers, nested);
        let plain = fleet.combine(&mut by_name("fedeba", json!({"reweight": reweight})).unwrap());
        let mut aligned = by_name("prac_fedeba", json!({"reweight": reweight, "alpha": 0})).unwrap();
        let aligned = fleet.combine(&mut aligned);
        assert_close(&aligned.0, &plain.0, 1e-12);
        assert_close(&aligned.1.weights, &plain.1.weights, 1e-12);
        prop_assert!((aligned.1.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    /// Without reweighting only the fair part follows losses.
    #[test]
    fn the_ablation(seed: u64) {
        let fleet = Fleet::random(seed, 1, true);
        let params = json!({"reweight": false, "alpha": 0.25, "tau": 0.5});
        let weights = fleet.combine(&mut by_name("prac_fedeba", params).unwrap()).1.weights;
        let data = fleet.combine(&mut by_name("fedavg", Value::Null).unwrap()).1.weights;
        let fair = fleet.combine(&mut by_name("prac_fedeba", json!({"alpha": 1, "tau": 0.5})).unwrap()).1.weights;
        let expected: Vec<f64> = data.iter().zip(&fair).map(|(data, fair)| 0.75 * data + 0.25 * fair).collect();
        assert_close(&weights, &expected, 1e-12);
    }
}
