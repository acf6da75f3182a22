//! Weights by hand, whole rounds, and steep or missing values.

use common::{brief::Brief, message::Scalars, rng::Rng};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::{Method, by_name},
    methods::fleet::{Fleet, TestDevice, assert_close, groups},
};

fn fairfed(params: Value) -> Method {
    by_name("fairfed", params).unwrap()
}

/// Gaps -0.25, -0.65 and none; of all: 0.32 - 0.70. Accuracy of the third: 0.6, of all 0.73.
fn worked() -> Fleet {
    Fleet::grouped()
}

fn normalised(weights: [f64; 3]) -> [f64; 3] {
    let all: f64 = weights.iter().sum();
    weights.map(|weight| weight / all)
}

#[test]
fn first_version() {
    let (fleet, mut method) = (worked(), fairfed(json!({"beta": 2})));
    let (theta, outcome) = fleet.combine(&mut method);
    let raw = [0.5 * (-0.26f64).exp(), 0.3 * (-0.54f64).exp(), 0.2 * (-0.26f64).exp()];
    let shares = normalised(raw);
    assert_close(&outcome.weights, &shares, 1e-12);
    assert_close(&theta, &[1.0 + 0.3 * shares[0] + 0.6 * shares[1], 1.9], 1e-12);
    let wbar: Vec<f64> =
        ["a", "b", "c"].iter().filter_map(|id| method.state()["wbar"][id].as_f64()).collect();
    assert_close(&wbar, &raw, 1e-12);
    // Earlier weights do not matter.
    assert_eq!(fleet.combine(&mut method), (theta, outcome));
}

#[test]
fn equal_opportunity() {
    // tpr: a 0.4 and 0.9, b 0.6 and 1, all 0.5 and 0.9; c has no attribute 0.
    let (_, outcome) = worked().combine(&mut fairfed(json!({"gap": "eod"})));
    let raw = [0.5 * (-0.1f64).exp(), 0.3, 0.2 * (-0.13f64).exp()];
    assert_close(&outcome.weights, &normalised(raw), 1e-12);
}

#[test]
fn later_version_moves_on() {
    let (fleet, mut method) = (worked(), fairfed(json!({"version": 2, "beta": 1})));
    let mean = (0.13 + 0.27 + 0.13) / 3.0;
    let step = [0.13 - mean, 0.27 - mean, 0.13 - mean];
    let once = [0.5 - step[0], 0.3 - step[1], 0.2 - step[2]];
    assert_close(&fleet.combine(&mut method).1.weights, &once, 1e-12);
    let mut resumed = fairfed(json!({"version": 2, "beta": 1}));
    resumed.restore(&method.save()).unwrap();
    let twice = [once[0] - step[0], once[1] - step[1], once[2] - step[2]];
    assert_close(&fleet.combine(&mut resumed).1.weights, &twice, 1e-12);
    // Floored at 0.
    let mut steep = fairfed(json!({"version": 2, "beta": 100}));
    let (_, outcome) = fleet.combine(&mut steep);
    assert_eq!(outcome.weights[1], 0.0);
}

#[test]
fn a_device_without_groups_is_at_the_mean() {
    let mut fleet = worked();
    fleet.devices[2].more = Scalars::default();
    let (_, outcome) = fleet.combine(&mut fairfed(json!({})));
    // Of a and b together: rates 0.32 and 21/30.
    let gap = (5.0 + 1.0 + 4.0 + 6.0) / 50.0 - (2.0 + 9.0 + 10.0) / 30.0;
    let (a, b) = ((gap + 0.25f64).abs(), (gap + 0.65f64).abs());
    let raw = [0.5 * (-a).exp(), 0.3 * (-b).exp(), 0.2 * (-(a + b) / 2.0).exp()];
    assert_close(&outcome.weights, &normalised(raw), 1e-12);
    // No device reports groups, or they report three attributes: FedAvg.
    for more in [Scalars::default(), groups(&[1; 6], &[0.0; 6])] {
        fleet.devices.iter_mut().for_each(|member| member.more = more.clone());
        let (_, outcome) = fleet.combine(&mut fairfed(json!({})));
        assert_close(&outcome.weights, &[0.5, 0.3, 0.2], 1e-12);
    }
}

#[test]
fn a_steep_beta_leaves_weight_in_every_region() {
    for beta in [1e3, 1e6, 1e308] {
        let (theta, outcome) = worked().combine(&mut fairfed(json!({"beta": beta})));
        // a and c are at the same distance up to rounding; region 1 has a alone.
        assert!(theta.iter().chain(&outcome.weights).all(|value| value.is_finite()));
        assert_close(&theta[1..], &[1.9], 1e-12);
        assert!(outcome.weights[1] < 1e-12);
    }
}

#[test]
fn parameters_are_checked() {
    let why = |params: Value| by_name("fairfed", params).unwrap_err().to_string();
    assert!(why(json!({"beta": -1})).contains("`beta` must be 0 or more"));
    assert!(why(json!({"version": 3})).contains("1 or 2"));
    assert!(why(json!({"gap": "dp"})).contains("spd"));
    let method = fairfed(Value::Null);
    assert!(method.needs().groups && method.needs().binary);
    let mut brief = Brief::sgd(1, 1, 0.1, 0);
    method.brief(&"a".parse().unwrap(), &[], &mut brief);
    assert_eq!(brief.groups.map(|report| report.cap), Some(1.0));
    assert!(fairfed(Value::Null).set_state(json!({"wbar": {"a": -1}})).is_err());
}

proptest! {
    /// On tiers: the mean of each region with the weights of the formula; hostile sums stay in range.
    #[test]
    fn rounds_on_tiers(seed: u64, tiers in 1usize..5, nested: bool, beta in 0.0f64..5.0, hostile: bool) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        let mut rng = Rng::new(seed ^ 3);
        for member in &mut fleet.devices {
            let counts: Vec<u32> = (0..4).map(|_| 1 + rng.below(40) as u32).collect();
            let wrong: Vec<f64> = counts.iter().map(|&n| rng.below(u64::from(n)) as f64).collect();
            member.more = groups(&counts, &wrong);
        }
        let cell = |member: &TestDevice, at: usize| {
            (f64::from(member.more.group_counts[at]), member.more.group_losses[at])
        };
        let gap = |members: &[&TestDevice]| {
            let rate = |a: usize| {
                let (mut positive, mut all) = (0.0, 0.0);
                for member in members {
                    let ((zero, false_positive), (one, missed)) = (cell(member, a), cell(member, 2 + a));
                    positive += false_positive + one - missed;
                    all += zero + one;
                }
                positive / all
            };
            rate(0) - rate(1)
        };
        let all = gap(&fleet.devices.iter().collect::<Vec<_>>());
        let weight = |member: &TestDevice| {
            (-beta * (all - gap(&[member])).abs()).exp() * f64::from(member.samples)
        };
        let expected = fleet.weighted_mean(weight);
        assert_close(&fleet.combine(&mut fairfed(json!({"beta": beta}))).0, &expected, 1e-12);
        if hostile {
            fleet.devices[0].more.group_losses = [1e300, -1e300, f64::MAX, 0.0].into_iter().collect();
            for version in [1, 2] {
                let (theta, outcome) = fleet.combine(&mut fairfed(json!({"version": version})));
                prop_assert!(theta.iter().chain(&outcome.weights).all(|value| value.is_finite()));
            }
        }
    }
}
