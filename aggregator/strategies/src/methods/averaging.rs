//! Tests of what all averaging strategies have in common on tiers.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::by_name,
    methods::fleet::{Fleet, assert_close},
};

/// Calls `check` for each strategy, with parameters that make losses matter. The clamp of the FedEBA family depends on all
/// participants, so it is off.
fn each(mut check: impl FnMut(&str, Value)) {
    for name in ["fedavg", "heterofl", "fedsgd", "fedprox", "propfair", "ditto", "afl"] {
        check(name, Value::Null);
    }
    for q in [0.0, 1.0, 50.0] {
        check("qffl", json!({ "q": q }));
        check("qffl", json!({"q": q, "weighting": "data"}));
        check("fairheterofl", json!({"q": q, "q_m": 1}));
    }
    for t in [0.1, 5.0] {
        check("term", json!({ "t": t }));
    }
    for prior in ["none", "data"] {
        let params = json!({"tau": 0.1, "eps_p": 0, "prior": prior});
        for name in ["fedeba", "prac_fedeba", "fedeba_plus"] {
            check(name, params.clone());
        }
        check("fedeba_plus", json!({"tau": 0.1, "eps_p": 0, "prior": prior, "align": "model"}));
    }
}

fn run(fleet: &Fleet, name: &str, params: &Value) -> Vec<f64> {
    fleet.combine(&mut by_name(name, params.clone()).unwrap()).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Property 5.
    #[test]
    fn losses_of_any_scale(seed: u64, tiers in 1usize..5, nested: bool, power in -8..=8i32) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        for member in &mut fleet.devices {
            member.loss *= 10f64.powi(power);
            member.loss_after *= 10f64.powi(power);
        }
        each(|name, params| {
            let (theta, outcome) = fleet.combine(&mut by_name(name, params).unwrap());
            assert!(theta.iter().all(|value| value.is_finite()), "{name}");
            assert!(outcome.regions.iter().all(|region| region.moved), "{name}");
        });
    }

    /// Property 6.
    #[test]
    fn the_region_of_one_tier_is_its_own(
        seed: u64, tiers in 2usize..5, nested: bool, own in 0usize..4, loss in prop::sample::select(vec![0.0, 3.0, 1e8])
    ) {
        let fleet = Fleet::random(seed, tiers, nested);
        let own = own % tiers;
        let mut other = fleet.clone();
        for member in other.devices.iter_mut().filter(|member| member.tier != own) {
            (member.loss, member.loss_after) = (loss, loss / 2.0);
            member.update.iter_mut().for_each(|value| *value = 1e3 - *value);
            member.first.iter_mut().for_each(|value| *value += 7.0);
        }
        let alone = |at: &usize| (0..tiers).all(|tier| fleet.tiers[tier].contains(at) == (tier == own));
        each(|name, params| {
            let (before, after) = (run(&fleet, name, &params), run(&other, name, &params));
            for at in (0..fleet.theta.len()).filter(alone) {
                assert_close(&[after[at]], &[before[at]], 1e-12);
            }
        });
    }

    /// Property 7.
    #[test]
    fn a_tier_changes_nothing_outside_its_slice(seed: u64, tiers in 2usize..5, nested: bool, own in 0usize..4) {
        let fleet = Fleet::random(seed, tiers, nested);
        let own = own % tiers;
        let mut other = fleet.clone();
        for member in other.devices.iter_mut().filter(|member| member.tier == own) {
            member.update.iter_mut().for_each(|value| *value = 5.0 - *value);
            member.first.iter_mut().for_each(|value| *value += 7.0);
        }
        each(|name, params| {
            let (before, after) = (run(&fleet, name, &params), run(&other, name, &params));
            for at in (0..fleet.theta.len()).filter(|at| !fleet.tiers[own].contains(at)) {
                assert_eq!(after[at], before[at], "{name}");
            }
        });
    }

    #[test]
    fn one_huge_update_is_finite(seed: u64, tiers in 1usize..5, nested: bool) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        fleet.devices[0].update.iter_mut().for_each(|value| *value *= 1e6);
        fleet.devices[0].loss = 0.0;
        each(|name, params| {
            assert!(run(&fleet, name, &params).iter().all(|value| value.is_finite()), "{name}");
        });
    }
}
