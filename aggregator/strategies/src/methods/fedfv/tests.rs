use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::by_name,
    methods::fleet::{Fleet, assert_close},
    strategy::direction::gradients::{self, Gradients},
};

const WORKED: [[f64; 2]; 3] = [[1.0, 0.0], [-0.5, 1.0], [0.2, 0.6]];

fn worked(params: Value) -> Vec<f64> {
    let fleet = gradients::fleet(&WORKED.map(|g| g.to_vec()), &[1.0, 2.0, 3.0]);
    gradients::step(&fleet, "fedfv", params)
}

#[test]
fn worked_numbers() {
    let mean: [f64; 2] = [0.7 / 3.0, 1.6 / 3.0];
    assert!((mean[0].hypot(mean[1]) - 0.5821416399).abs() < 1e-10);
    assert_close(&worked(json!({"alpha": 0, "tau": 0})), &[0.2603416559, 0.5206833117], 1e-10);
    assert_close(&worked(json!({"alpha": 0.5})), &[0.1411900865, 0.5647603460], 1e-10);
    assert_close(&worked(json!({"alpha": 1})), &mean, 1e-12);
}

#[test]
fn absent_clients_count_by_round_oldest_first() {
    let mut fleet = gradients::fleet(&[vec![1.0, 0.0, 0.0], vec![1.0, 1.0, 0.5]], &[1.0, 2.0]);
    fleet.round = 7;
    gradients::absent(&mut fleet, "z", 5, &[-1.0, 0.5, 0.0]);
    gradients::absent(&mut fleet, "y", 6, &[-1.0, -1.0, 0.0]);
    gradients::absent(&mut fleet, "x", 6, &[1.0, 1.0, 1.0]);
    gradients::absent(&mut fleet, "w", 3, &[-1.0, 0.0, 0.0]);
    let step = |tau: u32| gradients::step(&fleet, "fedfv", json!({"alpha": 0, "tau": tau}));
    let all = Gradients::of(&fleet);
    for tau in [0, 1, 2, 3, 10] {
        assert_close(&step(tau), &plain(&all, 0.0, tau, 7).unwrap().0, 1e-12);
    }
    assert_eq!(step(2), step(3));
    assert!(step(1) != step(2) && step(0) != step(1) && step(3) != step(4));
}

#[test]
fn impossible_parameters_are_refused() {
    for bad in [json!({"alpha": 1.5}), json!({"alpha": -0.1}), json!({"tau": -1}), json!({"tau": 0.5})] {
        assert!(by_name("fedfv", bad).is_err());
    }
    assert_eq!(by_name("fedfv", json!({"tau": 0})).unwrap().needs().history, 0);
    assert!(by_name("fedfv", Value::Null).unwrap().needs().history > 0);
}

/// The algorithm on vectors as published, with its tolerance; `None` if the mean is 0.
fn plain(all: &Gradients, alpha: f64, tau: u32, round: u32) -> Option<(Vec<f64>, f64)> {
    let g = &all.clients;
    let mut order: Vec<usize> = (0..g.len()).collect();
    order.sort_by(|&i, &j| all.losses[i].total_cmp(&all.losses[j]));
    let kept = (alpha * g.len() as f64 - 1e-9).ceil() as usize;
    let mut sum = vec![0.0; all.size()];
    for i in 0..g.len() {
        let mut u = g[i].clone();
        if !order[g.len() - kept..].contains(&i) {
            for &j in order.iter().filter(|&&j| j != i) {
                let product = gradients::dot(&g[j], &u);
                if product < 0.0 {
                    gradients::add(&mut u, -product / gradients::dot(&g[j], &g[j]), &g[j]);
                }
            }
        }
        gradients::add(&mut sum, 1.0 / g.len() as f64, &u);
    }
    for k in (1..=tau).rev() {
        let mut c = vec![0.0; all.size()];
        for (seen, h) in &all.past {
            if seen + k == round && gradients::dot(h, &sum) < 0.0 {
                gradients::add(&mut c, 1.0, h);
            }
        }
        let product = gradients::dot(&c, &sum);
        if product < 0.0 {
            gradients::add(&mut sum, -product / gradients::dot(&c, &c), &c);
        }
    }
    all.as_long_as_mean(&sum, all.longest())
}

proptest! {
    #[test]
    fn one_tier_is_the_plain_algorithm(seed: u64, alpha in 0.0f64..1.0, tau in 0u32..4) {
        let mut fleet = Fleet::random(seed, 1, true);
        gradients::random_past(&mut fleet, seed);
        let all = Gradients::of(&fleet);
        let step = gradients::step(&fleet, "fedfv", json!({"alpha": alpha, "tau": tau}));
        if let Some((plain, tolerance)) = plain(&all, alpha, tau, fleet.round) {
            assert_close(&step, &plain, tolerance);
        }
    }

    #[test]
    fn two_clients_never_conflict(seed: u64) {
        let mut fleet = Fleet::random(seed, 1, true);
        fleet.devices.truncate(2);
        let all = Gradients::of(&fleet);
        let step = gradients::step(&fleet, "fedfv", json!({"alpha": 0, "tau": 0}));
        for g in &all.clients {
            prop_assert!(gradients::dot(g, &step) >= -1e-12 * gradients::norm(g) * gradients::norm(&step));
        }
    }

    #[test]
    fn length_is_that_of_the_mean_in_every_region(seed: u64, tiers in 1usize..5, nested: bool, alpha in 0.0f64..1.0) {
        let fleet = Fleet::random(seed, tiers, nested);
        let step = gradients::step(&fleet, "fedfv", json!({"alpha": alpha}));
        for (region, all) in gradients::by_region(&fleet) {
            let own = gradients::restrict(&step, &region);
            // A region is a separate problem.
            match plain(&all, alpha, 0, 1) {
                Some((plain, tolerance)) => {
                    let (length, mean) = (gradients::norm(&own), gradients::norm(&all.mean()));
                    prop_assert!((length - mean).abs() <= tolerance);
                    assert_close(&own, &plain, tolerance);
                }
                None => prop_assert!(gradients::norm(&own) <= 1e-6),
            }
        }
    }

    #[test]
    fn all_kept_is_the_mean(seed: u64, tiers in 1usize..5, nested: bool) {
        let fleet = Fleet::random(seed, tiers, nested);
        let step = gradients::step(&fleet, "fedfv", json!({"alpha": 1, "tau": 0}));
        let mean: Vec<f64> = fleet.weighted_mean(|_| 1.0).iter().zip(&fleet.theta).map(|(new, old)| old - new).collect();
        assert_close(&step, &mean, 1e-12);
    }
}
