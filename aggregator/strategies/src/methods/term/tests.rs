use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::{Method, by_name},
    methods::fleet::{Fleet, assert_close},
};

fn term(t: f64) -> Method {
    by_name("term", json!({"t": t})).unwrap()
}

#[test]
fn worked_numbers() {
    let mut fleet = Fleet::new(&[0.0, 0.0, 0.0], 0.1, &[&[0, 1, 2]]);
    fleet.add("a", 0, 50, 0.5, &[1.0, 0.0, 0.0]);
    fleet.add("b", 0, 30, 1.0, &[0.0, 1.0, 0.0]);
    fleet.add("c", 0, 20, 2.0, &[0.0, 0.0, 1.0]);
    let (theta, outcome) = fleet.combine(&mut term(1.0));
    let expected = [0.2644167697, 0.2615697315, 0.4740134987];
    assert_close(&theta, &expected, 1e-10);
    assert_close(&outcome.weights, &expected, 1e-10);
}

#[test]
fn parameters_are_checked() {
    let why = by_name("term", json!({"t": -1})).unwrap_err().to_string();
    assert!(why.contains("`t` must be 0 or more"), "{why}");
    assert_eq!(format!("{:?}", by_name("term", Value::Null).unwrap()), format!("{:?}", term(0.1)));
}

proptest! {
    #[test]
    fn the_weighted_mean_of_its_weights(seed: u64, tiers in 1usize..5, nested: bool, t in 0.0..5.0f64) {
        let fleet = Fleet::random(seed, tiers, nested);
        let (theta, _) = fleet.combine(&mut term(t));
        let expected = fleet.weighted_mean(|member| f64::from(member.samples) * (t * member.loss).exp());
        assert_close(&theta, &expected, 1e-12);
        let (plain, _) = fleet.combine(&mut by_name("fedavg", Value::Null).unwrap());
        assert_close(&fleet.combine(&mut term(0.0)).0, &plain, 1e-12);
    }

    /// Weights over all participants would be 0/0 in a region of low losses.
    #[test]
    fn a_region_of_low_losses_still_moves(seed: u64, nested: bool) {
        let mut fleet = Fleet::random(seed, 2, nested);
        for member in &mut fleet.devices {
            member.loss += if member.tier == 1 { 1e8 } else { 0.0 };
        }
        let (theta, outcome) = fleet.combine(&mut term(5.0));
        prop_assert!(outcome.regions.iter().all(|region| region.moved));
        let own = fleet.weighted_mean(|member| match member.tier {
            0 => f64::from(member.samples) * (5.0 * member.loss).exp(),
            _ => 0.0,
        });
        for at in (0..theta.len()).filter(|at| !fleet.tiers[1].contains(at)) {
            prop_assert!((theta[at] - own[at]).abs() < 1e-12);
        }
    }
}
