//! A target in rounds that are combined.

use common::{
    Code, Tier,
    brief::Brief,
    message::{Scalars, Validation},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{
    combine::{Outcome, combine},
    fairness::{FairnessLine, FairnessStatus, SignalKind},
    method::{Method, by_name},
    methods::fleet::Fleet,
    strategy::FairnessScope,
};

/// Every knob, with parameters and a target under which it moves.
fn cases() -> Vec<(&'static str, Value, Value)> {
    vec![
        ("fairheterofl", json!({"q_m": 0}), json!({"target": 0.1})),
        ("fairheterofl", Value::Null, json!({"target": 0.1, "inside": [0.1, 0, 0.2]})),
        ("fairheterofl", Value::Null, json!({"inside": 0.1, "most": 1.5})),
        ("qffl", json!({"step": "reweight", "weighting": "data"}), json!({"target": 0.1})),
        ("term", json!({"server_momentum": 0.5}), json!({"target": 0.1, "budget": 0.2})),
        ("fedeba", Value::Null, json!({"target": 0.1, "scope": "tiers"})),
        ("prac_fedeba", Value::Null, json!({"target": 0.1, "signal": "training", "measure": "spread"})),
        ("eagle", Value::Null, json!({"target": 0.1, "measure": "spread"})),
    ]
}

fn aimed(name: &str, params: &Value, target: &Value, fleet: &Fleet) -> Method {
    let mut method = by_name(name, params.clone()).unwrap();
    let given = params.as_object().cloned().unwrap_or_else(Map::new);
    method.aim(serde_json::from_value(target.clone()).unwrap(), &given, &fleet.regions).unwrap();
    method
}

/// Three tiers whose losses fall, at different speeds; some devices cannot validate.
fn fleet(seed: u64, round: u32) -> Fleet {
    let mut fleet = Fleet::random(seed, 3, true);
    fleet.round = round;
    for (number, member) in fleet.devices.iter_mut().enumerate() {
        member.loss /= 1.0 + 0.2 * f64::from(round) / (1.0 + member.tier as f64);
        let validation = Some(Validation { loss: 1.1 * member.loss, error: 0.001 * member.loss });
        let validation = validation.filter(|_| number % 7 != 6);
        member.more = Scalars { validation, gap: Some(member.loss - 0.5), ..Scalars::default() };
    }
    fleet
}

fn play(method: &mut Method, fleet: &Fleet) -> Outcome {
    let mut cohort = fleet.cohort();
    cohort.set_enrolled(vec![6; 3]);
    combine(method, &cohort, &[], &mut fleet.updates(), &mut fleet.theta.clone()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// A crash between any two rounds, with the state in bytes and as a round file has it.
    #[test]
    fn restart_gives_the_same_knobs(seed: u64) {
        for (name, params, target) in cases() {
            let mut steady = aimed(name, &params, &target, &fleet(seed, 1));
            for round in 1..12 {
                let fleet = fleet(seed, round);
                let (bytes, state) = (steady.save(), steady.state());
                let mut restarted = aimed(name, &params, &target, &fleet);
                restarted.restore(&bytes).unwrap();
                let mut replayed = aimed(name, &params, &target, &fleet);
                replayed.set_state(serde_json::from_str(&state.to_string()).unwrap()).unwrap();
                prop_assert_eq!(restarted.strategy.save(), steady.strategy.save());
                let outcome = play(&mut steady, &fleet);
                prop_assert_eq!(&play(&mut restarted, &fleet), &outcome);
                prop_assert_eq!(&play(&mut replayed, &fleet), &outcome);
                prop_assert!(!outcome.fairness.is_empty());
                // Rollback: the state of an earlier round gives that round again.
                restarted.restore(&bytes).unwrap();
                prop_assert_eq!(&play(&mut restarted, &fleet), &outcome);
            }
        }
    }

    #[test]
    fn arrival_order_does_not_matter(seed: u64, shuffle: u64) {
        for (name, params, target) in cases() {
            let fleet = fleet(seed, 3);
            let mut shuffled = fleet.clone();
            common::rng::Rng::new(shuffle).shuffle(&mut shuffled.devices);
            let one = play(&mut aimed(name, &params, &target, &fleet), &fleet);
            prop_assert_eq!(one, play(&mut aimed(name, &params, &target, &fleet), &shuffled));
        }
    }

    /// u = 0: the bits of the strategy without fairness.
    #[test]
    fn neutral_is_plain_averaging(seed: u64, tiers in 1usize..5, nested: bool) {
        let fleet = Fleet::random(seed, tiers, nested);
        let plain = |name: &str| fleet.combine(&mut by_name(name, Value::Null).unwrap()).0;
        let target = json!({"target": 0.1});
        let mut fair = aimed("fairheterofl", &json!({"q_m": 0}), &target, &fleet);
        prop_assert_eq!(fleet.combine(&mut fair).0, plain("heterofl"));
        let mut both = aimed("fairheterofl", &Value::Null, &json!({"target": 0.1, "inside": 0.1}), &fleet);
        prop_assert_eq!(fleet.combine(&mut both).0, plain("heterofl"));
        let params = json!({"step": "reweight", "weighting": "data"});
        prop_assert_eq!(fleet.combine(&mut aimed("qffl", &params, &target, &fleet)).0, plain("fedavg"));
        prop_assert_eq!(fleet.combine(&mut aimed("term", &Value::Null, &target, &fleet)).0, plain("fedavg"));
        for name in ["fedeba", "prac_fedeba"] {
            let fixed = fleet.combine(&mut by_name(name, json!({"tau": 20})).unwrap()).0;
            prop_assert_eq!(fleet.combine(&mut aimed(name, &Value::Null, &target, &fleet)).0, fixed);
        }
    }

    /// With the guard's bounds too.
    #[test]
    fn neutral_under_the_guard(seed: u64, tiers in 1usize..5) {
        let fleet = Fleet::random(seed, tiers, true);
        let run = |mut method: Method| {
            let mut cohort = fleet.cohort();
            crate::guard::Guard::new(crate::guard::GuardConfig::default()).inspect(&mut cohort, crate::strategy::Kind::Train);
            let mut theta = fleet.theta.clone();
            combine(&mut method, &cohort, &[], &mut fleet.updates(), &mut theta).unwrap();
            theta
        };
        let fair = run(aimed("fairheterofl", &json!({"q_m": 0}), &json!({"target": 0.1}), &fleet));
        // The guard fits both to its bounds, which may round the last bit in another way.
        let neutral = run(by_name("heterofl", Value::Null).unwrap());
        prop_assert_eq!(fair.len(), neutral.len());
        for (fair, neutral) in fair.iter().zip(&neutral) {
            prop_assert!((fair - neutral).abs() <= 1e-12 * neutral.abs().max(1.0), "{} {}", fair, neutral);
        }
    }
}

#[test]
fn eagle_at_the_neutral_end_weighs_nobody() {
    let mut method = aimed("eagle", &Value::Null, &json!({"target": 1e3, "measure": "spread"}), &fleet(4, 1));
    let outcome = play(&mut method, &fleet(4, 1));
    assert_eq!((outcome.fairness[0].signal, outcome.fairness[0].next_value), (SignalKind::Gap, 0.0));
    for member in &fleet(4, 1).devices {
        let mut brief = Brief::sgd(1, 10, 0.1, 0);
        method.brief(&member.device, &[], &mut brief);
        assert_eq!(brief.objective.weight, 1.0);
    }
}

/// The knob of a round is that of the line before, and the strategy uses it.
#[test]
fn the_strategy_follows_the_knob() {
    let start = fleet(11, 1);
    let mut method = aimed("fairheterofl", &json!({"q_m": 0}), &json!({"target": 0.05}), &start);
    let mut before: Option<FairnessLine> = None;
    for round in 1..30 {
        let fleet = fleet(11, round);
        let q = method.fairness.as_ref().unwrap().lines()[0].next_value;
        let fixed = fleet.combine(&mut by_name("fairheterofl", json!({"q": q, "q_m": 0})).unwrap()).0;
        let mut theta = fleet.theta.clone();
        let mut cohort = fleet.cohort();
        cohort.set_enrolled(vec![6; 3]);
        let outcome = combine(&mut method, &cohort, &[], &mut fleet.updates(), &mut theta).unwrap();
        assert_eq!(theta, fixed);
        let line = outcome.fairness[0].clone();
        let unmeasured = fleet.devices.iter().filter(|member| member.more.validation.is_none()).count();
        assert_eq!((line.value, line.unmeasured), (q, unmeasured as u64));
        assert_eq!((line.scope, line.parameter.as_str(), line.tier), (FairnessScope::Tiers, "q", None));
        if let Some(before) = before {
            assert_eq!(before.next_value, line.value);
        }
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<FairnessLine>(&text).unwrap(), line);
        assert!(!line.advice().is_empty());
        before = Some(line);
    }
    assert!(before.unwrap().value > 0.0);
}

#[test]
fn a_round_that_is_kept_changes_nothing() {
    let good = fleet(5, 1);
    let mut method = aimed("fairheterofl", &Value::Null, &json!({"target": 0.05}), &good);
    play(&mut method, &good);
    let before = method.save();
    let mut empty = good.clone();
    empty.devices.clear();
    let outcome = play(&mut method, &empty);
    assert_eq!((outcome.kept, outcome.fairness.len()), (Some(Code::EmptyRound), 1));
    assert_eq!(method.save(), before);
    let mut theta = vec![f32::MAX; good.theta.len()];
    let mut long = good.clone();
    long.devices.iter_mut().for_each(|member| member.update.iter_mut().for_each(|value| *value = 1e150));
    let outcome = combine(&mut method, &long.cohort(), &[], &mut long.updates(), &mut theta).unwrap();
    assert_eq!(outcome.kept, Some(Code::NonFiniteResult));
    assert_eq!(method.save(), before);
    // No device has a signal: the model moves, the knob does not.
    let mut silent = good.clone();
    silent.devices.iter_mut().for_each(|member| member.more = Scalars::default());
    let outcome = play(&mut method, &silent);
    assert_eq!(outcome.fairness[0].unmeasured, silent.devices.len() as u64);
    assert_eq!(method.save(), before);
}

#[test]
fn states_of_before_and_of_other_targets() {
    let start = fleet(9, 1);
    let target = json!({"target": 0.05});
    let mut method = aimed("term", &json!({"server_momentum": 0.5}), &target, &start);
    let mut old = by_name("term", json!({"server_momentum": 0.5})).unwrap();
    play(&mut old, &start);
    // A state without a target: the target starts anew.
    method.restore(&old.save()).unwrap();
    assert_eq!(method.fairness.as_ref().unwrap().lines()[0].ledger.rounds, 0);
    (1..20).for_each(|round| drop(play(&mut method, &fleet(9, round))));
    let line = method.fairness.as_ref().unwrap().lines().remove(0);
    assert!(line.integrator > 0.0 && line.ledger.rounds == 19, "{line:?}");
    // Without a target its state is dropped, the rest stays.
    old.restore(&method.save()).unwrap();
    assert_eq!(old.momentum, method.momentum);
    // Another target: the integrator stays, the ledger does not.
    let mut other = aimed("term", &json!({"server_momentum": 0.5}), &json!({"target": 0.1}), &start);
    other.restore(&method.save()).unwrap();
    let moved = other.fairness.as_ref().unwrap().lines().remove(0);
    assert_eq!((moved.target, moved.integrator, moved.ledger.rounds), (0.1, line.integrator, 0));
    method.retarget(0.1).unwrap();
    assert_eq!(method.save(), other.save());
    // Another measure: everything anew.
    let spread = json!({"target": 0.1, "measure": "spread"});
    let mut spread = aimed("term", &json!({"server_momentum": 0.5}), &spread, &start);
    spread.restore(&method.save()).unwrap();
    assert_eq!(spread.fairness.as_ref().unwrap().lines()[0].integrator, 0.0);
    // Bytes that are no state, and numbers that are not possible.
    let mut bytes = method.save();
    bytes.push(0);
    assert!(method.restore(&bytes).is_err());
    let mut state = method.state();
    state["fairness"]["knobs"][0]["controller"]["I"] = json!(1.5);
    assert!(method.set_state(state).unwrap_err().to_string().contains("fairness"));
}

/// The guard bounds what one device says before it is measured.
#[test]
fn a_lying_device_is_limited() {
    let mut fleet = Fleet::new(&[0.0, 0.0], 0.1, &[&[0, 1], &[0]]);
    for number in 0..8 {
        fleet.add(&format!("d{number}"), number % 2, 10, 1.0, &vec![0.1; 2 - number % 2]);
        let validation = Some(Validation { loss: 1.0, error: 0.01 });
        fleet.devices[number].more = Scalars { validation, ..Scalars::default() };
    }
    fleet.devices[0].more.validation = Some(Validation { loss: 50.0, error: 7.0 });
    let mut cohort = fleet.cohort();
    let guard = crate::guard::Guard::new(crate::guard::GuardConfig::default());
    let inspection = guard.inspect(&mut cohort, crate::strategy::Kind::Train);
    assert_eq!(cohort.participants()[0].validation(), Some(Validation { loss: 6.0, error: 0.06 }));
    assert_eq!(cohort.participants()[1].validation(), Some(Validation { loss: 1.0, error: 0.01 }));
    let found: Vec<_> = inspection.findings.iter().map(|finding| (finding.what, finding.counted)).collect();
    assert_eq!(found, [("validation", 6.0), ("validation_error", 0.06)]);
}

/// A device alone in its tier: at the end of the knob it would get nearly all weight, and the guard keeps it from that.
#[test]
fn the_guard_is_named_where_it_bounds_shares_at_the_end_of_the_knob() {
    let mut fleet = Fleet::new(&[0.0, 0.0], 0.1, &[&[0, 1], &[0]]);
    fleet.add("lone", 0, 10, 2.0, &[0.1, 0.1]);
    (0..7).for_each(|number| fleet.add(&format!("d{number}"), 1, 10, 1.0, &[0.1]));
    for member in &mut fleet.devices {
        let validation = Some(Validation { loss: member.loss, error: 0.001 });
        member.more = Scalars { validation, ..Scalars::default() };
    }
    let run = |mode: crate::guard::Mode| {
        let config = crate::guard::GuardConfig { mode, ..Default::default() };
        let guard = crate::guard::Guard::new(config);
        let mut method = aimed("fairheterofl", &Value::Null, &json!({"target": 0.05}), &fleet);
        let mut lines = vec![];
        for _ in 0..60 {
            let mut cohort = fleet.cohort();
            if guard.is_on() {
                guard.inspect(&mut cohort, crate::strategy::Kind::Train);
            }
            let outcome =
                combine(&mut method, &cohort, &[], &mut fleet.updates(), &mut fleet.theta.clone()).unwrap();
            lines.push(outcome.fairness[0].clone());
        }
        // What is saved says the same, for the report of the final scores.
        let mut restored = aimed("fairheterofl", &Value::Null, &json!({"target": 0.05}), &fleet);
        restored.restore(&method.save()).unwrap();
        let last = restored.fairness_lines().remove(0);
        assert_eq!((&last.capped, last.advice()), (&lines[59].capped, lines[59].advice()));
        lines
    };
    let bound = run(crate::guard::Mode::Bound);
    assert!(bound[0].capped.is_empty(), "nothing is bounded while the knob is neutral: {:?}", bound[0]);
    let last = bound.last().unwrap();
    assert_eq!(
        (last.status, &last.capped.names[..]),
        (FairnessStatus::NotReachable, &["lone".to_owned()][..])
    );
    assert!(last.advice().contains("the guard bounds the share of lone"), "{}", last.advice());
    let free = run(crate::guard::Mode::Off);
    let last = free.last().unwrap();
    assert_eq!(last.status, FairnessStatus::NotReachable);
    assert!(last.capped.is_empty() && !last.advice().contains("guard"), "{}", last.advice());
}

#[test]
fn enrolled_devices() {
    let fleet = fleet(3, 1);
    let mut cohort = fleet.cohort();
    let present = |tier: usize| fleet.devices.iter().filter(|member| member.tier == tier).count();
    let tiers = [0, 1, 2].map(|tier| Tier::new(tier).unwrap());
    assert_eq!(tiers.map(|tier| cohort.enrolled(tier)), [0, 1, 2].map(present));
    cohort.set_enrolled(vec![100, 0]);
    assert_eq!(tiers.map(|tier| cohort.enrolled(tier)), [100, present(1), present(2)]);
}

/// Ten rounds of short steps are worth a note; a long one ends the count.
#[test]
fn short_steps_are_noted() {
    let mut fleet = Fleet::new(&[0.0], 0.1, &[&[0]]);
    fleet.add("a", 0, 10, 0.5, &[3.0]);
    fleet.add("b", 0, 10, 1.0, &[-2.0]);
    for name in ["fairheterofl", "qffl"] {
        let mut method = by_name(name, json!({"q": 5, "step": "hessian"})).unwrap();
        for round in 1..=11 {
            let notes = fleet.combine(&mut method).1.notes;
            assert_eq!(notes.contains_key("short_steps"), round >= 10, "{name}");
        }
        let mut method = by_name(name, json!({"q": 5, "step": "reweight"})).unwrap();
        (0..11).for_each(|_| assert!(fleet.combine(&mut method).1.notes.is_empty()));
    }
}

#[test]
fn status_names_are_those_of_reports() {
    for status in [
        FairnessStatus::Measuring,
        FairnessStatus::Early,
        FairnessStatus::Met,
        FairnessStatus::LimitedByPrice,
        FairnessStatus::NotReachable,
        FairnessStatus::Approaching,
    ] {
        assert_eq!(json!(status), status.name());
    }
}
