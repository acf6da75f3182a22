use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::by_name,
    methods::fleet::{Fleet, assert_close},
    strategy::direction::gradients::{self, Gradients},
};

fn worked() -> Fleet {
    let g = [vec![-1.0, 0.5, 0.0], vec![0.8, -1.0, 0.0], vec![1.0, 1.0, -1.0]];
    gradients::fleet(&g, &[1.0, 1.0, 1.0])
}

#[test]
fn worked_numbers() {
    let fleet = worked();
    let all = Gradients::of(&fleet);
    let step = |params: Value| gradients::step(&fleet, "fedmgda_plus", params);
    let near = step(Value::Null);
    assert_close(&near, &[0.0157092044, 0.0194320850, -0.1347150628], 1e-10);
    assert!((gradients::dot(&all.clients[0], &near) + 0.0060).abs() < 5e-5);
    assert!((gradients::dot(&all.clients[1], &near) + 0.0069).abs() < 5e-5);
    let far = step(json!({"eps": 1}));
    assert_close(&far, &[-0.0324122420, -0.0400935291, -0.0916622865], 1e-10);
    assert!(all.clients.iter().all(|g| gradients::dot(g, &far) > 0.0));
    let half: Vec<f64> = far.iter().map(|value| value / 2.0).collect();
    assert_close(&step(json!({"eps": 1, "eta_g": 0.5})), &half, 1e-12);
    let (long, tolerance) = all.as_long_as_mean(&far, 1.0).unwrap();
    assert_close(&step(json!({"eps": 1, "rescale": true})), &long, tolerance);
}

#[test]
fn conflicts_are_reported() {
    let outcome = worked().combine(&mut by_name("fedmgda_plus", Value::Null).unwrap()).1;
    assert_eq!(outcome.notes["conflicts"], json!({"model": 2, "layers": [2]}));
    let outcome = worked().combine(&mut by_name("fedmgda_plus", json!({"eps": 1})).unwrap()).1;
    assert_eq!(outcome.notes["conflicts"], json!({"model": 0, "layers": [0]}));
}

#[test]
fn weights_may_start_from_data() {
    let mut fleet = worked();
    fleet.devices[0].samples = 30;
    let step = gradients::step(&fleet, "fedmgda_plus", json!({"eps": 0, "lambda0": "data"}));
    let all = Gradients::of(&fleet);
    let mut mean = vec![0.0; 3];
    for (g, weight) in all.clients.iter().zip([0.6, 0.2, 0.2]) {
        gradients::add(&mut mean, weight / gradients::norm(g), g);
    }
    assert_close(&step, &mean, 1e-12);
}

#[test]
fn impossible_parameters_are_refused() {
    for bad in [json!({"eps": 1.5}), json!({"eta_g": 0}), json!({"lambda0": "none"}), json!({"rescale": 1})] {
        assert!(by_name("fedmgda_plus", bad).is_err());
    }
}

fn unit(g: &[f64]) -> Vec<f64> {
    g.iter().map(|value| value / gradients::norm(g)).collect()
}

proptest! {
    #[test]
    fn no_freedom_is_the_mean_of_normalised_gradients(seed: u64, tiers in 1usize..5, nested: bool) {
        let fleet = Fleet::random(seed, tiers, nested);
        let step = gradients::step(&fleet, "fedmgda_plus", json!({"eps": 0}));
        for (region, all) in gradients::by_region(&fleet) {
            let mut mean = vec![0.0; all.size()];
            all.clients.iter().for_each(|g| gradients::add(&mut mean, 1.0 / all.clients.len() as f64, &unit(g)));
            let own = gradients::restrict(&step, &region);
            if tiers == 1 {
                assert_close(&own, &mean, 1e-12);
            } else if let Some((mean, tolerance)) = all.as_long_as_mean(&mean, 1.0) {
                assert_close(&own, &mean, tolerance);
            }
        }
    }

    #[test]
    fn full_freedom_descends_for_everybody(seed: u64) {
        let fleet = Fleet::random(seed, 1, true);
        let d = gradients::step(&fleet, "fedmgda_plus", json!({"eps": 1}));
        let square = gradients::dot(&d, &d);
        for g in &Gradients::of(&fleet).clients {
            prop_assert!(gradients::dot(&unit(g), &d) >= square - 1e-8);
        }
    }

    /// Tiers: the shortest point is rescaled, and a region with one client takes its update.
    #[test]
    fn regions_are_problems_of_their_own(seed: u64, tiers in 2usize..5, nested: bool, eps in 0.01f64..1.0) {
        let fleet = Fleet::random(seed, tiers, nested);
        let step = gradients::step(&fleet, "fedmgda_plus", json!({"eps": eps}));
        for (region, all) in gradients::by_region(&fleet) {
            let own = gradients::restrict(&step, &region);
            let (length, mean) = (gradients::norm(&own), gradients::norm(&all.mean()));
            prop_assert!(length == 0.0 || (length - mean).abs() <= 1e-6 * (1.0 + mean));
            if let [alone] = all.clients.as_slice() {
                assert_close(&own, alone, 1e-12);
            }
        }
    }
}
