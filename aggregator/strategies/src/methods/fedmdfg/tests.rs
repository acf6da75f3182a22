use common::message::Scalars;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    algebra::Products,
    cohort::Cohort,
    combine::direction,
    method::by_name,
    methods::{
        fleet::{Fleet, assert_close},
        minnorm::min_norm,
    },
    strategy::{
        Ask, Exchange, Kind, Strategy,
        direction::gradients::{self, Gradients},
    },
};

fn ids(fleet: &Fleet) -> Vec<&str> {
    fleet.devices.iter().map(|member| member.device.as_str()).collect()
}

/// The algorithm on vectors as published, without a line search. The tolerance follows from the length of the point.
fn plain(all: &Gradients, theta_deg: f64, past: &[Vec<f64>]) -> Option<(Vec<f64>, f64)> {
    let kept: Vec<usize> =
        (0..all.clients.len()).filter(|&i| gradients::norm(&all.clients[i]) > 1e-6).collect();
    let mu = kept.iter().map(|&i| gradients::norm(&all.clients[i])).sum::<f64>() / kept.len() as f64;
    let scaled = |&i: &usize| {
        let g = &all.clients[i];
        g.iter().map(|value| value * mu / gradients::norm(g)).collect()
    };
    let mut rows: Vec<Vec<f64>> = kept.iter().map(scaled).collect();
    let mut clients = all.clone();
    clients.clients = rows.clone();
    let losses: Vec<f64> = kept.iter().map(|&i| all.losses[i]).collect();
    let (m, length) = (losses.len() as f64, gradients::norm(&losses));
    let cos = losses.iter().sum::<f64>() / (m.sqrt() * length);
    if cos.min(1.0).acos().to_degrees() > theta_deg {
        let h: Vec<f64> = losses.iter().map(|loss| cos * loss / length - 1.0 / m.sqrt()).collect();
        let mut pull = vec![0.0; all.size()];
        rows.iter().zip(&h).for_each(|(g, h_i)| gradients::add(&mut pull, h_i / gradients::norm(&h), g));
        rows.push(pull);
    }
    rows.extend_from_slice(past);
    let weights = min_norm(&Products::new(rows.len(), |i, j| gradients::dot(&rows[i], &rows[j])));
    let mut d = vec![0.0; all.size()];
    rows.iter().zip(&weights).for_each(|(row, &weight)| gradients::add(&mut d, weight, row));
    clients.as_long_as_mean(&d, rows.iter().map(|row| gradients::norm(row)).fold(0.0, f64::max))
}

#[test]
fn exchanges_are_training_and_trials() {
    let fleet = Fleet::random(3, 1, true);
    let mut method = by_name("fedmdfg", Value::Null).unwrap();
    assert!(method.needs().guide);
    let next = |strategy: &dyn Strategy, kinds: &[Kind]| {
        let made: Vec<_> = kinds.iter().map(|&kind| Exchange { kind, cohort: fleet.cohort() }).collect();
        strategy.next(&made, &[])
    };
    assert_eq!(next(&*method.strategy, &[]), Some(Ask::train()));
    let down = vec![1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125];
    assert_eq!(next(&*method.strategy, &[Kind::Train]), Some(Ask::Try { steps: down.clone() }));
    assert_eq!(next(&*method.strategy, &[Kind::Train, Kind::Try]), None);
    fleet.combine(&mut method);
    let mut names = ids(&fleet);
    names.sort_unstable();
    assert_eq!(method.state(), json!({"last_participants": names}));
    let all: Vec<f64> = [32.0, 16.0, 8.0, 4.0, 2.0].into_iter().chain(down.iter().copied()).collect();
    assert_eq!(next(&*method.strategy, &[Kind::Train]), Some(Ask::Try { steps: all }));
    // Other devices than in the round before.
    let mut fewer = fleet.clone();
    fewer.add("zz", 0, 1, 1.0, &vec![0.1; fleet.theta.len()]);
    let made = [Exchange { kind: Kind::Train, cohort: fewer.cohort() }];
    assert_eq!(method.strategy.next(&made, &[]), Some(Ask::Try { steps: down }));
}

/// Two clients with orthogonal gradients: d = (0.5, 0.5), g_i.d = 0.5, without guidance.
fn pair(losses: [f64; 2], trials: [&[f64]; 2], params: Value) -> (Vec<f64>, Value) {
    let mut fleet = gradients::fleet(&[vec![1.0, 0.0], vec![0.0, 1.0]], &losses);
    for (member, trials) in fleet.devices.iter_mut().zip(trials) {
        member.more = Scalars { trials: trials.iter().copied().collect(), ..Scalars::default() };
    }
    let (theta, outcome) = fleet.combine(&mut by_name("fedmdfg", params).unwrap());
    (theta.iter().map(|value| -value).collect(), outcome.notes.get("step").cloned().unwrap_or_default())
}

#[test]
fn the_first_step_that_is_good_for_all_is_taken() {
    let step = |a: &[f64], b: &[f64]| pair([1.0, 1.0], [a, b], Value::Null);
    let same = |(found, step): (Vec<f64>, Value), expected: f64, accepted: Value| {
        assert_close(&found, &[expected, expected], 1e-12);
        assert_eq!(step, accepted);
    };
    same(step(&[], &[]), 0.5, Value::Null);
    same(step(&[0.9, 0.9], &[0.9, 0.9]), 0.5, json!(1.0));
    // Too little descent at step 1: 1e-4 * 0.5 is promised.
    same(step(&[0.9999, 0.9], &[0.99996, 0.9]), 0.25, json!(0.5));
    assert_eq!(step(&[0.9, 0.9], &[0.99994, 0.9]).1, json!(1.0));
    // Never good for all: the first with a lower sum.
    assert_eq!(step(&[1.5, 0.5, 0.4], &[1.1, 1.1, 1.1]).1, json!(0.5));
    // Never a lower sum: the lowest.
    assert_eq!(step(&[2.0, 1.2, 1.1, 1.3], &[1.0, 1.0, 1.0, 1.0]).1, json!(0.25));
    // One device has not answered the trials.
    assert_eq!(step(&[2.0, 0.5], &[]).1, json!(0.5));
}

#[test]
fn guided_steps_must_make_losses_more_equal() {
    let params = json!({"theta_deg": 5});
    let step = |a: &[f64], b: &[f64]| pair([1.0, 2.0], [a, b], params.clone()).1;
    assert_eq!(step(&[0.9, 0.9, 0.9], &[1.85, 1.7, 1.5]), json!(0.5));
    assert_eq!(pair([1.0, 2.0], [&[0.9, 0.9], &[1.85, 1.7]], json!({"theta_deg": 60})).1, json!(1.0));
}

#[test]
fn steps_of_a_file_count() {
    let mut fleet = gradients::fleet(&[vec![1.0, 0.0], vec![0.0, 1.0]], &[1.0, 1.0]);
    for member in &mut fleet.devices {
        member.more = Scalars { trials: [2.0, 0.5].into_iter().collect(), ..Scalars::default() };
    }
    let mut cohort = fleet.cohort();
    cohort.steps = vec![8.0, 0.125];
    let found = direction(&*by_name("fedmdfg", Value::Null).unwrap().strategy, &cohort, &mut fleet.updates());
    assert_close(&found.unwrap(), &[0.0625, 0.0625], 1e-12);
}

#[test]
fn short_gradients_are_left_out() {
    let fleet = gradients::fleet(&[vec![1.0, 2.0], vec![1e-7, 0.0], vec![0.0, 0.0]], &[1.0, 1.0, 9.0]);
    assert_close(&gradients::step(&fleet, "fedmdfg", Value::Null), &[1.0, 2.0], 1e-12);
    let fleet = gradients::fleet(&[vec![1e-7, 0.0]], &[1.0]);
    assert_eq!(gradients::step(&fleet, "fedmdfg", Value::Null), [0.0, 0.0]);
}

#[test]
fn parameters_and_state_are_checked() {
    assert!(by_name("fedmdfg", json!({"s": 6})).unwrap_err().to_string().contains("at most 5"));
    assert!(by_name("fedmdfg", json!({"theta_deg": -1})).is_err());
    let mut method = by_name("fedmdfg", json!({"history": true})).unwrap();
    assert!(method.needs().history > 0);
    assert!(method.set_state(json!({"other": 1})).is_err());
    method.set_state(json!({"last_participants": ["a", "b"]})).unwrap();
    assert_eq!(method.state(), json!({"last_participants": ["a", "b"]}));
}

proptest! {
    #[test]
    fn one_tier_is_the_plain_algorithm(seed: u64, theta_deg in 0.0f64..40.0, history: bool) {
        let mut fleet = Fleet::random(seed, 1, true);
        gradients::random_past(&mut fleet, seed);
        let all = Gradients::of(&fleet);
        let past: Vec<_> =
            all.past.iter().filter(|(round, _)| history && *round == 5).map(|(_, g)| g.clone()).collect();
        let step = gradients::step(&fleet, "fedmdfg", json!({"theta_deg": theta_deg, "history": history}));
        if let Some((plain, tolerance)) = plain(&all, theta_deg, &past) {
            assert_close(&step, &plain, tolerance.max(1e-9));
        }
    }

    #[test]
    fn regions_are_problems_of_their_own_and_nobody_climbs(seed: u64, tiers in 1usize..5, nested: bool) {
        let fleet = Fleet::random(seed, tiers, nested);
        let step = gradients::step(&fleet, "fedmdfg", Value::Null);
        for (region, all) in gradients::by_region(&fleet) {
            let own = gradients::restrict(&step, &region);
            for g in &all.clients {
                prop_assert!(gradients::dot(g, &own) >= -1e-6 * gradients::norm(g) * gradients::norm(&own));
            }
            if let Some((plain, tolerance)) = plain(&all, 11.25, &[]) {
                assert_close(&own, &plain, tolerance.max(1e-9));
            }
            if let [alone] = all.clients.as_slice() {
                assert_close(&own, alone, 1e-12);
            }
        }
    }
}

#[test]
fn an_empty_cohort_is_not_asked_for_trials() {
    let fleet = Fleet::random(3, 1, true);
    let made = [Exchange { kind: Kind::Train, cohort: Cohort::new(fleet.regions.clone(), 0.1) }];
    assert_eq!(by_name("fedmdfg", Value::Null).unwrap().strategy.next(&made, &[]), None);
}
