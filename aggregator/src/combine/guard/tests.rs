use common::TierSet;
use common::{Budget, message::DataSummary, message::Scalars, region::RegionMap, rng::Rng};
use proptest::{prelude::prop, prop_assert, proptest};

use super::*;
use crate::{
    combine::{Updates, combine, weighted_mean},
    strategy::{Weights, by_name},
};

const PARAMETERS: usize = 6;

/// Two tiers: one holds everything, the other the first four numbers.
fn regions() -> RegionMap {
    let (zero, one) = (Tier::new(0).unwrap(), Tier::new(1).unwrap());
    let wide = TierSet::EMPTY.with(zero);
    RegionMap::from_runs(PARAMETERS, 2, vec![(0, 4, wide.with(one)), (4, 2, wide)])
}

#[derive(Clone)]
struct Device {
    name: String,
    tier: usize,
    samples: u32,
    loss: f64,
    update: Vec<f64>,
}

fn id(name: &str) -> DeviceId {
    name.parse().unwrap()
}

/// Five devices in each tier, all alike but for a little noise.
fn fleet(seed: u64) -> Vec<Device> {
    let mut rng = Rng::new(seed);
    let device = |at: usize| {
        let tier = at / 5;
        let update = (0..if tier == 0 { 6 } else { 4 }).map(|k| 1.0 + 0.1 * k as f64 + 0.05 * rng.normal());
        Device { name: format!("d{at}"), tier, samples: 20, loss: 2.0, update: update.collect() }
    };
    let mut fleet: Vec<_> = (0..10).map(device).collect();
    fleet.iter_mut().for_each(|device| device.loss *= (0.1 * rng.normal()).exp());
    fleet
}

fn cohort<'a>(regions: &'a RegionMap, fleet: &[Device]) -> Cohort<'a> {
    let mut cohort = Cohort::new(regions, 0.1);
    for device in fleet {
        let scalars = Scalars {
            samples: device.samples,
            loss_before: device.loss,
            loss_after: Some(0.9 * device.loss),
            ..Scalars::default()
        };
        let tier = Tier::new(device.tier).unwrap();
        let norms = crate::combine::check_update(&device.update, regions.pieces(tier), 2).unwrap();
        cohort.admit(id(&device.name), tier, scalars, &norms).unwrap();
    }
    cohort
}

fn updates(fleet: &[Device]) -> Vec<Vec<f64>> {
    let mut order: Vec<_> = fleet.iter().collect();
    order.sort_by_key(|member| id(&member.name));
    order.into_iter().map(|device| device.update.clone()).collect()
}

fn names(verdict: &Verdict) -> Vec<(&str, &str)> {
    verdict.lines.iter().map(|line| (line.device.as_str(), line.what)).collect()
}

/// One round: inspected and learned from.
fn round(guard: &mut Guard, fleet: &[Device]) -> Verdict {
    let regions = regions();
    let verdict = guard.inspect(&mut cohort(&regions, fleet), Kind::Train);
    guard.learn(verdict.clone());
    verdict
}

#[test]
fn an_inflated_loss_counts_as_the_middle_of_the_peers() {
    let regions = regions();
    for factor in [1000.0, 1e6, 1e300] {
        let mut fleet = fleet(1);
        fleet[2].loss *= factor;
        fleet[8].loss *= factor;
        let mut cohort = cohort(&regions, &fleet);
        let verdict = Guard::default().inspect(&mut cohort, Kind::Train);
        let expected = [("d2", "loss"), ("d8", "loss"), ("d2", "loss_after"), ("d8", "loss_after")];
        assert_eq!(names(&verdict), expected);
        for (index, tier) in [(2, 0..5), (8, 5..10)] {
            let mut all: Vec<f64> = tier.map(|at| fleet[at].loss).collect();
            all.sort_by(f64::total_cmp);
            assert!((cohort.participants()[index].loss() - all[2]).abs() < 1e-12, "the liar is one of five");
            assert!(cohort.participants()[index].loss_after() < all[2]);
        }
        assert!(verdict.lines.iter().all(|line| line.action == "clipped" && line.said > line.counted));
    }
}

#[test]
fn refusing_takes_the_device_out_with_a_code() {
    let regions = regions();
    let mut fleet = fleet(2);
    fleet[4].loss *= 50.0;
    fleet[7].update.iter_mut().for_each(|value| *value *= 10.0);
    let mut cohort = cohort(&regions, &fleet);
    let guard = Guard::new(GuardConfig { mode: Mode::Refuse, ..GuardConfig::default() });
    let verdict = guard.inspect(&mut cohort, Kind::Train);
    let refused: Vec<_> = verdict.refused.iter().map(|(device, _, code)| (device.as_str(), *code)).collect();
    assert_eq!(refused, [("d4", Code::ImplausibleLoss), ("d7", Code::ImplausibleNorm)]);
    assert!(verdict.scales.is_empty());
    let left: Vec<_> = cohort.participants().iter().map(|p| p.device.as_str()).collect();
    assert_eq!(left, ["d0", "d1", "d2", "d3", "d5", "d6", "d8", "d9"]);
    // Norms have moved with their devices.
    assert!((cohort.norm(7) - fleet[9].update.iter().map(|x| x * x).sum::<f64>()).abs() < 1e-12);
    assert_eq!(cohort.refused().len(), 2);
}

#[test]
fn a_long_update_is_shortened_to_the_middle_of_the_peers() {
    let regions = regions();
    let mut fleet = fleet(3);
    fleet[6].update.iter_mut().for_each(|value| *value *= 10.0);
    let mut cohort = cohort(&regions, &fleet);
    let verdict = Guard::default().inspect(&mut cohort, Kind::Train);
    assert_eq!(names(&verdict), [("d6", "norm")]);
    let norm = |device: &Device| device.update.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut all = [5, 6, 7, 8, 9].map(|at: usize| norm(&fleet[at]));
    all.sort_by(f64::total_cmp);
    let usual = all[2];
    assert!((cohort.norm(6).sqrt() - usual).abs() < 1e-9);
    // Reading gives the same length, whole or in parts.
    let raw = updates(&fleet);
    let mut scaled = Scaled::new(raw.as_slice(), &verdict.scales);
    let row = crate::combine::Row::Update(6, &cohort.participants()[6]);
    let mut buffer = vec![];
    let read = scaled.read(row, &mut buffer).unwrap().to_vec();
    assert!((read.iter().map(|x| x * x).sum::<f64>().sqrt() - usual).abs() < 1e-9);
    let mut part = [9.0; 4];
    assert_eq!(scaled.part(row, 2, &mut part), Ok(4));
    assert_eq!(part, [read[2], read[3], 9.0, 9.0]);
}

#[test]
fn samples_and_tiers_are_held_against_enrolment() {
    let regions = regions();
    let mut guard = Guard::default();
    let mut fleet = fleet(4);
    for device in &fleet {
        let data = DataSummary { train_samples: 20, ..DataSummary::default() };
        let (tier, budget) =
            (Tier::new(if device.name == "d9" { 0 } else { device.tier }).unwrap(), Budget::UNLIMITED);
        guard.enrol(&DeviceRecord { device: id(&device.name), tier, budget, data });
    }
    fleet[0].samples = 39;
    fleet[1].samples = 41;
    fleet[5].samples = 9;
    let mut cohort = cohort(&regions, &fleet);
    let verdict = guard.inspect(&mut cohort, Kind::Train);
    assert_eq!(names(&verdict), [("d1", "samples"), ("d5", "samples"), ("d9", "tier")]);
    let samples: Vec<_> = [0, 1, 5].iter().map(|&at: &usize| cohort.participants()[at].samples()).collect();
    assert_eq!(samples, [39.0, 20.0, 20.0]);
    // A second Hello does not change what it enrolled with.
    let data = DataSummary { train_samples: 4000, ..DataSummary::default() };
    guard.enrol(&DeviceRecord {
        device: id("d1"),
        tier: Tier::new(0).unwrap(),
        budget: Budget::UNLIMITED,
        data,
    });
    assert_eq!(guard.devices[&id("d1")].samples, 20);
}

/// A fleet whose losses differ by orders of magnitude from the first round on, and whose members learn at very
/// different speeds; sample counts from 5 to 500.
#[test]
fn honest_fleets_are_left_alone_however_skewed() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut guard = Guard::default();
        let skew = 0.3 + 0.7 * rng.unit_f64();
        let mut fleet: Vec<Device> = (0..40)
            .map(|at| {
                let (tier, spread) = (at % 2, skew * rng.normal());
                let samples = (5.0 * (4.6 * rng.unit_f64()).exp()) as u32;
                let length = (0.3 * rng.normal()).exp() * f64::from(samples).sqrt();
                let update = vec![0.01 * length; if tier == 0 { 6 } else { 4 }];
                Device { name: format!("d{at:02}"), tier, samples, loss: 2.0 * spread.exp(), update }
            })
            .collect();
        let speeds: Vec<f64> = fleet.iter().map(|_| 0.85 + 0.15 * rng.unit_f64()).collect();
        for number in 0..20 {
            let verdict = round(&mut guard, &fleet);
            assert_eq!(names(&verdict), [], "seed {seed}, round {number}");
            for (device, speed) in fleet.iter_mut().zip(&speeds) {
                device.loss *= speed * (0.05 * rng.normal()).exp();
                device.update.iter_mut().for_each(|value| *value *= 0.95 * (0.05 * rng.normal()).exp());
            }
        }
    }
}

#[test]
fn who_is_left_behind_by_all_others_is_still_believed() {
    let mut guard = Guard::default();
    let mut fleet = fleet(5);
    for _ in 0..15 {
        assert_eq!(names(&round(&mut guard, &fleet)), []);
        // In the end the others' loss is a hundredth of it.
        fleet.iter_mut().skip(1).for_each(|device| device.loss *= 0.73);
        fleet[0].loss *= 0.999;
    }
    assert!(fleet[0].loss > 80.0 * fleet[1].loss);
    // It can not climb from there.
    fleet[0].loss *= 2.0;
    assert_eq!(names(&round(&mut guard, &fleet))[0], ("d0", "loss"));
}

#[test]
fn who_suddenly_says_much_more_is_held_to_its_past() {
    let mut guard = Guard::default();
    let mut fleet = fleet(6);
    // Peers that differ so much that they alone would allow it.
    fleet.iter_mut().enumerate().for_each(|(at, device)| device.loss = 2.0 * (at % 5) as f64 + 0.2);
    assert_eq!(names(&round(&mut guard, &fleet)), []);
    // Up to what is usual, and some more, everybody is believed.
    fleet[0].loss = 4.0;
    assert_eq!(names(&round(&mut guard.clone(), &fleet)), []);
    fleet[0].loss = 40.0;
    let verdict = round(&mut guard, &fleet);
    assert_eq!((verdict.lines[0].why, verdict.lines[0].device.as_str()), (OWN_PAST, "d0"));
    assert!(
        (verdict.lines[0].counted - DRIFT * fleet[3].loss).abs() < 1e-12,
        "the median, and a little more"
    );
    // The past survives a restart.
    let mut restored = Guard::default();
    restored.restore(&guard.save());
    assert_eq!(restored, guard);
    assert_eq!(round(&mut restored, &fleet).lines[0].why, OWN_PAST);
    restored.restore(b"rubbish");
    assert!(restored.devices.is_empty());
}

#[test]
fn a_guard_that_is_off_lets_everything_pass() {
    let regions = regions();
    let mut fleet = fleet(7);
    fleet[3].loss *= 1e6;
    let guard = Guard::new(GuardConfig { mode: Mode::Off, ..GuardConfig::default() });
    let mut cohort = cohort(&regions, &fleet);
    assert_eq!(guard.inspect(&mut cohort, Kind::Train), Verdict::default());
    assert_eq!(cohort.participants()[3].loss(), fleet[3].loss);
    assert!(!guard.screens());
}

/// What strategies other than averages ask for: the eleventh device lies about one figure at a time.
#[test]
fn masses_gaps_trials_and_groups_are_held_against_the_peers() {
    type Lie = fn(&mut Scalars);
    let lies: [(&str, Lie, Lie); 7] = [
        ("mass", |s| s.mass = Some(1e6), |s| assert!(s.mass < Some(30.0))),
        ("gap", |s| s.gap = Some(1e3), |s| assert!(s.gap < Some(1.0))),
        ("gap", |s| s.gap = Some(-1e3), |s| assert!(s.gap > Some(-20.0))),
        ("trials", |s| s.trials[1] = 1e9, |s| assert!(s.trials[1] < 3.0 && s.trials[0] < 3.0)),
        ("group_losses", |s| s.group_losses[0] = 1e9, |s| assert!(s.group_losses[0] < 40.0)),
        ("group_losses", |s| s.group_losses[1] = -1e9, |s| assert_eq!(s.group_losses[1], 0.0)),
        (
            "group_counts",
            |s| s.group_counts[0] = 4_000_000,
            |s| assert!(s.group_counts.iter().sum::<u32>() <= 20),
        ),
    ];
    for (number, (what, lie, check)) in lies.into_iter().enumerate() {
        let regions = regions();
        let (mut rng, mut cohort) = (Rng::new(3), Cohort::new(&regions, 0.1));
        for at in 0..11 {
            let mut about = |value: f64| value * (0.1 * rng.normal()).exp();
            let mut scalars = Scalars {
                samples: 20,
                loss_before: about(2.0),
                gap: Some(about(0.3)),
                mass: Some(about(20.0)),
                group_losses: [about(20.0), about(15.0)].into_iter().collect(),
                group_counts: [10, 10].into_iter().collect(),
                trials: [about(2.0), about(1.9)].into_iter().collect(),
                ..Scalars::default()
            };
            if at == 10 {
                lie(&mut scalars);
            }
            let tier = Tier::new(0).unwrap();
            cohort.admit(id(&format!("d{at:02}")), tier, scalars, &[1.0, 1.0]).unwrap();
        }
        let verdict = Guard::default().inspect(&mut cohort, Kind::Train);
        assert_eq!(names(&verdict), [("d10", what)], "lie {number}");
        let liar = &cohort.participants()[10];
        let mut believed = Scalars {
            gap: liar.gap(),
            mass: liar.mass(),
            group_losses: liar.group_losses().iter().copied().collect(),
            group_counts: liar.group_counts().iter().copied().collect(),
            trials: liar.trials().iter().copied().collect(),
            ..Scalars::default()
        };
        check(&mut believed);
    }
}

#[test]
fn cosines_are_those_with_the_mean_of_the_others() {
    let regions = regions();
    let mut rng = Rng::new(8);
    let mut fleet = fleet(8);
    fleet.iter_mut().for_each(|device| device.update.iter_mut().for_each(|value| *value = rng.normal()));
    let raw = updates(&fleet);
    let found = screen::cosines(&cohort(&regions, &fleet), &mut raw.as_slice()).unwrap();
    for device in &fleet {
        let unit = |other: &Device, at: usize| {
            let norm = other.update.iter().map(|x| x * x).sum::<f64>().sqrt();
            other.update.get(at).map_or(0.0, |x| x / norm)
        };
        let others = |at| fleet.iter().filter(|o| o.name != device.name).map(|o| unit(o, at)).sum::<f64>();
        let range = 0..device.update.len();
        let product: f64 = range.clone().map(|at| unit(device, at) * others(at)).sum();
        let norm: f64 = range.map(|at| others(at).powi(2)).sum::<f64>().sqrt();
        assert!((found[&id(&device.name)] - product / norm).abs() < 1e-9);
    }
}

#[test]
fn locations() {
    let of = |robust, pairs: &[(f64, f64)]| robust::location(robust, &mut pairs.to_vec());
    let plain = [(3.0, 1.0), (1.0, 1.0), (100.0, 1.0), (2.0, 1.0)];
    assert_eq!(of(Robust::Median, &plain), 2.5);
    assert_eq!(of(Robust::Median, &plain[..3]), 3.0);
    assert_eq!(of(Robust::Median, &[(1.0, 1.0), (2.0, 5.0), (9.0, 1.0)]), 2.0);
    assert_eq!(of(Robust::Trimmed(0.25), &plain), 2.5);
    assert_eq!(of(Robust::Trimmed(0.0), &plain), 26.5);
    // Half of the weight of 0 and of 8 is left out.
    assert!((of(Robust::Trimmed(0.125), &[(0.0, 1.0), (4.0, 2.0), (8.0, 1.0)]) - 4.0).abs() < 1e-12);
    assert_eq!(of(Robust::Median, &[]), 0.0);
    for text in ["off", "median", "trimmed:0.2"] {
        assert_eq!(text.parse::<Robust>().unwrap().to_string(), text);
    }
    for text in ["", "mean", "trimmed", "trimmed:0.5", "trimmed:-0.1", "trimmed:nan"] {
        assert!(text.parse::<Robust>().is_err(), "{text}");
    }
}

#[test]
fn a_fifth_of_the_devices_can_not_turn_a_robust_step() {
    let regions = regions();
    let mut hostile = fleet(9);
    for at in [1, 6] {
        hostile[at].update.iter_mut().for_each(|value| *value *= -1.0);
        hostile[at].loss *= 3.9;
    }
    for strategy in ["heterofl", "fairheterofl", "qffl"] {
        for robust in [Robust::Median, Robust::Trimmed(0.35)] {
            let mut cohort = cohort(&regions, &hostile);
            cohort.robust = robust;
            let mut theta = vec![0.0f64; PARAMETERS];
            let params = match strategy {
                "fairheterofl" => serde_json::json!({ "step": "reweight", "q_m": 1.0 }),
                _ => serde_json::json!({}),
            };
            let mut method = by_name(strategy, params).unwrap();
            let raw = updates(&hostile);
            combine(&mut method, &cohort, &[], &mut raw.as_slice(), &mut theta).unwrap();
            // A step may have another length in every region; its direction is what the honest ones want.
            for (at, value) in theta.iter().enumerate() {
                let first = if at < 4 { 0 } else { 4 };
                let honest = (1.0 + 0.1 * at as f64) / (1.0 + 0.1 * first as f64);
                let turned = (value / theta[first] - honest).abs() > 0.2 || theta[first] <= 0.0;
                assert!(!turned, "{strategy} {robust}: {theta:?}");
            }
        }
    }
}

proptest! {
    /// Trimming nothing is the mean, over regions and stretches alike.
    #[test]
    fn trimming_nothing_is_the_mean(seed: u64, wide in 1usize..700, narrow in 1usize..700) {
        let (zero, one) = (Tier::new(0).unwrap(), Tier::new(1).unwrap());
        let all = TierSet::EMPTY.with(zero);
        let runs = vec![(0, narrow, all.with(one)), (narrow, wide, all), (narrow + wide, narrow, all.with(one))];
        let regions = RegionMap::from_runs(2 * narrow + wide, 2, runs);
        let mut rng = Rng::new(seed);
        let mut cohort = Cohort::new(&regions, 0.1);
        let mut raw = vec![];
        for at in 0..6 {
            let tier = if at % 2 == 0 { zero } else { one };
            let update: Vec<f64> = (0..regions.slice_len(tier)).map(|_| rng.normal()).collect();
            let scalars = Scalars { samples: 10 + at, loss_before: 1.0, ..Scalars::default() };
            let norms = crate::combine::check_update(&update, regions.pieces(tier), 2).unwrap();
            cohort.admit(id(&format!("d{at}")), tier, scalars, &norms).unwrap();
            raw.push(update);
        }
        let weights = Weights::per_device(cohort.data_shares());
        let mean = weighted_mean(&weights, &cohort, &mut raw.as_slice()).unwrap();
        cohort.robust = Robust::Trimmed(0.0);
        let mut theta = vec![0.0f64; regions.parameters()];
        let mut method = by_name("heterofl", serde_json::Value::Null).unwrap();
        combine(&mut method, &cohort, &[], &mut raw.as_slice(), &mut theta).unwrap();
        for (theta, mean) in theta.iter().zip(&mean) {
            prop_assert!((theta - mean).abs() < 1e-12);
        }
    }

    /// Nothing that devices can say gives a number that is not finite, or a panic.
    #[test]
    fn whatever_is_said_something_finite_is_believed(
        losses in prop::collection::vec(proptest::num::f64::POSITIVE | proptest::num::f64::ZERO, 10),
        refuse: bool,
    ) {
        let regions = regions();
        let mut fleet = fleet(1);
        fleet.iter_mut().zip(&losses).for_each(|(device, &loss)| device.loss = loss / 2.0);
        let mode = if refuse { Mode::Refuse } else { Mode::Clip };
        let mut guard = Guard::new(GuardConfig { mode, ..GuardConfig::default() });
        for _ in 0..3 {
            let mut cohort = cohort(&regions, &fleet);
            let verdict = guard.inspect(&mut cohort, Kind::Train);
            prop_assert!(cohort.participants().iter().all(|p| p.loss().is_finite() && p.loss_after().is_finite()));
            prop_assert!(!cohort.participants().is_empty());
            guard.learn(verdict);
        }
    }
}

mod samples;
mod scores;
mod tactics;
