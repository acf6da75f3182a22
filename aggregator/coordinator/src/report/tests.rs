use common::{
    DeviceId, ExchangeId, Instant, Tier,
    message::{Errors, Scalars, Score},
};

use super::*;
use crate::record::DeviceInTier;
use strategies::cohort::Refused;

fn tier(index: usize) -> Tier {
    Tier::new(index).unwrap()
}

fn id(name: &str) -> DeviceId {
    name.parse().unwrap()
}

fn in_tier(name: &str, index: usize) -> DeviceInTier {
    DeviceInTier { device: id(name), tier: tier(index) }
}

fn score(samples: u32, correct: u32, loss: f64) -> Option<Score> {
    Some(Score { samples, correct, loss })
}

/// The devices of the specification's examples: accuracies 0.9, 0.8 in tier 0 and 0.7, 0.4 in tier 1.
fn closed() -> ClosedExchange {
    let scalars = |samples, correct, gap: Option<f64>| Scalars {
        samples,
        loss_before: 1.0,
        test: score(10, correct, f64::from(10 - correct)),
        gap,
        ..Scalars::default()
    };
    ClosedExchange {
        id: ExchangeId { round: 7, exchange: 0 },
        kind: strategies::strategy::Kind::Train,
        lr: 0.1,
        opened: Instant::from_millis(1000),
        closed: Instant::from_millis(3500),
        at: None,
        delivered: vec![
            (id("a"), tier(0), scalars(10, 9, Some(0.3))),
            (id("b"), tier(0), scalars(20, 8, Some(0.1))),
            (id("c"), tier(1), scalars(30, 7, Some(-0.1))),
            (id("d"), tier(1), scalars(40, 4, None)),
        ],
        refused: vec![RefusedDevice { device: id("e"), tier: tier(1), code: Code::NonFiniteUpdate }],
        silent: vec![in_tier("f", 0)],
        gone: vec![in_tier("f", 0)],
        late: vec![in_tier("d", 1)],
    }
}

fn outcome(weights: &[f64], refused: &[&str]) -> Outcome {
    let refused = refused.iter().map(|name| Refused { device: id(name), code: Code::NonFiniteLoss });
    Outcome {
        capped: vec![],
        raised: 0,
        kept: None,
        weights: weights.to_vec(),
        regions: vec![],
        refused: refused.collect(),
        notes: Default::default(),
        fairness: vec![],
        signals: vec![],
    }
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-12, "{a} {b}");
}

#[test]
fn figures_per_tier_and_overall() {
    let report = RoundReport::new(&closed(), Purpose::Train, Some(&outcome(&[0.25; 4], &[])), 3);
    near(report.accuracy.variance, 0.035);
    near(report.accuracy_by_tier[0].variance, 0.0025);
    near(report.accuracy_by_tier[1].variance, 0.0225);
    near(report.accuracy_split.within, 0.0125);
    near(report.accuracy_split.inter, 0.0225);
    assert_eq!(report.accuracy_by_tier[2].count, 0);
    let pooled = report.pooled.unwrap();
    assert_eq!((pooled.samples, pooled.accuracy, pooled.loss), (40, Some(0.7), 3.0));
    let gaps = report.gaps.unwrap();
    assert_eq!((gaps.count, gaps.max, gaps.min), (3, 0.3, -0.1));
    near(gaps.variance, 0.04);
    assert_eq!(report.gaps_by_tier.iter().map(|tier| tier.count).collect::<Vec<_>>(), [2, 1, 0]);
    let counts = |asked, delivered, refused, silent, late| {
        let (stragglers, dropouts) = (0, silent);
        Participation { asked, delivered, refused, silent, late, stragglers, dropouts }
    };
    assert_eq!(report.participation, [counts(3, 2, 0, 1, 0), counts(3, 2, 1, 0, 1), counts(0, 0, 0, 0, 0)]);
    let weights = report.weights.unwrap();
    near(weights.effective, 4.0);
    near(weights.entropy, 4.0f64.ln());
    near(weights.chi_square, 0.0225 / 0.1 + 0.0025 / 0.2 + 0.0025 / 0.3 + 0.0225 / 0.4);
    assert_eq!(report.weight_by_tier, [0.5, 0.5, 0.0]);
    assert_eq!((report.seconds, report.untested), (2.5, 0));
}

#[test]
fn weights_go_to_the_devices_that_counted() {
    let report = RoundReport::new(&closed(), Purpose::Train, Some(&outcome(&[0.2, 0.3, 0.5], &["b"])), 2);
    let weights: Vec<_> = report.devices.iter().map(|line| line.weight).collect();
    assert_eq!(weights, [Some(0.2), None, Some(0.3), Some(0.5)]);
    let none = RoundReport::new(&closed(), Purpose::Evaluate, None, 2);
    assert_eq!((none.weights, none.weight_by_tier.len()), (None, 0));
}

#[test]
fn groups_are_pooled_over_devices() {
    let mut closed = closed();
    // Together the worked counts of the specification, n = [[30,20],[20,30]].
    let halves = [([4.0, 8.0, 3.0, 2.0], [10, 10, 8, 10]), ([6.0, 2.0, 5.0, 4.0], [20, 10, 12, 20])];
    for ((.., scalars), (errors, counts)) in closed.delivered.iter_mut().zip(halves) {
        scalars.group_losses = errors.into_iter().collect();
        scalars.group_counts = counts.into_iter().collect();
    }
    let report = || RoundReport::new(&closed, Purpose::Train, None, 2);
    let groups = report().with_groups(&closed, Signal::ZeroOne);
    let all = groups.groups.unwrap();
    near(all.dp.overall, 0.12);
    near(all.dp.pair, 0.24);
    near(all.eo.overall, 0.12);
    assert_eq!(groups.groups_by_tier, [Some(all), None]);
    assert_eq!(report().with_groups(&closed, Signal::CrossEntropy).groups, None);
}

#[test]
fn personal_models_traffic_and_conflicts() {
    let mut closed = closed();
    closed.delivered[1].2.personal = score(10, 10, 0.5);
    let traffic = vec![Traffic { up: 10, down: 20 }, Traffic { up: 1, down: 2 }];
    let conflicts = Conflicts { model: 1, layers: vec![0, 2] };
    let report = RoundReport::new(&closed, Purpose::Train, None, 2)
        .with_traffic(traffic)
        .with_conflicts(conflicts.clone());
    assert_eq!(report.traffic, Some(Traffic { up: 11, down: 22 }));
    let personal = report.personal.as_ref().unwrap();
    assert_eq!((personal.loss.count, personal.accuracy.mean), (1, 1.0));
    assert_eq!(personal.accuracy_by_tier[1].count, 0);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["conflicts"], serde_json::json!({ "model": 1, "layers": [0, 2] }));
    assert_eq!(json["traffic"]["up"], 11);
    // What no device reported is left out.
    assert!(json.get("groups").is_none() && json.get("weights").is_none());
    let row = history::HistoryRow::parse(&json.to_string()).unwrap().cells;
    assert_eq!((row[0], row[1], row[20], row[21]), (Some(7.0), Some(4.0), Some(11.0), Some(22.0)));
}

/// Two devices of two targets each. Targets 1, 3 and 5, 11 have mean 5 and squared distances 56; errors are 1, 1 and 2, 4.
#[test]
fn numbers_have_errors_instead_of_accuracies() {
    let mut closed = closed();
    closed.delivered.truncate(3);
    let errors = [
        Some(Errors { absolute: 10.0, squared: 1.0, mean: 2.0, variance: 1.0 }),
        None,
        Some(Errors { absolute: 30.0, squared: 10.0, mean: 8.0, variance: 9.0 }),
    ];
    for ((.., scalars), errors) in closed.delivered.iter_mut().zip(errors) {
        scalars.test = errors.and(score(2, 0, 1.0));
        scalars.errors = errors;
    }
    let report = RoundReport::new(&closed, Purpose::Train, None, 2).with_task(&closed, TaskKind::Regression);
    let found = report.errors.as_ref().unwrap();
    assert_eq!((found.mae.count, found.mae.mean, found.mae_by_tier[1].mean), (2, 20.0, 30.0));
    near(found.r2.unwrap(), 1.0 - 22.0 / 56.0);
    near(found.r2_by_tier[0].unwrap(), 0.0);
    near(found.r2_by_tier[1].unwrap(), 1.0 - 20.0 / 18.0);
    assert_eq!((report.devices[0].test_mae, report.devices[0].test_r2), (Some(10.0), Some(0.0)));
    assert_eq!((report.devices[1].test_mae, report.devices[1].test_r2), (None, None));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["task"], "regression");
    assert_eq!(json["accuracy"], serde_json::json!({ "count": 0 }), "there is no accuracy of 0");
    assert!(json["pooled"].get("accuracy").is_none() && json["devices"][0].get("test_accuracy").is_none());
}
