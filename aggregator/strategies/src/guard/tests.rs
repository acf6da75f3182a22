//! The rules on whole cohorts, and through [`combine`].

use common::{Code, Tier, TierSet, message::Scalars, region::RegionMap};

use super::*;
use crate::{
    combine::{Outcome, combine},
    method::by_name,
    methods::fleet::assert_close,
};

/// Tiers that hold the same `parameters` numbers.
fn regions(tiers: usize) -> RegionMap {
    RegionMap::from_spans(2, tiers, [(0, 2, TierSet::first(tiers))])
}

/// One device: tier, samples, loss and the length of its update.
type UpdateRef = (usize, u32, f64, f64);

fn cohort(regions: &RegionMap, rows: &[UpdateRef]) -> Cohort {
    let mut cohort = Cohort::new(regions.clone(), 0.1);
    for (index, &(tier, samples, loss, length)) in rows.iter().enumerate() {
        let scalars = Scalars { samples, loss_before: loss, ..Scalars::default() };
        let device = format!("d{index}").parse().unwrap();
        cohort.admit(device, Tier::new(tier).unwrap(), scalars, &[length * length]).unwrap();
    }
    cohort
}

fn inspect(guard: &Guard, cohort: &mut Cohort) -> Inspection {
    guard.inspect(cohort, Kind::Train)
}

fn losses(cohort: &Cohort) -> Vec<f64> {
    cohort.participants().iter().map(|participant| participant.loss()).collect()
}

/// Weights over all participants with updates of length 1.
fn weigh(strategy: &str, params: serde_json::Value, cohort: &Cohort) -> Outcome {
    let updates: Vec<Vec<f64>> = cohort.participants().iter().map(|_| vec![0.6, 0.8]).collect();
    let mut theta = vec![0.0f64; 2];
    let mut method = by_name(strategy, params).unwrap();
    combine(&mut method, cohort, &[], &mut &updates[..], &mut theta).unwrap()
}

#[test]
fn a_loss_counts_up_to_six_medians_of_the_fleet() {
    let regions = regions(2);
    let mut cohort =
        cohort(&regions, &[(0, 10, 1.0, 1.0), (0, 10, 1.2, 1.0), (0, 10, 0.8, 1.0), (1, 10, 50.0, 1.0)]);
    let inspection = inspect(&Guard::default(), &mut cohort);
    assert_eq!(losses(&cohort), [1.0, 1.2, 0.8, 6.0]);
    let [finding] = &inspection.findings[..] else { panic!("{:?}", inspection.findings) };
    assert_eq!(
        (finding.device.as_str(), finding.what, finding.said, finding.counted),
        ("d3", "loss", 50.0, 6.0)
    );
    assert_eq!(finding.why, "more than 6 medians");
}

/// The rules of 2026-11-17, whose worked numbers stay as they were.
fn narrow() -> GuardConfig {
    GuardConfig { loss: 4.0, share: 2.0, floor: 0.5, ..GuardConfig::default() }
}

/// Two tiers of four, FairHeteroFL with q 2 and q_m 1: one device reports a million times its loss.
#[test]
fn a_liar_lifts_neither_itself_nor_its_tier_beyond_the_bounds() {
    let regions = regions(2);
    let rows: Vec<UpdateRef> =
        (0..8).map(|index| (index / 4, 60, if index == 3 { 0.5e6 } else { 0.5 }, 1.0)).collect();
    let mut cohort = cohort(&regions, &rows);
    inspect(&Guard::new(narrow()), &mut cohort);
    assert_eq!(losses(&cohort)[3], 2.0);
    let params = serde_json::json!({ "q": 2.0, "q_m": 1.0, "step": "reweight" });
    let outcome = weigh("fairheterofl", params.clone(), &cohort);
    let expected = [&[0.155108; 3][..], &[0.25], &[0.071169; 4]].concat();
    assert_close(&outcome.weights, &expected, 1e-6);
    let [capped] = &outcome.capped[..] else { panic!("{:?}", outcome.capped) };
    assert_eq!((capped.device.as_str(), capped.counted), ("d3", 0.25));
    assert!((capped.wanted - 0.452728).abs() < 1e-6);
    assert_eq!(outcome.raised, 7);
    cohort.bounds = None;
    let expected = [&[0.113182; 3][..], &[0.452728], &[0.051931; 4]].concat();
    assert_close(&weigh("fairheterofl", params, &cohort).weights, &expected, 1e-6);
}

#[test]
fn an_update_is_at_most_three_medians_long_or_as_long_as_all_were_early() {
    let regions = regions(1);
    let mut guard = Guard::default();
    let with =
        |lengths: &[f64]| -> Vec<UpdateRef> { lengths.iter().map(|&length| (0, 10, 1.0, length)).collect() };
    let mut first = cohort(&regions, &with(&[1.0, 1.1, 0.9, 1.2, 10.0]));
    let inspection = inspect(&guard, &mut first);
    assert_close(&[inspection.scales[&"d4".parse().unwrap()]], &[0.33], 1e-12);
    assert_close(&[first.norm(4).sqrt()], &[3.3], 1e-12);
    assert_eq!(inspection.findings[0].what, "length");
    guard.learn([&inspection]);
    let mut restored = Guard::default();
    restored.restore(&guard.save());
    assert_eq!(restored, guard);
    let later = |length: f64| {
        let mut later = cohort(&regions, &with(&[0.1, 0.1, 0.1, 0.1, length]));
        inspect(&restored, &mut later).scales
    };
    // All were 1.1 long once, so three times that is allowed, although three medians are 0.3.
    assert!(later(3.2).is_empty());
    assert_close(&[later(6.6)[&"d4".parse().unwrap()]], &[0.5], 1e-12);
}

/// For every strategy that averages, and every tier: a device with ten times the loss of the others counts at least a third of
/// its plain share. Of nine devices, the loudest counts at most three average devices.
#[test]
fn no_strategy_takes_a_different_device_below_a_third_of_its_plain_share() {
    let regions = regions(3);
    let rows: Vec<UpdateRef> = (0..9)
        .map(|index| {
            (index % 3, 40 + index as u32, if index == 0 { 9.0 } else { 0.6 + 0.1 * index as f64 }, 1.0)
        })
        .collect();
    for name in crate::registry::Registry::standard().names() {
        let method = by_name(name, serde_json::Value::Null).unwrap();
        let plain_updates = method.strategy.scope().is_none() && !method.needs().groups;
        if !plain_updates {
            continue;
        }
        let mut cohort = cohort(&regions, &rows);
        let plain = method.strategy.base_weights(&cohort);
        let all: f64 = plain.iter().sum();
        inspect(&Guard::default(), &mut cohort);
        let outcome = weigh(name, serde_json::Value::Null, &cohort);
        for (weight, plain) in outcome.weights.iter().zip(plain) {
            assert!(*weight >= 0.33 * plain / all - 1e-12, "{}: {:?}", name, outcome.weights);
            assert!(*weight <= 3.0 / 9.0 + 1e-12, "{}: {:?}", name, outcome.weights);
        }
    }
}

/// One tier of 20, one of which has rare classes: its high loss may count five average devices. If a fifth of the fleet reports
/// such losses, each counts three.
#[test]
fn one_loud_device_counts_more_than_one_of_many() {
    let regions = regions(1);
    let loudest = |loud: usize| {
        let rows: Vec<UpdateRef> =
            (0..20).map(|index| (0, 60, if index < loud { 50.0 } else { 0.5 }, 1.0)).collect();
        let mut cohort = cohort(&regions, &rows);
        inspect(&Guard::default(), &mut cohort);
        weigh("fairheterofl", serde_json::json!({ "q": 8.0, "q_m": 1.0, "step": "reweight" }), &cohort)
    };
    let alone = loudest(1);
    assert_close(&alone.weights[..2], &[0.25, 0.75 / 19.0], 1e-9);
    let [capped] = &alone.capped[..] else { panic!("{:?}", alone.capped) };
    let why = GuardFinding::share(capped, &GuardConfig::default()).why;
    assert_eq!(why, "more than 5 average devices");
    let fifth = loudest(4);
    assert_close(&fifth.weights[..5], &[0.15, 0.15, 0.15, 0.15, 0.4 / 16.0], 1e-9);
    let why = GuardFinding::share(&fifth.capped[0], &GuardConfig::default()).why;
    assert_eq!(why, "more than 3.0 average devices: the loudest fifth counts 3 each");
}

/// Where nothing exceeds a bound, the model is the same to the last bit with and without the guard.
#[test]
fn a_fleet_within_the_bounds_has_the_model_of_an_unguarded_one() {
    let regions = regions(2);
    let rows: Vec<UpdateRef> = (0..6).map(|index| (index % 2, 50, 1.0 + 0.01 * index as f64, 1.0)).collect();
    for name in crate::registry::Registry::standard().names() {
        let needs = by_name(name, serde_json::Value::Null).unwrap().needs();
        if needs.groups || name == "afl" {
            continue;
        }
        let step = |guarded: bool| {
            let mut cohort = cohort(&regions, &rows);
            if guarded {
                assert!(inspect(&Guard::default(), &mut cohort).findings.is_empty());
            }
            let updates: Vec<Vec<f64>> = (0..6).map(|index| vec![0.6 + 0.01 * index as f64, 0.8]).collect();
            let mut theta = vec![0.0f64; 2];
            let mut method = by_name(name, serde_json::Value::Null).unwrap();
            combine(&mut method, &cohort, &[], &mut &updates[..], &mut theta).unwrap();
            theta
        };
        assert_eq!(step(true), step(false), "{}", name);
    }
}

/// The step length that a strategy chooses stays its own.
#[test]
fn a_bounded_step_keeps_the_strategys_length() {
    let regions = regions(2);
    let rows: Vec<UpdateRef> =
        (0..8).map(|index| (index / 4, 60, if index == 3 { 5.0 } else { 0.5 }, 1.0)).collect();
    let mut cohort = cohort(&regions, &rows);
    inspect(&Guard::default(), &mut cohort);
    for (strategy, params) in [
        ("fairheterofl", serde_json::json!({ "q": 2.0, "q_m": 1.0, "step": "hessian" })),
        ("qffl", serde_json::json!({ "q": 2.0 })),
        ("fedsgd", serde_json::json!({ "lr": 0.5 })),
    ] {
        let step = |cohort: &Cohort| {
            // All updates are the same, so the step is that update times the length.
            let updates: Vec<Vec<f64>> = cohort.participants().iter().map(|_| vec![0.6, 0.8]).collect();
            let mut theta = vec![0.0f64; 2];
            let mut method = by_name(strategy, params.clone()).unwrap();
            combine(&mut method, cohort, &[], &mut &updates[..], &mut theta).unwrap();
            theta
        };
        let bounded = step(&cohort);
        let mut free = cohort.clone();
        free.bounds = None;
        assert_close(&bounded, &step(&free), 1e-9);
    }
}

#[test]
fn a_guard_that_is_off_changes_nothing() {
    let regions = regions(1);
    let config = GuardConfig { mode: Mode::Off, ..GuardConfig::default() };
    let rows = [(0, 10, 1.0, 1.0), (0, 10, 1.0, 1.0), (0, 9999, 1e6, 1e6)];
    let mut cohort = cohort(&regions, &rows);
    assert_eq!(inspect(&Guard::new(config), &mut cohort), Inspection::default());
    assert_eq!((losses(&cohort)[2], cohort.norm(2).sqrt(), cohort.bounds), (1e6, 1e6, None));
}

#[test]
fn a_fleet_that_has_learnt_everything_is_not_measured_by_a_median_of_zero() {
    let regions = regions(1);
    let mut cohort = cohort(&regions, &[(0, 10, 0.0, 0.0), (0, 10, 0.0, 0.0), (0, 10, 2.0, 1.0)]);
    assert!(inspect(&Guard::default(), &mut cohort).findings.is_empty());
    assert_eq!(losses(&cohort), [0.0, 0.0, 2.0]);
}

#[test]
fn guards_of_format_4_and_this_one_drop_the_state_of_each_other() {
    let mut guard = Guard::default();
    guard.restore(&[1, 1, b'a', 10, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(guard, Guard::default());
    // The older guard reads a map: its stated length must be impossible.
    assert!(postcard::from_bytes::<BTreeMap<DeviceId, u8>>(TAG).is_err());
}

#[test]
fn counts_at_enrolment_are_bounded_for_strategies_that_start_from_them() {
    let record = |name: &str, samples: u32| {
        let data = common::message::DataSummary { train_samples: samples, ..Default::default() };
        let (tier, budget) = (Tier::new(0).unwrap(), common::Budget::UNLIMITED);
        (name.parse().unwrap(), DeviceRecord { device: name.parse().unwrap(), tier, budget, data })
    };
    let fleet: BTreeMap<DeviceId, DeviceRecord> = ["a", "b", "c", "d", "e", "f", "g"]
        .map(|name| record(name, 60))
        .into_iter()
        .chain([record("h", 6000)])
        .collect();
    let counts: Vec<u32> =
        Guard::default().enrolled(&fleet).iter().map(|record| record.data.train_samples).collect();
    assert_eq!(counts, [60, 60, 60, 60, 60, 60, 60, 140]);
}

#[test]
fn figures_that_some_strategies_ask_for_are_bounded_like_losses() {
    let regions = regions(1);
    let mut cohort = Cohort::new(regions.clone(), 0.1);
    for index in 0..5 {
        let loud = if index == 4 { 1e6 } else { 1.0 };
        let scalars = Scalars {
            samples: 20,
            loss_before: 1.0,
            loss_after: Some(0.5 * loud),
            gap: Some(0.25 * loud),
            mass: Some(20.0 * loud),
            trials: [0.9 * loud, 0.8].into_iter().collect(),
            group_losses: [5.0 * loud, 5.0].into_iter().collect(),
            group_counts: [10, 10].into_iter().collect(),
            ..Scalars::default()
        };
        cohort.admit(format!("d{index}").parse().unwrap(), Tier::new(0).unwrap(), scalars, &[1.0]).unwrap();
    }
    let inspection = inspect(&Guard::default(), &mut cohort);
    let liar = &cohort.participants()[4];
    assert_eq!(liar.loss_after(), 3.0);
    assert_eq!((liar.gap(), liar.mass()), (Some(6.0), Some(120.0)));
    assert_eq!(liar.trials(), [5.4, 0.8]);
    assert_eq!((liar.group_losses(), liar.group_counts()), (&[60.0, 5.0][..], &[10, 10][..]));
    let named: Vec<_> =
        inspection.findings.iter().map(|finding| (finding.device.as_str(), finding.what)).collect();
    let what = ["loss_after", "gap", "mass", "trials", "group_losses"];
    assert_eq!(named, what.map(|what| ("d4", what)));
}

#[test]
fn groups_with_more_samples_than_the_device_counts_with_are_cut() {
    let regions = regions(1);
    let mut cohort = Cohort::new(regions.clone(), 0.1);
    for index in 0..8 {
        let samples = if index == 7 { 6000 } else { 60 };
        let scalars = Scalars {
            samples,
            loss_before: 1.0,
            group_losses: [f64::from(samples) / 2.0; 2].into_iter().collect(),
            group_counts: [samples / 2; 2].into_iter().collect(),
            ..Scalars::default()
        };
        cohort.admit(format!("d{index}").parse().unwrap(), Tier::new(0).unwrap(), scalars, &[1.0]).unwrap();
    }
    inspect(&Guard::default(), &mut cohort);
    let [honest, boaster] = [0, 7].map(|index: usize| cohort.participants()[index].group_counts().to_vec());
    assert_eq!((honest, boaster), (vec![30, 30], vec![70, 70]));
}

/// Four rounds of pointing the other way are enough to leave a device out; pointing along again brings it back.
#[test]
fn the_probe_leaves_out_opposed_devices_and_readmits_them() {
    let regions = regions(1);
    let config = GuardConfig { probe: "probe.csv".into(), ..GuardConfig::default() };
    let mut guard = Guard::new(config);
    let rows = [(0, 10, 1.0, 1.0); 3];
    let left_out = |guard: &Guard| {
        let mut cohort = cohort(&regions, &rows);
        let inspection = inspect(guard, &mut cohort);
        assert_eq!(cohort.participants().len() + inspection.left_out.len(), 3);
        assert!(cohort.refused().iter().all(|refused| refused.code == Code::PointsAway));
        inspection.left_out.len()
    };
    let updates: Vec<Vec<f64>> = vec![vec![0.6, 0.8], vec![-0.6, -0.8], vec![0.8, -0.6]];
    let round = |guard: &mut Guard, updates: &[Vec<f64>]| {
        let cosines = probe::cosines(&cohort(&regions, &rows), &[3.0, 4.0], &mut &*updates).unwrap();
        guard.note_probe(&cosines);
        cosines.into_values().collect::<Vec<_>>()
    };
    assert_close(&round(&mut guard, &updates), &[1.0, -1.0, 0.0], 1e-12);
    assert_eq!(left_out(&guard), 0);
    round(&mut guard, &updates);
    assert_eq!(left_out(&guard), 0);
    (0..2).for_each(|_| _ = round(&mut guard, &updates));
    assert_eq!(left_out(&guard), 1);
    let mut restored = Guard::new(guard.config().clone());
    restored.restore(&guard.save());
    assert_eq!(left_out(&restored), 1);
    let honest = vec![vec![0.6, 0.8]; 3];
    (0..3).for_each(|_| _ = round(&mut guard, &honest));
    assert_eq!(left_out(&guard), 0);
}

#[test]
fn a_report_shows_a_device_that_is_badly_off_and_cuts_an_absurd_loss() {
    let delivered = |losses: [f64; 4]| -> Vec<Delivered> {
        let scalars = |loss| Scalars { loss_before: loss, ..Scalars::default() };
        let row =
            |(index, loss)| (format!("d{index}").parse().unwrap(), Tier::new(0).unwrap(), scalars(loss));
        losses.into_iter().enumerate().map(row).collect()
    };
    let (mut badly, mut findings) = (delivered([0.1, 0.1, 0.1, 9.0]), vec![]);
    Guard::default().limit_reported_losses(&mut badly, &mut findings);
    assert!(findings.is_empty() && badly[3].2.loss_before == 9.0);
    let mut absurd = delivered([0.1, 0.1, 0.1, 1e6]);
    Guard::default().limit_reported_losses(&mut absurd, &mut findings);
    assert_eq!((absurd[3].2.loss_before, findings[0].what, findings[0].said), (10.0, "shown_loss", 1e6));
}
